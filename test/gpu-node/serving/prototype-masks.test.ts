// Masks of a segmentation model, drawn from coefficients and prototypes. Goal: they are what the
// numbers say, pixel by pixel of the image, also where that is no square; both forms are one mask;
// and no answer takes more than its bounds.

import { describe, expect, it } from "vitest";
import { IMAGE_MASKS, type MaskJob, tellMasks } from "../../../gpu-node/serving/prototype-masks.ts";
import { type Placement, placementOf } from "../../../shared/detector/letterbox.ts";
import type { SamMask } from "../../../shared/tasks/sam.ts";
import type { Bbox } from "../../../shared/tasks/tasks.ts";
import { seeded } from "../../support/weights.ts";

const COUNT = 32;

/** Which pixels of an image are on, row by row. */
type Pixels = Uint8Array;

/** Run lengths, column by column, as pixels. */
function pixelsOf(mask: SamMask | null | undefined): Pixels {
  if (!mask || !("rle" in mask)) throw new Error("no run lengths");
  const [height, width] = mask.rle.size;
  const columns = mask.rle.counts.flatMap((count, at) => Array<number>(count).fill(at % 2));
  expect(columns.length).toBe(width * height);
  return Uint8Array.from({ length: width * height }, (_, at) => {
    const [row, column] = [Math.floor(at / width), at % width];
    return columns[column * height + row] as number;
  });
}

/** The pixels whose middles a ring holds by the even-odd rule. */
function filled(mask: SamMask | null | undefined, width: number, height: number): Pixels {
  if (!mask || !("polygon" in mask)) throw new Error("no ring");
  const { polygon } = mask;
  const pixels = new Uint8Array(width * height);
  for (let at = 0; at < polygon.length; at += 2) {
    const next = (at + 2) % polygon.length;
    const ends = [polygon.slice(at, at + 2), polygon.slice(next, next + 2)] as [number, number][];
    // In one direction, so that a bridge there and back crosses a row at the same place.
    ends.sort((one, other) => one[1] - other[1]);
    const [[x1, y1], [x2, y2]] = ends as [[number, number], [number, number]];
    for (let row = Math.ceil(y1 - 0.5); row < Math.ceil(y2 - 0.5); row++) {
      const x = x1 + ((row + 0.5 - y1) / (y2 - y1)) * (x2 - x1);
      // All that is to the right of an edge is on its other side.
      for (let column = Math.ceil(x - 0.5); column < width; column++) {
        pixels[row * width + column] = 1 - (pixels[row * width + column] as number);
      }
    }
  }
  return pixels;
}

/** The plain way: every prototype at the middle of every pixel, their sum, the sigmoid, the cut. */
function plain(job: MaskJob, at: number): Pixels {
  const { values, rows, columns, placement } = job;
  const { coefficients, bbox } = job.objects[at] as MaskJob["objects"][number];
  const { width, height } = placement;
  const cell = (prototype: number, row: number, column: number) => {
    const y = Math.min(rows - 1, Math.max(0, row));
    const x = Math.min(columns - 1, Math.max(0, column));
    return values[(prototype * rows + y) * columns + x] as number;
  };
  return Uint8Array.from({ length: width * height }, (_, pixel) => {
    const [x, y] = [(pixel % width) + 0.5, Math.floor(pixel / width) + 0.5];
    if (!(x >= bbox[0] && x < bbox[2] && y >= bbox[1] && y < bbox[3])) return 0;
    const u = (x * placement.scaleX + placement.left) / 4 - 0.5;
    const v = (y * placement.scaleY + placement.top) / 4 - 0.5;
    const [column, row] = [Math.floor(u), Math.floor(v)];
    const [du, dv] = [u - column, v - row];
    let logit = 0;
    for (let prototype = 0; prototype < COUNT; prototype++) {
      const value =
        cell(prototype, row, column) * (1 - du) * (1 - dv) +
        cell(prototype, row, column + 1) * du * (1 - dv) +
        cell(prototype, row + 1, column) * (1 - du) * dv +
        cell(prototype, row + 1, column + 1) * du * dv;
      logit += value * (coefficients[prototype] as number);
    }
    return 1 / (1 + Math.exp(-logit)) > 0.5 ? 1 : 0;
  });
}

/** Random prototypes of an image of this size, and objects in these boxes. */
function randomJob(placement: Placement, side: number, boxes: readonly Bbox[]): MaskJob {
  const random = seeded(side + placement.width);
  const cells = side / 4;
  const values = Float32Array.from({ length: COUNT * cells ** 2 }, () => random() - 0.5);
  const objects = boxes.map((bbox) => ({
    bbox,
    coefficients: Float32Array.from({ length: COUNT }, () => 2 * random() - 1),
  }));
  const bounds = { maskNumbers: 1e6, ringSteps: 1e7 };
  return { values, rows: cells, columns: cells, placement, objects, form: "rle", bounds };
}

const within = (side: number) => ({ width: side, height: side });

describe("a mask", () => {
  it.each([
    ["wide, made smaller", 333, 120, 128],
    ["high, made larger", 31, 77, 96],
    ["a square", 64, 64, 64],
  ])("of random numbers is that of the plain way: %s", (_, width, height, side) => {
    const placement = placementOf({ width, height }, within(side));
    const boxes: Bbox[] = [
      [0, 0, width, height],
      [width * 0.31, height * 0.22, width * 0.83, height * 0.71],
      [0, height * 0.5, width * 0.4, height],
      [width * 0.4, 0, width * 0.6, height],
    ];
    const job = randomJob(placement, side, boxes);
    const { masks, leftOut } = tellMasks(job);
    expect(leftOut).toBe(0);
    const rings = tellMasks({ ...job, form: "polygon" }).masks;
    for (const at of boxes.keys()) {
      const expected = plain(job, at);
      expect(expected.reduce((sum, on) => sum + on, 0)).toBeGreaterThan(10);
      expect(pixelsOf(masks[at])).toEqual(expected);
      expect(filled(rings[at], width, height)).toEqual(expected);
    }
  });

  it("of a disc in the prototypes is that disc in the image, cut to its box", () => {
    const [width, height, side] = [200, 120, 160];
    const placement = placementOf({ width, height }, within(side));
    const [middleX, middleY, radius] = [90, 60, 40];
    const cells = side / 4;
    const values = new Float32Array(COUNT * cells ** 2);
    // The seventh prototype has how far inside of the disc a cell's middle is, in image pixels.
    for (let at = 0; at < cells ** 2; at++) {
      const x = (4 * ((at % cells) + 0.5) - placement.left) / placement.scaleX;
      const y = (4 * (Math.floor(at / cells) + 0.5) - placement.top) / placement.scaleY;
      values[6 * cells ** 2 + at] = radius - Math.hypot(x - middleX, y - middleY);
    }
    const coefficients = new Float32Array(COUNT);
    coefficients[6] = 0.3;
    const objects = [
      { coefficients, bbox: [45, 15, 135, 105] as Bbox },
      // The right half of it.
      { coefficients, bbox: [90, 15, 135, 105] as Bbox },
      // Beside it, and thinner than a pixel.
      { coefficients, bbox: [150, 10, 190, 30] as Bbox },
      { coefficients, bbox: [90.6, 20, 91.4, 100] as Bbox },
    ];
    const { masks } = tellMasks({
      values,
      rows: cells,
      columns: cells,
      placement,
      objects,
      form: "rle",
      bounds: IMAGE_MASKS,
    });
    const disc = (from: number) =>
      Uint8Array.from({ length: width * height }, (_, at) => {
        const [x, y] = [(at % width) + 0.5, Math.floor(at / width) + 0.5];
        return x > from && Math.hypot(x - middleX, y - middleY) < radius ? 1 : 0;
      });
    for (const [at, from] of [0, 90].entries()) {
      const [found, truth] = [pixelsOf(masks[at]), disc(from)];
      const both = found.filter((on, pixel) => on && truth[pixel]).length;
      const either = found.filter((on, pixel) => on || truth[pixel]).length;
      // Lines between cells of five pixels cut 0.08 pixels off a circle of 40.
      expect(both / either).toBeGreaterThan(0.99);
    }
    expect(masks.slice(2)).toEqual([null, null]);
  });

  it("that is more than an answer takes is left out and counted; smaller ones are told", () => {
    const placement = placementOf({ width: 300, height: 200 }, within(160));
    const boxes: Bbox[] = [
      [0, 0, 300, 200],
      [10, 10, 30, 30],
      [100, 50, 120, 80],
    ];
    const job = randomJob(placement, 160, boxes);
    const whole = tellMasks(job);
    const numbers = whole.masks.map((mask) => (mask && "rle" in mask ? mask.rle.counts.length : 0));
    const [, small = 0, third = 0] = numbers;
    const short = tellMasks({ ...job, bounds: { maskNumbers: small + third, ringSteps: 0 } });
    expect(short).toEqual({
      masks: [null, ...whole.masks.slice(1)],
      leftOut: 1,
      left: { maskNumbers: 0, ringSteps: 0 },
    });
    const rings = tellMasks({
      ...job,
      form: "polygon",
      bounds: { maskNumbers: 1e6, ringSteps: 0 },
    });
    expect(rings).toMatchObject({ masks: [null, null, null], leftOut: 3 });
    // Fewer steps than the image has pixels.
    const slow = tellMasks({ ...job, stepsMax: 30_000 });
    expect(slow).toMatchObject({ masks: [null, ...whole.masks.slice(1)], leftOut: 1 });
  });
});
