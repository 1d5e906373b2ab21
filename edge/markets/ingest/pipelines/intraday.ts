// The intraday pipeline: five-minute bars of exchange-traded funds that follow energy. Its provider
// is development-only, so it has no schedule and is started by hand.

import { DAY, MINUTE } from "../../../../shared/time.ts";
import type { Row } from "../../store/rows.ts";
import { isTradingDay } from "../../store/trading-days.ts";
import {
  acceptSound,
  counted,
  type FetchedSeries,
  type Finding,
  finding,
  type GateContext,
  type GateReport,
  holesOf,
  judgeStructure,
  offending,
} from "../gate.ts";
import type { FetchRequest, FetchResult, Pipeline } from "../pipeline.ts";
import type { Upstreams } from "../providers.ts";
import type { Rule } from "../rules.ts";
import { BAR_MS, type Bar, fetchBars } from "../sources/twelve-data.ts";
import { aboutCommodity } from "../topics.ts";

const LIBRARY = "prices.intraday";
const SYMBOLS: readonly string[] = ["ung", "uso", "xle", "xlu"];
/** By then, 21:30Z, the regular session is over in winter too, with its bars sent. */
const SESSION_OVER_MS = 21 * 60 * MINUTE + 30 * MINUTE;

/** Five-minute bars of funds, dollars. */
export const intradayBars: Pipeline = {
  job: "intraday_bars",
  title: "Intraday bars",
  provider: "twelve_data",
  libraries: [LIBRARY],
  topicsOf: aboutCommodity,
  partitions: { unit: "weekday", first: "2020-02-10" },
  schedules: [],
  timeZone: "America/New_York",
  valueColumns: ["value", "open", "high", "low", "close", "volume"],
  // What an execution during the session missed comes with the next day's, even after a long
  // weekend.
  lookbackMs: 6 * DAY,
  freshness: { warningMs: 4 * DAY, errorMs: 6 * DAY },
  // A bar is out minutes after it ends; a launch on the same day learns it.
  publishedWithinMs: DAY,
  release: null,
  owedMs: SESSION_OVER_MS,
  fetch: fetchIntraday,
  gate: gateIntraday,
  mayBeEmpty: ({ from }) => (isTradingDay(from) ? null : "the exchange is closed on this day"),
};

async function fetchIntraday(
  upstreams: Upstreams,
  { window, now }: FetchRequest,
): Promise<FetchResult> {
  const access = upstreams.twelve_data();
  const series: FetchedSeries[] = [];
  const leftOut: Finding[] = [];
  let sourceUrl = "";
  // One after the other: each costs a credit, of eight a minute.
  for (const symbol of SYMBOLS) {
    const query = { symbol: symbol.toUpperCase(), window, now };
    const answer = await fetchBars(access, query, upstreams.fetcher);
    sourceUrl ||= answer.sourceUrl;
    leftOut.push(...answer.leftOut.findings());
    series.push({ library: LIBRARY, symbol, rows: answer.bars.map((bar) => rowOf(symbol, bar)) });
  }
  return { series, sourceUrl, sandbox: access.sandbox, leftOut };
}

const rowOf = (symbol: string, { datetime, open, high, low, close, volume }: Bar): Row => ({
  datetime,
  instrumentId: `${LIBRARY}.${symbol}`,
  values: [close, open, high, low, close, volume],
});

/** Bars. No trading is no fault; a trading day without a bar is a warning. */
export function gateIntraday(fetched: readonly FetchedSeries[], context: GateContext): GateReport {
  const structure = {
    stepMs: BAR_MS,
    horizonMs: 0,
    isKnown: (symbol: string) => SYMBOLS.includes(symbol),
  };
  return acceptSound(fetched, (series) => [
    ...judgeStructure(series, context, structure),
    ...judgeBars(series, context),
  ]);
}

function judgeBars({ rows, symbol }: FetchedSeries, { window, now }: GateContext): Finding[] {
  const broken = (rule: Rule, holds: (row: Row) => boolean) =>
    offending(
      "error",
      rule,
      rows.filter((row) => !holds(row)),
      symbol,
    );
  const sessions = Map.groupBy(rows, ({ datetime }) => Math.floor(datetime / DAY) * DAY);
  const holes = [...sessions.values()].reduce((total, one) => total + holesOf(one, BAR_MS), 0);
  const silent = daysOf(window).filter((day) => isSessionOver(day, now) && !sessions.has(day));
  return counted([
    broken("incoherent_bar", isCoherent),
    broken("price_not_positive", ({ values: [, , , low = NaN] }) => low > 0),
    broken("negative_volume", ({ values }) => (values[5] ?? NaN) >= 0),
    finding("warning", "missing_bars", holes, symbol),
    finding("warning", "no_rows", silent.length, symbol),
  ]);
}

const isCoherent = ({ values: [value, open = NaN, high = NaN, low = NaN, close = NaN] }: Row) =>
  value === close && low <= Math.min(open, close) && Math.max(open, close) <= high;

/** Whether the exchange traded on this day and has closed. */
const isSessionOver = (day: number, now: number) =>
  isTradingDay(day) && now >= day + SESSION_OVER_MS;

function daysOf({ from, to }: GateContext["window"]): number[] {
  const first = Math.ceil(from / DAY) * DAY;
  return Array.from(
    { length: Math.max(0, Math.floor((to - first) / DAY)) },
    (_, day) => first + day * DAY,
  );
}
