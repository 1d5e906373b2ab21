// What happens every minute: rescue executions whose process died, then fire the schedules that are
// due. Delivered late, twice or after an outage, it fires each instant at most once, and after an
// outage each partition that was missed.

import { HOUR, iso, MINUTE } from "../../../shared/time.ts";
import type { PartitionState } from "../../../shared/wire/markets.ts";
import { performDuties } from "../../http/duties.ts";
import { expectedAt } from "./completeness.ts";
import { rescue, sendReleased } from "./dispatch.ts";
import { forgetEvents } from "./journal.ts";
import { isAwaited } from "./ledger.ts";
import {
  askablePartition,
  latestPartition,
  partitionsBetween,
  shiftPartition,
} from "./partition.ts";
import { firstExpected, partitionStates } from "./partition-states.ts";
import type { IngestParts } from "./parts.ts";
import { type Pipeline, type PipelineSchedule, schedulesOf } from "./pipeline.ts";
import { forgetRefusals } from "./refusals.ts";
import { latestTick, ticksSince } from "./schedule.ts";
import { type Firing, recordMinute, recordTicks, scheduleStates } from "./ticks.ts";

/** Instants missed in an outage that are recorded, the newest: six weeks of hours. */
const MISSED_MAX = 1_000;
/** How many partitions before the newest one a repair looks at. */
const REPAIRED_MAX = 31;

/** Does what is due at `now`, epoch milliseconds, the scheduled instant of the minute cron. */
export async function minuteTick(parts: IngestParts, now: number): Promise<void> {
  await performDuties(parts.log, {
    heartbeat: () => recordMinute(parts.database, parts.clock()),
    rescue: () => rescue(parts, now),
    released: () => sendReleased(parts),
    schedules: () => fireDue(parts, now),
    events: () => now % HOUR < MINUTE && forgetEvents(parts.database, now),
    refusals: () => now % HOUR < MINUTE && forgetRefusals(parts.database, now),
  });
}

/** Fires the schedules that are due. One that cannot be fired keeps no other one waiting. */
async function fireDue(parts: IngestParts, now: number) {
  const states = await scheduleStates(parts.database);
  const due = schedulesOf(parts.pipelines).flatMap(({ pipeline, schedule }) => {
    const state = states.get(schedule.name);
    const newest = latestTick(schedule, now);
    if (state?.enabled === false || newest === null) return [];
    if (newest <= (state?.lastTick ?? -Infinity)) return [];
    // A schedule that never fired begins with its newest instant.
    const instants = state ? ticksSince(schedule, state.lastTick, now, MISSED_MAX) : [newest];
    return [{ pipeline, schedule, due: instants }];
  });
  const firings = due.map((one) => [`schedule ${one.schedule.name}`, () => fire(parts, one, now)]);
  await performDuties(parts.log, Object.fromEntries(firings));
}

interface DueSchedule extends PipelineSchedule {
  /** The instants that are due, oldest first; all but the last were missed. */
  due: readonly number[];
}

/**
 * A tick materializes the partition it aims at, resolved against its scheduled instant, not the
 * clock. Of missed ticks that aim at one partition, the last does.
 */
async function fire(parts: IngestParts, { pipeline, schedule, due }: DueSchedule, now: number) {
  const newest = due.at(-1) ?? now;
  const targets = new Map<string, number>();
  const firings: Firing[] = [];
  for (const scheduledAt of due.toReversed()) {
    const instant = { scheduledAt, isNewest: scheduledAt === newest };
    const target = await targetOf(parts, { pipeline, schedule }, instant);
    const takenAt = "partition" in target ? targets.get(target.partition) : undefined;
    if ("skipReason" in target) firings.unshift({ scheduledAt, outcome: target });
    else if (takenAt !== undefined) {
      const skipReason = `missed; the tick of ${iso(takenAt)} takes partition ${target.partition}`;
      firings.unshift({ scheduledAt, outcome: { skipReason } });
    } else {
      targets.set(target.partition, scheduledAt);
      firings.unshift({ scheduledAt, outcome: newExecution(pipeline, target.partition) });
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

const newExecution = ({ job }: Pipeline, partition: string) => ({
  runId: crypto.randomUUID(),
  job,
  partition,
  trigger: "schedule" as const,
  reconstructed: false,
});

type Target = { partition: string } | { skipReason: string };

async function targetOf(
  parts: IngestParts,
  { pipeline, schedule }: PipelineSchedule,
  { scheduledAt, isNewest }: { scheduledAt: number; isNewest: boolean },
): Promise<Target> {
  const { partitions } = pipeline;
  const latest = latestPartition(partitions, scheduledAt);
  if (schedule.aim === "unfinished") {
    if (!isNewest) return { skipReason: "missed; the newest tick repairs" };
    return unfinished(parts, pipeline, latest, scheduledAt);
  }
  const partition = schedule.aim === "latest" ? latest : shiftPartition(partitions, latest, -1);
  if (partition < partitions.first)
    return { skipReason: `partition ${partition} is not in range yet` };
  if (!pipeline.release || !isNewest) return { partition };
  return (await isAwaited(parts.database, pipeline.job, partition))
    ? { skipReason: `partition ${partition} is waited for already` }
    : { partition };
}

/**
 * The newest partition where its release is early or late, else the oldest recent partition that a
 * schedule once aimed at and no execution materialized.
 */
async function unfinished(
  { database }: IngestParts,
  pipeline: Pipeline,
  latest: string,
  now: number,
): Promise<Target> {
  const { partitions, job } = pipeline;
  const nothing = { skipReason: "every recent partition is materialized or on its way" };
  const expected = await firstExpected(database, job);
  if (expected === null) return nothing;
  const released = newestReleases(pipeline, latest, now).filter((key) => key >= expected);
  const newest = await partitionStates(database, pipeline, released, now);
  const due = newest.find(({ state }) => state === "missing" || state === "late");
  if (due) return { partition: due.partition };
  // What failed for good is no more urgent than older gaps.
  const failed = newest.find(isUnfinished);
  const otherwise = failed ? { partition: failed.partition } : nothing;
  const oldest = shiftPartition(partitions, latest, -REPAIRED_MAX);
  const first = expected > oldest ? expected : oldest;
  const last = shiftPartition(partitions, latest, -1);
  if (first > last || last < partitions.first) return otherwise;
  const keys = partitionsBetween(partitions, first, last, now).toReversed();
  const states = await partitionStates(database, pipeline, keys, now);
  const open = states.find(isUnfinished);
  return open ? { partition: open.partition } : otherwise;
}

const isUnfinished = ({ state }: PartitionState) => ["missing", "failed", "late"].includes(state);

/** The newest partitions whose releases may be out by now, newest first. */
function newestReleases(pipeline: Pipeline, latest: string, now: number): string[] {
  const { partitions, release } = pipeline;
  if (!release) return [];
  const keys = [...new Set([askablePartition(partitions, now), latest])];
  const isDue = (key: string) => now >= expectedAt(pipeline, key).at - (partitions.earlyMs ?? 0);
  return keys.filter(isDue);
}
