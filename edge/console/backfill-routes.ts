// The routes of backfills.

import { createRoute, z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { Backfill } from "../../shared/wire/markets.ts";
import { type App, errorResponses, json, jsonBody, name } from "../http/app.ts";
import { findBackfill, listBackfills } from "../markets/ingest/ledger.ts";
import { cancel, resumeBackfill, startBackfill } from "../markets/ingest/operate.ts";
import type { IngestParts } from "../markets/ingest/parts.ts";
import { bearerName } from "./bearer.ts";
import { type Console, id, job, limit, operator, partition, refusals } from "./parameters.ts";

/** Registers the routes of backfills. */
export function addBackfills(app: App<Console>) {
  const start = createRoute({
    method: "post",
    path: "/api/backfills",
    operationId: "startBackfill",
    tags: ["Backfills"],
    summary: "Rebuild a range of partitions",
    description:
      "One run a partition, newest first; every row is flagged `vintage_reconstructed`. Safe to repeat. " +
      "A repeated `idempotency_key` returns the first backfill and runs what of it failed again.",
    security: operator,
    request: jsonBody(
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
    responses: {
      202: json("the backfill", Backfill),
      ...errorResponses(
        "bad_body",
        ...refusals,
        "unknown_job",
        "invalid_request",
        "bad_partition",
        "store_unavailable",
      ),
    },
  });
  app.openapi(start, async (context) => {
    const { ingest } = context.var.service;
    const { idempotency_key: idempotencyKey, ...request } = context.req.valid("json");
    const launchedBy = bearerName(context);
    const backfillId = await startBackfill(ingest, { ...request, idempotencyKey, launchedBy });
    return context.json(await requireBackfill(ingest, backfillId), 202);
  });

  const list = createRoute({
    method: "get",
    path: "/api/backfills",
    operationId: "listBackfills",
    tags: ["Backfills"],
    summary: "Newest backfills first",
    description: "Each with its runs counted by state.",
    security: operator,
    request: { query: z.object({ limit: limit(20, 200) }) },
    responses: {
      200: json("backfills", z.array(Backfill)),
      ...errorResponses(...refusals, "invalid_request", "store_unavailable"),
    },
  });
  app.openapi(list, async (context) => {
    const { database } = context.var.service.ingest;
    return context.json(await listBackfills(database, context.req.valid("query").limit), 200);
  });

  addBackfillParts(app);
}

function addBackfillParts(app: App<Console>) {
  const errors = errorResponses(
    ...refusals,
    "unknown_backfill",
    "invalid_request",
    "store_unavailable",
  );
  const params = z.object({ backfill_id: id("backfill id") });
  const one = createRoute({
    method: "get",
    path: "/api/backfills/{backfill_id}",
    operationId: "readBackfill",
    tags: ["Backfills"],
    summary: "A backfill and how far it is",
    description: "Its runs are listed by `GET /api/runs?backfill_id=…`.",
    security: operator,
    request: { params },
    responses: { 200: json("the backfill", Backfill), ...errors },
  });
  app.openapi(one, async (context) => {
    const { backfill_id } = context.req.valid("param");
    return context.json(await requireBackfill(context.var.service.ingest, backfill_id), 200);
  });

  const end = createRoute({
    method: "post",
    path: "/api/backfills/{backfill_id}/cancel",
    operationId: "cancelBackfill",
    tags: ["Backfills"],
    summary: "Cancel what of a backfill has not ended",
    description: "What was committed stays.",
    security: operator,
    request: { params },
    responses: { 200: json("the backfill", Backfill), ...errors },
  });
  app.openapi(end, async (context) => {
    const { ingest } = context.var.service;
    const { backfill_id: backfillId } = context.req.valid("param");
    await requireBackfill(ingest, backfillId);
    await cancel(ingest, { backfillId }, bearerName(context));
    return context.json(await requireBackfill(ingest, backfillId), 200);
  });

  const again = createRoute({
    method: "post",
    path: "/api/backfills/{backfill_id}/retry",
    operationId: "retryBackfill",
    tags: ["Backfills"],
    summary: "Run a backfill's failed, late and canceled partitions again",
    description: "What succeeded is left as it is.",
    security: operator,
    request: { params },
    responses: { 202: json("the backfill", Backfill), ...errors },
  });
  app.openapi(again, async (context) => {
    const { ingest } = context.var.service;
    const { backfill_id } = await requireBackfill(ingest, context.req.valid("param").backfill_id);
    await resumeBackfill(ingest, backfill_id, bearerName(context));
    return context.json(await requireBackfill(ingest, backfill_id), 202);
  });
}

async function requireBackfill(ingest: IngestParts, backfillId: string): Promise<Backfill> {
  const backfill = await findBackfill(ingest.database, backfillId);
  if (!backfill) throw new Failure("unknown_backfill", "no such backfill");
  return backfill;
}
