// Detectors with generated weights: files in the format of the registry, and a second, slow way to
// compute what they give, in plain double-precision arithmetic from the weights as trained.

import { createHash } from "node:crypto";
import {
  type DetectorGraph,
  type DetectorTask,
  detectorGraph,
  type GraphNode,
  stateTensors,
} from "../../shared/detector/detector.ts";
import type { ModelSource, ObjectSource } from "../../shared/tasks/tasks.ts";

/** A small generator of evenly spread numbers in 0 to 1 (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export type Tensors = Map<string, { shape: readonly number[]; values: Float32Array }>;

/** Weights under which activations neither vanish nor explode, and boxes have some size. */
export function randomWeights(graph: DetectorGraph, seed = 1): Tensors {
  const random = seeded(seed);
  return new Map(
    stateTensors(graph).map(({ name, shape }) => {
      const count = shape.reduce((product, side) => product * side, 1);
      const values = new Float32Array(count).fill(1);
      const range = rangeOf(name, shape);
      // There are millions of values, so a tensor's range is looked up once and not for each.
      if (range) {
        const { around, by } = range;
        for (let index = 0; index < count; index++)
          values[index] = around + (2 * random() - 1) * by;
      }
      return [name, { shape, values }];
    }),
  );
}

/** What a tensor's random values lie around, and how far from it; null where they are 1. */
function rangeOf(name: string, shape: readonly number[]): { around: number; by: number } | null {
  if (name.endsWith("norm.variance")) return { around: 1, by: 0.5 };
  if (name.endsWith("norm.weight")) return { around: 1, by: 0.3 };
  if (name.endsWith("norm.batches")) return null;
  const taps = shape.slice(1).reduce((product, side) => product * side, 1);
  if (shape.length === 4) return { around: 0, by: 2 / Math.sqrt(taps) };
  if (/\.box\.\d\.2\.bias$/.test(name)) return { around: 2, by: 0.5 };
  return { around: 0, by: 0.3 };
}

/**
 * Weights under which boxes hardly depend on what is seen. The boxes of random ones are sums of
 * large numbers, of which int8 keeps six pixels' worth; those of a detector that learned are not.
 */
export function steadyTensors(classes: number, task: DetectorTask): Tensors {
  const tensors = randomWeights(detectorGraph("det26n", classes, task));
  for (const [name, { values }] of tensors) {
    if (!/o2o\.(box|mask)\.\d\.2\.weight$/.test(name)) continue;
    for (const [at, value] of values.entries()) values[at] = value / 4;
  }
  return tensors;
}

/** A safetensors file of these tensors. */
export function tensorFile(tensors: Tensors, metadata: Record<string, string> = {}): Buffer {
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

export const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

/** Pixels a side of the images that a generated model was trained for, unless it is given. */
export const GENERATED_SIDE = 96;

/** A file of weights. */
interface WeightsFile {
  bytes: Buffer;
  sha256: string;
}

/** Those that were generated in this process, by what decides them: one takes half a second. */
const kept = globalThis as { generatedWeights?: Map<string, WeightsFile> };

function generatedFile(
  { variant, classes, task }: Omit<ModelSource, "sha256" | "weights">,
  seed: number,
) {
  kept.generatedWeights ??= new Map();
  const name = JSON.stringify([variant, classes.length, task, seed]);
  let file = kept.generatedWeights.get(name);
  if (!file) {
    const bytes = tensorFile(randomWeights(detectorGraph(variant, classes.length, task), seed));
    file = { bytes, sha256: sha256(bytes) };
    kept.generatedWeights.set(name, file);
  }
  return file;
}

/** A model of the registry with generated weights, put where `store` puts objects. */
export function generatedModel(
  store: (key: string, bytes: Buffer) => ObjectSource,
  more: Partial<ModelSource> & { seed?: number; file?: Buffer } = {},
): ModelSource {
  const { seed = 1, file, ...given } = more;
  const model: Omit<ModelSource, "sha256" | "weights"> = {
    model_id: crypto.randomUUID(),
    variant: "det26n",
    task: "detection",
    image_size: GENERATED_SIDE,
    classes: ["disc", "square", "star"],
    ...given,
  };
  const made = file ? { bytes: file, sha256: sha256(file) } : generatedFile(model, seed);
  const weights = store(`ws/a/models/${model.model_id}/weights.safetensors`, made.bytes);
  return { ...model, sha256: more.sha256 ?? made.sha256, weights };
}

export interface Plane {
  channels: number;
  height: number;
  width: number;
  values: Float64Array;
}

const plane = (channels: number, height: number, width: number): Plane => ({
  channels,
  height,
  width,
  values: new Float64Array(channels * height * width),
});

/** The maps of every node of a graph for one image, as the operations are defined. */
export function computeMaps(graph: DetectorGraph, tensors: Tensors, image: Plane): Plane[] {
  const maps: Plane[] = [];
  const tensor = (name: string) => tensors.get(name)?.values as Float32Array;
  for (const node of graph.nodes) maps.push(computeNode(node, maps, tensor, image));
  return maps;
}

type ReadTensor = (name: string) => Float32Array;

function computeNode(
  node: GraphNode,
  maps: readonly Plane[],
  tensor: ReadTensor,
  image: Plane,
): Plane {
  const of = (index: number) => maps[index] as Plane;
  switch (node.op) {
    case "input":
      return image;
    case "conv":
      return convolve(node, of(node.input), tensor);
    case "conv_transpose":
      return spreadOut(node, of(node.input), tensor);
    case "add": {
      const [one, other] = node.inputs.map(of) as [Plane, Plane];
      return { ...one, values: one.values.map((value, at) => value + (other.values[at] ?? 0)) };
    }
    case "concat": {
      const parts = node.inputs.map(of);
      const { height, width } = parts[0] as Plane;
      const values = Float64Array.from(parts.flatMap((part) => [...part.values]));
      return { channels: node.channels, height, width, values };
    }
    case "slice": {
      const { height, width, values } = of(node.input);
      const cells = height * width;
      const taken = values.slice(node.from * cells, node.to * cells);
      return { channels: node.channels, height, width, values: taken };
    }
    case "max_pool": {
      const from = of(node.input);
      const half = Math.floor(node.kernel / 2);
      return each(from.channels, from.height, from.width, (channel, y, x) => {
        let max = Number.NEGATIVE_INFINITY;
        for (let row = y - half; row <= y + half; row++)
          for (let column = x - half; column <= x + half; column++)
            if (row >= 0 && row < from.height && column >= 0 && column < from.width)
              max = Math.max(max, at(from, channel, row, column));
        return max;
      });
    }
    case "upsample": {
      const { factor } = node;
      const from = of(node.input);
      return each(from.channels, from.height * factor, from.width * factor, (channel, y, x) =>
        at(from, channel, Math.floor(y / factor), Math.floor(x / factor)),
      );
    }
    case "attention":
      return attend(node, of(node.input));
    case "values": {
      const { heads, key, value } = node;
      const from = of(node.input);
      return each(heads * value, from.height, from.width, (channel, y, x) => {
        const head = Math.floor(channel / value);
        return at(from, head * (2 * key + value) + 2 * key + (channel % value), y, x);
      });
    }
    case "detach":
      return of(node.input);
  }
}

const at = ({ height, width, values }: Plane, channel: number, y: number, x: number) =>
  values[(channel * height + y) * width + x] as number;

function each(
  channels: number,
  height: number,
  width: number,
  value: (channel: number, y: number, x: number) => number,
): Plane {
  const made = plane(channels, height, width);
  let index = 0;
  for (let channel = 0; channel < channels; channel++)
    for (let y = 0; y < height; y++)
      for (let x = 0; x < width; x++) made.values[index++] = value(channel, y, x);
  return made;
}

function convolve(
  { name, kernel, step, groups, channels, normalized, silu }: Extract<GraphNode, { op: "conv" }>,
  from: Plane,
  tensor: ReadTensor,
): Plane {
  const weight = tensor(`${name}.weight`);
  const part = (which: string, channel: number) => tensor(`${name}.${which}`)[channel] as number;
  const inputs = from.channels / groups;
  const half = Math.floor(kernel / 2);
  return each(channels, from.height / step, from.width / step, (channel, y, x) => {
    const first = Math.floor(channel / (channels / groups)) * inputs;
    let sum = normalized ? 0 : part("bias", channel);
    for (let input = 0; input < inputs; input++)
      for (let row = 0; row < kernel; row++) {
        const sourceY = y * step + row - half;
        if (sourceY < 0 || sourceY >= from.height) continue;
        for (let column = 0; column < kernel; column++) {
          const sourceX = x * step + column - half;
          if (sourceX < 0 || sourceX >= from.width) continue;
          const tap = ((channel * inputs + input) * kernel + row) * kernel + column;
          sum += (weight[tap] as number) * at(from, first + input, sourceY, sourceX);
        }
      }
    if (normalized) {
      const scale = part("norm.weight", channel) / Math.sqrt(part("norm.variance", channel) + 1e-3);
      sum = (sum - part("norm.mean", channel)) * scale + part("norm.bias", channel);
    }
    return silu ? sum / (1 + Math.exp(-sum)) : sum;
  });
}

function spreadOut(
  { name, channels }: Extract<GraphNode, { op: "conv_transpose" }>,
  from: Plane,
  tensor: ReadTensor,
): Plane {
  const weight = tensor(`${name}.weight`);
  return each(channels, from.height * 2, from.width * 2, (channel, y, x) => {
    let sum = tensor(`${name}.bias`)[channel] as number;
    for (let input = 0; input < from.channels; input++) {
      const tap = ((input * channels + channel) * 2 + (y % 2)) * 2 + (x % 2);
      sum += (weight[tap] as number) * at(from, input, Math.floor(y / 2), Math.floor(x / 2));
    }
    return sum;
  });
}

/** out[:, i] = Σⱼ v[:, j] · softmaxⱼ(q[:, i] · k[:, j] / √key). */
function attend(
  { heads, key, value }: Extract<GraphNode, { op: "attention" }>,
  from: Plane,
): Plane {
  const cells = from.height * from.width;
  const made = plane(heads * value, from.height, from.width);
  for (let head = 0; head < heads; head++) {
    const row = (channel: number, cell: number) =>
      from.values[(head * (2 * key + value) + channel) * cells + cell] as number;
    for (let i = 0; i < cells; i++) {
      const likeness = Array.from({ length: cells }, (_, j) => {
        let sum = 0;
        for (let channel = 0; channel < key; channel++)
          sum += row(channel, i) * row(key + channel, j);
        return sum / Math.sqrt(key);
      });
      const max = Math.max(...likeness);
      const shares = likeness.map((one) => Math.exp(one - max));
      const total = shares.reduce((sum, share) => sum + share, 0);
      for (let channel = 0; channel < value; channel++) {
        let sum = 0;
        for (let j = 0; j < cells; j++) sum += (shares[j] as number) * row(2 * key + channel, j);
        made.values[(head * value + channel) * cells + i] = sum / total;
      }
    }
  }
  return made;
}
