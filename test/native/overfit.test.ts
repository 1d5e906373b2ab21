// The engine learns: one batch, seen again and again.

import { describe, expect, it } from "vitest";
import { native } from "./engine.ts";
import { batchOf, randomImage, withEngine } from "./training-world.ts";

const SIZE = 64;
const two = batchOf([randomImage(1, SIZE), randomImage(2, SIZE)], SIZE);

describe.skipIf(!native)("training", () => {
  // Measured: 0.04 of 8.6 at first.
  it("brings the loss of one batch to nearly nothing", async () => {
    const steps = 120;
    await withEngine({ epochs: steps, lr0: 0.005, lrf: 0.01, clipNorm: 10 }, async (engine) => {
      const first = await engine.step(two, { epoch: 0, iteration: 0 });
      expect(first.total).toBeGreaterThan(5);
      let last = first;
      for (let epoch = 1; epoch < steps; epoch++) {
        last = await engine.step(two, { epoch, iteration: 0 });
      }
      expect(last.total).toBeLessThan(0.15);
      expect(last.box).toBeLessThan(0.02);
    });
  });
});
