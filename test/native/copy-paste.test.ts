// Pasted objects. Goal: where images have one shape each, a colour a class, the pixels of rendered
// batches say by themselves which objects were pasted, what they hide, and where the masks and
// boxes of both have to be.

import { describe, expect, it } from "vitest";
import type { Augmentation, TrainingOptions } from "../../native/index.d.ts";
import { detectorGraph } from "../../shared/detector/detector.ts";
import { rendered, SIZE } from "./augmented-views.ts";
import { native } from "./engine.ts";
import { COLOURS, isColour, rectangleImage, type View, withImages } from "./rectangle-images.ts";
import { disc, horseshoe, type Shape, shapeImage, square, triangle } from "./shape-images.ts";

const CELLS = SIZE / 4;
/** Half a pixel of each of two edges, and what bilinear sampling blurs. */
const BLUR = 3;
const options = { graph: detectorGraph("det26n", COLOURS.length, "segmentation") };
const KINDS = [
  (index: number) => disc(index, [80, 80], 45),
  (index: number) => square(index, [45, 45, 70]),
  (index: number) => triangle(index, [40, 40, 80]),
  (index: number) => horseshoe(index, [40, 40, 80]),
];
/** Every shape in the middle: what is pasted hides much of what is there. */
const sources = Array.from({ length: 6 }, (_, index) => {
  const shape = KINDS[index % KINDS.length]?.(index) as Shape;
  return shapeImage(SIZE, SIZE, [shape]);
});
const PASTED: Partial<Augmentation> = { copyPaste: 1, translate: 0.15, scale: 0.3, rotate: 20 };

const isOf = (view: View, x: number, y: number, classIndex: number, tolerance = 0.3) =>
  isColour(view.at(x, y), classIndex, tolerance);

/** Pixels of a class's colour: how many, and the box around them. */
function pixelsOf(view: View, classIndex: number) {
  let [count, left, top, right, bottom] = [0, SIZE, SIZE, 0, 0];
  for (let y = 0; y < SIZE; y++) {
    for (let x = 0; x < SIZE; x++) {
      if (!isOf(view, x, y, classIndex, 0.5)) continue;
      count++;
      [left, top] = [Math.min(left, x), Math.min(top, y)];
      [right, bottom] = [Math.max(right, x + 1), Math.max(bottom, y + 1)];
    }
  }
  return { count, box: [left, top, right, bottom] as const };
}

/** Cells of a mask that show none of its colour around their centre, and full ones not in it. */
function errorsOf(view: View, { classIndex, mask }: View["boxes"][0]) {
  let [cells, hollow, missing] = [0, 0, 0];
  for (const [cell, isSet] of (mask ?? []).entries()) {
    const [x, y] = [4 * (cell % CELLS), 4 * Math.floor(cell / CELLS)];
    const own = (from: number, to: number) => {
      let all = 0;
      for (let j = from; j < to; j++) {
        for (let i = from; i < to; i++) if (isOf(view, x + i, y + j, classIndex)) all++;
      }
      return all;
    };
    if (isSet) cells++;
    if (isSet && own(1, 3) === 0) hollow++;
    if (!isSet && own(0, 4) === 16) missing++;
  }
  return { cells, hollow, missing };
}

const run = (augmentation: Partial<Augmentation>, training: Partial<TrainingOptions> = {}) =>
  withImages({ sources, augmentation, training: { batch: 3, ...training }, options }, (engine) =>
    rendered(engine, [0, 1, 2, 3, 4], [0, 1]),
  );

describe.skipIf(!native)("pasted objects", () => {
  it("are rendered by torch's operations as by the CPU, in batches of any size", async () => {
    const augmentation = { ...PASTED, mosaic: 0.5, mixup: 0.3, hue: 0.1, saturation: 0.4 };
    const setup = { sources, augmentation, training: { batch: 3, multiScale: 0.5 }, options };
    await withImages(setup, async (engine) => {
      const sizes = new Set<number>();
      for (const position of [0, 1, 2, 3].map((epoch) => ({ epoch, batch: epoch % 2 }))) {
        const wanted = await engine.render(position);
        const found = await engine.render({ ...position, byTorch: true });
        sizes.add(wanted.height);
        expect([found.height, found.boxes]).toEqual([wanted.height, wanted.boxes]);
        const furthest = wanted.images.reduce(
          (max, value, at) => Math.max(max, Math.abs(value - (found.images[at] ?? 9))),
          0,
        );
        expect(furthest).toBeLessThan(1e-5);
      }
      expect(sizes.size).toBeGreaterThan(1);
    });
  });

  it("lie over the image's own, whose boxes and masks are what is left of them", async () => {
    const all = await run(PASTED);
    let [pairs, cut, cells, hollow, gone] = [0, 0, 0, 0, 0];
    for (const view of all) {
      expect(view.boxes.length).toBeLessThanOrEqual(2);
      if (view.boxes.length === 2) pairs++;
      for (const object of view.boxes) {
        const pixels = pixelsOf(view, object.classIndex);
        for (const [side, value] of pixels.box.entries()) {
          expect(Math.abs(value - (object.box[side] as number))).toBeLessThan(BLUR);
        }
        const errors = errorsOf(view, object);
        expect(errors.missing).toBe(0);
        cells += errors.cells;
        hollow += errors.hollow;
      }
      const known = new Set(view.boxes.map(({ classIndex }) => classIndex));
      for (const classIndex of COLOURS.keys()) {
        const { count } = pixelsOf(view, classIndex);
        if (!known.has(classIndex) && count > 0) gone++;
        // A third of a whole shape is less than any of them has, frame or scale or not.
        if (known.has(classIndex) && count < 700) cut++;
      }
    }
    expect(pairs).toBeGreaterThan(20);
    expect(cut).toBeGreaterThan(1);
    expect(cells).toBeGreaterThan(2_000);
    expect(hollow / cells).toBeLessThan(0.01);
    // Left out are only those of which a tenth or less can be seen.
    for (const view of all) {
      const known = new Set(view.boxes.map(({ classIndex }) => classIndex));
      for (const classIndex of COLOURS.keys()) {
        if (!known.has(classIndex)) expect(pixelsOf(view, classIndex).count).toBeLessThan(500);
      }
    }
    expect(gone).toBeLessThan(all.length);
  });

  it("are of an image as often as was asked for, and of none in the closing epochs", async () => {
    const count = async (copyPaste: number, training: Partial<TrainingOptions> = {}) =>
      (await run({ ...PASTED, copyPaste }, training)).filter(({ boxes }) => boxes.length === 2)
        .length;
    expect(await count(0)).toBe(0);
    const half = await count(0.5);
    expect(half).toBeGreaterThan(5);
    expect(half).toBeLessThan(25);
    const closing = { ...PASTED, closeMosaic: 5 };
    const closed = await run(closing, { epochs: 5 });
    expect(closed.every(({ boxes }) => boxes.length === 1)).toBe(true);
  });

  it("change nothing else: an image without them is the one that it was", async () => {
    const setup = { sources, options, training: { batch: 3 } };
    const more = {
      translate: 0.1,
      flipLeftRight: 0.5,
      hsv: [0.1, 0.5, 0.5] as [number, number, number],
    };
    const render = (augmentation: Partial<Augmentation>) =>
      withImages({ ...setup, augmentation }, (engine) => engine.render({ epoch: 3, batch: 0 }));
    const [plain, none, pasted] = await Promise.all([
      render(more),
      render({ ...more, copyPaste: 0 }),
      render({ ...more, copyPaste: 1 }),
    ]);
    expect(none).toEqual(plain);
    expect(await render({ ...more, copyPaste: 1 })).toEqual(pasted);
    // Of the image below most pixels are still its own, to the bit.
    const same = pasted.images.filter((value, index) => value === plain.images[index]).length;
    expect(same / plain.images.length).toBeGreaterThan(0.4);
    expect(same).toBeLessThan(plain.images.length);
  });

  it("are mirrored with their image, and recoloured with it", async () => {
    const flipped = { ...PASTED, flipLeftRight: 1, flipUpDown: 1 };
    for (const view of await run(flipped)) {
      for (const object of view.boxes) {
        const { box } = pixelsOf(view, object.classIndex);
        for (const [side, value] of box.entries()) {
          expect(Math.abs(value - (object.box[side] as number))).toBeLessThan(BLUR);
        }
      }
    }
  });

  it("are of objects with outlines alone, which detection cuts out as well", async () => {
    const bare = COLOURS.map((_, classIndex) =>
      rectangleImage(SIZE, SIZE, [{ classIndex, box: [40, 40, 120, 120] }]),
    );
    const setup = { augmentation: { copyPaste: 1 }, training: { batch: 3 } };
    const alone = await withImages({ ...setup, sources: bare }, (engine) =>
      rendered(engine, [0, 1], [0, 1]),
    );
    expect(alone.every(({ boxes }) => boxes.length === 1)).toBe(true);
    const augmentation = { ...PASTED, translate: 0.3 };
    const boxes = await withImages({ ...setup, augmentation, sources }, (engine) =>
      rendered(engine, [0, 1, 2], [0, 1]),
    );
    expect(boxes.filter((view) => view.boxes.length === 2).length).toBeGreaterThan(8);
    for (const view of boxes) {
      for (const object of view.boxes) {
        const { box } = pixelsOf(view, object.classIndex);
        for (const [side, value] of box.entries()) {
          expect(Math.abs(value - (object.box[side] as number))).toBeLessThan(BLUR);
        }
      }
    }
  });
});
