// The factor of the loss that fp16 needs, in fp32: where nothing overflows it changes nothing, as
// it is a power of two; where something does, steps are left out until it is small enough.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { native } from "./engine.ts";
import { headerOf } from "./safetensors.ts";
import {
  batchOf,
  fingerprint,
  graph,
  learned,
  randomImage,
  splitOf,
  valuesOf,
  withEngine,
} from "./training-world.ts";

const SIZE = 64;
const batch = batchOf([randomImage(1, SIZE), randomImage(2, SIZE)], SIZE);

/** Where a number of a checkpoint lies in its file. */
function offsetOf(file: Buffer, name: string): number {
  const { data_offsets: [from] = [] } = headerOf(file)[name] ?? {};
  if (from === undefined) throw new Error(`the checkpoint has no ${name}`);
  return 8 + Number(file.readBigUInt64LE(0)) + from;
}

const scaleOf = (file: Buffer) => file.readFloatLE(offsetOf(file, "trainer.scale"));

describe.skipIf(!native)("a scaled loss", () => {
  it("makes the same steps and shows the same gradients", async () => {
    const make = (lossScale: number) =>
      withEngine({ lossScale, clipNorm: 10 }, async (engine) => {
        const losses = [];
        for (let iteration = 0; iteration < 3; iteration++) {
          losses.push(await engine.step(batch, { epoch: 0, iteration }));
        }
        const gradients = await valuesOf(engine, "gradient", learned.slice(0, 20));
        return { losses, gradients, weights: await fingerprint(engine, "model") };
      });
    const [plain, scaled] = [await make(0), await make(1_024)];
    expect(scaled.losses).toEqual(plain.losses);
    expect(scaled.gradients).toEqual(plain.gradients);
    expect(scaled.weights).toBe(plain.weights);
  });

  it("leaves out steps whose gradients overflow, and halves each time", async () => {
    await withEngine({ lossScale: 2 ** 127, epochs: 1 }, async (engine, folder) => {
      await engine.setDataset("train", splitOf(folder, 40, SIZE));
      const before = await fingerprint(engine, "model", learned);
      const path = join(folder, "checkpoint");
      await engine.step(batch, { epoch: 0, iteration: 0 });
      expect(await fingerprint(engine, "model", learned)).toBe(before);
      const done = await engine.trainEpoch({ epoch: 0, from: 0 }, () => {});
      expect(done.skipped).toBeGreaterThan(0);
      expect(done.skipped).toBeLessThan(done.batches);
      expect(await fingerprint(engine, "model", learned)).not.toBe(before);
      await engine.checkpoint(path, {});
      expect(scaleOf(readFileSync(path))).toBe(2 ** (127 - 1 - done.skipped));
    });
  });

  it("doubles after 2,000 steps, goes on from a checkpoint, and never beyond 2^24", async () => {
    for (const [first, then] of [
      [256, 512],
      [2 ** 24, 2 ** 24],
    ] as const) {
      await withEngine({ lossScale: first }, async (engine, folder) => {
        const path = join(folder, "checkpoint");
        await engine.checkpoint(path, {});
        const file = readFileSync(path);
        file.writeFloatLE(1_998, offsetOf(file, "trainer.steady"));
        writeFileSync(path, file);
        await engine.restore(path);
        for (const wanted of [first, then, then]) {
          await engine.step(batch, { epoch: 0, iteration: 0 });
          await engine.checkpoint(path, {});
          expect(scaleOf(readFileSync(path))).toBe(wanted);
        }
      });
    }
  });

  it("is for GPUs where it comes with fp16", async () => {
    const engine = new native.Engine({
      graph,
      device: "cpu",
      seed: 0,
      threads: 1,
      precision: "fp16",
    });
    await expect(engine.ready).rejects.toMatchObject({ code: "bad_argument" });
    await engine.close();
  });
});
