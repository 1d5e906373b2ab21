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
  TimestampMicrosecond,
  tableToIPC,
  Utf8,
} from "apache-arrow";
import { int64s, packedFlags } from "./pages.ts";
import { type AnswerColumn, type Table as AnswerTable, factorOf } from "./record.ts";

const TYPES: Readonly<Record<AnswerColumn["kind"], DataType>> = {
  instant: new TimestampMicrosecond("UTC"),
  text: new Utf8(),
  number: new Float64(),
  count: new Int64(),
  flag: new Bool(),
};

/** A stream ends with a continuation marker and a length of zero. */
const END_BYTES = 8;

/** Tables of the same columns as one Arrow IPC stream, in parts. */
export async function* encodeArrow(
  tables: AsyncIterable<AnswerTable>,
  header: readonly AnswerColumn[],
): AsyncGenerator<Uint8Array> {
  const schema = new Schema(
    header.map(({ name, kind, optional }) => new Field(name, TYPES[kind], optional)),
  );
  const empty = tableToIPC(new Table(schema), "stream");
  const schemaBytes = empty.length - END_BYTES;
  yield empty.subarray(0, schemaBytes);
  for await (const table of tables) {
    const children = table.columns.map((column) => arrowData(column, table.length));
    const data = makeData({
      type: new Struct(schema.fields),
      length: table.length,
      nullCount: 0,
      children,
    });
    // The stream of this batch alone, without the schema before it and the end after it.
    const stream = tableToIPC(new Table([new RecordBatch(schema, data)]), "stream");
    yield stream.subarray(schemaBytes, stream.length - END_BYTES);
  }
  yield empty.subarray(schemaBytes);
}

function arrowData(column: AnswerColumn, length: number): Data {
  const valid = validity(column, length);
  if (column.kind === "text" && "codes" in column) return textData(column, length, valid);
  const type = TYPES[column.kind];
  const numbers = "codes" in column ? expanded(column) : column.values;
  if (column.kind === "flag") {
    const data = packedFlags(length, (row) => numbers[row] === 1);
    return makeData({ type: type as Bool, length, nullCount: 0, data });
  }
  const floats = numbers as Float64Array;
  const factor = factorOf(column.kind);
  const data =
    column.kind === "number"
      ? floats
      : new BigInt64Array(int64s(floats, factor).buffer as ArrayBuffer);
  return makeData({ type: type as Float64, length, ...valid, data: data as Float64Array });
}

/** A text a row: readers find the same type as in the other formats, not codes of a dictionary. */
function textData(
  { codes, dictionary }: Extract<AnswerColumn, { codes: unknown }>,
  length: number,
  valid: ReturnType<typeof validity>,
): Data {
  const entries = dictionary.map((entry) => new TextEncoder().encode(String(entry ?? "")));
  const valueOffsets = new Int32Array(length + 1);
  for (let row = 0, end = 0; row < length; row++) {
    end += (entries[codes[row] as number] as Uint8Array).length;
    valueOffsets[row + 1] = end;
  }
  const data = new Uint8Array(valueOffsets[length] as number);
  if (entries.length === 1) repeat(data, entries[0] as Uint8Array);
  else {
    for (let row = 0; row < length; row++) {
      data.set(entries[codes[row] as number] as Uint8Array, valueOffsets[row]);
    }
  }
  return makeData({ type: new Utf8(), length, ...valid, valueOffsets, data });
}

/** Fills an array with one text again and again. */
function repeat(out: Uint8Array, text: Uint8Array) {
  out.set(text.subarray(0, out.length));
  for (let filled = text.length; filled > 0 && filled < out.length; filled *= 2) {
    out.copyWithin(filled, 0, Math.min(filled, out.length - filled));
  }
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
  return nullCount === 0 ? { nullCount } : { nullCount, nullBitmap: packedFlags(length, present) };
}
