import { describe, expect, it } from "vitest";
import { type FetchedSeries, mayRetract } from "../../edge/markets/ingest/gate.ts";
import { gateRegion } from "../../edge/markets/ingest/pipelines/grid-gates.ts";
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
