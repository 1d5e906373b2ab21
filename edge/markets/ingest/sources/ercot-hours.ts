// ERCOT's time labels → UTC, pure. Every label belongs to an operating day, a Central calendar day
// of 23, 24 or 25 hours. A label that names no interval of its day is refused, never guessed.
//
// Facts it relies on: hour ending h starts at local h−1; on the day that skips an hour there is no
// hour ending 03; on the day that repeats one, hour ending 02 comes twice, and `DSTFlag` Y is the
// second pass, in standard time.

import { Failure } from "../../../../shared/errors.ts";
import { DAY, HOUR, MINUTE, parseInstant } from "../../../../shared/time.ts";
import { type OperatingDay, operatingDay } from "../../store/operating-day.ts";
import type { Range } from "../../store/rows.ts";

/** A quarter of an hour, milliseconds. */
export const QUARTER = 15 * MINUTE;

/** Both clock changes come when the local clock would show 02:00. */
const CHANGE_HOUR = 2;
const QUARTERS_PER_HOUR = 4;

/** A label that names no interval, as the failure of the document that holds it. */
const refusedLabel = (label: string): Failure =>
  new Failure("upstream_schema_drift", `ERCOT sent an impossible time label: ${label}`);

/** The operating day of `2026-03-08` or `03/08/2026`. */
export function dayOfLabel(label: string): OperatingDay {
  const us = /^(\d\d)\/(\d\d)\/(\d{4})$/.exec(label);
  const key = us ? `${us[3]}-${us[1]}-${us[2]}` : label;
  const midnight = /^\d{4}-\d\d-\d\d$/.test(key) ? parseInstant(key) : null;
  if (midnight === null) throw refusedLabel(JSON.stringify(label).slice(0, 40));
  // Noon in Texas lies in the operating day of the same name.
  return operatingDay(midnight + DAY * 0.75);
}

/** The operating days that a window touches, oldest first. */
export function daysOf({ from, to }: Range): OperatingDay[] {
  const days: OperatingDay[] = [];
  for (let instant = from; instant < to; ) {
    const day = operatingDay(instant);
    days.push(day);
    instant = day.to;
  }
  return days;
}

const hoursIn = (day: OperatingDay) => (day.to - day.from) / HOUR;

/** What local clocks show, in whole hours, when the n-th hour (from 0) of a day starts. */
export function wallHour(day: OperatingDay, index: number): number {
  return index < CHANGE_HOUR ? index : index + 24 - hoursIn(day);
}

/** The starts of the day's hours at which local clocks show an hour: none, one or two of them. */
function hoursShowing(day: OperatingDay, hour: number): number[] {
  const starts: number[] = [];
  for (let index = 0; index < hoursIn(day); index++) {
    if (wallHour(day, index) === hour) starts.push(day.from + index * HOUR);
  }
  return starts;
}

/** The hour of `01:00`, `0100`, `1` or 1: 1 to 24. */
export function hourOfLabel(label: string | number): number {
  const match = /^(\d\d?)(?::?00)?$/.exec(String(label));
  const hour = Number(match?.[1]);
  if (!(hour >= 1 && hour <= 24)) throw refusedLabel(`hour ending ${String(label).slice(0, 20)}`);
  return hour;
}

/** The start of an hour ending; `repeated` is the flag of the second pass. */
export function hourStart(day: OperatingDay, hourEnding: number, repeated: boolean): number {
  const starts = hoursShowing(day, hourEnding - 1);
  const start = starts[repeated ? 1 : 0];
  if (start !== undefined) return start;
  throw refusedLabel(`${day.key} hour ending ${hourEnding}${repeated ? ", repeated" : ""}`);
}

/** The start of the n-th hour of the day, from 1 on: documents without a flag count to 23 or 25. */
export function ordinalStart(day: OperatingDay, ordinal: number): number {
  if (Number.isInteger(ordinal) && ordinal >= 1 && ordinal <= hoursIn(day)) {
    return day.from + (ordinal - 1) * HOUR;
  }
  throw refusedLabel(`${day.key} hour ${ordinal} of ${hoursIn(day)}`);
}

/** The start of a 15-minute interval, 1 to 4, of an hour ending. */
export function intervalStart(
  day: OperatingDay,
  label: { hour: number; interval: number; repeated: boolean },
): number {
  const { hour, interval, repeated } = label;
  if (Number.isInteger(interval) && interval >= 1 && interval <= QUARTERS_PER_HOUR) {
    return hourStart(day, hour, repeated) + (interval - 1) * QUARTER;
  }
  throw refusedLabel(`${day.key} hour ending ${hour}, interval ${interval}`);
}

/** A label of the day's end of a quarter, with the flag of the quarter's start. */
export interface EndLabel {
  /** `01:15` … `24:00`. */
  timeEnding: string;
  repeated: boolean;
}

/**
 * The starts of 15-minute intervals that are labelled by their ends, in the document's order, which
 * tells apart what the labels do not: `01:00` without a flag ends both the interval before 01:00 of
 * the first pass and the one in which clocks go back.
 */
export function endLabelStarts(day: OperatingDay, labels: readonly EndLabel[]): number[] {
  const named = quartersByEnd(day);
  const starts: number[] = [];
  for (const { timeEnding, repeated } of labels) {
    const last = starts.at(-1);
    const following = last === undefined ? day.from : last + QUARTER;
    const label = `${timeEnding} ${repeated ? "Y" : "N"}`;
    const later = (named.get(label) ?? []).filter((start) => start >= following);
    const [start] = later;
    if (start === undefined || (later.length > 1 && start !== following)) {
      throw refusedLabel(`${day.key} time ending ${label}`);
    }
    starts.push(start);
  }
  return starts;
}

function quartersByEnd(day: OperatingDay): Map<string, number[]> {
  const named = new Map<string, number[]>();
  for (let start = day.from; start < day.to; start += QUARTER) {
    const index = Math.floor((start - day.from) / HOUR);
    const repeated = index > 0 && wallHour(day, index) === wallHour(day, index - 1);
    const end = start + QUARTER;
    const endIndex = Math.floor((end - day.from) / HOUR);
    const hour = end === day.to ? 24 : wallHour(day, endIndex);
    const minute = ((end - day.from) % HOUR) / MINUTE;
    const two = (value: number) => String(value).padStart(2, "0");
    const label = `${two(hour)}:${two(minute)} ${repeated ? "Y" : "N"}`;
    named.set(label, [...(named.get(label) ?? []), start]);
  }
  return named;
}

/** The instants at which Central clocks show `2026-09-28T13:51:11`: none, one or two. */
export function instantsOfWall(text: string): number[] {
  const [date = "", time = ""] = text.split("T");
  const wall = /^\d\d:\d\d/.test(time) ? parseInstant(`1970-01-01T${time}`) : null;
  if (wall === null) throw refusedLabel(JSON.stringify(text).slice(0, 40));
  const day = dayOfLabel(date);
  return hoursShowing(day, Math.floor(wall / HOUR)).map((start) => start + (wall % HOUR));
}

/** `2026-09-28T13:51:11`, what Central clocks show at an instant. */
export function wallOfInstant(instant: number): string {
  const day = operatingDay(instant);
  const index = Math.floor((instant - day.from) / HOUR);
  const shown = wallHour(day, index) * HOUR + ((instant - day.from) % HOUR);
  return `${day.key}T${new Date(shown).toISOString().slice(11, 19)}`;
}

/** Documents of one moment may be numbered out of order; clocks step back by much more. */
const OUT_OF_ORDER_MS_MAX = 20 * MINUTE;

/**
 * Instants of wall times that have no offset, in the order in which they were written. In the
 * repeated hour the second pass begins where the clock steps back.
 */
export function instantsInOrder(walls: readonly string[]): number[] {
  let last = -Infinity;
  return walls.map((text) => {
    const candidates = instantsOfWall(text);
    const instant =
      candidates.find((one) => one >= last - OUT_OF_ORDER_MS_MAX) ?? candidates.at(-1);
    if (instant === undefined) throw refusedLabel(JSON.stringify(text).slice(0, 40));
    last = Math.max(last, instant);
    return instant;
  });
}
