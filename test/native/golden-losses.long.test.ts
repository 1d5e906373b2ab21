// The engine's losses and gradients against the reference's: on a small graph, where
// rounding hardly grows, over many random scenes; and on det26n over scenes chosen to be hard.

import { describe, expect, it } from "vitest";
import type { Losses } from "../../native/index.d.ts";
import { type DetectorGraph, detectorGraph } from "../../shared/detector/detector.ts";
import { native } from "./engine.ts";
import type { Truth } from "./reference/assigner.ts";
import { forward } from "./reference/forward.ts";
import { smallGraph } from "./reference/graphs.ts";
import { detectorLoss, GAINS } from "./reference/loss.ts";
import type { Recipe } from "./reference/optimizer.ts";
import {
  type EnginePair,
  measured,
  tensorsOf,
  trainingOf,
  withPair,
  worst,
} from "./reference/pair.ts";
import { gradientDistances, masked, noiseScene, randomTruths } from "./reference/scenes.ts";
import { backward } from "./reference/tensor.ts";
import { type Random, randomWeights, seeded, uniform } from "./reference/weights.ts";

const RECIPE: Recipe = {
  optimizer: "sgd",
  epochs: 5,
  batch: 2,
  lr0: 0.01,
  lrf: 0.1,
  cosine: false,
  momentum: 0.9,
  weightDecay: 5e-4,
  warmupEpochs: 0,
  warmupMomentum: 0.8,
  warmupBiasLr: 0.1,
  nominalBatch: 64,
  clipNorm: 10,
  emaDecay: 0.9999,
  emaUpdates: 2000,
};

interface Scene {
  height: number;
  width: number;
  truths: readonly (readonly Truth[])[];
}

/** Distances of the items, small ones beside one, and of the gradients. */
async function compare(
  { engine, state, graph }: EnginePair,
  seed: number,
  scene: Scene,
  share: number,
) {
  const { height, width, truths } = scene;
  const made = noiseScene(seed, scene, truths);
  const found = await engine.losses(made.batch, { o2mShare: share });
  for (const tensor of state.values()) tensor.forget();
  const maps = forward(graph, state, made.images, { training: true });
  const loss = detectorLoss(maps, { truths: made.truths, height, width, gains: GAINS }, share);
  backward(loss.total);
  const expected: Losses = {
    total: loss.total.item / truths.length,
    box: loss.o2o.box.item,
    cls: loss.o2o.cls.item,
    dfl: loss.o2o.dfl.item,
    ...(loss.o2o.mask && { mask: loss.o2o.mask.item }),
    ...(loss.semantic && { semantic: loss.semantic.item }),
  };
  expect(Object.keys(found)).toEqual(Object.keys(expected));
  const items = new Map(
    (Object.entries(expected) as [keyof Losses, number][]).map(([item, value]) => {
      const apart = Math.abs((found[item] as number) - value);
      return [item, apart / Math.max(value, 1)] as const;
    }),
  );
  const slopes = new Map(
    [...state].flatMap(([name, tensor]) => (tensor.learns ? [[name, tensor.gradient]] : [])),
  ) as ReadonlyMap<string, Float64Array>;
  const gradients = await tensorsOf(engine, "gradient", slopes.keys());
  return { items: worst(items), gradients: worst(gradientDistances(gradients, slopes)) };
}

/** Objects of all sizes, thin ones and tiny ones, in and across the frame, at times on the grid. */
function scattered(random: Random, { height, width }: Omit<Scene, "truths">): Truth[] {
  const step = random() < 0.3 ? 4 : 0;
  const laid = (value: number) => (step ? Math.round(value / step) * step : value);
  return Array.from({ length: Math.floor(12 * random() * random()) }, () => {
    const side = (of: number) => (random() < 0.3 ? 2 + 8 * random() : 4 + of * random());
    const [w, h] = [laid(side(width)), laid(side(height))];
    const x = laid((1.3 * random() - 0.15) * width - w / 2);
    const y = laid((1.3 * random() - 0.15) * height - h / 2);
    return { classIndex: Math.floor(3 * random()), box: [x, y, x + w, y + h] };
  });
}

/** Weights under which a branch's boxes reach from `from` to `to` cells to each side. */
function reaching(graph: DetectorGraph, seed: number, [from, to]: readonly [number, number]) {
  const random = seeded(seed);
  const weights = randomWeights(graph, seed);
  for (const [name, values] of weights) {
    if (/\.box\.\d\.1\.bias$/.test(name)) {
      weights.set(
        name,
        values.map(() => uniform(random, from, to)),
      );
    }
  }
  return weights;
}

/** Of the items of a small graph: measured 8.5e-7; of its gradients 5.6e-5. */
const SMALL_ITEMS_MAX = 3e-6;
const SMALL_GRADIENTS_MAX = 2e-4;

describe.skipIf(!native)("losses and gradients of a small graph", () => {
  it.each([
    ["about two cells to each side", 1, [1.5, 2.5], {}],
    ["that may be turned over", 2, [-1, 2], {}],
    ["smaller than a cell", 3, [0, 0.8], {}],
    ["of all sizes", 4, [0, 6], {}],
    ["about two cells, with masks", 5, [1.5, 2.5], { masks: true }],
    ["of all sizes, with masks", 6, [0, 6], { masks: true }],
  ] as const)("whose boxes are %s, in 25 random scenes", async (_, seed, reach, shape) => {
    const graph = smallGraph(3, shape);
    const weights = reaching(graph, seed, reach);
    const training = trainingOf(RECIPE, 64);
    const random = seeded(seed);
    const [items, gradients] = [new Map<string, number>(), new Map<string, number>()];
    await withPair({ graph, seed, weights, training }, async (pair) => {
      for (let index = 0; index < 25; index++) {
        const side = () => 32 * (1 + Math.floor(4 * random()));
        const frame = { height: side(), width: side() };
        const count = 1 + Math.floor(3 * random());
        const bare = Array.from({ length: count }, () => scattered(random, frame));
        // Every third object of every other scene has a box alone.
        const isBare = (object: number) => index % 2 === 1 && object % 3 === 0;
        const truths =
          graph.task === "segmentation" ? bare.map((own) => masked(own, frame, isBare)) : bare;
        const distances = await compare(pair, index, { ...frame, truths }, random());
        items.set(`${index} ${distances.items.name}`, distances.items.distance);
        gradients.set(`${index} ${distances.gradients.name}`, distances.gradients.distance);
      }
    });
    measured(`boxes ${reach}`, [worst(items), worst(gradients)]);
    expect(worst(items).distance).toBeLessThan(SMALL_ITEMS_MAX);
    expect(worst(gradients).distance).toBeLessThan(SMALL_GRADIENTS_MAX);
  });
});

const truth = (classIndex: number, ...box: [number, number, number, number]): Truth => ({
  classIndex,
  box,
});
const SQUARE = { height: 64, width: 64 };
const several = (count: number) =>
  [3, 4, 5, 6].map((seed) => randomTruths(seed, count, { ...SQUARE, classes: 3 }));
const HARD: Record<string, Scene> = {
  "several objects": { ...SQUARE, truths: several(3) },
  "no object at all": { ...SQUARE, truths: [[], [], [], []] },
  "objects in one image of two": {
    height: 64,
    width: 96,
    truths: [[], [truth(2, 10.5, 9.25, 70.1, 60.3)]],
  },
  "objects smaller than a cell": {
    ...SQUARE,
    truths: [
      [truth(0, 10.1, 11.2, 15.3, 14.9), truth(1, 33.3, 35.1, 37.9, 60.2)],
      [truth(2, 50.2, 1.3, 53.4, 4.1), truth(2, 20.3, 30.7, 21.1, 31.2)],
      ...[[], []],
    ],
  },
  "a crowd, twins among them": {
    ...SQUARE,
    truths: [
      [0, 1, 2, 3, 4, 5].map((index) =>
        truth(
          index % 3,
          6.3 + 3.1 * index,
          8.7 + 2.3 * index,
          36.9 + 3.7 * index,
          40.1 + 1.9 * index,
        ),
      ),
      [truth(0, 20, 20, 60, 50), truth(0, 20, 20, 60, 50), truth(1, 22, 21, 58, 52)],
      ...several(4).slice(0, 2),
    ],
  },
  "a crowd in one image, few in the others": {
    ...SQUARE,
    truths: [
      [],
      randomTruths(9, 40, { ...SQUARE, classes: 3 }),
      randomTruths(10, 1, { ...SQUARE, classes: 3 }),
      [],
    ],
  },
  "objects that leave the frame": {
    ...SQUARE,
    truths: [
      [truth(1, -20.2, -10.4, 30.7, 25.3), truth(0, 50.3, 40.1, 90.2, 100.7)],
      [truth(2, -5.5, 10.5, 70.5, 50.5)],
      ...several(2).slice(2),
    ],
  },
};

/** Of det26n's items: measured 9.7e-6; of its gradients 3.3e-4. */
const ITEMS_MAX = 5e-5;
const GRADIENTS_MAX = 1e-3;

describe.skipIf(!native)("losses and gradients of det26n", () => {
  it.each(Object.keys(HARD))("with %s", async (name) => {
    const graph = detectorGraph("det26n", 3);
    await withPair({ graph, seed: 1, training: trainingOf(RECIPE, 64) }, async (pair) => {
      const distances = await compare(pair, 5, HARD[name] as Scene, 0.6);
      measured(name, distances);
      expect(distances.items.distance).toBeLessThan(ITEMS_MAX);
      expect(distances.gradients.distance).toBeLessThan(GRADIENTS_MAX);
    });
  });
});

describe.skipIf(!native)("losses and gradients of det26n", () => {
  it.each([
    ["several objects", { fusedNorm: false }],
    ["objects that leave the frame", { fusedNorm: false, channelsLast: true }],
    ["several objects", { channelsLast: false }],
  ])("with %s and %o", async (name, choice) => {
    const graph = detectorGraph("det26n", 3);
    const options = { graph, seed: 1, training: trainingOf(RECIPE, 64), ...choice };
    await withPair(options, async (pair) => {
      const distances = await compare(pair, 5, HARD[name] as Scene, 0.6);
      measured(`${name}, ${JSON.stringify(choice)}`, distances);
      expect(distances.items.distance).toBeLessThan(ITEMS_MAX);
      expect(distances.gradients.distance).toBeLessThan(GRADIENTS_MAX);
    });
  });
});

describe.skipIf(!native)("losses and gradients of det26n with masks", () => {
  it.each(Object.keys(HARD))("with %s", async (name) => {
    const graph = detectorGraph("det26n", 3, "segmentation");
    const bare = HARD[name] as Scene;
    const truths = bare.truths.map((own, image) =>
      masked(own, bare, (index) => image === 0 && index === 1),
    );
    await withPair({ graph, seed: 1, training: trainingOf(RECIPE, 64) }, async (pair) => {
      const distances = await compare(pair, 5, { ...bare, truths }, 0.6);
      measured(`${name}, with masks`, distances);
      expect(distances.items.distance).toBeLessThan(ITEMS_MAX);
      expect(distances.gradients.distance).toBeLessThan(GRADIENTS_MAX);
    });
  });
});
