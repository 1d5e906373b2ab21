// The routes of changes that the gate refused for the rows they would withdraw.

import { z } from "@hono/zod-openapi";
import { AcceptedRefusals, Refusal, RefusedChange } from "../../shared/wire/refusals.ts";
import { json, jsonBody } from "../http/route.ts";
import { namePart } from "../http/texts.ts";
import { accept } from "../markets/ingest/operate.ts";
import { listRefusals, requireRefusal } from "../markets/ingest/refusals.ts";
import { bearerName } from "./bearer.ts";
import { id, limit } from "./parameters.ts";
import { operator, type Route, route } from "./route.ts";

const ACCEPTED_MAX = 1_000;

const params = z.object({ refusal_id: id("refusal id") });

/** Routes of refused changes. */
export const refusalRoutes: readonly Route[] = [
  route(
    {
      call: "GET /api/refusals",
      operationId: "listRefusals",
      tag: "Refusals",
      summary: "Changes that would withdraw too many rows, newest first",
      description:
        "A run leaves a series as it was when the answer lacks more than a tenth of the rows stored " +
        "for its window. A later run that is refused no other rows renews the change; one that is " +
        "refused more of them ends it, as does a sound answer.",
      who: operator,
      query: z.object({
        job: namePart().optional().meta({
          description: "only those of this job",
          example: "grid_region",
        }),
        state: Refusal.shape.state.optional().meta({
          description: "only those in this state",
          example: "open",
        }),
        run_id: id("only what this run was refused").optional(),
        limit: limit(100, 1_000),
      }),
      answers: { 200: json("refused changes", z.array(Refusal)) },
    },
    async (context) => {
      const { database } = context.var.service.ingest;
      const { run_id: runId, ...filter } = context.req.valid("query");
      return context.json(await listRefusals(database, { ...filter, runId }), 200);
    },
  ),
  route(
    {
      call: "GET /api/refusals/{refusal_id}",
      operationId: "readRefusal",
      tag: "Refusals",
      summary: "A refused change, row by row",
      description: "What is stored beside what the source sent.",
      who: operator,
      params,
      answers: { 200: json("the change", RefusedChange) },
      errors: ["unknown_refusal"],
    },
    async (context) => {
      const { refusal_id } = context.req.valid("param");
      const { database } = context.var.service.ingest;
      return context.json(await requireRefusal(database, refusal_id), 200);
    },
  ),
  route(
    {
      call: "POST /api/refusals/accept",
      operationId: "acceptRefusals",
      tag: "Refusals",
      summary: "Accept refused changes, once",
      description:
        "All of them or none. The runs that were refused are made again, one a partition, and commit: " +
        "a run may withdraw the rows of these changes and no others, once, and only where it sends " +
        "what came in their place. An id never stands for more rows than when it was looked at. " +
        "The change and the run's journal say who accepted it.",
      who: operator,
      body: jsonBody(
        z.strictObject({
          refusal_ids: z
            .array(id("refusal id"))
            .min(1)
            .max(ACCEPTED_MAX)
            .meta({
              description: "what to accept",
              example: ["6f1c2b9e-3d7a-4c55-8a10-2b1f9d0c4e71"],
            }),
        }),
      ),
      answers: { 202: json("the changes, and the runs that commit them", AcceptedRefusals) },
      errors: ["unknown_refusal", "state_conflict"],
    },
    async (context) => {
      const { refusal_ids: ids } = context.req.valid("json");
      const { ingest } = context.var.service;
      const { refusals, runIds: run_ids } = await accept(ingest, ids, bearerName(context));
      return context.json({ refusals, run_ids }, 202);
    },
  ),
];
