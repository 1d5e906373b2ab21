// What a series' chart draws: the values of one instrument and column at two knowledge times, on
// one axis. Pure.

import type { SeriesRecord } from "../../../shared/wire/markets.ts";
import type { SeriesState } from "../../markets/client/client.ts";

/** A series at one knowledge time. */
type Knowledge = Pick<SeriesState, "records" | "asOf">;

/** What a chart shows, ready for the browser's chart package. */
export interface ChartData {
  /** Valid times in seconds since the epoch, which is what the package counts in; rising. */
  times: number[];
  /** A value for each of `times`, by knowledge time: the one asked for, then the compared one. */
  lines: { name: string; values: (number | null)[] }[];
  asOf: string | null;
  comparedAsOf: string | null;
  /** Points without a value in the compared state. */
  added: number;
  /** Points that had a value there and have none now. */
  gone: number;
  /** Indexes in `times` of the points that have different values in both states. */
  revised: number[];
  /** The largest absolute difference among them, in the column's unit. */
  changeMax: number;
  /** Points older than the newest `POINTS_MAX` were left out. */
  cut: boolean;
}

/** More points than any screen has columns of pixels. */
const POINTS_MAX = 5_000;
const FIXED = new Set([
  "Datetime",
  "instrument_id",
  "as_of",
  "vintage_reconstructed",
  "known_from",
  "known_to",
]);

/** The instruments of a series, by name. */
export const instrumentsOf = (records: readonly SeriesRecord[]): string[] =>
  [...new Set(records.map(({ instrument_id }) => instrument_id))].toSorted();

/** The value columns, as the answer has them; those of the pipeline where it has no row. */
export function columnsOf(records: readonly SeriesRecord[], declared: readonly string[]): string[] {
  const [first] = records;
  return first ? Object.keys(first).filter((name) => !FIXED.has(name)) : [...declared];
}

/** Absence and null alike: there is no value to compare. */
const numbersOf = (records: readonly SeriesRecord[], instrument: string, column: string) =>
  new Map(
    records
      .filter(({ instrument_id }) => instrument_id === instrument)
      .map((record) => {
        const value = record[column];
        return [Date.parse(record.Datetime), typeof value === "number" ? value : null] as const;
      }),
  );

/** The chart of one instrument and column `now`, compared with what was known `before`. */
export function chartOf({
  now,
  before,
  instrument,
  column,
}: {
  now: Knowledge;
  before: Knowledge | null;
  instrument: string;
  column: string;
}): ChartData {
  const latest = numbersOf(now.records, instrument, column);
  const earlier = numbersOf(before?.records ?? [], instrument, column);
  const all = [...new Set([...latest.keys(), ...earlier.keys()])].toSorted((a, b) => a - b);
  const instants = all.slice(-POINTS_MAX);
  const pairs = before
    ? instants.map(
        (instant) => [latest.get(instant) ?? null, earlier.get(instant) ?? null] as const,
      )
    : [];
  const differences = pairs.map(([left, right]) =>
    left === null || right === null ? 0 : Math.abs(left - right),
  );
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
    added: pairs.filter(([left, right]) => left !== null && right === null).length,
    gone: pairs.filter(([left, right]) => left === null && right !== null).length,
    revised: differences.flatMap((difference, index) => (difference > 0 ? [index] : [])),
    changeMax: differences.reduce((max, one) => Math.max(max, one), 0),
    cut: instants.length < all.length,
  };
}
