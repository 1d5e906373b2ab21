// Files of weights as a task reads and writes them: safetensors, or `bad_weights`.

import {
  floatsOf as floats,
  parseTensors,
  type RawTensor,
  SafetensorsError,
  type TensorFile,
} from "../../shared/detector/safetensors.ts";
import { TaskFailure } from "../base/failure.ts";

/** A file that is no weights, as a task fails by it. */
export const unreadable = (cause: SafetensorsError) =>
  new TaskFailure("bad_weights", `the weights cannot be read: ${cause.message}`, { cause });

/** The tensors of a file's bytes, which they share. Fails with `bad_weights`. */
export function readTensors(file: Uint8Array): TensorFile {
  try {
    return parseTensors(file);
  } catch (thrown) {
    throw thrown instanceof SafetensorsError ? unreadable(thrown) : thrown;
  }
}

/** A float tensor's values in single precision; fails with `bad_weights` for others. */
export function floatsOf(tensor: RawTensor, name: string): Float32Array {
  try {
    return floats(tensor, name);
  } catch (thrown) {
    throw thrown instanceof SafetensorsError ? unreadable(thrown) : thrown;
  }
}

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
