// Pixels: resizing, cutting, pasting, and the planes that models read.

import sharp, { type Sharp } from "sharp";
import type { Bbox } from "../../shared/tasks/tasks.ts";

/** RGB, three bytes a pixel, row by row. */
export interface RgbImage {
  data: Uint8Array;
  width: number;
  height: number;
}

export interface Normalisation {
  mean: readonly [number, number, number];
  std: readonly [number, number, number];
}

const wrap = ({ data, width, height }: RgbImage) =>
  sharp(Buffer.from(data.buffer, data.byteOffset, data.byteLength), {
    raw: { width, height, channels: 3 },
  });

/** The same image at another size; sides are not kept in proportion. */
export async function resize(
  image: RgbImage,
  size: { width: number; height: number },
  kernel: "linear" | "cubic" = "linear",
): Promise<RgbImage> {
  if (image.width === size.width && image.height === size.height) return image;
  return { data: await resized(wrap(image), size, kernel).raw().toBuffer(), ...size };
}

/** The same of an image that is still to be decoded. */
export const resized = (
  image: Sharp,
  { width, height }: { width: number; height: number },
  kernel: "linear" | "cubic" = "linear",
): Sharp => image.resize(width, height, { fit: "fill", kernel });

/** The image under a Gaussian, of a standard deviation in pixels. */
export async function smoothed(image: RgbImage, sigma: number): Promise<RgbImage> {
  const { width, height } = image;
  return { data: await wrap(image).blur(sigma).raw().toBuffer(), width, height };
}

/** Every channel times a factor, and a number of 0 to 255 more. */
export async function spreadChannels(
  image: RgbImage,
  factor: number,
  lift: number,
): Promise<RgbImage> {
  const { width, height } = image;
  return { data: await wrap(image).linear(factor, lift).raw().toBuffer(), width, height };
}

/** Writes the pixels as three planes of size x size, zero where the image does not reach. */
export function planes(image: RgbImage, size: number, { mean, std }: Normalisation): Float32Array {
  const { data, width, height } = image;
  const plane = size * size;
  const out = new Float32Array(3 * plane);
  for (let channel = 0; channel < 3; channel++) {
    const shift = mean[channel] ?? 0;
    const scale = 1 / (std[channel] ?? 1);
    for (let y = 0; y < height; y++) {
      let from = y * width * 3 + channel;
      const row = channel * plane + y * size;
      for (let x = 0; x < width; x++, from += 3)
        out[row + x] = ((data[from] as number) - shift) * scale;
    }
  }
  return out;
}

/** The size of an image whose longest side becomes `longest`. */
export function fitSize({ width, height }: { width: number; height: number }, longest: number) {
  const scale = longest / Math.max(width, height);
  return {
    scale,
    width: Math.max(1, Math.round(width * scale)),
    height: Math.max(1, Math.round(height * scale)),
  };
}

/** The pixels of a box, cut to the image. */
export function cut(image: RgbImage, bbox: Bbox): RgbImage {
  const left = Math.max(0, Math.floor(bbox[0]));
  const top = Math.max(0, Math.floor(bbox[1]));
  const width = Math.max(1, Math.min(image.width, Math.ceil(bbox[2])) - left);
  const height = Math.max(1, Math.min(image.height, Math.ceil(bbox[3])) - top);
  const data = new Uint8Array(width * height * 3);
  for (let y = 0; y < height; y++) {
    const from = ((top + y) * image.width + left) * 3;
    data.set(image.data.subarray(from, from + width * 3), y * width * 3);
  }
  return { data, width, height };
}

/** A canvas of one colour. */
export function canvas(width: number, height: number, [r, g, b]: readonly number[]): RgbImage {
  const data = new Uint8Array(width * height * 3);
  for (let at = 0; at < data.length; at += 3) {
    data[at] = r as number;
    data[at + 1] = g as number;
    data[at + 2] = b as number;
  }
  return { data, width, height };
}

/** Writes an image into a canvas that holds it whole. */
export function paste(onto: RgbImage, image: RgbImage, left: number, top: number): void {
  for (let y = 0; y < image.height; y++) {
    const row = image.data.subarray(y * image.width * 3, (y + 1) * image.width * 3);
    onto.data.set(row, ((top + y) * onto.width + left) * 3);
  }
}

/** The mean colour of an image's border, which stands for what is around a crop. */
export function borderColour({ data, width, height }: RgbImage): [number, number, number] {
  const sum = [0, 0, 0];
  let pixels = 0;
  for (let y = 0; y < height; y++) {
    const step = y === 0 || y === height - 1 ? 1 : Math.max(1, width - 1);
    for (let x = 0; x < width; x += step, pixels++)
      for (let c = 0; c < 3; c++) sum[c] = (sum[c] ?? 0) + (data[(y * width + x) * 3 + c] ?? 0);
  }
  return sum.map((value) => Math.round(value / pixels)) as [number, number, number];
}

export const sameImage = (a: RgbImage, b: RgbImage): boolean =>
  a.data === b.data ||
  (a.width === b.width && a.height === b.height && Buffer.compare(a.data, b.data) === 0);
