// Whether an execution has the rows that its partition owes, and until when they may be awaited. It
// is judged the same for every execution, whatever started it: no partition that owes rows is
// materialized without any. Pure.

import { DAY, iso } from "../../../shared/time.ts";
import { operatingDay } from "../store/operating-day.ts";
import type { Range, Row } from "../store/plan.ts";
import type { FetchedSeries } from "./gate.ts";
import { firstLatestAt, partitionRange, shiftPartition } from "./partition.ts";
import type { Pipeline } from "./pipeline.ts";
import { nextTick } from "./schedule.ts";

/** How complete a partition is. */
export interface Completeness {
  /** Its values are there, or it rightly has none. */
  complete: boolean;
  /** Why it has no rows, or may still have none; null when it has them. */
  reason: string | null;
  /** Until when its values are awaited, epoch milliseconds. */
  until: number;
}

/**
 * Until when a partition's values are expected: the end of its release window, which opens with the
 * first tick that aims at it; without a release, what the pipeline allows from its start on.
 */
export function expectedUntil(pipeline: Pipeline, key: string): number {
  const { partitions, schedules, release, owedMs, freshness } = pipeline;
  if (!release) return startOf(pipeline, key) + (owedMs ?? freshness.errorMs);
  const due = firstLatestAt(partitions, key);
  const [main] = schedules;
  return ((main && nextTick(main, due - 1)) ?? due) + release.windowMs;
}

/** The start of a partition's valid time, wherever in time it lies. */
export function startOf({ partitions }: Pipeline, key: string): number {
  const day = Date.parse(key);
  return partitions.unit === "operating_day" ? operatingDay(day + DAY / 2).from : day;
}

/** `2026-06-18 17:35 UTC`. */
const told = (instant: number) => `${iso(instant).slice(0, 16).replace("T", " ")} UTC`;

/** Why a partition has no values yet, for people. */
export const awaited = (key: string, until: number, now: number): string =>
  now < until
    ? `${key} is not published yet; release is expected until ${told(until)}`
    : `${key} is not published; release was expected until ${told(until)}`;

/** Judges the accepted rows of an execution by what its partition owes. */
export function judgeCompleteness(
  pipeline: Pipeline,
  accepted: readonly FetchedSeries[],
  { key, partition }: { key: string; partition: Range },
  now: number,
): Completeness {
  const until = expectedUntil(pipeline, key);
  if (hasValues(pipeline, accepted, partition)) return { complete: true, reason: null, until };
  const rightly = pipeline.mayBeEmpty?.(partition, now) ?? null;
  if (rightly !== null) return { complete: true, reason: `${key} has no rows: ${rightly}`, until };
  return { complete: false, reason: awaited(key, until, now), until };
}

function hasValues(
  { complete }: Pipeline,
  accepted: readonly FetchedSeries[],
  partition: Range,
): boolean {
  if (complete) return complete(accepted, partition);
  const isInside = ({ datetime }: Row) => datetime >= partition.from && datetime < partition.to;
  return accepted.some(({ rows }) => rows.some(isInside));
}

/**
 * The end of the newest complete partition before an incomplete one: what an execution of it has
 * materialized of the partitions that it looked back on.
 */
export function completeUntil(
  pipeline: Pipeline,
  accepted: readonly FetchedSeries[],
  { key, window, now }: { key: string; window: Range; now: number },
): number {
  const { partitions } = pipeline;
  let earlier = shiftPartition(partitions, key, -1);
  while (earlier >= partitions.first && startOf(pipeline, earlier) >= window.from) {
    const partition = partitionRange(partitions, earlier, now);
    if (judgeCompleteness(pipeline, accepted, { key: earlier, partition }, now).complete) {
      return partition.to;
    }
    earlier = shiftPartition(partitions, earlier, -1);
  }
  return window.from;
}
