// Ticks, runs and partitions on the real ledger and store, with a provider that the test decides:
// waiting for a release, coming late, catching up, repairing, canceling, and what is kept of it.

import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { executeQueued } from "../../edge/markets/ingest/execute.ts";
import { type finding, offending } from "../../edge/markets/ingest/gate.ts";
import { listEvents } from "../../edge/markets/ingest/journal.ts";
import { findBackfill, findExecution, listExecutions } from "../../edge/markets/ingest/ledger.ts";
import {
  cancel,
  launch,
  resumeBackfill,
  setSchedule,
  startBackfill,
} from "../../edge/markets/ingest/operate.ts";
import { listPartitions } from "../../edge/markets/ingest/overview.ts";
import type { FetchRequest, Pipeline } from "../../edge/markets/ingest/pipeline.ts";
import { minuteTick } from "../../edge/markets/ingest/tick.ts";
import { listTicks } from "../../edge/markets/ingest/ticks.ts";
import { Failure } from "../../shared/errors.ts";
import { DAY, HOUR, iso, MINUTE } from "../../shared/time.ts";
import { type ScriptedIngest, scriptedIngest } from "../support/ingest.ts";

/** A Thursday, when the weekly job fires at 14:35Z. */
const THURSDAY = Date.parse("2026-06-18T14:35:00Z");
const FRIDAY_BEFORE = "2026-06-12";

let ingest: ScriptedIngest;
/** What the provider does when it is asked. */
let provider: (request: FetchRequest) => Map<string, number> | Promise<Map<string, number>>;
let refuses: ReturnType<typeof finding>[];
let published: Map<string, number>;

const base = {
  provider: "eia" as const,
  timeZone: "America/New_York",
  valueColumns: ["value"],
  freshness: { warningMs: 10 * DAY, errorMs: 20 * DAY },
};
const fetchRows =
  (library: string): Pipeline["fetch"] =>
  async (_, request) => {
    const { window } = request;
    const rows = [...(await provider(request))]
      .map(([at, value]) => ({
        datetime: Date.parse(at),
        instrumentId: `${library}.one`,
        values: [value],
      }))
      .filter(({ datetime }) => datetime >= window.from && datetime < window.to);
    const series = rows.length > 0 ? [{ library, symbol: "one", rows }] : [];
    return { series, sourceUrl: "sandbox://provider", sandbox: true };
  };
const gate: Pipeline["gate"] = (fetched) => {
  const spoiled = refuses.some(({ severity }) => severity === "error");
  return { accepted: spoiled ? [] : [...fetched], findings: refuses };
};

const weekly: Pipeline = {
  ...base,
  job: "weekly",
  title: "Weekly",
  libraries: ["fundamentals.weekly"],
  partitions: { unit: "week", first: "2020-01-03", lagMs: 6 * DAY + 14 * HOUR },
  schedules: [
    { name: "weekly", cron: "35 10 * * 4", timeZone: base.timeZone, aim: "latest" },
    { name: "weekly_repair", cron: "50 */3 * * *", timeZone: base.timeZone, aim: "unfinished" },
  ],
  lookbackMs: 28 * DAY,
  release: { everyMs: 10 * MINUTE, windowMs: 3 * HOUR },
  fetch: fetchRows("fundamentals.weekly"),
  gate,
};
const daily: Pipeline = {
  ...base,
  job: "daily",
  title: "Daily",
  libraries: ["power.daily"],
  partitions: { unit: "day", first: "2026-01-01" },
  schedules: [{ name: "daily", cron: "20 * * * *", timeZone: base.timeZone, aim: "latest" }],
  lookbackMs: 0,
  release: null,
  fetch: fetchRows("power.daily"),
  gate,
};

beforeAll(async () => {
  ingest = await scriptedIngest({ pipelines: [weekly, daily], now: THURSDAY });
});
afterAll(() => ingest.close());
beforeEach(async () => {
  await ingest.reset();
  ingest.now = THURSDAY;
  refuses = [];
  published = new Map([["2026-06-05T00:00:00Z", 1]]);
  provider = () => published;
});

const tickAt = async (now: number) => {
  ingest.now = now;
  await minuteTick(ingest.parts, now);
};
/** Executes message after message, each at its time, until none is left before an instant. */
async function drain(until = Infinity) {
  for (let next = nextMessage(); next !== undefined && next < until; next = nextMessage()) {
    ingest.now = Math.max(ingest.now, next);
    await ingest.consume();
  }
}
const nextMessage = () => ingest.queue.map(({ at }) => at).toSorted((a, b) => a - b)[0];

/** Only one schedule is of interest. */
const silence = (...names: string[]) =>
  Promise.all(names.map((name) => setSchedule(ingest.parts, name, { enabled: false })));
const runs = (job: string) => listExecutions(ingest.parts.database, { job, limit: 100 });
const newest = async (job: string) => {
  const [run] = await runs(job);
  if (!run) throw new Error("no run");
  return run;
};
const states = async (job: string, first: string, last: string) =>
  (await listPartitions(ingest.parts, job, { first, last })).map(
    ({ partition, state }) => `${partition} ${state}`,
  );

describe("a scheduled run of a partition that is not published yet", () => {
  beforeEach(() => silence("daily", "weekly_repair"));

  it("commits what there is, waits, and ends when the partition has come", async () => {
    await tickAt(THURSDAY);
    await ingest.consume();
    const waiting = await newest("weekly");
    expect(waiting).toMatchObject({
      partition: FRIDAY_BEFORE,
      state: "queued",
      error_code: "not_released",
      available_at: iso(THURSDAY + 10 * MINUTE),
    });
    const stored = await ingest.parts.store.read({ library: "fundamentals.weekly", symbol: "one" });
    expect(await stored.rows()).toHaveLength(1);
    ingest.now = THURSDAY + 9 * MINUTE;
    expect(await ingest.consume()).toBe(0);
    // More waits than a failing run would have attempts.
    for (let waits = 1; waits <= 8; waits++) {
      ingest.now = THURSDAY + waits * 10 * MINUTE;
      expect(await ingest.consume()).toBe(1);
    }
    published.set(`${FRIDAY_BEFORE}T00:00:00Z`, 2);
    ingest.now += 10 * MINUTE;
    await ingest.consume();
    const done = await newest("weekly");
    expect(done).toMatchObject({ state: "succeeded", attempt: 10, error_code: null });
    expect(done.metadata).toMatchObject({ rows_written: 2, check: { passed: true } });
  });

  it("is late when the window closes, and keeps what it did; a later run makes up for it", async () => {
    await tickAt(THURSDAY);
    await drain();
    expect(ingest.now).toBe(THURSDAY + 3 * HOUR);
    const late = await newest("weekly");
    expect(late).toMatchObject({
      state: "late",
      error_code: "not_released",
      error_detail: expect.stringContaining(FRIDAY_BEFORE),
      metadata: { rows_written: 1 },
    });
    expect(await states("weekly", FRIDAY_BEFORE, FRIDAY_BEFORE)).toEqual([`${FRIDAY_BEFORE} late`]);
    published.set(`${FRIDAY_BEFORE}T00:00:00Z`, 2);
    published.set("2026-06-19T00:00:00Z", 3);
    await tickAt(THURSDAY + 7 * DAY);
    await ingest.consume();
    expect(await states("weekly", FRIDAY_BEFORE, "2026-06-19")).toEqual([
      "2026-06-19 materialized",
      `${FRIDAY_BEFORE} materialized`,
    ]);
  });

  it("waits out a provider that is down for longer than a run has attempts", async () => {
    provider = () => {
      throw new Failure("upstream_unavailable", "the provider is down");
    };
    await tickAt(THURSDAY);
    await drain(THURSDAY + 2 * HOUR);
    expect(await newest("weekly")).toMatchObject({
      state: "queued",
      error_code: "upstream_unavailable",
    });
    published.set(`${FRIDAY_BEFORE}T00:00:00Z`, 2);
    provider = () => published;
    ingest.now += 10 * MINUTE;
    await ingest.consume();
    expect(await newest("weekly")).toMatchObject({ state: "succeeded" });
  });

  it("does not wait where somebody asked by hand", async () => {
    await launch(ingest.parts, "weekly");
    await ingest.consume();
    expect(await newest("weekly")).toMatchObject({ state: "succeeded", trigger: "manual" });
  });
});

describe("a schedule", () => {
  it("begins with its newest instant, whatever came before", async () => {
    await silence("weekly", "weekly_repair");
    await tickAt(THURSDAY);
    expect(await runs("daily")).toHaveLength(1);
    expect(await listTicks(ingest.parts.database, { limit: 10 })).toMatchObject([
      { schedule: "daily", scheduled_at: "2026-06-18T14:20:00.000Z", partition: "2026-06-18" },
    ]);
  });

  it("takes each partition that an outage missed once, and says what became of every instant", async () => {
    await silence("weekly", "weekly_repair");
    await tickAt(THURSDAY);
    await tickAt(THURSDAY + 50 * HOUR);
    const partitions = (await runs("daily")).map(({ partition }) => partition).toSorted();
    expect(partitions).toEqual(["2026-06-18", "2026-06-18", "2026-06-19", "2026-06-20"]);
    const ticks = await listTicks(ingest.parts.database, { limit: 100 });
    expect(ticks).toHaveLength(51);
    const skipped = ticks.filter(({ run_id }) => run_id === null);
    expect(skipped).toHaveLength(47);
    for (const { skip_reason } of skipped) expect(skip_reason).toMatch(/^missed; the tick of 2026/);
    await tickAt(THURSDAY + 50 * HOUR);
    expect(await runs("daily")).toHaveLength(4);
  });

  it("catches nothing up that was due while it was off", async () => {
    await silence("weekly", "weekly_repair", "daily");
    await tickAt(THURSDAY);
    ingest.now = THURSDAY + 30 * HOUR;
    await setSchedule(ingest.parts, "daily", { enabled: true });
    await tickAt(ingest.now);
    expect(await runs("daily")).toEqual([]);
    await tickAt(THURSDAY + 31 * HOUR);
    expect(await runs("daily")).toHaveLength(1);
    await expect(setSchedule(ingest.parts, "nope", { enabled: true })).rejects.toMatchObject({
      code: "unknown_schedule",
    });
  });

  it("skips a partition that is not in range, with the reason", async () => {
    await silence("weekly", "weekly_repair");
    await tickAt(Date.parse("2025-12-31T10:20:00Z"));
    const [tick] = await listTicks(ingest.parts.database, { limit: 1 });
    expect(tick).toMatchObject({
      run_id: null,
      skip_reason: expect.stringContaining("not in range"),
    });
  });
});

describe("the repair schedule", () => {
  const repair = async (now: number) => {
    await tickAt(now);
    const [tick] = await listTicks(ingest.parts.database, { schedule: "weekly_repair", limit: 1 });
    return tick;
  };

  it("runs the oldest recent partition that failed, came late or was never tried", async () => {
    await silence("daily");
    provider = () => {
      throw new Failure("upstream_rejected", "no");
    };
    await tickAt(THURSDAY);
    await ingest.consume();
    provider = () => published;
    await silence("weekly");
    // Three weeks later: that week failed, the next ones were never tried.
    const later = THURSDAY + 22 * DAY;
    expect(await repair(later)).toMatchObject({ partition: FRIDAY_BEFORE, state: "queued" });
    // One that is on its way is not started twice; the next one is.
    expect(await repair(later + 3 * HOUR)).toMatchObject({ partition: "2026-06-19" });
    published = new Map(
      [...Array(6).keys()].map((week) => [iso(Date.parse("2026-06-05") + week * 7 * DAY), week]),
    );
    await ingest.consume();
    expect(await repair(later + 6 * HOUR)).toMatchObject({ partition: "2026-06-26" });
    await ingest.consume();
    const over = await repair(later + 9 * HOUR);
    expect(over).toMatchObject({
      run_id: null,
      skip_reason: expect.stringMatching(/materialized/),
    });
  });
});

describe("canceling", () => {
  it("ends a run that waits, and one that works: its process changes nothing any more", async () => {
    const waiting = await launch(ingest.parts, "daily");
    await cancel(ingest.parts, { runId: waiting });
    await ingest.consume();
    const { database } = ingest.parts;
    expect(await findExecution(database, waiting)).toMatchObject({
      state: "canceled",
      attempt: 0,
      error_code: "run_canceled",
    });
    const working = await launch(ingest.parts, "daily");
    provider = async () => {
      await cancel(ingest.parts, { runId: working });
      return new Map([["2026-06-18T00:00:00Z", 1]]);
    };
    await ingest.consume();
    expect(await findExecution(database, working)).toMatchObject({
      state: "canceled",
      metadata: null,
    });
    const read = await ingest.parts.store.libraries();
    expect(read).toEqual([]);
  });

  it("of a backfill leaves what is done, and a retry runs the rest only", async () => {
    published = new Map(
      ["2026-06-10", "2026-06-11", "2026-06-12"].map((day) => [`${day}T00:00:00Z`, 1]),
    );
    const request = { job: "daily", first: "2026-06-10", last: "2026-06-12" };
    const backfillId = await startBackfill(ingest.parts, request);
    const [first] = ingest.queue.splice(0);
    await executeQueued(ingest.parts, first?.runId ?? "");
    expect(await cancel(ingest.parts, { backfillId })).toBe(2);
    const { database } = ingest.parts;
    expect(await findBackfill(database, backfillId)).toMatchObject({
      canceled_at: expect.any(String),
      runs: { succeeded: 1, canceled: 2, queued: 0 },
    });
    await resumeBackfill(ingest.parts, backfillId);
    expect(await ingest.consume()).toBe(2);
    expect(await findBackfill(database, backfillId)).toMatchObject({
      canceled_at: null,
      runs: { succeeded: 3, canceled: 0 },
    });
  });
});

describe("a long backfill", () => {
  it("has few runs under way, so that a schedule's run comes soon, and goes on by itself", async () => {
    await silence("weekly", "weekly_repair");
    const { database } = ingest.parts;
    const range = { first: "2026-05-01", last: "2026-05-31" };
    const backfillId = await startBackfill(ingest.parts, { job: "daily", ...range });
    expect(ingest.queue).toHaveLength(4);
    await tickAt(THURSDAY);
    expect(ingest.queue).toHaveLength(5);
    await ingest.consume();
    expect((await runs("daily")).find(({ trigger }) => trigger === "schedule")?.state).toBe(
      "succeeded",
    );
    // A process that died took the messages along; the minute cron sends others in their place.
    ingest.queue = [];
    await ingest.client.query(`UPDATE run SET state = 'canceled', finished_at = now()
      WHERE state = 'queued' AND available_at < '9999-01-01'`);
    await tickAt(THURSDAY + MINUTE);
    expect(ingest.queue).toHaveLength(4);
    while ((await ingest.consume()) > 0);
    expect(await findBackfill(database, backfillId)).toMatchObject({
      runs: { succeeded: 27, canceled: 4, queued: 0, running: 0 },
    });
  });
});

describe("what a run leaves behind", () => {
  it("is its steps, without the query of any request", async () => {
    ingest.parts.upstreams.fetcher = {
      pause: async () => {},
      fetch: async () => new Response("{}"),
    };
    const fetchDaily = fetchRows("power.daily");
    const spied: Pipeline = {
      ...daily,
      fetch: async (upstreams, request) => {
        const signal = AbortSignal.timeout(1_000);
        await upstreams.fetcher.fetch("https://provider.example/data?api_key=hunter2", { signal });
        return fetchDaily(upstreams, request);
      },
    };
    const parts = { ...ingest.parts, pipelines: [spied] };
    published = new Map([["2026-06-18T00:00:00Z", 1]]);
    const runId = await launch(parts, "daily");
    ingest.queue = [];
    await executeQueued(parts, runId);
    const events = await listEvents(parts.database, runId);
    expect(events.map(({ event }) => event)).toEqual([
      ...["started", "request", "fetched", "committed", "checked", "succeeded"],
    ]);
    expect(events[1]?.detail).toMatchObject({
      host: "provider.example",
      path: "/data",
      status: 200,
    });
    expect(JSON.stringify(events)).not.toContain("hunter2");
  });

  it("is the offending rows of what the gate refused", async () => {
    const row = { datetime: THURSDAY, instrumentId: "power.daily.one", values: [-1] };
    refuses = [offending("error", "below_zero", [row], "one")];
    published = new Map([["2026-06-18T00:00:00Z", -1]]);
    await launch(ingest.parts, "daily");
    await ingest.consume();
    expect(await newest("daily")).toMatchObject({
      state: "failed",
      error_code: "gate_rejected",
      metadata: {
        findings: [
          {
            rule: "below_zero",
            samples: [{ Datetime: iso(THURSDAY), instrument_id: "power.daily.one", values: [-1] }],
          },
        ],
      },
    });
    expect(await ingest.parts.store.libraries()).toEqual([]);
  });

  it("shows which partitions were revised later, and a newer failure", async () => {
    published = new Map([
      ["2026-06-12T00:00:00Z", 1],
      ["2026-06-05T00:00:00Z", 1],
    ]);
    await launch(ingest.parts, "weekly");
    await ingest.consume();
    published.set("2026-06-05T00:00:00Z", 5);
    await launch(ingest.parts, "weekly");
    await ingest.consume();
    const range = { first: "2026-06-05", last: FRIDAY_BEFORE };
    expect(await listPartitions(ingest.parts, "weekly", range)).toMatchObject([
      { partition: FRIDAY_BEFORE, state: "materialized", revised_rows: 0 },
      { partition: "2026-06-05", state: "materialized", revised_rows: 1, run_id: null },
    ]);
    provider = () => {
      throw new Failure("upstream_rejected", "no");
    };
    ingest.now += MINUTE;
    await launch(ingest.parts, "weekly");
    await ingest.consume();
    expect(await states("weekly", FRIDAY_BEFORE, FRIDAY_BEFORE)).toEqual([
      `${FRIDAY_BEFORE} failed`,
    ]);
  });
});
