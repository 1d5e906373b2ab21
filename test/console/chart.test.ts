// What the series page draws and writes, as pure functions, for the columns and instruments of any
// library, and clocks across daylight-saving changes.

import { describe, expect, it } from "vitest";
import {
  chartOf,
  columnsOf,
  instrumentsOf,
  overlaidAtFirst,
  overlayOf,
} from "../../edge/console/pages/chart.ts";
import { distance, isDated, length, readClock, zonesOf } from "../../edge/console/pages/words.ts";
import { DAY, HOUR, iso, MINUTE } from "../../shared/time.ts";
import type { SeriesRecord } from "../../shared/wire/markets.ts";

const FROM = Date.UTC(2026, 0, 5);
const record = (hour: number, instrument_id: string, values: object): SeriesRecord => ({
  Datetime: iso(FROM + hour * HOUR),
  instrument_id,
  as_of: iso(FROM),
  vintage_reconstructed: false,
  ...values,
});
const sun = (hour: number, value: number | null) => record(hour, "power.fuel.erco.sun", { value });
const wind = (hour: number, value: number) => record(hour, "power.fuel.erco.wnd", { value });

describe("a chart", () => {
  it("draws one instrument of several, at both knowledge times, on one axis", () => {
    const drawn = chartOf({
      now: { records: [sun(0, 1), wind(0, 9), sun(1, 2.5), sun(3, null)], asOf: iso(FROM + DAY) },
      before: { records: [sun(0, 1), sun(1, 2), sun(2, 7)], asOf: iso(FROM) },
      instrument: "power.fuel.erco.sun",
      column: "value",
    });
    expect(drawn.times).toEqual([0, 1, 2, 3].map((hour) => (FROM + hour * HOUR) / 1_000));
    expect(drawn.lines.map(({ values }) => values)).toEqual([
      [1, 2.5, null, null],
      [1, 2, 7, null],
    ]);
    // What is gone, new or null has no difference: only the second point was revised.
    expect(drawn).toMatchObject({ added: 0, gone: 1, revised: [1], changeMax: 0.5, cut: false });
    const grown = chartOf({
      now: { records: [sun(0, 1), sun(1, 2), sun(2, null)], asOf: null },
      before: { records: [sun(0, null), sun(2, null)], asOf: null },
      instrument: "power.fuel.erco.sun",
      column: "value",
    });
    expect(grown).toMatchObject({ added: 2, gone: 0, revised: [], changeMax: 0 });
  });

  it("draws one line where nothing is compared, and any column", () => {
    const bars = [record(0, "prices.intraday.ung", { value: 3, open: 1, volume: 900 })];
    expect(columnsOf(bars, ["value"])).toEqual(["value", "open", "volume"]);
    expect(columnsOf([], ["value", "open"])).toEqual(["value", "open"]);
    expect(instrumentsOf([sun(0, 1), wind(0, 1), sun(1, 1)])).toHaveLength(2);
    const drawn = chartOf({
      now: { records: bars, asOf: null },
      before: null,
      instrument: "prices.intraday.ung",
      column: "volume",
    });
    expect(drawn.lines).toEqual([{ name: "as of never", values: [900], hue: 0, dashed: false }]);
    expect(drawn).toMatchObject({ added: 0, gone: 0, revised: [] });
  });

  it("keeps to the newest points of a window that holds more than a screen can show", () => {
    const records = Array.from({ length: 6_000 }, (_, hour) => sun(hour, hour));
    const drawn = chartOf({
      now: { records, asOf: null },
      before: null,
      instrument: "power.fuel.erco.sun",
      column: "value",
    });
    expect([drawn.times.length, drawn.cut, drawn.lines[0]?.values.at(-1)]).toEqual([
      5_000,
      true,
      5_999,
    ]);
  });
});

describe("several instruments of one symbol", () => {
  const records = [
    sun(0, 5),
    wind(0, 9),
    sun(1, 6),
    record(0, "power.fuel.erco.price", { value: 99 }),
  ];
  const unitOf = (instrument: string) => (instrument.endsWith("price") ? "$/MWh" : "MWh");

  it("share a chart at first where they share the unit of most", () => {
    expect(overlaidAtFirst(records, "value", unitOf)).toEqual([
      ...["power.fuel.erco.sun", "power.fuel.erco.wnd"],
    ]);
    const many = Array.from({ length: 12 }, (_, index) =>
      record(0, `power.fuel.erco.f${String(index).padStart(2, "0")}`, { value: index * -10 }),
    );
    // The largest, whatever their sign, in the order of their names.
    expect(overlaidAtFirst(many, "value", () => "MWh")).toEqual(
      many.slice(4).map(({ instrument_id }) => instrument_id),
    );
  });

  it("are a line each, on the times of all", () => {
    const drawn = overlayOf({ records, asOf: iso(FROM) }, "value", [
      { instrument: "power.fuel.erco.sun", name: "Solar" },
      { instrument: "power.fuel.erco.wnd", name: "Wind" },
    ]);
    expect(drawn.times).toEqual([FROM / 1_000, FROM / 1_000 + 3_600]);
    expect(drawn.lines).toEqual([
      { name: "Solar", values: [5, 6], hue: 0, dashed: false },
      { name: "Wind", values: [9, null], hue: 1, dashed: false },
    ]);
  });
});

describe("a market's clock", () => {
  it("is told apart in the hour that comes twice, and skips the one that does not come", () => {
    const at = (text: string) => {
      const { time, zone } = readClock(Date.parse(text), "America/Chicago");
      return `${time} ${zone}`;
    };
    expect(at("2026-11-01T06:30Z")).toBe("01:30 CDT");
    expect(at("2026-11-01T07:30Z")).toBe("01:30 CST");
    expect(at("2026-03-08T07:59Z")).toBe("01:59 CST");
    expect(at("2026-03-08T08:00Z")).toBe("03:00 CDT");
  });

  it("names its own day", () => {
    expect(readClock(Date.parse("2026-01-01T03:00:05Z"), "America/New_York")).toEqual({
      day: "2025-12-31",
      time: "22:00",
      seconds: "22:00:05",
      zone: "EST",
    });
  });

  it("comes first or beside, as the reader chose", () => {
    const market = "America/New_York";
    expect(zonesOf("utc", market)).toEqual(["UTC", market]);
    expect(zonesOf("utc")).toEqual(["UTC", null]);
    expect(zonesOf("market", market)).toEqual([market, "UTC"]);
    expect(zonesOf("market")).toEqual(["UTC", null]);
    expect(zonesOf("Europe/Berlin", market)).toEqual(["Europe/Berlin", "UTC"]);
  });

  it("is of no use to values that are labelled by dates", () => {
    expect(["P1D", "P7D", "P1M", "PT1H", "PT5M", null].map(isDated)).toEqual([
      ...[true, true, true, false, false, false],
    ]);
  });
});

it("says distances in their largest unit", () => {
  expect([500, 5_000, 3 * MINUTE, 5 * HOUR, 3 * DAY].map(length)).toEqual([
    ...["500 ms", "5 s", "3 min", "5 h", "3 d"],
  ]);
  expect(distance(FROM - HOUR, FROM)).toBe("60 min ago");
  expect(distance(iso(FROM + 2 * HOUR), FROM)).toBe("in 2 h");
  expect(distance(FROM, FROM)).toBe("just now");
});
