// ERCOT's pipelines: real-time and day-ahead prices of the settlement points, and system load, each
// partitioned by operating day.
//
// The spec's hourly ticks take the current day only, so the last intervals of each day and its
// final load would never be read: the schedules named `_settle` read the day before in the early
// morning.

import { DAY, HOUR, MINUTE } from "../../../../shared/time.ts";
import { operatingDay } from "../../store/operating-day.ts";
import type { Range, Row } from "../../store/rows.ts";
import {
  acceptSound,
  counted,
  type FetchedSeries,
  type Finding,
  finding,
  type GateContext,
  type GateReport,
  judgeStructure,
  nothingSent,
  offending,
  type Structure,
} from "../gate.ts";
import type { FetchRequest, FetchResult, Pipeline } from "../pipeline.ts";
import type { Upstreams } from "../providers.ts";
import { type PriceLibrary, pointsAt, SETTLEMENT_SYMBOLS } from "../settlement-points.ts";
import { fetchDayAheadPrices, fetchRealtimePrices, fetchSystemLoad } from "../sources/ercot.ts";
import { dayOfLabel, daysOf, QUARTER } from "../sources/ercot-hours.ts";
import type { ErcotRows, LoadRow, PriceRow } from "../sources/ercot-rows.ts";
import { locatedAt } from "../topics.ts";

const CENTRAL = "America/Chicago";

/** 15-minute prices of the settlement points, $/MWh. */
export const realtimePrices: Pipeline = {
  job: "realtime_prices",
  title: "Real-time settlement prices",
  provider: "ercot",
  libraries: ["power.lmp"],
  topicsOf: locatedAt("SettlementPoint"),
  partitions: { unit: "operating_day", timeZone: CENTRAL, first: "2014-05-02" },
  schedules: [
    { name: "realtime_prices", cron: "25 * * * *", timeZone: CENTRAL, aim: "latest" },
    { name: "realtime_prices_settle", cron: "40 0-6 * * *", timeZone: CENTRAL, aim: "previous" },
    { name: "realtime_prices_repair", cron: "10 */3 * * *", timeZone: CENTRAL, aim: "unfinished" },
  ],
  timeZone: CENTRAL,
  valueColumns: ["value"],
  // Prices are final two business days on; a weekend lies between at most.
  lookbackMs: 4 * DAY,
  freshness: { warningMs: HOUR, errorMs: 3 * HOUR },
  // A price is listed minutes after its interval; the last ones of a day are read by the ticks of
  // `_settle`, which end at 06:40.
  publishedWithinMs: 7 * HOUR,
  release: null,
  fetch: async (upstreams, request) =>
    priceSeries("power.lmp", upstreams, await fetchPrices(fetchRealtimePrices, upstreams, request)),
  gate: (fetched, context) => gatePrices(fetched, context, REALTIME),
};

/** Hourly day-ahead prices of the settlement points, $/MWh. */
export const dayAheadPrices: Pipeline = {
  job: "day_ahead_prices",
  title: "Day-ahead settlement prices",
  provider: "ercot",
  libraries: ["power.dalmp"],
  topicsOf: locatedAt("SettlementPoint"),
  // Before the market clears at half past noon, the newest curve is today's.
  partitions: {
    unit: "operating_day",
    timeZone: CENTRAL,
    first: "2014-05-02",
    offset: 1,
    lagMs: 12.5 * HOUR,
    // Asked for from half past noon on, before the tick at two.
    earlyMs: 1.5 * HOUR,
  },
  schedules: [
    { name: "day_ahead_prices", cron: "0 14 * * *", timeZone: CENTRAL, aim: "latest" },
    {
      name: "day_ahead_prices_repair",
      cron: "15,35,55 * * * *",
      timeZone: CENTRAL,
      aim: "unfinished",
    },
  ],
  timeZone: CENTRAL,
  valueColumns: ["value"],
  lookbackMs: 5 * DAY,
  freshness: { warningMs: HOUR, errorMs: 3 * HOUR },
  // The market clears on the day before, so each hour is known before it begins.
  publishedWithinMs: 0,
  // Usually out by two, on a bad day in the evening; a market that has not cleared by then is none.
  release: { everyMs: 10 * MINUTE, windowMs: 6 * HOUR },
  fetch: async (upstreams, request) =>
    priceSeries(
      "power.dalmp",
      upstreams,
      await fetchPrices(fetchDayAheadPrices, upstreams, request),
    ),
  gate: (fetched, context) => gatePrices(fetched, context, DAY_AHEAD),
};

/** Hourly system load, MW. */
export const systemLoad: Pipeline = {
  job: "system_load",
  title: "System load",
  provider: "ercot",
  libraries: ["power.load"],
  topicsOf: locatedAt("Market"),
  partitions: { unit: "operating_day", timeZone: CENTRAL, first: "2014-04-30" },
  schedules: [
    { name: "system_load", cron: "35 * * * *", timeZone: CENTRAL, aim: "latest" },
    { name: "system_load_settle", cron: "50 0-6 * * *", timeZone: CENTRAL, aim: "previous" },
    { name: "system_load_repair", cron: "20 */3 * * *", timeZone: CENTRAL, aim: "unfinished" },
  ],
  timeZone: CENTRAL,
  valueColumns: ["value"],
  lookbackMs: DAY,
  freshness: { warningMs: 3 * HOUR, errorMs: 8 * HOUR },
  // The final report of a day comes at 05:50 of the next one, 30 hours after the day's first hour
  // began.
  publishedWithinMs: 32 * HOUR,
  // The tick at 00:35 aims at a day whose first hour is shown at about 01:20.
  release: { everyMs: 15 * MINUTE, windowMs: 2 * HOUR },
  fetch: fetchLoad,
  gate: gateLoad,
};

const fetchPrices = (
  source: typeof fetchRealtimePrices,
  { ercot, fetcher }: Upstreams,
  { window, now }: FetchRequest,
): Promise<ErcotRows<PriceRow>> => source(ercot(), { fetcher, now }, window);

/** Prices as series, one for each settlement point. */
function priceSeries(
  library: string,
  { ercot }: Upstreams,
  { rows, leftOut, ...origin }: ErcotRows<PriceRow>,
): FetchResult {
  const series = new Map<string, FetchedSeries>();
  for (const { datetime, point, value } of rows) {
    const symbol = point.toLowerCase();
    const known = series.get(symbol) ?? { library, symbol, rows: [] };
    known.rows.push({ datetime, instrumentId: `${library}.${symbol}`, values: [value] });
    series.set(symbol, known);
  }
  const { sandbox } = ercot();
  return { series: [...series.values()], sandbox, leftOut: leftOut.findings(), ...origin };
}

async function fetchLoad(
  { ercot, fetcher }: Upstreams,
  { window, now }: FetchRequest,
): Promise<FetchResult> {
  const access = ercot();
  const { rows, leftOut, ...origin } = await fetchSystemLoad(access, { fetcher, now }, window);
  const total = rows.map(
    ({ datetime, total }): Row => ({
      datetime,
      instrumentId: "power.load.ercot",
      values: [total],
    }),
  );
  const series = total.length > 0 ? [{ library: "power.load", symbol: "ercot", rows: total }] : [];
  const { sandbox } = access;
  return { series, sandbox, findings: judgeZones(rows), leftOut: leftOut.findings(), ...origin };
}

/** The usual difference in recorded reports, and the most that rounding nine numbers explains. */
const ZONES_MW_OFF_USUAL = 0.02;
const ZONES_MW_OFF_MAX = 0.05;
const FLOAT_NOISE = 1e-6;

/** The findings about load whose weather zones do not sum to the total. */
export function judgeZones(rows: readonly LoadRow[]): Finding[] {
  const off = ({ total, zones }: LoadRow) =>
    Math.abs(zones.reduce((sum, zone) => sum + zone, 0) - total) - FLOAT_NOISE;
  const rowsOf = (bad: readonly LoadRow[]) =>
    bad.map(({ datetime, total, zones }): Row => {
      return { datetime, instrumentId: "power.load.ercot", values: [total, ...zones] };
    });
  const wrong = rows.filter((row) => off(row) > ZONES_MW_OFF_MAX);
  const unusual = rows.filter((row) => off(row) > ZONES_MW_OFF_USUAL && !wrong.includes(row));
  return counted([
    offending("error", "zones_do_not_sum", rowsOf(wrong), "ercot"),
    offending("warning", "zones_round_badly", rowsOf(unusual), "ercot"),
  ]);
}

/** How completely a report covers the operating days of a window. */
interface Coverage {
  stepMs: number;
  /**
   * The instant from which a part of the window must be complete; before it, it may end early.
   */
  dueAt: (part: Range) => number;
  /** Whether a part that is not due yet may hold some of its intervals only. */
  grows: boolean;
}

interface Market extends Coverage {
  library: PriceLibrary;
  horizonMs: number;
  /** Offer cap in force, by the day on which it began; newest first. */
  caps: readonly (readonly [from: string, cap: number])[];
}

/** Offer caps of both markets; a price may lie above one, so that is a warning only. */
const CAPS = [
  ["2022-01-01", 5_000],
  ["2015-06-01", 9_000],
  ["2014-06-01", 7_000],
  ["2013-06-01", 5_000],
  ["2012-08-01", 4_500],
  ["2011-01-01", 3_000],
  ["2010-12-01", 2_250],
] as const;

const REALTIME: Market = {
  library: "power.lmp",
  stepMs: QUARTER,
  horizonMs: 0,
  // The last interval is posted within five minutes and listed three minutes later.
  dueAt: ({ to }) => to + 20 * MINUTE,
  grows: true,
  caps: [["2025-12-05", 2_000], ...CAPS],
};

const DAY_AHEAD: Market = {
  library: "power.dalmp",
  stepMs: HOUR,
  horizonMs: 2 * DAY,
  dueAt: ({ from }) => from,
  grows: false,
  caps: CAPS,
};

const LOAD: Coverage = {
  stepMs: HOUR,
  // The last hour is shown 20 minutes past midnight.
  dueAt: ({ to }) => to + 45 * MINUTE,
  grows: true,
};

const PRICE_MIN_USUAL = -251;
const PRICE_MIN = -1_000;
const PRICE_MAX = 10_000;
const LAG_MS_USUAL = HOUR;

/**
 * Prices in $/MWh. Every point is judged by itself: a day that lacks intervals is left out, and a
 * point that has another error. An answer without most of the points is refused whole.
 */
function gatePrices(
  fetched: readonly FetchedSeries[],
  context: GateContext,
  market: Market,
): GateReport {
  const { stepMs, horizonMs } = market;
  const structure: Structure = {
    stepMs,
    horizonMs,
    isKnown: (symbol) => SETTLEMENT_SYMBOLS.has(symbol),
  };
  const covered = withWholeDays(fetched, context, market);
  const { accepted, findings } = acceptSound(covered.series, (series) => [
    ...judgeStructure(series, context, structure),
    ...judgePrices(series, market.caps),
  ]);
  const present = new Set(fetched.map(({ symbol }) => symbol));
  const expected = pointsAt(market.library, context.window.to - 1).map((one) => one.toLowerCase());
  const absent = expected.filter((symbol) => !present.has(symbol));
  const wanting = present.size > 0 ? absent : [];
  return {
    accepted: wanting.length > expected.length / 2 ? [] : accepted,
    findings: [
      ...(isDue(context, market) ? nothingSent(fetched) : []),
      ...counted([finding("error", "missing_points", wanting.length, wanting.join(" "))]),
      ...covered.findings,
      ...findings,
    ],
    isPartial: covered.isPartial,
  };
}

/** The series without the days that lack too many of their intervals, and what they lack. */
function withWholeDays(
  fetched: readonly FetchedSeries[],
  context: GateContext,
  coverage: Coverage,
): { series: FetchedSeries[]; findings: Finding[]; isPartial: boolean } {
  const judged = fetched.map((series) => ({
    series,
    days: partsOf(context.window).map((part) => ({
      part,
      findings: judgeDay(series, part, { ...coverage, ...context }),
    })),
  }));
  const isShort = ({ findings }: { findings: readonly Finding[] }) =>
    findings.some(({ severity }) => severity === "error");
  const findings = judged.flatMap(({ days }) => days.flatMap((day) => day.findings));
  const kept = judged.map(({ series, days }) => {
    const short = days.filter(isShort).map(({ part }) => part);
    if (short.length === 0) return series;
    const isIn = ({ datetime }: Row, { from, to }: Range) => datetime >= from && datetime < to;
    const rows = series.rows.filter((row) => !short.some((part) => isIn(row, part)));
    return { ...series, rows };
  });
  return {
    series: kept.filter(({ rows }) => rows.length > 0),
    findings,
    isPartial: judged.some(({ days }) => days.some(isShort)),
  };
}

function judgePrices({ rows, symbol }: FetchedSeries, caps: Market["caps"]): Finding[] {
  const price = ({ values }: Row) => values[0] ?? NaN;
  const isPossible = (row: Row) => price(row) >= PRICE_MIN && price(row) <= PRICE_MAX;
  const capOf = caps.map(([from, cap]) => [dayOfLabel(from).from, cap] as const);
  const cap = ({ datetime }: Row) => capOf.find(([from]) => datetime >= from)?.[1] ?? 0;
  const isUsual = (row: Row) => price(row) >= PRICE_MIN_USUAL && price(row) <= cap(row);
  const impossible = rows.filter((row) => !isPossible(row));
  const unusual = rows.filter((row) => isPossible(row) && !isUsual(row));
  return counted([
    offending("error", "impossible_price", impossible, symbol),
    offending("warning", "price_beyond_cap", unusual, symbol),
  ]);
}

const LOAD_MW_MIN = 20_000;
const LOAD_MW_MAX = 100_000;

/** Hourly system load, MW. */
export function gateLoad(fetched: readonly FetchedSeries[], context: GateContext): GateReport {
  const structure: Structure = {
    stepMs: HOUR,
    horizonMs: 0,
    isKnown: (symbol) => symbol === "ercot",
  };
  const isPossible = ({ values: [load = NaN] }: Row) => load >= LOAD_MW_MIN && load <= LOAD_MW_MAX;
  const covered = withWholeDays(fetched, context, LOAD);
  const { accepted, findings } = acceptSound(covered.series, (series) => [
    ...judgeStructure(series, context, structure),
    ...counted([
      offending(
        "error",
        "impossible_load",
        series.rows.filter((row) => !isPossible(row)),
        series.symbol,
      ),
    ]),
  ]);
  return {
    accepted,
    findings: [
      ...(isDue(context, LOAD) ? nothingSent(fetched) : []),
      ...covered.findings,
      ...findings,
    ],
    isPartial: covered.isPartial,
  };
}

/** Whether anything of the window must have been published by now. */
const isDue = ({ window, now }: GateContext, coverage: Coverage): boolean =>
  partsOf(window).some(
    (part) => now >= coverage.dueAt(part) || (coverage.grows && now >= part.from + 2 * HOUR),
  );

/** The window's share of each operating day it touches. */
const partsOf = (window: Range): Range[] =>
  daysOf(window).map(({ from, to }) => ({
    from: Math.max(from, window.from),
    to: Math.min(to, window.to),
  }));

/** A provider may lose an interval for good; what lacks more is a partial answer. */
const MISSING_SHARE_MAX = 0.1;
const MISSING_MIN = 2;

/**
 * A day that is over has all its intervals: 92, 96 or 100 quarters, 23, 24 or 25 hours. The current
 * one has them from its start on without a gap; a day ahead has all of them or none.
 */
function judgeDay(
  { rows, symbol }: FetchedSeries,
  part: Range,
  { now, hasLeftOut = false, stepMs, dueAt, grows }: Coverage & GateContext,
): Finding[] {
  const held = rows.filter(({ datetime }) => datetime >= part.from && datetime < part.to);
  const distinct = new Set(held.map(({ datetime }) => datetime)).size;
  const where = `${symbol} ${operatingDay(part.from).key}`;
  const mayLack = grows || hasLeftOut;
  const severity = (missing: number, of: number) =>
    !mayLack || missing > Math.max(MISSING_MIN, of * MISSING_SHARE_MAX) ? "error" : "warning";
  const whole = (part.to - part.from) / stepMs;
  if (now >= dueAt(part) || (!grows && distinct > 0)) {
    const missing = Math.abs(whole - distinct);
    return counted([finding(severity(missing, whole), "incomplete_day", missing, where)]);
  }
  if (distinct === 0) return [];
  const newest = held.reduce((last, { datetime }) => Math.max(last, datetime), -Infinity);
  const expected = (newest - part.from) / stepMs + 1;
  const missing = Math.abs(expected - distinct);
  const lags = stepMs === QUARTER && now - newest > LAG_MS_USUAL && newest + stepMs < part.to;
  return counted([
    finding(severity(missing, expected), "gap", missing, where),
    finding("warning", "lagging", Number(lags), where),
  ]);
}
