// Real recordings through the product's own source, gate and store code.

import { beforeAll, describe, expect, it } from "vitest";
import type { FetchedSeries } from "../../edge/markets/ingest/gate.ts";
import type { Pipeline } from "../../edge/markets/ingest/pipeline.ts";
import { generationByFuel, gridRegion } from "../../edge/markets/ingest/pipelines/grid.ts";
import { spotPrices } from "../../edge/markets/ingest/pipelines/spot.ts";
import type { Upstreams } from "../../edge/markets/ingest/providers.ts";
import { type EiaQuery, fetchEia } from "../../edge/markets/ingest/sources/eia.ts";
import { commit } from "../../edge/markets/store/commit.ts";
import { Secret } from "../../shared/secret.ts";
import { parseInstant } from "../../shared/time.ts";
import {
  eiaPage,
  gunzippedRecording,
  hasRecordings,
  type Reply,
  recording,
  startUpstream,
} from "../support/recordings.ts";
import { createWorld, HOUR, type World } from "../support/world.ts";

const fetcher = {
  fetch: (url: string, init: object) => fetch(url, init),
  pause: async () => {},
};

/** What a pipeline makes of a window of recorded answers. */
async function runRecorded(
  pipeline: Pipeline,
  window: { from: number; to: number },
  reply: (url: URL) => Reply,
) {
  const { url } = await startUpstream(reply);
  const access = {
    baseUrl: url,
    apiKey: new Secret("REDACTED"),
    shownAs: "https://api.eia.gov/v2/",
  };
  const eia = () => ({ ...access, sandbox: false });
  // These pipelines ask no provider but EIA.
  const upstreams = { eia, fetcher } as unknown as Upstreams;
  const request = { partition: window, window, now: window.to };
  const fetched = await pipeline.fetch(upstreams, request);
  return { fetched, report: pipeline.gate(fetched.series, request) };
}

async function fetchRecorded(query: EiaQuery, reply: (url: URL) => Reply) {
  const { url } = await startUpstream(reply);
  const access = {
    baseUrl: url,
    apiKey: new Secret("REDACTED"),
    shownAs: "https://api.eia.gov/v2/",
  };
  return fetchEia(access, query, fetcher);
}

describe.skipIf(!hasRecordings("eia-api"))("recorded EIA v2 pages", () => {
  const window = { from: Date.UTC(2022, 11, 31, 23), to: Date.UTC(2023, 0, 1, 23) };

  it("joins the real page pair of 16 and 8 rows", async () => {
    const query = {
      route: "electricity/rto/fuel-type-data",
      frequency: "hourly" as const,
      facets: { respondent: ["AECI"], fueltype: ["COL"] },
      keyFields: ["respondent", "fueltype"],
      window,
    };
    const { rows } = await fetchRecorded(query, (url) => ({
      body: recording(
        `eia-api/fuel-type-data_AECI_COL_${url.searchParams.get("offset") === "0" ? 1 : 2}.json`,
      ),
    }));
    expect(rows).toHaveLength(24);
    expect(rows[0]).toEqual({
      datetime: Date.UTC(2022, 11, 31, 23),
      key: { respondent: "AECI", fueltype: "COL" },
      value: 1956,
      unit: "megawatthours",
    });
    expect(rows.map((row) => row.datetime)).toEqual(
      rows.map((_, hour) => window.from + hour * HOUR),
    );
  });

  it("reads the recorded interchange page, 25 hours of a pair", async () => {
    const query = {
      route: "electricity/rto/interchange-data",
      frequency: "hourly" as const,
      facets: { fromba: ["FPC"], toba: ["FPL"] },
      keyFields: ["fromba", "toba"],
      window: { from: Date.UTC(2020, 0, 6, 5), to: Date.UTC(2020, 0, 7, 6) },
    };
    const { rows } = await fetchRecorded(query, () => ({
      body: recording("eia-api/interchange-data_FPC_FPL_2020-01-06.json"),
    }));
    expect(rows).toHaveLength(25);
    expect(rows[0]).toMatchObject({ datetime: Date.UTC(2020, 0, 6, 5), value: -329 });
  });

  it("keeps a recorded null as null, and refuses the page that lacks a row it announced", async () => {
    const query = {
      route: "electricity/rto/fuel-type-data",
      frequency: "hourly" as const,
      facets: {},
      keyFields: ["respondent", "fueltype"],
      window,
    };
    const text = recording("eia-api/fuel-type-data_null_value_HANDMADE_TEST.json");
    const announced = JSON.parse(text) as { response: { total: number; data: unknown[] } };
    expect(announced.response.total).toBeGreaterThan(announced.response.data.length);
    const rest = { response: { ...announced.response, data: [] } };
    const short = fetchRecorded(query, (url) =>
      url.searchParams.get("offset") === "0" ? { body: text } : { body: rest },
    );
    await expect(short).rejects.toMatchObject({ code: "upstream_truncated" });
    announced.response.total = announced.response.data.length;
    const { rows } = await fetchRecorded(query, () => ({ body: announced }));
    expect(rows.map((row) => row.value)).toEqual([NaN, 400]);
  });
});

interface GridRecording {
  window: { from: number; to: number };
  /** In EIA's format: of the region route, and of the fuel route. */
  region: object[];
  fuels: object[];
}

/** The recorded pivot as the rows it was made of; pairs of authorities are left out. */
function readGrid(): GridRecording {
  const [header = "", ...lines] = recording("eia-930/E_raw_2023-06-10_2023-06-20.csv")
    .trim()
    .split("\n");
  const columns = header.split(",").map((name) => /^E_([A-Z]+)_([A-Z]+)$/.exec(name));
  const region: object[] = [];
  const fuels: object[] = [];
  const unit = { "value-units": "megawatthours" };
  for (const line of lines) {
    const cells = line.split(",");
    const period = cells[0] ?? "";
    columns.forEach((match, index) => {
      const [, respondent, field] = match ?? [];
      if (!respondent || !field || cells[index] === "") return;
      const row = { period, respondent, value: cells[index], ...unit };
      if (["D", "NG", "TI"].includes(field)) region.push({ ...row, type: field });
      // The recorder called natural gas GAS, since NG is the sum of all.
      else fuels.push({ ...row, fueltype: field === "GAS" ? "NG" : field });
    });
  }
  const start = (line: string | undefined) =>
    (parseInstant(`${line?.slice(0, 13)}:00`) ?? 0) - HOUR;
  return { window: { from: start(lines[0]), to: start(lines.at(-1)) + HOUR }, region, fuels };
}

describe.skipIf(!hasRecordings("eia-930"))("ten recorded days of the grid", () => {
  let world: World;
  let grid: GridRecording;

  beforeAll(async () => {
    world = await createWorld({ services: ["console"] });
    grid = readGrid();
  });

  const fetchGrid = (pipeline: Pipeline, records: object[]) =>
    runRecorded(pipeline, grid.window, (url) => ({ body: eiaPage(records, url) }));

  /** Commits every series as a run does; all of it is new. */
  async function commitAll(series: readonly FetchedSeries[]) {
    for (const { library, symbol, rows } of series) {
      const vintage = await commit(world.writer, {
        library,
        symbol,
        rows,
        covered: grid.window,
        valueColumns: ["value"],
        reconstructed: false,
        sandbox: false,
        runId: "recorded",
        partition: "2023-06-20",
        sourceUrl: "https://api.eia.gov/v2/",
      });
      expect(vintage).toMatchObject({ seq: 1, inserted: rows.length });
    }
  }

  it("passes demand, generation and interchange through source, gate, commit and read-back", async () => {
    const { fetched, report } = await fetchGrid(gridRegion, grid.region);
    const count = (name: string) =>
      fetched.series.filter(({ library }) => library === `power.${name}`).length;
    expect([count("demand"), count("generation"), count("interchange")]).toEqual([53, 62, 62]);
    expect(fetched.series.every(({ rows }) => rows.length === 241)).toBe(true);

    const errors = report.findings.filter(({ severity }) => severity === "error");
    expect([errors, report.accepted.length]).toEqual([[], 177]);
    const where = (rule: string) =>
      report.findings.filter((one) => one.rule === rule).map((one) => one.where);
    expect(where("flat")).toEqual(expect.arrayContaining(["hst", "wauw", "sec"]));
    // SWPP reported 3,617,992 MWh in one hour: the hour is lost, its other 240 are not.
    expect(report.findings).toContainEqual(
      expect.objectContaining({ rule: "implausible_generation", where: "swpp", count: 1 }),
    );
    // BPAT never balances, by the way it counts: that is no news.
    expect(where("demand_balance").join()).not.toContain("bpat");

    await commitAll(report.accepted);
    const read = async (library: string) =>
      (await (await world.store.read({ library, symbol: "erco" })).rows())[0];
    const first = { datetime: grid.window.from };
    expect(await read("power.demand")).toMatchObject({ ...first, values: [71_781] });
    expect(await read("power.generation")).toMatchObject({ ...first, values: [70_948] });
    // ERCOT imported: a positive interchange is an export.
    expect(await read("power.interchange")).toMatchObject({ ...first, values: [-833] });
    const symbols = await world.store.symbols("power.demand");
    expect(symbols).toHaveLength(53);
    expect(symbols.every(({ validMax }) => validMax === grid.window.to - HOUR)).toBe(true);
  });

  it("balances as it was recorded: demand is generation less exports, for most", async () => {
    const { fetched } = await fetchGrid(gridRegion, grid.region);
    const values = (library: string, symbol: string) =>
      fetched.series
        .find((one) => one.library === `power.${library}` && one.symbol === symbol)
        ?.rows.map((row) => row.values[0] ?? NaN) ?? [];
    const brokenShare = (symbol: string) => {
      const [generation, interchange] = [
        values("generation", symbol),
        values("interchange", symbol),
      ];
      const broken = values("demand", symbol).filter((demand, hour) => {
        const balance = (generation[hour] ?? NaN) - (interchange[hour] ?? NaN);
        return Math.abs(demand - balance) > 0.05 * demand;
      });
      return broken.length / 241;
    };
    expect([brokenShare("bpat"), brokenShare("erco"), brokenShare("pjm")]).toEqual([1, 0, 0]);
    expect(brokenShare("ciso")).toBeCloseTo(0.34, 2);
  });

  it("passes 281 fuels of 62 authorities, whose sums are what they generated", async () => {
    const { fetched, report } = await fetchGrid(generationByFuel, grid.fuels);
    expect(fetched.series).toHaveLength(62);
    const instruments = fetched.series.flatMap(({ rows }) => rows.map((row) => row.instrumentId));
    expect(new Set(instruments).size).toBe(281);
    expect(report.findings.filter(({ severity }) => severity === "error")).toEqual([]);
    expect(report.findings.map(({ rule }) => rule)).not.toContain("unknown_fuel");
    expect(report.accepted).toHaveLength(62);
    // Pumped storage is reported as water, solar plants draw at night: neither is an error.
    const lowest = (fuel: string, symbol: string) => {
      const rows = fetched.series.find((one) => one.symbol === symbol)?.rows ?? [];
      const own = rows.filter(({ instrumentId }) => instrumentId.endsWith(`.${fuel}`));
      return Math.min(...own.map((row) => row.values[0] ?? 0));
    };
    expect([lowest("wat", "duk"), lowest("sun", "psco")]).toEqual([-1_937, -133]);
    await commitAll(report.accepted);
    const erco = await (
      await world.store.read({ library: "power.generation_by_fuel", symbol: "erco" })
    ).rows();
    const atFirst = erco.filter(({ datetime }) => datetime === grid.window.from);
    const total = atFirst.reduce((sum, { values }) => sum + (values[0] ?? 0), 0);
    expect(Math.abs(total - 70_948)).toBeLessThanOrEqual(5);
  });
});

describe.skipIf(!hasRecordings("vintages-henry-hub"))("the recorded Henry Hub file", () => {
  it("passes the spot pipeline, every price of 29 years", async () => {
    const file = gunzippedRecording("vintages-henry-hub/daily_2026-08-20_f7771269.csv.gz");
    const prices = file
      .trim()
      .split(/\r?\n/)
      .slice(1)
      .map((line) => line.split(",") as [string, string]);
    const records = prices.map(([period, value]) => ({
      period,
      series: "RNGWHHD",
      value: value || null,
      units: "$/MMBTU",
    }));
    const window = { from: Date.UTC(1997, 0, 1), to: Date.UTC(2026, 7, 21) };
    const { fetched, report } = await runRecorded(spotPrices, window, (url) => ({
      body: eiaPage(url.searchParams.get("facets[series][]") === "RNGWHHD" ? records : [], url),
    }));
    expect(fetched.series).toHaveLength(1);
    const [accepted] = report.accepted;
    expect(accepted).toMatchObject({ library: "prices.spot", symbol: "rngwhhd" });
    expect(accepted?.rows).toHaveLength(prices.length);
    expect(accepted?.rows[0]).toEqual({
      datetime: Date.parse(prices[0]?.[0] ?? ""),
      instrumentId: "prices.spot.rngwhhd",
      values: [Number(prices[0]?.[1])],
    });
    const rules = report.findings.map(({ severity, rule }) => `${severity} ${rule}`);
    expect(rules.filter((rule) => rule.startsWith("error"))).toEqual([]);
    console.info(
      `Henry Hub through the spot gate: ${prices.length} prices, warnings: ${rules.length}`,
    );
  });
});
