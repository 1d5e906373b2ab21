// Steps of pre-training: the loss is the definition's, its gradients are what central differences
// of the definition say, and steps make it smaller.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import type { Engine, FeatureBatch, TrainingOptions } from "../../native/index.d.ts";
import { featureGraph, LEVEL_STRIDES } from "../../shared/detector/detector.ts";
import { seeded, tensorFile } from "../support/weights.ts";
import { native } from "./engine.ts";
import { PLAIN } from "./plain-training.ts";

const CHANNELS = 5;
const SIDE = 64;
const COUNT = 2;
const graph = featureGraph("det26n", CHANNELS);
const dir = mkdtempSync(join(tmpdir(), "vantage-distillation-"));
const engines: Engine[] = [];
afterAll(async () => {
  for (const engine of engines) await engine.close();
  rmSync(dir, { recursive: true, force: true });
});

function engineOf(lr0 = 0, more: Partial<TrainingOptions> = {}): Engine {
  const training = { ...PLAIN, lr0, ...more };
  const engine = new native.Engine({ graph, device: "cpu", seed: 3, threads: 1, training });
  engines.push(engine);
  return engine;
}

/** Images of noise, and features of which a third of the cells have none. */
function noise(): FeatureBatch {
  const number = seeded(11);
  const images = Float32Array.from({ length: COUNT * 3 * SIDE * SIDE }, number);
  const targets = LEVEL_STRIDES.map((stride) => {
    const cells = (SIDE / stride) ** 2;
    const isThere = Array.from({ length: COUNT * cells }, () => number() < 0.67);
    return Float32Array.from({ length: COUNT * CHANNELS * cells }, (_, at) => {
      const image = Math.floor(at / (CHANNELS * cells));
      const value = 2 * number() - 1;
      return isThere[image * cells + (at % cells)] ? value : 0;
    });
  });
  return { images, count: COUNT, height: SIDE, width: SIDE, targets };
}

/** The loss as it is defined, in doubles, of maps as the engine gives them. */
function lossOf(maps: readonly ArrayLike<number>[], targets: readonly Float32Array[]): number {
  const levels = maps.map((map, level) => {
    const cells = (SIDE / (LEVEL_STRIDES[level] as number)) ** 2;
    const target = targets[level] as Float32Array;
    let sum = 0;
    let there = 0;
    for (let image = 0; image < COUNT; image++)
      for (let cell = 0; cell < cells; cell++) {
        const at = (channel: number) => (image * CHANNELS + channel) * cells + cell;
        let [product, own, other] = [0, 1e-6, 1e-6];
        for (let channel = 0; channel < CHANNELS; channel++) {
          const [seen, wanted] = [map[at(channel)] as number, target[at(channel)] as number];
          product += seen * wanted;
          own += seen * seen;
          other += wanted * wanted;
        }
        if (other <= 1e-6) continue;
        there += 1;
        sum += 1 - product / Math.sqrt(own * other);
      }
    return sum / Math.max(1, there);
  });
  return levels.reduce((sum, one) => sum + one, 0) / levels.length;
}

const PLACE = { epoch: 0, iteration: 0, iterations: 4 };

describe.skipIf(!native)("a step of pre-training", () => {
  const batch = noise();
  const lossAt = async (engine: Engine) => {
    const { o2m } = await engine.forward(batch, { training: true });
    return lossOf(o2m?.cls.map(({ values }) => values) ?? [], batch.targets);
  };

  it("has the loss that is defined", async () => {
    const engine = engineOf();
    const expected = await lossAt(engine);
    const { loss } = await engine.distill(batch, PLACE);
    expect(Math.abs(loss - expected)).toBeLessThan(1e-5);
  });

  // Along its own gradient a tensor's derivative is the gradient's length.
  it.each([
    "layers.0.weight",
    "layers.6.split.weight",
    "layers.10.join.norm.weight",
    "layers.16.join.weight",
    "features.o2m.cls.0.weight",
    "features.o2m.cls.2.bias",
  ])("has the gradient of %s that central differences have", async (name) => {
    const engine = engineOf();
    await engine.distill(batch, PLACE);
    const gradient = await engine.tensor(name, "gradient");
    const { values, shape } = await engine.tensor(name, "model");
    const length = Math.hypot(...gradient.values);
    expect(length).toBeGreaterThan(0);
    const moved = async (by: number) => {
      const path = join(dir, "moved");
      const at = values.map((value, n) => value + (by * (gradient.values[n] as number)) / length);
      writeFileSync(path, tensorFile(new Map([[name, { shape, values: at }]])));
      await engine.load(path);
      return lossAt(engine);
    };
    // Statistics of so few cells bend fast: of a longer step the slope is another.
    const step = 1e-4;
    const slope = ((await moved(step)) - (await moved(-step))) / (2 * step);
    expect(slope / length).toBeGreaterThan(0.98);
    expect(slope / length).toBeLessThan(1.02);
  });

  it("moves no one-to-one projection, and makes the loss smaller", async () => {
    const engine = engineOf(0.003);
    const aside = "features.o2o.cls.0.weight";
    const before = await engine.tensor(aside, "model");
    const { loss: first } = await engine.distill(batch, PLACE);
    let last = first;
    for (let step = 0; step < 15; step++) last = (await engine.distill(batch, PLACE)).loss;
    expect(last).toBeLessThan(0.7 * first);
    expect(await engine.tensor(aside, "model")).toEqual(before);
  });

  it("makes the same steps with a scaled loss, and shows the same gradients", async () => {
    const name = "features.o2m.cls.0.weight";
    const made = async (lossScale: number) => {
      const engine = engineOf(0.01, { optimizer: "sgd", lossScale });
      for (let step = 0; step < 2; step++) await engine.distill(batch, PLACE);
      return [await engine.tensor(name, "model"), await engine.tensor(name, "gradient")];
    };
    expect(await made(1_024)).toEqual(await made(0));
  });

  it("refuses targets that are not the images'", async () => {
    const engine = engineOf();
    const { targets, ...images } = batch;
    const short = [targets[0], targets[1], new Float32Array(3)] as Float32Array[];
    for (const [wrong, why] of [
      [short, /targets\[2\]/],
      [targets.slice(0, 2), /three maps/],
    ] as const) {
      const call = engine.distill({ ...images, targets: wrong }, PLACE);
      await expect(call).rejects.toMatchObject({
        code: "bad_argument",
        message: expect.stringMatching(why),
      });
    }
    const late = engine.distill(batch, { ...PLACE, iteration: 4 });
    await expect(late).rejects.toMatchObject({ code: "bad_argument" });
  });
});
