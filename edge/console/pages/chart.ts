// What a series' chart draws: the values of one instrument and column at two knowledge times, on
// one axis. Pure.

import type { SeriesRecord } from "../../../shared/markets.ts";

export interface Known {
  records: readonly SeriesRecord[];
  asOf: string | null;
}

export interface Drawn {
  /** Seconds, rising: what the chart's package counts in. */
  times: number[];
  lines: { name: string; values: (number | null)[] }[];
  asOf: string | null;
  comparedAsOf: string | null;
  /** Points that the earlier state had not. */
  added: number;
  /** Points that both know and value differently, and by how much at most. */
  changed: number;
  most: number;
  /** Older points were left out. */
  cut: boolean;
}

/** More would be thicker than any screen. */
const POINTS_MAX = 5_000;
const FIXED = new Set([
  "Datetime",
  "instrument_id",
  "as_of",
  "vintage_reconstructed",
  "known_from",
  "known_to",
]);

export const instrumentsOf = (records: readonly SeriesRecord[]): string[] =>
  [...new Set(records.map(({ instrument_id }) => instrument_id))].toSorted();

/** The value columns, as the answer has them; those of the pipeline where it has no row. */
export function columnsOf(records: readonly SeriesRecord[], declared: readonly string[]): string[] {
  const [first] = records;
  return first ? Object.keys(first).filter((name) => !FIXED.has(name)) : [...declared];
}

const numbersOf = (records: readonly SeriesRecord[], instrument: string, column: string) =>
  new Map(
    records
      .filter(({ instrument_id }) => instrument_id === instrument)
      .map((record) => {
        const value = record[column];
        return [Date.parse(record.Datetime), typeof value === "number" ? value : null] as const;
      }),
  );

export function chartOf(asked: {
  now: Known;
  before: Known | null;
  instrument: string;
  column: string;
}): Drawn {
  const { now, before, instrument, column } = asked;
  const latest = numbersOf(now.records, instrument, column);
  const earlier = numbersOf(before?.records ?? [], instrument, column);
  const all = [...new Set([...latest.keys(), ...earlier.keys()])].toSorted((a, b) => a - b);
  const instants = all.slice(-POINTS_MAX);
  const common = before ? instants.filter((instant) => earlier.has(instant)) : instants;
  const differences = common.flatMap((instant) => {
    const [left, right] = [latest.get(instant), earlier.get(instant)];
    if (!before || left === right) return [];
    return [Math.abs((left ?? 0) - (right ?? 0))];
  });
  const line = (name: string, values: Map<number, number | null>) => ({
    name,
    values: instants.map((instant) => values.get(instant) ?? null),
  });
  const named = (asOf: string | null) =>
    `as of ${(asOf ?? "never").slice(0, 19).replace("T", " ")}`;
  return {
    times: instants.map((instant) => instant / 1_000),
    lines: [line(named(now.asOf), latest), ...(before ? [line(named(before.asOf), earlier)] : [])],
    asOf: now.asOf,
    comparedAsOf: before?.asOf ?? null,
    added: instants.length - common.length,
    changed: differences.length,
    most: differences.reduce((most, one) => Math.max(most, one), 0),
    cut: instants.length < all.length,
  };
}
