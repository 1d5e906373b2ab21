// Ticks, runs and partitions on the real ledger and store, with a provider that the test decides:
// catching up, repairing, canceling, and what is kept of it.

import { describe, expect, it } from "vitest";
import { executeQueued } from "../../edge/markets/ingest/execute.ts";
import { offending } from "../../edge/markets/ingest/gate.ts";
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
import type { Pipeline } from "../../edge/markets/ingest/pipeline.ts";
import { driftFailure } from "../../edge/markets/ingest/sources/drift.ts";
import { jobsAtWork, liveExecutions } from "../../edge/markets/ingest/summaries.ts";
import { minuteTick } from "../../edge/markets/ingest/tick.ts";
import { lastMinute, listTicks } from "../../edge/markets/ingest/ticks.ts";
import { Failure } from "../../shared/errors.ts";
import { DAY, HOUR, iso, MINUTE } from "../../shared/time.ts";
import {
  daily,
  FRIDAY_BEFORE,
  fetchRows,
  ingest,
  newest,
  runs,
  script,
  silence,
  states,
  THURSDAY,
  tickAt,
} from "../support/scripted-pipelines.ts";
import { alterTables } from "../support/transactions.ts";

it("the minute cron leaves its heartbeat, however late it was delivered", async () => {
  const { database } = ingest.parts;
  expect(await lastMinute(database)).toBeNull();
  await tickAt(THURSDAY);
  expect(await lastMinute(database)).toBe(THURSDAY);
  ingest.now = THURSDAY + 5 * MINUTE;
  await minuteTick(ingest.parts, THURSDAY + MINUTE);
  expect(await lastMinute(database)).toBe(THURSDAY + 5 * MINUTE);
});

it("a duty of the minute that fails keeps no other one waiting", async () => {
  const { database } = ingest.parts;
  await alterTables(
    database,
    "ALTER TABLE housekeeping ADD CONSTRAINT no_minute CHECK (chore <> 'minute') NOT VALID",
  );
  await tickAt(THURSDAY);
  expect(await lastMinute(database)).toBeNull();
  expect(await runs("daily")).toHaveLength(1);
});

it("the live run is the newest partition's, whatever a backfill or a repair does", async () => {
  await silence("weekly", "weekly_repair", "daily");
  script.published = new Map([["2026-06-18T00:00:00Z", 1]]);
  const live = await launch(ingest.parts, "daily");
  await ingest.consume();
  ingest.now += MINUTE;
  await startBackfill(ingest.parts, { job: "daily", first: "2026-06-01", last: "2026-06-03" });
  const { database } = ingest.parts;
  expect((await liveExecutions(database, ["daily", "weekly"])).get("daily")?.run_id).toBe(live);
  expect(await jobsAtWork(database)).toEqual(new Set(["daily"]));
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
    script.provider = () => {
      throw new Failure("upstream_rejected", "no");
    };
    await tickAt(THURSDAY);
    await ingest.consume();
    script.provider = () => script.published;
    await silence("weekly");
    // Three weeks later: that week failed, the next ones were never tried. The newest comes first.
    const later = THURSDAY + 22 * DAY;
    expect(await repair(later)).toMatchObject({ partition: "2026-07-03", state: "queued" });
    // One that is on its way is not started twice; the next one is.
    expect(await repair(later + 3 * HOUR)).toMatchObject({ partition: FRIDAY_BEFORE });
    expect(await repair(later + 6 * HOUR)).toMatchObject({ partition: "2026-06-19" });
    script.published = new Map(
      [...Array(6).keys()].map((week) => [iso(Date.parse("2026-06-05") + week * 7 * DAY), week]),
    );
    // The newest looks back on the week between.
    await ingest.consume();
    const over = await repair(later + 9 * HOUR);
    expect(over).toMatchObject({
      run_id: null,
      skip_reason: expect.stringMatching(/materialized/),
    });
  });
});

it("lets no backfill that waits take a tick's place", async () => {
  await silence("daily");
  script.published = new Map();
  const partition = FRIDAY_BEFORE;
  const tickOf = async (now: number) => {
    await tickAt(now);
    const [tick] = await listTicks(ingest.parts.database, { schedule: "weekly", limit: 1 });
    return tick;
  };
  ingest.now = THURSDAY - 5 * MINUTE;
  await startBackfill(ingest.parts, { job: "weekly", first: partition, last: partition });
  await ingest.consume();
  const [waiting] = await listExecutions(ingest.parts.database, { job: "weekly", limit: 1 });
  expect(waiting?.state).toBe("waiting");
  expect(await tickOf(THURSDAY)).toMatchObject({ partition, state: "queued" });
  await ingest.consume();
  const [own] = await listExecutions(ingest.parts.database, { job: "weekly", limit: 1 });
  expect([own?.trigger, own?.state]).toEqual(["schedule", "waiting"]);
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
    script.provider = async () => {
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
    script.published = new Map(
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
    script.published = new Map(
      [...Array(60).keys()].map((day) => [iso(Date.parse("2026-05-01") + day * DAY), 1]),
    );
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
        const init = { redirect: "manual", signal: AbortSignal.timeout(1_000) } as const;
        await upstreams.fetcher.fetch("https://provider.example/data?api_key=hunter2", init);
        return fetchDaily(upstreams, request);
      },
    };
    const parts = { ...ingest.parts, pipelines: [spied] };
    script.published = new Map([["2026-06-18T00:00:00Z", 1]]);
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

  it("is the failure itself, whatever characters a provider sent", async () => {
    script.provider = () => {
      throw driftFailure("EIA", `half a pair \ud83d and NUL \0`, `\0${"x".repeat(798)}\u{1f600}`);
    };
    await launch(ingest.parts, "daily");
    await ingest.consume();
    const run = await newest("daily");
    expect(run).toMatchObject({ state: "failed", error_code: "upstream_schema_drift" });
    expect(run?.error_detail).toContain("half a pair");
    const events = await listEvents(ingest.parts.database, run?.run_id ?? "");
    expect(events.at(-1)).toMatchObject({ event: "failed" });
  });

  it("is the offending rows of what the gate refused", async () => {
    const row = { datetime: THURSDAY, instrumentId: "power.daily.one", values: [-1] };
    script.refuses = [offending("error", "out_of_bounds", [row], "one")];
    script.published = new Map([["2026-06-18T00:00:00Z", -1]]);
    await launch(ingest.parts, "daily");
    await ingest.consume();
    expect(await newest("daily")).toMatchObject({
      state: "failed",
      error_code: "gate_rejected",
      metadata: {
        findings: [
          {
            rule: "out_of_bounds",
            samples: [{ Datetime: iso(THURSDAY), instrument_id: "power.daily.one", values: [-1] }],
          },
        ],
      },
    });
    expect(await ingest.parts.store.libraries()).toEqual([]);
  });

  it("shows which partitions were revised later, and a newer failure", async () => {
    script.published = new Map([
      ["2026-06-12T00:00:00Z", 1],
      ["2026-06-05T00:00:00Z", 1],
    ]);
    await launch(ingest.parts, "weekly");
    await ingest.consume();
    script.published.set("2026-06-05T00:00:00Z", 5);
    await launch(ingest.parts, "weekly");
    await ingest.consume();
    const range = { first: "2026-06-05", last: FRIDAY_BEFORE };
    expect(await listPartitions(ingest.parts, "weekly", range)).toMatchObject([
      { partition: FRIDAY_BEFORE, state: "materialized", revised_rows: 0 },
      { partition: "2026-06-05", state: "materialized", revised_rows: 1, run_id: null },
    ]);
    script.provider = () => {
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
