// How alike vectors are. Goal: what all have in common counts for nothing, and what is kept of many
// is the most alike.

import { expect, it } from "vitest";
import { Likeness } from "../../../../edge/vision/labeling/search/likeness.ts";

function compared(target: readonly number[], others: readonly (readonly number[])[], limit = 10) {
  const likeness = new Likeness<number>(target, limit);
  for (const vector of [target, ...others]) likeness.average(vector);
  others.forEach((vector, index) => {
    likeness.compare(index, vector);
  });
  return { nearest: likeness.nearest(), averaged: likeness.averaged };
}

it("tells how alike vectors are, whatever all of them have in common", () => {
  const common = (x: number, y: number) => [100, x, y];
  const others = [common(-1, 0), common(1, 0.1), common(1, 0), common(-1, -0.1)];
  const { nearest, averaged } = compared(common(1, 0), others);
  expect(averaged).toBe(5);
  expect(nearest.slice(0, 2).map(({ one }) => one)).toEqual([2, 1]);
  expect(nearest[0]?.similarity).toBeCloseTo(1, 5);
  expect(nearest[1]?.similarity).toBeGreaterThan(0.9);
  expect(nearest[2]?.similarity).toBeLessThan(0);
});

it("takes two vectors as they are, and those of another length or of nothing for unlike", () => {
  expect(compared([1, 0], [[0, 2]]).nearest).toEqual([{ one: 0, similarity: 0 }]);
  const { nearest, averaged } = compared(
    [1, 0],
    [
      [1, 0, 0],
      [3, 0],
      [0, 0],
    ],
  );
  expect(averaged).toBe(3);
  expect(nearest.map(({ one }) => one)).toEqual([1, 2]);
  expect(compared([0, 0], [[0, 0]]).nearest).toEqual([{ one: 0, similarity: 0 }]);
});

it("keeps the most alike of many", () => {
  const angles = Array.from({ length: 5_000 }, (_, index) => (index * 997) % 5_000);
  const vectors = angles.map((angle) => [Math.cos(angle / 1_600), Math.sin(angle / 1_600)]);
  const { nearest } = compared([1, 0], vectors, 3);
  expect(nearest.map(({ one }) => angles[one])).toEqual([0, 1, 2]);
});
