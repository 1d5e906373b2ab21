// Thirteen months of every schedule under a fake clock, on the real ledger and the real store: both
// daylight-saving changes, provider outages, late and very late releases, cron deliveries that come
// late, twice or never, lost and repeated messages, killed processes, and our own downtime. In the
// end every expected partition is materialized, or late or failed with a reason, and every value
// the providers published is stored.
//
// The pipelines are the real ones but for what they fetch: a model of each provider with one
// series.

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { expectedUntil } from "../../edge/markets/ingest/completeness.ts";
import { executeQueued } from "../../edge/markets/ingest/execute.ts";
import { claimExecution } from "../../edge/markets/ingest/ledger.ts";
import {
  latestPartition,
  partitionRange,
  partitionsBetween,
  shiftPartition,
} from "../../edge/markets/ingest/partition.ts";
import { firstExpected, partitionStates } from "../../edge/markets/ingest/partition-states.ts";
import { type Pipeline, schedulesOf } from "../../edge/markets/ingest/pipeline.ts";
import { PIPELINES } from "../../edge/markets/ingest/pipelines.ts";
import { nextTick } from "../../edge/markets/ingest/schedule.ts";
import { minuteTick } from "../../edge/markets/ingest/tick.ts";
import { Failure } from "../../shared/errors.ts";
import { DAY, HOUR, iso, MINUTE } from "../../shared/time.ts";
import { dice } from "../support/dice.ts";
import { type ScriptedIngest, scriptedIngest } from "../support/ingest.ts";
import { releaseOf, stepOf } from "./releases.ts";

interface Span {
  name: string;
  from: number;
  until: number;
  isWanted: (pipeline: Pipeline) => boolean;
}

const span = (name: string, from: string, until: string, isWanted: Span["isWanted"]): Span => ({
  name,
  from: Date.parse(from),
  until: Date.parse(until),
  isWanted,
});
const isHourly = ({ schedules }: Pipeline) => /^\d+ \* /.test(schedules[0]?.cron ?? "");
/**
 * All thirteen months take a quarter of an hour: LARGE=1. Else hourly schedules run around the
 * changes of clocks, and the others from before the first to two months after the second.
 */
const SPANS: readonly Span[] =
  process.env.LARGE === "1"
    ? [span("every schedule", "2025-10-14", "2026-11-16", () => true)]
    : [
        span("what is not hourly", "2025-10-14", "2026-05-16", (pipeline) => !isHourly(pipeline)),
        span("hours of autumn", "2025-10-28", "2025-11-08", isHourly),
        span("hours of spring", "2026-03-03", "2026-03-13", isHourly),
      ];
const LEASE_MS = MINUTE;

let sim: ScriptedIngest;
let figures: Record<string, number> = {};
/** Minutes at which the cron has something to rescue. */
let rescues: number[] = [];
const roll = dice(20_261_121);
const chance = (share: number) => roll() < share;
const count = (what: string, by = 1) => {
  figures[what] = (figures[what] ?? 0) + by;
};

/** Times in which a provider answers nothing, and ours in which nothing runs. */
const OUTAGES = [
  { from: "2025-11-02T05:00:00Z", hours: 30 },
  { from: "2026-01-29T15:00:00Z", hours: 6 },
  { from: "2026-03-08T07:30:00Z", hours: 3 },
  { from: "2026-07-03T00:00:00Z", hours: 75 },
].map(({ from, hours }) => ({ from: Date.parse(from), to: Date.parse(from) + hours * HOUR }));
const DOWNTIMES = [
  { from: "2025-12-24T18:10:00Z", hours: 50 },
  { from: "2026-05-06T12:00:00Z", hours: 1 },
  { from: "2026-09-06T10:00:00Z", hours: 26 },
].map(({ from, hours }) => ({ from: Date.parse(from), to: Date.parse(from) + hours * HOUR }));
const isIn = (spans: readonly { from: number; to: number }[], instant: number) =>
  spans.find(({ from, to }) => instant >= from && instant < to);

/** The pipeline over its provider's model: one series, a value a step. */
function modelled(pipeline: Pipeline): Pipeline {
  const [library = ""] = pipeline.libraries;
  const symbol = `sim_${pipeline.job}`;
  const fetch: Pipeline["fetch"] = async (_, { window, now }) => {
    if (isIn(OUTAGES, now)) throw new Failure("upstream_unavailable", "the provider is down");
    if (chance(0.01)) throw new Failure("upstream_unavailable", "the provider failed once");
    const rows = publishedSteps(pipeline, window.from, window.to, now).map((datetime) => ({
      datetime,
      instrumentId: `${library}.${symbol}`,
      values: pipeline.valueColumns.map(() => datetime / HOUR),
    }));
    const series = rows.length > 0 ? [{ library, symbol, rows }] : [];
    return { series, sourceUrl: "sandbox://model", sandbox: true };
  };
  const gate: Pipeline["gate"] = (fetched) => ({ accepted: [...fetched], findings: [] });
  const complete: Pipeline["complete"] = (accepted, partition) => {
    const stored = accepted.flatMap(({ rows }) => rows).map(({ datetime }) => datetime);
    return stored.some((datetime) => datetime >= partition.from && datetime < partition.to);
  };
  return { ...pipeline, owns: (name) => name === symbol, fetch, gate, complete };
}

/** Valid times of a range that the provider has published by now. */
function publishedSteps(pipeline: Pipeline, from: number, to: number, now: number): number[] {
  const steps: number[] = [];
  for (let at = stepOf(pipeline.job).first(from); at < to; at = stepOf(pipeline.job).next(at)) {
    if (releaseOf(pipeline.job, at) <= now) steps.push(at);
  }
  return steps;
}

async function open({ from, isWanted }: Span) {
  const pipelines = PIPELINES.filter(isWanted).map(modelled);
  sim = await scriptedIngest({ pipelines, now: from, leaseMs: LEASE_MS });
  [figures, rescues] = [{}, []];
  sim.parts.send = async (_job, runIds, delaySeconds = 0) => {
    const at = sim.now + delaySeconds * 1_000;
    for (const runId of runIds) {
      if (chance(0.01)) {
        count("messages lost");
        rescues.push(minuteAfter(at + 15 * MINUTE));
      } else sim.queue.push({ at, runId });
      if (chance(0.02)) sim.queue.push({ at: at + 1, runId });
    }
  };
}

/** Delivers one cron event, or what may become of it. */
async function deliver(now: number) {
  const fate = roll();
  if (fate < 0.04) return count("cron events missed");
  const late = fate < 0.09 ? Math.floor(roll() * 9 + 1) * MINUTE : 0;
  sim.now = now + late;
  await minuteTick(sim.parts, sim.now);
  if (fate > 0.95) await minuteTick(sim.parts, sim.now);
  count("cron events delivered");
}

async function consume() {
  sim.queue.sort((left, right) => left.at - right.at);
  const due = sim.queue.filter(({ at }) => at <= sim.now);
  sim.queue = sim.queue.filter(({ at }) => at > sim.now);
  for (const { runId } of due) {
    if (chance(0.004)) {
      // Killed right after it took the run: nothing but its lease is left.
      await claimExecution(sim.parts.database, runId, sim.now, LEASE_MS);
      count("processes killed");
      rescues.push(minuteAfter(sim.now + LEASE_MS), minuteAfter(sim.now + 17 * MINUTE));
    } else await executeQueued(sim.parts, runId);
  }
}

const minuteAfter = (instant: number) => (Math.floor(instant / MINUTE) + 1) * MINUTE;

/** The next instant at which something can happen: a tick, a message or a rescue. */
function nextEvent(now: number): number {
  const ticks = schedulesOf(sim.parts.pipelines).map(
    ({ schedule }) => nextTick(schedule, now) ?? Infinity,
  );
  const messages = sim.queue.map(({ at }) => Math.max(at, now + 1));
  rescues = rescues.filter((at) => at > now);
  return Math.min(...ticks, ...messages, ...rescues);
}

async function run({ from, until }: Span) {
  for (let now = from; now < until; now = nextEvent(Math.max(now, sim.now))) {
    const down = isIn(DOWNTIMES, now);
    if (down) {
      sim.now = now = down.to;
      count("downtimes");
    }
    sim.now = now;
    const isTick = now % MINUTE === 0;
    if (isTick) await deliver(now);
    await consume();
  }
}

describe.each(SPANS)("$name", (wanted) => {
  const { until } = wanted;
  beforeAll(() => open(wanted));
  afterAll(() => sim.close());

  it("leave every expected partition materialized, or late or failed by name", async () => {
    await run(wanted);
    const { database } = sim.parts;
    for (const pipeline of sim.parts.pipelines) {
      const { partitions, job } = pipeline;
      const first = await firstExpected(database, job);
      if (first === null) {
        expect(pipeline.schedules, `${job} has schedules and never ran`).toEqual([]);
        continue;
      }
      const last = shiftPartition(partitions, latestPartition(partitions, until - DAY), -1);
      const keys = partitionsBetween(partitions, first, last, until);
      const states = await partitionStates(database, pipeline, keys, until);
      for (const { partition, state, error_code } of states) {
        count(`partitions ${state}`);
        const settled = ["materialized", "late", "failed"];
        // A day that its agency may still print waits for it.
        const allowed =
          until < expectedUntil(pipeline, partition) ? [...settled, "waiting"] : settled;
        expect(allowed, `${job} ${partition} ${state}`).toContain(state);
        if (state === "late" || state === "failed")
          expect(error_code, `${job} ${partition}`).not.toBeNull();
      }
      const from = partitionRange(partitions, first, until).from;
      const { to } = partitionRange(partitions, last, until);
      await expectStored(pipeline, { from, to, until });
    }
    const { rows } = await sim.client.query<{ what: string; n: number }>(`
      SELECT 'runs ' || state AS what, count(*)::int AS n FROM run GROUP BY 1
      UNION ALL SELECT 'ticks that started a run', count(*)::int FROM tick WHERE run_id IS NOT NULL
      UNION ALL SELECT 'ticks skipped: ' || regexp_replace(skip_reason, '\\d{4}\\S*', '…', 'g'),
        count(*)::int FROM tick WHERE run_id IS NULL GROUP BY 1
      UNION ALL SELECT 'ledger entries of ' || event, count(*)::int FROM run_event
        WHERE event IN ('waits', 'retries') GROUP BY 1
      UNION ALL SELECT 'vintages', count(*)::int FROM vintage ORDER BY 1`);
    for (const { what, n } of rows) count(what, n);
    const lines = Object.entries(figures).map(([what, n]) => `  ${n} ${what}`);
    process.stdout.write(`${wanted.name}:\n${lines.join("\n")}\n`);
    expect(figures["runs succeeded"]).toBeGreaterThan(500);
    expect(figures["runs queued"] ?? 0).toBeLessThan(20);
  }, 3_000_000);

  it("fired each schedule at every one of its instants, once", async () => {
    for (const { schedule } of schedulesOf(sim.parts.pipelines)) {
      const { rows } = await sim.client.query<{ at: string }>(
        `SELECT to_char(scheduled_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS at
           FROM tick WHERE schedule = $1 ORDER BY scheduled_at`,
        [schedule.name],
      );
      const fired = rows.map(({ at }) => at);
      const expected: string[] = [fired[0] ?? ""];
      for (let at = Date.parse(fired[0] ?? ""); expected.length < fired.length; ) {
        at = nextTick(schedule, at) ?? Infinity;
        expected.push(iso(at));
      }
      expect(fired, schedule.name).toEqual(expected);
      const next = nextTick(schedule, Date.parse(fired.at(-1) ?? "")) ?? 0;
      expect(next, schedule.name).toBeGreaterThan(until - HOUR);
    }
  });
});

/** What the provider published long enough ago is stored, whatever happened in between. */
async function expectStored(
  pipeline: Pipeline,
  { from, to, until }: { from: number; to: number; until: number },
) {
  const wanted = publishedSteps(pipeline, from, to, until - 2 * DAY);
  const [library = ""] = pipeline.libraries;
  const read = await sim.parts.store.read({ library, symbol: `sim_${pipeline.job}` });
  const stored = new Set((await read.rows()).map(({ datetime }) => datetime));
  const lost = wanted.filter((datetime) => !stored.has(datetime)).map(iso);
  expect(lost, pipeline.job).toEqual([]);
  count("values published and stored", wanted.length);
}
