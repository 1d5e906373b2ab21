// What happens every minute: rescue runs whose process died, then fire the schedules that are due.
// Delivered late, twice or after an outage, it fires each instant at most once, and after an outage
// each partition that was missed.

import { Failure } from "../../../shared/errors.ts";
import { HOUR, iso, MINUTE } from "../../../shared/time.ts";
import { type IngestParts, isReconstruction, sendReleased } from "./execute.ts";
import { forgetEvents } from "./journal.ts";
import { cancelRuns, createBackfill, createRun, rescueRuns, retryFailedRuns } from "./ledger.ts";
import { latestPartition, partitionRange, partitionsBetween, shiftPartition } from "./partition.ts";
import { firstExpected, partitionStates } from "./partition-states.ts";
import { type Pipeline, requirePipeline, schedulesOf } from "./pipeline.ts";
import { latestTick, type Schedule, ticksSince } from "./schedule.ts";
import { type Firing, recordTicks, scheduleStates, switchSchedule } from "./ticks.ts";

const RESEND_AFTER_MS = 15 * MINUTE;
/** A long backlog waits its turn; only so many of its messages are sent again each minute. */
const RESEND_MAX = 200;
/**
 * Instants missed in an outage are recorded, the newest of them; six weeks of an hourly schedule.
 */
const MISSED_MAX = 1_000;
/** Partitions before the newest that a repair looks at. */
const REPAIRED_MAX = 31;

export async function minuteTick(parts: IngestParts, now: number): Promise<void> {
  await rescue(parts, now);
  await sendReleased(parts);
  const states = await scheduleStates(parts.database);
  for (const { pipeline, schedule } of schedulesOf(parts.pipelines)) {
    const state = states.get(schedule.name);
    if (state?.enabled === false) continue;
    const newest = latestTick(schedule, now);
    if (newest === null || newest <= (state?.lastTick ?? -Infinity)) continue;
    // A schedule that never fired begins with its newest instant.
    const due = state ? ticksSince(schedule, state.lastTick, now, MISSED_MAX) : [newest];
    await fire(parts, { pipeline, schedule, due }, now);
  }
  if (now % HOUR < MINUTE) await forgetEvents(parts.database, now);
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

interface Due {
  pipeline: Pipeline;
  schedule: Schedule;
  /** Oldest first; all but the last were missed. */
  due: readonly number[];
}

/**
 * A tick materializes the partition it aims at, resolved against its scheduled instant, not the
 * clock. Of missed ticks that aim at one partition, the last does.
 */
async function fire(parts: IngestParts, { pipeline, schedule, due }: Due, now: number) {
  const newest = due.at(-1) ?? now;
  const targets = new Map<string, number>();
  const firings: Firing[] = [];
  for (const scheduledAt of due.toReversed()) {
    const isNewest = scheduledAt === newest;
    const target = await targetOf(parts, { pipeline, schedule }, scheduledAt, isNewest);
    const takenAt = "partition" in target ? targets.get(target.partition) : undefined;
    if ("skipReason" in target) firings.unshift({ scheduledAt, outcome: target });
    else if (takenAt !== undefined) {
      const skipReason = `missed; the tick of ${iso(takenAt)} takes partition ${target.partition}`;
      firings.unshift({ scheduledAt, outcome: { skipReason } });
    } else {
      targets.set(target.partition, scheduledAt);
      firings.unshift({ scheduledAt, outcome: newRun(pipeline, target.partition) });
    }
  }
  if (!(await recordTicks(parts.database, schedule.name, firings, now))) return;
  for (const { scheduledAt, outcome } of firings) {
    const entry = { schedule: schedule.name, scheduled_at: iso(scheduledAt), ...outcome };
    parts.log.info("tick", entry);
  }
  const runIds = firings.flatMap(({ outcome }) => ("runId" in outcome ? [outcome.runId] : []));
  if (runIds.length > 0) await parts.send(pipeline.job, runIds);
}

const newRun = ({ job }: Pipeline, partition: string) => ({
  runId: crypto.randomUUID(),
  job,
  partition,
  trigger: "schedule" as const,
  reconstructed: false,
});

type Target = { partition: string } | { skipReason: string };

async function targetOf(
  parts: IngestParts,
  { pipeline, schedule }: Omit<Due, "due">,
  scheduledAt: number,
  isNewest: boolean,
): Promise<Target> {
  const { partitions } = pipeline;
  const latest = latestPartition(partitions, scheduledAt);
  if (schedule.aim === "unfinished") {
    if (!isNewest) return { skipReason: "missed; the newest tick repairs" };
    return unfinished(parts, pipeline, latest, scheduledAt);
  }
  const partition = schedule.aim === "latest" ? latest : shiftPartition(partitions, latest, -1);
  if (partition >= partitions.first) return { partition };
  return { skipReason: `partition ${partition} is not in range yet` };
}

/** The oldest recent partition that a schedule once aimed at and no run materialized. */
async function unfinished(
  { database }: IngestParts,
  pipeline: Pipeline,
  latest: string,
  now: number,
): Promise<Target> {
  const { partitions, job } = pipeline;
  const nothing = { skipReason: "every recent partition is materialized or on its way" };
  const expected = await firstExpected(database, job);
  const oldest = shiftPartition(partitions, latest, -REPAIRED_MAX);
  const first = expected !== null && expected > oldest ? expected : oldest;
  const last = shiftPartition(partitions, latest, -1);
  if (expected === null || first > last || last < partitions.first) return nothing;
  const keys = partitionsBetween(partitions, first, last, now).toReversed();
  const states = await partitionStates(database, pipeline, keys, now);
  const open = states.find(({ state }) => ["missing", "failed", "late"].includes(state));
  return open ? { partition: open.partition } : nothing;
}

/** Starts a run by hand; the newest partition when none is named. Returns the run's id. */
export async function launch(parts: IngestParts, job: string, partition?: string): Promise<string> {
  const pipeline = requirePipeline(parts.pipelines, job);
  const now = parts.clock();
  const key = partition ?? latestPartition(pipeline.partitions, now);
  partitionRange(pipeline.partitions, key, now);
  const runId = crypto.randomUUID();
  const reconstructed = isReconstruction(pipeline, key, now);
  const run = { runId, job, partition: key, trigger: "manual" as const, reconstructed };
  await createRun(parts.database, run, now);
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
  const { partitions } = requirePipeline(parts.pipelines, job);
  const keys = partitionsBetween(partitions, first, last, now);
  const runs = keys.map((partition) => ({ runId: crypto.randomUUID(), partition }));
  const backfill = { job, first, last, backfillId: crypto.randomUUID() };
  const idempotencyKey = request.idempotencyKey ?? null;
  const { backfillId, created } = await createBackfill(
    parts.database,
    { ...backfill, idempotencyKey },
    runs,
    now,
  );
  if (created) await sendReleased(parts);
  else await resumeBackfill(parts, backfillId);
  return backfillId;
}

/**
 * Runs what is left of a backfill: failed, late and canceled runs, and those whose process died.
 */
export async function resumeBackfill(parts: IngestParts, backfillId: string): Promise<void> {
  await rescue(parts, parts.clock());
  await retryFailedRuns(parts.database, backfillId);
  await sendReleased(parts);
}

/** Ends queued and running runs at an operator's wish; what they committed stays. */
export const cancel = (
  { database, clock }: IngestParts,
  which: { runId: string } | { backfillId: string },
): Promise<number> => cancelRuns(database, which, clock());

/** Switches a schedule on or off; fails with `unknown_schedule`. */
export async function setSchedule(parts: IngestParts, name: string, enabled: boolean) {
  const known = schedulesOf(parts.pipelines).find(({ schedule }) => schedule.name === name);
  if (!known) throw new Failure("unknown_schedule", `no schedule is named ${JSON.stringify(name)}`);
  const lastTick = latestTick(known.schedule, parts.clock()) ?? parts.clock();
  await switchSchedule(parts.database, name, { enabled, lastTick });
}
