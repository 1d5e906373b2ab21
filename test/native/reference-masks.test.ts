// The reference's losses of masks: gradients against central differences, and cases by hand.

import { describe, expect, it } from "vitest";
import type { Truth } from "./reference/assigner.ts";
import { gradientError, randomTensor, weighted } from "./reference/difference.ts";
import { combine, maskLoss, semanticLoss } from "./reference/mask-loss.ts";
import { masked, randomTruths } from "./reference/scenes.ts";
import { filled, sums, Tensor } from "./reference/tensor.ts";
import { seeded } from "./reference/weights.ts";

/** Central differences of a step of 1e-5 in doubles: measured 1e-11 to 1e-9. */
const DIFFERENCE_MAX = 1e-7;
const FRAME = { height: 32, width: 32 };
const softplus = (value: number) => Math.log1p(Math.exp(value));

describe("gradients agree with central differences", () => {
  const random = seeded(2);
  const truths = [1, 2].map((seed) =>
    masked(randomTruths(seed, 2, { ...FRAME, classes: 2 }), FRAME, (index) => seed + index === 3),
  );

  it("of sums of runs, and of combined prototypes", () => {
    const [rows, maps] = [randomTensor(random, [3, 2]), randomTensor(random, [2, 2, 2, 3])];
    const total = weighted(random);
    const run = () => total(sums(maps, 6), combine(rows, maps, [1, 0, 1]));
    expect(gradientError(run, [rows, maps])).toBeLessThan(DIFFERENCE_MAX);
  });

  it("of the loss of masks", () => {
    const rows = randomTensor(random, [2, 3, 2]);
    const maps = randomTensor(random, [2, 2, 8, 8]);
    const positives = truths.flatMap((own, image) =>
      own.map((truth, index) => ({ image, row: image * 3 + index, truth, target: 1 })),
    );
    const run = () => maskLoss(rows, maps, positives);
    expect(run().item).toBeGreaterThan(0.1);
    expect(gradientError(run, [rows, maps])).toBeLessThan(DIFFERENCE_MAX);
  });

  it("of the loss of the semantic map", () => {
    const logits = randomTensor(random, [2, 2, 4, 4]);
    const run = () => semanticLoss(logits, truths);
    expect(run().item).toBeGreaterThan(0.1);
    expect(gradientError(run, [logits])).toBeLessThan(DIFFERENCE_MAX);
  });
});

describe("the loss of masks", () => {
  /** One prototype of ones: every logit is the weight of its row. */
  const ones = filled([1, 1, 8, 8], 1);
  const weights = new Tensor([1, 2, 1], Float64Array.of(2, -1));
  const cells = (isInside: (x: number, y: number) => boolean) =>
    Array.from({ length: 64 }, (_, cell) => (isInside(cell % 8, Math.floor(cell / 8)) ? 1 : 0));
  const positive = (row: number, truth: Omit<Truth, "classIndex">) => ({
    image: 0,
    row,
    truth: { classIndex: 0, ...truth },
    target: 0.5,
  });

  it("is the mean entropy of the box's cells, and the mean over objects with a mask", () => {
    // Columns 1 to 4 of rows 2 and 3, of which the left half is the object.
    const half = positive(0, { box: [4, 8, 20, 16], mask: cells((x) => x < 3) });
    expect(maskLoss(weights, ones, [half]).item).toBeCloseTo((softplus(-2) + softplus(2)) / 2, 12);
    const bare = positive(1, { box: [0, 0, 32, 32] });
    const whole = positive(1, { box: [0, 0, 32, 32], mask: cells(() => true) });
    const both = maskLoss(weights, ones, [half, bare, whole]).item;
    expect(both).toBeCloseTo((softplus(-2) + softplus(2)) / 4 + softplus(1) / 2, 12);
    expect(maskLoss(weights, ones, [bare]).item).toBe(0);
  });

  it("counts cells by their centres, and no area below a cell's", () => {
    // The centre at x = 6 alone, those at y = 10 and 14: two cells of an area of one.
    const thin = positive(0, { box: [5, 8, 7, 16], mask: cells((x) => x === 1) });
    expect(maskLoss(weights, ones, [thin]).item).toBeCloseTo(2 * softplus(-2), 12);
    const tiny = positive(0, { box: [5.5, 9.5, 6.5, 10.5], mask: cells((x) => x === 1) });
    expect(maskLoss(weights, ones, [tiny]).item).toBeCloseTo(softplus(-2), 12);
    // The right and the bottom side are exclusive.
    const edge = positive(0, { box: [2, 2, 6, 6], mask: cells(() => true) });
    expect(maskLoss(weights, ones, [edge]).item).toBeCloseTo(softplus(-2), 12);
  });

  it("of the semantic map counts a cell that is touched, in images that are masked as a whole", () => {
    const logits = filled([2, 1, 4, 4], 1);
    const corner: Truth = { classIndex: 0, box: [0, 0, 4, 4], mask: cells((x, y) => x + y === 0) };
    const likely = 1 / (1 + Math.exp(-1));
    const entropy = (softplus(-1) + 15 * softplus(1)) / 16;
    const dice = 1 - (2 * likely + 1) / (16 * likely + 1 + 1);
    const expected = (entropy + dice) / 2;
    const { mask: _, ...bare } = corner;
    expect(semanticLoss(logits, [[corner], [corner, bare]]).item).toBeCloseTo(expected, 12);
    expect(semanticLoss(logits, [[corner], [corner]]).item).toBeCloseTo(expected, 12);
    const empty = (softplus(1) + 1 - 1 / (16 * likely + 1)) / 2;
    expect(semanticLoss(logits, [[corner], []]).item).toBeCloseTo((expected + empty) / 2, 12);
    expect(semanticLoss(logits, [[bare], [bare]]).item).toBe(0);
  });
});
