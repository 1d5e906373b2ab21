// The pipelines: what is fetched, when, how it is checked. One entry is one unit of ingest.

import { DAY } from "../../../shared/time.ts";
import type { Range } from "../store/plan.ts";
import { REGIONS } from "./authorities.ts";
import { type FetchedSeries, type GateContext, type GateReport, gateDemand } from "./gate.ts";
import type { DailyPartitions } from "./partition.ts";
import type { Schedule } from "./schedule.ts";
import { type EiaAccess, type EiaRow, fetchEia } from "./sources/eia.ts";
import type { Fetcher } from "./sources/upstream.ts";

/**
 * The ways to the providers; asking for one that is not configured fails with `credential_missing`.
 */
export interface Upstreams {
  eia: () => EiaAccess & { sandbox: boolean };
  fetcher: Fetcher;
}

export interface Fetched {
  series: FetchedSeries[];
  sourceUrl: string;
  sandbox: boolean;
}

export interface Pipeline {
  job: string;
  libraries: readonly string[];
  schedule: Schedule;
  partitions: DailyPartitions;
  valueColumns: readonly string[];
  /**
   * A run of the newest partition also re-reads the days before it, since providers revise
   * silently.
   */
  lookbackMs: number;
  fetch: (upstreams: Upstreams, window: Range) => Promise<Fetched>;
  gate: (fetched: readonly FetchedSeries[], context: GateContext) => GateReport;
}

const gridRegion: Pipeline = {
  job: "grid_region",
  libraries: ["power.demand"],
  schedule: { cron: "20 * * * *", timeZone: "America/New_York" },
  partitions: { first: "2015-07-01" },
  valueColumns: ["value"],
  lookbackMs: 9 * DAY,
  fetch: fetchGridRegion,
  gate: gateDemand,
};

export const PIPELINES: readonly Pipeline[] = [gridRegion];

export const pipelineOf = (job: string): Pipeline | undefined =>
  PIPELINES.find((pipeline) => pipeline.job === job);

const REGION_LIBRARIES: Readonly<Record<string, string>> = { D: "power.demand" };

async function fetchGridRegion(upstreams: Upstreams, window: Range): Promise<Fetched> {
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
