// Floats of a TensorFlow Lite file in another shape or order of sides.

import type { TfliteFile } from "./tflite-file.ts";
import * as operators from "./tflite-schema.ts";

/** The same floats in another shape. */
export function reshaped(
  file: TfliteFile,
  tensor: number,
  { name, shape }: { name: string; shape: readonly number[] },
): number {
  const out = file.tensor(name, shape, "float32");
  return file.apply(operators.reshape(shape), [tensor, file.numbers(shape)], out);
}

/** Sides in another order; `shape` is what comes out. */
export function transposed(
  file: TfliteFile,
  tensor: number,
  { name, shape, order }: { name: string; shape: readonly number[]; order: readonly number[] },
): number {
  const out = file.tensor(name, shape, "float32");
  return file.apply(operators.transpose(), [tensor, file.numbers(order)], out);
}
