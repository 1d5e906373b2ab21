// Weights whose channels lie side by side in memory. Goal: the same steps but for rounding, and
// files with the same tensors in the same order, from and to engines that have them the other way.

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Engine } from "../../native/index.d.ts";
import { detectorGraph, stateTensors } from "../../shared/detector/detector.ts";
import { native } from "./engine.ts";
import { COLOURS, rectangleImages, withImages } from "./rectangle-images.ts";
import { measured, tensorsOf, trainingOf, withPair } from "./reference/pair.ts";
import { distance, noiseScene, randomTruths } from "./reference/scenes.ts";
import { FRAME, RECIPE } from "./reference/steps.ts";

const graph = detectorGraph("det26n", 3, "segmentation");
const learned = stateTensors(graph)
  .filter((tensor) => tensor.learned)
  .map(({ name }) => name);
const truths = [0, 1].map((seed) => randomTruths(seed + 3, 4, { ...FRAME, classes: 3 }));
const { batch } = noiseScene(4, FRAME, truths);

/** Values of all tensors, one after another. */
const valuesOf = (tensors: ReadonlyMap<string, Float32Array>): number[] =>
  [...tensors.values()].flatMap((values) => [...values]);

/** Gradients of a step, and by how much it moved weights, each as one list. */
const stepped = (channelsLast: boolean, optimizer: "adamw" | "sgd" | "musgd") =>
  withPair(
    { graph, seed: 2, training: { ...trainingOf(RECIPE, 64), optimizer }, channelsLast },
    async ({ engine }) => {
      const before = await tensorsOf(engine, "model", learned);
      await engine.step(batch, { epoch: 0, iteration: 0 });
      const gradients = await tensorsOf(engine, "gradient", learned);
      const after = await tensorsOf(engine, "model", learned);
      const moves = new Map(
        [...after].map(([name, values]) => [
          name,
          values.map((value, index) => value - (before.get(name)?.[index] ?? Number.NaN)),
        ]),
      );
      return { gradients: valuesOf(gradients), moves: valuesOf(moves) };
    },
  );

describe.skipIf(!native)("channels last", () => {
  it.each(["adamw", "sgd", "musgd"] as const)(
    "makes the same steps, with %s",
    async (optimizer) => {
      const [found, wanted] = [await stepped(true, optimizer), await stepped(false, optimizer)];
      const distances = {
        gradients: distance(found.gradients, wanted.gradients),
        moves: distance(found.moves, wanted.moves),
      };
      measured(`channels last, ${optimizer}`, distances);
      expect(distances.gradients).toBeLessThan(1e-3);
      // AdamW's first step is the sign of a gradient, and of one near 0 rounding decides it.
      expect(distances.moves).toBeLessThan(optimizer === "adamw" ? 5e-2 : 1e-3);
    },
  );

  it("leaves files as they are", async () => {
    const setup = (channelsLast: boolean) => ({
      sources: rectangleImages(4),
      training: { imageSize: 64, batch: 2, optimizer: "musgd", nominalBatch: 4 } as const,
      options: { channelsLast, graph: detectorGraph("det26n", COLOURS.length, "segmentation") },
    });
    const written = async (engine: Engine, folder: string, name: string) => {
      const paths = [join(folder, `${name}.checkpoint`), join(folder, `${name}.weights`)] as const;
      await engine.checkpoint(paths[0], {});
      await engine.save(paths[1], {});
      return paths.map((path) => readFileSync(path));
    };
    const different = (found: readonly Buffer[], expected: readonly Buffer[]) =>
      found.flatMap((file, index) => (file.equals(expected[index] as Buffer) ? [] : [index]));
    await withImages(setup(true), async (last, { path }) => {
      const folder = dirname(path);
      // Of two steps; half of the third's gradients are gathered as it is written.
      for (const epoch of [0, 1]) await last.trainEpoch({ epoch, from: 0 }, () => {});
      await last.trainEpoch({ epoch: 2, from: 1 }, () => {});
      const wanted = await written(last, folder, "last");
      await withImages(setup(false), async (first) => {
        await first.restore(join(folder, "last.checkpoint"));
        expect(different(await written(first, folder, "first"), wanted)).toEqual([]);
      });
      await withImages(setup(true), async (again) => {
        await again.restore(join(folder, "first.checkpoint"));
        expect(different(await written(again, folder, "again"), wanted)).toEqual([]);
      });
    });
  });
});
