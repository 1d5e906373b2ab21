// Memory of a step's maps: it is not asked of the system anew by every step.

import { describe, expect, it } from "vitest";
import { detectorGraph } from "../../shared/detector/detector.ts";
import { DEVICE, native } from "./engine.ts";
import { trainingOf } from "./reference/pair.ts";
import { noiseScene } from "./reference/scenes.ts";
import { RECIPE } from "./reference/steps.ts";

const SIDE = 320;
const STEPS = 4;

describe.skipIf(!native || DEVICE !== "cpu")("the memory of steps", () => {
  it("stays with the process", async () => {
    const images = Array.from({ length: 8 }, () => []);
    const { batch } = noiseScene(1, { height: SIDE, width: SIDE }, images);
    const engine = new native.Engine({
      graph: detectorGraph("det26n", 3),
      device: "cpu",
      seed: 1,
      threads: 1,
      training: trainingOf(RECIPE, SIDE),
    });
    try {
      const step = (iteration: number) => engine.step(batch, { epoch: 0, iteration });
      for (const iteration of [0, 1, 2]) await step(iteration);
      const faults: number[] = [];
      for (let index = 0; index < STEPS; index++) {
        const before = process.resourceUsage().minorPageFault;
        await step(3 + index);
        faults.push(process.resourceUsage().minorPageFault - before);
      }
      // The garbage collector of this process may add its own to one step, not to each.
      expect(Math.min(...faults)).toBeLessThan(8_000);
    } finally {
      await engine.close();
    }
  });
});
