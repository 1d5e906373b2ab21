// Partitions that their provider has not published yet: who waits and how long, what is said of it,
// and which may rightly have no rows.

import { beforeEach, describe, expect, it } from "vitest";
import { executeQueued } from "../../edge/markets/ingest/execute.ts";
import { finding } from "../../edge/markets/ingest/gate.ts";
import { findBackfill, findExecution, listExecutions } from "../../edge/markets/ingest/ledger.ts";
import { launch, startBackfill } from "../../edge/markets/ingest/operate.ts";
import { listPartitions } from "../../edge/markets/ingest/overview.ts";
import { listExecutionSummaries } from "../../edge/markets/ingest/summaries.ts";
import { listTicks, newestTicks } from "../../edge/markets/ingest/ticks.ts";
import { Failure } from "../../shared/errors.ts";
import { DAY, HOUR, iso, MINUTE } from "../../shared/time.ts";
import {
  daily,
  drain,
  FRIDAY_BEFORE,
  ingest,
  newest,
  script,
  silence,
  states,
  THURSDAY,
  tickAt,
} from "../support/scripted-pipelines.ts";

describe("a scheduled run of a partition that is not published yet", () => {
  beforeEach(() => silence("daily", "weekly_repair"));

  it("commits what there is, waits, and ends when the partition has come", async () => {
    await tickAt(THURSDAY);
    await ingest.consume();
    const waiting = await newest("weekly");
    expect(waiting).toMatchObject({
      partition: FRIDAY_BEFORE,
      state: "waiting",
      error_code: "not_released",
      error_detail: `${FRIDAY_BEFORE} is not published yet; release is expected until 2026-06-18 17:35 UTC`,
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
    script.published.set(`${FRIDAY_BEFORE}T00:00:00Z`, 2);
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
    script.published.set(`${FRIDAY_BEFORE}T00:00:00Z`, 2);
    script.published.set("2026-06-19T00:00:00Z", 3);
    await tickAt(THURSDAY + 7 * DAY);
    await ingest.consume();
    expect(await states("weekly", FRIDAY_BEFORE, "2026-06-19")).toEqual([
      "2026-06-19 materialized",
      `${FRIDAY_BEFORE} materialized`,
    ]);
  });

  it("waits out a provider that is down for longer than a run has attempts", async () => {
    script.provider = () => {
      throw new Failure("upstream_unavailable", "the provider is down");
    };
    await tickAt(THURSDAY);
    await drain(THURSDAY + 2 * HOUR);
    expect(await newest("weekly")).toMatchObject({
      state: "queued",
      error_code: "upstream_unavailable",
    });
    script.published.set(`${FRIDAY_BEFORE}T00:00:00Z`, 2);
    script.provider = () => script.published;
    ingest.now += 10 * MINUTE;
    await ingest.consume();
    expect(await newest("weekly")).toMatchObject({ state: "succeeded" });
  });

  it("is waiting wherever states are told, with the reason, and queued nowhere", async () => {
    await tickAt(THURSDAY);
    await ingest.consume();
    const { database } = ingest.parts;
    const told = { state: "waiting", reason: expect.stringContaining("2026-06-18 17:35 UTC") };
    const range = { first: FRIDAY_BEFORE, last: FRIDAY_BEFORE };
    expect(await listPartitions(ingest.parts, "weekly", range)).toMatchObject([told]);
    const [tick] = await listTicks(database, { schedule: "weekly", limit: 1 });
    expect(tick).toMatchObject(told);
    expect((await newestTicks(database)).get("weekly")).toMatchObject(told);
    for (const list of [listExecutions, listExecutionSummaries]) {
      expect(await list(database, { state: "waiting", limit: 9 })).toHaveLength(1);
      expect(await list(database, { state: "queued", limit: 9 })).toHaveLength(0);
    }
  });
});

describe("a partition that has no rows yet, whoever asked for it", () => {
  beforeEach(() => silence("daily", "weekly", "weekly_repair"));
  const cell = async (job: string, partition: string) =>
    (await listPartitions(ingest.parts, job, { first: partition, last: partition }))[0];

  it("has its run by hand wait until its release window closes, and end late after that", async () => {
    await launch(ingest.parts, "weekly");
    await ingest.consume();
    expect(await newest("weekly")).toMatchObject({ state: "waiting", trigger: "manual" });
    script.published.set(`${FRIDAY_BEFORE}T00:00:00Z`, 2);
    await drain();
    expect(await newest("weekly")).toMatchObject({ state: "succeeded", error_code: null });
    expect(await cell("weekly", FRIDAY_BEFORE)).toMatchObject({ state: "materialized" });
    ingest.now = Date.parse("2026-06-25T17:36:00Z");
    await launch(ingest.parts, "weekly");
    await ingest.consume();
    expect(await newest("weekly")).toMatchObject({
      partition: "2026-06-19",
      state: "late",
      error_detail: "2026-06-19 is not published; release was expected until 2026-06-25 17:35 UTC",
    });
  });

  it("has a backfill's run wait too, where the provider sends nothing at all", async () => {
    const nothing = finding("error", "no_rows", 1, "the provider sent nothing");
    script.published = new Map();
    script.refuses = [nothing];
    const request = { job: "weekly", first: FRIDAY_BEFORE, last: FRIDAY_BEFORE };
    const backfillId = await startBackfill(ingest.parts, request);
    await ingest.consume();
    const { database } = ingest.parts;
    expect(await findBackfill(database, backfillId)).toMatchObject({
      runs: { waiting: 1, queued: 0 },
    });
    script.refuses = [];
    script.published.set(`${FRIDAY_BEFORE}T00:00:00Z`, 2);
    await drain();
    expect(await findBackfill(database, backfillId)).toMatchObject({ runs: { succeeded: 1 } });
    script.refuses = [nothing];
    script.published = new Map();
    await startBackfill(ingest.parts, { job: "weekly", first: "2026-05-29", last: "2026-05-29" });
    await ingest.consume();
    expect(await cell("weekly", "2026-05-29")).toMatchObject({
      state: "failed",
      error_code: "gate_rejected",
    });
  });

  it("waits itself where a later run brings them, covers no partition, and then is late", async () => {
    script.published = new Map([["2026-06-17T23:00:00Z", 1]]);
    const lookingBack = { ...daily, lookbackMs: 3 * DAY, owedMs: 20 * HOUR };
    const parts = { ...ingest.parts, pipelines: [lookingBack] };
    const run = async () => {
      const runId = await launch(parts, "daily");
      ingest.queue = [];
      await executeQueued(parts, runId);
      return findExecution(parts.database, runId);
    };
    const range = { first: "2026-06-16", last: "2026-06-18" };
    const cells = async () =>
      (await listPartitions(parts, "daily", range)).map(({ state }) => state);
    const reason =
      "2026-06-18 is not published yet; release is expected until 2026-06-18 20:00 UTC";
    expect(await run()).toMatchObject({
      state: "succeeded",
      metadata: { rows_written: 1, empty_reason: reason },
    });
    // The day before has none either, whoever looked back on it.
    expect(await cells()).toEqual(["waiting", "materialized", "missing"]);
    expect((await listPartitions(parts, "daily", range))[0]).toMatchObject({ reason });
    ingest.now = Date.parse("2026-06-18T20:00:00Z");
    expect(await cells()).toEqual(["missing", "materialized", "missing"]);
    expect(await run()).toMatchObject({ state: "late", error_code: "not_released" });
    script.published.set("2026-06-18T00:00:00Z", 1);
    ingest.now += HOUR;
    expect(await run()).toMatchObject({ state: "succeeded", metadata: { empty_reason: null } });
    expect(await cells()).toEqual(["materialized", "materialized", "missing"]);
    script.published.set("2026-06-16T12:00:00Z", 1);
    expect(await run()).toMatchObject({ state: "succeeded" });
    expect(await cells()).toEqual(["materialized", "materialized", "materialized"]);
  });

  it("is green with its reason where none is right", async () => {
    script.published = new Map();
    const closed = { ...daily, mayBeEmpty: () => "the exchange is closed on this day" };
    const parts = { ...ingest.parts, pipelines: [closed] };
    const runId = await launch(parts, "daily");
    await executeQueued(parts, runId);
    const reason = "2026-06-18 has no rows: the exchange is closed on this day";
    expect(await findExecution(parts.database, runId)).toMatchObject({
      state: "succeeded",
      metadata: {
        empty_reason: reason,
        check: { passed: true, reason: `nothing was read back: ${reason}` },
      },
    });
    expect(await cell("daily", "2026-06-18")).toMatchObject({ state: "materialized", reason });
  });
});
