// The quality gate's kit, pure: fetched rows → accepted rows and findings. An error rejects the
// commit of its series, each series being a commit of its own; a warning is only recorded. The
// rules of a library stand in the file of its pipeline.

import { HOUR, iso } from "../../../shared/time.ts";
import type { Range, Row } from "../store/rows.ts";
import type { Rule } from "./rules.ts";

/** The rows of one symbol of one library. */
export interface FetchedSeries {
  library: string;
  symbol: string;
  rows: Row[];
}

/** An offending row, kept for the operator to see. */
export interface Sample {
  Datetime: string;
  instrument_id: string;
  values: (number | null)[];
}

/** A broken rule, and how often it was broken. */
export interface Finding {
  severity: "error" | "warning";
  rule: Rule;
  count: number;
  /** Where: a symbol, or a few rows. */
  where: string;
  /** The first of the offending rows, where the rule is about rows. */
  samples?: Sample[];
}

/** What a gate lets through, and what it found. */
export interface GateReport {
  accepted: FetchedSeries[];
  findings: Finding[];
  /** Rows of accepted series were refused: what is stored in their place stays. */
  isPartial?: boolean;
}

/** What an execution asked for, and when; instants in epoch milliseconds. */
export interface GateContext {
  /** The partition's own valid time. */
  partition: Range;
  /** What the provider was asked for. */
  window: Range;
  now: number;
  /** Whether rows or documents of the answer were left out, as they could not be read. */
  hasLeftOut?: boolean;
}

const RETRACTED_SHARE_MAX = 0.1;
const RETRACTED_MIN = 3;
const SAMPLES_MAX = 10;

/**
 * Whether a provider may withdraw this many of the rows stored for a window. Single rows come and
 * go; an answer that lacks more is a partial one, and would be committed as mass retractions.
 */
export const mayRetract = (retracted: number, stored: number): boolean =>
  retracted <= Math.max(RETRACTED_MIN, stored * RETRACTED_SHARE_MAX);

/** A finding without rows. */
export const finding = (
  severity: Finding["severity"],
  rule: Rule,
  count: number,
  where: string,
): Finding => ({ severity, rule, count, where });

/** The finding that these rows break a rule, with the first of them. */
export const offending = (
  severity: Finding["severity"],
  rule: Rule,
  rows: readonly Row[],
  where: string,
): Finding => ({
  ...finding(severity, rule, rows.length, where),
  samples: rows.slice(0, SAMPLES_MAX).map((row) => ({
    Datetime: iso(row.datetime),
    instrument_id: row.instrumentId,
    values: row.values.map((value) => (Number.isFinite(value) ? value : null)),
  })),
});

/** The findings that are about anything at all: those with a count. */
export const counted = (findings: readonly Finding[]) => findings.filter(({ count }) => count > 0);

/** The structure that every series of a library has. */
export interface Structure {
  /** Distance of its valid times, which are multiples of it; null where the calendar says. */
  stepMs: number | null;
  /** How far after the execution's clock a valid time may lie. */
  horizonMs: number;
  /** Whether the library is known to hold the symbol; others are accepted with a warning. */
  isKnown: (symbol: string) => boolean;
}

/** Rules of every series: on its grid, unique, inside the window, finite, not from the future. */
export function judgeStructure(
  { rows, symbol }: FetchedSeries,
  { window, now }: GateContext,
  { stepMs, horizonMs, isKnown }: Structure,
): Finding[] {
  const seen = new Set<string>();
  const repeated = rows.filter((row) => {
    const key = `${row.datetime} ${row.instrumentId}`;
    return seen.has(key) || !seen.add(key);
  });
  const broken = (rule: Rule, holds: (row: Row) => boolean) =>
    offending(
      "error",
      rule,
      rows.filter((row) => !holds(row)),
      symbol,
    );
  return counted([
    broken("off_grid", (row) => stepMs === null || row.datetime % stepMs === 0),
    broken("outside_window", (row) => row.datetime >= window.from && row.datetime < window.to),
    broken("from_the_future", (row) => row.datetime <= now + horizonMs),
    broken("infinite", (row) => row.values.every((value) => Math.abs(value) !== Infinity)),
    offending("error", "duplicate_key", repeated, symbol),
    finding("warning", "unknown_symbol", Number(!isKnown(symbol)), symbol),
  ]);
}

/** Judges each series by itself and leaves out those with an error. */
export function acceptSound(
  fetched: readonly FetchedSeries[],
  judge: (series: FetchedSeries) => Finding[],
): GateReport {
  const judged = fetched.map((series) => ({ series, findings: judge(series) }));
  const sound = judged.filter(({ findings }) =>
    findings.every(({ severity }) => severity === "warning"),
  );
  return {
    accepted: sound.map(({ series }) => series),
    findings: judged.flatMap(({ findings }) => findings),
  };
}

/** The finding that nothing at all was sent. */
export const nothingSent = (fetched: readonly FetchedSeries[]): Finding[] => {
  const rows = fetched.reduce((total, series) => total + series.rows.length, 0);
  return counted([finding("error", "no_rows", Number(rows === 0), "the provider sent nothing")]);
};

/** Missing steps between the first and the last of a series; its leading edge may be short. */
export function holesOf(rows: readonly Row[], stepMs = HOUR): number {
  if (rows.length === 0) return 0;
  const steps = new Set(rows.map((row) => row.datetime));
  const first = rows.reduce((min, row) => Math.min(min, row.datetime), Infinity);
  const last = rows.reduce((max, row) => Math.max(max, row.datetime), -Infinity);
  return (last - first) / stepMs + 1 - steps.size;
}
