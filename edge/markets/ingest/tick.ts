// What happens every minute: rescue runs whose process died, then fire the schedules that are due.
// Delivered late, twice or after an outage, it fires each schedule's newest instant exactly once.

import { Failure } from "../../../shared/errors.ts";
import { iso } from "../../../shared/time.ts";
import { type IngestParts, isReconstruction } from "./execute.ts";
import {
  createBackfill,
  createRun,
  lastTicks,
  recordTick,
  rescueRuns,
  retryFailedRuns,
} from "./ledger.ts";
import { latestPartition, partitionRange, partitionsBetween } from "./partition.ts";
import { PIPELINES, type Pipeline, pipelineOf } from "./pipelines.ts";
import { latestTick } from "./schedule.ts";

const RESEND_AFTER_MS = 15 * 60_000;
/** A long backlog waits its turn; only so many of its messages are sent again each minute. */
const RESEND_MAX = 200;

export async function minuteTick(parts: IngestParts, now: number): Promise<void> {
  await rescue(parts, now);
  const last = await lastTicks(parts.database);
  for (const pipeline of PIPELINES) {
    const scheduledAt = latestTick(pipeline.schedule, now);
    if (scheduledAt === null || scheduledAt <= (last.get(pipeline.job) ?? -Infinity)) continue;
    await fire(parts, pipeline, scheduledAt, now);
  }
}

async function rescue(parts: IngestParts, now: number) {
  const limits = { resendAfterMs: RESEND_AFTER_MS, resendMax: RESEND_MAX };
  const { rescued, resend } = await rescueRuns(parts.database, limits, now);
  if (rescued + resend.length === 0) return;
  parts.log.warning("runs_rescued", { leases_expired: rescued, sent_again: resend.length });
  for (const [job, runs] of Map.groupBy(resend, (run) => run.job)) {
    await parts.send(
      job,
      runs.map((run) => run.runId),
    );
  }
}

/**
 * A tick materialises the newest partition, resolved against its scheduled instant, not the clock.
 */
async function fire(parts: IngestParts, pipeline: Pipeline, scheduledAt: number, now: number) {
  const partition = latestPartition(scheduledAt);
  const inRange = partition >= pipeline.partitions.first;
  const runId = crypto.randomUUID();
  const outcome = inRange
    ? { runId, job: pipeline.job, partition, trigger: "schedule" as const, reconstructed: false }
    : { skipReason: `partition ${partition} is not in range yet` };
  if (!(await recordTick(parts.database, { schedule: pipeline.job, scheduledAt, outcome }, now)))
    return;
  parts.log.info("tick", { schedule: pipeline.job, scheduled_at: iso(scheduledAt), ...outcome });
  if (inRange) await parts.send(pipeline.job, [runId]);
}

const requirePipeline = (job: string): Pipeline => {
  const pipeline = pipelineOf(job);
  if (pipeline) return pipeline;
  const known = PIPELINES.map((one) => one.job).join(", ");
  throw new Failure("unknown_job", `no job is named ${JSON.stringify(job)}; there are: ${known}`);
};

/** Starts a run by hand; the newest partition when none is named. Returns the run's id. */
export async function launch(parts: IngestParts, job: string, partition?: string): Promise<string> {
  const pipeline = requirePipeline(job);
  const now = parts.clock();
  const key = partition ?? latestPartition(now);
  partitionRange(pipeline.partitions, key, now);
  const runId = crypto.randomUUID();
  const reconstructed = isReconstruction(key, now);
  await createRun(
    parts.database,
    { runId, job, partition: key, trigger: "manual", reconstructed },
    now,
  );
  await parts.send(job, [runId]);
  return runId;
}

export interface BackfillRequest {
  job: string;
  first: string;
  last: string;
  idempotencyKey?: string | undefined;
}

/**
 * Starts one run a partition, newest first. Repeating an idempotency key resumes the first
 * backfill.
 */
export async function startBackfill(parts: IngestParts, request: BackfillRequest): Promise<string> {
  const { job, first, last } = request;
  const now = parts.clock();
  const partitions = partitionsBetween(requirePipeline(job).partitions, first, last, now);
  const runs = partitions.map((partition) => ({ runId: crypto.randomUUID(), partition }));
  const backfill = { job, first, last, backfillId: crypto.randomUUID() };
  const idempotencyKey = request.idempotencyKey ?? null;
  const { backfillId, created } = await createBackfill(
    parts.database,
    { ...backfill, idempotencyKey },
    runs,
    now,
  );
  if (created)
    await parts.send(
      job,
      runs.map((run) => run.runId),
    );
  else {
    await rescue(parts, now);
    await parts.send(job, await retryFailedRuns(parts.database, backfillId, now));
  }
  return backfillId;
}
