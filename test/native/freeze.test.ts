// Frozen layers. Goal: not a bit of theirs changes, everything else trains, nothing is kept or made
// for them, and a resumed training repeats an uninterrupted one.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Engine } from "../../native/index.d.ts";
import { native, PRECISIONS } from "./engine.ts";
import { headerOf } from "./safetensors.ts";
import {
  batchOf,
  LIVELY,
  learned,
  randomImage,
  splitOf,
  tensors,
  valuesOf,
  withEngine,
} from "./training-world.ts";

const SIZE = 64;
/** The backbone. */
const LAYERS = 11;
const names = tensors.map(({ name }) => name);
const isFrozen = (name: string) => Number(name.split(".")[1]) < LAYERS;
const frozen = names.filter(isFrozen);
const free = learned.filter((name) => !isFrozen(name));
/** Matrices that every loss depends on: norms may move by less than rounding. */
const neck = free.filter((name) => !/^layers\.23\.|\.norm\./.test(name));
const isSame = (one: Float32Array | undefined, other: Float32Array | undefined) =>
  Buffer.from(new Uint8Array(one?.buffer ?? new ArrayBuffer(0))).equals(
    new Uint8Array(other?.buffer ?? new ArrayBuffer(1)),
  );
const settings = { ...LIVELY, freeze: LAYERS, nominalBatch: 2, warmupEpochs: 0 };
const epoch = (engine: Engine, number: number, from = 0) =>
  engine.trainEpoch({ epoch: number, from }, () => {});

describe.skipIf(!native)("frozen layers", () => {
  it.each([
    ...(["sgd", "musgd"] as const).map((optimizer) => [optimizer, "fp32"] as const),
    ...PRECISIONS.map((precision) => ["adamw", precision] as const),
  ])("keep every bit while the others train, with %s in %s", async (optimizer, precision) => {
    await withEngine(
      { ...settings, optimizer },
      async (engine, folder) => {
        const path = join(folder, "checkpoint");
        await engine.setDataset("train", splitOf(folder, 6, SIZE));
        const before = await valuesOf(engine, "model", names);
        for (const number of [0, 1]) await epoch(engine, number);
        const after = await valuesOf(engine, "model", names);
        const average = await valuesOf(engine, "ema", names);
        const isStill = (name: string) => isSame(after.get(name), before.get(name));
        expect(frozen.filter((name) => !isStill(name))).toEqual([]);
        expect(frozen.filter((name) => !isSame(average.get(name), before.get(name)))).toEqual([]);
        expect(neck.filter(isStill)).toEqual([]);
        expect(after.get("layers.13.split.norm.batches")?.[0]).toBe(6);
        expect(after.get("layers.13.split.norm.mean")).not.toEqual(
          before.get("layers.13.split.norm.mean"),
        );
        await engine.checkpoint(path, {});
        const kept = Object.keys(headerOf(readFileSync(path)))
          .filter((name) => name.startsWith("trainer.first."))
          .map((name) => name.slice("trainer.first.".length));
        expect(kept.toSorted()).toEqual(free.toSorted());
      },
      precision,
    );
  });

  it("get no gradient, and have the norm of evaluation", async () => {
    const batch = batchOf([randomImage(1, SIZE), randomImage(2, SIZE)], SIZE);
    await withEngine(settings, async (engine) => {
      const whole = await engine.forward(batch, { training: false });
      const step = await engine.forward(batch, { training: true });
      expect(step.o2o.box[0]?.values).not.toEqual(whole.o2o.box[0]?.values);
      await engine.losses(batch, { o2mShare: 0.5 });
      const gradients = await valuesOf(engine, "gradient", learned);
      for (const name of learned) {
        const isZero = gradients.get(name)?.every((slope) => slope === 0);
        if (isFrozen(name)) expect([name, isZero]).toEqual([name, true]);
      }
      expect(gradients.get("layers.13.split.weight")?.some((slope) => slope !== 0)).toBe(true);
    });
    // All but the head: the maps of training then depend on the weights of the head alone.
    await withEngine({ ...settings, freeze: 23 }, async (engine) => {
      await engine.step(batch, { epoch: 0, iteration: 0 });
      expect((await engine.tensor("layers.22.join.norm.batches", "model")).values[0]).toBe(0);
      expect((await engine.tensor("layers.23.o2o.box.0.0.norm.batches", "model")).values[0]).toBe(
        1,
      );
    });
  });

  it("resume to the same bits, of a checkpoint of as many layers alone", async () => {
    await withEngine(settings, async (straight, folder) => {
      const dataset = splitOf(folder, 8, SIZE);
      const [middle, end, again] = ["middle", "end", "again"].map((name) => join(folder, name)) as [
        string,
        string,
        string,
      ];
      await straight.setDataset("train", dataset);
      await epoch(straight, 0);
      await straight.checkpoint(middle, {});
      await epoch(straight, 1);
      await straight.checkpoint(end, {});
      await withEngine(settings, async (resumed) => {
        await resumed.restore(middle);
        await resumed.setDataset("train", dataset);
        await epoch(resumed, 1);
        await resumed.checkpoint(again, {});
      });
      expect(readFileSync(again).equals(readFileSync(end))).toBe(true);
      await withEngine({ ...settings, freeze: 0 }, async (other) => {
        await expect(other.restore(middle)).rejects.toMatchObject({ code: "bad_weights" });
        // As weights it is like any other.
        expect((await other.load(middle)).missing).toEqual([]);
      });
    });
  });

  it("are at most all but the head", async () => {
    for (const freeze of [-1, 0.5, 24, "backbone"]) {
      const made = withEngine({ freeze: freeze as number }, async () => {});
      await expect(made).rejects.toMatchObject({
        code: "bad_argument",
      });
    }
  });
});
