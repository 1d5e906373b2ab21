// What happened to a series' rows between two knowledge times, and how their prints (the values
// they had, one after the other) moved. Pure over sorted versions.

import { iso } from "../../shared/time.ts";
import type { DiffRecord, Revisions } from "../../shared/wire/markets.ts";
import type { Batch, WrittenBy } from "./store/columns.ts";

/** The first and last position of each row's versions in a batch. */
function* rowsIn({ datetime, instrument, length }: Batch): Generator<[number, number]> {
  for (let from = 0; from < length; ) {
    let to = from + 1;
    while (to < length && datetime[to] === datetime[from] && instrument[to] === instrument[from]) {
      to++;
    }
    yield [from, to];
    from = to;
  }
}

const writerAt = (batch: Batch, at: number) =>
  batch.vintages[batch.vintage[at] as number] as WrittenBy;

/** A value as the wire writes it: null for NaN, 0 for −0. */
const numberOrNull = (value: number | undefined) =>
  value === undefined || value !== value ? null : value + 0;

/**
 * Rows whose value after the last of the batch's versions differs from their value at the knowledge
 * time `from`, epoch milliseconds.
 */
export function* diffRecords(
  batch: Batch,
  from: number,
  valueColumns: readonly string[],
): Generator<DiffRecord> {
  const side = (at: number): DiffRecord["before"] =>
    at < 0 || batch.retracted?.[at] === 1
      ? null
      : {
          ...Object.fromEntries(
            valueColumns.map((name, column) => [name, numberOrNull(batch.values[column]?.[at])]),
          ),
          as_of: iso(writerAt(batch, at).asOf),
          vintage_reconstructed: writerAt(batch, at).reconstructed,
        };
  for (const [first, end] of rowsIn(batch)) {
    let known = first - 1;
    while (known + 1 < end && writerAt(batch, known + 1).asOf <= from) known++;
    const before = side(known < first ? -1 : known);
    const after = side(end - 1);
    const same = valueColumns.every((name) => before?.[name] === after?.[name]);
    if (before === null ? after === null : after !== null && same) continue;
    yield {
      Datetime: iso(batch.datetime[first] as number),
      instrument_id: batch.instruments[batch.instrument[first] as number] as string,
      change: before === null ? "inserted" : after === null ? "retracted" : "revised",
      before,
      after,
    };
  }
}

/** A lag after valid time, as the reader wrote it and in milliseconds. */
export interface Lag {
  name: string;
  ms: number;
}

type RevisionRow = Revisions["rows"][number];
type Spread = Revisions["statistics"]["first_to_latest"];

/** The prints of each row of a batch, in one value column. */
export function* revisionRows(
  batch: Batch,
  column: number,
  lags: readonly Lag[],
): Generator<RevisionRow> {
  for (const [first, end] of rowsIn(batch)) {
    const datetime = batch.datetime[first] as number;
    const prints: RevisionRow["prints"] = [];
    for (let at = first; at < end; at++) {
      const { asOf, reconstructed } = writerAt(batch, at);
      const retracted = batch.retracted?.[at] === 1;
      prints.push({
        value: retracted ? null : numberOrNull(batch.values[column]?.[at]),
        as_of: iso(asOf),
        lag_seconds: (asOf - datetime) / 1_000,
        vintage_reconstructed: reconstructed,
        retracted,
      });
    }
    const latest = prints.at(-1);
    const knownAfter = ({ ms }: Lag) =>
      prints.findLast(({ lag_seconds }) => lag_seconds * 1_000 <= ms)?.value ?? null;
    yield {
      Datetime: iso(datetime),
      instrument_id: batch.instruments[batch.instrument[first] as number] as string,
      first: prints[0] as RevisionRow["prints"][number],
      latest: latest?.retracted ? null : (latest ?? null),
      prints,
      by_lag: Object.fromEntries(lags.map((lag) => [lag.name, knownAfter(lag)])),
    };
  }
}

/**
 * How the prints of rows moved: the latest value less an earlier one. Rows whose first print a
 * backfill wrote say nothing about lag and are left out of the spreads.
 */
export function revisionStatistics(
  rows: readonly RevisionRow[],
  lags: readonly Lag[],
): Revisions["statistics"] {
  const true_rows = rows.filter(({ first }) => !first.vintage_reconstructed);
  const moves = (earlier: (row: RevisionRow) => number | null | undefined) =>
    spread(
      true_rows.flatMap((row) => {
        const [then, now] = [earlier(row), row.latest?.value];
        return typeof then === "number" && typeof now === "number" ? [now - then] : [];
      }),
    );
  return {
    rows: rows.length,
    true_rows: true_rows.length,
    revised: rows.filter(({ prints }) => prints.length > 1).length,
    retracted: rows.filter(({ latest }) => latest === null).length,
    first_to_latest: moves(({ first }) => first.value),
    by_lag: Object.fromEntries(lags.map(({ name }) => [name, moves(({ by_lag }) => by_lag[name])])),
  };
}

/** The moves' mean (the bias), sample standard deviation, mean and largest magnitude. */
function spread(moves: readonly number[]): Spread {
  const rows = moves.length;
  if (rows === 0) return { rows, mean: null, sd: null, mean_abs: null, max_abs: null };
  const mean = moves.reduce((sum, move) => sum + move, 0) / rows;
  const squares = moves.reduce((sum, move) => sum + (move - mean) ** 2, 0);
  return {
    rows,
    mean,
    sd: rows > 1 ? Math.sqrt(squares / (rows - 1)) : null,
    mean_abs: moves.reduce((sum, move) => sum + Math.abs(move), 0) / rows,
    max_abs: moves.reduce((max, move) => Math.max(max, Math.abs(move)), 0),
  };
}
