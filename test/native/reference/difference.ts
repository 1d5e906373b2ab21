// Gradients by central differences: what the differentiation of tensor.ts is checked against.

import { add, backward, multiply, sum, Tensor } from "./tensor.ts";
import { type Random, uniform } from "./weights.ts";

export const randomTensor = (random: Random, shape: readonly number[], [from, to] = [-1, 1]) =>
  new Tensor(
    shape,
    Float64Array.from({ length: shape.reduce((product, side) => product * side, 1) }, () =>
      uniform(random, from as number, to as number),
    ),
    { learns: true },
  );

/** A sum of all values, each times a number of its own: no gradient hides behind another. */
export function weighted(random: Random): (...outputs: Tensor[]) => Tensor {
  const weights: Tensor[] = [];
  return (...outputs) =>
    outputs
      .map((output, index) => {
        weights[index] ??= new Tensor(
          output.shape,
          output.values.map(() => uniform(random, 0.5, 1.5)),
        );
        return sum(multiply(output, weights[index]));
      })
      .reduce(add);
}

const STEP = 1e-5;

/** The derivative of `of` by one value. */
export function slopeAt(
  of: () => number,
  values: Float64Array,
  index: number,
  step = STEP,
): number {
  const value = values[index] as number;
  values[index] = value + step;
  const above = of();
  values[index] = value - step;
  const below = of();
  values[index] = value;
  return (above - below) / (2 * step);
}

/** The largest difference between both gradients of `leaves`, of the largest slope. */
export function gradientError(of: () => Tensor, leaves: readonly Tensor[]): number {
  for (const leaf of leaves) leaf.forget();
  backward(of());
  let [worst, largest] = [0, 0];
  for (const leaf of leaves) {
    for (const [index, slope] of leaf.gradient.entries()) {
      const expected = slopeAt(() => of().item, leaf.values, index);
      worst = Math.max(worst, Math.abs(slope - expected));
      largest = Math.max(largest, Math.abs(expected));
    }
  }
  return worst / Math.max(largest, 1e-12);
}
