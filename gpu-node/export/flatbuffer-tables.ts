// Tables and vectors of a FlatBuffers file, by the numbers of their fields: what generated code
// would do for each table of a schema, done once for all.

import type { Builder, Offset } from "flatbuffers";

/** A field of a table: a number of some width, or what was written before and is referred to. */
export type TableField =
  | { int8: number }
  | { int32: number }
  | { float32: number }
  | { bool: boolean }
  | { offset: Offset };

/** Writes a table whose fields are these, in the order of their numbers; null leaves one out. */
export function writeTable(builder: Builder, fields: readonly (TableField | null)[]): Offset {
  builder.startObject(fields.length);
  for (const [slot, field] of fields.entries()) {
    if (field === null) continue;
    if ("offset" in field) builder.addFieldOffset(slot, field.offset, 0);
    else if ("int8" in field) builder.addFieldInt8(slot, field.int8, 0);
    else if ("int32" in field) builder.addFieldInt32(slot, field.int32, 0);
    else if ("float32" in field) builder.addFieldFloat32(slot, field.float32, 0);
    else builder.addFieldInt8(slot, Number(field.bool), 0);
  }
  return builder.endObject();
}

/** Writes a vector; a builder works from a file's end to its start, so the last comes first. */
function writeVector<Value>(
  builder: Builder,
  values: readonly Value[],
  { bytes, add }: { bytes: 4 | 8; add: (value: Value) => void },
): Offset {
  builder.startVector(bytes, values.length, bytes);
  for (let index = values.length - 1; index >= 0; index--) add(values[index] as Value);
  return builder.endVector();
}

export const writeInt32s = (builder: Builder, values: readonly number[]): Offset =>
  writeVector(builder, values, { bytes: 4, add: (value) => builder.addInt32(value) });

export const writeInt64s = (builder: Builder, values: readonly number[]): Offset =>
  writeVector(builder, values, { bytes: 8, add: (value) => builder.addInt64(BigInt(value)) });

export const writeFloat32s = (builder: Builder, values: readonly number[]): Offset =>
  writeVector(builder, values, { bytes: 4, add: (value) => builder.addFloat32(value) });

/** A vector of tables or texts that were written before. */
export const writeOffsets = (builder: Builder, values: readonly Offset[]): Offset =>
  writeVector(builder, values, { bytes: 4, add: (value) => builder.addOffset(value) });

/** Bytes that begin at a multiple of sixteen: runtimes map constants from the file as they lie. */
export function writeAlignedBytes(builder: Builder, bytes: Uint8Array): Offset {
  builder.prep(16, bytes.length);
  return builder.createByteVector(bytes);
}
