// Sizes of batches. Goal: each is drawn from its range by seed, epoch and batch alone, boxes and
// masks are those of its size, and a training that was interrupted goes on to the same bits.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { imageSizeMax } from "../../gpu-node/training/settings.ts";
import { detectorGraph } from "../../shared/detector/detector.ts";
import { expectBound, PRESETS } from "./augmented-views.ts";
import { native } from "./engine.ts";
import { COLOURS, rectangleImages, views, withImages } from "./rectangle-images.ts";
import { disc, shapeImage } from "./shape-images.ts";
import { LIVELY, splitOf, withEngine } from "./training-world.ts";

const sources = rectangleImages(12);
const SIDES = [96, 128, 160, 192, 224];

const sizesOf = (training: { multiScale: number; batch?: number }, seed = 7) =>
  withImages({ sources, training, options: { seed } }, async (engine) => {
    const sizes: number[] = [];
    for (let epoch = 0; epoch < 12; epoch++) {
      for (const batch of [0, 1, 2]) sizes.push((await engine.render({ epoch, batch })).width);
    }
    return sizes;
  });

describe.skipIf(!native)("batches of several sizes", () => {
  it("are of each size of the range, which other seeds draw otherwise", async () => {
    const sizes = await sizesOf({ multiScale: 0.4 });
    expect([...new Set(sizes)].toSorted((one, other) => one - other)).toEqual(SIDES);
    expect(await sizesOf({ multiScale: 0.4 })).toEqual(sizes);
    expect(await sizesOf({ multiScale: 0.4 }, 8)).not.toEqual(sizes);
    expect(new Set(await sizesOf({ multiScale: 0 }))).toEqual(new Set([160]));
    // 160 ± 10 % has no other multiple of 32, and 0.9 none below one.
    expect(new Set(await sizesOf({ multiScale: 0.1 }))).toEqual(new Set([160]));
    expect(Math.min(...(await sizesOf({ multiScale: 0.9 })))).toBeGreaterThanOrEqual(32);
  });

  it.each([
    [160, 0, 160],
    [160, 0.4, 224],
    [640, 0.1, 704],
    [640, 0.5, 960],
    [320, 0.3, 416],
    [2048, 0.9, 3872],
  ])("of %i px ± %d are of %i px at most, for which memory is judged", async (size, share, max) => {
    expect(imageSizeMax({ image_size: size, multi_scale: share })).toBe(max);
    if (size > 200) return;
    const sizes = await sizesOf({ multiScale: share });
    expect(Math.max(...sizes)).toBe(max);
  });

  it("have their boxes where their pixels say, and masks of their size", async () => {
    const augmentation = { ...PRESETS.standard, hsv: [0, 0, 0] as [number, number, number] };
    await withImages({ sources, augmentation, training: { multiScale: 0.4 } }, async (engine) => {
      const batch = await engine.render({ epoch: 0, batch: 1 });
      expect(batch.width).not.toBe(160);
      expect(batch.images.length).toBe(4 * 3 * batch.width ** 2);
      expectBound(views(batch), 3);
    });
    const graph = detectorGraph("det26n", COLOURS.length, "segmentation");
    const discs = Array.from({ length: 4 }, () => shapeImage(160, 160, [disc(0, [80, 80], 40)]));
    const setup = { sources: discs, options: { graph }, training: { multiScale: 0.4 } };
    await withImages(setup, async (engine) => {
      for (let epoch = 0; epoch < 4; epoch++) {
        const { masks, width } = await engine.render({ epoch, batch: 0 });
        expect(masks?.length).toBe(4 * (width / 4) ** 2);
        const covered = masks?.reduce((sum, cell) => sum + cell, 0) ?? 0;
        expect(covered / (masks?.length ?? 1)).toBeCloseTo(Math.PI / 16, 1);
      }
    });
  });

  it("go on from a checkpoint to the same bits", async () => {
    const settings = { ...LIVELY, multiScale: 0.5, warmupEpochs: 0 };
    await withEngine(settings, async (straight, folder) => {
      const dataset = splitOf(folder, 8, 64);
      const [middle, end, again] = ["middle", "end", "again"].map((name) => join(folder, name)) as [
        string,
        string,
        string,
      ];
      await straight.setDataset("train", dataset);
      await straight.trainEpoch({ epoch: 0, from: 0 }, () => {});
      await straight.checkpoint(end, {});
      const batch = await withEngine(settings, async (stopped) => {
        await stopped.setDataset("train", dataset);
        const begun = await stopped.trainEpoch({ epoch: 0, from: 0 }, () => stopped.interrupt());
        await stopped.checkpoint(middle, {});
        return begun.batch;
      });
      expect(batch).toBeLessThan(4);
      await withEngine(settings, async (resumed) => {
        await resumed.restore(middle);
        await resumed.setDataset("train", dataset);
        await resumed.trainEpoch({ epoch: 0, from: batch }, () => {});
        await resumed.checkpoint(again, {});
      });
      expect(readFileSync(again).equals(readFileSync(end))).toBe(true);
    });
  });
});
