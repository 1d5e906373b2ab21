// Rows ⇄ bytes: Parquet objects for large vintages, a compact JSON for those kept in the catalog.
// Knowledge time and sequence are not in the bytes: they are assigned by the commit, after the
// object was written, and live in the catalog. Any Parquet reader opens an object.

import { parquetReadObjects } from "hyparquet";
import { type ColumnSource, parquetWriteBuffer } from "hyparquet-writer";
import { assert } from "../../../shared/errors.ts";
import type { ChangedRow } from "./plan.ts";

const ROW_GROUP_ROWS = 32_768;

/** One column per value column, named as the series names them. */
export function encodeSegment(
  rows: readonly ChangedRow[],
  valueColumns: readonly string[],
): Uint8Array {
  const values = valueColumns.map(
    (name, column): ColumnSource => ({
      name,
      type: "DOUBLE",
      nullable: false,
      data: rows.map((row) => row.values[column] ?? NaN),
    }),
  );
  const buffer = parquetWriteBuffer({
    rowGroupSize: ROW_GROUP_ROWS,
    columnData: [
      {
        name: "Datetime",
        type: "TIMESTAMP",
        nullable: false,
        data: rows.map((row) => new Date(row.datetime)),
      },
      {
        name: "instrument_id",
        type: "STRING",
        nullable: false,
        data: rows.map((row) => row.instrumentId),
      },
      ...values,
      {
        name: "retracted",
        type: "BOOLEAN",
        nullable: false,
        data: rows.map((row) => row.retracted),
      },
    ],
  });
  return new Uint8Array(buffer);
}

/** The rows of an object that `encodeSegment` wrote. */
export async function decodeSegment(
  file: ArrayBuffer,
  valueColumns: readonly string[],
): Promise<ChangedRow[]> {
  const records = await parquetReadObjects({ file });
  return records.map((record) => {
    assert(record.Datetime instanceof Date, "a segment's Datetime is a timestamp");
    return {
      datetime: record.Datetime.getTime(),
      instrumentId: String(record.instrument_id),
      values: valueColumns.map((name) => Number(record[name])),
      retracted: record.retracted === true,
    };
  });
}

/** A vintage's rows inside the catalog: parallel arrays, instruments by index, null for NaN. */
export interface Inline {
  /** Valid times, epoch milliseconds. */
  t: number[];
  /** Index into `names`. */
  i: number[];
  names: string[];
  /** One array per value column. */
  v: (number | null)[][];
  /** Indexes of retracted rows. */
  x: number[];
}

export function encodeInline(rows: readonly ChangedRow[], valueColumns: readonly string[]): Inline {
  const names = [...new Set(rows.map((row) => row.instrumentId))];
  const indexOf = new Map(names.map((name, index) => [name, index]));
  return {
    t: rows.map((row) => row.datetime),
    i: rows.map((row) => indexOf.get(row.instrumentId) ?? 0),
    names,
    v: valueColumns.map((_, column) =>
      rows.map((row) => {
        const value = row.values[column] ?? NaN;
        return Number.isNaN(value) ? null : value;
      }),
    ),
    x: rows.flatMap((row, index) => (row.retracted ? [index] : [])),
  };
}

export function decodeInline(inline: Inline): ChangedRow[] {
  const retracted = new Set(inline.x);
  return inline.t.map((datetime, index) => ({
    datetime,
    instrumentId: inline.names[inline.i[index] ?? 0] ?? "",
    values: inline.v.map((column) => column[index] ?? NaN),
    retracted: retracted.has(index),
  }));
}
