import { describe, expect, it } from "vitest";
import { type FetchedSeries, mayRetract } from "../../edge/markets/ingest/gate.ts";
import { gateHourly, gateRegion } from "../../edge/markets/ingest/pipelines/grid-gates.ts";
import { HOUR } from "../../shared/time.ts";

const FROM = Date.UTC(2026, 0, 10);
const WINDOW = { from: FROM, to: FROM + 48 * HOUR };
const context = { partition: WINDOW, window: WINDOW, now: FROM + 48 * HOUR };

/** Hourly demand from the window's start; undefined leaves an hour out. */
function demand(values: (number | undefined)[], symbol = "erco"): FetchedSeries {
  const instrumentId = `power.demand.${symbol}`;
  const rows = values.flatMap((value, hour) =>
    value === undefined ? [] : [{ datetime: FROM + hour * HOUR, instrumentId, values: [value] }],
  );
  return { library: "power.demand", symbol, rows };
}

const day = Array.from({ length: 24 }, (_, hour) => 1_000 + hour);
const rules = (...series: FetchedSeries[]) =>
  gateRegion(series, context).findings.map(({ severity, rule }) => `${severity} ${rule}`);

describe("mayRetract", () => {
  it("lets single rows go, never the most of a window", () => {
    expect([mayRetract(0, 0), mayRetract(3, 3), mayRetract(24, 240)]).toEqual([true, true, true]);
    expect([mayRetract(4, 24), mayRetract(25, 240), mayRetract(239, 240)]).toEqual([
      false,
      false,
      false,
    ]);
  });
});

describe("the demand gate", () => {
  it("finds nothing wrong with an ordinary day whose leading edge is short", () => {
    expect(rules(demand(day), demand(day.slice(0, 20), "pjm"))).toEqual([]);
  });

  it("stores impossible demand as null and warns; beyond a fifth of all rows it rejects", () => {
    const report = gateRegion([demand([0, -5, 200_001, NaN, ...day])], context);
    expect(report.accepted[0]?.rows.slice(0, 5).map((row) => row.values[0])).toEqual([
      NaN,
      NaN,
      NaN,
      NaN,
      1_000,
    ]);
    expect(report.findings).toMatchObject([
      { severity: "warning", rule: "implausible_demand", count: 3 },
    ]);
    const spoiled = [demand([0, 0, 0, 1, 2, 3]), demand(day, "pjm"), demand(day, "miso")];
    expect(rules(...spoiled)).toContain("error implausible_demand");
    expect(gateRegion(spoiled, context).accepted.map(({ symbol }) => symbol)).toEqual([
      "pjm",
      "miso",
    ]);
  });

  it("warns of holes inside a series, and rejects when they exceed a tenth", () => {
    expect(rules(demand([...day.slice(0, 12), undefined, ...day.slice(12)]))).toEqual([
      "warning holes",
    ]);
    const ends = demand([1, ...Array.from({ length: 10 }, () => undefined), 2]);
    expect(rules(ends, demand(day, "pjm"), demand(day, "miso"))).toEqual(["error holes"]);
    expect(gateRegion([ends, demand(day, "pjm")], context).accepted).toHaveLength(1);
  });

  it("rejects rows off the hour, outside the window, from the future, repeated or infinite", () => {
    const off = demand(day);
    const first = off.rows[0];
    if (first) off.rows[0] = { ...first, datetime: FROM + 1 };
    expect(rules(off)).toContain("error off_grid");
    expect(
      gateRegion([demand(day)], { ...context, window: { from: FROM, to: FROM + HOUR } }).findings,
    ).toMatchObject([{ severity: "error", rule: "outside_window", count: 23 }]);
    expect(gateRegion([demand(day)], { ...context, now: FROM }).findings).toMatchObject([
      { severity: "error", rule: "from_the_future", count: 23 },
    ]);
    const twice = demand(day);
    twice.rows.push(...demand(day).rows.slice(0, 1));
    expect(rules(twice)).toContain("error duplicate_key");
    expect(gateRegion([off, demand(day, "pjm")], context).accepted).toMatchObject([
      { symbol: "pjm" },
    ]);
    expect(rules(demand([...day, Infinity]))).toContain("error infinite");
  });

  it("rejects an answer without any row: a silent failure of the provider", () => {
    expect(rules()).toEqual(["error no_rows"]);
  });

  it("warns of an unknown authority, a spike and a flat run, and keeps their rows", () => {
    expect(rules(demand(day, "newba"))).toEqual(["warning unknown_symbol"]);
    expect(rules(demand([...day, 20_000]))).toEqual(["warning spike"]);
    expect(rules(demand([...day, 7, 7, 7, 7]))).toEqual(["warning flat"]);
    expect(gateRegion([demand(day, "newba")], context).accepted[0]?.rows).toHaveLength(24);
  });
});

/** Hourly values of any library from the window's start, of days that lie a week back. */
const WEEK = { from: FROM, to: FROM + 10 * 24 * HOUR };
const weekContext = { partition: WEEK, window: WEEK, now: WEEK.to };
function hourly(library: string, values: readonly number[], symbol = "erco", fuel = "") {
  const instrumentId = `${library}.${symbol}${fuel && `.${fuel}`}`;
  const rows = values.map((value, hour) => ({
    datetime: FROM + hour * HOUR,
    instrumentId,
    values: [value],
  }));
  return { library, symbol, rows };
}
const tenDays = (of: (hour: number) => number) =>
  Array.from({ length: 240 }, (_, hour) => of(hour));
const rulesOf = (gate: typeof gateRegion, ...series: FetchedSeries[]) =>
  gate(series, weekContext).findings.map(
    ({ severity, rule, where }) => `${severity} ${rule} ${where}`,
  );
/** A day's shape, never flat. */
const load = (hour: number) => 10_000 + 1_500 * Math.sin((hour * Math.PI) / 12) + (hour % 7);

describe("the gate of the grid's other series", () => {
  it("warns of demand far from the two days around it, on either side", () => {
    const odd = tenDays((hour) => load(hour) + (hour === 100 ? 12_000 : hour === 150 ? -8_000 : 0));
    const report = gateRegion([hourly("power.demand", odd)], weekContext);
    expect(report.findings).toMatchObject([
      { rule: "local_outlier", severity: "warning", count: 2 },
    ]);
    expect(report.accepted[0]?.rows).toHaveLength(240);
    expect(rulesOf(gateRegion, hourly("power.demand", tenDays(load)))).toEqual([]);
  });

  it("lets a forecast lie ahead, and nothing else", () => {
    const now = FROM + 200 * HOUR;
    const ahead = (library: string) =>
      gateRegion([hourly(library, tenDays(load))], { ...weekContext, now }).findings;
    expect(ahead("power.demand_forecast")).toEqual([]);
    for (const name of ["demand", "generation", "interchange"]) {
      expect(ahead(`power.${name}`)).toMatchObject([
        { rule: "from_the_future", severity: "error" },
      ]);
    }
  });

  it("holds a forecast to the bounds of demand", () => {
    const report = gateRegion(
      [hourly("power.demand_forecast", [0, ...tenDays(load)].slice(0, 240))],
      weekContext,
    );
    expect(report.accepted[0]?.rows[0]?.values).toEqual([NaN]);
    expect(report.findings).toMatchObject([{ rule: "implausible_demand", count: 1 }]);
  });

  it.each([
    ["power.interchange", 100_001, "warning implausible_interchange erco"],
    ["power.interchange", -100_001, "warning implausible_interchange erco"],
    ["power.interchange", -99_999, undefined],
    ["power.generation", 200_001, "warning implausible_generation erco"],
    ["power.generation", -501, "warning negative_generation erco"],
    ["power.generation", -70, undefined],
  ])("judges an hour of %s at %i", (library, value, rule) => {
    const report = gateRegion(
      [
        hourly(
          library,
          tenDays((hour) => (hour === 9 ? value : load(hour))),
        ),
      ],
      weekContext,
    );
    expect(report.findings.map((one) => `${one.severity} ${one.rule} ${one.where}`)).toEqual(
      rule ? [rule] : [],
    );
    const kept = report.accepted[0]?.rows[9]?.values;
    expect(kept).toEqual([rule?.includes("implausible") ? NaN : value]);
  });

  it("warns when generation less exports stops being demand, and forgives who never balanced", () => {
    const authority = (symbol: string, off: (hour: number) => number) => [
      hourly("power.demand", tenDays(load), symbol),
      hourly(
        "power.generation",
        tenDays((hour) => load(hour) * (1 + off(hour)) + 800),
        symbol,
      ),
      hourly(
        "power.interchange",
        tenDays(() => 800),
        symbol,
      ),
    ];
    const series = [
      ...authority("erco", () => 0.02),
      ...authority("bpat", () => 0.2),
      ...authority("ciso", (hour) => (hour >= 220 ? 0.2 : 0)),
    ];
    const report = gateRegion(series, weekContext);
    expect(report.findings).toEqual([
      { severity: "warning", rule: "demand_balance", count: 20, where: "ciso" },
    ]);
    expect(report.accepted).toHaveLength(9);
  });

  it("warns of a library that has half the rows it had the day before", () => {
    const now = FROM + 9 * 24 * HOUR + 4 * HOUR;
    const all = ["erco", "pjm", "miso"].map((symbol) =>
      hourly("power.generation", tenDays(load).slice(0, 9 * 24), symbol),
    );
    // The day that ended 28 hours ago is settled; the one after it is not.
    const settled = FROM + 7 * 24 * HOUR;
    const lacking = all.map((series, index) => ({
      ...series,
      rows: index === 0 ? series.rows : series.rows.filter((row) => row.datetime < settled),
    }));
    const late = all.map((series) => ({
      ...series,
      rows: series.rows.filter((row) => row.datetime < settled + 24 * HOUR),
    }));
    const judge = (series: FetchedSeries[]) => gateRegion(series, { ...weekContext, now }).findings;
    expect(judge(lacking)).toEqual([
      { severity: "warning", rule: "fewer_rows", count: 48, where: "power.generation" },
    ]);
    expect([...judge(all), ...judge(late)]).toEqual([]);
  });

  it("warns of days on which the forecast was off by a fifth", () => {
    const missed = tenDays((hour) => load(hour) * (hour >= 48 && hour < 96 ? 1.3 : 1.02));
    const series = [hourly("power.demand", tenDays(load)), hourly("power.demand_forecast", missed)];
    expect(gateRegion(series, weekContext).findings).toMatchObject([
      { severity: "warning", rule: "demand_forecast_error", count: 2, where: "erco" },
    ]);
  });
});

describe("the gate of generation by fuel", () => {
  const fuel = (name: string, value: number, symbol = "duk") =>
    hourly(
      "power.generation_by_fuel",
      tenDays((hour) => (hour === 5 ? value : 100 + hour)),
      symbol,
      name,
    );
  const together = (...all: FetchedSeries[]): FetchedSeries => ({
    ...(all[0] as FetchedSeries),
    rows: all.flatMap(({ rows }) => rows),
  });

  it.each([
    ["wat", -1_937, undefined],
    ["wat", -3_001, "warning negative_generation duk"],
    ["bat", -2_000, undefined],
    ["sun", -133, undefined],
    ["sun", -501, "warning negative_generation duk"],
    ["ng", 200_001, "warning implausible_generation duk"],
    ["xyz", 100, "warning unknown_fuel duk xyz"],
  ])("judges an hour of %s at %i", (name, value, rule) => {
    expect(rulesOf(gateHourly, together(fuel("col", 100), fuel(name, value)))).toEqual(
      rule ? [rule] : [],
    );
  });

  it("keeps the rows of a fuel it does not know", () => {
    const report = gateHourly([together(fuel("col", 100), fuel("xyz", 100))], weekContext);
    expect(report.accepted[0]?.rows).toHaveLength(480);
  });

  it("counts the holes of each fuel, and the keys of each hour", () => {
    const gappy = fuel("sun", 100);
    gappy.rows.splice(50, 3);
    expect(rulesOf(gateHourly, together(fuel("col", 100), gappy))).toEqual(["warning holes duk"]);
    gappy.rows.splice(20, 150);
    expect(rulesOf(gateHourly, together(fuel("col", 100), gappy))).toEqual(["error holes duk"]);
    expect(rulesOf(gateHourly, together(fuel("col", 100), fuel("col", 100)))).toContain(
      "error duplicate_key duk",
    );
  });
});
