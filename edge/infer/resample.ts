// Pixels at another size, as libvips computes them with its linear kernel, so that a model sees at
// the edge what it sees on a node. Making smaller: blocks are averaged as long as the image stays
// twice the wanted size, then each pixel is a mean under a triangle that reaches one wanted pixel
// to either side (libvips' `reduce` with a gap of 2). Making larger: bilinear.

import type { ImageSize } from "../../shared/detector/letterbox.ts";

/** RGBA, four bytes a pixel, row by row; colours are not multiplied by alpha. */
export interface RgbaImage extends ImageSize {
  data: Uint8Array | Uint8ClampedArray;
}

const WHITE = 255;
const OPAQUE = 255;

/** How a pixel of the result comes about on one axis. */
interface Taps {
  /** The first pixel of the source that counts. */
  first: number;
  /** Weights of `first` and the pixels after it; they sum up to 1. */
  weights: Float32Array;
}

/** The taps of each pixel of a result, which is `to` pixels long, from `from` pixels. */
export function tapsOf(from: number, to: number): Taps[] {
  const ratio = from / to;
  const block = Math.max(1, Math.floor(ratio / 2));
  const blocks = Math.ceil(from / block);
  const step = ratio / block;
  const reach = Math.max(1, step);
  return Array.from({ length: to }, (_, index) => {
    // When it enlarges, libvips lays the first pixel half a source pixel further in.
    const centre = (ratio < 1 ? index * step : (index + 0.5) * step) - 0.5;
    const weights = new Map<number, number>();
    let sum = 0;
    for (let at = Math.ceil(centre - reach); at <= Math.floor(centre + reach); at++) {
      const weight = 1 - Math.abs(at - centre) / reach;
      if (weight <= 0) continue;
      sum += weight;
      // Beyond the image its last pixels go on.
      const inside = Math.min(blocks - 1, Math.max(0, at));
      for (let part = 0; part < block; part++) {
        const pixel = Math.min(from - 1, inside * block + part);
        weights.set(pixel, (weights.get(pixel) ?? 0) + weight / block);
      }
    }
    const pixels = [...weights.keys()];
    const first = Math.min(...pixels);
    const taps = new Float32Array(Math.max(...pixels) - first + 1);
    for (const [pixel, weight] of weights) taps[pixel - first] = weight / sum;
    return { first, weights: taps };
  });
}

/** An image at another size as RGB; where it is transparent, white shows. */
export function resample(image: RgbaImage, { width, height }: ImageSize): Uint8Array {
  const rgb = new Uint8Array(width * height * 3);
  const columns = tapsOf(image.width, width);
  const row = new Float32Array(image.width * 3);
  const flat = isOpaque(image) ? addRow : addTransparentRow;
  for (const [y, { first, weights }] of tapsOf(image.height, height).entries()) {
    row.fill(0);
    for (const [index, weight] of weights.entries()) flat(row, { image, y: first + index, weight });
    narrow(row, columns, rgb.subarray(y * width * 3, (y + 1) * width * 3));
  }
  return rgb;
}

function isOpaque({ data }: RgbaImage): boolean {
  for (let at = 3; at < data.length; at += 4) if (data[at] !== OPAQUE) return false;
  return true;
}

interface Share {
  image: RgbaImage;
  y: number;
  weight: number;
}

function addRow(row: Float32Array, { image: { data, width }, y, weight }: Share) {
  let from = y * width * 4;
  for (let to = 0; to < row.length; to += 3, from += 4) {
    row[to] = (row[to] as number) + weight * (data[from] as number);
    row[to + 1] = (row[to + 1] as number) + weight * (data[from + 1] as number);
    row[to + 2] = (row[to + 2] as number) + weight * (data[from + 2] as number);
  }
}

function addTransparentRow(row: Float32Array, { image: { data, width }, y, weight }: Share) {
  let from = y * width * 4;
  for (let to = 0; to < row.length; to += 3, from += 4) {
    const alpha = (data[from + 3] as number) / OPAQUE;
    for (let channel = 0; channel < 3; channel++) {
      const shown = WHITE + ((data[from + channel] as number) - WHITE) * alpha;
      row[to + channel] = (row[to + channel] as number) + weight * shown;
    }
  }
}

/** A row's pixels at the wanted width. */
function narrow(row: Float32Array, columns: readonly Taps[], rgb: Uint8Array) {
  for (let x = 0; x < columns.length; x++) {
    const { first, weights } = columns[x] as Taps;
    let [red, green, blue] = [0, 0, 0];
    for (let index = 0, from = first * 3; index < weights.length; index++, from += 3) {
      const weight = weights[index] as number;
      red += weight * (row[from] as number);
      green += weight * (row[from + 1] as number);
      blue += weight * (row[from + 2] as number);
    }
    rgb[x * 3] = Math.round(red);
    rgb[x * 3 + 1] = Math.round(green);
    rgb[x * 3 + 2] = Math.round(blue);
  }
}
