// When a schedule fires and what it aims at, pure. Expressions are evaluated in the schedule's own
// zone, so release times stay right across daylight-saving changes: an hourly tick fires once per
// real hour.

import { Cron } from "croner";

export interface Schedule {
  /** Unique among all schedules; a pipeline's own schedule bears the name of its job. */
  name: string;
  cron: string;
  timeZone: string;
  /**
   * `latest`: the newest partition at the tick. `previous`: the one before it, whose last values
   * come after its end. `unfinished`: the oldest recent one that no run has materialized.
   */
  aim: "latest" | "previous" | "unfinished";
}

const compiled = new Map<string, Cron>();

function expression({ cron, timeZone }: Pick<Schedule, "cron" | "timeZone">): Cron {
  const key = `${cron} ${timeZone}`;
  const known = compiled.get(key) ?? new Cron(cron, { timezone: timeZone, paused: true });
  compiled.set(key, known);
  return known;
}

type Expression = Pick<Schedule, "cron" | "timeZone">;

/**
 * The newest scheduled instant at or before `now`. A minute cron that was late, repeated or missed
 * still finds the same instant, and the ledger's compare-and-set fires it once.
 */
export function latestTick(schedule: Expression, now: number): number | null {
  const nextSecond = Math.floor(now / 1_000) * 1_000 + 1_000;
  const [latest] = expression(schedule).previousRuns(1, new Date(nextSecond));
  return latest?.getTime() ?? null;
}

/**
 * The scheduled instants after `last` and not after `now`, oldest first: one, as a rule, and those
 * that were missed while nothing ran. At most the newest `limit` of them.
 */
export function ticksSince(
  schedule: Expression,
  last: number,
  now: number,
  limit: number,
): number[] {
  const due: number[] = [];
  let tick = nextTick(schedule, last);
  for (; tick !== null && tick <= now; tick = nextTick(schedule, tick)) due.push(tick);
  return due.slice(-limit);
}

/** The first scheduled instant after `now`. */
export function nextTick(schedule: Expression, now: number): number | null {
  return expression(schedule).nextRun(new Date(now))?.getTime() ?? null;
}
