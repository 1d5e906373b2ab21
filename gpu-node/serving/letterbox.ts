// An image of the node laid into what a detector reads: libvips brings it to its size.

import {
  type ImageSize,
  layPixels,
  type Placement,
  placementOf,
} from "../../shared/detector/letterbox.ts";
import type { RgbImage } from "../media/image.ts";
import { resize } from "../media/image.ts";

/** An image at the size at which a detector reads it, before the rest is laid around it. */
export interface LaidImage {
  /** Three bytes a pixel, row by row. */
  rgb: Uint8Array;
  placement: Placement;
}

export interface SquareImage {
  /** Three planes of height × width, side × side where the model reads squares. */
  pixels: Float32Array;
  placement: Placement;
}

/** Brings an image to the size at which it is read; `of` is as for `letterbox`. */
export async function layImage(
  image: RgbImage,
  within: ImageSize,
  of: ImageSize = image,
): Promise<LaidImage> {
  const placement = placementOf(of, within);
  return { rgb: (await resize(image, placement.laid)).data, placement };
}

/**
 * Lays an image into a square of so many pixels a side, or into a size; `of` is the size of the
 * frame that it was made smaller from.
 */
export async function letterbox(
  image: RgbImage,
  side: number | ImageSize,
  of: ImageSize = image,
): Promise<SquareImage> {
  const within = typeof side === "number" ? { width: side, height: side } : side;
  const { rgb, placement } = await layImage(image, within, of);
  return { pixels: layPixels(rgb, placement, within), placement };
}
