// When a schedule fires and which partition it aims at, pure. Expressions are evaluated in the
// schedule's own zone, so that release times stay right across daylight-saving changes: an hourly
// tick fires once per real hour.

import { Cron } from "croner";

/** When a pipeline is executed by itself, and for which partition. */
export interface Schedule {
  /** Unique among all schedules; a pipeline's own schedule bears the name of its job. */
  name: string;
  cron: string;
  timeZone: string;
  /**
   * `latest`: the newest partition at the tick. `previous`: the one before it, whose last values
   * come after its end. `unfinished`: the newest one where its release is early or late, else the
   * oldest recent one that no execution has materialized.
   */
  aim: "latest" | "previous" | "unfinished";
}

type Expression = Pick<Schedule, "cron" | "timeZone">;

/** Neighbouring instants of an expression: none lies between them. */
interface Gap {
  latest: number | null;
  next: number | null;
}

const compiled = new Map<string, { cron: Cron; gap: Gap }>();

/**
 * The instants around `now`. They are cached until `now` has left them: the minute cron asks for
 * every schedule every minute, and evaluating an expression in a time zone takes a tenth of a
 * millisecond.
 */
function gapAt({ cron, timeZone }: Expression, now: number): Gap {
  const key = `${cron} ${timeZone}`;
  const known = compiled.get(key);
  const isInside = ({ latest, next }: Gap) =>
    latest !== null && next !== null && latest <= now && now < next;
  if (known && isInside(known.gap)) return known.gap;
  const expression = known?.cron ?? new Cron(cron, { timezone: timeZone, paused: true });
  const nextSecond = Math.floor(now / 1_000) * 1_000 + 1_000;
  const [latest] = expression.previousRuns(1, new Date(nextSecond));
  const next = expression.nextRun(new Date(now));
  const gap = { latest: latest?.getTime() ?? null, next: next?.getTime() ?? null };
  compiled.set(key, { cron: expression, gap });
  return gap;
}

/**
 * The newest scheduled instant at or before `now`. A minute cron that was late, repeated or missed
 * still finds the same instant, and the ledger's compare-and-set fires it once.
 */
export const latestTick = (schedule: Expression, now: number): number | null =>
  gapAt(schedule, now).latest;

/** The first scheduled instant after `now`. */
export const nextTick = (schedule: Expression, now: number): number | null =>
  gapAt(schedule, now).next;

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
