// What symbols are called and counted in, beside what their providers say of them.

import { expect, it } from "vitest";
import { authorityOf } from "../../edge/markets/client/balancing-authorities.ts";
import { describeSymbol, liesAhead, unitOf } from "../../edge/markets/client/symbols.ts";
import { BALANCING_AUTHORITIES } from "../../edge/markets/ingest/authorities.ts";
import {
  OUTLOOK,
  PETROLEUM,
  STORAGE,
} from "../../edge/markets/ingest/pipelines/fundamentals-series.ts";
import { SPOT_UNITS } from "../../edge/markets/ingest/pipelines/spot.ts";
import { parseDuration } from "../../shared/time.ts";

/** Our words for the agency's units. */
const UNITS: Readonly<Record<string, string>> = {
  "$/mmbtu": "$/MMBtu",
  "dollars per million btu": "$/MMBtu",
  "$/bbl": "$/bbl",
  "dollars per barrel": "$/bbl",
  "$/gal": "$/gal",
  bcf: "Bcf",
  mbbl: "thousand bbl",
  "mbbl/d": "thousand bbl/d",
  "%": "%",
};

it("every series of the agency has a name, and the agency's unit", () => {
  const described = (library: string, symbol: string, instrument = `${library}.${symbol}`) => {
    const known = describeSymbol(library, symbol);
    expect(known.name, symbol).not.toBe(symbol.toUpperCase());
    return unitOf(known, instrument, "value");
  };
  for (const [symbol, unit] of SPOT_UNITS) {
    expect(described("prices.spot", symbol), symbol).toBe(UNITS[unit]);
  }
  for (const { name, unit } of OUTLOOK.series) {
    expect(described("fundamentals.agency", name), name).toBe(UNITS[unit]);
  }
  const reports = { gas_storage: [STORAGE], petroleum_status: PETROLEUM };
  for (const [report, routes] of Object.entries(reports)) {
    for (const { name, unit } of routes.flatMap(({ series }) => series)) {
      const instrument = `fundamentals.${report}.${name}`;
      expect(described("fundamentals.agency", report, instrument), name).toBe(UNITS[unit]);
    }
  }
});

/** JEA is its whole name; the others are too new for the list of names. */
const NAMELESS = new Set(["JEA", "SIKE", "BHBA", "SWPW"]);

it("every authority has a name and its own clock", () => {
  for (const code of BALANCING_AUTHORITIES) {
    const { name, timeZone } = authorityOf(code.toLowerCase());
    expect(name === code && !NAMELESS.has(code), code).toBe(false);
    expect(() => new Intl.DateTimeFormat("en-US", { timeZone })).not.toThrow();
  }
  expect(describeSymbol("power.demand", "erco")).toMatchObject({
    name: "Demand, ERCOT",
    unit: "MWh",
    kind: "actual",
    time_zone: "America/Chicago",
  });
  // A code that is new, and a library that nobody fills.
  expect(describeSymbol("power.demand", "newba")).toMatchObject({ name: "Demand, NEWBA" });
  expect(describeSymbol("other", "x")).toMatchObject({ name: "x", unit: null, step: null });
});

it("tells forecasts and next-day prices from what has happened", () => {
  expect(liesAhead("power.demand_forecast", "erco")).toBe(true);
  expect(liesAhead("power.dalmp", "hb_north")).toBe(true);
  expect(liesAhead("fundamentals.agency", "nghhuus")).toBe(true);
  expect(liesAhead("fundamentals.agency", "gas_storage")).toBe(false);
  expect(liesAhead("power.lmp", "hb_north")).toBe(false);
  expect(parseDuration(describeSymbol("power.lmp", "hb_north").step ?? "")).toBe(900_000);
});
