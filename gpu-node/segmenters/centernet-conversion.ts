// CenterNet as its package has it (a TensorFlow.js graph, half-precision weights, channels last)
// → ONNX (single precision, channels first, any size of image). Pure: bytes in, bytes out, the
// same bytes every time.

import { z } from "zod";
import { whole } from "../../shared/scalars.ts";
import { GraphWriter, tensorInfo } from "../onnx/model-file.ts";

/** Names of the converted graphs' inputs and outputs. */
export const IMAGE = "tower_0/images";
export const SIZES = "tower_0/wh";
export const SCORES = "tower_0/keypoints";
export const FEATURES = "tower_0/MobilenetV3/expanded_conv_11/add";

const Text = z.object({ s: z.string() }).transform(({ s }) => Buffer.from(s, "base64").toString());
const Node = z.object({
  name: z.string(),
  op: z.string(),
  input: z.array(z.string()).default([]),
  attr: z
    .object({
      strides: z.object({ list: z.object({ i: z.array(whole(0)) }) }),
      padding: Text,
      fused_ops: z.object({
        list: z.object({ s: z.array(z.string()).default([]) }),
      }),
    })
    .partial()
    .default({}),
});
type Node = z.infer<typeof Node>;
const Weight = z.object({
  name: z.string(),
  shape: z.array(z.number().int()),
  dtype: z.string(),
  quantization: z.object({ dtype: z.string() }).optional(),
});
const TfjsModel = z.object({
  modelTopology: z.object({ node: z.array(Node) }),
  weightsManifest: z.tuple([z.object({ weights: z.array(Weight) })]),
});

interface Weights {
  shape: readonly number[];
  values: Float32Array;
}

/** The detector: an image → every cell's score by class, and its distances to the four sides. */
export function convertDetector(json: string, weights: Uint8Array): Uint8Array {
  const conversion = new Conversion(json, weights);
  conversion.emit(SCORES);
  conversion.emit(SIZES);
  return conversion.writer.encode(
    "centernet",
    [tensorInfo(IMAGE, [1, 3, "height", "width"])],
    [tensorInfo(SCORES, [1, 80, "rows", "columns"]), tensorInfo(SIZES, [1, 4, "rows", "columns"])],
  );
}

/** The backbone alone, up to its map of one cell per 16 pixels. */
export function convertFeatures(json: string, weights: Uint8Array): Uint8Array {
  const conversion = new Conversion(json, weights);
  conversion.emit(FEATURES);
  return conversion.writer.encode(
    "centernet-features",
    [tensorInfo(IMAGE, [1, 3, "height", "width"])],
    [tensorInfo(FEATURES, [1, 88, "rows", "columns"])],
  );
}

class Conversion {
  readonly writer = new GraphWriter();
  readonly #nodes: Map<string, Node>;
  readonly #weights: Map<string, Weights>;
  readonly #emitted = new Set<string>();

  constructor(json: string, weights: Uint8Array) {
    const model = TfjsModel.parse(JSON.parse(json));
    this.#nodes = new Map(model.modelTopology.node.map((node) => [node.name, node]));
    this.#weights = readWeights(model.weightsManifest[0].weights, weights);
  }

  /** Writes a node and all that it needs, once. */
  emit(name: string): string {
    if (this.#emitted.has(name)) return name;
    this.#emitted.add(name);
    const node = this.#nodes.get(name);
    if (!node) throw new Error(`the graph has no node ${name}`);
    const { writer } = this;
    const operand = (index: number) => this.#operand(node.input[index] ?? "");
    switch (node.op) {
      case "Placeholder":
        return name;
      case "_FusedConv2D":
      case "Conv2D":
      case "DepthwiseConv2dNative":
      case "FusedDepthwiseConv2dNative":
        return this.#convolution(node);
      case "Mul":
      case "Add":
        return writer.node(node.op, [operand(0), operand(1)], name);
      case "Relu6": {
        const zero = writer.initializer("zero", [], Float32Array.of(0));
        const six = writer.initializer("six", [], Float32Array.of(6));
        return writer.node("Clip", [operand(0), zero, six], name);
      }
      case "Relu":
      case "Sigmoid":
      case "Identity":
        return writer.node(node.op, [operand(0)], name);
      case "Mean":
        return writer.node("ReduceMean", [operand(0)], name, { axes: [2, 3], keepdims: 1 });
      case "ResizeBilinear": {
        const twice = writer.initializer("twice", [4], Float32Array.of(1, 1, 2, 2));
        return writer.node("Resize", [operand(0), "", twice], name, {
          mode: "linear",
          coordinate_transformation_mode: "asymmetric",
        });
      }
      case "ConcatV2": {
        const parts = node.input.slice(0, -1).map((input) => this.#operand(input));
        return writer.node("Concat", parts, name, { axis: 1 });
      }
      default:
        throw new Error(`no conversion for the operation ${node.op} of ${name}`);
    }
  }

  #operand(input: string): string {
    const name = input.replace(/:\d+$/, "");
    if (this.#nodes.get(name)?.op !== "Const") return this.emit(name);
    const { shape, values } = this.#weight(name);
    if (shape.length === 0) return this.writer.initializer(name, [], values);
    if (shape.length !== 1) throw new Error(`${name} is a constant of shape ${shape}`);
    return this.writer.initializer(name, [1, shape[0] ?? 0, 1, 1], values);
  }

  #convolution(node: Node): string {
    const { strides, padding, fused_ops } = node.attr;
    const [, down, across] = strides?.list.i ?? [];
    const fused = (fused_ops?.list.s ?? []).map((text) => Buffer.from(text, "base64").toString());
    const unknown = fused.filter((operation) => operation !== "BiasAdd" && operation !== "Relu");
    if (!down || !across || !padding || unknown.length > 0)
      throw new Error(`${node.name} is a convolution of an unknown form`);
    const kernelName = node.input[1] ?? "";
    const kernel = transposeKernel(this.#weight(kernelName), node.op.includes("Depthwise"));
    const inputs = [
      this.#operand(node.input[0] ?? ""),
      this.writer.initializer(`${kernelName}#kernel`, kernel.dims, kernel.values),
    ];
    if (fused.includes("BiasAdd")) {
      const bias = this.#weight(node.input[2] ?? "");
      inputs.push(this.writer.initializer(`${node.input[2]}#bias`, bias.shape, bias.values));
    }
    const relu = fused.includes("Relu");
    const output = relu ? `${node.name}#linear` : node.name;
    this.writer.node("Conv", inputs, output, {
      kernel_shape: kernel.dims.slice(2),
      strides: [down, across],
      group: kernel.groups,
      auto_pad: padding === "SAME" ? "SAME_UPPER" : "VALID",
    });
    return relu ? this.writer.node("Relu", [output], node.name) : output;
  }

  #weight(name: string): Weights {
    const weights = this.#weights.get(name);
    if (!weights) throw new Error(`the weights lack ${name}`);
    return weights;
  }
}

/** Rows, columns, in, out → out, in, rows, columns. A depthwise kernel has one "in" a group. */
function transposeKernel({ shape, values }: Weights, depthwise: boolean) {
  const [rows = 0, columns = 0, inputs = 0, outputs = 0] = shape;
  const out = new Float32Array(values.length);
  const cells = rows * columns;
  for (let cell = 0; cell < cells; cell++)
    for (let input = 0; input < inputs; input++)
      for (let output = 0; output < outputs; output++) {
        const first = depthwise ? input * outputs + output : output * inputs + input;
        out[first * cells + cell] = values[(cell * inputs + input) * outputs + output] as number;
      }
  return depthwise
    ? { values: out, dims: [inputs * outputs, 1, rows, columns], groups: inputs }
    : { values: out, dims: [outputs, inputs, rows, columns], groups: 1 };
}

function readWeights(manifest: z.infer<typeof Weight>[], bytes: Uint8Array): Map<string, Weights> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const weights = new Map<string, Weights>();
  let offset = 0;
  for (const { name, shape, dtype, quantization } of manifest) {
    const count = shape.reduce((product, size) => product * size, 1);
    const values = new Float32Array(count);
    const half = quantization?.dtype === "float16";
    if (quantization && !half) throw new Error(`${name} is quantised as ${quantization.dtype}`);
    const width = half ? 2 : 4;
    for (let index = 0; index < count; index++, offset += width)
      values[index] = half
        ? view.getFloat16(offset, true)
        : dtype === "int32"
          ? view.getInt32(offset, true)
          : view.getFloat32(offset, true);
    weights.set(name, { shape, values });
  }
  if (offset !== bytes.byteLength)
    throw new Error(`the weights are ${bytes.byteLength} bytes; the graph names ${offset}`);
  return weights;
}
