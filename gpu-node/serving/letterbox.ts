// An image of the node laid into what a detector reads: libvips brings it to its size.

import { type ImageSize, layPixels, type Placement, placementOf } from "../../shared/letterbox.ts";
import type { RgbImage } from "../media/image.ts";
import { resize } from "../media/image.ts";

export interface SquareImage {
  /** Three planes of height × width, side × side where the model reads squares. */
  pixels: Float32Array;
  placement: Placement;
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
  const placement = placementOf(of, within);
  const { data } = await resize(image, placement.laid);
  return { pixels: layPixels(data, placement, within), placement };
}
