// Files of weights as a task reads and writes them: safetensors, or `bad_weights`.

import {
  DTYPE_BYTES,
  parseTensors,
  type RawTensor,
  SafetensorsError,
  type TensorFile,
} from "../../shared/safetensors.ts";
import { TaskFailure } from "../base/failure.ts";

const bad = (reason: string, cause?: unknown) =>
  new TaskFailure("bad_weights", `the weights cannot be read: ${reason}`, { cause });

/** The tensors of a file's bytes, which they share. Fails with `bad_weights`. */
export function readTensors(file: Uint8Array): TensorFile {
  try {
    return parseTensors(file);
  } catch (thrown) {
    throw thrown instanceof SafetensorsError ? bad(thrown.message, thrown) : thrown;
  }
}

/** A float tensor's values in single precision, whatever precision they are stored in. */
export function floatsOf({ dtype, bytes }: RawTensor, name: string): Float32Array {
  // A copy begins where numbers of any width may begin; every machine of ours is little-endian.
  if (dtype === "F32") return new Float32Array(Uint8Array.from(bytes).buffer);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const read = READERS[dtype];
  if (!read) throw bad(`${name} holds no floats but ${dtype}`);
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

/** A file of single-precision tensors, in the order given. */
export function writeTensors(
  tensors: ReadonlyMap<string, { shape: readonly number[]; values: Float32Array }>,
  metadata: Readonly<Record<string, string>> = {},
): Buffer {
  const header: Record<string, unknown> = { __metadata__: metadata };
  let offset = 0;
  for (const [name, { shape, values }] of tensors) {
    header[name] = { dtype: "F32", shape, data_offsets: [offset, offset + values.byteLength] };
    offset += values.byteLength;
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const bodies = [...tensors.values()].map(({ values }) =>
    Buffer.from(values.buffer, values.byteOffset, values.byteLength),
  );
  return Buffer.concat([length, text, ...bodies]);
}
