// Images of coloured noise, which no model and no codec finds simple.

import sharp from "sharp";

/** One of so many pixels, to be made smoother or written as a file. */
export const noiseImage = (width: number, height: number, background = "#777") =>
  sharp({
    create: {
      width,
      height,
      channels: 3,
      background,
      noise: { type: "gaussian", mean: 128, sigma: 60 },
    },
  });
