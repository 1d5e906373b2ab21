// What an image looks like in 64 bits, to tell whether another one looks the same: the difference
// hash of Krawetz (Kind of Like That, 2013). The upright image is made 9 × 8 pixels of grey; a bit
// says whether a pixel is darker than the one to its right, row by row. Scaling, compression and
// brightness change few bits.

/** Pixels that an image is made of for it. */
export const HASH_SIZE = { width: 9, height: 8 } as const;
/** Luma of red, green and blue (ITU-R BT.601). */
const LUMA = [0.299, 0.587, 0.114] as const;

/** The hash of an RGB image of 9 × 8 pixels, as 16 hexadecimal digits. */
export function differenceHash(rgb: Uint8Array): string {
  const grey = (x: number, y: number) => {
    const first = (y * HASH_SIZE.width + x) * 3;
    return LUMA.reduce((sum, share, channel) => sum + share * (rgb[first + channel] ?? 0), 0);
  };
  let hash = 0n;
  for (let y = 0; y < HASH_SIZE.height; y++) {
    for (let x = 0; x + 1 < HASH_SIZE.width; x++) {
      hash = (hash << 1n) | (grey(x, y) < grey(x + 1, y) ? 1n : 0n);
    }
  }
  return hash.toString(16).padStart(16, "0");
}
