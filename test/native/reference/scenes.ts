// Batches of random pictures with objects, in the engine's shape and in the reference's, and how
// far two lists of numbers are apart.

import type { Batch } from "../../../native/index.d.ts";
import type { Truth } from "./assigner.ts";
import { Tensor } from "./tensor.ts";
import { seeded, uniform } from "./weights.ts";

export interface Pictures {
  batch: Batch;
  images: Tensor;
  truths: Truth[][];
}

export interface Extent {
  height: number;
  width: number;
}

/** Smooth noise, so that neighbouring pixels resemble each other as in pictures. */
export function pictures(
  seed: number,
  { height, width }: Extent,
  truths: readonly (readonly Truth[])[],
): Pictures {
  const random = seeded(seed);
  const count = truths.length;
  const values = new Float32Array(count * 3 * height * width);
  const plane = height * width;
  for (let channel = 0; channel < count * 3; channel++) {
    const [fx, fy, phase] = [random() / 3, random() / 3, random() * 6];
    for (let at = 0; at < plane; at++) {
      const wave = Math.sin(fx * (at % width) + fy * Math.floor(at / width) + phase);
      values[channel * plane + at] = 0.25 + 0.5 * random() + 0.25 * wave;
    }
  }
  const images = values.map((value) => Math.fround(Math.min(Math.max(value, 0), 1)));
  const rows = truths.flatMap((own, image) =>
    own.flatMap(({ classIndex, box }) => [image, classIndex, ...box]),
  );
  return {
    batch: { images, count, height, width, boxes: Float32Array.from(rows) },
    images: new Tensor([count, 3, height, width], Float64Array.from(images)),
    truths: truths.map((own) =>
      own.map(({ classIndex, box: [x1, y1, x2, y2] }) => ({
        classIndex,
        box: [Math.fround(x1), Math.fround(y1), Math.fround(x2), Math.fround(y2)] as const,
      })),
    ),
  };
}

/** Objects of one to three quarters of the picture's sides, at odd places. */
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

/** Norm of the difference, of the norm of what is expected. */
export function distance(found: ArrayLike<number>, expected: ArrayLike<number>): number {
  if (found.length !== expected.length) return Number.POSITIVE_INFINITY;
  let [apart, whole] = [0, 0];
  for (let at = 0; at < expected.length; at++) {
    const value = expected[at] as number;
    apart += ((found[at] as number) - value) ** 2;
    whole += value ** 2;
  }
  if (Number.isNaN(apart)) return Number.POSITIVE_INFINITY;
  if (whole === 0) return apart === 0 ? 0 : Number.POSITIVE_INFINITY;
  return Math.sqrt(apart / whole);
}
