// What the agency's dated series have in common: a route's series, one row a day, week or month, as
// rows of a symbol each, or as the instruments of one report.

import type { Row } from "../../store/rows.ts";
import { type FetchedSeries, type Finding, finding } from "../gate.ts";
import type { FetchResult } from "../pipeline.ts";
import type { Upstreams } from "../providers.ts";
import { type EiaQuery, type EiaRow, fetchEia } from "../sources/eia.ts";

/** A series of the agency by its identifier. */
export interface AgencySeries {
  id: string;
  /** What it is called here. */
  name: string;
  /** In lower case. */
  unit: string;
}

/** A route of the API and which of its series are wanted. */
export interface AgencyRoute extends Pick<EiaQuery, "route" | "frequency"> {
  /** The facet, and the field, that holds the identifier. */
  facet: "series" | "seriesId";
  series: readonly AgencySeries[];
}

/** A row with the series it belongs to. */
export interface AgencyRow extends EiaRow {
  series: AgencySeries;
}

/** A series by identifier and unit; its own name is the identifier in lower case. */
export const agencySeries = (id: string, unit: string, name = id.toLowerCase()): AgencySeries => ({
  id,
  name,
  unit,
});

/** Reads routes one after the other; `seriesOf` makes series of all their rows. */
export async function fetchAgency(
  upstreams: Upstreams,
  routes: readonly AgencyRoute[],
  window: EiaQuery["window"],
  seriesOf: (rows: readonly AgencyRow[]) => FetchedSeries[],
): Promise<FetchResult> {
  const access = upstreams.eia();
  const all: AgencyRow[] = [];
  const leftOut: Finding[] = [];
  let sourceUrl = "";
  for (const { route, frequency, facet, series } of routes) {
    const facets = { [facet]: series.map(({ id }) => id) };
    const query = { route, frequency, facets, keyFields: [facet], window };
    const fetched = await fetchEia(access, query, upstreams.fetcher);
    const known = new Map(series.map((one) => [one.id, one]));
    // What was not asked for is nobody's.
    const own = fetched.rows.flatMap((row) => {
      const one = known.get(row.key[facet] ?? "");
      return one ? [{ ...row, series: one }] : [];
    });
    all.push(...own);
    leftOut.push(...fetched.leftOut.findings());
    sourceUrl ||= fetched.sourceUrl;
  }
  const findings = strangeUnits(all);
  return { series: seriesOf(all), sourceUrl, sandbox: access.sandbox, findings, leftOut };
}

/** A symbol of its own for each series. */
export const asSymbols = (
  rows: readonly AgencyRow[],
  library: string,
  group = library,
): FetchedSeries[] =>
  [...Map.groupBy(rows, ({ series }) => series.name)].map(([name, own]) => ({
    library,
    symbol: name,
    rows: own.map((row) => rowOf(row, `${group}.${name}`)),
  }));

/** One symbol for the whole report, with an instrument for each series. */
export const asReport = (
  rows: readonly AgencyRow[],
  library: string,
  symbol: string,
  group: string,
): FetchedSeries[] =>
  rows.length === 0
    ? []
    : [
        {
          library,
          symbol,
          rows: rows.map((row) => rowOf(row, `${group}.${row.series.name}`)),
        },
      ];

const rowOf = ({ datetime, value }: AgencyRow, instrumentId: string): Row => ({
  datetime,
  instrumentId,
  values: [value],
});

/** A unit that changed would change what the numbers mean. */
function strangeUnits(rows: readonly AgencyRow[]): Finding[] {
  const strange = rows.filter(({ unit, series }) => unit.toLowerCase() !== series.unit);
  const named = new Set(strange.map(({ unit, series }) => `${series.name} in ${unit}`));
  if (strange.length === 0) return [];
  return [finding("warning", "unexpected_unit", strange.length, [...named].join(", "))];
}
