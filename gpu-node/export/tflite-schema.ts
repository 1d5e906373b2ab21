// Numbers of TensorFlow Lite's public schema (tensorflow/lite/schema/schema.fbs, version 3): types
// of tensors, and of each operator its code, its options and its version.

import type { TableField } from "./flatbuffer-tables.ts";

/** Version of the schema, and the identifier of its files. */
export const SCHEMA_VERSION = 3;
export const IDENTIFIER = "TFL3";

/** Numbers of TensorType. */
export const TENSOR_TYPES = { float32: 0, float16: 1, int32: 2, int8: 9 } as const;
export type TensorType = keyof typeof TENSOR_TYPES;

/** A field of an operator's options, whose lists are not written yet. */
export type OptionField = Exclude<TableField, { offset: number }> | { int32s: readonly number[] };

/** What an operator does, as a file says it. */
export interface Operator {
  /** Number of BuiltinOperator. */
  code: number;
  /**
   * Version of the operator's meaning. A runtime refuses one that it does not know, and XNNPACK
   * leaves newer ones than it knows to slower kernels: it is the lowest that has what is used.
   */
  version: number;
  /** Number of the member of the union BuiltinOptions; 0 for none. */
  options: number;
  fields: readonly OptionField[];
}

/** Padding of VALID is none; SAME keeps the size of a step of one. */
const PADDING = { same: { int8: 0 }, valid: { int8: 1 } } as const;
export type Padding = keyof typeof PADDING;
/** No activation is fused: SiLU has no number. */
const NO_ACTIVATION = { int8: 0 } as const;
const ONE = { int32: 1 } as const;

const operator = (
  code: number,
  options: number,
  fields: readonly OptionField[] = [],
  version = 1,
): Operator => ({ code, options, fields, version });

/** Operators on floats where int8 has another version have one for each. */
const versioned = (isInt8: boolean, int8Version: number) => (isInt8 ? int8Version : 1);

export const add = (isInt8: boolean) => operator(0, 11, [NO_ACTIVATION], versioned(isInt8, 2));
export const multiply = (isInt8: boolean) =>
  operator(18, 21, [NO_ACTIVATION], versioned(isInt8, 2));
export const logistic = (isInt8: boolean) => operator(14, 0, [], versioned(isInt8, 2));
export const pad = (isInt8: boolean) => operator(34, 22, [], versioned(isInt8, 2));
export const slice = (isInt8: boolean) => operator(65, 48, [], versioned(isInt8, 2));
export const transpose = () => operator(39, 26);
export const softmax = () => operator(25, 9, [{ float32: 1 }]);
/** The second version takes a shape of unknown sides, which XNNPACK does not. */
export const reshape = (shape: readonly number[]) => operator(22, 17, [{ int32s: shape }]);
export const concatenate = (isInt8: boolean, axis: number) =>
  operator(2, 10, [{ int32: axis }, NO_ACTIVATION], versioned(isInt8, 2));
export const matmul = ({ transposeSecond }: { transposeSecond: boolean }) =>
  operator(126, 101, [{ bool: false }, { bool: transposeSecond }]);
/** To int8 of floats, or of int8 in other steps. */
export const quantize = ({ fromInt8 }: { fromInt8: boolean }) =>
  operator(114, 89, [], versioned(fromInt8, 2));
/** To floats. */
export const dequantize = (from: "int8" | "float16") =>
  operator(6, 38, [], from === "int8" ? 2 : 3);

export const maxPool = (isInt8: boolean, kernel: number) => {
  const side = { int32: kernel };
  const fields = [PADDING.same, ONE, ONE, side, side, NO_ACTIVATION];
  return operator(17, 5, fields, versioned(isInt8, 2));
};

export const convolve = (isInt8: boolean, { step, padding }: { step: number; padding: Padding }) =>
  operator(
    3,
    1,
    [PADDING[padding], { int32: step }, { int32: step }, NO_ACTIVATION, ONE, ONE],
    versioned(isInt8, 3),
  );

/** Each channel by itself. */
export const convolveDepthwise = (
  isInt8: boolean,
  { step, padding }: { step: number; padding: Padding },
) =>
  operator(
    4,
    2,
    [PADDING[padding], { int32: step }, { int32: step }, ONE, NO_ACTIVATION, ONE, ONE],
    versioned(isInt8, 3),
  );

/** The third version takes a bias. */
export const convolveTransposed = (step: number) =>
  operator(67, 49, [PADDING.valid, { int32: step }, { int32: step }, NO_ACTIVATION], 3);
