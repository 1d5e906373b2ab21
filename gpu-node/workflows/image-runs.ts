// What the blocks do that make images of images, and the one that measures one.

import type { z } from "zod";
import { BlockFailure, type RunBlock } from "../../shared/workflow/block.ts";
import {
  type ContrastParameters,
  type CropParameters,
  type ResizeParameters,
  type StaticCropParameters,
  TILES_MAX,
  type TileParameters,
} from "../../shared/workflow/blocks/images.ts";
import { RUN_LIMITS } from "../../shared/workflow/execution.ts";
import type { Detections } from "../../shared/workflow/values.ts";
import { clip } from "../media/geometry.ts";
import { cut, fitSize, type RgbImage, resize, spreadChannels } from "../media/image.ts";
import { blockRun, boxOn, type NodeImage, partOf, repainted, resizedOf } from "./node-image.ts";

interface OneImage {
  image: NodeImage;
}

/** Fails, before any is cut, where parts of these pixels are more than a run may hold. */
function checkParts(areas: readonly number[]): void {
  const { elements, imageBytes } = RUN_LIMITS;
  if (areas.length > elements)
    throw new BlockFailure(`it makes ${areas.length} images; a step may make ${elements}`);
  const bytes = 3 * areas.reduce((sum, area) => sum + area, 0);
  if (bytes > imageBytes)
    throw new BlockFailure(`its images would take more than ${imageBytes} bytes`);
}

const crop = blockRun<OneImage & { detections: Detections }, z.output<typeof CropParameters>>(
  ({ inputs: { image, detections }, parameters: { padding } }) => {
    const crops: NodeImage[] = [];
    const objects: Detections[] = [];
    const parts = detections.objects.flatMap((object) => {
      const [x1, y1, x2, y2] = boxOn(image.frame, detections.frame, object.bbox);
      const inside = clip([x1 - padding, y1 - padding, x2 + padding, y2 + padding], image.frame);
      return inside ? [{ object, inside }] : [];
    });
    checkParts(parts.map(({ inside: [x1, y1, x2, y2] }) => (x2 - x1) * (y2 - y1)));
    for (const { object, inside } of parts) {
      const corner = [Math.floor(inside[0]), Math.floor(inside[1])] as const;
      crops.push(partOf(image, cut(image.pixels, inside), [...corner]));
      objects.push({ frame: detections.frame, objects: [object] });
    }
    const outside = detections.objects.length - crops.length;
    return {
      outputs: { crops, detections: objects },
      ...(outside > 0 && { warnings: [`${outside} objects lie outside of the image`] }),
    };
  },
);

const staticCrop = blockRun<OneImage, z.output<typeof StaticCropParameters>>(
  ({ inputs: { image }, parameters }) => {
    const { width: across, height: down } =
      parameters.unit === "share" ? image.frame : { width: 1, height: 1 };
    const x = Math.round(parameters.x * across);
    const y = Math.round(parameters.y * down);
    const [width, height] = [parameters.width * across, parameters.height * down];
    const inside = clip([x, y, x + Math.round(width), y + Math.round(height)], image.frame);
    if (!inside) return { outputs: { image: null } };
    return { outputs: { image: partOf(image, cut(image.pixels, inside), [x, y]) } };
  },
);

/** Pixels that an enlarged image may have. */
const PIXELS_MAX = 40_000_000;

const resizeRun = blockRun<OneImage, z.output<typeof ResizeParameters>>(
  async ({ inputs: { image }, parameters }) => {
    const { width, height } = sidesOf(image.frame, parameters);
    if (width * height > PIXELS_MAX) {
      throw new BlockFailure(`${width} × ${height} is over ${PIXELS_MAX / 1e6} million pixels`);
    }
    const pixels = await resize(image.pixels, { width, height });
    return { outputs: { image: resizedOf(image, pixels) } };
  },
);

function sidesOf(
  frame: { width: number; height: number },
  { mode, width = 1, height = 1, longest_side = 1 }: z.output<typeof ResizeParameters>,
): { width: number; height: number } {
  if (mode === "stretch") return { width, height };
  const fits = Math.min(width / frame.width, height / frame.height);
  const longest = Math.max(frame.width, frame.height);
  return fitSize(frame, mode === "fit" ? fits * longest : longest_side);
}

const tile = blockRun<OneImage, z.output<typeof TileParameters>>(
  ({ inputs: { image }, parameters: { width, height, overlap } }) => {
    const { frame, pixels } = image;
    const lefts = tileStarts(frame.width, width, overlap);
    const tops = tileStarts(frame.height, height, overlap);
    const count = lefts.length * tops.length;
    if (count > TILES_MAX) {
      throw new BlockFailure(
        `${count} tiles are more than ${TILES_MAX}: take larger ones, or a smaller overlap`,
      );
    }
    const area = Math.min(width, frame.width) * Math.min(height, frame.height);
    checkParts(Array.from({ length: count }, () => area));
    const tiles = tops.flatMap((top) =>
      lefts.map((left) => {
        const part = cut(pixels, [left, top, left + width, top + height]);
        return partOf(image, part, [left, top]);
      }),
    );
    return { outputs: { tiles } };
  },
);

/** Where tiles of a side begin, the last one so that it ends with the image. */
function tileStarts(length: number, side: number, overlap: number): number[] {
  if (length <= side) return [0];
  const step = Math.max(1, Math.round(side * (1 - overlap)));
  const count = Math.ceil((length - side) / step) + 1;
  // Not made at all where they would be too many: the caller counts them.
  const made = Math.min(count, TILES_MAX + 1);
  return Array.from({ length: made }, (_, index) => Math.min(index * step, length - side));
}

const convertGrayscale = blockRun<OneImage>(({ inputs: { image } }) => {
  const { width, height } = image.frame;
  const data = new Uint8Array(width * height * 3);
  for (const [pixel, value] of lightnessOf(image.pixels).entries()) {
    data.fill(Math.round(value), pixel * 3, pixel * 3 + 3);
  }
  return { outputs: { image: repainted(image, { data, width, height }) } };
});

const contrast = blockRun<OneImage, z.output<typeof ContrastParameters>>(
  async ({ inputs: { image }, parameters: { contrast: factor, brightness } }) => {
    const lift = 127.5 * (1 - factor) + 255 * brightness;
    return {
      outputs: { image: repainted(image, await spreadChannels(image.pixels, factor, lift)) },
    };
  },
);

const imageProperties = blockRun<OneImage>(({ inputs: { image } }) => {
  const lightness = lightnessOf(image.pixels);
  const sum = lightness.reduce((total, value) => total + value, 0);
  const { width, height } = image.frame;
  const brightness = sum / lightness.length / 255;
  return { outputs: { width, height, brightness, sharpness: sharpnessOf(lightness, width) } };
});

/** Lightness by pixel, 0 to 255, as ITU-R BT.601 weighs the channels. */
function lightnessOf({ data, width, height }: RgbImage): Float32Array {
  const lightness = new Float32Array(width * height);
  for (let pixel = 0, from = 0; pixel < lightness.length; pixel++, from += 3) {
    const [red = 0, green = 0, blue = 0] = [data[from], data[from + 1], data[from + 2]];
    lightness[pixel] = 0.299 * red + 0.587 * green + 0.114 * blue;
  }
  return lightness;
}

/** The variance of the Laplacian over all pixels that have four neighbours; 0 where none has. */
function sharpnessOf(lightness: Float32Array, width: number): number {
  const height = lightness.length / width;
  let [count, sum, squares] = [0, 0, 0];
  const value = (index: number) => lightness[index] as number;
  for (let y = 1; y < height - 1; y++) {
    for (let x = 1; x < width - 1; x++) {
      const index = y * width + x;
      const around =
        value(index - 1) + value(index + 1) + value(index - width) + value(index + width);
      const laplacian = around - 4 * value(index);
      count += 1;
      sum += laplacian;
      squares += laplacian * laplacian;
    }
  }
  if (count === 0) return 0;
  const mean = sum / count;
  return Math.max(0, squares / count - mean * mean);
}

/** By block. */
export const IMAGE_RUNS: ReadonlyMap<string, RunBlock> = new Map([
  ["crop@1", crop],
  ["static_crop@1", staticCrop],
  ["resize@1", resizeRun],
  ["tile@1", tile],
  ["convert_grayscale@1", convertGrayscale],
  ["contrast@1", contrast],
  ["image_properties@1", imageProperties],
]);
