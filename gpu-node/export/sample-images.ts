// Images to hold a file of a model against its predictor on, where the model's own dataset has none
// at hand: coloured shapes before a slope of light, under noise. The same ones on every machine.

import type { RgbImage } from "../media/image.ts";

/** Sizes that no model has, so that the letterbox shows. */
const SIZES = [
  [320, 200],
  [160, 240],
  [256, 256],
  [400, 120],
] as const;
const SHAPES = 9;

/** A small generator of evenly spread numbers in 0 to 1 (mulberry32). */
function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** So many images, each of another size and of other shapes. */
export const sampleImages = (count: number): RgbImage[] =>
  Array.from({ length: count }, (_, index) => sampleImage(index));

/** The image of this index. */
export function sampleImage(index: number): RgbImage {
  const [width, height] = SIZES[index % SIZES.length] as (typeof SIZES)[number];
  const random = seeded(index + 1);
  const shapes = Array.from({ length: SHAPES }, () => ({
    x: random() * width,
    y: random() * height,
    radius: 4 + random() * 0.25 * Math.min(width, height),
    isDisc: random() < 0.5,
    colour: [random(), random(), random()].map((value) => value * 255),
  }));
  const data = new Uint8Array(3 * width * height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const shape = shapes.findLast(({ x: atX, y: atY, radius, isDisc }) => {
        const [across, down] = [Math.abs(x - atX), Math.abs(y - atY)];
        return isDisc ? Math.hypot(across, down) <= radius : Math.max(across, down) <= radius;
      });
      const light = 60 + (130 * x) / width;
      for (let channel = 0; channel < 3; channel++) {
        const value = (shape?.colour[channel] ?? light) + 20 * (random() - 0.5);
        data[3 * (y * width + x) + channel] = Math.max(0, Math.min(255, Math.round(value)));
      }
    }
  }
  return { data, width, height };
}
