// What the operations of an ML program compute, each in ONNX's: those that a detector needs, by
// their definitions in coremltools (iOS 15's opset).

import type { GraphWriter } from "../onnx/model-file.ts";

/** A constant of a program. */
export interface MilConstant {
  numbers: ArrayLike<number> & Iterable<number>;
  /** What a constant of type text says. */
  text: string;
}

/** One operation, with what it reads by the name of its input. */
export interface MilOperation {
  names(key: string): readonly string[];
  name(key: string): string;
  /** The numbers of an input that is a constant; booleans are 0 and 1. */
  numbers(key: string): number[];
  text(key: string): string;
  shapeOf(key: string): readonly number[];
  outputs: readonly string[];
}

type Write = (writer: GraphWriter, operation: MilOperation) => void;

const own = ({ outputs: [output = ""] }: MilOperation) => output;

const wholes = (writer: GraphWriter, values: readonly number[]): string =>
  writer.initializer(
    `whole.${values.join(".")}`,
    [values.length],
    BigInt64Array.from(values.map(BigInt)),
  );

const unary =
  (type: string): Write =>
  (writer, operation) =>
    writer.node(type, [operation.name("x")], own(operation));

const binary =
  (type: string): Write =>
  (writer, operation) =>
    writer.node(type, [operation.name("x"), operation.name("y")], own(operation));

function expectText(operation: MilOperation, key: string, wanted: string): void {
  const text = operation.text(key);
  if (text !== wanted) throw new Error(`${own(operation)}: ${key} is ${text}, not ${wanted}`);
}

/** Before and after by axis, where ONNX takes all before, then all after. */
function padsOf(operation: MilOperation): number[] {
  expectText(operation, "pad_type", "custom");
  const [top = 0, bottom = 0, left = 0, right = 0] = operation.numbers("pad");
  return [top, left, bottom, right];
}

const convolve: Write = (writer, operation) => {
  const inputs = [operation.name("x"), operation.name("weight"), operation.name("bias")];
  writer.node("Conv", inputs, own(operation), {
    dilations: operation.numbers("dilations"),
    strides: operation.numbers("strides"),
    pads: padsOf(operation),
    group: operation.numbers("groups")[0] ?? 1,
  });
};

const convolveTransposed: Write = (writer, operation) => {
  expectText(operation, "pad_type", "valid");
  const inputs = [operation.name("x"), operation.name("weight"), operation.name("bias")];
  writer.node("ConvTranspose", inputs, own(operation), {
    dilations: operation.numbers("dilations"),
    strides: operation.numbers("strides"),
    group: operation.numbers("groups")[0] ?? 1,
  });
};

const maxPool: Write = (writer, operation) => {
  writer.node("MaxPool", [operation.name("x")], own(operation), {
    kernel_shape: operation.numbers("kernel_sizes"),
    strides: operation.numbers("strides"),
    pads: padsOf(operation),
    ceil_mode: operation.numbers("ceil_mode")[0] ?? 0,
  });
};

const concat: Write = (writer, operation) => {
  if (operation.numbers("interleave")[0]) throw new Error("joined channels are interleaved");
  const axis = operation.numbers("axis")[0] ?? 0;
  writer.node("Concat", operation.names("values"), own(operation), { axis });
};

/** A masked bound is the axis's own. */
const slice: Write = (writer, operation) => {
  if (operation.numbers("squeeze_mask").some(Boolean)) throw new Error("a slice drops an axis");
  const sides = operation.shapeOf("x");
  const [fromStart, toEnd] = [operation.numbers("begin_mask"), operation.numbers("end_mask")];
  const begins = operation.numbers("begin").map((begin, axis) => (fromStart[axis] ? 0 : begin));
  const ends = operation
    .numbers("end")
    .map((end, axis) => (toEnd[axis] ? (sides[axis] ?? 0) : end));
  const axes = sides.map((_, axis) => axis);
  const bounds = [begins, ends, axes, operation.numbers("stride")];
  const inputs = [operation.name("x"), ...bounds.map((values) => wholes(writer, values))];
  writer.node("Slice", inputs, own(operation));
};

const split: Write = (writer, operation) => {
  const sizes = wholes(writer, operation.numbers("split_sizes"));
  const axis = operation.numbers("axis")[0] ?? 0;
  writer.node("Split", [operation.name("x"), sizes], operation.outputs, { axis });
};

const upsample: Write = (writer, operation) => {
  const [height] = operation.numbers("scale_factor_height");
  const [width] = operation.numbers("scale_factor_width");
  const values = Float32Array.of(1, 1, height ?? 1, width ?? 1);
  const scales = writer.initializer(`scales.${values.join(".")}`, [4], values);
  writer.node("Resize", [operation.name("x"), "", scales], own(operation), {
    mode: "nearest",
    coordinate_transformation_mode: "asymmetric",
    nearest_mode: "floor",
  });
};

const reshape: Write = (writer, operation) => {
  const shape = wholes(writer, operation.numbers("shape"));
  writer.node("Reshape", [operation.name("x"), shape], own(operation));
};

const transpose: Write = (writer, operation) => {
  const perm = operation.numbers("perm");
  writer.node("Transpose", [operation.name("x")], own(operation), { perm });
};

const softmax: Write = (writer, operation) => {
  const axis = operation.numbers("axis")[0] ?? -1;
  writer.node("Softmax", [operation.name("x")], own(operation), { axis });
};

const matmul: Write = (writer, operation) => {
  const side = (key: "x" | "y") => {
    if (!operation.numbers(`transpose_${key}`)[0]) return operation.name(key);
    const name = `${own(operation)}/${key}`;
    return writer.node("Transpose", [operation.name(key)], name, { perm: [0, 1, 3, 2] });
  };
  writer.node("MatMul", [side("x"), side("y")], own(operation));
};

const silu: Write = (writer, operation) => {
  const x = operation.name("x");
  const gate = writer.node("Sigmoid", [x], `${own(operation)}/gate`);
  writer.node("Mul", [x, gate], own(operation));
};

/** By the operation's type. Everything is computed in single precision, so a cast does nothing. */
export const MIL_OPERATIONS: Readonly<Record<string, Write>> = {
  add: binary("Add"),
  cast: unary("Identity"),
  concat,
  conv: convolve,
  conv_transpose: convolveTransposed,
  identity: unary("Identity"),
  matmul,
  max_pool: maxPool,
  mul: binary("Mul"),
  reshape,
  sigmoid: unary("Sigmoid"),
  silu,
  slice_by_index: slice,
  softmax,
  split,
  transpose,
  upsample_nearest_neighbor: upsample,
};
