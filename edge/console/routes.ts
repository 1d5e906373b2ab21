// The operator API: jobs, runs, backfills and snapshots. Guarded by the operator token, no part of
// the consumer interface.

import { createRoute, z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import {
  Backfill,
  Job,
  PartitionState,
  Run,
  RunEvent,
  RunState,
  Snapshot,
  Tick,
} from "../../shared/markets.ts";
import { iso, parseInstant } from "../../shared/time.ts";
import { type App, addLiveness, errorResponses, json, jsonBody, name } from "../http/app.ts";
import { listEvents } from "../markets/ingest/journal.ts";
import {
  findBackfill,
  findExecution,
  listBackfills,
  listExecutions,
} from "../markets/ingest/ledger.ts";
import {
  cancel,
  launch,
  resumeBackfill,
  setSchedule,
  startBackfill,
} from "../markets/ingest/operate.ts";
import { listJobs, listPartitions } from "../markets/ingest/overview.ts";
import type { IngestParts } from "../markets/ingest/parts.ts";
import { listTicks } from "../markets/ingest/ticks.ts";
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
  addSchedules(app);
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
    return context.json(await listJobs(context.var.service.ingest), 200);
  });

  const partitions = createRoute({
    method: "get",
    path: "/api/jobs/{job}/partitions",
    summary: "Where the partitions of a range stand, newest first",
    description: "Without bounds: the newest 60. At most 1,000 are listed.",
    security: operator,
    request: {
      params: z.object({ job }),
      query: z.object({ first: z.string().optional(), last: z.string().optional() }),
    },
    responses: {
      200: json("the partitions", z.array(PartitionState)),
      ...errorResponses("unauthorized", "unknown_job", "bad_partition", "store_unavailable"),
    },
  });
  app.openapi(partitions, async (context) => {
    const { ingest } = context.var.service;
    const { first, last } = context.req.valid("query");
    const range = { first, last };
    return context.json(await listPartitions(ingest, context.req.valid("param").job, range), 200);
  });
}

function addSchedules(app: App<Console>) {
  const ticks = createRoute({
    method: "get",
    path: "/api/ticks",
    summary: "What schedules did at the instants they were due, newest first",
    security: operator,
    request: {
      query: z.object({
        schedule: z.string().optional(),
        limit: z.coerce.number().int().min(1).max(1_000).default(100),
      }),
    },
    responses: {
      200: json("ticks", z.array(Tick)),
      ...errorResponses("unauthorized", "invalid_request", "store_unavailable"),
    },
  });
  app.openapi(ticks, async (context) => {
    const { database } = context.var.service.ingest;
    return context.json(await listTicks(database, context.req.valid("query")), 200);
  });

  const change = createRoute({
    method: "patch",
    path: "/api/schedules/{schedule}",
    summary: "Switch a schedule on or off",
    description: "What was due while it was off stays undone; backfill it where it is wanted.",
    security: operator,
    request: {
      params: z.object({ schedule: name() }),
      ...jsonBody(z.object({ enabled: z.boolean() })),
    },
    responses: {
      204: { description: "switched" },
      ...errorResponses(
        "bad_body",
        "unauthorized",
        "unknown_schedule",
        "invalid_request",
        "store_unavailable",
      ),
    },
  });
  app.openapi(change, async (context) => {
    const { enabled } = context.req.valid("json");
    const { schedule } = context.req.valid("param");
    await setSchedule(context.var.service.ingest, schedule, { enabled });
    return context.body(null, 204);
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
        job: z.string().optional(),
        partition: z.iso.date("must be a YYYY-MM-DD day").optional(),
        state: RunState.optional(),
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
    const { backfill_id: backfillId, ...filter } = context.req.valid("query");
    const runs = await listExecutions(context.var.service.ingest.database, {
      ...filter,
      backfillId,
    });
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
    const { run_id } = context.req.valid("param");
    return context.json(await requireRun(context.var.service.ingest, run_id), 200);
  });
  addRunParts(app);
}

function addRunParts(app: App<Console>) {
  const events = createRoute({
    method: "get",
    path: "/api/runs/{run_id}/events",
    summary: "A run's journal, oldest entry first",
    security: operator,
    request: { params: z.object({ run_id: id("run id") }) },
    responses: {
      200: json("the journal", z.array(RunEvent)),
      ...errorResponses("unauthorized", "unknown_run", "invalid_request", "store_unavailable"),
    },
  });
  app.openapi(events, async (context) => {
    const { ingest } = context.var.service;
    const { run_id } = await requireRun(ingest, context.req.valid("param").run_id);
    return context.json(await listEvents(ingest.database, run_id), 200);
  });

  const end = createRoute({
    method: "post",
    path: "/api/runs/{run_id}/cancel",
    summary: "Cancel a queued or running run",
    description: "What it committed stays. A run that has ended is left as it is.",
    security: operator,
    request: { params: z.object({ run_id: id("run id") }) },
    responses: {
      200: json("the run", Run),
      ...errorResponses("unauthorized", "unknown_run", "invalid_request", "store_unavailable"),
    },
  });
  app.openapi(end, async (context) => {
    const { ingest } = context.var.service;
    const { run_id: runId } = context.req.valid("param");
    await cancel(ingest, { runId });
    return context.json(await requireRun(ingest, runId), 200);
  });
}

function addBackfills(app: App<Console>) {
  const start = createRoute({
    method: "post",
    path: "/api/backfills",
    summary: "Rebuild a range of partitions",
    description:
      "One run a partition, newest first; every row is flagged `vintage_reconstructed`. Safe to repeat. " +
      "A repeated `idempotency_key` returns the first backfill and runs what of it failed again.",
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

  const list = createRoute({
    method: "get",
    path: "/api/backfills",
    summary: "Newest backfills first",
    security: operator,
    request: {
      query: z.object({ limit: z.coerce.number().int().min(1).max(200).default(20) }),
    },
    responses: {
      200: json("backfills", z.array(Backfill)),
      ...errorResponses("unauthorized", "invalid_request", "store_unavailable"),
    },
  });
  app.openapi(list, async (context) => {
    const { database } = context.var.service.ingest;
    return context.json(await listBackfills(database, context.req.valid("query").limit), 200);
  });

  const errors = errorResponses(
    "unauthorized",
    "unknown_backfill",
    "invalid_request",
    "store_unavailable",
  );
  const params = z.object({ backfill_id: id("backfill id") });
  const one = createRoute({
    method: "get",
    path: "/api/backfills/{backfill_id}",
    summary: "A backfill and how far it is",
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
    await cancel(ingest, { backfillId });
    return context.json(await requireBackfill(ingest, backfillId), 200);
  });

  const again = createRoute({
    method: "post",
    path: "/api/backfills/{backfill_id}/retry",
    summary: "Run a backfill's failed, late and canceled partitions again",
    security: operator,
    request: { params },
    responses: { 202: json("the backfill", Backfill), ...errors },
  });
  app.openapi(again, async (context) => {
    const { ingest } = context.var.service;
    const { backfill_id } = await requireBackfill(ingest, context.req.valid("param").backfill_id);
    await resumeBackfill(ingest, backfill_id);
    return context.json(await requireBackfill(ingest, backfill_id), 202);
  });
}

async function requireRun({ database }: IngestParts, runId: string): Promise<Run> {
  const run = await findExecution(database, runId);
  if (!run) throw new Failure("unknown_run", "no such run");
  return run;
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
