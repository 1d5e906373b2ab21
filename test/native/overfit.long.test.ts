// The engine learns: one batch, seen again and again.

import { describe, expect, it } from "vitest";
import type { Engine } from "../../native/index.d.ts";
import { native, PRECISIONS } from "./engine.ts";
import { batchOf, randomImage, withEngine } from "./training-world.ts";

const SIZE = 64;
const two = batchOf([randomImage(1, SIZE), randomImage(2, SIZE)], SIZE);

describe.skipIf(!native)("training", () => {
  // Measured: 0.04 of 8.6 at first.
  it.each(PRECISIONS)("brings the loss of one batch to nearly nothing in %s", async (precision) => {
    const steps = 120;
    const recipe = { epochs: steps, lr0: 0.005, lrf: 0.01, clipNorm: 10 };
    const overfit = async (engine: Engine) => {
      const first = await engine.step(two, { epoch: 0, iteration: 0 });
      expect(first.total).toBeGreaterThan(5);
      let last = first;
      for (let epoch = 1; epoch < steps; epoch++) {
        last = await engine.step(two, { epoch, iteration: 0 });
      }
      expect(last.total).toBeLessThan(0.15);
      expect(last.box).toBeLessThan(0.02);
    };
    await withEngine(recipe, overfit, precision);
  });
});
