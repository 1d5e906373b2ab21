// Partitions, pure: a day key such as `2026-01-31` ⇄ the valid time it covers. A partition is named
// by the calendar day it begins on, whatever its length.

import { Failure } from "../../../shared/errors.ts";
import { addMonths, DAY, isoDay, parseInstant } from "../../../shared/time.ts";
import { operatingDay } from "../store/operating-day.ts";
import type { Range } from "../store/rows.ts";

/** How a pipeline's valid time is cut, and which partition is the newest at an instant. */
export type Partitions = PartitionUnit & {
  /** Key of the oldest partition the provider can fill. */
  first: string;
  /** The newest partition lies this many units after the one that holds the instant; default 0. */
  offset?: number;
  /** … of the instant less this many milliseconds: what a provider needs to publish. Default 0. */
  lagMs?: number;
  /** How much sooner it may be out: from then on it may be asked for. Default 0. */
  earlyMs?: number;
};

/**
 * `day`: UTC days. `weekday`: UTC days, Monday to Friday. `week`: seven days from a Friday on, the
 * day that weekly reports are dated. `month`: UTC calendar months. `operating_day`: days of a
 * market's clock, of 23, 24 or 25 hours.
 */
type PartitionUnit =
  | { unit: "day" | "weekday" | "week" | "month" }
  | { unit: "operating_day"; timeZone: string };
/** A unit alone, where no clock matters. */
type AnyUnit = Pick<PartitionUnit, "unit">;

const KEY = /^\d{4}-\d\d-\d\d$/;
const PARTITIONS_MAX = 5_000;
/** 1970-01-02 was a Friday. */
const FIRST_FRIDAY = DAY;
const WEEK = 7 * DAY;

const isWeekend = (day: number) => [0, 6].includes(new Date(day).getUTCDay());

/** The calendar day, as 00:00Z, on which the partition that holds an instant begins. */
function dayOf(partitions: PartitionUnit, instant: number): number {
  if (partitions.unit === "operating_day")
    return Date.parse(operatingDay(instant, partitions.timeZone).key);
  const { unit } = partitions;
  if (unit === "week") return Math.floor((instant - FIRST_FRIDAY) / WEEK) * WEEK + FIRST_FRIDAY;
  if (unit === "month") return addMonths(instant, 0);
  const day = Math.floor(instant / DAY) * DAY;
  return unit === "weekday" && isWeekend(day) ? dayOf({ unit }, day - DAY) : day;
}

/** The day that lies `count` units after another. */
function shiftDay({ unit }: AnyUnit, day: number, count: number): number {
  if (unit === "week") return day + count * WEEK;
  if (unit === "month") return addMonths(day, count);
  if (unit !== "weekday") return day + count * DAY;
  const step = Math.sign(count) * DAY;
  let shifted = day;
  for (let left = Math.abs(count); left > 0; ) {
    shifted += step;
    if (!isWeekend(shifted)) left--;
  }
  return shifted;
}

/** The key that lies `count` partitions after another. */
export const shiftPartition = (partitions: AnyUnit, key: string, count: number): string =>
  isoDay(shiftDay(partitions, dayOfKey(key), count));

/** The partition whose valid time holds an instant. */
export const holdingPartition = (partitions: Partitions, instant: number): string =>
  isoDay(dayOf(partitions, instant));

/** The newest partition at an instant; it may lie before the first. */
export function latestPartition(partitions: Partitions, instant: number): string {
  const holding = dayOf(partitions, instant - (partitions.lagMs ?? 0));
  return isoDay(shiftDay(partitions, holding, partitions.offset ?? 0));
}

/** The newest partition that may be out at an instant, if its provider is early. */
export const askablePartition = (partitions: Partitions, instant: number): string =>
  latestPartition(partitions, instant + (partitions.earlyMs ?? 0));

/** The instant from which on a partition is the newest. */
export function firstLatestAt(partitions: Partitions, key: string): number {
  const holding = shiftDay(partitions, Date.parse(key), -(partitions.offset ?? 0));
  return startOfDay(partitions, holding) + (partitions.lagMs ?? 0);
}

/**
 * When the partition that a day names, given as 00:00Z, begins. No market's zone lies so far from
 * UTC that noon belongs to another day.
 */
export const startOfDay = (partitions: PartitionUnit, day: number): number =>
  partitions.unit === "operating_day" ? operatingDay(day + DAY / 2, partitions.timeZone).from : day;

/** The valid time of a partition; fails with `bad_partition`. */
export function partitionRange(partitions: Partitions, key: string, now: number): Range {
  const day = KEY.test(key) ? parseInstant(key) : null;
  if (day === null)
    throw new Failure("bad_partition", `${JSON.stringify(key)} is not a YYYY-MM-DD day`);
  const last = askablePartition(partitions, now);
  if (key < partitions.first || key > last) {
    throw new Failure("bad_partition", `${key} lies outside ${partitions.first} to ${last}`);
  }
  if (partitions.unit === "operating_day") {
    const { from, to } = operatingDay(day + DAY / 2, partitions.timeZone);
    return { from, to };
  }
  if (dayOf(partitions, day) !== day) {
    const begins = isoDay(dayOf(partitions, day));
    const detail = `${key} begins no ${partitions.unit}; the one that holds it is ${begins}`;
    throw new Failure("bad_partition", detail);
  }
  return {
    from: day,
    to: partitions.unit === "weekday" ? day + DAY : shiftDay(partitions, day, 1),
  };
}

/**
 * The partitions from `first` to `last`, both included, newest first; fails with `bad_partition`.
 * Ends that begin no partition are moved inwards, so that any two days name a range.
 */
export function partitionsBetween(
  partitions: Partitions,
  first: string,
  last: string,
  now: number,
): string[] {
  const [oldest, newest] = [dayOfKey(first), dayOfKey(last)];
  if (oldest > newest) throw new Failure("bad_partition", `${first} lies after ${last}`);
  const keys: string[] = [];
  let day = dayOf(partitions, newest + (partitions.unit === "operating_day" ? DAY / 2 : 0));
  for (; day >= oldest; day = shiftDay(partitions, day, -1)) {
    if (keys.length === PARTITIONS_MAX) {
      const detail = `more than ${PARTITIONS_MAX} partitions; take a shorter range`;
      throw new Failure("bad_partition", detail);
    }
    keys.push(isoDay(day));
  }
  if (keys.length === 0) {
    const detail = `no ${partitions.unit} begins between ${first} and ${last}`;
    throw new Failure("bad_partition", detail);
  }
  for (const key of [keys[0], keys.at(-1)]) partitionRange(partitions, key ?? "", now);
  return keys;
}

function dayOfKey(key: string): number {
  const day = KEY.test(key) ? parseInstant(key) : null;
  if (day !== null) return day;
  throw new Failure("bad_partition", `${JSON.stringify(key)} is not a YYYY-MM-DD day`);
}
