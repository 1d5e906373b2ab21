// A view of an image as a step of pre-training sees it: a square cut of random size and place,
// mirrored or not, in other colours; and the features of what it shows, level by level. Which view
// is decided by seed, epoch and position alone. Pure.

import { LEVEL_STRIDES } from "../../shared/detector/detector.ts";
import type { RgbImage } from "../media/image.ts";
import { FEATURES, type FeatureScale, type PreparedImage } from "./pretraining-images.ts";

const GREY = 114 / 255;
/** Sides of a cut, in sides of the image's longest. */
const CUT_MIN = 0.4;
const CUT_MAX = 1.1;
/** Brightness and each colour: factors of 1 ±. */
const BRIGHTNESS = 0.3;
const COLOUR = 0.15;
/** Samples of a cell's side, at most. */
const SAMPLES_MAX = 4;

/** A cut of an image, in the image's pixels, as a square of `size` pixels. */
export interface View {
  size: number;
  left: number;
  top: number;
  side: number;
  isMirrored: boolean;
  /** Factors of red, green and blue. */
  colours: readonly [number, number, number];
}

/** Evenly spread numbers in 0 to 1, decided by the key (splitmix32). */
export function numbersOf(...key: number[]): () => number {
  let state = 0x9e3779b9;
  const next = () => {
    state = (state + 0x9e3779b9) | 0;
    let mixed = Math.imul(state ^ (state >>> 16), 0x85ebca6b);
    mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
    return (mixed ^ (mixed >>> 16)) >>> 0;
  };
  for (const part of key) state = next() ^ part;
  return () => next() / 2 ** 32;
}

/** The order of so many images in an epoch. */
export function orderOf(count: number, seed: number, epoch: number): number[] {
  const number = numbersOf(seed, epoch);
  const order = Array.from({ length: count }, (_, at) => at);
  for (let at = count - 1; at > 0; at--) {
    const other = Math.floor(number() * (at + 1));
    [order[at], order[other]] = [order[other] as number, order[at] as number];
  }
  return order;
}

/** The view of an image at a place of the training. */
export function viewOf(
  { width, height }: Pick<RgbImage, "width" | "height">,
  size: number,
  number: () => number,
): View {
  const longest = Math.max(width, height);
  const side = longest * (CUT_MIN + (CUT_MAX - CUT_MIN) * number());
  // A side that is longer than the cut is cut anywhere, one that is shorter lies anywhere in it.
  const from = (whole: number) => (whole - side) * number();
  const [left, top] = [from(width), from(height)];
  const isMirrored = number() < 0.5;
  const bright = 1 + BRIGHTNESS * (2 * number() - 1);
  const colour = () => bright * (1 + COLOUR * (2 * number() - 1));
  return { size, left, top, side, isMirrored, colours: [colour(), colour(), colour()] };
}

/** Writes a view's pixels as three planes, bilinear; grey where it reaches beyond the image. */
export function drawView({ data, width, height }: RgbImage, view: View, planes: Float32Array) {
  const { size, left, top, side, isMirrored, colours } = view;
  const step = side / size;
  const plane = size * size;
  for (let row = 0; row < size; row++) {
    const y = top + (row + 0.5) * step;
    const isRow = y >= 0 && y < height;
    const fromY = Math.min(height - 1, Math.max(0, y - 0.5));
    const y0 = Math.floor(fromY);
    const y1 = Math.min(height - 1, y0 + 1);
    const dy = fromY - y0;
    for (let column = 0; column < size; column++) {
      const seen = isMirrored ? size - 1 - column : column;
      const x = left + (seen + 0.5) * step;
      const to = row * size + column;
      if (!isRow || x < 0 || x >= width) {
        for (let channel = 0; channel < 3; channel++) planes[channel * plane + to] = GREY;
        continue;
      }
      const fromX = Math.min(width - 1, Math.max(0, x - 0.5));
      const x0 = Math.floor(fromX);
      const x1 = Math.min(width - 1, x0 + 1);
      const dx = fromX - x0;
      for (let channel = 0; channel < 3; channel++) {
        const at = (px: number, py: number) => data[(py * width + px) * 3 + channel] as number;
        const above = at(x0, y0) * (1 - dx) + at(x1, y0) * dx;
        const below = at(x0, y1) * (1 - dx) + at(x1, y1) * dx;
        const value = (above * (1 - dy) + below * dy) * (colours[channel] as number);
        planes[channel * plane + to] = Math.min(1, value / 255);
      }
    }
  }
}

/**
 * Writes a view's features of a level, [FEATURES, cells, cells]: of each cell the mean of what lies
 * under it, less the mean of all images, and by the deviations; 0 beyond the image.
 */
export function targetsOf(
  { image, features }: PreparedImage,
  view: View,
  { scale, level, into }: { scale: FeatureScale; level: number; into: Float32Array },
) {
  const { size, left, top, side, isMirrored } = view;
  const cells = size / (LEVEL_STRIDES[level] as number);
  const values = features.values;
  // Cells of the features a pixel of the image.
  const perX = features.columns / image.width;
  const perY = features.rows / image.height;
  const step = side / cells;
  const samples = Math.min(SAMPLES_MAX, Math.max(1, Math.round(step * perX)));
  const sums = new Float32Array(FEATURES);
  for (let row = 0; row < cells; row++)
    for (let column = 0; column < cells; column++) {
      const seen = isMirrored ? cells - 1 - column : column;
      let count = 0;
      sums.fill(0);
      for (let at = 0; at < samples * samples; at++) {
        const x = left + (seen + ((at % samples) + 0.5) / samples) * step;
        const y = top + (row + (Math.floor(at / samples) + 0.5) / samples) * step;
        if (x < 0 || y < 0 || x >= image.width || y >= image.height) continue;
        const from = (Math.floor(y * perY) * features.columns + Math.floor(x * perX)) * FEATURES;
        for (let feature = 0; feature < FEATURES; feature++)
          sums[feature] = (sums[feature] as number) + (values[from + feature] as number);
        count += 1;
      }
      // A cell that shows little of the image would be told of features that it cannot see.
      const isThere = count * 2 >= samples * samples;
      const to = row * cells + column;
      for (let feature = 0; feature < FEATURES; feature++) {
        const value = (sums[feature] as number) / count - (scale.mean[feature] as number);
        into[feature * cells * cells + to] = isThere
          ? value * (scale.factor[feature] as number)
          : 0;
      }
    }
}
