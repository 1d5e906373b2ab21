// The engine against the reference: maps, losses with the gradient of every learned tensor, ten
// steps of every optimiser, and detections. Tolerances are a small factor above what was measured
// with libtorch 1.13.1 on the CPU, which stands beside them.

import { describe, expect, it } from "vitest";
import { ENGINE_ENVIRONMENT, loadEngine, type Native } from "../../native/load.ts";
import { detectorGraph } from "../../shared/detector.ts";
import type { Truth } from "./reference/assigner.ts";
import { forward } from "./reference/forward.ts";
import { detectorLoss, GAINS, o2mShareAt } from "./reference/loss.ts";
import { Average, Optimizer, type Recipe, ratesAt } from "./reference/optimizer.ts";
import { endToEnd, type Found } from "./reference/prediction.ts";
import { distance, pictures, randomTruths } from "./reference/scenes.ts";
import { backward } from "./reference/tensor.ts";
import { mapDistances, type Twin, trainingOf, withTwin, worst } from "./reference/twin.ts";

Object.assign(process.env, ENGINE_ENVIRONMENT);
const loaded = loadEngine();
if ("missing" in loaded) console.warn(`SKIPPED: ${loaded.missing}`);
const native = ("native" in loaded ? loaded.native : undefined) as Native;
const DEBUG = process.env.GOLDEN_FIGURES !== undefined;
const figure = (name: string, value: unknown) => {
  if (DEBUG) console.warn(name, value);
};

/** Largest distance of a map with running statistics, measured 3.4e-7. */
const MAP_MAX = 1e-6;
/**
 * With the batch's statistics. A noise of 1e-7 in the pixels alone moves the reference's own maps by
 * 2e-6 with 16 values a channel at stride 32, and by 7e-4 with four: so every scene has 12 or more.
 */
const BATCH_MAP_MAX = 1e-4;

const TRAINING: Recipe = {
  ...{ optimizer: "sgd", epochs: 5, batch: 2, lr0: 0.01, lrf: 0.1, cosine: false },
  ...{ momentum: 0.9, weightDecay: 5e-4, warmupEpochs: 0, warmupMomentum: 0.8 },
  ...{ warmupBiasLr: 0.1, nominalBatch: 64, clipNorm: 10, emaDecay: 0.9999, emaUpdates: 2000 },
};

const truth = (classIndex: number, ...box: [number, number, number, number]): Truth => ({
  ...{ classIndex, box },
});

describe.skipIf(!native)("forward", () => {
  it.each([
    ["det26n", "detection", 3, 4, 64, 64],
    ["det26n", "detection", 3, 2, 64, 96],
    ["det26n", "detection", 1, 3, 96, 64],
    ["det26n", "detection", 80, 1, 160, 160],
    ["det26n", "segmentation", 2, 3, 64, 96],
    ["det26s", "detection", 3, 4, 64, 64],
    ["det26m", "detection", 2, 4, 64, 64],
    ["det26l", "detection", 2, 4, 64, 64],
  ] as const)(
    "of %s for %s of %i classes, %i pictures of %i × %i",
    { timeout: 60_000 },
    async (variant, task, classes, count, height, width) => {
      const graph = detectorGraph(variant, classes, task);
      const scene = pictures(
        2,
        { height, width },
        Array.from({ length: count }, () => []),
      );
      await withTwin(native, { graph, seed: 1 }, async ({ engine, state }) => {
        for (const training of [false, true]) {
          const found = await engine.forward(scene.batch, { training });
          const expected = forward(graph, state, scene.images, { training });
          const distances = mapDistances(found, expected);
          figure(`${variant} ${task} ${height}×${width} training ${training}`, worst(distances));
          expect(worst(distances)[1]).toBeLessThan(training ? BATCH_MAP_MAX : MAP_MAX);
        }
      });
    },
  );
});

const SCENES: Record<string, { height: number; width: number; truths: Truth[][] }> = {
  "two pictures of several objects": {
    ...{ height: 64, width: 64 },
    truths: [3, 4].map((seed) => randomTruths(seed, 3, { height: 64, width: 64, classes: 3 })),
  },
  "no object at all": { height: 64, width: 64, truths: [[], []] },
  "one picture without an object": {
    ...{ height: 64, width: 96 },
    truths: [[], [truth(2, 10.5, 9.25, 70.1, 60.3)]],
  },
  "objects smaller than a cell": {
    ...{ height: 64, width: 64 },
    truths: [
      [truth(0, 10.1, 11.2, 15.3, 14.9), truth(1, 33.3, 35.1, 37.9, 60.2)],
      [truth(2, 50.2, 1.3, 53.4, 4.1), truth(2, 20.3, 30.7, 21.1, 31.2)],
    ],
  },
  "a crowd": {
    ...{ height: 64, width: 96 },
    truths: [
      [0, 1, 2, 3, 4, 5].map((at) =>
        truth(at % 3, 10.3 + 3.1 * at, 12.7 + 2.3 * at, 40.9 + 3.7 * at, 44.1 + 1.9 * at),
      ),
      [
        truth(0, 20.3, 20.7, 60.1, 50.2),
        truth(0, 20.3, 20.7, 60.1, 50.2),
        truth(1, 22, 21, 58, 52),
      ],
    ],
  },
  "objects that leave the frame": {
    ...{ height: 64, width: 64 },
    truths: [
      [truth(1, -20.2, -10.4, 30.7, 25.3), truth(0, 50.3, 40.1, 90.2, 100.7)],
      [truth(2, -5.5, 10.5, 70.5, 50.5)],
    ],
  },
  "objects on the centres of cells": {
    ...{ height: 64, width: 64 },
    truths: [[truth(1, 4, 4, 28, 36), truth(0, 20, 12, 60, 60)], [truth(2, 8, 8, 24, 40)]],
  },
};

async function lossErrors(
  { engine, state, graph }: Twin,
  scene: keyof typeof SCENES,
  share: number,
) {
  const { height, width, truths } = SCENES[scene] as (typeof SCENES)[string];
  const made = pictures(5, { height, width }, truths);
  const found = await engine.losses(made.batch, { o2mShare: share });
  for (const tensor of state.values()) tensor.forget();
  const maps = forward(graph, state, made.images, { training: true });
  const loss = detectorLoss(maps, { ...made, height, width, gains: GAINS }, share);
  backward(loss.total);
  const expected = {
    total: loss.total.item / truths.length,
    ...{ box: loss.o2o.box.item, cls: loss.o2o.cls.item, dfl: loss.o2o.dfl.item },
  };
  const errors = new Map<string, number>();
  for (const [name, tensor] of state) {
    if (!tensor.learns) continue;
    const { values } = await engine.tensor(name, "gradient");
    errors.set(name, distance(values, tensor.gradient));
  }
  return { found, expected, errors };
}

describe.skipIf(!native)("losses and gradients", () => {
  it.each(Object.keys(SCENES))("%s", { timeout: 60_000 }, async (name) => {
    const graph = detectorGraph("det26n", 3);
    const training = trainingOf(TRAINING, 64);
    await withTwin(native, { graph, seed: 1, training }, async (twin) => {
      for (const share of [0.8, 0.1]) {
        const { found, expected, errors } = await lossErrors(twin, name, share);
        figure(`${name} ${share}`, [worst(errors), found, expected]);
        for (const item of ["total", "box", "cls", "dfl"] as const) {
          expect(found[item]).toBeCloseTo(expected[item], 4);
        }
        expect(worst(errors)[1]).toBeLessThan(1e-3);
      }
    });
  });
});

describe.skipIf(!native)("ten steps", () => {
  it.each([
    ["adamw", { lr0: 0.001 }],
    ["sgd", { warmupEpochs: 3 }],
    ["musgd", { cosine: true }],
  ] as const)("of %s", { timeout: 60_000 }, async (optimizer, more) => {
    const recipe: Recipe = { ...TRAINING, optimizer, ...more };
    const graph = detectorGraph("det26n", 3);
    const extent = { height: 64, width: 64, classes: 3 };
    const training = trainingOf(recipe, 64);
    await withTwin(native, { graph, seed: 1, training }, async ({ engine, state }) => {
      const before = new Map([...state].map(([name, { values }]) => [name, values.slice()]));
      const descent = new Optimizer(state, recipe);
      const average = new Average(state, recipe);
      for (let step = 0; step < 10; step++) {
        const epoch = Math.floor(step / 2);
        const truths = [0, 1].map((image) => randomTruths(7 * step + image, 3, extent));
        const scene = pictures(step, extent, truths);
        const found = await engine.step(scene.batch, { epoch, iteration: step % 2 });
        for (const tensor of state.values()) tensor.forget();
        const maps = forward(graph, state, scene.images, { training: true });
        const share = o2mShareAt(epoch, recipe.epochs);
        const loss = detectorLoss(maps, { ...scene, ...extent, gains: GAINS }, share);
        backward(loss.total);
        descent.step(ratesAt(recipe, epoch, step % 2, 1));
        average.update(state);
        figure(`${optimizer} step ${step}`, [found.total, loss.total.item / 2]);
        const errors = new Map<string, number>();
        for (const [name, { values }] of state) {
          const start = before.get(name) as Float64Array;
          const moved = (list: ArrayLike<number>) =>
            start.map((value, at) => (list[at] as number) - value);
          const own = await engine.tensor(name, "model");
          errors.set(name, distance(moved(own.values), moved(values)));
        }
        figure(`${optimizer} step ${step} weights`, worst(errors));
        expect(found.total).toBeCloseTo(loss.total.item / 2, 1);
      }
      const averages = new Map<string, number>();
      for (const [name, values] of average.values) {
        averages.set(name, distance((await engine.tensor(name, "ema")).values, values));
      }
      figure(`${optimizer} average`, worst(averages));
    });
  });
});

describe.skipIf(!native)("detections", () => {
  const same = (box: readonly number[], other: readonly number[]) =>
    box.every((side, at) => Math.abs(side - (other[at] as number)) < 1e-2);

  it.each([
    [3, 64, 96],
    [3, 192, 160],
    [200, 64, 64],
    [1, 160, 160],
  ])("%i classes in %i × %i", { timeout: 60_000 }, async (classes, height, width) => {
    const graph = detectorGraph("det26n", classes);
    const scene = pictures(9, { height, width }, [[], []]);
    await withTwin(native, { graph, seed: 1 }, async ({ engine, state }) => {
      const found = await engine.predict(scene.batch, 0.001);
      const maps = forward(graph, state, scene.images, { training: false });
      for (const [image, expected] of endToEnd(maps.o2o).entries()) {
        const list = found[image] as Float32Array;
        figure(`${classes} ${height}×${width}`, [list.length / 6, expected.length]);
        const left: Found[] = [...expected];
        let previous = 1;
        for (let at = 0; at < list.length; at += 6) {
          const [x1, y1, x2, y2, score, classIndex] = list.subarray(
            at,
            at + 6,
          ) as never as number[];
          expect(score).toBeLessThanOrEqual(previous);
          previous = score as number;
          const place = left.findIndex(
            (one) =>
              one.classIndex === classIndex &&
              Math.abs(one.score - (score as number)) < 1e-4 &&
              same(one.box, [x1, y1, x2, y2] as number[]),
          );
          expect(place).toBeGreaterThanOrEqual(0);
          left.splice(place, 1);
        }
        expect(left).toEqual([]);
      }
    });
  });
});
