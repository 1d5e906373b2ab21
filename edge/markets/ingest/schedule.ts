// When a schedule fires, pure. Expressions are evaluated in the schedule's own zone, so release
// times stay right across daylight-saving changes: an hourly tick fires once per real hour.

import { Cron } from "croner";

export interface Schedule {
  cron: string;
  timeZone: string;
}

const compiled = new Map<string, Cron>();

function expression({ cron, timeZone }: Schedule): Cron {
  const key = `${cron} ${timeZone}`;
  const known = compiled.get(key) ?? new Cron(cron, { timezone: timeZone, paused: true });
  compiled.set(key, known);
  return known;
}

/**
 * The newest scheduled instant at or before `now`. A minute cron that was late, repeated or missed
 * still finds the same instant, and the ledger's compare-and-set fires it once.
 */
export function latestTick(schedule: Schedule, now: number): number | null {
  const nextSecond = Math.floor(now / 1_000) * 1_000 + 1_000;
  const [latest] = expression(schedule).previousRuns(1, new Date(nextSecond));
  return latest?.getTime() ?? null;
}

/** The first scheduled instant after `now`. */
export function nextTick(schedule: Schedule, now: number): number | null {
  return expression(schedule).nextRun(new Date(now))?.getTime() ?? null;
}
