// Whether an execution has the rows that its partition owes, and until when they may be awaited. It
// is judged the same for every execution, whatever started it: no partition that owes rows is
// materialized without any. Pure.

import { iso } from "../../../shared/time.ts";
import type { Range, Row } from "../store/rows.ts";
import type { FetchedSeries } from "./gate.ts";
import { firstLatestAt, partitionRange, shiftPartition, startOfDay } from "./partition.ts";
import type { Pipeline } from "./pipeline.ts";
import type { ReleaseTime } from "./releases.ts";
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
 * When the release of a partition is expected: when its publisher says, or else at the first tick
 * that aims at it.
 */
export function expectedAt({ partitions, schedules, release }: Pipeline, key: string): ReleaseTime {
  const known = release?.expectedAt?.(key);
  if (known) return known;
  const due = firstLatestAt(partitions, key);
  const [main] = schedules;
  return { at: (main && nextTick(main, due - 1)) ?? due, isDerived: false };
}

/**
 * Until when a partition's values are expected: the end of its release window; without a release,
 * what the pipeline allows from its start on.
 */
export function expectedUntil(pipeline: Pipeline, key: string): number {
  const { release, owedMs, freshness } = pipeline;
  if (!release) return startOf(pipeline, key) + (owedMs ?? freshness.errorMs);
  return expectedAt(pipeline, key).at + release.windowMs;
}

/** The start of a partition's valid time, wherever in time it lies. */
export const startOf = ({ partitions }: Pipeline, key: string): number =>
  startOfDay(partitions, Date.parse(key));

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
 * The valid time that an execution has materialized: its own partition if that is complete, and the
 * earlier ones that it looked back on, up to the first of them that lacks its values. Where its own
 * is not complete, the newest complete ones before it; nothing where there are none.
 */
export function completeRange(
  pipeline: Pipeline,
  accepted: readonly FetchedSeries[],
  { key, window, now }: { key: string; window: Range; now: number },
): Range {
  const { partitions } = pipeline;
  let [from, to] = [window.from, window.from];
  for (
    let one = key;
    one >= partitions.first && (one === key || startOf(pipeline, one) >= window.from);
    one = shiftPartition(partitions, one, -1)
  ) {
    const partition = partitionRange(partitions, one, now);
    const given = { key: one, partition };
    if (judgeCompleteness(pipeline, accepted, given, now).complete) {
      from = partition.from;
      to = Math.max(to, partition.to);
    } else if (to > window.from) return { from, to };
  }
  // What is left of the window is a part of a partition.
  return { from: window.from, to };
}
