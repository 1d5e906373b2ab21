// The reference itself: gradients of every operation, and of a whole detector, against central
// differences.

import { describe, expect, it } from "vitest";
import { detectorGraph } from "../../shared/detector/detector.ts";
import {
  byAnchor,
  type Corners,
  type CornerTensors,
  completeIou,
  completeIous,
} from "./reference/boxes.ts";
import { convolution, convolutionTransposed } from "./reference/convolution.ts";
import { gradientError, randomTensor, slopeAt, weighted } from "./reference/difference.ts";
import { forward, stateOf } from "./reference/forward.ts";
import {
  attention,
  batchNorm,
  concat,
  headValues,
  maxPool,
  slice,
  upsample,
} from "./reference/layers.ts";
import { noiseTensor } from "./reference/scenes.ts";
import {
  backward,
  crossEntropy,
  divide,
  maximum,
  minimum,
  silu,
  Tensor,
} from "./reference/tensor.ts";
import { randomWeights, seeded, type Weights } from "./reference/weights.ts";

/** Central differences of a step of 1e-5 in doubles: measured 2e-11 to 4e-9. */
const DIFFERENCE_MAX = 1e-7;

describe("gradients agree with central differences", () => {
  const random = seeded(1);
  const tensor = (shape: readonly number[], range?: [number, number]) =>
    randomTensor(random, shape, range);

  it.each([
    ["1×1", [2, 3, 3, 4], [4, 3, 1, 1], {}],
    ["3×3", [2, 2, 4, 3], [3, 2, 3, 3], {}],
    ["3×3 by two, odd sides", [2, 2, 5, 7], [3, 2, 3, 3], { step: 2 }],
    ["3×3 by two, even sides", [1, 2, 6, 4], [2, 2, 3, 3], { step: 2 }],
    ["3×3, each channel alone", [2, 5, 3, 4], [5, 1, 3, 3], { groups: 5 }],
    ["3×3 in two groups", [2, 4, 3, 3], [6, 2, 3, 3], { groups: 2 }],
    ["3×3 of one cell", [2, 2, 1, 1], [2, 2, 3, 3], {}],
  ] as const)("convolution %s", (_, shape, kernel, options) => {
    const [x, weight, bias] = [tensor(shape), tensor(kernel), tensor([kernel[0]])];
    const total = weighted(random);
    const error = gradientError(
      () => total(convolution(x, weight, bias, options)),
      [x, weight, bias],
    );
    expect(error).toBeLessThan(DIFFERENCE_MAX);
  });

  it.each(["training", "evaluation"])("batch norm in %s", (mode) => {
    const [x, weight, bias] = [tensor([2, 3, 2, 3]), tensor([3]), tensor([3])];
    const total = weighted(random);
    const run = () => {
      const [mean, variance] = [tensor([3]), tensor([3], [0.5, 1.5])];
      mean.values.fill(0.1);
      variance.values.fill(0.7);
      return total(batchNorm(x, { weight, bias, mean, variance }, mode === "training"));
    };
    expect(gradientError(run, [x, weight, bias])).toBeLessThan(DIFFERENCE_MAX);
  });

  it.each([
    ["transposed convolution", [2, 3, 2, 3]],
    ["SiLU", [2, 3, 2, 2]],
    ["pooling", [2, 2, 6, 7]],
    ["upsampling", [2, 2, 2, 3]],
    ["cutting and joining", [2, 5, 2, 2]],
    ["attention and its values", [2, 16, 2, 3]],
    ["anchors' order", [2, 3, 2, 2]],
    ["cross entropy", [3, 4]],
  ] as const)("%s", (name, shape) => {
    const x = tensor(shape);
    const [weight, bias] = [tensor([3, 4, 2, 2]), tensor([4])];
    const heads = { heads: 2, key: 2, value: 4 };
    const targets = tensor([3, 4], [0, 1]);
    const outputs: Record<string, () => Tensor[]> = {
      "transposed convolution": () => [convolutionTransposed(x, weight, bias)],
      SiLU: () => [silu(x)],
      pooling: () => [maxPool(x, 5)],
      upsampling: () => [upsample(x, 2), upsample(x, 4)],
      "cutting and joining": () => [concat([slice(x, 3, 5), x, slice(x, 0, 2)])],
      "attention and its values": () => [attention(x, heads), headValues(x, heads)],
      "anchors' order": () => [byAnchor([x, upsample(x, 2)])],
      "cross entropy": () => [crossEntropy(x, targets)],
    };
    const total = weighted(random);
    const leaves = name === "transposed convolution" ? [x, weight, bias] : [x];
    const error = gradientError(() => total(...(outputs[name] as () => Tensor[])()), leaves);
    expect(error).toBeLessThan(DIFFERENCE_MAX);
  });

  it("maximum, minimum and quotient", () => {
    const [a, b] = [tensor([3, 3], [1, 2]), tensor([3, 3], [1, 2])];
    const total = weighted(random);
    const run = () => total(maximum(a, b), minimum(a, b), divide(a, b));
    expect(gradientError(run, [a, b])).toBeLessThan(DIFFERENCE_MAX);
  });

  it("complete IoU, the weight of the shapes' difference held", () => {
    const pairs = [
      [
        [0, 0, 10, 8],
        [2, 1, 9, 12],
      ],
      [
        [0, 0, 4, 9],
        [5, 5, 20, 8],
      ],
      [
        [1, 1, 5, 5],
        [-3, -2, 30, 21],
      ],
    ] as const;
    const sides = (which: 0 | 1) =>
      [0, 1, 2, 3].map(
        (side) =>
          new Tensor(
            [3],
            Float64Array.from(pairs, (pair) => pair[which][side] as number),
            {
              learns: which === 0,
            },
          ),
      ) as unknown as CornerTensors; // four numbers were mapped to four
    const [found, wanted] = [sides(0), sides(1)];
    backward(weighted(() => 0.5)(completeIous(found, wanted)));
    for (const [index, [box, truth]] of pairs.entries()) {
      const values = Float64Array.from(box);
      const { alpha, v } = shapeTerm(values, truth);
      for (const side of [0, 1, 2, 3] as const) {
        // A copy of four corners.
        const whole = slopeAt(() => completeIou([...values] as never, truth), values, side);
        const ofAlpha = slopeAt(() => shapeTerm(values, truth).alpha, values, side);
        expect(alpha).toBeGreaterThan(0);
        expect(found[side].gradient[index]).toBeCloseTo(whole + v * ofAlpha, 8);
      }
    }
  });

  it("a whole detector, along a direction through all of its weights", () => {
    const graph = detectorGraph("det26n", 2);
    const weights = randomWeights(graph, 3);
    const images = noiseTensor(4, [2, 3, 64, 64]);
    const total = weighted(random);
    const run = (moved: Weights) => {
      const state = stateOf(graph, (name) => moved.get(name) as Float32Array);
      const maps = forward(graph, state, images, { training: true });
      // The one-to-one branch reads detached features, so it is left out here.
      return { state, out: total(...(maps.o2m?.box ?? []), ...(maps.o2m?.cls ?? [])) };
    };
    const { state, out } = run(weights);
    backward(out);
    let expected = 0;
    const direction = new Map<string, Float64Array>();
    for (const [name, { values, gradient, learns }] of state) {
      if (!learns) continue;
      const step = values.map(() => random() - 0.5);
      direction.set(name, step);
      expected += step.reduce((so, value, index) => so + value * (gradient[index] as number), 0);
    }
    const along = (factor: number) => {
      const moved = new Map<string, ArrayLike<number>>(weights);
      for (const [name, step] of direction) {
        const from = weights.get(name) as Float32Array;
        moved.set(
          name,
          step.map((value, index) => (from[index] as number) + factor * value),
        );
      }
      return run(moved as Weights).out.item;
    };
    const measured = (along(1e-7) - along(-1e-7)) / 2e-7;
    // Measured 1e-7: the step is that of doubles through some hundred layers.
    expect(Math.abs(measured / expected - 1)).toBeLessThan(1e-5);
  });
});

function shapeTerm(values: Float64Array, truth: Corners) {
  // The four corners of a box.
  const [x1, y1, x2, y2] = values as unknown as [number, number, number, number];
  const shape = (w: number, h: number) => Math.atan(w / (h + 1e-7));
  const turn = shape(truth[2] - truth[0], truth[3] - truth[1]) - shape(x2 - x1, y2 - y1);
  const v = (4 / Math.PI ** 2) * turn ** 2;
  const over = (a: number, b: number, c: number, d: number) =>
    Math.max(Math.min(b, d) - Math.max(a, c), 0);
  const shared = over(x1, x2, truth[0], truth[2]) * over(y1, y2, truth[1], truth[3]);
  const union =
    (x2 - x1) * (y2 - y1) + (truth[2] - truth[0]) * (truth[3] - truth[1]) - shared + 1e-7;
  return { v, alpha: v / (v - shared / union + 1 + 1e-7) };
}
