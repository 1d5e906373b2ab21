// Which frames are chosen to be labeled next. Goal: unsure ones first, none like another, and no
// class drowns the others.

import { expect, it } from "vitest";
import {
  rankFrames,
  uncertaintiesOf,
} from "../../../../edge/vision/labeling/search/frame-ranking.ts";

/** Unit vectors in a plane, by their angles in degrees. */
const at = (degrees: number) => {
  const angle = (degrees * Math.PI) / 180;
  return [Math.cos(angle), Math.sin(angle)];
};
const frames = (angles: readonly number[], bits: readonly (number | null)[] = []) =>
  angles.map((angle, index) => {
    const one = bits[index];
    return {
      vector: at(angle),
      entropies: one === undefined || one === null ? null : { cell: one },
    };
  });
const indexes = (...given: Parameters<typeof rankFrames>) =>
  rankFrames(...given).map(({ index }) => index);

it("takes the farthest from what is labeled, then the farthest from both", () => {
  const candidates = frames([10, 180, 100, 5]);
  expect(indexes(candidates, [at(0)], 2)).toEqual([1, 2]);
  const [first, second] = rankFrames(candidates, [at(0)], 2);
  expect(first?.uncertainty).toBeNull();
  expect(first?.distance).toBeGreaterThan(second?.distance ?? 2);
});

it("gives a smaller budget the first ones of a larger one", () => {
  const candidates = frames(Array.from({ length: 40 }, (_, index) => (index * 137) % 360));
  expect(indexes(candidates, [], 5)).toEqual(indexes(candidates, [], 20).slice(0, 5));
});

it("chooses among the most uncertain, and begins with the most uncertain where none is labeled", () => {
  const angles = [0, 90, 180, 270, 45, 135, 225, 315];
  const bits = [9, 8, 7, 6, 1, 1, 1, 1];
  expect(indexes(frames(angles, bits), [], 1)).toEqual([0]);
  // Four times the budget is every frame that the model is unsure of.
  const chosen = indexes(frames(angles, [9, 1, 1, 8, 7, 1, 6, 1]), [at(0)], 1);
  expect([0, 3, 4, 6]).toContain(chosen[0]);
});

it("leaves out what repeats a frame that is labeled or chosen", () => {
  expect(indexes(frames([0, 0, 90, 90, 200]), [at(0)], 5).toSorted()).toEqual([2, 4]);
});

it("chooses nothing of nothing", () => {
  expect(rankFrames([], [], 3)).toEqual([]);
  expect(rankFrames([], [at(1)], 3)).toEqual([]);
});

it("counts a rare class for as much as a frequent one, but no stray object for more", () => {
  const often = { cell: 10 };
  const both = { cell: 10, platelet: 2 };
  const [cells = 0, rare = 0] = uncertaintiesOf([often, both, often, often]) as number[];
  expect(rare).toBeGreaterThan(2 * cells);
  // One in a thousand counts ten times of its bits, not a thousand times.
  const many = [...Array.from({ length: 999 }, () => ({ cell: 10 })), { cell: 10, stray: 0.1 }];
  const last = uncertaintiesOf(many).at(-1);
  expect(last).toBeGreaterThan(1);
  expect(last).toBeLessThan(2);
});

it("has a mean of 1, null where no model looked, and 0 where it found nothing", () => {
  const unsure = uncertaintiesOf([{ a: 1 }, { a: 3 }, {}, null]);
  expect(unsure).toEqual([0.75, 2.25, 0, null]);
  expect(uncertaintiesOf([{}, {}])).toEqual([0, 0]);
  expect(uncertaintiesOf([{ a: 0 }])).toEqual([0]);
});
