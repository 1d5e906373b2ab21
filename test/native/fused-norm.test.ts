// Batch norm and SiLU as one operation of ours against torch's two: maps, gradients and the
// statistics that a step leaves. Goal: the same but for rounding, whatever the channels, and
// statistics that keep their digits over many cells. Against the reference, as all of golden*.

import { describe, expect, it } from "vitest";
import type { Engine, EngineOptions } from "../../native/index.d.ts";
import { type DetectorGraph, detectorGraph, stateTensors } from "../../shared/detector/detector.ts";
import { hasBf16, native } from "./engine.ts";
import { measured, tensorsOf, trainingOf, withPair } from "./reference/pair.ts";
import { distance, noiseScene, randomTruths } from "./reference/scenes.ts";
import { FRAME, RECIPE } from "./reference/steps.ts";
import { randomWeights } from "./reference/weights.ts";

const truths = [0, 1].map((seed) => randomTruths(seed + 3, 4, { ...FRAME, classes: 3 }));
const { batch } = noiseScene(4, FRAME, truths);
const TORCH = { fusedNorm: false } as const;

/** The gradients of all that is learned, or the statistics of a model, as one list. */
async function valuesOf(engine: Engine, graph: DetectorGraph, of: "model" | "gradient") {
  const names = stateTensors(graph)
    .filter(({ learned }) => learned === (of === "gradient"))
    .map(({ name }) => name);
  return [...(await tensorsOf(engine, of, names)).values()].flatMap((values) => [...values]);
}

/** What a step in training leaves, as one list of numbers each. */
function stepped(options: Pick<EngineOptions, "fusedNorm" | "precision">, classes = 3) {
  const graph = detectorGraph("det26n", classes);
  const training = trainingOf(RECIPE, 64);
  return withPair({ graph, seed: 2, training, ...options }, async ({ engine }) => {
    const maps = await engine.forward(batch, { training: true });
    await engine.step(batch, { epoch: 0, iteration: 0 });
    return {
      maps: [...maps.o2o.box, ...maps.o2o.cls].flatMap(({ values }) => [...values]),
      gradients: await valuesOf(engine, graph, "gradient"),
      statistics: await valuesOf(engine, graph, "model"),
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
  // Of 100 classes, maps have 100 channels too: no whole number of vectors.
  it.each([3, 100])("are torch's two in a step of %i classes", async (classes) => {
    const [one, two] = [await stepped({}, classes), await stepped(TORCH, classes)];
    const apartBy = distancesOf(one, two);
    measured(`norm and SiLU as one, ${classes} classes`, apartBy);
    expect(apartBy.maps).toBeLessThan(1e-3);
    expect(apartBy.gradients).toBeLessThan(1e-3);
    expect(apartBy.statistics).toBeLessThan(1e-4);
    // They were made in another way.
    expect(one.maps).not.toEqual(two.maps);
  });

  it.skipIf(!hasBf16)("are torch's two in bf16, but for the rounding between them", async () => {
    const precision = "bf16";
    const [one, two] = [await stepped({ precision }), await stepped({ ...TORCH, precision })];
    const apartBy = distancesOf(one, two);
    measured("norm and SiLU as one, bf16", apartBy);
    // Random weights and few cells make rounding larger, here as in golden-bf16.test.ts.
    expect(apartBy.maps).toBeLessThan(0.5);
    expect(apartBy.statistics).toBeLessThan(0.05);
  });

  // Large enough for threads to take parts of a map each.
  it("are the same on one thread and on two, but for what torch adds up", async () => {
    const side = 256;
    const { batch: large } = noiseScene(5, { height: side, width: side }, [[], [], [], []]);
    const graph = detectorGraph("det26n", 3);
    const training = trainingOf(RECIPE, side);
    const steppedOn = (threads: number) =>
      withPair({ graph, seed: 2, training, threads }, async ({ engine }) => {
        await engine.step(large, { epoch: 0, iteration: 0 });
        return {
          gradients: await valuesOf(engine, graph, "gradient"),
          statistics: await valuesOf(engine, graph, "model"),
        };
      });
    const [one, two] = [await steppedOn(1), await steppedOn(2)];
    const distances = {
      gradients: distance(one.gradients, two.gradients),
      statistics: distance(one.statistics, two.statistics),
    };
    measured("a step on one thread and on two", distances);
    // Torch takes other convolutions on one thread; random weights make their rounding larger.
    expect(distances.gradients).toBeLessThan(5e-3);
    expect(distances.statistics).toBeLessThan(1e-5);
  });

  it("keeps the digits of a variance over many cells", async () => {
    const side = 512;
    const { batch: large } = noiseScene(5, { height: side, width: side }, [[], [], [], []]);
    const graph = detectorGraph("det26n", 3);
    const first = stateTensors(graph).find(({ name }) => name.endsWith(".norm.variance"));
    const name = first?.name ?? "";
    // From 0 on, what a step leaves is a share of the batch's.
    const weights = randomWeights(graph, 2);
    weights.get(name)?.fill(0);
    const training = trainingOf(RECIPE, side);
    const varianceBy = (
      options: Partial<Pick<EngineOptions, "fusedNorm" | "channelsLast" | "threads">>,
    ) =>
      withPair({ graph, seed: 2, training, weights, ...options }, async ({ engine }) => {
        await engine.step(large, { epoch: 0, iteration: 0 });
        return (await tensorsOf(engine, "model", [name])).get(name) ?? [];
      });
    const exact = await varianceBy(TORCH);
    const own = await varianceBy({});
    const distances = {
      ours: distance(own, exact),
      torchs: distance(await varianceBy({ ...TORCH, channelsLast: true }), exact),
    };
    measured("variance", distances);
    expect(distances.ours).toBeLessThan(1e-6);
    expect(await varianceBy({ threads: 2 })).toEqual(own);
  });
});
