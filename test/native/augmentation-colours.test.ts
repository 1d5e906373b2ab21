// Colours of augmented batches, pixel by pixel, and what epochs have in common: HSV follows a plain
// reference, the last epochs have no mosaic, every preset keeps boxes and colours in bounds.

import { describe, expect, it } from "vitest";
import { PRESETS, rendered, SIZE } from "./augmented-views.ts";
import { native } from "./engine.ts";
import {
  COLOURS,
  type Rgb,
  rectangleImage,
  rectangleImages,
  withImages,
} from "./rectangle-images.ts";

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
    for (let index = 0; index < rgb.length; index++)
      rgb[index] = (index * 89 + ((index / 3) | 0) * 53) % 256;
    const levels = [0, 1, 85, 128, 254, 255];
    const corners = levels.flatMap((r) => levels.flatMap((g) => levels.map((b) => [r, g, b])));
    for (const [index, colour] of corners.entries()) rgb.set(colour, (index + 1) * 3);
    const probe = [61, 77, 77];
    rgb.set(probe, 0);
    const one = { ...rectangleImage(side, side, []), rgb };
    const setup = {
      sources: Array.from({ length: 12 }, () => one),
      augmentation: { hsv: [0.4, 0.7, 0.4] as [number, number, number] },
      training: { imageSize: side },
    };
    await withImages(setup, async (engine) => {
      const hues: number[] = [];
      for (const view of await rendered(engine, [0, 1], [0, 1, 2])) {
        const [h, s, v] = hsvOf(view.at(0, 0));
        // Three bytes give three values.
        const [h0, s0, v0] = hsvOf(probe.map((byte) => byte / 255) as unknown as Rgb);
        const [turn, saturation, value] = [h - h0, s / s0, v / v0];
        hues.push(turn);
        expect(Math.abs(turn)).toBeLessThan(0.4 + 1e-4);
        expect(Math.abs(saturation - 1)).toBeLessThan(0.7 + 1e-4);
        expect(Math.abs(value - 1)).toBeLessThan(0.4 + 1e-4);
        let worst = 0;
        for (let index = 0; index < side * side; index++) {
          const bytes = [...rgb.subarray(index * 3, index * 3 + 3)].map((byte) => byte / 255);
          // Three bytes give three values.
          const [hue, sat, val] = hsvOf(bytes as unknown as Rgb);
          const expected = rgbOf([
            (hue + turn + 1) % 1,
            Math.min(1, sat * saturation),
            Math.min(1, val * value),
          ]);
          const found = view.at(index % side, Math.floor(index / side));
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
    const setup = {
      sources: rectangleImages(8),
      augmentation: { mosaic: 1, mixup: 1, closeMosaic: 2 },
      training: { epochs: 5 },
    };
    await withImages(setup, async (engine) => {
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
      await withImages({ sources: rectangleImages(24), augmentation }, async (engine) => {
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
