// The quality gate, pure: fetched rows → accepted rows and findings. An error rejects a commit
// whole, and each series is a commit of its own; a warning is recorded. Bounds come from published
// screening rules for EIA-930 (Ruggles et al. 2020) and from recorded data.

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
/**
 * Late hours are normal: no more holes than this never reject a series, however short the window.
 */
const HOLES_MIN = 6;
const RETRACTED_SHARE_MAX = 0.1;
const RETRACTED_MIN = 3;
const SPIKE_MEDIANS = 10;
const FLAT_HOURS = 3;

/**
 * Whether a provider may withdraw this many of the rows stored for a window. Single rows come and
 * go; an answer that lacks more is a partial one, and would be committed as mass retractions.
 */
export const mayRetract = (retracted: number, stored: number): boolean =>
  retracted <= Math.max(RETRACTED_MIN, stored * RETRACTED_SHARE_MAX);

/**
 * Hourly demand, MWh. Every series is judged by itself and left out when it has an error;
 * implausible values of the others become null and are counted.
 */
export function gateDemand(fetched: readonly FetchedSeries[], context: GateContext): GateReport {
  const judged = fetched.map((series) => ({
    series,
    findings: [...structure(series, context), ...judgeDemand(series)],
  }));
  const sound = judged.filter(({ findings }) =>
    findings.every(({ severity }) => severity === "warning"),
  );
  const rows = fetched.reduce((total, series) => total + series.rows.length, 0);
  const nothing = finding("error", "no_rows", Number(rows === 0), "the provider sent nothing");
  return {
    accepted: sound.map(({ series }) => ({ ...series, rows: series.rows.map(plausible) })),
    findings: [...counted([nothing]), ...judged.flatMap(({ findings }) => findings)],
  };
}

function judgeDemand({ rows, symbol }: FetchedSeries): Finding[] {
  const kept = rows.map(plausible);
  const implausible = rows.filter((row, index) => row !== kept[index]).length;
  const holes = holesOf(rows);
  const tooImplausible = implausible > rows.length * IMPLAUSIBLE_SHARE_MAX;
  const tooManyHoles = holes > Math.max(HOLES_MIN, (rows.length + holes) * HOLES_SHARE_MAX);
  return counted([
    finding(tooImplausible ? "error" : "warning", "implausible_demand", implausible, symbol),
    finding(tooManyHoles ? "error" : "warning", "holes", holes, symbol),
    finding("warning", "spike", spikesOf(kept), symbol),
    finding("warning", "flat", flatRunsOf(kept), symbol),
  ]);
}

/**
 * Rules of every hourly series: on the hourly grid, unique, inside the window, not from the future.
 */
function structure({ rows, symbol }: FetchedSeries, { window, now }: GateContext): Finding[] {
  const keys = new Set(rows.map((row) => `${row.datetime} ${row.instrumentId}`));
  const broken = (rule: string, holds: (row: Row) => boolean) =>
    finding("error", rule, rows.filter((row) => !holds(row)).length, symbol);
  const known = BALANCING_AUTHORITIES.has(symbol.toUpperCase());
  return counted([
    broken("off_grid", (row) => row.datetime % HOUR === 0),
    broken("outside_window", (row) => row.datetime >= window.from && row.datetime < window.to),
    broken("from_the_future", (row) => row.datetime <= now),
    broken("infinite", (row) => row.values.every((value) => Math.abs(value) !== Infinity)),
    finding("error", "duplicate_key", rows.length - keys.size, symbol),
    finding("warning", "unknown_symbol", Number(!known), symbol),
  ]);
}

const finding = (
  severity: Finding["severity"],
  rule: string,
  count: number,
  where: string,
): Finding => ({ severity, rule, count, where });

const counted = (findings: readonly Finding[]) => findings.filter(({ count }) => count > 0);

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
