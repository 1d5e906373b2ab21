// An image laid into what a detector reads, most often a square, and what was found there laid back
// onto the image. As training does it: sides in proportion, centred, the rest grey, RGB in 0 to 1.
// How pixels get to their new size is the caller's.

import type { Bbox, Prediction } from "../tasks/tasks.ts";

/** Grey of the padding, in 0 to 255. */
const GREY = 114;
const UNIT = Float32Array.from({ length: 256 }, (_, value) => value / 255);

/** Width and height in pixels. */
export interface ImageSize {
  width: number;
  height: number;
}

/** Where an image lies in the square. */
export interface Placement extends ImageSize {
  /** Pixels of the square that it takes. */
  laid: ImageSize;
  /** Pixels of the square a pixel of the image. */
  scaleX: number;
  scaleY: number;
  left: number;
  top: number;
}

/** Where an image of this size lies within another size. */
export function placementOf({ width, height }: ImageSize, within: ImageSize): Placement {
  const scale = Math.min(within.width / width, within.height / height);
  const laid = {
    width: Math.max(1, Math.round(width * scale)),
    height: Math.max(1, Math.round(height * scale)),
  };
  // What is left over is split; an odd pixel goes to the right or the bottom.
  const left = Math.max(0, Math.round((within.width - laid.width) / 2 - 0.1));
  const top = Math.max(0, Math.round((within.height - laid.height) / 2 - 0.1));
  return {
    width,
    height,
    laid,
    left,
    top,
    scaleX: laid.width / width,
    scaleY: laid.height / height,
  };
}

/**
 * Three planes of the size it is laid within; `rgb` are the image's pixels at the laid size. They
 * are written over `into` where that is given.
 */
export function layPixels(
  rgb: Uint8Array,
  { laid: { width, height }, left, top }: Placement,
  within: ImageSize,
  into?: Float32Array<ArrayBuffer>,
): Float32Array<ArrayBuffer> {
  const plane = within.width * within.height;
  const pixels = into ?? new Float32Array(3 * plane);
  pixels.fill(UNIT[GREY] as number);
  for (let y = 0; y < height; y++) {
    let from = y * width * 3;
    let to = (top + y) * within.width + left;
    for (let x = 0; x < width; x++, from += 3, to++) {
      pixels[to] = UNIT[rgb[from] as number] as number;
      pixels[to + plane] = UNIT[rgb[from + 1] as number] as number;
      pixels[to + 2 * plane] = UNIT[rgb[from + 2] as number] as number;
    }
  }
  return pixels;
}

const hundredths = (value: number) => Math.round(value * 100) / 100;

/** A box of the square on the image, cut to it; null where nothing of it is on the image. */
export function unletterbox(
  [x1, y1, x2, y2]: readonly [number, number, number, number],
  { scaleX, scaleY, left, top, width, height }: Placement,
): Bbox | null {
  const inside = (value: number, max: number) => Math.min(max, Math.max(0, hundredths(value)));
  const bbox: Bbox = [
    inside((x1 - left) / scaleX, width),
    inside((y1 - top) / scaleY, height),
    inside((x2 - left) / scaleX, width),
    inside((y2 - top) / scaleY, height),
  ];
  return bbox[2] > bbox[0] && bbox[3] > bbox[1] ? bbox : null;
}

/** Rows of one image: x1, y1, x2, y2 in pixels of the square, score, class, by falling score. */
export interface DetectionRows {
  values: Float32Array;
  /** Numbers of one row; those of a segmentation model have more. */
  width: number;
}

/** The same with what masks are drawn of. */
export interface MaskedRows extends DetectionRows {
  /** Planes [32, height / 4, width / 4] of the square; null where there are none, or not asked. */
  prototypes: Float32Array | null;
}

interface RowOptions {
  classes: readonly string[];
  confidence: number;
  placement: Placement;
}

/** The objects of rows that are sure enough, surest first, in pixels of the image. */
export const predictionsOf = (rows: DetectionRows, options: RowOptions): Prediction[] =>
  foundIn(rows, options).map(({ prediction }) => prediction);

/** The same, each with the number of its row. */
export function foundIn(
  { values, width }: DetectionRows,
  { classes, confidence, placement }: RowOptions,
): { prediction: Prediction; row: number }[] {
  const found: { prediction: Prediction; row: number }[] = [];
  for (let at = 0; at < values.length; at += width) {
    const [x1 = 0, y1 = 0, x2 = 0, y2 = 0, score = 0, index = 0] = values.subarray(at, at + 6);
    // By falling score: what follows is less sure still. Suppression leaves a score of 0.
    if (!(score > 0 && score >= confidence)) break;
    const bbox = unletterbox([x1, y1, x2, y2], placement);
    const name = classes[index];
    if (!bbox || name === undefined) continue;
    const prediction = { class: name, confidence: Math.round(score * 10_000) / 10_000, bbox };
    found.push({ prediction, row: at / width });
  }
  return found;
}
