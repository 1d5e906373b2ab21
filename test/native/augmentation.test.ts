// Augmented batches, looked at pixel by pixel. Goal: wherever a rectangle's colour went, its box
// went too, and each step is what its name says.

import { describe, expect, it } from "vitest";
import type { Augmentation } from "../../native/index.d.ts";
import { expectBound, PRESETS, rendered, SIZE } from "./augmented-views.ts";
import { native } from "./engine.ts";
import {
  isColour,
  rectangleImage,
  rectangleImages,
  type View,
  withImages,
} from "./rectangle-images.ts";

describe.skipIf(!native)("boxes", () => {
  it.each([
    ["in place", {}],
    ["scaled and shifted", { scale: 0.5, translate: 0.1 }],
    ["in mosaics", { mosaic: 1 }],
    ["in scaled mosaics, flipped", PRESETS.standard],
    ["in some mosaics", { mosaic: 0.5, scale: 0.3, flipUpDown: 0.5 }],
  ] as const)("bound their colours %s", async (_, augmentation) => {
    await withImages(
      { sources: rectangleImages(24), augmentation: { ...augmentation, hsv: [0, 0, 0] } },
      async (engine) => expectBound(await rendered(engine, [0, 5], [0, 1, 2, 3, 4, 5]), 40),
    );
  });

  it("bound what was turned and sheared", async () => {
    const augmentation = { rotate: 30, shear: 10, scale: 0.2, translate: 0.05 };
    await withImages({ sources: rectangleImages(24), augmentation }, async (engine) => {
      let whole = 0;
      for (const view of await rendered(engine, [0, 1], [0, 1, 2, 3, 4, 5])) {
        const [first] = view.boxes;
        if (!first) continue;
        const found = [Infinity, Infinity, -Infinity, -Infinity];
        for (let y = 0; y < SIZE; y++) {
          for (let x = 0; x < SIZE; x++) {
            if (!isColour(view.at(x, y), first.classIndex, 0.5)) continue;
            const corners = [Math.min, Math.min, Math.max, Math.max];
            const sides = [x, y, x + 1, y + 1];
            for (const [i, pick] of corners.entries()) {
              found[i] = pick(found[i] as number, sides[i] as number);
            }
          }
        }
        for (const [i, side] of first.box.entries()) {
          expect(Math.abs(side - (found[i] as number))).toBeLessThan(2.5);
        }
        whole++;
      }
      expect(whole).toBeGreaterThan(30);
    });
  });

  it("go where little of them is left to see, or little of them at all", async () => {
    const sources = [
      rectangleImage(160, 160, [{ classIndex: 0, box: [40, 40, 120, 120] }]),
      rectangleImage(160, 160, [{ classIndex: 1, box: [80, 80, 82, 120] }]),
      rectangleImage(160, 160, [{ classIndex: 2, box: [80, 10, 83, 150] }]),
      { ...rectangleImage(160, 160, []), boxes: [[3, 50, 50, 50, 90]] },
    ];
    const boxes = async (augmentation: Partial<Augmentation>) =>
      withImages({ sources, augmentation }, async (engine) =>
        (await rendered(engine, [0, 1, 2, 3], [0])).flatMap((view) => view.boxes),
      );
    // At its own scale, a side of two pixels is too little, and one of none always was.
    expect(new Set((await boxes({})).map(({ classIndex }) => classIndex))).toEqual(new Set([0, 2]));
    for (const { classIndex, box } of await boxes({ mosaic: 1, translate: 0.4 })) {
      const area = (box[2] - box[0]) * (box[3] - box[1]);
      const whole = { 0: 80 * 80, 2: 3 * 140 }[classIndex] as number;
      expect(area).toBeGreaterThan(0.1 * whole - 1e-3);
    }
  });
});

describe.skipIf(!native)("flips", () => {
  it.each(["flipLeftRight", "flipUpDown"] as const)("%s mirrors pixels and boxes", async (name) => {
    const [plain, flipped] = await Promise.all(
      [0, 1].map((chance) =>
        withImages(
          {
            sources: rectangleImages(8),
            augmentation: { mosaic: 1, scale: 0.3, translate: 0.1, [name]: chance },
          },
          (engine) => rendered(engine, [3], [0, 1]),
        ),
      ),
    );
    for (const [index, view] of (plain as View[]).entries()) {
      const other = flipped?.[index] as View;
      let [seen, apart] = [0, 0];
      for (let y = 0; y < SIZE; y += 7) {
        for (let x = 0; x < SIZE; x++) {
          const [mx, my] = name === "flipLeftRight" ? [SIZE - 1 - x, y] : [x, SIZE - 1 - y];
          const [found, wanted] = [other.at(mx, my), view.at(x, y)];
          seen++;
          if (found.some((value, c) => Math.abs(value - (wanted[c] as number)) > 1e-3)) apart++;
        }
      }
      // A pixel on the very edge of a tile may fall to its other side.
      expect(apart / seen).toBeLessThan(0.005);
      const mirrored = view.boxes.map(({ classIndex, box: [x1, y1, x2, y2] }) => ({
        classIndex,
        box:
          name === "flipLeftRight"
            ? [SIZE - x2, y1, SIZE - x1, y2]
            : [x1, SIZE - y2, x2, SIZE - y1],
      }));
      expect(other.boxes.map(({ classIndex }) => classIndex)).toEqual(
        mirrored.map(({ classIndex }) => classIndex),
      );
      for (const [i, { box }] of other.boxes.entries()) {
        for (const [j, side] of box.entries()) {
          expect(side).toBeCloseTo(mirrored[i]?.box[j] as number, 3);
        }
      }
    }
  });
});

describe.skipIf(!native)("mixup", () => {
  it("blends a second image with its boxes behind the first's", async () => {
    const setup = (mixup: number) => ({
      sources: rectangleImages(24),
      augmentation: { mosaic: 1, scale: 0.2, mixup },
    });
    const [first, mixed] = await Promise.all(
      [0, 1].map((mixup) =>
        withImages(setup(mixup), (engine) => rendered(engine, [2], [0, 1, 2, 3, 4, 5])),
      ),
    );
    const shares: number[] = [];
    const seconds: View[] = [];
    for (const [index, view] of (mixed as View[]).entries()) {
      const own = first?.[index] as View;
      expect(view.boxes.slice(0, own.boxes.length)).toEqual(own.boxes);
      // Without any object in sight, the first image does not tell its share.
      if (own.boxes.length === 0) continue;
      const share = shareOf(own, view);
      shares.push(share);
      const unmixed = (x: number, y: number) => {
        const [a, both] = [own.at(x, y), view.at(x, y)];
        return both.map((value, c) => (value - share * (a[c] as number)) / (1 - share));
      };
      const boxes = view.boxes.slice(own.boxes.length);
      seconds.push({ ...view, at: (x, y) => unmixed(x, y) as [number, number, number], boxes });
    }
    expect(seconds.length).toBeGreaterThan(15);
    expectBound(seconds, 40);
    const mean = shares.reduce((sum, share) => sum + share, 0) / shares.length;
    const spread = shares.reduce((sum, share) => sum + (share - mean) ** 2, 0) / shares.length;
    // Beta(32, 32) has mean ½ and a standard deviation of 0.062.
    expect(Math.abs(mean - 0.5)).toBeLessThan(0.05);
    expect(Math.sqrt(spread)).toBeGreaterThan(0.03);
    expect(Math.sqrt(spread)).toBeLessThan(0.1);
  });

  it("comes as often as it is asked for", async () => {
    const setup = { sources: rectangleImages(24), augmentation: { mixup: 0.25 } };
    await withImages(setup, async (engine) => {
      const all = await rendered(engine, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 1, 2, 3, 4, 5]);
      const mixed = all.filter((view) => view.boxes.length === 2).length / all.length;
      expect(mixed).toBeGreaterThan(0.15);
      expect(mixed).toBeLessThan(0.35);
    });
  });
});

/** Where the first image is bright and the second black, the blend is the first's share. */
function shareOf(first: View, mixed: View): number {
  let min = 1;
  for (let y = 0; y < SIZE; y++) {
    for (let x = 0; x < SIZE; x++) {
      const [a, both] = [first.at(x, y), mixed.at(x, y)];
      for (const [c, value] of a.entries()) {
        if (value > 1 - 1e-6) min = Math.min(min, both[c] as number);
      }
    }
  }
  return min;
}
