// Rows as an Arrow IPC stream, one record batch a batch of rows.

import {
  Bool,
  type Data,
  type DataType,
  Field,
  Float64,
  Int64,
  makeData,
  RecordBatch,
  Schema,
  Struct,
  Table,
  TimestampMillisecond,
  tableToIPC,
  Utf8,
} from "apache-arrow";
import type { Batch } from "../store/columns.ts";
import { int64s } from "./parquet.ts";
import { type AnswerColumn, answerColumns, type RecordShape } from "./record.ts";

const TYPES: Readonly<Record<AnswerColumn["kind"], () => DataType>> = {
  instant: () => new TimestampMillisecond("UTC"),
  text: () => new Utf8(),
  number: () => new Float64(),
  count: () => new Int64(),
  flag: () => new Bool(),
};
/** A stream ends with a continuation marker and a length of zero. */
const END_BYTES = 8;

/** The rows of the batches as one Arrow IPC stream, in parts. */
export async function* encodeArrow(
  batches: AsyncIterable<Batch>,
  shape: RecordShape,
): AsyncGenerator<Uint8Array> {
  const schema = new Schema(
    answerColumns(null, shape).map(
      ({ name, kind, optional }) => new Field(name, TYPES[kind](), optional),
    ),
  );
  const empty = tableToIPC(new Table(schema), "stream");
  const schemaBytes = empty.length - END_BYTES;
  yield empty.subarray(0, schemaBytes);
  for await (const batch of batches) {
    const children = answerColumns(batch, shape).map((column) => arrowData(column, batch.length));
    const data = makeData({
      type: new Struct(schema.fields),
      length: batch.length,
      nullCount: 0,
      children,
    });
    // A stream of this batch alone, less the schema before it and the end after it.
    const stream = tableToIPC(new Table([new RecordBatch(schema, data)]), "stream");
    yield stream.subarray(schemaBytes, stream.length - END_BYTES);
  }
  yield empty.subarray(schemaBytes);
}

function arrowData(column: AnswerColumn, length: number): Data {
  const type = TYPES[column.kind]();
  if (column.kind === "text" && "codes" in column) {
    return makeData({ type: type as Utf8, length, ...validity(column, length), ...texts(column) });
  }
  const numbers = "codes" in column ? expanded(column) : column.values;
  if (column.kind === "flag") {
    const data = packBits(length, (row) => numbers[row] === 1);
    return makeData({ type: type as Bool, length, nullCount: 0, data });
  }
  const valid = validity(column, length);
  const floats = numbers as Float64Array;
  const data =
    column.kind === "number" ? floats : new BigInt64Array(int64s(floats).buffer as ArrayBuffer);
  return makeData({ type: type as Float64, length, ...valid, data: data as Float64Array });
}

/** A dictionary column of numbers, row by row; null is NaN. */
function expanded({ codes, dictionary }: Extract<AnswerColumn, { codes: unknown }>): Float64Array {
  const entries = Float64Array.from(dictionary, (entry) => (entry === null ? NaN : Number(entry)));
  const values = new Float64Array(codes.length);
  for (let row = 0; row < values.length; row++) {
    values[row] = entries[codes[row] as number] as number;
  }
  return values;
}

/** Offsets and bytes of a text column; runs of one text are doubled in place. */
function texts({ codes, dictionary }: Extract<AnswerColumn, { codes: unknown }>) {
  const encoder = new TextEncoder();
  const entries = dictionary.map((entry) => encoder.encode(entry === null ? "" : String(entry)));
  const valueOffsets = new Int32Array(codes.length + 1);
  for (let row = 0; row < codes.length; row++) {
    valueOffsets[row + 1] =
      (valueOffsets[row] as number) + (entries[codes[row] as number] as Uint8Array).length;
  }
  const data = new Uint8Array(valueOffsets[codes.length] as number);
  for (let row = 0; row < codes.length; ) {
    const code = codes[row] as number;
    let end = row + 1;
    while (end < codes.length && codes[end] === code) end++;
    const [from, to] = [valueOffsets[row] as number, valueOffsets[end] as number];
    const entry = entries[code] as Uint8Array;
    data.set(entry, from);
    for (let filled = from + entry.length; filled < to; ) {
      const more = Math.min(filled - from, to - filled);
      data.copyWithin(filled, from, from + more);
      filled += more;
    }
    row = end;
  }
  return { valueOffsets, data };
}

function validity(column: AnswerColumn, length: number) {
  if (!column.optional) return { nullCount: 0 };
  const present = (row: number) => {
    if ("codes" in column) return column.dictionary[column.codes[row] as number] !== null;
    return column.values[row] === column.values[row];
  };
  let nullCount = 0;
  for (let row = 0; row < length; row++) if (!present(row)) nullCount++;
  return nullCount === 0 ? { nullCount } : { nullCount, nullBitmap: packBits(length, present) };
}

function packBits(length: number, isSet: (row: number) => boolean): Uint8Array {
  const bits = new Uint8Array(Math.ceil(length / 8));
  for (let row = 0; row < length; row++) {
    if (isSet(row)) bits[row >> 3] = (bits[row >> 3] as number) | (1 << (row & 7));
  }
  return bits;
}
