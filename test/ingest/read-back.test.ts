// The check after the write, through real executions: which rows it judges, by which clock, and
// what its result names.

import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type FetchedSeries, finding } from "../../edge/markets/ingest/gate.ts";
import { findExecution } from "../../edge/markets/ingest/ledger.ts";
import { launch } from "../../edge/markets/ingest/operate.ts";
import type { Pipeline } from "../../edge/markets/ingest/pipeline.ts";
import { DAY, HOUR, iso, MINUTE, systemClock } from "../../shared/time.ts";
import { type ScriptedIngest, scriptedIngest } from "../support/ingest.ts";

const NOW = Date.parse("2026-06-18T14:20:00Z");
const TODAY = "2026-06-18";

let ingest: ScriptedIngest;
/** Newest valid time of each symbol that the provider has. */
let published: Map<string, number>;
/** The rows that each call of the gate was given. */
let judged: FetchedSeries[][];
/** Findings of the gate's second call, which judges what was read back. */
let secondFindings: ReturnType<typeof finding>[];
/** Findings of its first call, which judges the answer. */
let firstFindings: ReturnType<typeof finding>[];

const daily: Pipeline = {
  job: "daily",
  title: "Daily",
  provider: "eia",
  timeZone: "UTC",
  valueColumns: ["value"],
  topicsOf: () => [],
  freshness: { warningMs: 10 * MINUTE, errorMs: DAY },
  publishedWithinMs: 10 * DAY,
  libraries: ["power.daily"],
  partitions: { unit: "day", first: "2020-01-01" },
  schedules: [],
  lookbackMs: 10 * DAY,
  release: null,
  fetch: async (_, { window }) => {
    const series = [...published].map(([symbol, datetime]) => ({
      library: "power.daily",
      symbol,
      rows: [{ datetime, instrumentId: `power.daily.${symbol}`, values: [1] }].filter(
        (row) => row.datetime >= window.from && row.datetime < window.to,
      ),
    }));
    const present = series.filter(({ rows }) => rows.length > 0);
    return { series: present, sourceUrl: "sandbox://provider", sandbox: true };
  },
  gate: (fetched) => {
    judged.push(structuredClone([...fetched]));
    return {
      accepted: [...fetched],
      findings: judged.length === 2 ? secondFindings : firstFindings,
    };
  },
};
const monthly: Pipeline = {
  ...daily,
  job: "monthly",
  libraries: ["power.monthly"],
  partitions: { unit: "month", first: "2020-01-01" },
  fetch: async (...request) => {
    const result = await daily.fetch(...request);
    const series = result.series.map((one) => ({ ...one, library: "power.monthly" }));
    return { ...result, series };
  },
};

beforeAll(async () => {
  ingest = await scriptedIngest({ pipelines: [daily, monthly], now: NOW });
});
afterAll(() => ingest.close());
beforeEach(async () => {
  await ingest.reset();
  ingest.now = NOW;
  published = new Map([["one", Date.parse(`${TODAY}T23:00Z`)]]);
  judged = [];
  secondFindings = [];
  firstFindings = [];
});

/** The execution of a partition, when it has ended. */
async function execute(job: string, partition: string) {
  const runId = await launch(ingest.parts, job, partition);
  await ingest.consume();
  return findExecution(ingest.parts.database, runId);
}
const checkOf = async (job: string, partition: string) =>
  (await execute(job, partition))?.metadata?.check;

describe("a read-back check", () => {
  it("gives the committed rows to the gate of its pipeline a second time", async () => {
    expect(await checkOf("daily", TODAY)).toMatchObject({ passed: true, failures: 0 });
    const rows = judged.map((series) =>
      series.flatMap((one) => one.rows.map(({ datetime }) => `${one.symbol} ${iso(datetime)}`)),
    );
    expect(rows).toEqual([["one 2026-06-18T23:00:00.000Z"], ["one 2026-06-18T23:00:00.000Z"]]);
    // Only what was read from the store has a knowledge time.
    expect(judged.map((series) => series.some(({ rows: [row] }) => row && "asOf" in row))).toEqual([
      false,
      true,
    ]);
  });

  it("names its schema and counts its failures", async () => {
    secondFindings = [
      finding("error", "off_grid", 1, "one"),
      finding("error", "duplicate_key", 3, "one"),
      finding("warning", "spike", 1, "one"),
    ];
    expect(await checkOf("daily", TODAY)).toMatchObject({
      passed: false,
      schema: "power.daily",
      failures: 2,
      reason: "1 row between two valid times in ONE; 3 rows sent twice in ONE",
      warnings: ["1 spike in ONE", "the newest data is older than usual"],
    });
  });

  it("counts what the gate found before and after the write once", async () => {
    firstFindings = [finding("error", "missing_points", 1, "hb_houston")];
    secondFindings = firstFindings;
    expect(await checkOf("daily", TODAY)).toMatchObject({
      failures: 1,
      reason: "1 settlement point missing in HB_HOUSTON",
    });
  });

  it("gives a reason where nothing was read back", async () => {
    published = new Map();
    expect(await checkOf("daily", "2026-01-05")).toMatchObject({
      passed: false,
      reason: expect.stringMatching(/^nothing was read back/),
    });
  });

  it("measures freshness to the end of an old partition, which a backfill may fill late", async () => {
    published = new Map([["one", Date.parse("2025-02-03T23:59Z")]]);
    expect(await checkOf("daily", "2025-02-03")).toMatchObject({ passed: true, warnings: [] });
    published = new Map([["one", Date.parse("2025-03-03T01:00Z")]]);
    judged = [];
    expect(await checkOf("daily", "2025-03-03")).toMatchObject({
      warnings: ["the newest data is older than usual"],
    });
  });

  it("measures freshness by the newest knowledge time that it read, not by the clock", async () => {
    // The store stamps rows by the database's clock; the executions' own runs a year ahead.
    const newest = systemClock();
    ingest.now = newest + 366 * DAY;
    published = new Map([["one", newest]]);
    const month = `${iso(newest).slice(0, 7)}-01`;
    expect(await checkOf("monthly", month)).toMatchObject({ passed: true, warnings: [] });
  });

  it("lists symbols more than three days behind the freshest, and passes", async () => {
    const freshest = Date.parse(`${TODAY}T23:00Z`);
    published = new Map([
      ["one", freshest],
      ["two", freshest - 3 * DAY],
      ["three", freshest - 3 * DAY - HOUR],
    ]);
    expect(await checkOf("daily", TODAY)).toMatchObject({
      passed: true,
      stale_symbols: ["three"],
    });
  });
});
