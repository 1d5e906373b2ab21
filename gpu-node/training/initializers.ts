// The weights in an ONNX file, read as data: no graph is run, no other file is opened, and numbers
// are taken only where they are as many as their shape says.

import * as fs from "node:fs/promises";
import { TaskFailure } from "../base/failure.ts";
import { readsOutside } from "../onnx/external-data.ts";
import { decodeModel, type OnnxModel } from "../onnx/model-file.ts";

export interface Weights {
  name: string;
  shape: readonly number[];
  values: Float32Array;
}

/** The same weights in two orders: as the file lists them, and as its operations use them. */
export interface OnnxWeights {
  listed: Weights[];
  used: Weights[];
}

const BYTES_MAX = 1024 ** 3;
const FLOAT = 1;
const HALF = 10;
const DOUBLE = 11;
/** Operations with weights, and the places of these among their inputs. */
const WEIGHTED: Readonly<Record<string, readonly number[]>> = {
  Conv: [1, 2],
  ConvTranspose: [1, 2],
  BatchNormalization: [1, 2, 3, 4],
};

const bad = (reason: string, cause?: unknown) =>
  new TaskFailure("bad_weights", `the ONNX file cannot be used: ${reason}`, { cause });

/** Reads what convolutions and normalisations weigh. Fails with `bad_weights`. */
export async function readInitializers(path: string): Promise<OnnxWeights> {
  const file = await fs.open(path);
  try {
    const { size } = await file.stat();
    if (size > BYTES_MAX) throw bad("it has more than 1 GiB");
    const outside = await readsOutside(file).catch((thrown: unknown) => {
      throw bad("it is no ONNX file, or not whole", thrown);
    });
    if (outside) throw bad("its weights lie in another file: save them inside it");
    return weightsOf(parse(await file.readFile()));
  } finally {
    await file.close();
  }
}

function parse(bytes: Uint8Array): OnnxModel {
  try {
    return decodeModel(bytes);
  } catch (thrown) {
    throw bad("it is no ONNX file, or not whole", thrown);
  }
}

function weightsOf({ graph }: OnnxModel): OnnxWeights {
  const initializers = new Map((graph?.initializer ?? []).map((one) => [one.name ?? "", one]));
  const names = (graph?.node ?? []).flatMap(({ opType, input }) =>
    (WEIGHTED[opType ?? ""] ?? []).flatMap((index) => input?.[index] || []),
  );
  const used = [...new Set(names)].flatMap((name) => {
    const tensor = initializers.get(name);
    return tensor ? [read(name, tensor)] : [];
  });
  const byName = new Map(used.map((one) => [one.name, one]));
  const listed = [...initializers.keys()].flatMap((name) => byName.get(name) ?? []);
  return { listed, used };
}

type Tensor = NonNullable<NonNullable<OnnxModel["graph"]>["initializer"]>[number];

function read(name: string, tensor: Tensor): Weights {
  const shape = (tensor.dims ?? []).map(Number);
  const count = shape.reduce((product, side) => product * side, 1);
  const values = valuesOf(tensor, count);
  if (!values) throw bad(`${name.slice(0, 80)} holds no numbers of a kind we read`);
  if (values.length !== count) throw bad(`${name.slice(0, 80)} has not as many numbers as it says`);
  return { name, shape, values };
}

function valuesOf(tensor: Tensor, count: number): Float32Array | null {
  const raw = tensor.rawData ?? new Uint8Array();
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  const from = (width: number, at: (index: number) => number) =>
    raw.length === count * width
      ? Float32Array.from({ length: count }, (_, n) => at(n * width))
      : null;
  if (tensor.dataType === FLOAT) {
    if (raw.length === 0) return Float32Array.from(tensor.floatData ?? []);
    return from(4, (at) => view.getFloat32(at, true));
  }
  if (tensor.dataType === HALF) {
    // Each of these integers holds the bits of one half.
    if (raw.length === 0)
      return Float32Array.from(new Float16Array(Uint16Array.from(tensor.int32Data).buffer));
    return from(2, (at) => view.getFloat16(at, true));
  }
  if (tensor.dataType !== DOUBLE) return null;
  if (raw.length === 0) return Float32Array.from(tensor.doubleData ?? []);
  return from(8, (at) => view.getFloat64(at, true));
}
