// The engine in bf16 against the reference in doubles. The network's convolutions and products have
// 8 bits of mantissa; assignment, losses, statistics, weights and evaluation stay in fp32, so that
// what is left is the rounding of maps: 2⁻⁹ each, which depth and batch norm make larger.

import { describe, expect, it } from "vitest";
import { detectorGraph } from "../../shared/detector/detector.ts";
import { hasBf16 } from "./engine.ts";
import type { Truth } from "./reference/assigner.ts";
import { forward } from "./reference/forward.ts";
import { smallGraph } from "./reference/graphs.ts";
import {
  mapDistances,
  measured,
  tensorsOf,
  trainingOf,
  withPair,
  worst,
} from "./reference/pair.ts";
import { masked, noiseScene, norm, randomTruths } from "./reference/scenes.ts";
import { FRAME, learn, RECIPE, steps } from "./reference/steps.ts";

/**
 * Of det26n's maps by the batch's statistics, which make rounding larger (random weights, 36 cells
 * an image): the worst measured .12 without masks and .28 with, the median .12 with.
 */
const MAP_MAX = 0.5;
const MEDIAN_MAP_MAX = 0.25;
/** Of a small graph: measured 6.4e-3; of its gradients together .07, where an assignment flips. */
const LOSS_MAX = 0.02;
const GRADIENTS_MAX = 0.2;
/**
 * Ten steps of all weights, of the way they went: measured .032; of AdamW, which makes whole steps
 * of gradients that are nothing but rounding, .15. Their losses: measured .028.
 */
const WAY_MAX = 0.1;
const ADAMW_WAY_MAX = 0.4;
const STEP_LOSS_MAX = 0.06;

const precision = "bf16";
const training = trainingOf(RECIPE, 64);
const objects = (seed: number, classes: number): Truth[][] =>
  [0, 1, 2, 3].map((image) => randomTruths(seed + image, 3, { ...FRAME, classes }));

describe.skipIf(!hasBf16)("in bf16", () => {
  it.each(["detection", "segmentation"] as const)("maps of det26n for %s", async (task) => {
    const graph = detectorGraph("det26n", 3, task);
    const scene = noiseScene(2, { height: 96, width: 96 }, objects(1, 3));
    await withPair({ graph, seed: 1, training, precision }, async ({ engine, state }) => {
      const found = await engine.forward(scene.batch, { training: true });
      const expected = forward(graph, state, scene.images, { training: true });
      const distances = mapDistances(found, expected);
      const [furthest, all] = [worst(distances), [...distances.values()].sort((a, b) => a - b)];
      const median = all[Math.floor(all.length / 2)] as number;
      measured(`${task} maps`, { ...furthest, median });
      expect(furthest.distance).toBeLessThan(MAP_MAX);
      expect(median).toBeLessThan(MEDIAN_MAP_MAX);
      // It is bf16: single precision is off by 7e-5.
      expect(median).toBeGreaterThan(1e-3);
    });
  });

  it.each([
    ["a small graph", false, false],
    ["a small graph with norms", true, false],
    ["a small graph with masks", false, true],
  ] as const)("losses and gradients of %s", async (name, normalized, masks) => {
    const graph = smallGraph(3, { normalized, masks });
    await withPair({ graph, seed: 1, training, precision }, async (pair) => {
      for (let seed = 0; seed < 5; seed++) {
        const bare = objects(10 * seed, 3);
        const truths = masks ? bare.map((own) => masked(own, FRAME)) : bare;
        const scene = noiseScene(seed, FRAME, truths);
        const { total } = await pair.engine.losses(scene.batch, { o2mShare: 0.6 });
        for (const tensor of pair.state.values()) tensor.forget();
        const expected = learn(pair, scene, 0.6);
        const learned = [...pair.state].filter(([, tensor]) => tensor.learns);
        const found = await tensorsOf(
          pair.engine,
          "gradient",
          learned.map(([one]) => one),
        );
        const all = (of: (one: string, gradient: Float64Array) => number) =>
          Math.hypot(...learned.map(([one, { gradient }]) => of(one, gradient)));
        const off = all((one, gradient) => norm(found.get(one) ?? [], gradient));
        const gradients = off / all((_, gradient) => norm(gradient));
        measured(name, { loss: Math.abs(total / expected - 1), gradients });
        expect(Math.abs(total / expected - 1)).toBeLessThan(LOSS_MAX);
        expect(gradients).toBeLessThan(GRADIENTS_MAX);
      }
    });
  });

  it("ten steps of a small graph", async () => {
    for (const optimizer of ["sgd", "adamw", "musgd"] as const) {
      const recipe = { ...RECIPE, optimizer, lr0: optimizer === "adamw" ? 0.003 : RECIPE.lr0 };
      const graph = smallGraph(3, { normalized: true });
      const options = { graph, seed: 1, training: trainingOf(recipe, 64), precision } as const;
      await withPair(options, async (pair) => {
        const figures = await steps(pair, recipe, 10);
        measured(optimizer, figures);
        expect(figures.whole).toBeLessThan(optimizer === "adamw" ? ADAMW_WAY_MAX : WAY_MAX);
        expect(figures.losses).toBeLessThan(STEP_LOSS_MAX);
      });
    }
  });
});
