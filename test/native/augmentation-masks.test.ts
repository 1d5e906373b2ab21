// Augmented masks: rendered batches of shapes of one colour a class, whose pixels say by themselves
// where each mask has to be. The rings that the engine gets have no part in the expectations.

import { describe, expect, it } from "vitest";
import type { Augmentation } from "../../native/index.d.ts";
import { detectorGraph } from "../../shared/detector/detector.ts";
import { PRESETS, rendered, SIZE } from "./augmented-views.ts";
import { native } from "./engine.ts";
import { COLOURS, isColour, rectangleImage, type View, withImages } from "./rectangle-images.ts";
import { disc, frame, horseshoe, type Shape, shapeImage, triangle } from "./shape-images.ts";

/** What bilinear sampling blurs, and half a pixel: measured 1.9, at the tips of triangles. */
const BLUR = 3;
/** Share of cells without their colour around the centre: measured 0.003, where edges blur. */
const HOLLOW_MAX = 0.01;
const CELLS = SIZE / 4;
const options = { graph: detectorGraph("det26n", COLOURS.length, "segmentation") };
const sources = Array.from({ length: 16 }, (_, index) => {
  const [x, y] = [20 + ((index * 13) % 50), 15 + ((index * 7) % 40)];
  const side = 45 + ((index * 5) % 15);
  const classIndex = index % COLOURS.length;
  const shape = [disc(classIndex, [x + 25, y + 25], 24), triangle(classIndex, [x, y, side])];
  const others = [horseshoe(classIndex, [x, y, side]), frame(classIndex, [x, y, side])];
  const chosen = [...shape, ...others][index % 4] as Shape;
  return shapeImage(160, index % 3 ? 160 : 120, [chosen]);
});

/** How many of the four pixels around a cell's centre are of a class's colour. */
function coloured(view: View, cell: number, classIndex: number): number {
  const [x, y] = [4 * (cell % CELLS) + 1, 4 * Math.floor(cell / CELLS) + 1];
  const around = [view.at(x, y), view.at(x + 1, y), view.at(x, y + 1), view.at(x + 1, y + 1)];
  return around.filter((colour) => isColour(colour, classIndex, 0.3)).length;
}

/** How many of a cell's sixteen pixels are of a class's colour. */
function filledWith(view: View, cell: number, classIndex: number): number {
  const [x, y] = [4 * (cell % CELLS), 4 * Math.floor(cell / CELLS)];
  let own = 0;
  for (let pixel = 0; pixel < 16; pixel++) {
    if (isColour(view.at(x + (pixel % 4), y + (pixel >> 2)), classIndex, 0.3)) own++;
  }
  return own;
}

/**
 * Counts of cells of masks; of those without a pixel of their colour, in the cell and around its
 * centre; and of cells of one colour that are in no mask.
 */
function judge(all: View[]) {
  const counts = { masks: 0, cells: 0, empty: 0, hollow: 0, missing: 0 };
  for (const view of all) {
    for (const { classIndex, mask } of view.boxes) {
      if (!mask) throw new Error("a batch of segmentation has masks");
      counts.masks++;
      for (const [cell, isSet] of mask.entries()) {
        if (!isSet) continue;
        counts.cells++;
        if (filledWith(view, cell, classIndex) === 0) counts.empty++;
        if (coloured(view, cell, classIndex) === 0) counts.hollow++;
      }
    }
    for (let cell = 0; cell < CELLS * CELLS; cell++) {
      for (const classIndex of COLOURS.keys()) {
        const own = view.boxes.filter((box) => box.classIndex === classIndex);
        const isInBox = own.some(({ box: [x1, y1, x2, y2] }) => {
          const [x, y] = [4 * (cell % CELLS) + 2, 4 * Math.floor(cell / CELLS) + 2];
          return x > x1 && x < x2 && y > y1 && y < y2;
        });
        if (!isInBox || filledWith(view, cell, classIndex) < 16) continue;
        if (!own.some(({ mask }) => mask?.[cell])) counts.missing++;
      }
    }
  }
  return counts;
}

/** The box around the pixels of a class's colour in a box of the view, grown a little. */
function seen(view: View, { classIndex, box }: View["boxes"][0]) {
  const [x1, y1, x2, y2] = box.map((side, index) =>
    Math.min(Math.max(Math.round(side) + (index < 2 ? -4 : 4), 0), SIZE),
  ) as [number, number, number, number];
  const [columns, rows]: [number[], number[]] = [[], []];
  for (let y = y1; y < y2; y++) {
    for (let x = x1; x < x2; x++) {
      if (!isColour(view.at(x, y), classIndex, 0.5)) continue;
      columns.push(x);
      rows.push(y);
    }
  }
  const ends = (values: number[]) => [Math.min(...values), Math.max(...values) + 1] as const;
  const [[left, right], [top, bottom]] = [ends(columns), ends(rows)];
  return [left, top, right, bottom] as const;
}

const COLOURLESS: Partial<Augmentation> = { hsv: [0, 0, 0], mixup: 0 };

describe.skipIf(!native)("augmented masks", () => {
  it.each([
    ["none", {}],
    ["minimal", { ...PRESETS.minimal, ...COLOURLESS }],
    ["standard", { ...PRESETS.standard, ...COLOURLESS }],
    ["aggressive", { ...PRESETS.aggressive, ...COLOURLESS }],
    ["turned upside down", { flipUpDown: 1, flipLeftRight: 1, rotate: 45, shear: 10 }],
  ] as const)("cover the pixels of their objects and no others: %s", async (_, augmentation) => {
    await withImages({ sources, augmentation, options }, async (engine) => {
      const counts = judge(await rendered(engine, [0, 1, 2], [0, 1, 2, 3]));
      expect(counts.masks).toBeGreaterThan(30);
      expect(counts.cells).toBeGreaterThan(2000);
      expect([counts.empty, counts.missing]).toEqual([0, 0]);
      expect(counts.hollow / counts.cells).toBeLessThan(HOLLOW_MAX);
    });
  });

  it("have the boxes of what is seen of their objects, also where the frame cuts them", async () => {
    const augmentation = { rotate: 30, shear: 5, scale: 0.5, translate: 0.4 };
    await withImages({ sources, augmentation, options }, async (engine) => {
      let cut = 0;
      for (const view of await rendered(engine, [0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3])) {
        for (const box of view.boxes) {
          const pixels = seen(view, box);
          for (const [side, value] of pixels.entries()) {
            expect(Math.abs(value - (box.box[side] as number))).toBeLessThan(BLUR);
          }
          if (Math.min(...box.box) === 0 || Math.max(...box.box) === SIZE) cut++;
        }
      }
      expect(cut).toBeGreaterThan(10);
    });
  });

  it("are the same for a batch that is rendered again, and absent of boxes without a ring", async () => {
    const bare = rectangleImage(160, 160, [{ classIndex: 1, box: [20, 30, 90, 110] }]);
    const half = shapeImage(160, 160, [triangle(0, [10, 10, 50]), disc(2, [100, 100], 30)]);
    const starts = Int32Array.of(0, 3);
    // The disc's corners are left out: its ring is empty.
    const mixed = { ...half, rings: half.rings.slice(0, 6), ringStarts: starts };
    const setup = { sources: [bare, mixed], options, training: { batch: 2 } };
    await withImages(setup, async (engine) => {
      const [first, again] = [0, 0].map(() => engine.render({ epoch: 0, batch: 0 }));
      const batch = await (first as Promise<Awaited<typeof again>>);
      expect(await again).toEqual(batch);
      const all = await rendered(engine, [0], [0]);
      const boxes = all.flatMap((view) => view.boxes);
      expect(boxes.map(({ classIndex }) => classIndex).toSorted()).toEqual([0, 1, 2]);
      for (const { classIndex, mask } of boxes) {
        expect(mask?.includes(1)).toBe(classIndex === 0);
      }
    });
  });
});
