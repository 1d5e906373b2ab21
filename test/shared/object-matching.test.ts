// One matcher for shadows and comparisons: each object in exactly one pair or left over, the same
// pairs with the lists swapped, and nothing that overlaps enough left on both sides.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type MatchedObject, matchObjects } from "../../shared/detector/object-matching.ts";
import { iou } from "../../shared/detector/tracks.ts";
import type { Bbox } from "../../shared/shapes.ts";

/** Few corners, sizes and classes, so that overlaps and ties are many. */
const object: fc.Arbitrary<MatchedObject> = fc
  .tuple(
    fc.constantFrom("disc", "star"),
    fc.constantFrom(0.3, 0.9),
    fc.tuple(fc.nat(4), fc.nat(4), fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 4 })),
  )
  .map(([name, confidence, [x, y, width, height]]) => ({
    class: name,
    confidence,
    bbox: [x, y, x + width, y + height] as Bbox,
  }));
const objects = fc.array(object, { maxLength: 12 });
const iouMin = fc.constantFrom(0.1, 0.5, 1);

/** Pairs and leftovers by what the objects are, whatever their positions. */
function contents(
  a: readonly MatchedObject[],
  b: readonly MatchedObject[],
  { iou, isSwapped }: { iou: number; isSwapped: boolean },
) {
  const text = (of: readonly MatchedObject[]) => (index: number) => JSON.stringify(of[index]);
  const found = isSwapped ? matchObjects(b, a, iou) : matchObjects(a, b, iou);
  const pairs = found.pairs.map((pair) => {
    const [one, other] = isSwapped ? [pair.b, pair.a] : [pair.a, pair.b];
    return `${text(a)(one)} ${text(b)(other)} ${pair.iou} ${pair.isSameClass}`;
  });
  const [onlyA, onlyB] = isSwapped ? [found.onlyB, found.onlyA] : [found.onlyA, found.onlyB];
  return [pairs, onlyA.map(text(a)), onlyB.map(text(b))].map((all) => all.sort());
}

describe("matching", () => {
  it("puts each object into one pair, or none", () => {
    fc.assert(
      fc.property(objects, objects, iouMin, (a, b, least) => {
        const { pairs, onlyA, onlyB } = matchObjects(a, b, least);
        const sorted = (all: number[]) => all.sort((one, other) => one - other);
        expect(sorted([...pairs.map((pair) => pair.a), ...onlyA])).toEqual([...a.keys()]);
        expect(sorted([...pairs.map((pair) => pair.b), ...onlyB])).toEqual([...b.keys()]);
        for (const pair of pairs) {
          const [one, other] = [a[pair.a], b[pair.b]] as [MatchedObject, MatchedObject];
          expect(pair.iou).toBe(iou(one.bbox, other.bbox));
          expect(pair.iou).toBeGreaterThanOrEqual(least);
          expect(pair.isSameClass).toBe(one.class === other.class);
        }
      }),
    );
  });

  it("leaves nothing on both sides that is one object", () => {
    fc.assert(
      fc.property(objects, objects, iouMin, (a, b, least) => {
        const { onlyA, onlyB } = matchObjects(a, b, least);
        const overlaps = onlyA.flatMap((one) =>
          onlyB.map((other) => iou(a[one]?.bbox as Bbox, b[other]?.bbox as Bbox)),
        );
        expect(Math.max(0, ...overlaps)).toBeLessThan(least);
      }),
    );
  });

  it("finds the same with the lists swapped, and in any order of theirs", () => {
    fc.assert(
      fc.property(objects, objects, iouMin, (a, b, iou) => {
        const straight = contents(a, b, { iou, isSwapped: false });
        expect(contents(a, b, { iou, isSwapped: true })).toEqual(straight);
        const [reversedA, reversedB] = [a.toReversed(), b.toReversed()];
        expect(contents(reversedA, reversedB, { iou, isSwapped: false })).toEqual(straight);
      }),
    );
  });

  it("prefers one class to a larger overlap, and a larger overlap to a smaller", () => {
    const at = (name: string, x: number) => ({
      class: name,
      confidence: 0.5,
      bbox: [x, 0, x + 10, 10] as const,
    });
    const { pairs, onlyB } = matchObjects(
      [at("disc", 0)],
      [at("star", 0), at("disc", 3), at("disc", 1)],
      0.5,
    );
    expect(pairs).toEqual([{ a: 0, b: 2, iou: 9 / 11, isSameClass: true }]);
    expect(onlyB).toEqual([0, 1]);
  });
});
