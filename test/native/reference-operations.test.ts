// The reference itself: results of its operations against the plainest way to write them, and
// shapes of whole graphs.

import { describe, expect, it } from "vitest";
import { detectorGraph, stateTensors, VARIANT_NAMES } from "../../shared/detector/detector.ts";
import { convolution } from "./reference/convolution.ts";
import { randomTensor } from "./reference/difference.ts";
import { forward, type State, tensorOf } from "./reference/forward.ts";
import { batchNorm } from "./reference/layers.ts";
import { noiseTensor } from "./reference/scenes.ts";
import { filled, Tensor } from "./reference/tensor.ts";
import { seeded } from "./reference/weights.ts";

describe("the operations", () => {
  it("convolve as the definition says", () => {
    const random = seeded(5);
    for (const { step, groups } of [
      { step: 1, groups: 1 },
      { step: 2, groups: 2 },
    ]) {
      const x = randomTensor(random, [2, 4, 7, 6]);
      const weight = randomTensor(random, [6, 4 / groups, 3, 3]);
      const out = convolution(x, weight, undefined, { step, groups });
      const [rows, columns] = [out.side(2), out.side(3)];
      for (const [index, value] of out.values.entries()) {
        const [column, row] = [index % columns, Math.floor(index / columns) % rows];
        const channel = Math.floor(index / (rows * columns)) % 6;
        const image = Math.floor(index / (rows * columns * 6));
        let expected = 0;
        for (let tap = 0; tap < weight.side(1) * 9; tap++) {
          const [y, z] = [
            row * step + (Math.floor(tap / 3) % 3) - 1,
            column * step + (tap % 3) - 1,
          ];
          if (y < 0 || y >= 7 || z < 0 || z >= 6) continue;
          const part = Math.floor(channel / (6 / groups)) * weight.side(1) + Math.floor(tap / 9);
          const source = x.values[((image * 4 + part) * 7 + y) * 6 + z] as number;
          expected += source * (weight.values[channel * weight.side(1) * 9 + tap] as number);
        }
        expect(value).toBeCloseTo(expected, 12);
      }
    }
  });

  it("move running statistics by 0.03 towards the batch's mean and unbiased variance", () => {
    const x = new Tensor([2, 1, 1, 2], Float64Array.of(1, 2, 3, 6));
    const one = (value: number) => new Tensor([1], Float64Array.of(value));
    const norm = { weight: one(1), bias: one(0), mean: one(1), variance: one(2) };
    const out = batchNorm(x, norm, true);
    expect(norm.mean.item).toBeCloseTo(1 + 0.03 * (3 - 1), 12);
    expect(norm.variance.item).toBeCloseTo(2 + 0.03 * (14 / 3 - 2), 12);
    expect(out.values[3]).toBeCloseTo(3 / Math.sqrt(3.5 + 1e-3), 12);
  });

  it.each(VARIANT_NAMES)("run the whole graph of %s", (variant) => {
    const graph = detectorGraph(variant, 2, variant === "det26n" ? "segmentation" : "detection");
    const state: State = new Map(
      stateTensors(graph).map(({ name, shape }) => [name, filled(shape, 0.01)]),
    );
    const maps = forward(graph, state, noiseTensor(6, [1, 3, 64, 64]), { training: false });
    for (const branch of [maps.o2m, maps.o2o]) {
      expect(branch?.box.map(({ shape }) => shape)).toEqual(
        [8, 4, 2].map((side) => [1, 4, side, side]),
      );
      expect(branch?.cls.map(({ shape }) => shape)).toEqual(
        [8, 4, 2].map((side) => [1, 2, side, side]),
      );
    }
    if (variant === "det26n") {
      expect(maps.prototypes?.shape).toEqual([1, 32, 16, 16]);
      expect(maps.o2o.mask?.map((map) => map.side(1))).toEqual([32, 32, 32]);
      expect(maps.semantic?.shape).toEqual([1, 2, 8, 8]);
    }
    expect(maps.o2o.box.every(({ values }) => values.every(Number.isFinite))).toBe(true);
    expect(tensorOf(state, "layers.0.norm.batches").item).toBe(0.01);
  });
});
