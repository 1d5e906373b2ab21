// Augmented batches, looked at pixel by pixel. Goal: wherever a rectangle's colour went, its box
// went too; an image depends on seed, epoch and place alone; and each step is what its name says.

import { describe, expect, it } from "vitest";
import type { Augmentation, Engine } from "../../native/index.d.ts";
import { ENGINE_ENVIRONMENT, loadEngine, type Native } from "../../native/load.ts";
import {
  COLOURS,
  type Corners,
  isColour,
  paintings,
  picture,
  type Rgb,
  type View,
  views,
  withPictures,
} from "./painted.ts";

Object.assign(process.env, ENGINE_ENVIRONMENT);
const loaded = loadEngine();
if ("missing" in loaded) console.warn(`SKIPPED: ${loaded.missing}`);
const native = ("native" in loaded ? loaded.native : undefined) as Native;

const SIZE = 160;
/** Half an output pixel, and what bilinear sampling blurs at the largest scale. */
const BLUR = 1.5;

async function rendered(engine: Engine, epochs: number[], batches: number[]): Promise<View[]> {
  const all: View[] = [];
  for (const epoch of epochs) {
    for (const batch of batches) all.push(...views(await engine.render({ epoch, batch })));
  }
  return all;
}

const centre = (x: number) => x + 0.5;
const isWithin = ([x1, y1, x2, y2]: Corners, x: number, y: number, margin: number) =>
  centre(x) > x1 + margin &&
  centre(x) < x2 - margin &&
  centre(y) > y1 + margin &&
  centre(y) < y2 - margin;

/** How the pixels speak against the boxes of a view. */
function contradictions(view: View) {
  const [hollow, uncovered]: [string[], [number, number][]] = [[], []];
  for (let y = 0; y < view.height; y++) {
    for (let x = 0; x < view.width; x++) {
      const colour = view.at(x, y);
      for (const { classIndex, box } of view.boxes) {
        if (isWithin(box, x, y, BLUR) && !isColour(colour, classIndex, 0.02)) {
          hollow.push(`${classIndex} at ${x}, ${y}: ${colour}`);
        }
      }
      const own = COLOURS.findIndex((_, classIndex) => isColour(colour, classIndex));
      const covers = ({ classIndex, box }: View["boxes"][0]) =>
        classIndex === own && isWithin(box, x, y, -BLUR);
      if (own >= 0 && !view.boxes.some(covers)) uncovered.push([x, y]);
    }
  }
  return { hollow, uncovered };
}

/** What is left of a box that was dropped lies at the border, and there is little of it. */
function expectBound(all: View[], boxesMin: number) {
  let [boxes, stray] = [0, 0];
  for (const view of all) {
    const { hollow, uncovered } = contradictions(view);
    expect(hollow.slice(0, 5)).toEqual([]);
    for (const [x, y] of uncovered) {
      const border = Math.min(x, y, view.width - 1 - x, view.height - 1 - y);
      expect(border).toBeLessThan(24);
    }
    boxes += view.boxes.length;
    stray += uncovered.length;
    for (const { box } of view.boxes) {
      expect(Math.min(...box)).toBeGreaterThanOrEqual(0);
      expect(Math.max(...box)).toBeLessThanOrEqual(view.width);
      expect(Math.min(box[2] - box[0], box[3] - box[1])).toBeGreaterThan(2);
    }
  }
  expect(boxes).toBeGreaterThan(boxesMin);
  expect(stray / (all.length * SIZE * SIZE)).toBeLessThan(0.01);
}

const PRESETS: Record<string, Partial<Augmentation>> = {
  minimal: { scale: 0.25, translate: 0.05, hsv: [0.01, 0.3, 0.2], flipLeftRight: 0.5 },
  standard: {
    mosaic: 1,
    scale: 0.5,
    translate: 0.1,
    hsv: [0.015, 0.7, 0.4],
    flipLeftRight: 0.5,
    closeMosaic: 10,
  },
  aggressive: {
    mosaic: 1,
    mixup: 0.15,
    scale: 0.9,
    translate: 0.2,
    rotate: 10,
    shear: 2,
    hsv: [0.02, 0.8, 0.5],
    flipLeftRight: 0.5,
    closeMosaic: 15,
  },
};

describe.skipIf(!native)("boxes", () => {
  it.each([
    ["in place", {}],
    ["scaled and shifted", { scale: 0.5, translate: 0.1 }],
    ["in mosaics", { mosaic: 1 }],
    ["in scaled mosaics, flipped", PRESETS.standard],
    ["in some mosaics", { mosaic: 0.5, scale: 0.3, flipUpDown: 0.5 }],
  ] as const)("bound their colours %s", async (_, augmentation) => {
    await withPictures(
      native,
      { pictures: paintings(24), augmentation: { ...augmentation, hsv: [0, 0, 0] } },
      async (engine) => expectBound(await rendered(engine, [0, 5], [0, 1, 2, 3, 4, 5]), 40),
    );
  });

  it("bound what was turned and sheared", async () => {
    const augmentation = { rotate: 30, shear: 10, scale: 0.2, translate: 0.05 };
    await withPictures(native, { pictures: paintings(24), augmentation }, async (engine) => {
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
    const pictures = [
      picture(160, 160, [{ classIndex: 0, box: [40, 40, 120, 120] }]),
      picture(160, 160, [{ classIndex: 1, box: [80, 80, 82, 120] }]),
      picture(160, 160, [{ classIndex: 2, box: [80, 10, 83, 150] }]),
      { ...picture(160, 160, []), boxes: [[3, 50, 50, 50, 90]] },
    ];
    const boxes = async (augmentation: Partial<Augmentation>) =>
      withPictures(native, { pictures, augmentation }, async (engine) =>
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
        withPictures(
          native,
          {
            pictures: paintings(8),
            augmentation: { mosaic: 1, scale: 0.3, translate: 0.1, [name]: chance },
          },
          (engine) => rendered(engine, [3], [0, 1]),
        ),
      ),
    );
    for (const [at, view] of (plain as View[]).entries()) {
      const other = flipped?.[at] as View;
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
  it("blends a second picture with its boxes behind the first's", async () => {
    const opened = (mixup: number) => ({
      pictures: paintings(24),
      augmentation: { mosaic: 1, scale: 0.2, mixup },
    });
    const [first, mixed] = await Promise.all(
      [0, 1].map((mixup) =>
        withPictures(native, opened(mixup), (engine) => rendered(engine, [2], [0, 1, 2, 3, 4, 5])),
      ),
    );
    const shares: number[] = [];
    const seconds: View[] = [];
    for (const [at, view] of (mixed as View[]).entries()) {
      const own = first?.[at] as View;
      expect(view.boxes.slice(0, own.boxes.length)).toEqual(own.boxes);
      // Without any object in sight, the first picture does not tell its share.
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
    const opened = { pictures: paintings(24), augmentation: { mixup: 0.25 } };
    await withPictures(native, opened, async (engine) => {
      const all = await rendered(engine, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 1, 2, 3, 4, 5]);
      const mixed = all.filter((view) => view.boxes.length === 2).length / all.length;
      expect(mixed).toBeGreaterThan(0.15);
      expect(mixed).toBeLessThan(0.35);
    });
  });
});

/** Where the first picture is bright and the second black, the blend is the first's share. */
function shareOf(first: View, mixed: View): number {
  let least = 1;
  for (let y = 0; y < SIZE; y++) {
    for (let x = 0; x < SIZE; x++) {
      const [a, both] = [first.at(x, y), mixed.at(x, y)];
      for (const [c, value] of a.entries()) {
        if (value > 1 - 1e-6) least = Math.min(least, both[c] as number);
      }
    }
  }
  return least;
}

type Hsv = [hue: number, saturation: number, value: number];

/** As textbooks have it; hue in turns. */
function hsvOf([r, g, b]: Rgb): Hsv {
  const [high, low] = [Math.max(r, g, b), Math.min(r, g, b)];
  const chroma = high - low;
  if (chroma === 0) return [0, 0, high];
  const sixths =
    high === r ? (g - b) / chroma : high === g ? 2 + (b - r) / chroma : 4 + (r - g) / chroma;
  return [((sixths + 6) % 6) / 6, chroma / high, high];
}
function rgbOf([hue, saturation, value]: Hsv): Rgb {
  const sixths = hue * 6;
  const [chroma, sector] = [value * saturation, Math.floor(sixths) % 6];
  const second = chroma * (1 - Math.abs((sixths % 2) - 1));
  const low = value - chroma;
  const [r, g, b] = [
    [chroma, second, 0],
    [second, chroma, 0],
    [0, chroma, second],
    [0, second, chroma],
    [second, 0, chroma],
    [chroma, 0, second],
  ][sector] as [number, number, number];
  return [r + low, g + low, b + low];
}

describe.skipIf(!native)("HSV", () => {
  it("adds to the hue and multiplies saturation and value as a plain reference does", async () => {
    const side = 64;
    // Every corner of the cube, greys, and the ramp between; the first pixel is a probe whose
    // saturation and value no factor takes to their ends.
    const rgb = new Uint8Array(side * side * 3);
    for (let at = 0; at < rgb.length; at++) rgb[at] = (at * 89 + ((at / 3) | 0) * 53) % 256;
    const levels = [0, 1, 85, 128, 254, 255];
    const corners = levels.flatMap((r) => levels.flatMap((g) => levels.map((b) => [r, g, b])));
    for (const [at, colour] of corners.entries()) rgb.set(colour, (at + 1) * 3);
    const probe = [61, 77, 77];
    rgb.set(probe, 0);
    const one = { ...picture(side, side, []), rgb };
    const opened = {
      pictures: Array.from({ length: 12 }, () => one),
      augmentation: { hsv: [0.4, 0.7, 0.4] as [number, number, number] },
      training: { imageSize: side },
    };
    await withPictures(native, opened, async (engine) => {
      const hues: number[] = [];
      for (const view of await rendered(engine, [0, 1], [0, 1, 2])) {
        const [h, s, v] = hsvOf(view.at(0, 0));
        // Three numbers were mapped to three.
        const [h0, s0, v0] = hsvOf(probe.map((byte) => byte / 255) as unknown as Rgb);
        const [turn, saturation, value] = [h - h0, s / s0, v / v0];
        hues.push(turn);
        expect(Math.abs(turn)).toBeLessThan(0.4 + 1e-4);
        expect(Math.abs(saturation - 1)).toBeLessThan(0.7 + 1e-4);
        expect(Math.abs(value - 1)).toBeLessThan(0.4 + 1e-4);
        let worst = 0;
        for (let at = 0; at < side * side; at++) {
          const bytes = [...rgb.subarray(at * 3, at * 3 + 3)].map((byte) => byte / 255);
          // Three numbers were mapped to three.
          const [hue, sat, val] = hsvOf(bytes as unknown as Rgb);
          const expected = rgbOf([
            (hue + turn + 1) % 1,
            Math.min(1, sat * saturation),
            Math.min(1, val * value),
          ]);
          const found = view.at(at % side, Math.floor(at / side));
          for (const c of [0, 1, 2]) {
            worst = Math.max(worst, Math.abs((found[c] as number) - (expected[c] as number)));
          }
        }
        expect(worst).toBeLessThan(2e-5);
      }
      expect(Math.max(...hues) - Math.min(...hues)).toBeGreaterThan(0.3);
    });
  });
});

describe.skipIf(!native)("an epoch", () => {
  it("has no mosaic and no mixup among the last ones", async () => {
    const opened = {
      pictures: paintings(8),
      augmentation: { mosaic: 1, mixup: 1, closeMosaic: 2 },
      training: { epochs: 5 },
    };
    await withPictures(native, opened, async (engine) => {
      for (const view of await rendered(engine, [3, 4], [0, 1])) {
        expect(view.boxes.length).toBe(1);
        const [only] = view.boxes;
        expect(view.at(80, 80).every((value) => value < 1e-6 || value > 1 - 1e-6)).toBe(true);
        expect(only?.box.every((side) => Number.isInteger(side))).toBe(true);
      }
      const before = await rendered(engine, [2], [0, 1]);
      expect(before.filter((view) => view.boxes.length > 1).length).toBeGreaterThan(3);
    });
  });

  it.each(Object.entries(PRESETS))(
    "keeps its colours and boxes in bounds: %s",
    async (_, augmentation) => {
      await withPictures(native, { pictures: paintings(24), augmentation }, async (engine) => {
        const all = await rendered(engine, [0, 50, 99], [0, 1, 2, 3, 4, 5]);
        for (const { boxes } of all) {
          for (const { box, classIndex } of boxes) {
            expect(COLOURS[classIndex]).toBeDefined();
            expect(Math.min(...box)).toBeGreaterThanOrEqual(0);
            expect(Math.max(...box)).toBeLessThanOrEqual(SIZE);
          }
        }
        expect(all.flatMap(({ boxes }) => boxes).length).toBeGreaterThan(60);
        const { images } = await engine.render({ epoch: 0, batch: 0 });
        expect(images.every((value) => value >= 0 && value <= 1)).toBe(true);
      });
    },
  );
});
