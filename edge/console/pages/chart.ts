// What a series' chart draws, on one axis: the values of one instrument and column at two knowledge
// times, or of several instruments at one. Pure.

import type { SeriesRecord } from "../../../shared/wire/markets.ts";
import type { SeriesState } from "../../markets/client/client.ts";
import type { Line, PlotData } from "./plot.tsx";

/** A series at one knowledge time. */
type Knowledge = Pick<SeriesState, "records" | "asOf">;

/** What a chart shows, ready for the browser's chart package. */
export interface ChartData extends PlotData {
  asOf: string | null;
  comparedAsOf: string | null;
  /** Points without a value in the compared state. */
  added: number;
  /** Points that had a value there and have none now. */
  gone: number;
  /** The largest absolute difference among them, in the column's unit. */
  changeMax: number;
  /** Points older than the newest `POINTS_MAX` were left out. */
  cut: boolean;
}

/** More points than any screen has columns of pixels. */
export const POINTS_MAX = 5_000;
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
  const line = (hue: number, asOf: string | null, values: Map<number, number | null>): Line => ({
    name: named(asOf),
    values: instants.map((instant) => values.get(instant) ?? null),
    hue,
    dashed: hue > 0,
  });
  const named = (asOf: string | null) =>
    `as of ${(asOf ?? "never").slice(0, 19).replace("T", " ")}`;
  return {
    times: instants.map((instant) => instant / 1_000),
    lines: [line(0, now.asOf, latest), ...(before ? [line(1, before.asOf, earlier)] : [])],
    asOf: now.asOf,
    comparedAsOf: before?.asOf ?? null,
    added: pairs.filter(([left, right]) => left !== null && right === null).length,
    gone: pairs.filter(([left, right]) => left === null && right !== null).length,
    revised: differences.flatMap((difference, index) => (difference > 0 ? [index] : [])),
    changeMax: differences.reduce((max, one) => Math.max(max, one), 0),
    cut: instants.length < all.length,
  };
}

/** Lines on one chart that can be told apart. */
export const OVERLAID_MAX = 8;

/**
 * The instruments that a chart begins with: of those that share the unit of most, the ones with the
 * largest newest values, in the order of their names.
 */
export function overlaidAtFirst(
  records: readonly SeriesRecord[],
  column: string,
  unitOf: (instrument: string) => string | null,
): string[] {
  const byUnit = Map.groupBy(instrumentsOf(records), unitOf);
  const [largest = []] = [...byUnit.values()].toSorted((a, b) => b.length - a.length);
  const newest = new Map(
    records.map((record) => [record.instrument_id, Math.abs(Number(record[column] ?? 0))]),
  );
  const sizeOf = (instrument: string) => newest.get(instrument) ?? 0;
  const shown = largest.toSorted((a, b) => sizeOf(b) - sizeOf(a)).slice(0, OVERLAID_MAX);
  return shown.toSorted();
}

/** The chart of several instruments of one column, as one knowledge time has them. */
export function overlayOf(
  { records, asOf }: Knowledge,
  column: string,
  instruments: readonly { instrument: string; name: string }[],
): ChartData {
  const values = instruments.map(({ instrument }) => numbersOf(records, instrument, column));
  const all = [...new Set(values.flatMap((one) => [...one.keys()]))].toSorted((a, b) => a - b);
  const instants = all.slice(-POINTS_MAX);
  return {
    times: instants.map((instant) => instant / 1_000),
    lines: instruments.map(({ name }, hue) => ({
      name,
      values: instants.map((instant) => values[hue]?.get(instant) ?? null),
      hue,
      dashed: false,
    })),
    asOf,
    comparedAsOf: null,
    added: 0,
    gone: 0,
    revised: [],
    changeMax: 0,
    cut: instants.length < all.length,
  };
}
