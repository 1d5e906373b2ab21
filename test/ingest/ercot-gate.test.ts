// The gate of ERCOT's prices and load, rule by rule, and when their schedules fire.

import { describe, expect, it } from "vitest";
import type { FetchedSeries, Finding } from "../../edge/markets/ingest/gate.ts";
import { latestPartition, shiftPartition } from "../../edge/markets/ingest/partition.ts";
import {
  dayAheadPrices,
  gateLoad,
  judgeZones,
  realtimePrices,
  systemLoad,
} from "../../edge/markets/ingest/pipelines/ercot.ts";
import { latestTick } from "../../edge/markets/ingest/schedule.ts";
import { SETTLEMENT_SYMBOLS } from "../../edge/markets/ingest/settlement-points.ts";
import { dayOfLabel, QUARTER } from "../../edge/markets/ingest/sources/ercot-hours.ts";
import type { Range, Row } from "../../edge/markets/store/rows.ts";
import { DAY, HOUR, iso, MINUTE } from "../../shared/time.ts";
import { hasRecordings, recording } from "../support/recordings.ts";

const SPRING = dayOfLabel("2026-03-08");
const FALL = dayOfLabel("2026-11-01");
const PLAIN = dayOfLabel("2026-05-05");
const SYMBOLS = [...SETTLEMENT_SYMBOLS];

interface SeriesShape {
  step?: number;
  price?: number;
  symbols?: readonly string[];
  change?: (rows: Row[], symbol: string) => Row[];
}

/** Series of every point from an instant to another. */
function made(
  { from, to }: Range,
  { step = QUARTER, price = 25, ...more }: SeriesShape = {},
): FetchedSeries[] {
  const { symbols = SYMBOLS, change = (rows) => rows } = more;
  return symbols.map((symbol) => ({
    library: "power.lmp",
    symbol,
    rows: change(
      Array.from({ length: (to - from) / step }, (_, index) => ({
        datetime: from + index * step,
        instrumentId: `power.lmp.${symbol}`,
        values: [price],
      })),
      symbol,
    ),
  }));
}

const context = (day: Range, now = day.to + HOUR) => {
  const range = { from: day.from, to: day.to };
  return { partition: range, window: range, now };
};
const told = (findings: readonly Finding[]) =>
  findings.map(({ severity, rule, count }) => `${severity} ${rule} ${count}`);
const changeOne = (change: (rows: Row[]) => Row[]): SeriesShape => ({
  change: (rows, symbol) => (symbol === "hb_west" ? change(rows) : rows),
});

describe("real-time prices", () => {
  const gate = (series: readonly FetchedSeries[], at = context(PLAIN)) =>
    realtimePrices.gate(series, at);

  it.each([
    ["23 hours", SPRING, 92],
    ["24 hours", PLAIN, 96],
    ["25 hours", FALL, 100],
  ])("of a day of %s are whole with %o and %i quarters", (_, day, quarters) => {
    const whole = made(day);
    expect(whole[0]?.rows).toHaveLength(quarters);
    const report = gate(whole, context(day));
    expect(report).toEqual({ accepted: whole, findings: [], isPartial: false });
    expect(gate(report.accepted, context(day)).findings).toEqual([]);
    const short = gate(
      made(
        day,
        changeOne((rows) => rows.toSpliced(50, 1)),
      ),
      context(day),
    );
    expect(told(short.findings)).toEqual(["warning incomplete_day 1"]);
    expect(short.findings[0]?.where).toMatch(/^hb_west 2026-/);
    expect(short.accepted).toHaveLength(15);
    const partial = made(
      day,
      changeOne((rows) => rows.slice(0, -11)),
    );
    expect(told(gate(partial, context(day)).findings)).toEqual(["error incomplete_day 11"]);
    expect(gate(partial, context(day)).accepted).toHaveLength(14);
  });

  it("of the current day reach from its start to the newest, without a gap", () => {
    const now = PLAIN.from + 10 * HOUR + 25 * MINUTE;
    const part = { from: PLAIN.from, to: PLAIN.from + 10.25 * HOUR };
    expect(gate(made(part), context(PLAIN, now)).findings).toEqual([]);
    const holed = gate(
      made(
        part,
        changeOne((rows) => rows.toSpliced(7, 2)),
      ),
      context(PLAIN, now),
    );
    expect(told(holed.findings)).toEqual(["warning gap 2"]);
    const late = gate(
      made(
        part,
        changeOne((rows) => rows.slice(5)),
      ),
      context(PLAIN, now),
    );
    expect(told(late.findings)).toEqual(["error gap 5"]);
    const lagging = made({ from: PLAIN.from, to: PLAIN.from + 9 * HOUR });
    const report = gate(lagging, context(PLAIN, now));
    expect(new Set(told(report.findings))).toEqual(new Set(["warning lagging 1"]));
    expect(report.accepted).toHaveLength(15);
  });

  it("of a window over two days are judged day by day", () => {
    const window = { from: FALL.from - DAY, to: FALL.to };
    const at = { partition: FALL, window, now: FALL.from + 3 * HOUR };
    const read = { from: window.from, to: FALL.from + 2.5 * HOUR };
    expect(gate(made(read), at).findings).toEqual([]);
    const holed = gate(
      made(
        read,
        changeOne((rows) => rows.toSpliced(80, 16)),
      ),
      at,
    );
    expect(told(holed.findings)).toEqual(["error incomplete_day 16"]);
  });

  it("without some of the points are an error, and without most of them refused whole", () => {
    const { accepted, findings } = gate(made(PLAIN, { symbols: SYMBOLS.slice(2) }));
    expect(accepted).toHaveLength(13);
    expect(gate(made(PLAIN, { symbols: SYMBOLS.slice(8) })).accepted).toEqual([]);
    expect(findings).toEqual([
      expect.objectContaining({ severity: "error", rule: "missing_points", count: 2 }),
    ]);
    expect(findings[0]?.where.split(" ")).toEqual(SYMBOLS.slice(0, 2));
  });

  it.each([
    ["2018-06-15", []],
    ["2019-04-04", []],
    ["2019-04-05", ["error missing_points 1"]],
  ])("of %s need no point that began later: %j", (key, findings) => {
    const day = dayOfLabel(key);
    const before = made(day, { symbols: SYMBOLS.filter((symbol) => symbol !== "hb_pan") });
    const report = gate(before, context(day));
    expect(told(report.findings)).toEqual(findings);
    expect(report.accepted).toHaveLength(14);
  });

  it("leave out the day that lacks too many intervals, and keep the others", () => {
    const window = { from: PLAIN.from - DAY, to: PLAIN.to };
    const short = changeOne((rows) => rows.toSpliced(20, 12));
    const report = realtimePrices.gate(made(window, short), {
      partition: PLAIN,
      window,
      now: PLAIN.to + DAY,
    });
    expect(told(report.findings)).toEqual(["error incomplete_day 12"]);
    const west = report.accepted.find(({ symbol }) => symbol === "hb_west");
    expect(west?.rows.map(({ datetime }) => datetime >= PLAIN.from)).toEqual(Array(96).fill(true));
    expect(report.isPartial).toBe(true);
  });

  it("of which nothing came are an error once something was due", () => {
    expect(told(gate([], context(PLAIN)).findings)).toEqual(["error no_rows 1"]);
    expect(gate([], context(PLAIN, PLAIN.from + 10 * MINUTE)).findings).toEqual([]);
  });

  it.each([
    [-1_000.01, ["error impossible_price 1"]],
    [10_000.01, ["error impossible_price 1"]],
    [NaN, ["error impossible_price 1"]],
    [-251.01, ["warning price_beyond_cap 1"]],
    [2_000.01, ["warning price_beyond_cap 1"]],
    [2_000, []],
    [-251, []],
    [0, []],
  ])("of %d are told of as %j", (price, expected) => {
    const { findings } = gate(
      made(
        PLAIN,
        changeOne((rows) => rows.with(9, { ...(rows[9] as Row), values: [price] })),
      ),
    );
    expect(told(findings)).toEqual(expected);
    if (expected.length > 0) expect(findings[0]?.samples).toHaveLength(1);
  });

  it.each([
    ["2025-12-06", 2_500, 96],
    ["2025-12-04", 2_500, 0],
    ["2025-12-04", 5_001, 96],
    ["2021-02-16", 8_999, 0],
    ["2021-02-16", 9_001, 96],
    ["2014-07-01", 7_001, 96],
  ])("on %s at %d lie above the cap of their day %i times", (key, price, beyond) => {
    const day = dayOfLabel(key);
    const { accepted, findings } = gate(made(day, { price, symbols: SYMBOLS }), context(day));
    expect(accepted).toHaveLength(15);
    expect(findings.reduce((total, { count }) => total + count, 0)).toBe(15 * beyond);
  });

  it("off the grid, twice, from the future or of an unknown point are found", () => {
    const shifted = (rows: Row[]) =>
      rows.with(3, { ...(rows[3] as Row), datetime: (rows[3] as Row).datetime + MINUTE });
    expect(told(gate(made(PLAIN, changeOne(shifted))).findings)).toContain("error off_grid 1");
    const twice = (rows: Row[]) => [...rows, rows[0] as Row];
    expect(told(gate(made(PLAIN, changeOne(twice))).findings)).toContain("error duplicate_key 1");
    const early = gate(made(PLAIN), context(PLAIN, PLAIN.from + 12 * HOUR));
    expect(early.accepted).toEqual([]);
    const strange = gate(made(PLAIN, { symbols: [...SYMBOLS, "hb_moon"] }));
    expect(told(strange.findings)).toEqual(["warning unknown_symbol 1"]);
  });
});

describe("day-ahead prices", () => {
  const gate = (series: readonly FetchedSeries[], day: Range, now: number) =>
    dayAheadPrices.gate(series, context(day, now));

  it("are whole with 23, 24 or 25 hours, the day before already", () => {
    for (const day of [SPRING, PLAIN, FALL]) {
      const whole = made(day, { step: HOUR });
      expect(gate(whole, day, day.from - 10 * HOUR).findings).toEqual([]);
      const short = made(day, { step: HOUR, ...changeOne((rows) => rows.slice(1)) });
      const { findings } = gate(short, day, day.from - 10 * HOUR);
      expect(told(findings)).toEqual(["error incomplete_day 1"]);
    }
  });

  it("may be missing until their day begins", () => {
    expect(gate([], PLAIN, PLAIN.from - HOUR).findings).toEqual([]);
    expect(told(gate([], PLAIN, PLAIN.from).findings)).toEqual(["error no_rows 1"]);
    const window = { from: PLAIN.from - DAY, to: PLAIN.to };
    const read = made({ from: window.from, to: PLAIN.from }, { step: HOUR });
    const at = { partition: PLAIN, window, now: PLAIN.from - 10 * HOUR };
    expect(dayAheadPrices.gate(read, at).findings).toEqual([]);
  });

  it("have the higher cap", () => {
    const dear = made(PLAIN, { step: HOUR, price: 2_500 });
    expect(gate(dear, PLAIN, PLAIN.from).findings).toEqual([]);
  });
});

describe("system load", () => {
  const load = (day: Range, value = 50_000): FetchedSeries[] =>
    made(day, { step: HOUR, price: value, symbols: ["ercot"] });

  it("lies between 20 and 100 GW", () => {
    expect(gateLoad(load(PLAIN), context(PLAIN)).findings).toEqual([]);
    for (const value of [19_999, 100_001, NaN, 0]) {
      const { accepted, findings } = gateLoad(load(PLAIN, value), context(PLAIN));
      expect(accepted).toEqual([]);
      expect(told(findings)).toEqual(["error impossible_load 24"]);
      expect(findings[0]?.samples).toHaveLength(10);
    }
  });

  it("may lack its last hour for 45 minutes, and everything in the day's first two hours", () => {
    const short = load({ from: PLAIN.from, to: PLAIN.to - HOUR });
    expect(gateLoad(short, context(PLAIN, PLAIN.to + 35 * MINUTE)).findings).toEqual([]);
    const { findings } = gateLoad(short, context(PLAIN, PLAIN.to + 50 * MINUTE));
    expect(told(findings)).toEqual(["warning incomplete_day 1"]);
    const half = load({ from: PLAIN.from, to: PLAIN.to - 3 * HOUR });
    expect(told(gateLoad(half, context(PLAIN)).findings)).toEqual(["error incomplete_day 3"]);
    expect(gateLoad([], context(PLAIN, PLAIN.from + 35 * MINUTE)).findings).toEqual([]);
    expect(told(gateLoad([], context(PLAIN, PLAIN.from + 3 * HOUR)).findings)).toEqual([
      "error no_rows 1",
    ]);
  });

  it("is the sum of its zones, to what rounding can explain", () => {
    const off = (by: number) =>
      told(judgeZones([{ datetime: 0, total: 80 + by, zones: Array(8).fill(10) as number[] }]));
    expect(off(0.02)).toEqual([]);
    expect(off(-0.04)).toEqual(["warning zones_round_badly 1"]);
    expect(off(0.06)).toEqual(["error zones_do_not_sum 1"]);
  });
});

describe.skipIf(!hasRecordings("dst_vectors.json"))("the schedules", () => {
  // The body of a skipped suite runs too, to list its tests.
  if (!hasRecordings("dst_vectors.json")) return;
  const vectors = JSON.parse(recording("dst_vectors.json")) as Record<
    "hourly" | "daily",
    Record<string, unknown>
  >;
  interface Tick {
    utc: string;
    partition: string;
  }

  it.each([
    [realtimePrices, "rt_prices"],
    [systemLoad, "load"],
  ])("fire each real hour and aim at the current day", ({ partitions, schedules: [own] }, name) => {
    const { spring, fall } = vectors.hourly[name] as Record<"spring" | "fall", Tick[]>;
    for (const { utc, partition } of [...spring, ...fall]) {
      const tick = Date.parse(utc);
      // The pipeline has a first schedule, or the call throws.
      expect(latestTick(own as never, tick + 5 * MINUTE)).toBe(tick);
      expect(latestPartition(partitions, tick)).toBe(partition);
    }
  });

  it("fire at 14:00 for the next day, and by hand aim at today before the market clears", () => {
    const { partitions, schedules } = dayAheadPrices;
    const [own] = schedules;
    for (const { utc, partition } of vectors.daily.dam as Tick[]) {
      const tick = Date.parse(utc);
      // The pipeline has a first schedule, or the call throws.
      expect(latestTick(own as never, tick + 5 * MINUTE)).toBe(tick);
      expect(latestPartition(partitions, tick)).toBe(partition);
      const morning = latestPartition(partitions, tick - 3 * HOUR);
      expect(morning).toBe(shiftPartition(partitions, partition, -1));
    }
  });

  it.each([realtimePrices, systemLoad])("read the day before in its early morning", (pipeline) => {
    const settle = pipeline.schedules.find(({ aim }) => aim === "previous");
    const ticks: string[] = [];
    for (let now = FALL.to; now < FALL.to + DAY; now += 30 * MINUTE) {
      // The pipeline has such a schedule, or the call throws.
      const tick = latestTick(settle as never, now);
      if (tick !== null && tick >= FALL.to) ticks.push(iso(tick));
    }
    expect(new Set(ticks).size).toBe(7);
    const last = latestPartition(pipeline.partitions, Date.parse(ticks.at(-1) ?? ""));
    expect(shiftPartition(pipeline.partitions, last, -1)).toBe("2026-11-01");
    // The settled load is posted at 05:50 local time.
    expect(ticks.at(-1)?.slice(11, 13)).toBe("12");
  });
});
