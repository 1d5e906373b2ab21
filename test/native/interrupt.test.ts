// What an interrupt abandons. Goal: it does not wait for the step under way, which takes seconds on
// a CPU, and leaves nothing of it: going on comes to the bits of a run that nobody interrupted.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Engine, EpochResult, TrainingOptions } from "../../native/index.d.ts";
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
const TRIES = 5;
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

/** Seconds of a step and of its way forward. */
interface Pace {
  forward: number;
  step: number;
}

const paceOf = ({ seconds: { forward, backward } }: EpochResult, steps: number): Pace => ({
  forward: forward / steps,
  step: (forward + backward) / steps,
});

/** When to interrupt a step, in seconds from its beginning. */
const MOMENTS: Readonly<Record<string, (pace: Pace) => number>> = {
  forward: ({ forward }) => 0.4 * forward,
  backward: ({ forward, step }) => forward + 0.15 * step,
};

interface Call<Result> {
  begin: () => Promise<Result>;
  /** Seconds that it takes uninterrupted, and after which it is interrupted. */
  whole: number;
  after: number;
}

/**
 * Whether an interrupted call ends as it should in less than half of its time. The machine may be
 * busy with others at one time or the other, so it has a few tries, each interrupted earlier.
 */
async function isAbandoned<Result>(
  engine: Engine,
  { begin, whole, after }: Call<Result>,
  isExpected: (settled: PromiseSettledResult<Result>) => boolean,
): Promise<boolean> {
  for (let tried = 0; tried < TRIES; tried += 1) {
    const { settled, seconds } = await interrupted(engine, after / (tried + 1), begin);
    if (isExpected(settled) && seconds < whole / 2) return true;
  }
  return false;
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
      await straight.checkpoint(end, {});
      await withEngine(settings, async (stopped) => {
        await stopped.setDataset("train", dataset);
        let from = 0;
        let pace = paceOf(whole, 2);
        const abandoned = new Set<string>();
        // In forward, and early in backward, each with and without gathered gradients.
        while (from < 2) {
          const next = from;
          const before = join(folder, `before-${next}`);
          await stopped.checkpoint(before, {});
          for (const [moment, secondsTo] of Object.entries(MOMENTS)) {
            let [done, late] = [false, 0];
            for (let tried = 0; tried < TRIES && !done; tried += 1) {
              const after = secondsTo(pace) * 0.75 ** late;
              const { settled, seconds } = await interrupted(stopped, after, () =>
                stopped.trainEpoch({ epoch: 0, from: next }, () => {}),
              );
              const result = resolved(settled);
              done = result.images === 0 && result.batch === next && seconds < pace.step / 2;
              if (result.batch === next) continue;
              // The machine has less to do than it had: as if this try had not been.
              late += 1;
              pace = paceOf(result, result.batch - next);
              await stopped.restore(before);
            }
            if (done) abandoned.add(moment);
          }
          const result = await stopped.trainEpoch({ epoch: 0, from }, () => {
            if (from === 0) stopped.interrupt();
          });
          from = result.batch;
          if (from === 2) expect(result.losses).toEqual(whole.losses);
        }
        expect([...abandoned].toSorted()).toEqual(["backward", "forward"]);
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
      const evaluation = { after: took / 3, whole: took, begin: () => engine.evaluate(options) };
      const isUntouched = (settled: PromiseSettledResult<{ images: number }>) =>
        resolved(settled).images === 0;
      expect(await isAbandoned(engine, evaluation, isUntouched)).toBe(true);
      const { seconds: _, ...again } = await engine.evaluate(options);
      expect(again).toEqual(whole);

      const shape = { batch: BATCH, imageSize: SIZE };
      const started = performance.now();
      await engine.probe(shape);
      const probed = secondsSince(started);
      const probe = { after: probed / 4, whole: probed, begin: () => engine.probe(shape) };
      const isRejected = (settled: PromiseSettledResult<unknown>) =>
        settled.status === "rejected" && settled.reason.code === "interrupted";
      expect(await isAbandoned(engine, probe, isRejected)).toBe(true);
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
