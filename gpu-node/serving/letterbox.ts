// An image of the node laid into the square that a detector reads: libvips brings it to its size.

import { type ImageSize, layPixels, type Placement, placementOf } from "../../shared/letterbox.ts";
import type { RgbImage } from "../media/image.ts";
import { resize } from "../media/image.ts";

export interface SquareImage {
  /** Three planes of side × side. */
  pixels: Float32Array;
  placement: Placement;
}

/** Lays an image into a square; `of` is the size of the frame that it was made smaller from. */
export async function letterbox(
  image: RgbImage,
  side: number,
  of: ImageSize = image,
): Promise<SquareImage> {
  const placement = placementOf(of, side);
  const { data } = await resize(image, placement.laid);
  return { pixels: layPixels(data, placement, side), placement };
}
