// The baseline of a new state folder: the recent past of every job, once in its life, so that a
// first start shows useful data within minutes. Interrupted, it is taken up again by the next
// start.

import { DAY, isoDay } from "../../shared/time.ts";
import type { Backfill, Job } from "../../shared/wire/markets.ts";
import { type Partitions, shiftPartition } from "../markets/ingest/partition.ts";
import { barOf, progressOf, table } from "./lines.ts";
import { followBackfill, followRun, type Operator } from "./operator.ts";

type Unit = Partitions["unit"];

const DAYS = 30;
const PERIODS: Partial<Record<Unit, number>> = { week: 26, month: 24 };
/** Partitions of a job without a schedule, whose provider is not one to draw much from. */
const MANUAL_PARTITIONS = 5;
/** Jobs with small partitions come first, so that every library soon holds something. */
const ORDER: readonly Unit[] = ["month", "week", "weekday", "operating_day", "day"];
/** Partitions of a job between two lines about it, where there is no terminal. */
const STEP = 10;

/**
 * The partitions a job's baseline has, or null when it has none yet. The newest is left to the
 * schedules: what they write is a true vintage, what a backfill writes is not.
 */
export function baselineRange(job: Job): { first: string; last: string } | null {
  const { partition_unit: unit, first_partition: oldest, latest_partition: newest } = job;
  const shift = (key: string, count: number) => shiftPartition({ unit }, key, count);
  const last = shift(newest, -1);
  const periods = PERIODS[unit] ?? (job.schedules.length === 0 ? MANUAL_PARTITIONS : null);
  const first = periods ? shift(last, 1 - periods) : isoDay(Date.parse(last) - (DAYS - 1) * DAY);
  return last < oldest ? null : { first: first < oldest ? oldest : first, last };
}

/** Asks for the baseline; asking again sends on whatever of the first one was interrupted. */
export async function requestBaseline(operator: Operator): Promise<Backfill[]> {
  const rank = ({ partition_unit }: Job) => ORDER.indexOf(partition_unit);
  const jobs = (await operator.jobs()).sort((left, right) => rank(left) - rank(right));
  const requested: Backfill[] = [];
  // One after the other: their order is that of the queues.
  for (const job of jobs) {
    const range = baselineRange(job);
    if (!range) continue;
    const idempotency_key = `first-start ${job.job}`;
    requested.push(await operator.startBackfill({ job: job.job, ...range, idempotency_key }));
  }
  return requested;
}

/** Follows the baseline to its end, showing progress. False when it was complete already. */
export async function followBaseline(operator: Operator, say: (line: string) => void) {
  const requested = await requestBaseline(operator);
  const open = requested.filter(({ runs }) => runs.queued + runs.waiting + runs.running > 0);
  if (open.length === 0) return false;
  say(`Filling ${DAYS} days, ${PERIODS.week} weeks or ${PERIODS.month} months of each job:`);
  const show = process.stdout.isTTY ? terminalView(open) : lineView(say);
  const ended = await Promise.all(
    open.map((backfill) => followBackfill(operator, backfill, (one) => show(one))),
  );
  const unsound = new Set(ended.flatMap((one) => progressOf(one).unsound.map(([state]) => state)));
  for (const state of unsound) say(`See why: npm run job -- runs --state ${state}`);
  return true;
}

const RUN_MS_MAX = 60_000;

/** Jobs whose main schedule fires every hour. */
const isHourly = ({ schedules: [main] }: Job) => /^\d+ \* \* \* \*$/.test(main?.cron ?? "");

/**
 * Launches the newest partition of every hourly job, as its next tick would: each looks back on
 * days that the baseline holds, and commits what was revised since. Returns how many ended well.
 */
export async function runHourly(operator: Operator): Promise<number> {
  const hourly = (await operator.jobs()).filter(isHourly);
  const ended = await Promise.all(
    hourly.map(async ({ job }) => {
      const runId = await operator.launch(job);
      // One may wait for hours until its partition is published: nobody is told of it then.
      const late = new Promise<null>((done) => setTimeout(done, RUN_MS_MAX, null).unref());
      return Promise.race([followRun(operator, runId), late]);
    }),
  );
  return ended.filter((one) => one?.state === "succeeded").length;
}

/** A block with a line for each job, drawn again at each change. */
function terminalView(open: readonly Backfill[]) {
  const newest = new Map(open.map((backfill) => [backfill.backfill_id, backfill]));
  let drawn = 0;
  return (changed: Backfill) => {
    newest.set(changed.backfill_id, changed);
    const rows = [...newest.values()].map((one) => [`  ${one.job}`, barOf(one)]);
    const lines = table(rows).map((line) => `\x1b[K${line}\n`);
    process.stdout.write(`${drawn > 0 ? `\x1b[${drawn}A` : ""}${lines.join("")}`);
    drawn = lines.length;
  };
}

function lineView(say: (line: string) => void) {
  const shown = new Map<string, number>();
  return (backfill: Backfill) => {
    const { job, first, last, backfill_id } = backfill;
    const { ended, total, unsound } = progressOf(backfill);
    const before = shown.get(backfill_id) ?? 0;
    if (ended !== total && ended - before < STEP) return;
    shown.set(backfill_id, ended);
    const others = unsound.map(([state, count]) => `, ${count} ${state}`).join("");
    say(`  ${job} ${first} to ${last}: ${ended}/${total}${others}`);
  };
}
