// A detector's ONNX file with int8 written into it as pairs of QuantizeLinear and DequantizeLinear,
// in one of two manners. `cpu`: every map between convolutions is uint8, and biases are int32, as
// onnxruntime's kernels for CPUs want it. `tensorrt`: what convolutions read is int8 on both sides
// of zero, and biases are floats; on a CPU it is slower than single precision, and OpenVINO reads
// it wrongly. Weights are int8 by output channel in both. What integers do badly stays float: the
// products of attention, the last convolution of each branch, boxes and scores.

import { create } from "@bufbuild/protobuf";
import type { ConvWeights, DeployedModel } from "../../shared/detector/deployed-weights.ts";
import type { ConvNode, DetectorGraph } from "../../shared/detector/detector.ts";
import { INPUT } from "../../shared/detector/detector-onnx.ts";
import { decodeModel, encodeModel, GraphWriter } from "../onnx/model-file.ts";
import { type OnnxMessage, TensorProto } from "../onnx/schema.ts";
import { type Affine, affineOf, quantizeBias, quantizeWeights, symmetricOf } from "./affine.ts";
import {
  isHead,
  keepsRange,
  linearNameOf,
  type MapRange,
  type MapRanges,
  mapNameOf,
  SILU_FLOOR,
} from "./ranges.ts";

/** For whom integers are written. */
export type QuantizationManner = "cpu" | "tensorrt";

/** Numbers of TensorProto.DataType. */
const [FLOAT, UINT8, INT8, INT32] = [1, 2, 3, 6];
/**
 * Largest int8 of a weight. Processors without VNNI add two products of uint8 and int8 in 16 bits,
 * which are full beyond 2 · 255 · 64, so weights take 7 bits, as `reduce_range` of onnxruntime's
 * own quantizer has them: with 8 bits 73 of 1,011 objects were off by over 3 pixels of 256 on such
 * a one. On one with VNNI neither was measured.
 */
const STEPS_MAX: Readonly<Record<QuantizationManner, number>> = { cpu: 64, tensorrt: 127 };
/** A uint8's zero point is that of an int8 and so much. */
const UNSIGNED = 128;
/** Steps of the input, 0 to 1, and of a gate, which is a sigmoid's. */
const INPUT_AFFINE: Readonly<Record<QuantizationManner, Affine>> = {
  cpu: { scale: Math.fround(1 / 255), zero: -128 },
  tensorrt: { scale: Math.fround(1 / 127), zero: 0 },
};
const GATE_AFFINE: Affine = { scale: 1 / 256, zero: -128 };

/** The file of a model, as `writeOnnx` wrote it, in int8. `ranges` are those of all its maps. */
export function quantizeOnnx(
  file: Uint8Array,
  model: DeployedModel,
  { ranges, manner }: { ranges: MapRanges; manner: QuantizationManner },
): Uint8Array {
  const decoded = decodeModel(file);
  if (!decoded.graph) throw new Error("the file has no graph");
  const quantization = new Quantization(decoded.graph.initializer, manner);
  quantization.write(decoded.graph.node, model, affinesOf(model.graph, ranges, manner));
  decoded.graph.node = quantization.writer.nodes;
  decoded.graph.initializer = [...quantization.initializers.values()];
  return encodeModel(decoded);
}

class Quantization {
  readonly writer = new GraphWriter();
  readonly initializers: Map<string, OnnxMessage<"TensorProto">>;
  readonly #manner: QuantizationManner;
  /** What is read in place of a map, once it went through integers. */
  readonly #restored = new Map<string, string>();

  constructor(initializers: readonly OnnxMessage<"TensorProto">[], manner: QuantizationManner) {
    this.initializers = new Map(initializers.map((one) => [one.name, one]));
    this.#manner = manner;
  }

  /** Writes all nodes anew, with integers between them. */
  write(
    nodes: readonly OnnxMessage<"NodeProto">[],
    model: DeployedModel,
    affines: ReadonlyMap<string, Affine>,
  ): void {
    const convs = new Map(
      model.graph.nodes.flatMap((node) => (node.op === "conv" ? [[node.name, node] as const] : [])),
    );
    this.#pass(INPUT, affines);
    for (const node of nodes) {
      const [source = ""] = node.input;
      node.input = node.input.map((name) => this.#restored.get(name) ?? name);
      const name = (node.output[0] ?? "").replace(/\/linear$/, "");
      const conv = node.opType === "Conv" ? convs.get(name) : undefined;
      if (conv && !isHead(conv)) {
        const weights = model.weights.get(name);
        const affine = affines.get(source);
        if (!weights || !affine) throw new Error(`${name} reads what has no range`);
        node.input.splice(1, 2, ...this.#weighted(conv, weights, affine));
      }
      this.writer.nodes.push(node);
      for (const output of node.output) this.#pass(output, affines);
    }
  }

  /** Sends a map through integers, where it has a scale. */
  #pass(name: string, affines: ReadonlyMap<string, Affine>) {
    const affine = affines.get(name);
    if (!affine) return;
    const parameters = [
      this.#floats(`${name}/scale`, [], [affine.scale]),
      this.#zero(name, affine),
    ];
    const stored = this.writer.node("QuantizeLinear", [name, ...parameters], `${name}/q`);
    const restored = this.writer.node("DequantizeLinear", [stored, ...parameters], `${name}/dq`);
    this.#restored.set(name, restored);
  }

  #zero(name: string, { zero }: Affine): string {
    return this.#manner === "cpu"
      ? this.#integers(`${name}/zero`, [], Uint8Array.of(zero + UNSIGNED))
      : this.#integers(`${name}/zero`, [], Int8Array.of(zero));
  }

  /** Weight and bias of a convolution, as its inputs. */
  #weighted(
    { name, channels }: Pick<ConvNode, "name" | "channels">,
    { weight, bias }: ConvWeights,
    { scale }: Affine,
  ): [weight: string, bias: string] {
    const dims = this.initializers.get(`${name}.weight`)?.dims.map(Number) ?? [];
    const { values, scales } = quantizeWeights(weight, channels, STEPS_MAX[this.#manner]);
    const restoredWeight = this.#restore(`${name}.weight`, dims, values, scales);
    if (this.#manner === "tensorrt") return [restoredWeight, `${name}.bias`];
    const products = scales.map((one) => Math.fround(one * scale));
    const steps = quantizeBias(bias, scale, scales);
    return [restoredWeight, this.#restore(`${name}.bias`, [channels], steps, products)];
  }

  /** Replaces a constant by its integers, which are restored with a scale each channel. */
  #restore(
    name: string,
    dims: readonly number[],
    values: Int8Array | Int32Array,
    scales: readonly number[],
  ): string {
    this.initializers.delete(name);
    const zeros = values instanceof Int8Array ? Int8Array : Int32Array;
    const inputs = [
      this.#integers(`${name}/q`, dims, values),
      this.#floats(`${name}/scales`, [scales.length], scales),
      this.#integers(`${name}/zeros`, [scales.length], new zeros(scales.length)),
    ];
    return this.writer.node("DequantizeLinear", inputs, `${name}/dq`, { axis: 0 });
  }

  #floats = (name: string, dims: readonly number[], values: readonly number[]) =>
    this.#constant(name, dims, { type: FLOAT, values: Float32Array.from(values) });

  #integers(name: string, dims: readonly number[], values: Uint8Array | Int8Array | Int32Array) {
    const type = values instanceof Uint8Array ? UINT8 : values instanceof Int8Array ? INT8 : INT32;
    return this.#constant(name, dims, { type, values });
  }

  #constant(
    name: string,
    dims: readonly number[],
    { type, values }: { type: number; values: ArrayBufferView },
  ): string {
    const rawData = Uint8Array.from(
      new Uint8Array(values.buffer, values.byteOffset, values.byteLength),
    );
    const tensor = create(TensorProto, { name, dims: dims.map(BigInt), dataType: type, rawData });
    this.initializers.set(name, tensor);
    return name;
  }
}

/** Scale and zero point of the maps that go through integers. */
function affinesOf(
  { nodes }: DetectorGraph,
  ranges: MapRanges,
  manner: QuantizationManner,
): Map<string, Affine> {
  const affines = new Map<string, Affine>([[INPUT, INPUT_AFFINE[manner]]]);
  const affine = manner === "cpu" ? affineOf : symmetricOf;
  const rangeOf = (name: string): MapRange => {
    const range = ranges.get(name);
    if (!range) throw new Error(`${name} has no range`);
    return range;
  };
  for (const [index, node] of nodes.entries()) {
    if (node.op === "input" || (node.op === "conv" && isHead(node))) continue;
    const name = mapNameOf(node, index);
    if (keepsRange(node)) {
      const source = affines.get(nameAt(nodes, node.input));
      if (!source) throw new Error(`${name} is made of what has no range`);
      affines.set(name, source);
      continue;
    }
    affines.set(name, affine(rangeOf(name)));
    if (manner === "tensorrt" || node.op !== "conv" || !node.silu) continue;
    const linear = linearNameOf(name);
    const [low, high] = rangeOf(linear);
    affines.set(linear, affineOf([Math.max(low, SILU_FLOOR), high]));
    affines.set(`${name}/gate`, GATE_AFFINE);
  }
  if (manner === "cpu") return affines;
  const read = new Set(
    nodes.flatMap((node) =>
      node.op === "conv" && !isHead(node) ? [nameAt(nodes, node.input)] : [],
    ),
  );
  return new Map([...affines].filter(([name]) => read.has(name)));
}

function nameAt(nodes: DetectorGraph["nodes"], index: number): string {
  const node = nodes[index];
  if (!node) throw new Error(`the graph has no node ${index}`);
  return mapNameOf(node, index);
}
