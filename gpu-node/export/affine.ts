// Numbers as int8: the scale and zero point of a range, and weights by output channel.

import type { MapRange } from "./ranges.ts";

/** A number is (integer − zero) · scale; integers are −128 to 127. */
export interface Affine {
  scale: number;
  zero: number;
}

const STEPS = 255;
const [LOWEST, HIGHEST] = [-128, 127];
/** Smallest range of a map, for one that is nothing but zeros, and of a channel of weights. */
const [RANGE_MIN, WEIGHT_MIN] = [1e-6, 1e-8];
const BIAS_MAX = 2 ** 31 - 1;

const between = (value: number, low: number, high: number) =>
  Math.max(low, Math.min(high, Math.round(value)));

/** All 256 steps over a range; zero is one of them, as padding needs it. */
export function affineOf([low, high]: MapRange): Affine {
  const [from, to] = [Math.min(low, 0), Math.max(high, 0)];
  const scale = Math.fround(Math.max(to - from, RANGE_MIN) / STEPS);
  return { scale, zero: between(LOWEST - from / scale, LOWEST, HIGHEST) };
}

/** As many steps on both sides of zero: what TensorRT takes. */
export const symmetricOf = ([low, high]: MapRange): Affine => ({
  scale: Math.fround(Math.max(-low, high, RANGE_MIN) / HIGHEST),
  zero: 0,
});

/**
 * Weights [out, …] on both sides of zero, with a scale for each output channel; integers are
 * −`stepsMax` to `stepsMax`.
 */
export function quantizeWeights(
  weight: Float32Array,
  channels: number,
  stepsMax: number = HIGHEST,
): { values: Int8Array; scales: number[] } {
  const each = weight.length / channels;
  const values = new Int8Array(weight.length);
  const scales: number[] = [];
  for (let first = 0; first < weight.length; first += each) {
    let max = 0;
    for (let at = first; at < first + each; at++) max = Math.max(max, Math.abs(weight[at] ?? 0));
    const scale = Math.fround(Math.max(max, WEIGHT_MIN) / stepsMax);
    scales.push(scale);
    for (let at = first; at < first + each; at++) {
      values[at] = between((weight[at] as number) / scale, -stepsMax, stepsMax);
    }
  }
  return { values, scales };
}

/** A bias in steps of input times weight, as integers of 32 bits. */
export const quantizeBias = (
  bias: Float32Array,
  inputScale: number,
  scales: readonly number[],
): Int32Array =>
  Int32Array.from(bias, (value, channel) =>
    between(value / (inputScale * (scales[channel] as number)), -BIAS_MAX - 1, BIAS_MAX),
  );
