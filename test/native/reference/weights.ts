// Seeded weights for a graph, exactly representable in single precision, and the safetensors format
// written and read by hand, so that the engine's own reader and writer are checked too.

import { readFileSync, writeFileSync } from "node:fs";
import { type DetectorGraph, stateTensors } from "../../../shared/detector/detector.ts";

export type Random = () => number;

/** Uniform in [0, 1), the same for the same seed everywhere. */
export function seeded(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export const uniform = (random: Random, from: number, to: number): number =>
  Math.fround(from + (to - from) * random());

export type Weights = Map<string, Float32Array>;

/**
 * Weights under which signals neither die nor explode, with statistics and biases away from their
 * defaults. Boxes are about two cells in each direction, scores about 0.1.
 */
export function randomWeights(graph: DetectorGraph, seed: number): Weights {
  const random = seeded(seed);
  const draw = (count: number, from: number, to: number) =>
    Float32Array.from({ length: count }, () => uniform(random, from, to));
  return new Map(
    stateTensors(graph).map(({ name, shape }) => {
      const count = shape.reduce((product, side) => product * side, 1);
      if (name.endsWith("norm.weight")) return [name, draw(count, 0.8, 1.2)];
      if (name.endsWith("norm.bias")) return [name, draw(count, -0.2, 0.2)];
      if (name.endsWith("norm.mean")) return [name, draw(count, -0.2, 0.2)];
      if (name.endsWith("norm.variance")) return [name, draw(count, 0.5, 1.5)];
      if (name.endsWith("norm.batches")) return [name, Float32Array.of(0)];
      if (name.endsWith(".bias")) return [name, draw(count, ...biasRange(name))];
      const inputs = shape.slice(1).reduce((product, side) => product * side, 1);
      const reach = Math.sqrt(4.5 / inputs);
      return [name, draw(count, -reach, reach)];
    }),
  );
}

function biasRange(name: string): [number, number] {
  if (name.includes(".box.")) return [1.5, 2.5];
  return name.includes(".cls.") ? [-3, -1] : [-0.5, 0.5];
}

/** One F32 tensor after the other, behind a header of JSON. */
export function writeSafetensors(
  path: string,
  tensors: readonly { name: string; shape: readonly number[]; values: Float32Array }[],
): void {
  const header: Record<string, unknown> = {};
  let end = 0;
  for (const { name, shape, values } of tensors) {
    header[name] = { dtype: "F32", shape, data_offsets: [end, end + values.byteLength] };
    end += values.byteLength;
  }
  const text = JSON.stringify(header);
  const head = Buffer.from(text.padEnd(Math.ceil(text.length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(head.length));
  const bodies = tensors.map(({ values }) => Buffer.from(values.buffer, 0, values.byteLength));
  writeFileSync(path, Buffer.concat([length, head, ...bodies]));
}

export function writeWeights(path: string, graph: DetectorGraph, weights: Weights): void {
  writeSafetensors(
    path,
    stateTensors(graph).map(({ name, shape }) => ({
      name,
      shape,
      values: weights.get(name) as Float32Array,
    })),
  );
}

/** Of a file of F32 and I64 tensors. */
export function readSafetensors(path: string): Map<string, Float64Array> {
  const bytes = readFileSync(path);
  const start = 8 + Number(bytes.readBigUInt64LE());
  const header: Record<string, { dtype: string; data_offsets: [number, number] }> = JSON.parse(
    bytes.toString("utf8", 8, start),
  );
  return new Map(
    Object.entries(header)
      .filter(([name]) => name !== "__metadata__")
      .map(
        ([
          name,
          {
            dtype,
            data_offsets: [from, to],
          },
        ]) => {
          const body = new Uint8Array(bytes.subarray(start + from, start + to)).buffer;
          if (dtype === "F32") return [name, Float64Array.from(new Float32Array(body))];
          if (dtype === "I64") return [name, Float64Array.from(new BigInt64Array(body), Number)];
          throw new Error(`${name} is ${dtype}`);
        },
      ),
  );
}
