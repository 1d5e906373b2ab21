// The reference itself: rules of targets, schedules, steps and averages on cases worked out by
// hand.

import { describe, expect, it } from "vitest";
import { assign, MANY, ONE, type Outlook, type Truth } from "./reference/assigner.ts";
import { boxAt, type Corners, completeIou } from "./reference/boxes.ts";
import { randomTensor } from "./reference/difference.ts";
import type { State } from "./reference/forward.ts";
import { o2mShareAt } from "./reference/loss.ts";
import { Average, orthogonal, type Recipe, ratesAt } from "./reference/optimizer.ts";
import { Tensor } from "./reference/tensor.ts";
import { seeded } from "./reference/weights.ts";

/** Boxes of 2 cells in each direction about every anchor, and one logit for all classes. */
function outlookOf(side: number, logits: (anchor: number, classIndex: number) => number): Outlook {
  const anchors = [8, 16, 32].flatMap((stride) =>
    Array.from({ length: (side / stride) ** 2 }, (_, cell) => ({
      x: ((cell % (side / stride)) + 0.5) * stride,
      y: (Math.floor(cell / (side / stride)) + 0.5) * stride,
      stride,
    })),
  );
  const box = (anchor: number) => {
    const distances = Float64Array.of(2, 2, 2, 2);
    return boxAt(anchors[anchor] as (typeof anchors)[0], distances, 0);
  };
  return { anchors, box, logit: logits };
}

describe("targets", () => {
  const even = outlookOf(64, () => 0);
  const truth = (...box: [number, number, number, number]): Truth => ({ classIndex: 0, box });

  it("are the anchor's own overlap where one anchor learns an object", () => {
    // Equal to the box of the anchor at (28, 28) of stride 8.
    const [positive, ...more] = assign(even, [truth(12, 12, 44, 44)], ONE);
    expect(more).toEqual([]);
    expect(positive).toMatchObject({ anchor: 3 * 8 + 3, truth: 0 });
    expect(positive?.target).toBeCloseTo(1, 6);
  });

  it("fall with the metric from the object's best overlap", () => {
    const positives = assign(even, [truth(12, 12, 44, 44)], MANY);
    expect(positives).toHaveLength(10);
    const box = [12, 12, 44, 44] as const;
    for (const { anchor, target } of positives) {
      const overlap = completeIou(even.box(anchor), box);
      expect(target).toBeCloseTo(overlap ** 6, 5);
    }
  });

  it("prefer anchors that know the class", () => {
    const sure = outlookOf(64, (anchor) => (anchor === 3 * 8 + 4 ? 8 : -8));
    expect(assign(sure, [truth(12, 12, 44, 44)], ONE)).toMatchObject([{ anchor: 3 * 8 + 4 }]);
  });

  it("exist for an object that holds no anchor's centre", () => {
    const tiny = truth(29, 29, 35, 35);
    const chosen = assign(even, [tiny], MANY).map(({ anchor }) => anchor);
    // Within 8 pixels of (32, 32): the four centres at 28 and 36 of stride 8, two of stride 16
    // would lie on the edge and do not count.
    expect(chosen).toEqual([27, 28, 35, 36]);
  });

  it("give an anchor to the object that overlaps it most, and nobody an anchor outside", () => {
    const [near, far] = [truth(12, 12, 44, 44), truth(16, 12, 52, 44)];
    const alone = new Set(assign(even, [far], MANY).map(({ anchor }) => anchor));
    const both = assign(even, [near, far], MANY);
    expect(new Set(both.map(({ anchor }) => anchor)).size).toBe(both.length);
    for (const { anchor, truth: owner } of both) {
      const overlaps = [near, far].map(({ box }) => completeIou(even.box(anchor), box));
      const claimed = alone.has(anchor);
      if (claimed && owner === 0) {
        expect(overlaps[0]).toBeGreaterThanOrEqual(overlaps[1] as number);
      }
      const { x, y } = even.anchors[anchor] as { x: number; y: number };
      const { box } = [near, far][owner] as Truth;
      expect(x > box[0] && x < box[2] && y > box[1] && y < box[3]).toBe(true);
    }
  });

  it("keep one anchor an object only after conflicts are resolved", () => {
    // Twins: all claims are shared, the first of them wins each, so the second has none.
    const twins = [truth(12, 12, 44, 44), truth(12, 12, 44, 44)];
    expect(assign(even, twins, ONE)).toMatchObject([{ truth: 0, anchor: 27 }]);
    expect(assign(even, [], ONE)).toEqual([]);
  });

  it("leave out an object that no box overlaps", () => {
    const lost = { ...even, box: (): Corners => [200, 200, 210, 210] };
    expect(assign(lost, [truth(12, 12, 44, 44)], MANY)).toEqual([]);
  });
});

describe("steps", () => {
  const recipe: Recipe = {
    optimizer: "sgd",
    epochs: 11,
    batch: 16,
    lr0: 0.01,
    lrf: 0.01,
    cosine: false,
    momentum: 0.937,
    weightDecay: 5e-4,
    warmupEpochs: 3,
    warmupMomentum: 0.8,
    warmupBiasLr: 0.1,
    nominalBatch: 64,
    clipNorm: 10,
    emaDecay: 0.9999,
    emaUpdates: 2000,
  };

  it("follow the schedules from warm-up to the last epoch", () => {
    expect(ratesAt(recipe, 0, 0, 50)).toEqual({ lr: 0, bias: 0.1, momentum: 0.8 });
    expect(ratesAt(recipe, 3, 0, 50).lr).toBeCloseTo(0.01 * (1 - 0.99 * 0.3), 12);
    expect(ratesAt(recipe, 10, 0, 50).bias).toBeCloseTo(0.0001, 12);
    expect(ratesAt({ ...recipe, cosine: true }, 5, 0, 50).lr).toBeCloseTo(0.01 * 0.505, 12);
    // Never fewer than 100 iterations of warm-up.
    expect(ratesAt(recipe, 2, 0, 25).momentum).toBeCloseTo(0.8 + 0.137 * 0.5, 12);
    expect(ratesAt({ ...recipe, warmupEpochs: 0 }, 0, 0, 50).lr).toBe(0.01);
    expect([0, 5, 10, 12].map((epoch) => o2mShareAt(epoch, 11).toFixed(6))).toEqual([
      ...["0.800000", "0.450000", "0.100000", "0.100000"],
    ]);
    expect(o2mShareAt(0, 1)).toBeCloseTo(0.8, 12);
  });

  it.each([
    [4, 9],
    [9, 4],
    [6, 6],
  ])("make a %i × %i matrix nearly orthogonal", (rows, columns) => {
    const matrix = randomTensor(seeded(8), [rows, columns]).values;
    const made = orthogonal(matrix, rows, columns);
    const m = Math.min(rows, columns);
    for (let one = 0; one < m; one++) {
      for (let other = 0; other < m; other++) {
        let product = 0;
        for (let k = 0; k < Math.max(rows, columns); k++) {
          const offsetOf = (line: number) =>
            rows > columns ? k * columns + line : line * columns + k;
          product += (made[offsetOf(one)] as number) * (made[offsetOf(other)] as number);
        }
        // Quintic steps of these factors bring singular values to 0.7 to 1.2, not to 1.
        if (one === other) expect(product).toBeGreaterThan(0.4);
        expect(Math.abs(product - (one === other ? 1 : 0))).toBeLessThan(0.6);
      }
    }
  });

  it("average weights by a decay that grows as the facts say", () => {
    const state: State = new Map([["a.weight", new Tensor([1], Float64Array.of(0))]]);
    const average = new Average(state, recipe);
    const kept: number[] = [];
    for (let update = 1; update <= 10_000; update++) {
      (average.values.get("a.weight") as Float64Array)[0] = 1;
      average.update(state);
      if ([1, 100, 2000, 10_000].includes(update))
        kept.push(average.values.get("a.weight")?.[0] as number);
    }
    expect(kept.map((decay) => decay.toFixed(3))).toEqual(["0.000", "0.049", "0.632", "0.993"]);
  });
});
