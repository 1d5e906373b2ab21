// The safetensors format: names, shapes and bytes of tensors behind a JSON header, whose length in
// bytes the first eight bytes say. A file is read within its bounds or refused; nothing in it is
// ever run.

import { z } from "zod";

/** A tensor as its file has it: little-endian numbers, row by row. */
export interface RawTensor {
  dtype: string;
  shape: readonly number[];
  bytes: Uint8Array;
}

export interface TensorFile {
  tensors: ReadonlyMap<string, RawTensor>;
  metadata: Readonly<Record<string, string>>;
}

/** The bytes are no file of this format; the message says why. */
export class SafetensorsError extends Error {
  override readonly name = "SafetensorsError";
}

/** What the format's own reader takes at most. */
const HEADER_BYTES_MAX = 100_000_000;
/** Bytes at a file's start that hold its header's length. */
const LENGTH_BYTES = 8;

/** Bytes of one number, by type. */
export const DTYPE_BYTES: Readonly<Record<string, number>> = {
  BOOL: 1,
  U8: 1,
  I8: 1,
  F8_E5M2: 1,
  F8_E4M3: 1,
  I16: 2,
  U16: 2,
  F16: 2,
  BF16: 2,
  I32: 4,
  U32: 4,
  F32: 4,
  F64: 8,
  I64: 8,
  U64: 8,
};

const whole = () => z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const Entry = z.object({
  dtype: z.string(),
  shape: z.array(whole()).max(8),
  data_offsets: z.tuple([whole(), whole()]),
});
type Entry = z.infer<typeof Entry>;
const Metadata = z.record(z.string(), z.string());

/** The length of the header in bytes, by a file's first eight; null where no file begins so. */
export function headerBytes(head: Uint8Array): number | null {
  if (head.length < LENGTH_BYTES) return null;
  const bytes = new DataView(head.buffer, head.byteOffset, LENGTH_BYTES).getBigUint64(0, true);
  return bytes > BigInt(HEADER_BYTES_MAX) ? null : Number(bytes);
}

/** The tensors of a file's bytes, which they share. Fails with SafetensorsError. */
export function parseTensors(file: Uint8Array): TensorFile {
  if (file.length < LENGTH_BYTES) throw new SafetensorsError("the file is too short");
  const length = headerBytes(file);
  if (length === null || length > file.length - LENGTH_BYTES)
    throw new SafetensorsError("its header is longer than the file");
  const { metadata, listed } = parseHeader(file.subarray(LENGTH_BYTES, LENGTH_BYTES + length));
  const data = file.subarray(LENGTH_BYTES + length);
  const tensors = new Map<string, RawTensor>();
  let end = 0;
  const entries = Object.entries(listed).map(([name, value]): [string, Entry] => [
    name,
    entryOf(name, value),
  ]);
  // Every byte belongs to one tensor: a file with holes or overlaps was not written as one.
  for (const [name, { dtype, shape, data_offsets }] of entries.sort(byOffset)) {
    const [from, to] = data_offsets;
    const width = DTYPE_BYTES[dtype];
    if (width === undefined) throw new SafetensorsError(`${name} is of the unknown type ${dtype}`);
    const bytes = shape.reduce((product, side) => product * side, width);
    if (from !== end || to - from !== bytes)
      throw new SafetensorsError(`${name} is not where the header says`);
    if (to > data.length) throw new SafetensorsError(`${name} lies beyond the file's end`);
    tensors.set(name, { dtype, shape, bytes: data.subarray(from, to) });
    end = to;
  }
  if (end !== data.length) throw new SafetensorsError("there are bytes behind the last tensor");
  return { tensors, metadata };
}

const byOffset = ([, one]: [string, Entry], [, other]: [string, Entry]) =>
  one.data_offsets[0] - other.data_offsets[0];

/** A header's metadata and, unchecked, its tensors by name. Fails with SafetensorsError. */
export function parseHeader(bytes: Uint8Array): {
  metadata: Readonly<Record<string, string>>;
  listed: Record<string, unknown>;
} {
  const { __metadata__: given = {}, ...listed } = objectOf(bytes);
  const metadata = Metadata.safeParse(given);
  if (!metadata.success) throw new SafetensorsError("its metadata are no texts");
  return { metadata: metadata.data, listed };
}

function objectOf(bytes: Uint8Array): Record<string, unknown> {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes);
    return z.record(z.string(), z.unknown()).parse(JSON.parse(text));
  } catch (cause) {
    throw new SafetensorsError("its header is no JSON object", { cause });
  }
}

function entryOf(name: string, value: unknown): Entry {
  const entry = Entry.safeParse(value);
  if (entry.success) return entry.data;
  throw new SafetensorsError(`the header says nothing usable of ${name.slice(0, 80)}`);
}

/**
 * A float tensor's values in single precision, whatever precision they are stored in. Fails with
 * SafetensorsError for numbers of another kind.
 */
export function floatsOf({ dtype, bytes }: RawTensor, name: string): Float32Array {
  // A copy begins where numbers of any width may begin; every machine of ours is little-endian.
  if (dtype === "F32") return new Float32Array(Uint8Array.from(bytes).buffer);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const read = READERS[dtype];
  if (!read) throw new SafetensorsError(`${name} holds no floats but ${dtype}`);
  const values = new Float32Array(bytes.length / (DTYPE_BYTES[dtype] ?? 1));
  for (let index = 0; index < values.length; index++) values[index] = read(view, index);
  return values;
}

const widened = new DataView(new ArrayBuffer(4));

const READERS: Readonly<Record<string, (view: DataView, index: number) => number>> = {
  F64: (view, index) => view.getFloat64(index * 8, true),
  F16: (view, index) => view.getFloat16(index * 2, true),
  // A bfloat16 is the upper half of a single-precision number.
  BF16: (view, index) => {
    widened.setUint16(0, view.getUint16(index * 2, true));
    return widened.getFloat32(0);
  },
};
