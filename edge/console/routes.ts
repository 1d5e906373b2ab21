// The operator API: jobs, runs, backfills and snapshots. Guarded by the operator token, no part of
// the consumer interface.

import { createRoute, z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { Backfill, Job, Run, Snapshot } from "../../shared/markets.ts";
import { iso, parseInstant } from "../../shared/time.ts";
import { type App, addLiveness, errorResponses, json, jsonBody, name } from "../http/app.ts";
import type { IngestParts } from "../markets/ingest/execute.ts";
import { findBackfill, findRun, lastOutcome, listRuns } from "../markets/ingest/ledger.ts";
import { latestPartition } from "../markets/ingest/partition.ts";
import { PIPELINES } from "../markets/ingest/pipelines.ts";
import { nextTick } from "../markets/ingest/schedule.ts";
import { launch, startBackfill } from "../markets/ingest/tick.ts";
import { createSnapshot, findSnapshot } from "../markets/store/listings.ts";
import type { Config } from "./config.ts";

/** What the routes need, opened once per environment. */
export interface Console {
  config: Config;
  ingest: IngestParts;
}

const operator = [{ operatorToken: [] }];
const job = name().meta({ description: "job name", example: "grid_region" });
const id = (description: string) => z.uuid("must be a UUID").meta({ description });

/** Registers every route on the service. */
export function addRoutes(app: App<Console>) {
  addLiveness(app, ({ ingest }) => ingest.store.overview());
  addJobs(app);
  addRuns(app);
  addBackfills(app);
  addSnapshots(app);
}

function addJobs(app: App<Console>) {
  const route = createRoute({
    method: "get",
    path: "/api/jobs",
    summary: "Pipelines with their schedules",
    security: operator,
    responses: {
      200: json("jobs", z.array(Job)),
      ...errorResponses("unauthorized", "store_unavailable"),
    },
  });
  app.openapi(route, async (context) => {
    const { database, clock } = context.var.service.ingest;
    const now = clock();
    const jobs = PIPELINES.map(async (pipeline) => {
      const last = await lastOutcome(database, pipeline.job);
      const next = nextTick(pipeline.schedule, now);
      return {
        job: pipeline.job,
        libraries: [...pipeline.libraries],
        cron: pipeline.schedule.cron,
        time_zone: pipeline.schedule.timeZone,
        next_tick: next === null ? null : iso(next),
        last_tick: last?.scheduled_at ?? null,
        last_tick_outcome: last?.outcome ?? null,
        latest_partition: latestPartition(now),
      };
    });
    return context.json(await Promise.all(jobs), 200);
  });
}

function addRuns(app: App<Console>) {
  const start = createRoute({
    method: "post",
    path: "/api/runs",
    summary: "Launch a run by hand",
    description:
      "Without a partition: the newest one, written as a true vintage. An older partition is written " +
      "as a reconstruction.",
    security: operator,
    request: jsonBody(z.object({ job, partition: z.string().optional() })),
    responses: {
      202: json("the queued run", z.object({ run_id: z.string() })),
      ...errorResponses(
        "bad_body",
        "unauthorized",
        "unknown_job",
        "invalid_request",
        "bad_partition",
        "store_unavailable",
      ),
    },
  });
  app.openapi(start, async (context) => {
    const request = context.req.valid("json");
    const run_id = await launch(context.var.service.ingest, request.job, request.partition);
    return context.json({ run_id }, 202);
  });

  const list = createRoute({
    method: "get",
    path: "/api/runs",
    summary: "Newest runs first",
    security: operator,
    request: {
      query: z.object({
        backfill_id: id("only runs of this backfill").optional(),
        limit: z.coerce.number().int().min(1).max(500).default(20),
      }),
    },
    responses: {
      200: json("runs", z.array(Run)),
      ...errorResponses("unauthorized", "invalid_request", "store_unavailable"),
    },
  });
  app.openapi(list, async (context) => {
    const { limit, backfill_id: backfillId } = context.req.valid("query");
    const runs = await listRuns(context.var.service.ingest.database, { limit, backfillId });
    return context.json(runs, 200);
  });

  const one = createRoute({
    method: "get",
    path: "/api/runs/{run_id}",
    summary: "One run with its materialization metadata",
    security: operator,
    request: { params: z.object({ run_id: id("run id") }) },
    responses: {
      200: json("the run", Run),
      ...errorResponses("unauthorized", "unknown_run", "invalid_request", "store_unavailable"),
    },
  });
  app.openapi(one, async (context) => {
    const run = await findRun(
      context.var.service.ingest.database,
      context.req.valid("param").run_id,
    );
    if (!run) throw new Failure("unknown_run", "no such run");
    return context.json(run, 200);
  });
}

function addBackfills(app: App<Console>) {
  const start = createRoute({
    method: "post",
    path: "/api/backfills",
    summary: "Rebuild a range of partitions",
    description:
      "One run a partition, newest first; every row is flagged `vintage_reconstructed`. Safe to repeat. " +
      "A repeated `idempotency_key` returns the first backfill.",
    security: operator,
    request: jsonBody(
      z.object({
        job,
        first: z.string().meta({ example: "2026-01-01" }),
        last: z.string().meta({ example: "2026-01-31" }),
        idempotency_key: name().max(128).optional(),
      }),
    ),
    responses: {
      202: json("the backfill", Backfill),
      ...errorResponses(
        "bad_body",
        "unauthorized",
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
    const backfillId = await startBackfill(ingest, { ...request, idempotencyKey });
    return context.json(await requireBackfill(ingest, backfillId), 202);
  });

  const one = createRoute({
    method: "get",
    path: "/api/backfills/{backfill_id}",
    summary: "A backfill and how far it is",
    security: operator,
    request: { params: z.object({ backfill_id: id("backfill id") }) },
    responses: {
      200: json("the backfill", Backfill),
      ...errorResponses("unauthorized", "unknown_backfill", "invalid_request", "store_unavailable"),
    },
  });
  app.openapi(one, async (context) => {
    const { backfill_id } = context.req.valid("param");
    return context.json(await requireBackfill(context.var.service.ingest, backfill_id), 200);
  });
}

async function requireBackfill(ingest: IngestParts, backfillId: string): Promise<Backfill> {
  const backfill = await findBackfill(ingest.database, backfillId);
  if (!backfill) throw new Failure("unknown_backfill", "no such backfill");
  return backfill;
}

function addSnapshots(app: App<Console>) {
  const route = createRoute({
    method: "post",
    path: "/api/snapshots",
    summary: "Name a knowledge time",
    description:
      "Without `as_of`: now. Commits under way are waited for, so nothing can still become known at " +
      "it, and reads with `snapshot=<name>` answer the same ever after. A name is never moved.",
    security: operator,
    request: jsonBody(
      z.object({
        name: z
          .string()
          .regex(/^[\w.:-]{1,64}$/, "must be 1 to 64 of letters, digits, _ . : -")
          .meta({ example: "backtest-2026-01" }),
        as_of: z.string().optional(),
        note: z.string().max(1_000).default(""),
      }),
    ),
    responses: {
      201: json("the snapshot", Snapshot),
      ...errorResponses(
        "bad_body",
        "bad_datetime",
        "unauthorized",
        "snapshot_exists",
        "invalid_request",
        "store_unavailable",
      ),
    },
  });
  app.openapi(route, async (context) => {
    const { database } = context.var.service.ingest;
    const { name, note, as_of } = context.req.valid("json");
    const asOf = as_of === undefined ? undefined : parseInstant(as_of);
    if (asOf === null) throw new Failure("bad_datetime", "as_of: is not an ISO 8601 datetime");
    const created = await createSnapshot(database, { name, note, asOf });
    if (!created) {
      if (!(await findSnapshot(database, name))) {
        throw new Failure("invalid_request", "as_of: lies in the future");
      }
      throw new Failure("snapshot_exists", `a snapshot is named ${name} already`);
    }
    const { createdAt } = created;
    return context.json({ name, as_of: iso(created.asOf), note, created_at: iso(createdAt) }, 201);
  });
}
