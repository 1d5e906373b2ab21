// The grid's pipelines: hourly series of every balancing authority from Form EIA-930. Authorities
// resubmit silently for days, so every execution re-reads a trailing window. Their rules stand in
// `grid-gates.ts`.

import { DAY, HOUR } from "../../../../shared/time.ts";
import { REGIONS } from "../authorities.ts";
import type { FetchedSeries } from "../gate.ts";
import type { FetchRequest, FetchResult, Pipeline } from "../pipeline.ts";
import type { Upstreams } from "../providers.ts";
import { type EiaQuery, type EiaRow, fetchEia } from "../sources/eia.ts";
import { atAuthority, byFuel } from "../topics.ts";
import { gateHourly, gateRegion } from "./grid-gates.ts";

const NEW_YORK = "America/New_York";

const FORECAST = "power.demand_forecast";
const HOURLY = {
  timeZone: NEW_YORK,
  valueColumns: ["value"],
  release: null,
  lookbackMs: 9 * DAY,
  freshness: { warningMs: 6 * HOUR, errorMs: 48 * HOUR },
  // An hour is out after one or two; late authorities send theirs within two days, every day of the
  // year.
  publishedWithinMs: 49 * HOUR,
};

/** Hourly demand, its forecast, generation and interchange by authority, MWh. */
export const gridRegion: Pipeline = {
  ...HOURLY,
  job: "grid_region",
  provider: "eia",
  title: "Grid region series",
  libraries: ["power.demand", FORECAST, "power.generation", "power.interchange"],
  topicsOf: atAuthority,
  partitions: { unit: "day", first: "2015-07-01" },
  schedules: [
    { name: "grid_region", cron: "20 * * * *", timeZone: NEW_YORK, aim: "latest" },
    { name: "grid_region_repair", cron: "50 */3 * * *", timeZone: NEW_YORK, aim: "unfinished" },
  ],
  lookaheadMs: 2 * DAY,
  // A day's forecast is there before the day is.
  complete: (accepted, { from, to }) =>
    accepted.some(
      ({ library, rows }) =>
        library !== FORECAST && rows.some(({ datetime }) => datetime >= from && datetime < to),
    ),
  fetch: fetchGridRegion,
  gate: gateRegion,
};

/** Hourly generation by authority and fuel, MWh. */
export const generationByFuel: Pipeline = {
  ...HOURLY,
  job: "generation_by_fuel",
  provider: "eia",
  title: "Generation by fuel",
  libraries: ["power.generation_by_fuel"],
  topicsOf: byFuel,
  partitions: { unit: "day", first: "2018-07-01" },
  schedules: [
    { name: "generation_by_fuel", cron: "20 * * * *", timeZone: NEW_YORK, aim: "latest" },
    {
      name: "generation_by_fuel_repair",
      cron: "53 */3 * * *",
      timeZone: NEW_YORK,
      aim: "unfinished",
    },
  ],
  fetch: fetchGenerationByFuel,
  gate: gateHourly,
};

/** Library by EIA's type. A positive interchange is an export: demand is generation less it. */
const REGION_LIBRARIES: Readonly<Record<string, string>> = {
  D: "power.demand",
  DF: FORECAST,
  NG: "power.generation",
  TI: "power.interchange",
};

const REGION_QUERY = {
  route: "electricity/rto/region-data",
  frequency: "hourly",
  facets: { type: Object.keys(REGION_LIBRARIES) },
  keyFields: ["respondent", "type"],
} as const;
const FUEL_QUERY = {
  route: "electricity/rto/fuel-type-data",
  frequency: "hourly",
  facets: {},
  keyFields: ["respondent", "fueltype"],
} as const;

function fetchGridRegion(upstreams: Upstreams, { window }: FetchRequest): Promise<FetchResult> {
  return fetchGrid(upstreams, { ...REGION_QUERY, window }, gridSeries);
}

function fetchGenerationByFuel(
  upstreams: Upstreams,
  { window }: FetchRequest,
): Promise<FetchResult> {
  return fetchGrid(upstreams, { ...FUEL_QUERY, window }, fuelSeries);
}

async function fetchGrid(
  upstreams: Upstreams,
  query: EiaQuery,
  seriesOf: (rows: readonly EiaRow[]) => FetchedSeries[],
): Promise<FetchResult> {
  const access = upstreams.eia();
  const { rows, sourceUrl, leftOut } = await fetchEia(access, query, upstreams.fetcher);
  const { sandbox } = access;
  return { series: seriesOf(rows), sourceUrl, sandbox, leftOut: leftOut.findings() };
}

/** Rows of the region route as series; regional aggregates are left out. */
const gridSeries = (rows: readonly EiaRow[]): FetchedSeries[] =>
  byAuthority(rows, (key, symbol) => {
    const library = REGION_LIBRARIES[key.type ?? ""];
    return library ? { library, instrumentId: `${library}.${symbol}` } : null;
  });

/** Rows of the fuel route as series: one an authority, with an instrument for each fuel. */
const fuelSeries = (rows: readonly EiaRow[]): FetchedSeries[] =>
  byAuthority(rows, (key, symbol) => {
    const library = "power.generation_by_fuel";
    const fuel = (key.fueltype ?? "").toLowerCase();
    return { library, instrumentId: `${library}.${symbol}.${fuel}` };
  });

type Instrument = { library: string; instrumentId: string };

function byAuthority(
  rows: readonly EiaRow[],
  instrumentOf: (key: EiaRow["key"], symbol: string) => Instrument | null,
): FetchedSeries[] {
  const all = new Map<string, FetchedSeries>();
  // All rows of a key share one key object, so its series is looked up once.
  const targets = new Map<EiaRow["key"], { series: FetchedSeries; instrumentId: string } | null>();
  const resolve = (key: EiaRow["key"]) => {
    const symbol = (key.respondent ?? "").toLowerCase();
    const instrument = REGIONS.has(key.respondent ?? "") ? null : instrumentOf(key, symbol);
    if (!instrument) return null;
    const { library, instrumentId } = instrument;
    const name = `${library} ${symbol}`;
    const series = all.get(name) ?? { library, symbol, rows: [] };
    all.set(name, series);
    return { series, instrumentId };
  };
  for (const { key, datetime, value } of rows) {
    const known = targets.get(key);
    const target = known === undefined ? resolve(key) : known;
    if (known === undefined) targets.set(key, target);
    target?.series.rows.push({ datetime, instrumentId: target.instrumentId, values: [value] });
  }
  return [...all.values()];
}
