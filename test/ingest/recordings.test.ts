// Real recordings through the product's own source, gate and store code.

import { beforeAll, describe, expect, it } from "vitest";
import { Secret } from "../../edge/http/config.ts";
import { gridSeries } from "../../edge/markets/ingest/pipelines/grid.ts";
import { gateRegion } from "../../edge/markets/ingest/pipelines/grid-gates.ts";
import { type EiaQuery, fetchEia } from "../../edge/markets/ingest/sources/eia.ts";
import { parseInstant } from "../../shared/time.ts";
import {
  eiaPage,
  hasRecordings,
  type Reply,
  recording,
  startUpstream,
} from "../support/recordings.ts";
import { commitHours, createWorld, HOUR, type World } from "../support/world.ts";

const fetcher = {
  fetch: (url: string, init: object) => fetch(url, init),
  pause: async () => {},
};

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

describe.skipIf(!hasRecordings("eia-930"))("ten recorded days of the grid", () => {
  const periods: string[] = [];
  const records: object[] = [];
  let world: World;

  beforeAll(async () => {
    world = await createWorld({ services: ["console"] });
    const [header = "", ...lines] = recording("eia-930/E_raw_2023-06-10_2023-06-20.csv")
      .trim()
      .split("\n");
    const columns = header.split(",").map((name) => /^E_([A-Z]+)_D$/.exec(name)?.[1]);
    for (const line of lines) {
      const cells = line.split(",");
      const period = cells[0] ?? "";
      periods.push(period);
      columns.forEach((respondent, index) => {
        if (!respondent || cells[index] === "") return;
        const names = { "respondent-name": respondent, "type-name": "Demand" };
        const unit = { "value-units": "megawatthours" };
        records.push({ period, respondent, type: "D", value: cells[index], ...names, ...unit });
      });
    }
  });

  it("passes 53 authorities and 12,773 hours through source, gate, commit and read-back", async () => {
    const start = (period: string | undefined) => (parseInstant(`${period}:00`) ?? NaN) - HOUR;
    const window = { from: start(periods[0]), to: start(periods.at(-1)) + HOUR };
    const query = {
      route: "electricity/rto/region-data",
      frequency: "hourly" as const,
      facets: { type: ["D"] },
      keyFields: ["respondent", "type"],
      window,
    };
    const fetched = await fetchRecorded(query, (url) => ({ body: eiaPage(records, url) }));
    const series = gridSeries(fetched.rows);
    expect([series.length, fetched.rows.length, periods.length]).toEqual([53, 53 * 241, 241]);

    const report = gateRegion(series, { partition: window, window, now: window.to });
    expect(report.findings.filter(({ severity }) => severity === "error")).toEqual([]);
    const flat = report.findings.filter(({ rule }) => rule === "flat").map(({ where }) => where);
    expect(flat).toEqual(expect.arrayContaining(["hst", "wauw", "sec"]));

    for (const { symbol, rows } of report.accepted) {
      const vintage = await commitHours(world, symbol, window.from, [], { rows, covered: window });
      expect(vintage).toMatchObject({ seq: 1, inserted: 241 });
    }
    const erco = await world.store.read({ library: "power.demand", symbol: "erco" });
    expect((await erco.rows())[0]).toMatchObject({
      datetime: window.from,
      values: [71_781],
    });
    const symbols = await world.store.symbols("power.demand");
    expect(symbols).toHaveLength(53);
    expect(symbols.every(({ validMax }) => validMax === window.to - HOUR)).toBe(true);
  });
});
