// A market operator's day: a calendar day of its clock, which twice a year has 23 or 25 hours.

import { DAY, HOUR, isoDay, MINUTE } from "../../../shared/time.ts";

/** A calendar day of a market's clock; instants in epoch milliseconds. */
export interface OperatingDay {
  /** `2026-03-08`, the local calendar day. */
  key: string;
  /** Local midnight at its start, and at its end, exclusive. */
  from: number;
  to: number;
}

/** The clock of ERCOT's market. */
export const CENTRAL = "America/Chicago";

/** What clocks of a zone show, less UTC. */
interface Clock {
  format: Intl.DateTimeFormat;
  /** By hour since the epoch: clocks change at full hours. */
  offsets: Map<number, number>;
}

const clocks = new Map<string, Clock>();
/** Eleven years of hours. */
const OFFSETS_MAX = 100_000;

function clockOf(timeZone: string): Clock {
  const known = clocks.get(timeZone);
  if (known) return known;
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
  });
  const made = { format, offsets: new Map<number, number>() };
  clocks.set(timeZone, made);
  return made;
}

/**
 * The operating day that holds an instant, in ERCOT's market or in another zone whose clocks change
 * between midnights, as all of North America's do.
 */
export function operatingDay(instant: number, timeZone = CENTRAL): OperatingDay {
  const clock = clockOf(timeZone);
  const day = Math.floor(wallClock(clock, instant) / DAY) * DAY;
  return { key: isoDay(day), from: midnight(clock, day), to: midnight(clock, day + DAY) };
}

/** What clocks show at an instant, written as if it were UTC. */
function wallClock({ format, offsets }: Clock, instant: number): number {
  const hour = Math.floor(instant / HOUR);
  const known = offsets.get(hour);
  if (known !== undefined) return instant + known;
  if (offsets.size >= OFFSETS_MAX) offsets.clear();
  const parts = format.formatToParts(hour * HOUR);
  const part = (wanted: string) => Number(parts.find(({ type }) => type === wanted)?.value);
  const day = Date.UTC(part("year"), part("month") - 1, part("day"));
  const offset = day + part("hour") * HOUR + part("minute") * MINUTE - hour * HOUR;
  offsets.set(hour, offset);
  return instant + offset;
}

/** When clocks show 00:00 of a day; they change at 02:00, so it comes exactly once. */
function midnight(clock: Clock, day: number): number {
  const nearby = day - (wallClock(clock, day) - day);
  return day - (wallClock(clock, nearby) - nearby);
}
