// Steps and epochs of the engine: gathered gradients add up, and what is not finite leaves no
// trace.

import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Engine, TrainingOptions } from "../../native/index.d.ts";
import { native } from "./engine.ts";
import {
  batchOf,
  fingerprint,
  learned,
  randomImage,
  splitOf,
  tensors,
  valuesOf,
  withEngine,
} from "./training-world.ts";

const SIZE = 64;
const two = batchOf([randomImage(1, SIZE), randomImage(2, SIZE)], SIZE);
const everything = tensors.map(({ name }) => name);

/** Trains an epoch and interrupts it as soon as a batch is done. */
const beginEpoch = (engine: Engine, epoch: number) =>
  engine.trainEpoch({ epoch, from: 0 }, () => engine.interrupt());

describe.skipIf(!native)("training", () => {
  it("ends an epoch at an interrupt, and trains on after it", async () => {
    await withEngine({}, async (engine, folder) => {
      await engine.setDataset("train", splitOf(folder, 400, SIZE));
      const result = await beginEpoch(engine, 0);
      expect(result.batch).toBeLessThan(200);
      expect(result).toMatchObject({ batches: 200, images: 2 * result.batch, skipped: 0 });
      const rest = await engine.trainEpoch({ epoch: 0, from: 198 }, () => {});
      expect(rest).toMatchObject({ batch: 200, images: 4 });
    });
  });

  it("tells where the time went, and the means of an epoch's batches", async () => {
    await withEngine({}, async (engine, folder) => {
      await engine.setDataset("train", splitOf(folder, 5, SIZE));
      const seen: number[] = [];
      const started = performance.now();
      const result = await engine.trainEpoch(
        { epoch: 0, from: 0 },
        ({ batch, batches, ...rest }) => {
          expect(batches).toBe(3);
          expect(rest.imagesPerSecond).toBeGreaterThan(0);
          expect(rest.memoryBytes).toBeGreaterThan(50e6);
          seen.push(batch);
        },
      );
      const took = (performance.now() - started) / 1e3;
      expect(seen[0]).toBe(1);
      expect(seen.at(-1)).toBe(3);
      const { data, forward, backward, optimizer } = result.seconds;
      for (const part of [data, forward, backward, optimizer]) expect(part).toBeGreaterThan(0);
      expect(data + forward + backward + optimizer).toBeLessThan(took);
      expect(result).toMatchObject({ batch: 3, images: 5, skipped: 0, lr: 0.002 });
      expect(result.losses.total).toBeGreaterThan(0);
    });
  });

  it("adds up the gradients of the batches that make a step", async () => {
    const settings: Partial<TrainingOptions> = { optimizer: "sgd", momentum: 0, lr0: 1e-4 };
    await withEngine({ ...settings, nominalBatch: 4 }, async (engine, folder) => {
      await engine.setDataset("train", splitOf(folder, 4, SIZE));
      const before = await valuesOf(engine, "model");
      const sums = new Map<string, Float32Array>();
      for (const batch of [0, 1]) {
        await engine.losses(await engine.render({ epoch: 0, batch }), { o2mShare: 0.8 });
        for (const [name, gradient] of await valuesOf(engine, "gradient")) {
          const sum = sums.get(name) ?? new Float32Array(gradient.length);
          sums.set(
            name,
            sum.map((value, index) => value + (gradient[index] as number)),
          );
        }
      }
      await engine.trainEpoch({ epoch: 0, from: 0 }, () => {});
      let [off, moved] = [0, 0];
      for (const [name, after] of await valuesOf(engine, "model")) {
        for (const [index, value] of after.entries()) {
          const step = value - (before.get(name)?.[index] as number);
          const wanted = -1e-4 * (sums.get(name)?.[index] as number);
          off += (step - wanted) ** 2;
          moved += wanted ** 2;
        }
      }
      // Weights are near 1 and steps near 1e-3: fp32 leaves so much of them.
      expect(Math.sqrt(off / moved)).toBeLessThan(1e-3);
      expect(moved).toBeGreaterThan(0);
    });
  });

  it("leaves out a step whose gradients are not finite, as if it had not been", async () => {
    const bad = { ...two, images: two.images.slice() };
    bad.images[SIZE * SIZE] = Number.POSITIVE_INFINITY;
    const states = [];
    for (const batches of [
      [two, two],
      [two, bad, two],
    ]) {
      states.push(
        await withEngine({ optimizer: "adamw", weightDecay: 0.1 }, async (engine) => {
          for (const batch of batches) {
            const losses = await engine.step(batch, { epoch: 0, iteration: 0 });
            expect(Number.isFinite(losses.total)).toBe(batch === two);
          }
          const names = everything.filter((name) => !name.endsWith(".batches"));
          return fingerprint(engine, "model", names);
        }),
      );
    }
    expect(states[1]).toBe(states[0]);
  });

  it("counts the steps that it left out of an epoch", async () => {
    // A rate beyond any use: the second step's maps overflow.
    const settings = { optimizer: "sgd", lr0: 1e9, momentum: 0 } as const;
    await withEngine(settings, async (engine, folder) => {
      await engine.setDataset("train", splitOf(folder, 6, SIZE));
      expect(await engine.trainEpoch({ epoch: 0, from: 0 }, () => {})).toMatchObject({
        skipped: 2,
      });
    });
  });

  it("learns of images without an object what background is", async () => {
    await withEngine({}, async (engine) => {
      const empty = { ...two, boxes: new Float32Array() };
      const losses = await engine.losses(empty, { o2mShare: 0.8 });
      expect(losses).toMatchObject({ box: 0, dfl: 0 });
      expect(losses.cls).toBeGreaterThan(0);
      expect(losses.total).toBeCloseTo(0.5 * losses.cls, 4);
      const gradients = await valuesOf(engine, "gradient");
      const box = learned.filter(
        (name) => name.includes(".o2m.box.") || name.includes(".o2o.box."),
      );
      for (const name of box) expect(gradients.get(name)?.every((value) => value === 0)).toBe(true);
    });
  });

  it("asks for losses without leaving a trace", async () => {
    await withEngine({}, async (engine) => {
      const before = await fingerprint(engine, "model");
      const first = await engine.losses(two, { o2mShare: 0.8 });
      expect(await engine.losses(two, { o2mShare: 0.8 })).toEqual(first);
      const { bytes, seconds } = await engine.probe({ batch: 2, imageSize: SIZE });
      expect(bytes).toBeGreaterThan(50e6);
      expect(seconds).toBeGreaterThan(0);
      expect(await fingerprint(engine, "model")).toBe(before);
      expect(await fingerprint(engine, "ema")).toBe(before);
    });
  });

  it("refuses what it cannot train on", async () => {
    await withEngine({}, async (engine, folder) => {
      const refused = (call: Promise<unknown>, code: string) =>
        expect(call).rejects.toMatchObject({ name: "EngineError", code });
      const boxed = (...box: number[]) => ({ ...two, boxes: Float32Array.from(box) });
      const step = (batch: typeof two) => engine.step(batch, { epoch: 0, iteration: 0 });
      await refused(
        engine.trainEpoch({ epoch: 0, from: 0 }, () => {}),
        "bad_argument",
      );
      await refused(step(boxed(2, 0, 1, 1, 9, 9)), "bad_argument");
      await refused(step(boxed(0, 3, 1, 1, 9, 9)), "bad_argument");
      await refused(step(boxed(0, 0, Number.NaN, 1, 9, 9)), "bad_argument");
      await refused(engine.probe({ batch: 2, imageSize: 65 }), "bad_argument");
      await engine.setDataset("train", splitOf(folder, 4, SIZE));
      await refused(
        engine.trainEpoch({ epoch: 0, from: 3 }, () => {}),
        "bad_argument",
      );
      const path = join(folder, "adamw");
      await engine.checkpoint(path, {});
      await withEngine({ optimizer: "sgd" }, async (other) => {
        const before = await fingerprint(other, "model");
        await refused(other.restore(path), "bad_weights");
        expect(await fingerprint(other, "model")).toBe(before);
      });
      await engine.save(path, {});
      await refused(engine.restore(path), "bad_weights");
    });
  });

  it("gives a checkpoint's averaged weights to an engine that loads it", async () => {
    await withEngine({ emaUpdates: 1 }, async (engine, folder) => {
      await engine.step(two, { epoch: 0, iteration: 0 });
      await engine.checkpoint(join(folder, "checkpoint"), { run: "one" });
      const average = await fingerprint(engine, "ema");
      expect(average).not.toBe(await fingerprint(engine, "model"));
      await withEngine({}, async (other) => {
        const report = await other.load(join(folder, "checkpoint"));
        expect(report).toMatchObject({ missing: [], unused: [], metadata: { run: "one" } });
        expect(await fingerprint(other, "model")).toBe(average);
      });
    });
  });
});
