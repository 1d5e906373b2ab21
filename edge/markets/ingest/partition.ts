// Partitions, pure: a day key such as `2026-01-31` ⇄ the valid time it covers.

import { Failure } from "../../../shared/errors.ts";
import { DAY, isoDay, parseInstant } from "../../../shared/time.ts";
import type { Range } from "../store/plan.ts";

/** UTC days from `first` on; the newest partition is the day that holds the tick. */
export interface DailyPartitions {
  /** The oldest partition the provider can fill. */
  first: string;
}

const KEY = /^\d{4}-\d\d-\d\d$/;
const RANGE_DAYS_MAX = 5_000;

/** The newest partition at an instant. */
export const latestPartition = (instant: number): string => isoDay(instant);

/** The valid time of a partition; fails with `bad_partition`. */
export function partitionRange(partitions: DailyPartitions, key: string, now: number): Range {
  const from = KEY.test(key) ? parseInstant(key) : null;
  if (from === null)
    throw new Failure("bad_partition", `${JSON.stringify(key)} is not a YYYY-MM-DD day`);
  const last = latestPartition(now);
  if (key < partitions.first || key > last) {
    throw new Failure("bad_partition", `${key} lies outside ${partitions.first} to ${last}`);
  }
  return { from, to: from + DAY };
}

/**
 * The partitions from `first` to `last`, both included, newest first; fails with `bad_partition`.
 */
export function partitionsBetween(
  partitions: DailyPartitions,
  first: string,
  last: string,
  now: number,
) {
  const newest = partitionRange(partitions, last, now).from;
  const oldest = partitionRange(partitions, first, now).from;
  if (oldest > newest) throw new Failure("bad_partition", `${first} lies after ${last}`);
  const days = (newest - oldest) / DAY + 1;
  if (days > RANGE_DAYS_MAX) {
    throw new Failure("bad_partition", `${days} partitions, at most ${RANGE_DAYS_MAX} a backfill`);
  }
  return Array.from({ length: days }, (_, index) => isoDay(newest - index * DAY));
}
