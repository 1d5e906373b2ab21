// The routes of backfills.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { Backfill } from "../../shared/wire/markets.ts";
import { json, jsonBody } from "../http/route.ts";
import { name } from "../http/texts.ts";
import { findBackfill, listBackfills } from "../markets/ingest/ledger.ts";
import { cancel, resumeBackfill, startBackfill } from "../markets/ingest/operate.ts";
import type { IngestParts } from "../markets/ingest/parts.ts";
import { bearerName } from "./bearer.ts";
import { id, job, limit, partition } from "./parameters.ts";
import { operator, type Route, route } from "./route.ts";

async function requireBackfill(ingest: IngestParts, backfillId: string): Promise<Backfill> {
  const backfill = await findBackfill(ingest.database, backfillId);
  if (!backfill) throw new Failure("unknown_backfill", "no such backfill");
  return backfill;
}

const params = z.object({ backfill_id: id("backfill id") });

/** Routes of backfills. */
export const backfillRoutes: readonly Route[] = [
  route(
    {
      call: "POST /api/backfills",
      operationId: "startBackfill",
      tag: "Backfills",
      summary: "Rebuild a range of partitions",
      description:
        "One run a partition, newest first; every row is flagged `vintage_reconstructed`. Safe to repeat. " +
        "A repeated `idempotency_key` returns the first backfill and runs what of it failed again.",
      who: operator,
      body: jsonBody(
        z.strictObject({
          job,
          first: partition("oldest partition"),
          last: partition("newest partition"),
          idempotency_key: name().max(128).optional().meta({
            description: "names this request, so that repeating it starts nothing new",
            example: "january-again",
          }),
        }),
      ),
      answers: { 202: json("the backfill", Backfill) },
      errors: ["unknown_job", "bad_partition"],
    },
    async (context) => {
      const { ingest } = context.var.service;
      const { idempotency_key: idempotencyKey, ...request } = context.req.valid("json");
      const launchedBy = bearerName(context);
      const backfillId = await startBackfill(ingest, { ...request, idempotencyKey, launchedBy });
      return context.json(await requireBackfill(ingest, backfillId), 202);
    },
  ),
  route(
    {
      call: "GET /api/backfills",
      operationId: "listBackfills",
      tag: "Backfills",
      summary: "Newest backfills first",
      description: "Each with its runs counted by state.",
      who: operator,
      query: z.object({ limit: limit(20, 200) }),
      answers: { 200: json("backfills", z.array(Backfill)) },
    },
    async (context) => {
      const { database } = context.var.service.ingest;
      return context.json(await listBackfills(database, context.req.valid("query").limit), 200);
    },
  ),
  route(
    {
      call: "GET /api/backfills/{backfill_id}",
      operationId: "readBackfill",
      tag: "Backfills",
      summary: "A backfill and how far it is",
      description: "Its runs are listed by `GET /api/runs?backfill_id=…`.",
      who: operator,
      params,
      answers: { 200: json("the backfill", Backfill) },
      errors: ["unknown_backfill"],
    },
    async (context) => {
      const { backfill_id } = context.req.valid("param");
      return context.json(await requireBackfill(context.var.service.ingest, backfill_id), 200);
    },
  ),
  route(
    {
      call: "POST /api/backfills/{backfill_id}/cancel",
      operationId: "cancelBackfill",
      tag: "Backfills",
      summary: "Cancel what of a backfill has not ended",
      description: "What was committed stays.",
      who: operator,
      params,
      answers: { 200: json("the backfill", Backfill) },
      errors: ["unknown_backfill"],
    },
    async (context) => {
      const { ingest } = context.var.service;
      const { backfill_id: backfillId } = context.req.valid("param");
      await requireBackfill(ingest, backfillId);
      await cancel(ingest, { backfillId }, bearerName(context));
      return context.json(await requireBackfill(ingest, backfillId), 200);
    },
  ),
  route(
    {
      call: "POST /api/backfills/{backfill_id}/retry",
      operationId: "retryBackfill",
      tag: "Backfills",
      summary: "Run a backfill's partial, failed, late and canceled partitions again",
      description: "What succeeded is left as it is.",
      who: operator,
      params,
      answers: { 202: json("the backfill", Backfill) },
      errors: ["unknown_backfill"],
    },
    async (context) => {
      const { ingest } = context.var.service;
      const { backfill_id } = await requireBackfill(ingest, context.req.valid("param").backfill_id);
      await resumeBackfill(ingest, backfill_id, { by: bearerName(context) });
      return context.json(await requireBackfill(ingest, backfill_id), 202);
    },
  ),
];
