// Rows ⇄ bytes: Parquet objects for large vintages and compacted history, a compact JSON for small
// vintages inside the catalog. Any Parquet reader opens an object.
//
// Level 0 holds the changes of one vintage. It is written before its commit, so its knowledge time
// and version are in the catalog only. Level 1 holds every version of every row of a stretch of
// valid time, each with the as_of, reconstruction flag and version that wrote it.

import { parquetMetadata, type SchemaElement } from "hyparquet";
import { type ColumnSource, parquetWriteBuffer } from "hyparquet-writer";
import { assert } from "../../../shared/errors.ts";
import {
  type Arrays,
  type Batch,
  type Codes,
  codesFor,
  lowerBound,
  NEW_ARRAYS,
  type WrittenBy,
} from "./columns.ts";
import {
  type Column,
  type ColumnChunk,
  chunkOf,
  decodeColumn,
  decodeDictionary,
} from "./parquet.ts";
import type { ChangedRow } from "./rows.ts";

/**
 * A short read fetches and decodes at least one row group; of groups of half this size a long one
 * takes a tenth longer.
 */
export const ROW_GROUP_ROWS = 4_096;
/** More than any column of a row group takes, so that each is one page. */
const PAGE_BYTES = 16 << 20;

/** Readers such as DuckDB and Polars take an instant for UTC by its logical type only. */
export const INSTANT = {
  type: "INT64",
  converted_type: "TIMESTAMP_MILLIS",
  logical_type: { type: "TIMESTAMP", isAdjustedToUTC: true, unit: "MILLIS" },
} as const;
const text = { type: "BYTE_ARRAY", converted_type: "UTF8" } as const;
const required = { repetition_type: "REQUIRED" } as const;

/** The object of one vintage's changes; `batch` is sorted and has no row twice. */
export const encodeChanges = (batch: Batch, valueColumns: readonly string[]): Uint8Array =>
  encode(batch, changeColumns(batch, valueColumns));

/** The object of all versions of its rows; `batch` is sorted. */
export const encodeHistory = (batch: Batch, valueColumns: readonly string[]): Uint8Array =>
  encode(batch, [...changeColumns(batch, valueColumns), ...versionColumns(batch)]);

/** A column of an object: how the schema names it, and what it holds. */
interface SegmentColumn {
  element: SchemaElement;
  source: Omit<ColumnSource, "name">;
}

const rowsOf = <Value>({ length }: Batch, value: (row: number) => Value): Value[] =>
  Array.from({ length }, (_, row) => value(row));

function changeColumns(batch: Batch, valueColumns: readonly string[]): SegmentColumn[] {
  const instruments = rowsOf(batch, (row) => batch.instruments[batch.instrument[row] ?? 0] ?? "");
  const retracted = rowsOf(batch, (row) => batch.retracted?.[row] === 1);
  return [
    {
      element: { name: "Datetime", ...INSTANT, ...required },
      source: { data: bigints(batch.datetime), encoding: "DELTA_BINARY_PACKED" },
    },
    {
      element: { name: "instrument_id", ...text, ...required },
      source: { data: instruments, encoding: "RLE_DICTIONARY" },
    },
    ...valueColumns.map(
      (name, column): SegmentColumn => ({
        element: { name, type: "DOUBLE", ...required },
        source: { data: batch.values[column] ?? [] },
      }),
    ),
    {
      element: { name: "retracted", type: "BOOLEAN", ...required },
      source: { data: retracted, encoding: "RLE" },
    },
  ];
}

/** Which vintage wrote each row. */
function versionColumns(batch: Batch): SegmentColumn[] {
  const writers = rowsOf(batch, (row) => batch.vintages[batch.vintage[row] ?? 0]);
  const asOfs = writers.map((writer) => BigInt(writer?.asOf ?? 0));
  const reconstructed = writers.map((writer) => writer?.reconstructed === true);
  const seqs = writers.map((writer) => BigInt(writer?.seq ?? 0));
  return [
    {
      element: { name: "as_of", ...INSTANT, ...required },
      source: { data: asOfs, encoding: "RLE_DICTIONARY" },
    },
    {
      element: { name: "vintage_reconstructed", type: "BOOLEAN", ...required },
      source: { data: reconstructed, encoding: "RLE" },
    },
    {
      element: { name: "store_version", type: "INT64", ...required },
      source: { data: seqs, encoding: "RLE_DICTIONARY" },
    },
  ];
}

function encode(batch: Batch, columns: readonly SegmentColumn[]): Uint8Array {
  // Nothing that every read decodes is packed besides: of codes, flags and deltas snappy saves
  // little, of prices as doubles a third, and undoing it costs a reader more than all the rest.
  const columnData = columns.map(({ element: { name }, source }): ColumnSource => {
    const isPacked = name === "as_of";
    return isPacked ? { name, ...source } : { name, ...source, codec: "UNCOMPRESSED" };
  });
  const root: SchemaElement = { name: "root", num_children: columns.length };
  const buffer = parquetWriteBuffer({
    schema: [root, ...columns.map(({ element }) => element)],
    rowGroupSize: groupSizes(batch),
    pageSize: PAGE_BYTES,
    columnData,
  });
  return new Uint8Array(buffer);
}

/** Row groups end where a valid time does, so that no row's versions are torn apart. */
function groupSizes({ datetime, length }: Batch): number[] {
  const sizes: number[] = [];
  for (let from = 0; from < length; ) {
    let to = Math.min(from + ROW_GROUP_ROWS, length);
    while (to < length && datetime[to] === datetime[to - 1]) to++;
    sizes.push(to - from);
    from = to;
  }
  return sizes.length > 0 ? sizes : [1];
}

const bigints = (numbers: Float64Array) => BigInt64Array.from(numbers, (value) => BigInt(value));

/** Where the row groups of an object lie; the catalog keeps it, and a read fetches no others. */
export interface SegmentIndex {
  /** In the order of each row group's chunks. */
  columns: { name: string; type: string; codec: string }[];
  /** In the order of valid time. */
  groups: RowGroup[];
}

/** One row group of an object. */
export interface RowGroup {
  rows: number;
  /** Valid times, epoch milliseconds, both inclusive. */
  validMin: number;
  validMax: number;
  /** Where it begins in the object. */
  offset: number;
  /** Bytes of each column's chunk, one after the other. */
  chunks: number[];
}

/** The index of an object, from its footer. */
export function indexOf(file: ArrayBuffer): SegmentIndex {
  const { row_groups: groups } = parquetMetadata(file);
  const chunksOf = ({ columns }: (typeof groups)[number]) =>
    columns.flatMap(({ meta_data: meta }) => (meta ? [{ meta, ...chunkOf(meta) }] : []));
  const [first] = groups;
  return {
    columns: (first ? chunksOf(first) : []).map(({ meta, type, codec }) => ({
      name: meta.path_in_schema[0] ?? "",
      type,
      codec,
    })),
    groups: groups.map((group) => {
      const chunks = chunksOf(group);
      const [datetime] = chunks;
      assert(datetime?.meta.statistics, "each row group states its valid times");
      const { min_value: min, max_value: max } = datetime.meta.statistics;
      let end = datetime.offset;
      for (const { offset, bytes } of chunks) {
        assert(offset === end, "the chunks of a row group follow one another");
        end += bytes;
      }
      return {
        rows: Number(group.num_rows),
        validMin: Number(min),
        validMax: Number(max),
        offset: datetime.offset,
        chunks: chunks.map(({ bytes }) => bytes),
      };
    }),
  };
}

/** Where a row group ends in its object. */
export const endOf = ({ offset, chunks }: RowGroup) =>
  chunks.reduce((end, bytes) => end + bytes, offset);

/** What of an object is decoded. */
export interface SegmentPart {
  columns: SegmentIndex["columns"];
  groups: readonly RowGroup[];
  /** The object's bytes from `offset` on, to the end of the last row group at least. */
  bytes: Uint8Array;
  offset: number;
}

/**
 * The row groups of an object, decoded one at a time. `writtenBy` is the vintage of a level-0
 * object; null for level 1, whose rows name theirs. In arrays that are reused a row group holds
 * until the next one is asked for.
 */
export function* decodeSegment(
  { columns, groups, bytes, offset }: SegmentPart,
  valueColumns: readonly string[],
  writtenBy: WrittenBy | null,
  arrays: Arrays = NEW_ARRAYS,
): Generator<Batch> {
  for (const { rows, offset: start, chunks } of groups) {
    const located = new Map<string, ColumnChunk>();
    let at = start - offset;
    for (const [index, { name, type, codec }] of columns.entries()) {
      const size = chunks[index] as number;
      located.set(name, { type, codec, offset: at, bytes: size });
      at += size;
    }
    const chunk = (name: string) => {
      const one = located.get(name);
      assert(one, `a segment has the column ${name}`);
      return one;
    };
    const column = (name: string) => decodeColumn(bytes, chunk(name), rows, { name, arrays });
    const floats = (name: string) => {
      const { values, codes, dictionary } = column(name);
      if (values) return toFloats(values);
      return numbersOf(codes, dictionary, arrays.floats(name, rows));
    };
    const instrument = column("instrument_id");
    assert(instrument.codes, "instrument ids are dictionary-encoded");
    const retracted = column("retracted").values;
    assert(retracted, "retractions are flags");
    const versions = writtenBy
      ? { vintage: arrays.codes("", 1, rows).fill(0), vintages: [writtenBy] }
      : vintagesOf({
          seq: column("store_version"),
          asOfs: decodeDictionary(bytes, chunk("as_of")),
          reconstructed: column("vintage_reconstructed"),
          rows,
        });
    yield {
      length: rows,
      datetime: floats("Datetime"),
      instrument: instrument.codes,
      instruments: instrument.dictionary as string[],
      values: valueColumns.map(floats),
      retracted: retracted.includes(1) ? Uint8Array.from(retracted) : null,
      ...versions,
    };
  }
}

/** A numeric column's codes as the numbers that they stand for. */
function numbersOf(codes: Codes, dictionary: Column["dictionary"], out: Float64Array) {
  for (let row = 0; row < out.length; row++) {
    out[row] = (dictionary as Float64Array)[codes[row] as number] as number;
  }
  return out;
}

const toFloats = (column: Float64Array | Uint8Array) =>
  column instanceof Float64Array ? column : Float64Array.from(column);

interface VersionColumns {
  seq: Column;
  /** Dictionary of the knowledge times. */
  asOfs: Float64Array;
  reconstructed: Column;
  rows: number;
}

/**
 * Which vintage wrote each row. A version has one as_of and one flag, so the code of its version
 * stands for all three columns. Both dictionaries hold entries in the order of first occurrence, so
 * equal codes mean the same vintage.
 */
function vintagesOf({ seq, asOfs, reconstructed, rows }: VersionColumns) {
  const { codes, dictionary } = seq;
  assert(
    codes && dictionary.length === asOfs.length,
    "each version has its as_of at the same code",
  );
  const vintages: WrittenBy[] = [];
  for (let row = 0; row < rows; row++) {
    const code = codes[row] as number;
    if (code < vintages.length) continue;
    assert(code === vintages.length, "a dictionary is in the order of first occurrence");
    vintages.push({
      seq: numberAt(seq, row),
      asOf: asOfs[code] as number,
      reconstructed: numberAt(reconstructed, row) === 1,
    });
  }
  return { vintage: codes, vintages };
}

const numberAt = (column: Column, row: number): number =>
  column.values
    ? (column.values[row] as number)
    : (column.dictionary[column.codes[row] as number] as number);

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

/** The changes of a small vintage as the catalog keeps them. */
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

/** The rows of an inline vintage from an instant on. */
export function inlineFrom(inline: Inline, from: number): Inline {
  const first = lowerBound(Float64Array.from(inline.t), from);
  return {
    t: inline.t.slice(first),
    i: inline.i.slice(first),
    names: inline.names,
    v: inline.v.map((column) => column.slice(first)),
    x: inline.x.filter((row) => row >= first).map((row) => row - first),
  };
}

/** The rows of an inline vintage, in the store's order as they were written. */
export function decodeInline(inline: Inline, writtenBy: WrittenBy): Batch {
  const length = inline.t.length;
  const retracted = inline.x.length > 0 ? new Uint8Array(length) : null;
  for (const index of inline.x) if (retracted) retracted[index] = 1;
  return {
    length,
    datetime: Float64Array.from(inline.t),
    instrument: Uint32Array.from(inline.i),
    instruments: inline.names,
    values: inline.v.map((column) => Float64Array.from(column, (value) => value ?? NaN)),
    vintage: new Uint8Array(length),
    vintages: [writtenBy],
    retracted,
  };
}

/** Changes as one sorted batch, written by nobody yet. */
export function batchOf(rows: readonly ChangedRow[], columns: number): Batch {
  const names = [...new Set(rows.map((row) => row.instrumentId))];
  const indexOf = new Map(names.map((name, index) => [name, index]));
  const instrument = codesFor(names.length, rows.length);
  instrument.set(rows.map((row) => indexOf.get(row.instrumentId) ?? 0));
  return {
    length: rows.length,
    datetime: Float64Array.from(rows, (row) => row.datetime),
    instrument,
    instruments: names,
    // −0 and 0 are one value: it is written as the catalog's JSON and the text formats write it.
    values: Array.from({ length: columns }, (_, column) =>
      Float64Array.from(rows, (row) => (row.values[column] ?? NaN) + 0),
    ),
    vintage: new Uint8Array(rows.length),
    vintages: [{ seq: 0, asOf: 0, reconstructed: false }],
    retracted: rows.some((row) => row.retracted)
      ? Uint8Array.from(rows, (row) => (row.retracted ? 1 : 0))
      : null,
  };
}
