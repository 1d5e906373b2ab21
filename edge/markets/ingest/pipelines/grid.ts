// The grid's pipelines: hourly series of every balancing authority from Form EIA-930.
//
// Bounds come from published screening rules for EIA-930 (Ruggles et al. 2020) and from recorded
// data.

import { DAY, HOUR } from "../../../../shared/time.ts";
import type { Row } from "../../store/plan.ts";
import { BALANCING_AUTHORITIES, REGIONS } from "../authorities.ts";
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
  nothingSent,
  offending,
  type Structure,
} from "../gate.ts";
import type { Fetched, FetchRequest, Pipeline, Upstreams } from "../pipeline.ts";
import { type EiaRow, fetchEia } from "../sources/eia.ts";

const NEW_YORK = "America/New_York";

export const gridRegion: Pipeline = {
  job: "grid_region",
  title: "Grid region series",
  provider: "eia",
  libraries: ["power.demand"],
  partitions: { unit: "day", first: "2015-07-01" },
  schedules: [
    { name: "grid_region", cron: "20 * * * *", timeZone: NEW_YORK, aim: "latest" },
    { name: "grid_region_repair", cron: "50 */3 * * *", timeZone: NEW_YORK, aim: "unfinished" },
  ],
  timeZone: NEW_YORK,
  valueColumns: ["value"],
  lookbackMs: 9 * DAY,
  freshness: { warningMs: 6 * HOUR, errorMs: 48 * HOUR },
  release: null,
  fetch: fetchGridRegion,
  gate: gateDemand,
};

const REGION_LIBRARIES: Readonly<Record<string, string>> = { D: "power.demand" };

async function fetchGridRegion(upstreams: Upstreams, { window }: FetchRequest): Promise<Fetched> {
  const access = upstreams.eia();
  const query = {
    route: "electricity/rto/region-data",
    facets: { type: Object.keys(REGION_LIBRARIES) },
    keyFields: ["respondent", "type"],
    window,
  };
  const { rows, sourceUrl } = await fetchEia(access, query, upstreams.fetcher);
  return { series: gridSeries(rows), sourceUrl, sandbox: access.sandbox };
}

/** Rows of the region route as series; regional aggregates are left out. */
export function gridSeries(rows: readonly EiaRow[]): FetchedSeries[] {
  const series = new Map<string, FetchedSeries>();
  for (const { key, datetime, value } of rows) {
    const library = REGION_LIBRARIES[key.type ?? ""];
    if (!library || !key.respondent || REGIONS.has(key.respondent)) continue;
    const symbol = key.respondent.toLowerCase();
    const instrumentId = `${library}.${symbol}`;
    const known = series.get(instrumentId) ?? { library, symbol, rows: [] };
    known.rows.push({ datetime, instrumentId, values: [value] });
    series.set(instrumentId, known);
  }
  return [...series.values()];
}

const DEMAND_MWH_MAX = 200_000;
const IMPLAUSIBLE_SHARE_MAX = 0.2;
const HOLES_SHARE_MAX = 0.1;
/**
 * Late hours are normal: no more holes than this never reject a series, however short the window.
 */
const HOLES_MIN = 6;
const SPIKE_MEDIANS = 10;
const FLAT_HOURS = 3;
const HOURLY: Structure = {
  stepMs: HOUR,
  horizonMs: 0,
  isKnown: (symbol) => BALANCING_AUTHORITIES.has(symbol.toUpperCase()),
};

/**
 * Hourly demand, MWh. Every series is judged by itself and left out when it has an error;
 * implausible values of the others become null and are counted.
 */
export function gateDemand(fetched: readonly FetchedSeries[], context: GateContext): GateReport {
  const { accepted, findings } = acceptSound(fetched, (series) => [
    ...judgeStructure(series, context, HOURLY),
    ...judgeDemand(series),
  ]);
  return {
    accepted: accepted.map((series) => ({ ...series, rows: series.rows.map(plausible) })),
    findings: [...nothingSent(fetched), ...findings],
  };
}

function judgeDemand({ rows, symbol }: FetchedSeries): Finding[] {
  const kept = rows.map(plausible);
  const implausible = rows.filter((row, index) => row !== kept[index]);
  const holes = holesOf(rows);
  const tooImplausible = implausible.length > rows.length * IMPLAUSIBLE_SHARE_MAX;
  const tooManyHoles = holes > Math.max(HOLES_MIN, (rows.length + holes) * HOLES_SHARE_MAX);
  return counted([
    offending(tooImplausible ? "error" : "warning", "implausible_demand", implausible, symbol),
    finding(tooManyHoles ? "error" : "warning", "holes", holes, symbol),
    finding("warning", "spike", spikesOf(kept), symbol),
    finding("warning", "flat", flatRunsOf(kept), symbol),
  ]);
}

/** The row itself, or a copy with null where its demand cannot be true. */
function plausible(row: Row): Row {
  const holds = (value: number) => Number.isNaN(value) || (value > 0 && value <= DEMAND_MWH_MAX);
  return row.values.every(holds)
    ? row
    : { ...row, values: row.values.map((value) => (holds(value) ? value : NaN)) };
}

function spikesOf(rows: readonly Row[]): number {
  const values = rows.map((row) => row.values[0] ?? NaN).filter((value) => !Number.isNaN(value));
  const median = values.toSorted((left, right) => left - right)[values.length >> 1] ?? 0;
  return values.filter((value) => value > median * SPIKE_MEDIANS).length;
}

/** Runs of at least three identical hours. */
function flatRunsOf(rows: readonly Row[]): number {
  let runs = 0;
  let length = 1;
  for (let index = 1; index < rows.length; index++) {
    length = rows[index]?.values[0] === rows[index - 1]?.values[0] ? length + 1 : 1;
    if (length === FLAT_HOURS) runs++;
  }
  return runs;
}
