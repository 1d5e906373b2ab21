// Rows as an Arrow IPC stream, one record batch a batch of rows.

import {
  Bool,
  type Data,
  type DataType,
  Dictionary,
  Field,
  Float64,
  Int32,
  Int64,
  makeData,
  makeVector,
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

/** The type of a column; a text's dictionary has the column's index as its id. */
function typeOf(kind: AnswerColumn["kind"], index: number): DataType {
  if (kind === "text") return new Dictionary(new Utf8(), new Int32(), index);
  if (kind === "instant") return new TimestampMillisecond("UTC");
  return kind === "number" ? new Float64() : kind === "count" ? new Int64() : new Bool();
}

/** A stream ends with a continuation marker and a length of zero. */
const END_BYTES = 8;

/** The rows of the batches as one Arrow IPC stream, in parts. */
export async function* encodeArrow(
  batches: AsyncIterable<Batch>,
  shape: RecordShape,
): AsyncGenerator<Uint8Array> {
  const schema = new Schema(
    answerColumns(null, shape).map(
      ({ name, kind, optional }, index) => new Field(name, typeOf(kind, index), optional),
    ),
  );
  const empty = tableToIPC(new Table(schema), "stream");
  const schemaBytes = empty.length - END_BYTES;
  yield empty.subarray(0, schemaBytes);
  for await (const batch of batches) {
    const children = answerColumns(batch, shape).map((column, index) =>
      arrowData(column, typeOf(column.kind, index), batch.length),
    );
    const data = makeData({
      type: new Struct(schema.fields),
      length: batch.length,
      nullCount: 0,
      children,
    });
    // The stream of this batch alone, without the schema before it and the end after it.
    const stream = tableToIPC(new Table([new RecordBatch(schema, data)]), "stream");
    yield stream.subarray(schemaBytes, stream.length - END_BYTES);
  }
  yield empty.subarray(schemaBytes);
}

function arrowData(column: AnswerColumn, type: DataType, length: number): Data {
  if (column.kind === "text" && "codes" in column) {
    return makeData({
      type: type as Dictionary<Utf8, Int32>,
      length,
      ...validity(column, length),
      data: Int32Array.from(column.codes),
      dictionary: makeVector(textData(column.dictionary)),
    });
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

/** A dictionary's texts. The library's own builder compiles code, which Workers refuse. */
function textData(dictionary: readonly unknown[]) {
  const entries = dictionary.map((entry) => new TextEncoder().encode(String(entry ?? "")));
  const valueOffsets = new Int32Array(entries.length + 1);
  for (const [index, { length }] of entries.entries()) {
    valueOffsets[index + 1] = (valueOffsets[index] as number) + length;
  }
  const data = new Uint8Array(valueOffsets.at(-1) ?? 0);
  for (const [index, entry] of entries.entries()) data.set(entry, valueOffsets[index]);
  return makeData({ type: new Utf8(), length: entries.length, nullCount: 0, valueOffsets, data });
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
