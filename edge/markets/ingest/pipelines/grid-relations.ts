// How the series of one balancing authority must agree: demand is generation less exports, and near
// its forecast. The accounts of some authorities never balance, so an authority is compared with
// its own days before.

import { DAY } from "../../../../shared/time.ts";
import { type FetchedSeries, type Finding, finding } from "../gate.ts";
import type { Rule } from "../rules.ts";

type Hours = ReadonlyMap<number, number>;

interface Authority {
  symbol: string;
  demand: Hours;
  forecast: Hours;
  generation: Hours;
  interchange: Hours;
}

const NEWEST_HOURS = 24;
const IMBALANCE_MAX = 0.05;
/** Whole megawatthours are a large part of what small authorities have. */
const ROUNDING_MWH = 5;
/** How much more often the newest hours may break the balance than those before them. */
const WORSENING_MAX = 0.25;
const FORECAST_ERROR_MAX = 0.2;
/** A day of which fewer hours are known is not compared. */
const COMPARED_HOURS_MIN = 12;

/** Warnings, each naming the authorities that it is about. */
export function judgeRelations(series: readonly FetchedSeries[]): Finding[] {
  const authorities = authoritiesOf(series);
  return [
    summary("demand_balance", authorities, unbalancedHours),
    summary("demand_forecast_error", authorities, missedDays),
  ];
}

function summary(
  rule: Rule,
  authorities: readonly Authority[],
  countOf: (authority: Authority) => number,
): Finding {
  const broken = authorities
    .map((authority) => ({ symbol: authority.symbol, count: countOf(authority) }))
    .filter(({ count }) => count > 0);
  const total = broken.reduce((sum, { count }) => sum + count, 0);
  return finding("warning", rule, total, broken.map(({ symbol }) => symbol).join(" "));
}

function authoritiesOf(series: readonly FetchedSeries[]): Authority[] {
  const bySymbol = Map.groupBy(series, ({ symbol }) => symbol);
  return [...bySymbol].map(([symbol, own]) => {
    const hours = (library: string): Hours => {
      const rows = own.find((one) => one.library === library)?.rows ?? [];
      return new Map(rows.map(({ datetime, values }) => [datetime, values[0] ?? NaN]));
    };
    return {
      symbol,
      demand: hours("power.demand"),
      forecast: hours("power.demand_forecast"),
      generation: hours("power.generation"),
      interchange: hours("power.interchange"),
    };
  });
}

/** How many of the newest hours do not balance, if a larger share than before; else 0. */
function unbalancedHours({ demand, generation, interchange }: Authority): number {
  const breaks = [...demand]
    .map(([datetime, value]) => {
      const balance = (generation.get(datetime) ?? NaN) - (interchange.get(datetime) ?? NaN);
      return { datetime, value, apart: Math.abs(value - balance) };
    })
    .filter(({ apart }) => !Number.isNaN(apart))
    .sort((left, right) => left.datetime - right.datetime)
    .map(({ apart, value }) => apart > Math.max(IMBALANCE_MAX * value, ROUNDING_MWH));
  const newest = breaks.slice(-NEWEST_HOURS);
  const before = breaks.slice(0, -NEWEST_HOURS);
  const worse = shareOf(newest) > shareOf(before) + WORSENING_MAX;
  return worse ? newest.filter(Boolean).length : 0;
}

const shareOf = (flags: readonly boolean[]) =>
  flags.length === 0 ? 0 : flags.filter(Boolean).length / flags.length;

/** Days on which demand lay far from its forecast, on average. */
function missedDays({ demand, forecast }: Authority): number {
  const errors = [...demand]
    .map(([datetime, value]) => ({
      day: Math.floor(datetime / DAY),
      error: Math.abs(value - (forecast.get(datetime) ?? NaN)) / value,
    }))
    .filter(({ error }) => !Number.isNaN(error));
  const days = [...Map.groupBy(errors, ({ day }) => day).values()];
  return days.filter((hours) => {
    const mean = hours.reduce((sum, { error }) => sum + error, 0) / hours.length;
    return hours.length >= COMPARED_HOURS_MIN && mean > FORECAST_ERROR_MAX;
  }).length;
}
