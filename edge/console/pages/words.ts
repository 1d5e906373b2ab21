// Instants, lengths of time, numbers and addresses as the pages write them. Pure.

import { DAY, HOUR, MINUTE } from "../../../shared/time.ts";

const clocks = new Map<string, Intl.DateTimeFormat>();

function clockOf(zone: string): Intl.DateTimeFormat {
  const known =
    clocks.get(zone) ??
    new Intl.DateTimeFormat("en-US", {
      timeZone: zone,
      hourCycle: "h23",
      month: "short",
      day: "numeric",
      hour: "2-digit",
      minute: "2-digit",
      timeZoneName: "short",
    });
  clocks.set(zone, known);
  return known;
}

/** What clocks of a zone show: `13:35 CST`, with the day where it is another than in UTC. */
export function localTime(instant: number, zone: string): string {
  const parts = clockOf(zone).formatToParts(instant);
  const part = (wanted: string) => parts.find(({ type }) => type === wanted)?.value ?? "";
  const time = `${part("hour")}:${part("minute")} ${part("timeZoneName")}`;
  const isSameDay = Number(part("day")) === new Date(instant).getUTCDate();
  return isSameDay ? time : `${part("month")} ${part("day")}, ${time}`;
}

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
