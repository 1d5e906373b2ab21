// The losses of masks: of each positive's mask, a weighted sum of the prototypes, within its
// object's box; and of the semantic map, over whole images.

import type { Truth } from "./assigner.ts";
import {
  add,
  affine,
  crossEntropy,
  divide,
  gather,
  logistic,
  multiply,
  sum,
  sums,
  Tensor,
  unary,
} from "./tensor.ts";

/** Pixels of the input to a cell of a mask. */
export const MASK_STRIDE = 4;

/** Sum of an image's prototypes for each row of weights: [rows, height · width]. */
export function combine(weights: Tensor, prototypes: Tensor, images: readonly number[]): Tensor {
  const [, count, height, width] = prototypes.shape as [number, number, number, number];
  const cells = height * width;
  const values = new Float64Array(images.length * cells);
  /** Every (value of the result, weight, value of a prototype) that meet. */
  const each = (visit: (to: number, weight: number, from: number) => void) => {
    for (const [row, image] of images.entries()) {
      for (let index = 0; index < count; index++) {
        const plane = (image * count + index) * cells;
        for (let cell = 0; cell < cells; cell++) {
          visit(row * cells + cell, row * count + index, plane + cell);
        }
      }
    }
  };
  each((to, weight, from) => {
    const product = (weights.values[weight] as number) * (prototypes.values[from] as number);
    values[to] = (values[to] as number) + product;
  });
  const back = (gradient: Float64Array) => {
    const [byWeight, byPrototype] = [weights.gradient, prototypes.gradient];
    each((to, weight, from) => {
      const slope = gradient[to] as number;
      byWeight[weight] = (byWeight[weight] as number) + slope * (prototypes.values[from] as number);
      byPrototype[from] =
        (byPrototype[from] as number) + slope * (weights.values[weight] as number);
    });
  };
  return new Tensor([images.length, cells], values, { inputs: [weights, prototypes], back });
}

/** An anchor that learns an object's mask. */
export interface MaskPositive {
  image: number;
  /** Index of the anchor in the batch. */
  row: number;
  truth: Truth;
  /** Target of the class score. */
  target: number;
}

/** A positive of a lower target teaches no mask: single precision cannot tell it from none. */
const TARGET_MIN = 1e-6;

/**
 * Mean over the positives whose object has a mask: the cross entropies of the cells whose centres
 * lie in the object's box, of the box's area in cells. `weights`: [batch, anchors, prototypes].
 */
export function maskLoss(
  weights: Tensor,
  prototypes: Tensor,
  positives: readonly MaskPositive[],
): Tensor {
  const learned = positives.filter(({ truth, target }) => truth.mask && target > TARGET_MIN);
  const [count, height, width] = [prototypes.side(1), prototypes.side(2), prototypes.side(3)];
  const offsets = learned.flatMap(({ row }) =>
    Array.from({ length: count }, (_, index) => row * count + index),
  );
  const chosen = gather(weights, Int32Array.from(offsets), [learned.length, count]);
  const logits = combine(
    chosen,
    prototypes,
    learned.map(({ image }) => image),
  );
  const targets = new Float64Array(logits.values.length);
  const shares = new Float64Array(logits.values.length);
  for (const [index, { truth }] of learned.entries()) {
    const [x1, y1, x2, y2] = truth.box;
    const area = Math.max(((x2 - x1) * (y2 - y1)) / MASK_STRIDE ** 2, 1);
    targets.set(truth.mask as ArrayLike<number>, index * height * width);
    for (let cell = 0; cell < height * width; cell++) {
      const x = ((cell % width) + 0.5) * MASK_STRIDE;
      const y = (Math.floor(cell / width) + 0.5) * MASK_STRIDE;
      const isInside = x >= x1 && x < x2 && y >= y1 && y < y2;
      if (isInside) shares[index * height * width + cell] = 1 / area;
    }
  }
  const like = (values: Float64Array) => new Tensor(logits.shape, values);
  const entropies = multiply(crossEntropy(logits, like(targets)), like(shares));
  return affine(sum(entropies), 1 / Math.max(learned.length, 1));
}

const sigmoid = (x: Tensor) => unary(x, logistic, (_, gate) => gate * (1 - gate));

/**
 * Half the mean cross entropy and half the mean Dice loss of the classes, over the images whose
 * objects all have masks. A cell is of a class where a mask of it has one of the cell's four parts.
 */
export function semanticLoss(logits: Tensor, truths: readonly (readonly Truth[])[]): Tensor {
  const [, classes, height, width] = logits.shape as [number, number, number, number];
  const plane = height * width;
  const targets = new Float64Array(logits.values.length);
  const counts = truths.map((own) => own.every(({ mask }) => mask));
  for (const [image, own] of truths.entries()) {
    for (const { classIndex, mask } of own) {
      for (let part = 0; part < 4 * plane; part++) {
        const [x, y] = [(part % (2 * width)) >> 1, Math.floor(part / (2 * width)) >> 1];
        if (mask?.[part]) targets[((image * classes + classIndex) * height + y) * width + x] = 1;
      }
    }
  }
  const target = new Tensor(logits.shape, targets);
  const likely = sigmoid(logits);
  const shared = sums(multiply(likely, target), plane);
  const both = sums(add(likely, target), plane);
  const dice = divide(affine(shared, -2, -1), affine(both, 1, 1));
  const entropies = sums(crossEntropy(logits, target), plane);
  const each = add(affine(entropies, 1 / plane), affine(dice, 1, 1));
  const share = 1 / (2 * classes * Math.max(counts.filter(Boolean).length, 1));
  const shares = Float64Array.from(each.values, (_, row) =>
    counts[Math.floor(row / classes)] ? share : 0,
  );
  return sum(multiply(each, new Tensor(each.shape, shares)));
}
