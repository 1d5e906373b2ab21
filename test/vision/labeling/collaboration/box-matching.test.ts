// Boxes of two people matched: against a matcher that looks at all pairs anew for each one it
// takes, against the largest matching there is, and from either side.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  type BoxPair,
  type LabeledBox,
  matchBoxes,
} from "../../../../edge/vision/labeling/collaboration/box-matching.ts";
import { iou } from "../../../../shared/detector/tracks.ts";

/** Boxes on a coarse grid, so that overlaps are often equal and boxes often the same. */
const box = fc
  .record({
    class: fc.constantFrom("cat", "dog"),
    x: fc.integer({ min: 0, max: 4 }),
    y: fc.integer({ min: 0, max: 3 }),
    width: fc.integer({ min: 2, max: 4 }),
    height: fc.integer({ min: 2, max: 3 }),
  })
  .map(
    ({ class: name, x, y, width, height }): LabeledBox => ({
      class: name,
      bbox: [x, y, x + width, y + height],
    }),
  );
const boxes = fc.array(box, { maxLength: 6 });
const threshold = fc.constantFrom(0.1, 0.3, 0.5, 0.75, 0.95);

/** The classes and overlaps of pairs, in no order. */
const kinds = (own: readonly LabeledBox[], others: readonly LabeledBox[], pairs: BoxPair[]) =>
  pairs
    .map((pair) => [own[pair.own]?.class, others[pair.other]?.class, pair.iou].join(" "))
    .toSorted();
const turned = (pairs: BoxPair[]) =>
  pairs.map(({ own, other, iou: by }) => ({ own: other, other: own, iou: by }));
const sizeOf = (pairs: readonly unknown[]) => pairs.length;

/** The most pairs of one class that there may be, by trying all. */
function pairsMax(
  own: readonly LabeledBox[],
  others: readonly LabeledBox[],
  iouMin: number,
): number {
  const [first, ...rest] = own;
  if (!first) return 0;
  const partners = others.filter(
    (other) => other.class === first.class && iou(first.bbox, other.bbox) >= iouMin,
  );
  const without = pairsMax(rest, others, iouMin);
  return partners.reduce(
    (best, partner) =>
      Math.max(
        best,
        1 +
          pairsMax(
            rest,
            others.filter((one) => one !== partner),
            iouMin,
          ),
      ),
    without,
  );
}

describe("boxes of two people", () => {
  it("are matched one to one, from the overlap on, by class first", () => {
    fc.assert(
      fc.property(boxes, boxes, threshold, (own, others, iouMin) => {
        const { matched, confused } = matchBoxes(own, others, iouMin);
        const all = [...matched, ...confused];
        expect(new Set(all.map((pair) => pair.own)).size).toBe(all.length);
        expect(new Set(all.map((pair) => pair.other)).size).toBe(all.length);
        for (const pair of all) {
          const [one, other] = [own[pair.own], others[pair.other]] as [LabeledBox, LabeledBox];
          expect(pair.iou).toBe(iou(one.bbox, other.bbox));
          expect(pair.iou).toBeGreaterThanOrEqual(iouMin);
          expect(one.class === other.class).toBe(matched.includes(pair));
        }
        // What is left has no partner left.
        const isFree = (side: "own" | "other", at: number) =>
          all.every((pair) => pair[side] !== at);
        const free = own.filter((_, at) => isFree("own", at));
        const left = others.filter((_, at) => isFree("other", at));
        for (const one of free) {
          for (const other of left) expect(iou(one.bbox, other.bbox)).toBeLessThan(iouMin);
        }
      }),
      { numRuns: 500 },
    );
  });

  it("are the same pairs from either side, in any order", () => {
    fc.assert(
      fc.property(boxes, boxes, threshold, fc.boolean(), (own, others, iouMin, isReversed) => {
        const [first, second] = isReversed
          ? [own.toReversed(), others.toReversed()]
          : [own, others];
        const here = matchBoxes(own, others, iouMin);
        const there = matchBoxes(second, first, iouMin);
        for (const what of ["matched", "confused"] as const) {
          expect(kinds(first, second, turned(there[what]))).toEqual(kinds(own, others, here[what]));
        }
      }),
      { numRuns: 2_000 },
    );
  });

  it("are all matched where both drew the same", () => {
    fc.assert(
      fc.property(boxes, threshold, (own, iouMin) => {
        const { matched, confused } = matchBoxes(own, own.toReversed(), iouMin);
        expect([matched.length, confused]).toEqual([own.length, []]);
        expect(matched.every((pair) => pair.iou === 1)).toBe(true);
      }),
    );
  });

  it("are at least half of the most that there could be", () => {
    fc.assert(
      fc.property(boxes, boxes, threshold, (own, others, iouMin) => {
        const found = sizeOf(matchBoxes(own, others, iouMin).matched);
        const max = pairsMax(own, others, iouMin);
        // A pair that is taken stands in the way of two others at most.
        expect([found <= max, 2 * found >= max]).toEqual([true, true]);
      }),
      { numRuns: 500 },
    );
  });

  it("are those of a matcher that looks at all pairs anew for each one", () => {
    // Overlaps that differ, so that there is one order only.
    const side = fc.array(
      fc.record({
        class: fc.constantFrom("cat", "dog"),
        x: fc.double({ min: 0, max: 4, noNaN: true }),
        size: fc.double({ min: 2, max: 4, noNaN: true }),
      }),
      { maxLength: 6 },
    );
    const drawn = (list: { class: string; x: number; size: number }[]) =>
      list.map(
        (one): LabeledBox => ({ class: one.class, bbox: [one.x, one.x, one.x + one.size, 9] }),
      );
    fc.assert(
      fc.property(side, side, threshold, (one, two, iouMin) => {
        const [own, others] = [drawn(one), drawn(two)];
        const overlaps = own.flatMap((a) => others.map((b) => iou(a.bbox, b.bbox)));
        fc.pre(new Set(overlaps).size === overlaps.length);
        const { matched, confused } = matchBoxes(own, others, iouMin);
        expect([...matched, ...confused]).toEqual(naive(own, others, iouMin));
      }),
      { numRuns: 500 },
    );
  });
});

/** Takes the best pair of all that are free, of one class and then of two, until there is none. */
function naive(
  own: readonly LabeledBox[],
  others: readonly LabeledBox[],
  iouMin: number,
): BoxPair[] {
  const pairs: BoxPair[] = [];
  for (const isOneClass of [true, false]) {
    for (;;) {
      let best: BoxPair | null = null;
      for (const [at, one] of own.entries()) {
        for (const [index, other] of others.entries()) {
          const overlap = iou(one.bbox, other.bbox);
          if ((one.class === other.class) !== isOneClass || overlap < iouMin) continue;
          if (pairs.some((pair) => pair.own === at || pair.other === index)) continue;
          if (!best || overlap > best.iou) best = { own: at, other: index, iou: overlap };
        }
      }
      if (!best) break;
      pairs.push(best);
    }
  }
  return pairs;
}
