// The routes of changes that the gate refused for the rows they would withdraw.

import { z } from "@hono/zod-openapi";
import { Refusal, RefusedChange } from "../../shared/wire/refusals.ts";
import { json, jsonBody } from "../http/route.ts";
import { namePart } from "../http/texts.ts";
import { accept } from "../markets/ingest/operate.ts";
import { listRefusals, requireRefusal } from "../markets/ingest/refusals.ts";
import { bearerName } from "./bearer.ts";
import { id, limit } from "./parameters.ts";
import { operator, type Route, route } from "./route.ts";

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
        "for its window. Of a series one such change is open of forward vintages, and one a " +
        "partition of reconstructions; a later run's takes its place.",
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
      call: "POST /api/refusals/{refusal_id}/accept",
      operationId: "acceptRefusal",
      tag: "Refusals",
      summary: "Accept a refused change, once",
      description:
        "The next run that withdraws none but its rows commits: launch one, or wait for its schedule. " +
        "An answer that lacks other rows is refused as before. The change and the run's journal " +
        "say who accepted it.",
      who: operator,
      params,
      body: jsonBody(
        z.strictObject({
          run_id: id("the run whose refused change was looked at; 409 once another took its place"),
        }),
      ),
      answers: { 200: json("the change", Refusal) },
      errors: ["unknown_refusal", "state_conflict"],
    },
    async (context) => {
      const { refusal_id: refusalId } = context.req.valid("param");
      const { run_id: runId } = context.req.valid("json");
      const { ingest } = context.var.service;
      const [accepted] = await accept(ingest, { runId, refusalId }, bearerName(context));
      return context.json(accepted as Refusal, 200);
    },
  ),
];
