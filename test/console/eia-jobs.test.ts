// Every job that reads EIA, in workerd, from the sandbox to the read API: what each commits, that
// its own check passes, and the curves that its data make.

import { afterAll, beforeAll, describe, expect, it, type TestContext } from "vitest";
import { followBackfill } from "../../edge/local/operator.ts";
import { type Sandbox, startSandbox } from "../../edge/local/sandbox/server.ts";
import { isoDay, systemClock } from "../../shared/time.ts";
import { CurveRecord, SeriesRecord } from "../../shared/wire/markets.ts";
import { launchOrSkip } from "../support/runs.ts";
import { createWorld, DAY, onlySchedules, type World } from "../support/world.ts";

let world: World;
let sandbox: Sandbox;

beforeAll(async () => {
  sandbox = await startSandbox();
  world = await createWorld({
    services: ["markets", "console"],
    environment: { console: { SANDBOX_URL: sandbox.url } },
  });
  await onlySchedules(world, []);
});
afterAll(() => sandbox.close());

const get = async (path: string) => {
  const response = await fetch(`${world.urls.markets}${path}`);
  expect(response.status).toBe(200);
  return (await response.json()) as unknown;
};
const series = async (library: string, symbol: string) =>
  SeriesRecord.array().parse(await get(`/series?library=${library}&symbol=${symbol}`));
const curve = async (commodity: string) =>
  CurveRecord.array().parse(await get(`/curve?commodity=${commodity}`));

/** Launches a job and says how fast it was. */
async function launch(job: string, context: TestContext) {
  const started = performance.now();
  const run = await launchOrSkip(world.operator, job, context);
  const seconds = (performance.now() - started) / 1_000;
  const rows = Number(run.metadata?.rows_fetched);
  console.info(`${job}: ${rows} rows in ${seconds.toFixed(1)} s, ${Math.round(rows / seconds)}/s`);
  expect(run).toMatchObject({ state: "succeeded", attempt: 1, error_code: null });
  return run;
}

/** Launches a job twice; the second time it finds nothing new, or almost: the clock moves on. */
async function launchTwice(job: string, context: TestContext) {
  const run = await launch(job, context);
  expect(run.metadata).toMatchObject({ check: { passed: true, failures: 0 }, sandbox: true });
  const again = await launch(job, context);
  expect(Number(again.metadata?.rows_written)).toBeLessThan(
    Number(run.metadata?.rows_written) / 20,
  );
  return run;
}

describe("grid_region", () => {
  it("fills four libraries, and demand is generation less exports", async (context) => {
    await launchTwice("grid_region", context);
    const [demand, forecast, generation, interchange] = await Promise.all(
      ["demand", "demand_forecast", "generation", "interchange"].map((name) =>
        series(`power.${name}`, "pjm"),
      ),
    );
    expect(demand?.length).toBeGreaterThan(200);
    const ahead = forecast?.filter(({ Datetime }) => Date.parse(Datetime) > systemClock());
    expect(ahead?.length).toBeGreaterThan(0);
    const at = (rows: typeof demand, Datetime: string) =>
      Number(rows?.find((row) => row.Datetime === Datetime)?.value);
    const settled = isoDay(systemClock() - 8 * DAY);
    const shared = demand?.filter(({ Datetime }) => Datetime.startsWith(settled)) ?? [];
    expect(shared.length).toBe(24);
    for (const { Datetime, value } of shared) {
      const balance = at(generation, Datetime) - at(interchange, Datetime);
      expect(Math.abs(balance - Number(value)) / Number(value)).toBeLessThan(0.05);
    }
  });
});

describe("generation_by_fuel", () => {
  it("keeps every fuel of an authority as an instrument of one symbol", async (context) => {
    await launchTwice("generation_by_fuel", context);
    const rows = await series("power.generation_by_fuel", "erco");
    const fuels = new Set(rows.map((row) => row.instrument_id));
    expect(fuels).toContain("power.generation_by_fuel.erco.sun");
    expect(fuels).toContain("power.generation_by_fuel.erco.ng");
    expect(fuels.size).toBeGreaterThan(5);
    const symbols = (await get("/symbols?library=power.generation_by_fuel")) as string[];
    expect(symbols.length).toBeGreaterThanOrEqual(68);
  });
});

describe("spot_prices", () => {
  it("serves the newest prices, and curves of the futures once their history was asked for", async (context) => {
    await launchTwice("spot_prices", context);
    expect((await series("prices.spot", "rngwhhd")).length).toBeGreaterThan(20);
    const request = { job: "spot_prices", first: "2024-04-02", last: "2024-04-08" };
    const started = await world.operator.startBackfill(request);
    const { runs } = await followBackfill(world.operator, started, () => {});
    expect(runs).toMatchObject({ succeeded: 5, failed: 0 });
    for (const commodity of ["natural_gas", "crude_oil_wti", "gasoline_rbob", "heating_oil"]) {
      const futures = await curve(commodity);
      expect(futures.map(({ tenor }) => tenor)).toEqual([1, 2, 3, 4]);
      expect(futures[0]).toMatchObject({ trade_date: "2024-04-05", curve_source: "futures" });
      expect(futures.every((one) => one.vintage_reconstructed)).toBe(true);
    }
  });

  it("finds nothing on a holiday, and that is no failure", async () => {
    const day = "2025-07-04";
    const started = await world.operator.startBackfill({
      job: "spot_prices",
      first: day,
      last: day,
    });
    const { runs } = await followBackfill(world.operator, started, () => {});
    expect(runs).toMatchObject({ succeeded: 1, failed: 0 });
  });
});

describe("the agency's reports", () => {
  it("keeps eight series of gas storage as one symbol, a week a report", async (context) => {
    await launchTwice("gas_storage", context);
    const rows = await series("fundamentals.agency", "gas_storage");
    const newest = rows.filter(({ Datetime }) => Datetime === rows.at(-1)?.Datetime);
    expect(newest.map((row) => row.instrument_id.split(".").at(-1))).toEqual(
      "r31 r32 r33 r33_nonsalt r33_salt r34 r35 r48".split(" "),
    );
    // In a week with a holiday the newest report may not be out yet.
    expect([8 * 52, 8 * 53]).toContain(rows.length);
  });

  it("keeps stocks, flows and refinery use as one symbol", async (context) => {
    await launchTwice("petroleum_status", context);
    const rows = await series("fundamentals.agency", "petroleum_status");
    expect(rows.filter(({ Datetime }) => Datetime === rows.at(-1)?.Datetime)).toHaveLength(9);
  });

  it("makes the outlook the curve where no market's is newer", async (context) => {
    await launchTwice("agency_forecast", context);
    for (const commodity of ["natural_gas", "crude_oil_wti"]) {
      const path = await curve(commodity);
      expect(path.length).toBeGreaterThan(11);
      expect(path[0]).toMatchObject({ curve_source: "agency_forecast", tenor: 1 });
    }
    const related = (await get(
      "/graph/related?instrument_id=fundamentals.agency_forecast.nghhuus",
    )) as { entities: { key: string }[] };
    expect(related.entities.map(({ key }) => key)).toContain("natural_gas");
  });
});
