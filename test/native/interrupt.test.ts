// What an interrupt abandons. Goal: it does not wait for the step under way, which takes seconds on
// a CPU, and leaves nothing of it: going on comes to the bits of a run that nobody interrupted.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Engine, TrainingOptions } from "../../native/index.d.ts";
import { native } from "./engine.ts";
import {
  batchOf,
  fingerprint,
  LIVELY,
  randomImage,
  splitOf,
  withEngine,
} from "./training-world.ts";

const SIZE = 256;
const BATCH = 8;
const secondsSince = (start: number) => (performance.now() - start) / 1e3;

/** Interrupts a call so many seconds after it was made; says how long it then took to end. */
async function interrupted<Result>(engine: Engine, after: number, begin: () => Promise<Result>) {
  let index = 0;
  const ended = begin();
  const timer = setTimeout(() => {
    index = performance.now();
    engine.interrupt();
  }, after * 1e3);
  const [settled] = await Promise.allSettled([ended]);
  clearTimeout(timer);
  return { settled, seconds: index ? secondsSince(index) : 0 };
}

const resolved = <Result>(settled: PromiseSettledResult<Result>): Result => {
  if (settled.status === "rejected") throw settled.reason;
  return settled.value;
};

describe.skipIf(!native)("an interrupt", () => {
  it("abandons a step in forward and in backward, and continuing gives the same bits", async () => {
    // Two batches make a step: gathered gradients wait while the second is abandoned.
    const settings: Partial<TrainingOptions> = {
      ...LIVELY,
      warmupEpochs: 0,
      lr0: 0.001,
      batch: BATCH,
      imageSize: SIZE,
      nominalBatch: 2 * BATCH,
    };
    await withEngine(settings, async (straight, folder) => {
      const dataset = splitOf(folder, 2 * BATCH, SIZE);
      const [end, again] = [join(folder, "end"), join(folder, "again")];
      await straight.setDataset("train", dataset);
      const whole = await straight.trainEpoch({ epoch: 0, from: 0 }, () => {});
      const { forward, backward } = whole.seconds;
      const [before, step] = [forward / 2, (forward + backward) / 2];
      await straight.checkpoint(end, {});
      await withEngine(settings, async (stopped) => {
        await stopped.setDataset("train", dataset);
        let from = 0;
        const abandoned = [];
        // In forward, and early in backward, each with and without gathered gradients.
        while (from < 2) {
          const next = from;
          for (const after of [0.4 * before, before + 0.15 * step]) {
            const { settled, seconds } = await interrupted(stopped, after, () =>
              stopped.trainEpoch({ epoch: 0, from: next }, () => {}),
            );
            const result = resolved(settled);
            abandoned.push(result.images === 0 && result.batch === next);
            expect(seconds).toBeLessThan(step / 2);
            from = result.batch;
            if (from > next) break;
          }
          if (from > next) continue;
          const result = await stopped.trainEpoch({ epoch: 0, from }, () => {
            if (from === 0) stopped.interrupt();
          });
          from = result.batch;
          if (from === 2) expect(result.losses).toEqual(whole.losses);
        }
        expect(abandoned).toContain(true);
        await stopped.checkpoint(again, {});
      });
      expect(readFileSync(again).equals(readFileSync(end))).toBe(true);
    });
  });

  it("abandons an evaluation's batch and a probe, and leaves no trace of them", async () => {
    await withEngine({ batch: BATCH, imageSize: SIZE }, async (engine, folder) => {
      const dataset = splitOf(folder, 4 * BATCH, SIZE);
      await engine.setDataset("val", dataset);
      const options = { split: "val", batch: 4 * BATCH, imageSize: SIZE } as const;
      const before = await fingerprint(engine, "model");
      const { seconds: took, ...whole } = await engine.evaluate(options);
      const { settled, seconds } = await interrupted(engine, took / 3, () =>
        engine.evaluate(options),
      );
      expect(resolved(settled).images).toBe(0);
      expect(seconds).toBeLessThan(took / 2);
      const { seconds: _, ...again } = await engine.evaluate(options);
      expect(again).toEqual(whole);

      const shape = { batch: BATCH, imageSize: SIZE };
      const started = performance.now();
      await engine.probe(shape);
      const probed = secondsSince(started);
      const ended = await interrupted(engine, probed / 4, () => engine.probe(shape));
      expect(ended.settled).toMatchObject({ reason: { code: "interrupted" } });
      expect(ended.seconds).toBeLessThan(probed / 2);
      expect(await fingerprint(engine, "model")).toBe(before);
      expect(await fingerprint(engine, "ema")).toBe(before);
    });
  });

  it("of a step on a caller's batch leaves the state that was, and so does closing", async () => {
    const batch = batchOf([randomImage(1, SIZE), randomImage(2, SIZE)], SIZE);
    await withEngine({}, async (engine) => {
      const options = { epoch: 0, iteration: 0 };
      const before = await fingerprint(engine, "model");
      const step = engine.step(batch, options);
      engine.interrupt();
      await expect(step).rejects.toMatchObject({ code: "interrupted" });
      expect(await fingerprint(engine, "model")).toBe(before);
      const [last, closed] = [engine.step(batch, options), engine.close()];
      await expect(last).rejects.toMatchObject({ code: "closed" });
      await closed;
    });
  });
});
