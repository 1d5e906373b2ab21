// The reference itself: every operation's gradient against central differences, results against
// the plainest way to write them, and the rules of targets and steps on cases worked out by hand.

import { describe, expect, it } from "vitest";
import { detectorGraph, stateTensors, VARIANT_NAMES } from "../../shared/detector.ts";
import { assign, MANY, ONE, type Outlook, type Truth } from "./reference/assigner.ts";
import {
  boxAt,
  byAnchor,
  type Corners,
  type CornerTensors,
  completeIou,
  completeIous,
} from "./reference/boxes.ts";
import { convolution, convolutionTransposed } from "./reference/convolution.ts";
import { gradientError, randomTensor, slopeAt, weighted } from "./reference/difference.ts";
import { forward, type State, stateOf, tensorOf } from "./reference/forward.ts";
import {
  attention,
  batchNorm,
  concat,
  headValues,
  maxPool,
  slice,
  upsample,
} from "./reference/layers.ts";
import { o2mShareAt } from "./reference/loss.ts";
import { Average, orthogonal, type Recipe, ratesAt } from "./reference/optimizer.ts";
import {
  backward,
  crossEntropy,
  divide,
  filled,
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
        // Four values were mapped to four tensors.
      ) as unknown as CornerTensors;
    const [found, wanted] = [sides(0), sides(1)];
    backward(weighted(() => 0.5)(completeIous(found, wanted)));
    for (const [at, [box, truth]] of pairs.entries()) {
      const values = Float64Array.from(box);
      const { alpha, v } = shapeTerm(values, truth);
      for (const side of [0, 1, 2, 3] as const) {
        // A copy of four numbers is four numbers.
        const whole = slopeAt(() => completeIou([...values] as never, truth), values, side);
        const ofAlpha = slopeAt(() => shapeTerm(values, truth).alpha, values, side);
        expect(alpha).toBeGreaterThan(0);
        expect(found[side].gradient[at]).toBeCloseTo(whole + v * ofAlpha, 8);
      }
    }
  });

  it("a whole detector, along a direction through all of its weights", () => {
    const graph = detectorGraph("det26n", 2);
    const weights = randomWeights(graph, 3);
    const images = imagesOf(4, [2, 3, 64, 64]);
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
      expected += step.reduce((so, value, at) => so + value * (gradient[at] as number), 0);
    }
    const along = (factor: number) => {
      const moved = new Map<string, ArrayLike<number>>(weights);
      for (const [name, step] of direction) {
        const from = weights.get(name) as Float32Array;
        moved.set(
          name,
          step.map((value, at) => (from[at] as number) + factor * value),
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
  // Corners are four numbers.
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

function imagesOf(seed: number, shape: readonly number[]): Tensor {
  const random = seeded(seed);
  const count = shape.reduce((product, side) => product * side, 1);
  return new Tensor(shape, Float64Array.from({ length: count }, random));
}

describe("the operations", () => {
  it("convolve as the definition says", () => {
    const random = seeded(5);
    for (const { step, groups } of [
      { step: 1, groups: 1 },
      { step: 2, groups: 2 },
    ]) {
      const x = randomTensor(random, [2, 4, 7, 6]);
      const weight = randomTensor(random, [6, 4 / groups, 3, 3]);
      const out = convolution(x, weight, undefined, { step, groups });
      const [rows, columns] = [out.side(2), out.side(3)];
      for (const [at, value] of out.values.entries()) {
        const [column, row] = [at % columns, Math.floor(at / columns) % rows];
        const channel = Math.floor(at / (rows * columns)) % 6;
        const image = Math.floor(at / (rows * columns * 6));
        let expected = 0;
        for (let tap = 0; tap < weight.side(1) * 9; tap++) {
          const [y, z] = [
            row * step + (Math.floor(tap / 3) % 3) - 1,
            column * step + (tap % 3) - 1,
          ];
          if (y < 0 || y >= 7 || z < 0 || z >= 6) continue;
          const part = Math.floor(channel / (6 / groups)) * weight.side(1) + Math.floor(tap / 9);
          const source = x.values[((image * 4 + part) * 7 + y) * 6 + z] as number;
          expected += source * (weight.values[channel * weight.side(1) * 9 + tap] as number);
        }
        expect(value).toBeCloseTo(expected, 12);
      }
    }
  });

  it("move running statistics by 0.03 towards the batch's mean and unbiased variance", () => {
    const x = new Tensor([2, 1, 1, 2], Float64Array.of(1, 2, 3, 6));
    const one = (value: number) => new Tensor([1], Float64Array.of(value));
    const norm = { weight: one(1), bias: one(0), mean: one(1), variance: one(2) };
    const out = batchNorm(x, norm, true);
    expect(norm.mean.item).toBeCloseTo(1 + 0.03 * (3 - 1), 12);
    expect(norm.variance.item).toBeCloseTo(2 + 0.03 * (14 / 3 - 2), 12);
    expect(out.values[3]).toBeCloseTo(3 / Math.sqrt(3.5 + 1e-3), 12);
  });

  it.each(VARIANT_NAMES)("run the whole graph of %s", (variant) => {
    const graph = detectorGraph(variant, 2, variant === "det26n" ? "segmentation" : "detection");
    const state: State = new Map(
      stateTensors(graph).map(({ name, shape }) => [name, filled(shape, 0.01)]),
    );
    const maps = forward(graph, state, imagesOf(6, [1, 3, 64, 64]), { training: false });
    for (const branch of [maps.o2m, maps.o2o]) {
      expect(branch?.box.map(({ shape }) => shape)).toEqual(
        [8, 4, 2].map((side) => [1, 4, side, side]),
      );
      expect(branch?.cls.map(({ shape }) => shape)).toEqual(
        [8, 4, 2].map((side) => [1, 2, side, side]),
      );
    }
    if (variant === "det26n") {
      expect(maps.prototypes?.shape).toEqual([1, 32, 16, 16]);
      expect(maps.o2o.mask?.map((map) => map.side(1))).toEqual([32, 32, 32]);
      expect(maps.semantic?.shape).toEqual([1, 2, 8, 8]);
    }
    expect(maps.o2o.box.every(({ values }) => values.every(Number.isFinite))).toBe(true);
    expect(tensorOf(state, "layers.0.norm.batches").item).toBe(0.01);
  });
});

/** Boxes of 2 cells in each direction about every anchor, and one logit for all classes. */
function outlookOf(side: number, logits: (anchor: number, classIndex: number) => number): Outlook {
  const anchors = [8, 16, 32].flatMap((stride) =>
    Array.from({ length: (side / stride) ** 2 }, (_, cell) => ({
      x: ((cell % (side / stride)) + 0.5) * stride,
      y: (Math.floor(cell / (side / stride)) + 0.5) * stride,
      stride,
    })),
  );
  const box = (anchor: number) => {
    const distances = Float64Array.of(2, 2, 2, 2);
    return boxAt(anchors[anchor] as (typeof anchors)[0], distances, 0);
  };
  return { anchors, box, logit: logits };
}

describe("targets", () => {
  const even = outlookOf(64, () => 0);
  const truth = (...box: [number, number, number, number]): Truth => ({ classIndex: 0, box });

  it("are the anchor's own overlap where one anchor learns an object", () => {
    // Equal to the box of the anchor at (28, 28) of stride 8.
    const [positive, ...more] = assign(even, [truth(12, 12, 44, 44)], ONE);
    expect(more).toEqual([]);
    expect(positive).toMatchObject({ anchor: 3 * 8 + 3, truth: 0 });
    expect(positive?.target).toBeCloseTo(1, 6);
  });

  it("fall with the metric from the object's best overlap", () => {
    const positives = assign(even, [truth(12, 12, 44, 44)], MANY);
    expect(positives).toHaveLength(10);
    const box = [12, 12, 44, 44] as const;
    for (const { anchor, target } of positives) {
      const overlap = completeIou(even.box(anchor), box);
      expect(target).toBeCloseTo(overlap ** 6, 5);
    }
  });

  it("prefer anchors that know the class", () => {
    const sure = outlookOf(64, (anchor) => (anchor === 3 * 8 + 4 ? 8 : -8));
    expect(assign(sure, [truth(12, 12, 44, 44)], ONE)).toMatchObject([{ anchor: 3 * 8 + 4 }]);
  });

  it("exist for an object that holds no anchor's centre", () => {
    const tiny = truth(29, 29, 35, 35);
    const chosen = assign(even, [tiny], MANY).map(({ anchor }) => anchor);
    // Within 8 pixels of (32, 32): the four centres at 28 and 36 of stride 8, two of stride 16
    // would lie on the edge and do not count.
    expect(chosen).toEqual([27, 28, 35, 36]);
  });

  it("give an anchor to the object that overlaps it most, and nobody an anchor outside", () => {
    const [near, far] = [truth(12, 12, 44, 44), truth(16, 12, 52, 44)];
    const alone = new Set(assign(even, [far], MANY).map(({ anchor }) => anchor));
    const both = assign(even, [near, far], MANY);
    expect(new Set(both.map(({ anchor }) => anchor)).size).toBe(both.length);
    for (const { anchor, truth: owner } of both) {
      const overlaps = [near, far].map(({ box }) => completeIou(even.box(anchor), box));
      const claimed = alone.has(anchor);
      if (claimed && owner === 0) {
        expect(overlaps[0]).toBeGreaterThanOrEqual(overlaps[1] as number);
      }
      const { x, y } = even.anchors[anchor] as { x: number; y: number };
      const { box } = [near, far][owner] as Truth;
      expect(x > box[0] && x < box[2] && y > box[1] && y < box[3]).toBe(true);
    }
  });

  it("keep one anchor an object only after conflicts are resolved", () => {
    // Twins: all claims are shared, the first of them wins each, so the second has none.
    const twins = [truth(12, 12, 44, 44), truth(12, 12, 44, 44)];
    expect(assign(even, twins, ONE)).toMatchObject([{ truth: 0, anchor: 27 }]);
    expect(assign(even, [], ONE)).toEqual([]);
  });

  it("leave out an object that no box overlaps", () => {
    const lost = { ...even, box: (): Corners => [200, 200, 210, 210] };
    expect(assign(lost, [truth(12, 12, 44, 44)], MANY)).toEqual([]);
  });
});

describe("steps", () => {
  const recipe: Recipe = {
    optimizer: "sgd",
    epochs: 11,
    batch: 16,
    lr0: 0.01,
    lrf: 0.01,
    cosine: false,
    momentum: 0.937,
    weightDecay: 5e-4,
    warmupEpochs: 3,
    warmupMomentum: 0.8,
    warmupBiasLr: 0.1,
    nominalBatch: 64,
    clipNorm: 10,
    emaDecay: 0.9999,
    emaUpdates: 2000,
  };

  it("follow the schedules from warm-up to the last epoch", () => {
    expect(ratesAt(recipe, 0, 0, 50)).toEqual({ lr: 0, bias: 0.1, momentum: 0.8 });
    expect(ratesAt(recipe, 3, 0, 50).lr).toBeCloseTo(0.01 * (1 - 0.99 * 0.3), 12);
    expect(ratesAt(recipe, 10, 0, 50).bias).toBeCloseTo(0.0001, 12);
    expect(ratesAt({ ...recipe, cosine: true }, 5, 0, 50).lr).toBeCloseTo(0.01 * 0.505, 12);
    // Never fewer than 100 iterations of warm-up.
    expect(ratesAt(recipe, 2, 0, 25).momentum).toBeCloseTo(0.8 + 0.137 * 0.5, 12);
    expect(ratesAt({ ...recipe, warmupEpochs: 0 }, 0, 0, 50).lr).toBe(0.01);
    expect([0, 5, 10, 12].map((epoch) => o2mShareAt(epoch, 11).toFixed(6))).toEqual([
      ...["0.800000", "0.450000", "0.100000", "0.100000"],
    ]);
    expect(o2mShareAt(0, 1)).toBeCloseTo(0.8, 12);
  });

  it.each([
    [4, 9],
    [9, 4],
    [6, 6],
  ])("make a %i × %i matrix nearly orthogonal", (rows, columns) => {
    const matrix = randomTensor(seeded(8), [rows, columns]).values;
    const made = orthogonal(matrix, rows, columns);
    const m = Math.min(rows, columns);
    for (let one = 0; one < m; one++) {
      for (let other = 0; other < m; other++) {
        let product = 0;
        for (let k = 0; k < Math.max(rows, columns); k++) {
          const at = (line: number) => (rows > columns ? k * columns + line : line * columns + k);
          product += (made[at(one)] as number) * (made[at(other)] as number);
        }
        // Quintic steps of these factors bring singular values to 0.7 to 1.2, not to 1.
        if (one === other) expect(product).toBeGreaterThan(0.4);
        expect(Math.abs(product - (one === other ? 1 : 0))).toBeLessThan(0.6);
      }
    }
  });

  it("average weights by a decay that grows as the facts say", () => {
    const state: State = new Map([["a.weight", new Tensor([1], Float64Array.of(0))]]);
    const average = new Average(state, recipe);
    const kept: number[] = [];
    for (let update = 1; update <= 10_000; update++) {
      (average.values.get("a.weight") as Float64Array)[0] = 1;
      average.update(state);
      if ([1, 100, 2000, 10_000].includes(update))
        kept.push(average.values.get("a.weight")?.[0] as number);
    }
    expect(kept.map((decay) => decay.toFixed(3))).toEqual(["0.000", "0.049", "0.632", "0.993"]);
  });
});
