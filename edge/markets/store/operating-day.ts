// The market operator's day: a Central-time calendar day, which twice a year has 23 or 25 hours.

import { DAY, HOUR, isoDay, MINUTE } from "../../../shared/time.ts";

/** A Central-time calendar day; instants in epoch milliseconds. */
export interface OperatingDay {
  /** `2026-03-08`, the local calendar day. */
  key: string;
  /** Local midnight at its start, and at its end, exclusive. */
  from: number;
  to: number;
}

const CENTRAL = new Intl.DateTimeFormat("en-US", {
  timeZone: "America/Chicago",
  hourCycle: "h23",
  year: "numeric",
  month: "numeric",
  day: "numeric",
  hour: "numeric",
  minute: "numeric",
});

/** The operating day that holds an instant. */
export function operatingDay(instant: number): OperatingDay {
  const day = Math.floor(wallClock(instant) / DAY) * DAY;
  return { key: isoDay(day), from: midnight(day), to: midnight(day + DAY) };
}

/** What Central clocks show, less UTC, by hour since the epoch: clocks change at full hours. */
const offsets = new Map<number, number>();
/** Eleven years of hours. */
const OFFSETS_MAX = 100_000;

/** What Central clocks show at an instant, written as if it were UTC. */
function wallClock(instant: number): number {
  const hour = Math.floor(instant / HOUR);
  const known = offsets.get(hour);
  if (known !== undefined) return instant + known;
  if (offsets.size >= OFFSETS_MAX) offsets.clear();
  const parts = CENTRAL.formatToParts(hour * HOUR);
  const part = (wanted: string) => Number(parts.find(({ type }) => type === wanted)?.value);
  const day = Date.UTC(part("year"), part("month") - 1, part("day"));
  const offset = day + part("hour") * HOUR + part("minute") * MINUTE - hour * HOUR;
  offsets.set(hour, offset);
  return instant + offset;
}

/** When Central clocks show 00:00 of a day; they change at 02:00, so it comes exactly once. */
function midnight(day: number): number {
  const nearby = day - (wallClock(day) - day);
  return day - (wallClock(nearby) - nearby);
}
