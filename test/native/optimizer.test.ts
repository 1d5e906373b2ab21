// Steps against formulas written out here over the gradients that the engine tells, the schedule as
// a table, and how fast the average follows.

import { describe, expect, it } from "vitest";
import type { TrainingOptions } from "../../native/index.d.ts";
import { native } from "./engine.ts";
import {
  batchOf,
  learned,
  randomImage,
  splitOf,
  tensors,
  valuesOf,
  withEngine,
} from "./training-world.ts";

const SIZE = 64;
const two = batchOf([randomImage(1, SIZE), randomImage(2, SIZE)], SIZE);
const STEPS = 3;
/** The largest rounding error of a weight in fp32, which is no error of a step. */
const ROUNDING = 2 ** -24;
/** Of every kind: matrices of a class branch and not, biases, norms; and few enough by hand. */
const shapes = new Map(tensors.map(({ name, shape }) => [name, shape]));
const size = (name: string) => (shapes.get(name) ?? []).reduce((all, side) => all * side, 1);
const sample = learned.filter((name) => size(name) < 3_000);

const SETTINGS = {
  lr0: 0.01,
  momentum: 0.9,
  weightDecay: 0.05,
  clipNorm: 10,
  nominalBatch: 2,
  warmupEpochs: 1,
  warmupMomentum: 0.8,
  warmupBiasLr: 0.1,
  epochs: 1,
} satisfies Partial<TrainingOptions>;

interface Memory {
  first: Float64Array;
  second: Float64Array;
}
interface Step {
  name: string;
  /** From 1. */
  count: number;
  gradient: Float64Array;
}
/** What is taken from the weights, and what memory becomes. */
type Rule = (weights: Float64Array, step: Step, memory: Memory) => Float64Array;

const isMatrix = (name: string) => (shapes.get(name)?.length ?? 0) >= 2;
/** Of a hundred iterations of warm-up. */
const warm = ({ count }: Step) => (count - 1) / 100;
const momentumOf = (step: Step) => 0.8 + 0.1 * warm(step);
const rateOf = (step: Step) =>
  step.name.endsWith(".bias") ? 0.1 + (0.01 - 0.1) * warm(step) : 0.01 * warm(step);
const decayOf = (name: string) => (isMatrix(name) ? 0.05 : 0);

const adamw: Rule = (weights, step, memory) =>
  weights.map((weight, index) => {
    const slope = step.gradient[index] as number;
    memory.first[index] = 0.9 * (memory.first[index] as number) + 0.1 * slope;
    memory.second[index] = 0.999 * (memory.second[index] as number) + 0.001 * slope ** 2;
    const mean = (memory.first[index] as number) / (1 - 0.9 ** step.count);
    const spread = Math.sqrt((memory.second[index] as number) / (1 - 0.999 ** step.count));
    return rateOf(step) * (decayOf(step.name) * weight + mean / (spread + 1e-8));
  });

const nesterov: Rule = (weights, step, memory) =>
  weights.map((weight, index) => {
    const slope = (step.gradient[index] as number) + decayOf(step.name) * weight;
    memory.first[index] = momentumOf(step) * (memory.first[index] as number) + slope;
    return rateOf(step) * (slope + momentumOf(step) * (memory.first[index] as number));
  });

const musgd: Rule = (weights, step, memory) => {
  const plain = nesterov(weights, step, memory);
  const faster = step.name.includes(".cls.") ? 3 : 1;
  if (!isMatrix(step.name)) return plain.map((value) => value * faster);
  const momentum = momentumOf(step);
  const blend = step.gradient.map((slope, index) => {
    memory.second[index] = momentum * (memory.second[index] as number) + (1 - momentum) * slope;
    return (1 - momentum) * slope + momentum * (memory.second[index] as number);
  });
  const turned = orthogonal(blend, shapes.get(step.name)?.[0] as number);
  return plain.map(
    (value, index) => faster * (value + 0.2 * rateOf(step) * (turned[index] as number)),
  );
};

/** Five quintic steps of Newton and Schulz on a matrix of so many rows. */
function orthogonal(values: Float64Array, rows: number): Float64Array {
  const columns = values.length / rows;
  const norm = Math.hypot(...values) + 1e-7;
  let x = Array.from({ length: rows }, (_, row) =>
    Array.from(values.subarray(row * columns, (row + 1) * columns), (value) => value / norm),
  );
  const transposed = (m: number[][]) =>
    (m[0] ?? []).map((_, index) => m.map((row) => row[index] as number));
  const times = (a: number[][], b: number[][]) => {
    const columnsOfB = transposed(b);
    return a.map((row) =>
      columnsOfB.map((column) =>
        row.reduce((sum, v, index) => sum + v * (column[index] as number), 0),
      ),
    );
  };
  const isTall = rows > columns;
  if (isTall) x = transposed(x);
  for (let step = 0; step < 5; step++) {
    const a = times(x, transposed(x));
    const square = times(a, a);
    const both = a.map((row, i) => row.map((v, j) => -4.775 * v + 2.0315 * (square[i]?.[j] ?? 0)));
    const moved = times(both, x);
    x = x.map((row, i) => row.map((v, j) => 3.4445 * v + (moved[i]?.[j] as number)));
  }
  return Float64Array.from((isTall ? transposed(x) : x).flat());
}

describe.skipIf(!native)("optimisers", () => {
  // Measured: all that is off is what fp32 rounds of the weights.
  it.each([
    ["adamw", adamw],
    ["sgd", nesterov],
    ["musgd", musgd],
  ] as const)("step by their formulas: %s", async (optimizer, rule) => {
    await withEngine({ ...SETTINGS, optimizer }, async (engine) => {
      const memories = new Map<string, Memory>();
      let before = await valuesOf(engine, "model", learned);
      for (let count = 1; count <= STEPS; count++) {
        await engine.step(two, { epoch: 0, iteration: count - 1 });
        const gradients = await valuesOf(engine, "gradient", learned);
        let square = 0;
        for (const gradient of gradients.values()) {
          for (const slope of gradient) square += slope ** 2;
        }
        const norm = Math.sqrt(square);
        const clip = Math.min(10 / (norm + 1e-6), 1);
        if (count === 1) expect(clip).toBeLessThan(1);
        const after = await valuesOf(engine, "model", learned);
        let [off, moved, all] = [0, 0, 0];
        for (const name of sample) {
          const gradient = Float64Array.from(gradients.get(name) ?? [], (slope) => slope * clip);
          const blank = () => new Float64Array(gradient.length);
          const memory = memories.get(name) ?? { first: blank(), second: blank() };
          memories.set(name, memory);
          const weights = Float64Array.from(before.get(name) ?? []);
          const taken = rule(weights, { name, count, gradient }, memory);
          for (const [index, weight] of (after.get(name) ?? []).entries()) {
            off += (weight - ((weights[index] as number) - (taken[index] as number))) ** 2;
            moved += (taken[index] as number) ** 2;
            all += weight ** 2;
          }
        }
        const rounded = ROUNDING * Math.sqrt(all);
        expect(Math.sqrt(off)).toBeLessThan(rounded + 1e-6 * Math.sqrt(moved));
        before = after;
      }
    });
  });

  it("follow the schedule", async () => {
    const epochs = 5;
    const rates = (settings: Partial<TrainingOptions>) =>
      withEngine({ lr0: 0.01, lrf: 0.1, epochs, ...settings }, async (engine, folder) => {
        await engine.setDataset("train", splitOf(folder, 2, SIZE));
        const seen = [];
        for (let epoch = 0; epoch < epochs; epoch++) {
          seen.push((await engine.trainEpoch({ epoch, from: 0 }, () => {})).lr);
        }
        return seen;
      });
    const near = (expected: number[]) => expected.map((rate) => expect.closeTo(rate, 9));
    const linear = [0.01, 0.00775, 0.0055, 0.00325, 0.001];
    expect(await rates({})).toEqual(near(linear));
    const cosine = [0.01, 0.0086819805, 0.0055, 0.0023180195, 0.001];
    expect(await rates({ cosine: true })).toEqual(near(cosine));
    // A batch an epoch: warm-up takes the hundred iterations that it takes at least.
    const cold = linear.map((rate, index) => (rate * index) / 100);
    expect(await rates({ warmupEpochs: 3 })).toEqual(near(cold));
  });

  // 2,000 updates of the default are 1 of these: the average follows by the same share then.
  it.each([
    [1, 0.0005],
    [100, 0.0488],
    [2_000, 0.632],
    [10_000, 0.9932],
  ])("have an average that keeps, after %i updates, %f of itself", async (updates, kept) => {
    await withEngine({ emaUpdates: 2_000 / updates }, async (engine) => {
      const names = ["layers.0.norm.bias", "layers.0.norm.mean", "layers.0.norm.variance"];
      const before = await valuesOf(engine, "model", names);
      await engine.step(two, { epoch: 0, iteration: 0 });
      const after = await valuesOf(engine, "model", names);
      const average = await valuesOf(engine, "ema", names);
      for (const name of names) {
        const [was, is] = [before.get(name)?.[0] as number, after.get(name)?.[0] as number];
        expect(is).not.toBe(was);
        const share = ((average.get(name)?.[0] as number) - is) / (was - is);
        expect(share).toBeCloseTo(kept, 3);
      }
    });
  });
});
