// Whole epochs with gathered gradients, by the engine and by the reference: weights and averages
// after each epoch, as a share of the way they went.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Batch, Dataset } from "../../native/index.d.ts";
import { native } from "./engine.ts";
import type { Truth } from "./reference/assigner.ts";
import { smallGraph } from "./reference/graphs.ts";
import { o2mShareAt } from "./reference/loss.ts";
import { Average, Optimizer, type Recipe, ratesAt } from "./reference/optimizer.ts";
import { measured, tensorsOf, trainingOf, withPair, worst } from "./reference/pair.ts";
import { randomTruths, stateDistances } from "./reference/scenes.ts";
import { copied, FRAME, learn, RECIPE, type Scene, SMALL_WAY_MAX } from "./reference/steps.ts";
import { Tensor } from "./reference/tensor.ts";
import { seeded } from "./reference/weights.ts";

/** Images of noise with a box each, as a split's file in the folder. */
function splitOf(folder: string, count: number): Dataset {
  const random = seeded(11);
  const bytes = Uint8Array.from({ length: count * 3 * 64 * 64 }, () => Math.floor(256 * random()));
  const path = join(folder, "train.bin");
  writeFileSync(path, bytes);
  const images = Array.from({ length: count }, (_, index) => {
    const [only] = randomTruths(index, 1, { ...FRAME, classes: 3 });
    const { classIndex, box } = only as Truth;
    const boxes = Float32Array.from([classIndex, ...box]);
    return { offset: index * 3 * 64 * 64, width: 64, height: 64, boxes };
  });
  return { path, images };
}

/** A rendered batch as the reference takes it. */
function sceneOf({ images, count, height, width, boxes }: Batch): Scene {
  const truths: Truth[][] = Array.from({ length: count }, () => []);
  for (let index = 0; index < boxes.length; index += 6) {
    const [image, classIndex, ...box] = [...boxes.subarray(index, index + 6)] as [number, number];
    // What follows image and class are the four corners.
    truths[image]?.push({ classIndex, box: box as unknown as Truth["box"] });
  }
  const values = Float64Array.from(images);
  return { images: new Tensor([count, 3, height, width], values), truths };
}

describe.skipIf(!native)("epochs of seven images in batches of two", () => {
  it.each([
    ["a step a batch", { nominalBatch: 2 }, 12],
    ["a step in three batches, over the epochs' ends", { nominalBatch: 6 }, 4],
    ["ever more batches a step in warm-up", { nominalBatch: 64, warmupEpochs: 3 }, 5],
  ] as const)("make %s", async (_, more, steps) => {
    const recipe: Recipe = { ...RECIPE, optimizer: "musgd", epochs: 3, batch: 2, ...more };
    const folder = mkdtempSync(join(tmpdir(), "vantage-epochs-"));
    const graph = smallGraph(3, { normalized: true });
    try {
      await withPair({ graph, seed: 1, training: trainingOf(recipe, 64) }, async (pair) => {
        const { engine, state } = pair;
        const start = copied(state);
        await engine.setDataset("train", splitOf(folder, 7));
        const [descent, average] = [new Optimizer(state, recipe), new Average(state, recipe)];
        for (const tensor of state.values()) tensor.forget();
        let [gathered, made] = [0, 0];
        for (let epoch = 0; epoch < recipe.epochs; epoch++) {
          const result = await engine.trainEpoch({ epoch, from: 0 }, () => {});
          expect(result).toMatchObject({ batch: 4, batches: 4, images: 7, skipped: 0 });
          for (let batch = 0; batch < 4; batch++) {
            const scene = sceneOf(await engine.render({ epoch, batch }));
            expect(scene.truths).toHaveLength(batch < 3 ? 2 : 1);
            learn(pair, scene, o2mShareAt(epoch, recipe.epochs));
            gathered++;
            if (gathered < batchesAStep(recipe, 4 * epoch + batch)) continue;
            descent.step(ratesAt(recipe, epoch, batch, 4));
            average.update(state);
            for (const tensor of state.values()) tensor.forget();
            gathered = 0;
            made++;
          }
          const found = await tensorsOf(engine, "model", state.keys());
          const furthest = worst(stateDistances(found, copied(state), start));
          measured(`${JSON.stringify(more)} epoch ${epoch}`, furthest);
          expect(furthest.distance).toBeLessThan(SMALL_WAY_MAX);
        }
        expect(made).toBe(steps);
        const averages = await tensorsOf(engine, "ema", state.keys());
        const furthest = worst(stateDistances(averages, average.values, start));
        expect(furthest.distance).toBeLessThan(SMALL_WAY_MAX);
      });
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

/** From one to as many batches as hold the nominal number of images, over warm-up. */
function batchesAStep({ nominalBatch, batch, warmupEpochs }: Recipe, iteration: number): number {
  const warm = warmupEpochs > 0 ? Math.max(Math.round(warmupEpochs * 4), 100) : 0;
  const share = iteration < warm ? iteration / warm : 1;
  return Math.max(1, Math.round(1 + (nominalBatch / batch - 1) * share));
}
