// The safetensors format: names, shapes and bytes of tensors behind a JSON header. A file is read
// within its bounds or refused with `bad_weights`; nothing in it is ever run.

import { z } from "zod";
import { TaskFailure } from "../base/failure.ts";
import { halfToFloat } from "../onnx/half.ts";

export interface StoredTensor {
  dtype: string;
  shape: readonly number[];
  /** As the file has them: little-endian, row by row. */
  bytes: Uint8Array;
}

export interface TensorFile {
  tensors: ReadonlyMap<string, StoredTensor>;
  metadata: Readonly<Record<string, string>>;
}

/** What the format's own reader takes at most. */
const HEADER_BYTES_MAX = 100_000_000;

const WIDTHS: Readonly<Record<string, number>> = {
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
const Metadata = z.record(z.string(), z.string());

const bad = (reason: string, cause?: unknown) =>
  new TaskFailure("bad_weights", `the weights cannot be read: ${reason}`, { cause });

/** The tensors of a file's bytes, which they share. */
export function readTensors(file: Uint8Array): TensorFile {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  if (file.length < 8) throw bad("the file is too short");
  const headerBytes = view.getBigUint64(0, true);
  if (headerBytes > BigInt(Math.min(HEADER_BYTES_MAX, file.length - 8))) {
    throw bad("its header is longer than the file");
  }
  const data = file.subarray(8 + Number(headerBytes));
  const header = parseHeader(file.subarray(8, 8 + Number(headerBytes)));
  const { __metadata__: given = {}, ...listed } = header;
  const metadata = Metadata.safeParse(given);
  if (!metadata.success) throw bad("its metadata are no texts");
  const tensors = new Map<string, StoredTensor>();
  let end = 0;
  const entries = Object.entries(listed).map(([name, value]) => [name, entryOf(name, value)]);
  const inOrder = (entries as [string, z.infer<typeof Entry>][]).sort(
    ([, one], [, other]) => one.data_offsets[0] - other.data_offsets[0],
  );
  // Every byte belongs to one tensor: a file with holes or overlaps was not written as one.
  for (const [name, { dtype, shape, data_offsets }] of inOrder) {
    const [from, to] = data_offsets;
    const width = WIDTHS[dtype];
    if (width === undefined) throw bad(`${name} is of the unknown type ${dtype}`);
    const bytes = shape.reduce((product, side) => product * side, width);
    if (from !== end || to - from !== bytes) throw bad(`${name} is not where the header says`);
    if (to > data.length) throw bad(`${name} lies beyond the file's end`);
    tensors.set(name, { dtype, shape, bytes: data.subarray(from, to) });
    end = to;
  }
  if (end !== data.length) throw bad("there are bytes behind the last tensor");
  return { tensors, metadata: metadata.data };
}

function parseHeader(bytes: Uint8Array): Record<string, unknown> {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return z.record(z.string(), z.unknown()).parse(JSON.parse(text));
  } catch (thrown) {
    throw bad("its header is no JSON object", thrown);
  }
}

function entryOf(name: string, value: unknown): z.infer<typeof Entry> {
  const entry = Entry.safeParse(value);
  if (!entry.success) throw bad(`the header says nothing usable of ${name.slice(0, 80)}`);
  return entry.data;
}

/** A float tensor's values in single precision, whatever precision they are stored in. */
export function floatsOf({ dtype, bytes }: StoredTensor, name: string): Float32Array {
  // The copy begins at a place that fits numbers of any width, as every machine of ours has them.
  if (dtype === "F32") return new Float32Array(Uint8Array.from(bytes).buffer);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const read = READERS[dtype];
  if (!read) throw bad(`${name} holds no floats but ${dtype}`);
  const values = new Float32Array(bytes.length / (WIDTHS[dtype] as number));
  for (let at = 0; at < values.length; at++) values[at] = read(view, at);
  return values;
}

const widened = new DataView(new ArrayBuffer(4));

const READERS: Readonly<Record<string, (view: DataView, at: number) => number>> = {
  F64: (view, at) => view.getFloat64(at * 8, true),
  F16: (view, at) => halfToFloat(view.getUint16(at * 2, true)),
  // The upper half of a single-precision number.
  BF16: (view, at) => {
    widened.setUint16(0, view.getUint16(at * 2, true));
    return widened.getFloat32(0);
  },
};

/** A file of single-precision tensors, in the order given. */
export function writeTensors(
  tensors: ReadonlyMap<string, { shape: readonly number[]; values: Float32Array }>,
  metadata: Readonly<Record<string, string>> = {},
): Buffer {
  const header: Record<string, unknown> = { __metadata__: metadata };
  let at = 0;
  for (const [name, { shape, values }] of tensors) {
    header[name] = { dtype: "F32", shape, data_offsets: [at, at + values.byteLength] };
    at += values.byteLength;
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const bodies = [...tensors.values()].map(({ values }) =>
    Buffer.from(values.buffer, values.byteOffset, values.byteLength),
  );
  return Buffer.concat([length, text, ...bodies]);
}
