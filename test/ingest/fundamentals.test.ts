// The agency's dated series: gates rule by rule, what a run asks for and gets from the sandbox, and
// the weeks in which a report is late.

import { describe, expect, it, onTestFinished } from "vitest";
import type { Fault } from "../../edge/local/sandbox/answers.ts";
import { petroleumShown, storageShown } from "../../edge/local/sandbox/releases.ts";
import { startSandbox } from "../../edge/local/sandbox/server.ts";
import type { FetchedSeries, GateReport } from "../../edge/markets/ingest/gate.ts";
import { latestPartition, partitionRange } from "../../edge/markets/ingest/partition.ts";
import type { Pipeline } from "../../edge/markets/ingest/pipeline.ts";
import {
  agencyForecast,
  gasStorage,
  petroleumStatus,
} from "../../edge/markets/ingest/pipelines/fundamentals.ts";
import { spotPrices } from "../../edge/markets/ingest/pipelines/spot.ts";
import type { Upstreams } from "../../edge/markets/ingest/providers.ts";
import { Failure } from "../../shared/errors.ts";
import { Secret } from "../../shared/secret.ts";
import { HOUR, iso, isoDay, MINUTE } from "../../shared/time.ts";
import { eiaPage, startUpstream } from "../support/recordings.ts";
import { DAY } from "../support/world.ts";

const FRIDAY = Date.UTC(2026, 0, 2);
const WEEK = 7 * DAY;
const WINDOW = { from: FRIDAY, to: FRIDAY + 10 * WEEK };
const context = { partition: WINDOW, window: WINDOW, now: WINDOW.to };

const upstreamsAt = (url: string) =>
  ({
    eia: () => ({
      baseUrl: url,
      apiKey: new Secret("sandbox"),
      shownAs: "sandbox://eia/v2/",
      sandbox: true,
    }),
    fetcher: { fetch: (one: string, init: object) => fetch(one, init), pause: async () => {} },
    // These pipelines ask no provider but EIA.
  }) as unknown as Upstreams;

/** What a forward run of the newest partition gets at an instant. */
async function runAt(pipeline: Pipeline, now: number, fault?: Fault) {
  const sandbox = await startSandbox({ clock: () => now });
  onTestFinished(() => sandbox.close());
  if (fault) sandbox.break("eia", fault);
  const key = latestPartition(pipeline.partitions, now);
  const partition = partitionRange(pipeline.partitions, key, now);
  const { lookbackMs, lookaheadMs = 0 } = pipeline;
  const window = { from: partition.from - lookbackMs, to: partition.to + lookaheadMs };
  const upstreams = upstreamsAt(`${sandbox.url}/eia/v2/`);
  const fetched = await pipeline.fetch(upstreams, { partition, window, now });
  const report = pipeline.gate(fetched.series, { partition, window, now });
  const inside = fetched.series
    .flatMap(({ rows }) => rows)
    .filter(({ datetime }) => datetime >= partition.from && datetime < partition.to);
  return { key, partition, window, fetched, report, inside };
}

const shown = ({ findings }: GateReport) =>
  findings.map(({ severity, rule, where }) => `${severity} ${rule} ${where}`);

/** Weekly values by instrument as one report. */
function report(
  symbol: string,
  names: Readonly<Record<string, (week: number) => number | undefined>>,
): FetchedSeries {
  const rows = Object.entries(names).flatMap(([name, of]) =>
    Array.from({ length: 10 }, (_, week) => ({
      datetime: FRIDAY + week * WEEK,
      instrumentId: `fundamentals.${symbol}.${name}`,
      values: [of(week) ?? NaN],
      isThere: of(week) !== undefined,
    })).flatMap(({ isThere, ...row }) => (isThere ? [row] : [])),
  );
  return { library: "fundamentals.agency", symbol, rows };
}

const STORAGE = {
  r48: () => 3_000,
  r31: () => 700,
  r32: () => 800,
  r33: () => 1_000,
  r34: () => 200,
  r35: () => 300,
  r33_salt: () => 300,
  r33_nonsalt: () => 700,
};
const storage = (
  changed: Partial<Record<keyof typeof STORAGE, (week: number) => number | undefined>>,
) => shown(gasStorage.gate([report("gas_storage", { ...STORAGE, ...changed })], context));

describe("the storage gate", () => {
  it("finds nothing wrong with eight series whose sums hold to a rounding", () => {
    expect(storage({})).toEqual([]);
    expect(storage({ r48: () => 3_002, r33_salt: () => 301 })).toEqual([]);
  });

  it("takes nothing when one of the eight is missing or empty, for a week or altogether", () => {
    for (const gone of [() => undefined, (week: number) => (week === 4 ? NaN : 1_000)]) {
      const series = report("gas_storage", { ...STORAGE, r33: gone });
      const judged = gasStorage.gate([series], context);
      expect(shown(judged)).toContain("error missing_instruments gas_storage");
      expect(judged.accepted).toEqual([]);
    }
  });

  it.each([
    [{ r48: () => 3_003 }, "warning regions_apart gas_storage"],
    [{ r48: () => 3_011 }, "error regions_apart gas_storage"],
    [{ r33_salt: () => 302 }, "warning salt_apart gas_storage"],
    [{ r33_salt: () => 700 }, "error salt_apart gas_storage"],
    [
      {
        r48: (week: number) => (week > 4 ? 3_151 : 3_000),
        r31: (week: number) => (week > 4 ? 851 : 700),
      },
      "warning storage_change gas_storage",
    ],
    [
      {
        r48: (week: number) => (week > 4 ? 2_599 : 3_000),
        r33: (week: number) => (week > 4 ? 599 : 1_000),
        r33_nonsalt: (week: number) => (week > 4 ? 299 : 700),
      },
      "warning storage_change gas_storage",
    ],
    [{ r48: () => 4_501, r31: () => 2_201 }, "error implausible_storage gas_storage"],
  ])("says so of %j", (changed, rule) => {
    expect(storage(changed)).toEqual([rule]);
  });

  it("takes Fridays only, one after the other", () => {
    const series = report("gas_storage", STORAGE);
    const late = series.rows.map((row) => ({ ...row, datetime: row.datetime - DAY }));
    const moved = { ...series, rows: late.filter(({ datetime }) => datetime > FRIDAY) };
    expect(shown(gasStorage.gate([moved], context))).toContain("error not_a_friday gas_storage");
    const gappy = series.rows.filter(({ datetime }) => datetime !== FRIDAY + 4 * WEEK);
    expect(shown(gasStorage.gate([{ ...series, rows: gappy }], context))).toEqual([
      "error missing_weeks gas_storage",
    ]);
  });

  it("rejects an answer without rows", () => {
    expect(shown(gasStorage.gate([], context))).toEqual([
      "error no_rows the provider sent nothing",
    ]);
  });
});

const NAMES =
  "wcestus1 wcsstus1 wcrstus1 w_epc0_sax_ycuok_mbbl wgtstus1 wdistus1 wcrfpus2 wrpupus2 wpuleus3";
const PETROLEUM: Readonly<Record<string, (week: number) => number | undefined>> =
  Object.fromEntries(NAMES.split(" ").map((name) => [name, () => 400]));

describe("the petroleum gate", () => {
  const judge = (changed: typeof PETROLEUM) =>
    petroleumStatus.gate([report("petroleum_status", { ...PETROLEUM, ...changed })], context);

  it.each([
    [{}, []],
    [{ wcestus1: () => 0 }, ["error not_positive petroleum_status"]],
    [
      { wcestus1: (week: number) => (week > 4 ? 461 : 400) },
      ["warning weekly_move petroleum_status"],
    ],
    [{ wcestus1: (week: number) => (week > 4 ? 459 : 400) }, []],
    [
      { wpuleus3: () => undefined },
      ["error missing_instruments wpuleus3", "warning missing_values petroleum_status"],
    ],
    [
      { wpuleus3: (week: number) => (week < 9 ? 90 : undefined) },
      ["warning missing_values petroleum_status"],
    ],
  ])("says of %j: %j", (changed, rules) => {
    expect(shown(judge(changed)).toSorted()).toEqual(rules.toSorted());
  });

  it("waits for both of its routes", () => {
    const partition = { from: FRIDAY + 9 * WEEK, to: FRIDAY + 10 * WEEK };
    const whole = judge({}).accepted;
    const half = judge({ wpuleus3: (week) => (week < 9 ? 90 : undefined) }).accepted;
    expect([whole.length, half.length]).toEqual([1, 1]);
    expect(petroleumStatus.complete?.(whole, partition)).toBe(true);
    expect(petroleumStatus.complete?.(half, partition)).toBe(false);
  });
});

describe("the spot gate", () => {
  const MONDAY = Date.UTC(2026, 0, 5);
  const prices = (symbol: string, values: readonly number[], from = MONDAY): FetchedSeries => ({
    library: "prices.spot",
    symbol,
    rows: values.map((value, day) => ({
      datetime: from + day * DAY,
      instrumentId: `prices.spot.${symbol}`,
      values: [value],
    })),
  });
  const judge = (...series: FetchedSeries[]) => shown(spotPrices.gate(series, context));

  it.each([
    ["rngwhhd", 3.1, []],
    ["rngwhhd", 0.49, ["warning implausible_price rngwhhd"]],
    ["rngwhhd", 100.1, ["warning implausible_price rngwhhd"]],
    ["rwtc", -36.98, ["warning implausible_price rwtc"]],
    ["rwtc", -100.1, ["error impossible_price rwtc", "warning implausible_price rwtc"]],
    ["eer_epllpa_pf4_y44mb_dpg", 0.7, []],
    ["rngc4", 3.2, []],
    ["strange", 3.2, ["warning unknown_symbol strange"]],
  ])("judges %s at %d", (symbol, price, rules) => {
    expect(judge(prices(symbol, [3, price])).toSorted()).toEqual(rules.toSorted());
  });

  it("tells of prices dated on a weekend, and keeps them", () => {
    const series = prices("rngwhhd", [3, 3, 3, 3, 3, 3, 3]);
    const judged = spotPrices.gate([series], context);
    expect(judged.findings).toMatchObject([{ severity: "warning", rule: "weekend", count: 2 }]);
    expect(judged.accepted[0]?.rows).toHaveLength(7);
  });

  it("takes a holiday without any price for what it is, not six weeks without one", () => {
    const window = { from: MONDAY, to: MONDAY + DAY };
    expect(spotPrices.gate([], { ...context, window }).findings).toEqual([]);
    expect(judge()).toEqual(["error no_rows the provider sent nothing"]);
  });
});

describe("the outlook gate", () => {
  const path = (months: readonly number[], price = 3): FetchedSeries => ({
    library: "fundamentals.agency",
    symbol: "nghhuus",
    rows: months.map((month) => ({
      datetime: Date.UTC(2026, month, 1),
      instrumentId: "fundamentals.agency_forecast.nghhuus",
      values: [price],
    })),
  });
  const window = { from: Date.UTC(2026, 0, 1), to: Date.UTC(2028, 0, 1) };
  const judge = (series: FetchedSeries) =>
    shown(agencyForecast.gate([series], { partition: window, window, now: window.from }));

  it("takes months ahead, all of them, and nothing else", () => {
    expect(judge(path([0, 1, 2, 3]))).toEqual([]);
    expect(judge(path([0, 1, 3]))).toEqual(["error missing_months nghhuus"]);
    expect(judge(path([0, 1], 0.1))).toEqual(["warning implausible_price nghhuus"]);
    const odd = path([0, 1]);
    const rows = odd.rows.map((row) => ({ ...row, datetime: row.datetime + 14 * DAY }));
    expect(judge({ ...odd, rows })).toEqual(["error not_a_month nghhuus"]);
  });
});

describe("a run over the sandbox", () => {
  const NOW = Date.UTC(2026, 9, 22, 15, 40);

  it.each([
    [gasStorage, 1, 8],
    [petroleumStatus, 1, 9],
    [agencyForecast, 3, 3],
    [spotPrices, 6, 0],
  ] as const)("of $job is accepted whole", async (pipeline, series, inside) => {
    const run = await runAt(pipeline, NOW);
    expect(shown(run.report)).toEqual([]);
    expect(run.fetched.findings).toEqual([]);
    expect(run.report.accepted).toHaveLength(series);
    expect(run.inside).toHaveLength(inside);
    const owned = run.report.accepted.every(({ symbol }) => pipeline.owns?.(symbol) ?? true);
    expect(owned).toBe(true);
    expect(run.fetched.sourceUrl).toMatch(/^sandbox:\/\/eia\/v2\//);
    const jobs = [gasStorage, petroleumStatus, agencyForecast];
    for (const { symbol } of run.report.accepted) {
      expect(jobs.filter((job) => job.owns?.(symbol)).length).toBe(pipeline === spotPrices ? 0 : 1);
    }
  });

  it.each([
    ["down", "upstream_unavailable"],
    ["storm", "upstream_unavailable"],
    ["truncated", "upstream_truncated"],
    ["drifted", "upstream_schema_drift"],
    ["refused", "upstream_unauthorized"],
  ] as const)("of a provider that is %s fails as %s", async (fault, code) => {
    for (const pipeline of [gasStorage, spotPrices]) {
      const failure = await runAt(pipeline, NOW, fault).catch((thrown: unknown) => thrown);
      expect(failure).toBeInstanceOf(Failure);
      expect(failure).toMatchObject({ code });
      if (fault === "drifted") expect((failure as Failure).message).toContain("value");
    }
  });

  it.each([
    [gasStorage, "2026-10-16", storageShown(Date.UTC(2026, 9, 16)), 8],
    [petroleumStatus, "2026-10-16", petroleumShown(Date.UTC(2026, 9, 16)), 9],
  ] as const)("of $job sees its week from the minute the API shows it", async (...one) => {
    const [pipeline, key, shownAt, rows] = one;
    const before = await runAt(pipeline, shownAt - MINUTE);
    const after = await runAt(pipeline, shownAt + MINUTE);
    expect([before.key, after.key]).toEqual([key, key]);
    expect([before.inside.length, after.inside.length]).toEqual([0, rows]);
    expect(shown(before.report)).toEqual([]);
  });

  it("aims at the week whose release has come, in summer and in winter, and a day early never", () => {
    const aim = ({ partitions }: Pipeline, instant: number) => latestPartition(partitions, instant);
    expect(aim(gasStorage, Date.UTC(2026, 6, 16, 14, 35))).toBe("2026-07-10");
    expect(aim(gasStorage, Date.UTC(2026, 6, 16, 14, 29))).toBe("2026-07-03");
    expect(aim(gasStorage, Date.UTC(2026, 0, 15, 15, 35))).toBe("2026-01-09");
    expect(aim(petroleumStatus, Date.UTC(2026, 6, 15, 14, 35))).toBe("2026-07-10");
    expect(aim(petroleumStatus, Date.UTC(2026, 0, 14, 15, 35))).toBe("2026-01-09");
    expect(aim(spotPrices, Date.UTC(2026, 0, 12, 14, 30))).toBe("2026-01-09");
    expect(aim(agencyForecast, Date.UTC(2026, 0, 12))).toBe("2026-01-01");
  });

  it("knows the releases that holidays move", () => {
    // Veterans Day, Thanksgiving and an ordinary week of 2026, in New York's time.
    const shownOn = (friday: string) => iso(storageShown(Date.parse(friday))).slice(0, 13);
    expect(shownOn("2026-11-06")).toMatch("2026-11-13T1");
    expect(shownOn("2026-11-20")).toMatch("2026-11-25T17");
    expect(shownOn("2026-10-09")).toMatch("2026-10-15T1");
    expect(isoDay(petroleumShown(Date.parse("2026-11-06")))).toBe("2026-11-12");
  });
});

describe("a changed unit", () => {
  it("is told of: the numbers may mean something else", async () => {
    const rows = (series: readonly string[], period: string) =>
      series.map((one) => ({ period, series: one, value: "3000", units: "MMCF" }));
    const upstream = await startUpstream((url) => ({
      body: eiaPage(rows(url.searchParams.getAll("facets[series][]"), isoDay(FRIDAY)), url),
    }));
    const request = { partition: WINDOW, window: WINDOW, now: WINDOW.to };
    const { findings } = await gasStorage.fetch(upstreamsAt(upstream.url), request);
    expect(findings).toMatchObject([{ severity: "warning", rule: "unexpected_unit", count: 8 }]);
    expect(findings?.[0]?.where).toContain("r48 in MMCF");
  });
});

describe("what the sandbox's agency changes afterwards", () => {
  const friday = (week: number) => Date.UTC(2025, 0, 3) + week * WEEK;

  it("revises a storage week now and then, and nothing later", async () => {
    const values = async (now: number) => {
      const { fetched } = await runAt(gasStorage, now);
      const rows = fetched.series[0]?.rows ?? [];
      return new Map(rows.map((row) => [`${row.datetime} ${row.instrumentId}`, row.values[0]]));
    };
    let revised = 0;
    let before = await values(storageShown(friday(0)) + HOUR);
    for (let week = 1; week < 30; week++) {
      const after = await values(storageShown(friday(week)) + HOUR);
      const changed = [...before].filter(
        ([key, value]) => after.has(key) && after.get(key) !== value,
      );
      expect(changed.every(([key]) => Number(key.split(" ")[0]) === friday(week - 1))).toBe(true);
      revised += Number(changed.length > 0);
      before = after;
    }
    expect(revised).toBeGreaterThan(0);
    expect(revised).toBeLessThan(12);
  });
});
