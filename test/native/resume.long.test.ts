// A resumed training repeats an uninterrupted one to the bit, for every optimiser.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Engine } from "../../native/index.d.ts";
import { native, PRECISIONS } from "./engine.ts";
import { headerOf } from "./safetensors.ts";
import { LIVELY, splitOf, withEngine } from "./training-world.ts";

const SIZE = 64;

/** Trains an epoch and interrupts it as soon as a batch is done. */
const beginEpoch = (engine: Engine, epoch: number) =>
  engine.trainEpoch({ epoch, from: 0 }, () => engine.interrupt());

describe.skipIf(!native)("training", () => {
  it.each([
    ...(["sgd", "musgd"] as const).map((optimizer) => [optimizer, "fp32"] as const),
    ...PRECISIONS.map((precision) => ["adamw", precision] as const),
  ])("goes on from a checkpoint to the same bits, with %s in %s", async (optimizer, precision) => {
    // Three batches make a step, so an epoch of eleven leaves gradients for the next one.
    const settings = { ...LIVELY, optimizer, nominalBatch: 6, warmupEpochs: 0, lr0: 0.001 };
    const make = <Result>(work: (engine: Engine, folder: string) => Promise<Result>) =>
      withEngine(settings, work, precision);
    const until = (engine: Engine, epoch: number, from = 0) =>
      engine.trainEpoch({ epoch, from }, () => {});
    await make(async (straight, folder) => {
      const dataset = splitOf(folder, 22, SIZE);
      const paths = ["end", "middle", "again"].map((name) => join(folder, name));
      const [end, middle, again] = paths as [string, string, string];
      await straight.setDataset("train", dataset);
      await until(straight, 0);
      const whole = await until(straight, 1);
      await straight.checkpoint(end, { run: "one" });
      const batch = await make(async (stopped) => {
        await stopped.setDataset("train", dataset);
        await until(stopped, 0);
        const result = await beginEpoch(stopped, 1);
        await stopped.checkpoint(middle, { run: "half" });
        return result.batch;
      });
      expect(batch).toBeGreaterThan(0);
      expect(batch).toBeLessThan(11);
      const gathers = Object.keys(headerOf(readFileSync(middle))).some((name) =>
        name.startsWith("trainer.gradient."),
      );
      expect(gathers).toBe((11 + batch) % 3 !== 0);
      await make(async (resumed) => {
        expect(await resumed.restore(middle)).toEqual({ metadata: { run: "half" } });
        await resumed.setDataset("train", dataset);
        const rest = await until(resumed, 1, batch);
        expect(rest.losses).toEqual(whole.losses);
        await resumed.checkpoint(again, { run: "one" });
      });
      expect(readFileSync(again).equals(readFileSync(end))).toBe(true);
    });
  });
});
