// Ten steps of every optimiser on a small graph, by the engine and by the reference: weights,
// statistics and averages after each step, as a share of the way they went.

import { describe, expect, it } from "vitest";
import { native } from "./engine.ts";
import { smallGraph } from "./reference/graphs.ts";
import type { Recipe } from "./reference/optimizer.ts";
import { measured, trainingOf, withPair } from "./reference/pair.ts";
import { RECIPE, SMALL_LOSS_MAX, SMALL_WAY_MAX, steps } from "./reference/steps.ts";

describe.skipIf(!native)("ten steps of a small graph", () => {
  it.each([
    ["adamw", { lr0: 0.003 }],
    ["adamw", { warmupEpochs: 3, cosine: true, clipNorm: 0.5, momentum: 0.937, nominalBatch: 6 }],
    ["sgd", {}],
    ["sgd", { warmupEpochs: 3, cosine: true, clipNorm: 0.5, momentum: 0.937, nominalBatch: 6 }],
    ["musgd", { clipNorm: 0 }],
    ["musgd", { warmupEpochs: 3, cosine: true, clipNorm: 0.5, momentum: 0.937, nominalBatch: 6 }],
  ] as const)("by %s with %o", async (optimizer, more) => {
    for (const normalized of [false, true]) {
      const recipe: Recipe = { ...RECIPE, optimizer, ...more };
      const graph = smallGraph(3, { normalized });
      await withPair({ graph, seed: 1, training: trainingOf(recipe, 64) }, async (pair) => {
        const figures = await steps(pair, recipe, 10);
        measured(`${optimizer} ${JSON.stringify(more)}, norm ${normalized}`, figures);
        expect(figures.way.distance).toBeLessThan(SMALL_WAY_MAX);
        expect(figures.average.distance).toBeLessThan(SMALL_WAY_MAX);
        expect(figures.losses).toBeLessThan(SMALL_LOSS_MAX);
      });
    }
  });
});
