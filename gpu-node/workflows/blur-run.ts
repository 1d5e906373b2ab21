// Makes parts of an image unrecognisable. Each region keeps at most 8 values a side, whatever its
// size: a Gaussian alone, of a strength that looks enough, can be undone.

import type { z } from "zod";
import { boxAround } from "../../shared/detector/rings.ts";
import type { Bbox } from "../../shared/shapes.ts";
import type { BlurParameters } from "../../shared/workflow/blocks/images.ts";
import type { Detections, PointValue, ZoneValue } from "../../shared/workflow/values.ts";
import { clip } from "../media/geometry.ts";
import { cut, type RgbImage, smoothed } from "../media/image.ts";
import { blockRun, boxOn, type NodeImage, pointOn, repainted } from "./node-image.ts";
import { PixelWork } from "./pixel-work.ts";

/** Cells of a region's longer side. */
const CELLS = 8;

interface Region {
  bbox: Bbox;
  /** Corners of what is blurred of the box, in pixels of the image; null is all of it. */
  ring: readonly PointValue[] | null;
}

/** What `blur@1` does. */
export const blur = blockRun<
  { image: NodeImage; detections?: Detections; zone?: ZoneValue },
  z.output<typeof BlurParameters>
>(async ({ inputs: { image, detections, zone }, parameters: { mode, padding }, signal }) => {
  const { width, height } = image.frame;
  const regions = (detections?.objects ?? []).map(({ bbox }): Region => {
    const [x1, y1, x2, y2] = boxOn(image.frame, (detections as Detections).frame, bbox);
    return { bbox: [x1 - padding, y1 - padding, x2 + padding, y2 + padding], ring: null };
  });
  if (zone) {
    const ring = zone.map((corner) => pointOn(image.frame, corner));
    regions.push({ bbox: boxAround(ring.flat()), ring });
  }
  if (!detections && !zone) regions.push({ bbox: [0, 0, width, height], ring: null });
  const data = new Uint8Array(image.pixels.data);
  const pixels: RgbImage = { data, width, height };
  const work = new PixelWork(signal);
  for (const { bbox, ring } of regions) {
    const inside = clip(bbox, { width, height });
    if (!inside) continue;
    await work.on((inside[2] - inside[0]) * (inside[3] - inside[1]));
    const [left, top] = [Math.floor(inside[0]), Math.floor(inside[1])];
    const coarse = averaged(cut(pixels, inside));
    const blurred = mode === "pixelate" ? coarse.image : await smoothed(coarse.image, coarse.cell);
    cover(pixels, blurred, { left, top, ring });
  }
  return { outputs: { image: repainted(image, pixels) } };
});

/** The region as squares of its mean colours, and the side of one in pixels. */
function averaged({ data, width, height }: RgbImage): { image: RgbImage; cell: number } {
  const cell = Math.max(2, Math.ceil(Math.max(width, height) / CELLS));
  const out = new Uint8Array(data.length);
  for (let top = 0; top < height; top += cell) {
    for (let left = 0; left < width; left += cell) {
      const [right, bottom] = [Math.min(width, left + cell), Math.min(height, top + cell)];
      const sum = [0, 0, 0];
      const eachByte = (visit: (index: number, channel: number) => void) => {
        for (let y = top; y < bottom; y++)
          for (let x = left; x < right; x++)
            for (let channel = 0; channel < 3; channel++)
              visit((y * width + x) * 3 + channel, channel);
      };
      eachByte((index, channel) => {
        sum[channel] = (sum[channel] as number) + (data[index] as number);
      });
      const count = (right - left) * (bottom - top);
      eachByte((index, channel) => {
        out[index] = Math.round((sum[channel] as number) / count);
      });
    }
  }
  return { image: { data: out, width, height }, cell };
}

/** Writes a patch over an image, where its ring holds the middle of a pixel. */
function cover(
  onto: RgbImage,
  patch: RgbImage,
  { left, top, ring }: { left: number; top: number; ring: Region["ring"] },
) {
  for (let y = 0; y < patch.height; y++) {
    const row = y * patch.width;
    const from = ((top + y) * onto.width + left) * 3;
    if (!ring) {
      onto.data.set(patch.data.subarray(row * 3, (row + patch.width) * 3), from);
      continue;
    }
    const crossings = crossingsOf(ring, top + y + 0.5);
    for (let index = 0; index + 1 < crossings.length; index += 2) {
      const first = Math.max(0, Math.ceil((crossings[index] as number) - left - 0.5));
      const end = Math.min(patch.width, Math.ceil((crossings[index + 1] as number) - left - 0.5));
      if (end <= first) continue;
      const pixels = patch.data.subarray((row + first) * 3, (row + end) * 3);
      onto.data.set(pixels, from + first * 3);
    }
  }
}

/** Where a ring crosses a row, ascending. */
function crossingsOf(ring: readonly PointValue[], y: number): number[] {
  const crossings: number[] = [];
  for (const [index, [x1, y1]] of ring.entries()) {
    const [x2, y2] = ring[(index + 1) % ring.length] as PointValue;
    if (y1 <= y !== y2 <= y) crossings.push(x1 + ((y - y1) / (y2 - y1)) * (x2 - x1));
  }
  return crossings.sort((one, other) => one - other);
}
