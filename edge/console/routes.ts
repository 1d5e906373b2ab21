// The operator API: jobs, runs, backfills and snapshots. Guarded by the operator token, no part of
// the consumer interface.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { INSTANT_FORM, instantProblem, iso, parseInstant } from "../../shared/time.ts";
import {
  Job,
  PartitionState,
  Run,
  RunEvent,
  RunState,
  Snapshot,
  Tick,
} from "../../shared/wire/markets.ts";
import { livenessRoute } from "../http/liveness.ts";
import { json, jsonBody } from "../http/route.ts";
import { namePart, text } from "../http/texts.ts";
import { listEvents } from "../markets/ingest/journal.ts";
import { findExecution, listExecutions } from "../markets/ingest/ledger.ts";
import { cancel, launch, setSchedule } from "../markets/ingest/operate.ts";
import { listJobs, listPartitions } from "../markets/ingest/overview.ts";
import type { IngestParts } from "../markets/ingest/parts.ts";
import { listTicks } from "../markets/ingest/ticks.ts";
import { NAMED_OBJECTS } from "../markets/store/housekeeping.ts";
import { createSnapshot, findSnapshot } from "../markets/store/listings.ts";
import { alertRoutes } from "./alert-routes.ts";
import { backfillRoutes } from "./backfill-routes.ts";
import { bearerName } from "./bearer.ts";
import { instrumentRoutes } from "./instrument-routes.ts";
import { type Console, calendarDay, id, job, limit, partition } from "./parameters.ts";
import { refusalRoutes } from "./refusal-routes.ts";
import { operator, type Route, route } from "./route.ts";

const LaunchedRun = z.object({ run_id: z.string().meta({ description: "of the queued run" }) });

async function requireRun({ database }: IngestParts, runId: string): Promise<Run> {
  const run = await findExecution(database, runId);
  if (!run) throw new Failure("unknown_run", "no such run");
  return run;
}

const pairOf = ({ config, health }: Console) => ({
  database: health,
  bucket: config.STORE,
  named: NAMED_OBJECTS,
});

/** Every route of the operator API. */
export const routes: readonly Route[] = [
  livenessRoute({ pairOf, table: "run" }),
  route(
    {
      call: "GET /api/jobs",
      operationId: "listJobs",
      tag: "Jobs",
      summary: "Pipelines with their schedules",
      description: "A pipeline fetches one kind of series, a partition of time at a run.",
      who: operator,
      answers: { 200: json("jobs", z.array(Job)) },
    },
    async (context) => {
      return context.json(await listJobs(context.var.service.ingest), 200);
    },
  ),
  route(
    {
      call: "GET /api/jobs/{job}/partitions",
      operationId: "listPartitions",
      tag: "Jobs",
      summary: "Where the partitions of a range stand, newest first",
      description: "Without bounds: the newest 60. At most 1,000 are listed.",
      who: operator,
      params: z.object({ job }),
      query: z.object({
        first: partition("oldest partition", "2026-01-01").optional(),
        last: partition("newest partition").optional(),
      }),
      answers: { 200: json("the partitions", z.array(PartitionState)) },
      errors: ["unknown_job", "bad_partition"],
      never: ["invalid_request"],
    },
    async (context) => {
      const { ingest } = context.var.service;
      const { first, last } = context.req.valid("query");
      const range = { first, last };
      return context.json(await listPartitions(ingest, context.req.valid("param").job, range), 200);
    },
  ),
  ...instrumentRoutes,
  route(
    {
      call: "GET /api/ticks",
      operationId: "listTicks",
      tag: "Schedules",
      summary: "What schedules did at the instants they were due, newest first",
      description: "A tick starts a run, or says why it started none.",
      who: operator,
      query: z.object({
        schedule: namePart().optional().meta({
          description: "only ticks of this schedule",
          example: "grid_region",
        }),
        limit: limit(100, 1_000),
      }),
      answers: { 200: json("ticks", z.array(Tick)) },
    },
    async (context) => {
      const { database } = context.var.service.ingest;
      return context.json(await listTicks(database, context.req.valid("query")), 200);
    },
  ),
  route(
    {
      call: "PATCH /api/schedules/{schedule}",
      operationId: "switchSchedule",
      tag: "Schedules",
      summary: "Switch a schedule on or off",
      description: "What was due while it was off stays undone; backfill it where it is wanted.",
      who: operator,
      params: z.object({
        schedule: namePart().meta({ description: "schedule name", example: "grid_region" }),
      }),
      body: jsonBody(
        z.strictObject({
          enabled: z.boolean().meta({ description: "whether it runs by itself", example: true }),
        }),
      ),
      answers: { 204: { description: "switched" } },
      errors: ["unknown_schedule"],
    },
    async (context) => {
      const { enabled } = context.req.valid("json");
      const { schedule } = context.req.valid("param");
      const by = bearerName(context);
      await setSchedule(context.var.service.ingest, schedule, { enabled, by });
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "POST /api/runs",
      operationId: "launchRun",
      tag: "Runs",
      summary: "Launch a run by hand",
      description:
        "Without a partition: the newest one, written as a true vintage. An older partition is written " +
        "as a reconstruction.",
      who: operator,
      body: jsonBody(
        z.strictObject({ job, partition: partition("the newest one when omitted").optional() }),
      ),
      answers: { 202: json("the queued run", LaunchedRun) },
      errors: ["unknown_job", "bad_partition"],
    },
    async (context) => {
      const request = context.req.valid("json");
      const { ingest } = context.var.service;
      const run_id = await launch(ingest, request.job, request.partition, bearerName(context));
      return context.json({ run_id }, 202);
    },
  ),
  route(
    {
      call: "GET /api/runs",
      operationId: "listRuns",
      tag: "Runs",
      summary: "Newest runs first",
      description: "Filters are combined.",
      who: operator,
      query: z.object({
        job: namePart().optional().meta({
          description: "only runs of this job",
          example: "grid_region",
        }),
        partition: calendarDay.optional().meta({
          description: "only runs of this partition, of the years 1900 to 8999",
          pattern: "^(19|[2-8]\\d)\\d\\d-",
          example: "2026-01-31",
        }),
        state: RunState.optional().meta({
          description: "only runs in this state",
          example: "failed",
        }),
        backfill_id: id("only runs of this backfill").optional(),
        limit: limit(20, 500),
      }),
      answers: { 200: json("runs", z.array(Run)) },
    },
    async (context) => {
      const { backfill_id: backfillId, ...filter } = context.req.valid("query");
      const runs = await listExecutions(context.var.service.ingest.database, {
        ...filter,
        backfillId,
      });
      return context.json(runs, 200);
    },
  ),
  route(
    {
      call: "GET /api/runs/{run_id}",
      operationId: "readRun",
      tag: "Runs",
      summary: "One run with its materialization metadata",
      description: "The metadata is there once it has committed, or found nothing new.",
      who: operator,
      params: z.object({ run_id: id("run id") }),
      answers: { 200: json("the run", Run) },
      errors: ["unknown_run"],
    },
    async (context) => {
      const { run_id } = context.req.valid("param");
      return context.json(await requireRun(context.var.service.ingest, run_id), 200);
    },
  ),
  route(
    {
      call: "GET /api/runs/{run_id}/events",
      operationId: "listRunEvents",
      tag: "Runs",
      summary: "A run's journal, oldest entry first",
      description: "Every request to the provider, what was committed, and each failure.",
      who: operator,
      params: z.object({ run_id: id("run id") }),
      answers: { 200: json("the journal", z.array(RunEvent)) },
      errors: ["unknown_run"],
    },
    async (context) => {
      const { ingest } = context.var.service;
      const { run_id } = await requireRun(ingest, context.req.valid("param").run_id);
      return context.json(await listEvents(ingest.database, run_id), 200);
    },
  ),
  route(
    {
      call: "POST /api/runs/{run_id}/cancel",
      operationId: "cancelRun",
      tag: "Runs",
      summary: "Cancel a queued or running run",
      description: "What it committed stays. A run that has ended is left as it is.",
      who: operator,
      params: z.object({ run_id: id("run id") }),
      answers: { 200: json("the run", Run) },
      errors: ["unknown_run"],
    },
    async (context) => {
      const { ingest } = context.var.service;
      const { run_id: runId } = context.req.valid("param");
      await cancel(ingest, { runId }, bearerName(context));
      return context.json(await requireRun(ingest, runId), 200);
    },
  ),
  ...backfillRoutes,
  ...refusalRoutes,
  ...alertRoutes,
  route(
    {
      call: "POST /api/snapshots",
      operationId: "createSnapshot",
      tag: "Snapshots",
      summary: "Name a knowledge time",
      description:
        "Without `as_of`: now. Commits under way are waited for, so nothing can still become known at " +
        "it, and reads with `snapshot=<name>` answer the same ever after. A name is never moved.",
      who: operator,
      body: jsonBody(
        z.strictObject({
          name: z
            .string()
            .regex(/^[\w.:-]{1,64}$/, "must be 1 to 64 of letters, digits, _ . : -")
            .meta({ description: "how reads name it", example: "backtest-2026-01" }),
          as_of: z
            .string()
            .optional()
            .meta({
              description: "an instant in the past; now when omitted",
              pattern: `^${INSTANT_FORM}$`,
              example: "2026-01-31T12:00:00Z",
            }),
          note: text().max(1_000).default("").meta({
            description: "what it is for",
            example: "for the backtest",
          }),
        }),
      ),
      answers: { 201: json("the snapshot", Snapshot) },
      errors: ["bad_datetime", "snapshot_exists"],
    },
    async (context) => {
      const { database } = context.var.service.ingest;
      const { name, note, as_of } = context.req.valid("json");
      const asOf = as_of === undefined ? undefined : parseInstant(as_of);
      if (asOf === null) throw new Failure("bad_datetime", `as_of: ${instantProblem(as_of ?? "")}`);
      const created = await createSnapshot(database, { name, note, asOf });
      if (!created) {
        if (!(await findSnapshot(database, name))) {
          throw new Failure("invalid_request", "as_of: lies in the future");
        }
        throw new Failure("snapshot_exists", `a snapshot is named ${name} already`);
      }
      const { createdAt } = created;
      return context.json(
        { name, as_of: iso(created.asOf), note, created_at: iso(createdAt) },
        201,
      );
    },
  ),
];
