// The quality gate, pure: fetched rows → accepted rows and findings. An error rejects the whole
// commit, a warning is recorded. Bounds come from published screening rules for EIA-930 (Ruggles et
// al. 2020) and from recorded data.

import { HOUR } from "../../../shared/time.ts";
import type { Range, Row } from "../store/plan.ts";
import { BALANCING_AUTHORITIES } from "./authorities.ts";

/** The rows of one symbol of one library. */
export interface FetchedSeries {
  library: string;
  symbol: string;
  rows: Row[];
}

export interface Finding {
  severity: "error" | "warning";
  rule: string;
  count: number;
  /** Where: a symbol, or a few rows. */
  where: string;
}

export interface GateReport {
  accepted: FetchedSeries[];
  findings: Finding[];
}

export interface GateContext {
  /** What was asked for. */
  window: Range;
  now: number;
}

const DEMAND_MWH_MAX = 200_000;
const IMPLAUSIBLE_SHARE_MAX = 0.2;
const HOLES_SHARE_MAX = 0.1;
const SPIKE_MEDIANS = 10;
const FLAT_HOURS = 3;

/** Hourly demand, MWh. Implausible values become null and are counted. */
export function gateDemand(fetched: readonly FetchedSeries[], context: GateContext): GateReport {
  const accepted = fetched.map((series) => ({ ...series, rows: series.rows.map(plausible) }));
  const total = sum(fetched, (series) => series.rows.length);
  const implausible = sum(
    fetched,
    (series) => series.rows.filter((row) => row !== plausible(row)).length,
  );
  const holes = sum(fetched, (series) => holesOf(series.rows));
  const findings = [
    ...structure(fetched, context),
    finding(total === 0 ? "error" : null, "no_rows", 1, "the provider sent nothing for the window"),
    finding(
      implausible === 0 ? null : implausible > total * IMPLAUSIBLE_SHARE_MAX ? "error" : "warning",
      "implausible_demand",
      implausible,
      `not in (0, ${DEMAND_MWH_MAX}] MWh, stored as null`,
    ),
    finding(
      holes === 0 ? null : holes > (total + holes) * HOLES_SHARE_MAX ? "error" : "warning",
      "holes",
      holes,
      named(fetched.filter((series) => holesOf(series.rows) > 0)),
    ),
    ...accepted.flatMap(({ symbol, rows }) => [
      finding("warning", "spike", spikesOf(rows), symbol),
      finding("warning", "flat", flatRunsOf(rows), symbol),
    ]),
  ];
  return {
    accepted,
    findings: findings.filter((one) => one !== null && one.count > 0) as Finding[],
  };
}

/**
 * Rules of every hourly set: on the hourly grid, unique, inside the window, not from the future.
 */
function structure(fetched: readonly FetchedSeries[], { window, now }: GateContext) {
  const rows = fetched.flatMap((series) =>
    series.rows.map((row) => ({ ...row, symbol: series.symbol })),
  );
  const keys = new Set(rows.map((row) => `${row.datetime} ${row.instrumentId}`));
  const broken = (rule: string, holds: (row: Row) => boolean) => {
    const found = rows.filter((row) => !holds(row));
    return finding("error", rule, found.length, named(found));
  };
  const unknown = fetched.filter(({ symbol }) => !BALANCING_AUTHORITIES.has(symbol.toUpperCase()));
  return [
    broken("off_grid", (row) => row.datetime % HOUR === 0),
    broken("outside_window", (row) => row.datetime >= window.from && row.datetime < window.to),
    broken("from_the_future", (row) => row.datetime <= now),
    broken("infinite", (row) => row.values.every((value) => Math.abs(value) !== Infinity)),
    finding("error", "duplicate_key", rows.length - keys.size, "(Datetime, instrument_id)"),
    finding("warning", "unknown_symbol", unknown.length, named(unknown)),
  ];
}

function finding(severity: Finding["severity"] | null, rule: string, count: number, where: string) {
  return severity && { severity, rule, count, where };
}

const sum = <T>(items: readonly T[], size: (item: T) => number) =>
  items.reduce((total, item) => total + size(item), 0);

const named = (items: readonly { symbol: string }[]) => {
  const symbols = [...new Set(items.map(({ symbol }) => symbol))];
  return (
    symbols.slice(0, 8).join(" ") + (symbols.length > 8 ? ` and ${symbols.length - 8} more` : "")
  );
};

/** The row itself, or a copy with null where its demand cannot be true. */
function plausible(row: Row): Row {
  const holds = (value: number) => Number.isNaN(value) || (value > 0 && value <= DEMAND_MWH_MAX);
  return row.values.every(holds)
    ? row
    : { ...row, values: row.values.map((value) => (holds(value) ? value : NaN)) };
}

/** Missing hours between the first and the last of a series; the leading edge may be short. */
function holesOf(rows: readonly Row[]): number {
  if (rows.length === 0) return 0;
  const hours = new Set(rows.map((row) => row.datetime));
  const first = rows.reduce((least, row) => Math.min(least, row.datetime), Infinity);
  const last = rows.reduce((most, row) => Math.max(most, row.datetime), -Infinity);
  return (last - first) / HOUR + 1 - hours.size;
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
