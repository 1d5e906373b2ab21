// What operators ask of ingest: start and cancel executions, start, cancel and resume backfills,
// accept what the gate refused, switch schedules.

import { Failure } from "../../../shared/errors.ts";
import type { Refusal } from "../../../shared/wire/refusals.ts";
import { rescue, sendReleased } from "./dispatch.ts";
import {
  cancelExecutions,
  createBackfill,
  createExecution,
  retryFailedExecutions,
} from "./ledger.ts";
import { latestPartition, partitionRange, partitionsBetween } from "./partition.ts";
import type { IngestParts } from "./parts.ts";
import { type Pipeline, requirePipeline, requireSchedule } from "./pipeline.ts";
import { acceptRefusals } from "./refusals.ts";
import { latestTick } from "./schedule.ts";
import { switchSchedule } from "./ticks.ts";

/**
 * Starts an execution by hand, of the newest partition when none is named, for the operator of a
 * name. Returns its id. Fails with `unknown_job` or `bad_partition`.
 */
export async function launch(
  parts: IngestParts,
  job: string,
  partition?: string,
  launchedBy: string | null = null,
): Promise<string> {
  const pipeline = requirePipeline(parts.pipelines, job);
  const now = parts.clock();
  const key = partition ?? latestPartition(pipeline.partitions, now);
  partitionRange(pipeline.partitions, key, now);
  const runId = crypto.randomUUID();
  const reconstructed = isReconstruction(pipeline, key, now);
  const execution = { runId, job, partition: key, trigger: "manual" as const, reconstructed };
  await createExecution(parts.database, { ...execution, launchedBy }, now);
  await parts.send(job, [runId]);
  return runId;
}

/** By hand, only the newest partition, or one that is early, is written as forward vintages. */
const isReconstruction = ({ partitions }: Pipeline, partition: string, now: number) =>
  partition < latestPartition(partitions, now);

/** The partitions of a job from `first` to `last`, both included. */
export interface BackfillRequest {
  job: string;
  first: string;
  last: string;
  /** A repeated key names the backfill that the first request started. */
  idempotencyKey?: string | undefined;
  /** Name of the operator who asks. */
  launchedBy?: string | undefined;
}

/**
 * Starts one execution a partition, newest first, and returns the backfill's id. Repeating an
 * idempotency key resumes the first backfill. Fails with `unknown_job` or `bad_partition`.
 */
export async function startBackfill(parts: IngestParts, request: BackfillRequest): Promise<string> {
  const { job, first, last } = request;
  const now = parts.clock();
  const { partitions } = requirePipeline(parts.pipelines, job);
  const keys = partitionsBetween(partitions, first, last, now);
  const newest = latestPartition(partitions, now);
  if ((keys[0] ?? "") > newest) {
    const detail = `${keys[0]} is not out yet; a backfill reaches to ${newest}`;
    throw new Failure("bad_partition", detail);
  }
  const executions = keys.map((partition) => ({ runId: crypto.randomUUID(), partition }));
  const { idempotencyKey = null, launchedBy = null } = request;
  const { backfillId, created } = await createBackfill(
    parts.database,
    { job, first, last, backfillId: crypto.randomUUID(), idempotencyKey, launchedBy },
    executions,
    now,
  );
  if (created) await sendReleased(parts);
  // What is partial is not tried again by a request that is merely repeated.
  else await resumeBackfill(parts, backfillId, { by: launchedBy, withPartial: false });
  return backfillId;
}

/**
 * Executes what is left of a backfill: failed, late and canceled partitions, and those whose
 * process died.
 */
export async function resumeBackfill(
  parts: IngestParts,
  backfillId: string,
  { by = null, withPartial = true }: { by?: string | null; withPartial?: boolean } = {},
): Promise<void> {
  await rescue(parts, parts.clock());
  const which = { backfillId, withPartial };
  await retryFailedExecutions(parts.database, which, { by, now: parts.clock() });
  await sendReleased(parts);
}

/**
 * Accepts refusals for the operator of a name, and makes the executions again that were refused:
 * one of each partition, as it was. Returns the refusals, and the ids of the executions. Fails as
 * `acceptRefusals` does.
 */
export async function accept(
  parts: IngestParts,
  refusalIds: readonly string[],
  by: string,
): Promise<{ refusals: Refusal[]; runIds: string[] }> {
  const now = parts.clock();
  const refusals = await acceptRefusals(parts.database, refusalIds, { by, now });
  const executions = new Map(
    refusals.map(({ job, partition, vintage_reconstructed: reconstructed }) => [
      `${job} ${partition} ${reconstructed}`,
      { runId: crypto.randomUUID(), job, partition, trigger: "manual" as const, reconstructed },
    ]),
  );
  for (const execution of executions.values()) {
    await createExecution(parts.database, { ...execution, launchedBy: by }, now);
    await parts.send(execution.job, [execution.runId]);
  }
  return { refusals, runIds: [...executions.values()].map(({ runId }) => runId) };
}

/**
 * Ends queued and running executions at an operator's wish; what they committed stays. Returns how
 * many ended.
 */
export const cancel = (
  { database, clock }: IngestParts,
  which: { runId: string } | { backfillId: string },
  by: string | null = null,
): Promise<number> => cancelExecutions(database, which, { by, now: clock() });

/**
 * Switches a schedule on or off. What was due while it was off stays undone. Fails with
 * `unknown_schedule`.
 */
export async function setSchedule(
  parts: IngestParts,
  name: string,
  { enabled, by = null }: { enabled: boolean; by?: string | null },
): Promise<void> {
  const { schedule } = requireSchedule(parts.pipelines, name);
  const lastTick = latestTick(schedule, parts.clock()) ?? parts.clock();
  await switchSchedule(parts.database, name, { enabled, lastTick, by });
}
