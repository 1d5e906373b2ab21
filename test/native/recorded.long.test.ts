// Steps that replay recordings of their passes. Goal: to the bit what steps without recordings do,
// at every shape, precision and kind of training, and after an interruption; on a GPU but for
// rounding. On a CPU a recording's parts are computed anew.

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import type {
  Dataset,
  Engine,
  EngineOptions,
  Losses,
  TrainingOptions,
} from "../../native/index.d.ts";
import { detectorGraph, stateTensors } from "../../shared/detector/detector.ts";
import { PRESETS } from "./augmented-views.ts";
import { hasGpu, native, PRECISIONS } from "./engine.ts";
import { COLOURS, rectangleImages, withImages } from "./rectangle-images.ts";
import { distance } from "./reference/scenes.ts";
import { disc, shapeImage, square } from "./shape-images.ts";

if (native && !hasGpu) console.warn("SKIPPED: graphs of CUDA need a GPU");

const learned = stateTensors(detectorGraph("det26n", COLOURS.length))
  .filter((tensor) => tensor.learned)
  .map(({ name }) => name);
const EPOCHS = 3;
/** Batches of an epoch: three of two images, and one of the last image. */
const IMAGES = 7;
const sources = rectangleImages(IMAGES);
const shapes = Array.from({ length: IMAGES }, (_, index) =>
  shapeImage(96, 96, [disc(0, [30 + index, 40], 20), square(1, [70, 60 + index, 24])]),
);
const SMALL = { imageSize: 64, batch: 2, nominalBatch: 4, lr0: 0.002, epochs: EPOCHS };

interface Outcome {
  /** What a checkpoint has after the last epoch. */
  state: Buffer;
  /** Means of each epoch. */
  losses: Losses[];
  /** Steps by epoch that replayed a recording. */
  counts: number[];
}

async function trained(engine: Engine, dataset: Dataset): Promise<Outcome> {
  const path = join(dirname(dataset.path), "checkpoint");
  const result: Omit<Outcome, "state"> = { losses: [], counts: [] };
  for (let epoch = 0; epoch < EPOCHS; epoch++) {
    const { losses, recorded } = await engine.trainEpoch({ epoch, from: 0 }, () => {});
    result.losses.push(losses);
    result.counts.push(recorded);
  }
  await engine.checkpoint(path, {});
  return { ...result, state: readFileSync(path) };
}

interface Setup {
  images?: typeof shapes | typeof sources;
  training?: Partial<TrainingOptions>;
  options?: Partial<EngineOptions>;
}

const run = (recorded: boolean | undefined, { images, training, options }: Setup) => {
  const setup = {
    sources: images ?? sources,
    augmentation: { ...PRESETS.standard },
    training: { ...SMALL, ...training },
    options: { ...options, ...(recorded !== undefined && { recorded }) },
  };
  return withImages(setup, trained);
};

/** Losses of five steps on one batch, and the last one's gradients. */
const stepped = (options: Partial<EngineOptions>) =>
  withImages({ sources, training: SMALL, options }, async (engine) => {
    const batch = await engine.render({ epoch: 0, batch: 0 });
    const losses: Losses[] = [];
    for (const iteration of [0, 1, 2, 3, 4])
      losses.push(await engine.step(batch, { epoch: 0, iteration }));
    const gradients: number[] = [];
    for (const name of learned)
      for (const value of (await engine.tensor(name, "gradient")).values) gradients.push(value);
    return { losses, gradients };
  });

const masks = {
  images: shapes,
  options: { graph: detectorGraph("det26n", COLOURS.length, "segmentation") },
};

describe.skipIf(!native)("recorded steps", () => {
  const trainings: [string, Setup][] = [
    ...PRECISIONS.map((precision): [string, Setup] => [precision, { options: { precision } }]),
    ["masks", masks],
    ["a frozen backbone", { training: { freeze: 11 } }],
    ["MuSGD", { training: { optimizer: "musgd" } }],
  ];
  it.each(trainings)("are those without recordings, with %s", async (_, setup) => {
    const [found, wanted] = [await run(true, setup), await run(false, setup)];
    // A step of each shape goes before: the first epoch has one batch of one image.
    expect(found.counts).toEqual([2, 4, 4]);
    expect(wanted.counts).toEqual([0, 0, 0]);
    expect(found.losses).toEqual(wanted.losses);
    expect(found.state.equals(wanted.state)).toBe(true);
  });

  it("are none on a CPU that nobody asked for them", async () => {
    expect((await run(undefined, {})).counts).toEqual([0, 0, 0]);
  });

  it("are single steps, too", async () => {
    expect(await stepped({ recorded: true })).toEqual(await stepped({ recorded: false }));
  });

  it("are recorded for each size of batches of several", async () => {
    const setup = { training: { multiScale: 0.5, epochs: EPOCHS } };
    const [found, wanted] = [await run(true, setup), await run(false, setup)];
    // Of 32, 64 and 96 px, and of two images and one, few shapes come again.
    const all = found.counts.reduce((sum, count) => sum + count, 0);
    expect(all).toBeGreaterThan(0);
    expect(all).toBeLessThan(10);
    expect(found.state.equals(wanted.state)).toBe(true);
  });

  it("go on after an interruption and after other passes to the same bits", async () => {
    const wanted = await run(false, {});
    const setup = {
      sources,
      augmentation: { ...PRESETS.standard },
      training: SMALL,
      options: { recorded: true },
    };
    await withImages(setup, async (engine, dataset) => {
      await engine.setDataset("val", dataset);
      const path = join(dirname(dataset.path), "checkpoint");
      let count = 0;
      for (let epoch = 0; epoch < EPOCHS; epoch++) {
        let from = 0;
        for (let call = 0; from < 4; call++) {
          const stop = () => call < 3 && engine.interrupt();
          const { batch, recorded } = await engine.trainEpoch({ epoch, from }, stop);
          [from, count] = [batch, count + recorded];
          await engine.evaluate({ split: "val", batch: 4, imageSize: 64 });
          await engine.probe({ batch: 2, imageSize: 64 });
        }
      }
      await engine.checkpoint(path, {});
      expect(readFileSync(path).equals(wanted.state)).toBe(true);
      expect(count).toBe(10);
    });
  });
});

describe.skipIf(!hasGpu)("the GPU", () => {
  it.each<[string, Setup]>([
    ["fp32", {}],
    ["bf16", { options: { precision: "bf16" } }],
    ["masks", masks],
    ["sizes", { training: { multiScale: 0.5 } }],
  ])("replays graphs of steps, with %s", async (_, setup) => {
    const onGpu = { ...setup, options: { ...setup.options, device: "cuda" as const } };
    const [found, wanted] = [await run(undefined, onGpu), await run(false, onGpu)];
    expect(found.counts.at(-1)).toBeGreaterThan(0);
    for (const [epoch, losses] of found.losses.entries())
      expect(losses.total / (wanted.losses[epoch]?.total ?? 0)).toBeCloseTo(1, 1);
  });

  it("leaves the gradients that steps without graphs leave", async () => {
    const device = "cuda" as const;
    const [found, wanted] = [await stepped({ device }), await stepped({ device, recorded: false })];
    expect(distance(found.gradients, wanted.gradients)).toBeLessThan(0.05);
  });
});
