// Steps of every optimiser on det26n, by the engine and by the reference: weights, statistics and
// averages after each step, as a share of the way they went.

import { describe, expect, it } from "vitest";
import { detectorGraph } from "../../shared/detector.ts";
import { native } from "./engine.ts";
import { halved } from "./reference/graphs.ts";
import type { Recipe } from "./reference/optimizer.ts";
import { measured, trainingOf, withTwin } from "./reference/pair.ts";
import { RECIPE, steps } from "./reference/steps.ts";

describe.skipIf(!native)("steps of det26n", () => {
  it.each([
    // A step of AdamW is nearly the gradient's sign: where it is about 0, rounding decides, and a
    // short tensor shows it. Measured 3.8e-2 of one of 32 values, 1.4e-2 of all together.
    { name: "half of it", optimizer: "adamw", count: 10, lr0: 1e-4, wayMax: 0.3, wholeMax: 4e-2 },
    // Measured 2.8e-4 and 2.2e-4.
    { name: "half of it", optimizer: "sgd", count: 10, lr0: 1e-3, wayMax: 8e-4, wholeMax: 8e-4 },
    // Measured 2.8e-4 and 2.0e-4, and for two steps of all of it 1.2e-4 and 2.0e-4.
    { name: "half of it", optimizer: "musgd", count: 10, lr0: 1e-3, wayMax: 8e-4, wholeMax: 8e-4 },
    { name: "all of it", optimizer: "musgd", count: 2, lr0: 1e-3, wayMax: 8e-4, wholeMax: 8e-4 },
  ] as const)(
    "$count of $name by $optimizer, within $wholeMax of the way",
    async ({ name, optimizer, count, lr0, wayMax, wholeMax }) => {
      const recipe: Recipe = { ...RECIPE, optimizer, lr0 };
      const whole = detectorGraph("det26n", 3);
      const graph = name === "all of it" ? whole : halved(whole);
      await withTwin({ graph, seed: 1, training: trainingOf(recipe, 64) }, async (twin) => {
        const figures = await steps(twin, recipe, count);
        measured(`${name} ${optimizer}`, { ...figures, excluded: [...figures.excluded] });
        expect(figures.excluded.size).toBeLessThan(10);
        expect(figures.way.distance).toBeLessThan(wayMax);
        expect(figures.whole).toBeLessThan(wholeMax);
        expect(figures.average.distance).toBeLessThan(wayMax);
        // Measured 2.2e-4 (AdamW) and 2.1e-5.
        expect(figures.losses).toBeLessThan(7e-4);
      });
    },
  );
});

/** NoiseScene of noise with a box each, as a split's file in the folder. */
