// An image laid into the square that a detector reads, or into another rectangle, and boxes found
// there laid back onto the image. As training does it: sides in proportion, centred, the rest
// grey, RGB in 0 to 1.

import type { Bbox } from "../../shared/tasks.ts";
import { clip } from "../media/geometry.ts";
import type { RgbImage } from "../media/image.ts";
import { resize } from "../media/image.ts";

/** Of the padding, in 0 to 255. */
const GREY = 114;
const UNIT = Float32Array.from({ length: 256 }, (_, value) => value / 255);

/** Where an image lies in the square. */
export interface Placement {
  /** Of the image that boxes are wanted on, which may be larger than the one that was laid. */
  width: number;
  height: number;
  /** Pixels of the square a pixel of the image. */
  scaleX: number;
  scaleY: number;
  left: number;
  top: number;
}

export interface SquareImage {
  /** Three planes of height × width. */
  pixels: Float32Array;
  placement: Placement;
}

/** Pixels. */
interface Size {
  width: number;
  height: number;
}

/**
 * Lays an image into a square of a side, or into a rectangle; `of` is the size of the frame that it
 * was made smaller from.
 */
export async function letterbox(
  image: RgbImage,
  side: number | Size,
  of: Size = image,
): Promise<SquareImage> {
  const within = typeof side === "number" ? { width: side, height: side } : side;
  const scale = Math.min(within.width / of.width, within.height / of.height);
  const [width, height] = [of.width, of.height].map((length) =>
    Math.max(1, Math.round(length * scale)),
  ) as [number, number];
  const fitted = await resize(image, { width, height });
  // What is left over is split; an odd pixel goes to the right or the bottom.
  const left = Math.max(0, Math.round((within.width - width) / 2 - 0.1));
  const top = Math.max(0, Math.round((within.height - height) / 2 - 0.1));
  const plane = within.width * within.height;
  const pixels = new Float32Array(3 * plane).fill(UNIT[GREY] as number);
  const { data } = fitted;
  for (let y = 0; y < height; y++) {
    let from = y * width * 3;
    let to = (top + y) * within.width + left;
    for (let x = 0; x < width; x++, from += 3, to++) {
      pixels[to] = UNIT[data[from] as number] as number;
      pixels[to + plane] = UNIT[data[from + 1] as number] as number;
      pixels[to + 2 * plane] = UNIT[data[from + 2] as number] as number;
    }
  }
  const placement = {
    width: of.width,
    height: of.height,
    left,
    top,
    scaleX: width / of.width,
    scaleY: height / of.height,
  };
  return { pixels, placement };
}

const hundredths = (value: number) => Math.round(value * 100) / 100;

/** A box of the square on the image, cut to it; null where nothing of it is on the image. */
export function unletterbox(
  [x1, y1, x2, y2]: readonly [number, number, number, number],
  placement: Placement,
): Bbox | null {
  const { scaleX, scaleY, left, top } = placement;
  const laid = [
    ...[(x1 - left) / scaleX, (y1 - top) / scaleY],
    ...[(x2 - left) / scaleX, (y2 - top) / scaleY],
  ].map(hundredths) as Bbox;
  return clip(laid, placement);
}
