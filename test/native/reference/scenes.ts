// Batches of random images with objects, in the engine's shape and in the reference's, and how
// far two lists of numbers are apart.

import type { Batch } from "../../../native/index.d.ts";
import type { Truth } from "./assigner.ts";
import { MASK_STRIDE } from "./mask-loss.ts";
import { Tensor } from "./tensor.ts";
import { seeded, uniform } from "./weights.ts";

export interface NoiseScene {
  batch: Batch;
  images: Tensor;
  truths: Truth[][];
}

export interface Extent {
  height: number;
  width: number;
}

/** Smooth noise, so that neighbouring pixels resemble each other as in images. */
export function noiseScene(
  seed: number,
  { height, width }: Extent,
  truths: readonly (readonly Truth[])[],
): NoiseScene {
  const random = seeded(seed);
  const count = truths.length;
  const values = new Float32Array(count * 3 * height * width);
  const plane = height * width;
  for (let channel = 0; channel < count * 3; channel++) {
    const [fx, fy, phase] = [random() / 3, random() / 3, random() * 6];
    for (let index = 0; index < plane; index++) {
      const wave = Math.sin(fx * (index % width) + fy * Math.floor(index / width) + phase);
      values[channel * plane + index] = 0.25 + 0.5 * random() + 0.25 * wave;
    }
  }
  const images = values.map((value) => Math.fround(Math.min(Math.max(value, 0), 1)));
  const rows = truths.flatMap((own, image) =>
    own.flatMap(({ classIndex, box }) => [image, classIndex, ...box]),
  );
  const all = truths.flat();
  const cells = (height * width) / MASK_STRIDE ** 2;
  const masks = new Uint8Array(all.length * cells);
  for (const [index, { mask }] of all.entries()) if (mask) masks.set(mask, index * cells);
  const isMasked = all.some(({ mask }) => mask);
  return {
    batch: {
      images,
      count,
      height,
      width,
      boxes: Float32Array.from(rows),
      ...(isMasked && { masks }),
    },
    images: new Tensor([count, 3, height, width], Float64Array.from(images)),
    truths: truths.map((own) =>
      own.map(({ classIndex, box: [x1, y1, x2, y2], mask }) => ({
        classIndex,
        box: [Math.fround(x1), Math.fround(y1), Math.fround(x2), Math.fround(y2)] as const,
        ...(mask && { mask }),
      })),
    ),
  };
}

/** The objects with ellipses in their boxes as masks, but those that `isBare`. */
export function masked(
  truths: readonly Truth[],
  { height, width }: Extent,
  isBare: (index: number) => boolean = () => false,
): Truth[] {
  const [rows, columns] = [height / MASK_STRIDE, width / MASK_STRIDE];
  return truths.map((truth, index) => {
    const [x1, y1, x2, y2] = truth.box;
    const share = (cell: number, from: number, to: number) =>
      ((cell + 0.5) * MASK_STRIDE - (from + to) / 2) / (to - from);
    const mask = Array.from({ length: rows * columns }, (_, cell) => {
      const away = Math.hypot(
        share(cell % columns, x1, x2),
        share(Math.floor(cell / columns), y1, y2),
      );
      return away < 0.5 ? 1 : 0;
    });
    return isBare(index) || !mask.includes(1) ? truth : { ...truth, mask };
  });
}

/** Objects of one to three quarters of the image's sides, at uneven positions. */
export function randomTruths(
  seed: number,
  count: number,
  { height, width, classes }: Extent & { classes: number },
): Truth[] {
  const random = seeded(seed);
  return Array.from({ length: count }, () => {
    const [w, h] = [uniform(random, 0.1, 0.7) * width, uniform(random, 0.1, 0.7) * height];
    const [x, y] = [uniform(random, 0, 1) * (width - w), uniform(random, 0, 1) * (height - h)];
    return { classIndex: Math.floor(random() * classes), box: [x, y, x + w, y + h] as const };
  });
}

/** Length of the difference, of the length of what is expected. */
export function distance(found: ArrayLike<number>, expected: ArrayLike<number>): number {
  return norm(found, expected) / Math.max(norm(expected), Number.MIN_VALUE);
}

/** Length of a list of numbers, or of the difference of two. */
export function norm(one: ArrayLike<number>, other?: ArrayLike<number>): number {
  if (other && one.length !== other.length) return Number.NaN;
  let squares = 0;
  for (let index = 0; index < one.length; index++) {
    squares += ((one[index] as number) - (other ? (other[index] as number) : 0)) ** 2;
  }
  return Math.sqrt(squares);
}

export type Lists = ReadonlyMap<string, ArrayLike<number>>;

/** Distances of gradients by name; what is nothing beside all the others cannot be far off. */
export function gradientDistances(found: Lists, expected: Lists): Map<string, number> {
  const whole = Math.hypot(...[...expected.values()].map((values) => norm(values)));
  return new Map(
    [...expected].map(
      ([name, values]) =>
        [
          ...[
            name,
            norm(found.get(name) ?? [], values) / Math.max(norm(values), 1e-4 * whole, 1e-12),
          ],
        ] as [string, number],
    ),
  );
}

/**
 * Of states by name: how far apart they are, of the way from the start. A thousandth of a tensor's
 * own length is added to its way, as single precision cannot hold a shorter one exactly.
 */
export function stateDistances(found: Lists, expected: Lists, start: Lists): Map<string, number> {
  return new Map(
    [...expected].map(([name, values]) => {
      const from = start.get(name) ?? [];
      const way = norm(values, from) + 1e-3 * norm(from);
      return [name, norm(found.get(name) ?? [], values) / Math.max(way, 1e-12)];
    }),
  );
}

/** Uniform noise in 0 to 1. */
export function noiseTensor(seed: number, shape: readonly number[]): Tensor {
  const random = seeded(seed);
  const count = shape.reduce((product, side) => product * side, 1);
  return new Tensor(shape, Float64Array.from({ length: count }, random));
}
