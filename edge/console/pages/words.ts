// Instants, lengths of time, numbers and addresses as the pages write them. Pure.

import { DAY, HOUR, MINUTE } from "../../../shared/time.ts";

const clocks = new Map<string, Intl.DateTimeFormat>();

function clockOf(zone: string): Intl.DateTimeFormat {
  const known =
    clocks.get(zone) ??
    new Intl.DateTimeFormat("en-US", {
      timeZone: zone,
      hourCycle: "h23",
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
      timeZoneName: "short",
    });
  clocks.set(zone, known);
  return known;
}

/** What the clocks of a zone show at an instant. */
export interface ClockReading {
  /** `2026-01-31`. */
  day: string;
  /** `13:35`. */
  time: string;
  /** `13:35:07`. */
  seconds: string;
  /** The zone's short name, such as `CST`. */
  zone: string;
}

/** What the clocks of an IANA zone show. */
export function readClock(instant: number, zone: string): ClockReading {
  const parts = clockOf(zone).formatToParts(instant);
  const part = (wanted: string) => parts.find(({ type }) => type === wanted)?.value ?? "";
  const time = `${part("hour")}:${part("minute")}`;
  return {
    day: `${part("year")}-${part("month")}-${part("day")}`,
    time,
    seconds: `${time}:${part("second")}`,
    zone: part("timeZoneName"),
  };
}

/** The zone that a text names in any spelling, as its IANA name; null for none. */
export function zoneNamed(text: string): string | null {
  try {
    return new Intl.DateTimeFormat("en-US", { timeZone: text }).resolvedOptions().timeZone;
  } catch {
    return null;
  }
}

/** The clock of which pages show times: UTC's, each market's own, or that of an IANA zone. */
export type Clock = "utc" | "market" | (string & {});

/** The zones in which a time is shown, the first one large; null: no second one. */
export function zonesOf(clock: Clock, market = "UTC"): [zone: string, beside: string | null] {
  const zone = clock === "utc" ? "UTC" : clock === "market" ? market : clock;
  const beside = zone === "UTC" ? market : "UTC";
  return [zone, beside === zone ? null : beside];
}

/** Whether values so far apart, as an ISO 8601 duration, are labelled by dates. */
export const isDated = (step: string | null): boolean => step !== null && /^P\d+[DWM]$/.test(step);

/** `3 h`, `12 min`, `4 d`: a length of time in its largest unit. */
export function length(milliseconds: number): string {
  const size = Math.abs(milliseconds);
  if (size < 1_000) return `${Math.round(size)} ms`;
  if (size < 90_000) return `${Math.round(size / 1_000)} s`;
  if (size < 90 * MINUTE) return `${Math.round(size / MINUTE)} min`;
  if (size < 36 * HOUR) return `${Math.round(size / HOUR)} h`;
  return `${Math.round(size / DAY)} d`;
}

/** `3 min ago`, `in 2 h`. */
export const distance = (at: string | number, now: number): string => {
  const difference = now - (typeof at === "number" ? at : Date.parse(at));
  if (Math.abs(difference) < 2_000) return "just now";
  return difference >= 0 ? `${length(difference)} ago` : `in ${length(difference)}`;
};

/** `1,234.5`. */
export const number = (value: number): string => value.toLocaleString("en-US");

/** Whether a run of this state has not ended. */
export const isOpen = (state: string | undefined): boolean => state === "waiting" || isBusy(state);

/** Whether a run of this state moves on within seconds; one that waits for a release does not. */
export const isBusy = (state: string | undefined): boolean =>
  state === "queued" || state === "running";

/** The address of a pipeline's page. */
export const jobPath = (job: string): string => `/pipelines/${encodeURIComponent(job)}`;
/** The address of a schedule's page. */
export const schedulePath = (name: string): string => `/schedules/${encodeURIComponent(name)}`;
/** The address of a library's page, or of a series'. */
export const seriesPath = (library: string, symbol?: string): string =>
  `/series?${new URLSearchParams({ library, ...(symbol ? { symbol } : {}) })}`;
