// Batch norm and SiLU as one operation, by the twin of the GPU's kernel, against torch's two: maps,
// gradients and the statistics that a step leaves. Against the reference: golden-losses.test.ts.

import { describe, expect, it } from "vitest";
import { detectorGraph, stateTensors } from "../../shared/detector.ts";
import { hasBf16, native } from "./engine.ts";
import { measured, tensorsOf, trainingOf, withPair } from "./reference/pair.ts";
import { distance, noiseScene, randomTruths } from "./reference/scenes.ts";
import { FRAME, RECIPE } from "./reference/steps.ts";

const graph = detectorGraph("det26n", 3);
const names = (learned: boolean) =>
  stateTensors(graph)
    .filter((tensor) => tensor.learned === learned)
    .map(({ name }) => name);
const truths = [0, 1].map((seed) => randomTruths(seed + 3, 4, { ...FRAME, classes: 3 }));
const { batch } = noiseScene(4, FRAME, truths);

/** What a step in training leaves, as one list of numbers each. */
function stepped(fusedNorm: boolean, precision: "fp32" | "bf16") {
  const training = trainingOf(RECIPE, 64);
  return withPair({ graph, seed: 2, training, precision, fusedNorm }, async ({ engine }) => {
    const maps = await engine.forward(batch, { training: true });
    await engine.step(batch, { epoch: 0, iteration: 0 });
    const joined = async (of: "model" | "gradient", learned: boolean) =>
      [...(await tensorsOf(engine, of, names(learned))).values()].flatMap((values) => [...values]);
    return {
      maps: [...maps.o2o.box, ...maps.o2o.cls].flatMap(({ values }) => [...values]),
      gradients: await joined("gradient", true),
      statistics: await joined("model", false),
    };
  });
}

type StepValues = Awaited<ReturnType<typeof stepped>>;

const distancesOf = (one: StepValues, two: StepValues) => ({
  maps: distance(one.maps, two.maps),
  gradients: distance(one.gradients, two.gradients),
  statistics: distance(one.statistics, two.statistics),
});

describe.skipIf(!native)("batch norm and SiLU as one", () => {
  it("are torch's two in a step", async () => {
    const [one, two] = [await stepped(true, "fp32"), await stepped(false, "fp32")];
    const apartBy = distancesOf(one, two);
    measured("norm and SiLU as one", apartBy);
    expect(apartBy.maps).toBeLessThan(1e-3);
    expect(apartBy.gradients).toBeLessThan(1e-3);
    expect(apartBy.statistics).toBeLessThan(1e-4);
    // They were made in another way.
    expect(one.maps).not.toEqual(two.maps);
  });

  it.skipIf(!hasBf16)("are torch's two in bf16, but for the rounding between them", async () => {
    const [one, two] = [await stepped(true, "bf16"), await stepped(false, "bf16")];
    const apartBy = distancesOf(one, two);
    measured("norm and SiLU as one, bf16", apartBy);
    // Random weights and few cells make rounding larger, here as in golden-bf16.test.ts.
    expect(apartBy.maps).toBeLessThan(0.5);
    expect(apartBy.statistics).toBeLessThan(0.05);
  });
});
