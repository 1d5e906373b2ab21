// What tells that two images are the same, or nearly: a hash of the pixels, and one of the look.
//
// The hash of the look is a difference hash (dHash, Krawetz 2013, "Kind of like that"): of the
// image in 17 x 16 grey pixels a bit for each pair of neighbours in a row, 1 where it gets
// brighter. Of 292 microscope images (BCCD), two differ by 89 bits or more of 256, but for one pair
// of one scene (22). Copies of another quality, size, brightness or sharpness differ by at most 23,
// those cut by 10 pixels a side by at most 39.

import { createHash } from "node:crypto";
import sharp from "sharp";
import type { RgbImage } from "./image.ts";

/** Bits of a row, and rows. */
const SIDE = 16;
/** A plain image has fewer ones, or fewer zeros: it looks like any other plain one. */
const BITS_MIN = 48;

/** Hashes of an image, in hex. */
export interface ImageHashes {
  /** SHA-256 of width, height and the RGB bytes. */
  pixels_sha256: string;
  /** 256 bits; null of an image that is too plain. */
  dhash: string | null;
}

/** The hashes of an image. */
export async function imageHashes({ data, width, height }: RgbImage): Promise<ImageHashes> {
  const pixels = createHash("sha256").update(`${width}x${height} `).update(data).digest("hex");
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  const { data: grey } = await sharp(bytes, { raw: { width, height, channels: 3 } })
    .greyscale()
    .resize(SIDE + 1, SIDE, { fit: "fill" })
    .raw()
    .toBuffer({ resolveWithObject: true });
  const hash = new Uint8Array((SIDE * SIDE) / 8);
  let ones = 0;
  for (let bit = 0; bit < SIDE * SIDE; bit++) {
    const left = Math.floor(bit / SIDE) * (SIDE + 1) + (bit % SIDE);
    if ((grey[left] as number) >= (grey[left + 1] as number)) continue;
    hash[bit >> 3] = (hash[bit >> 3] as number) | (1 << (bit & 7));
    ones++;
  }
  const isPlain = Math.min(ones, SIDE * SIDE - ones) < BITS_MIN;
  return { pixels_sha256: pixels, dhash: isPlain ? null : Buffer.from(hash).toString("hex") };
}
