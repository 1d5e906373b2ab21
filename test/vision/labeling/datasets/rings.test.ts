// Masks as one ring, against the pixels that they came from. What pycocotools makes of the same
// masks is compared in `npm run peers`.

import { describe, expect, it } from "vitest";
import {
  BrokenMask,
  isRectangle,
  maskBudget,
  ringOfPolygons,
  ringOfRunLengths,
} from "../../../../shared/detector/rings.ts";
import { seeded } from "../../../support/weights.ts";

/** Pixels by row whose centers a ring holds, by the even-odd and by the non-zero rule. */
function filled(ring: readonly number[] | null, width: number, height: number) {
  const rules = {
    evenOdd: new Uint8Array(width * height),
    nonZero: new Uint8Array(width * height),
  };
  for (let index = 0; ring && index < width * height; index++) {
    const [x, y] = [(index % width) + 0.5, Math.floor(index / width) + 0.5];
    let crossings = 0;
    let winding = 0;
    for (let at = 0; at < ring.length; at += 2) {
      const next = (at + 2) % ring.length;
      const [x1 = 0, y1 = 0, x2 = 0, y2 = 0] = [ring[at], ring[at + 1], ring[next], ring[next + 1]];
      if (y1 <= y === y2 <= y || x1 + ((y - y1) / (y2 - y1)) * (x2 - x1) <= x) continue;
      crossings += 1;
      winding += y2 > y1 ? 1 : -1;
    }
    rules.evenOdd[index] = crossings % 2;
    rules.nonZero[index] = Number(winding !== 0);
  }
  return rules;
}

/** COCO's run lengths of pixels by row. */
function runLengths(pixels: Uint8Array, width: number, height: number): number[] {
  const counts = [0];
  for (let index = 0; index < pixels.length; index++) {
    const pixel = pixels[(index % height) * width + Math.floor(index / height)];
    if (pixel === counts.length % 2) counts.push(0);
    counts[counts.length - 1] = (counts.at(-1) ?? 0) + 1;
  }
  return counts;
}

describe("a mask as one ring", () => {
  it("is the same pixels, with all pieces and holes, whichever way it is filled", () => {
    const random = seeded(16);
    for (let round = 0; round < 500; round++) {
      const [width, height] = [1 + Math.floor(random() * 9), 1 + Math.floor(random() * 9)];
      const pixels = Uint8Array.from({ length: width * height }, () => Number(random() < 0.55));
      const mask = { size: [height, width] as const, counts: runLengths(pixels, width, height) };
      const ring = ringOfRunLengths(mask, maskBudget());
      expect(ring === null).toBe(!pixels.includes(1));
      expect(filled(ring, width, height)).toEqual({ evenOdd: pixels, nonZero: pixels });
    }
  });

  it("is the union of polygons: apart, crossing, one within the other, either way around", () => {
    const square = (x: number, y: number, side: number) => {
      return [x, y, x + side, y, x + side, y + side, x, y + side];
    };
    const reversed = [20, 2, 20, 8, 26, 8, 26, 2];
    const cases = [
      [square(1, 1, 4), reversed],
      [square(1, 1, 6), square(4, 4, 6)],
      [square(1, 1, 10), square(3, 3, 4)],
      [square(1, 1, 4), square(5, 1, 4), [12, 1, 18, 1, 12, 7]],
    ];
    for (const polygons of cases) {
      const union = Uint8Array.from({ length: 30 * 12 }, (_, index) =>
        Number(polygons.some((one) => filled(one, 30, 12).evenOdd[index])),
      );
      const ring = ringOfPolygons(polygons, maskBudget());
      expect(filled(ring, 30, 12)).toEqual({ evenOdd: union, nonZero: union });
    }
  });

  it("keeps a single polygon as it is, but for a corner that closes it", () => {
    const ring = [1.25, 2, 7, 2.5, 4, 9];
    expect(
      ringOfPolygons(
        [
          [...ring, 1.25, 2],
          [5, 5],
          [1, 1, 2, 2, 3, 3],
        ],
        maskBudget(),
      ),
    ).toEqual(ring);
    expect(ringOfPolygons([], maskBudget())).toBeNull();
  });

  it("is refused where run lengths are none, or too many", () => {
    const read = (size: [number, number], counts: number[] | string) => () =>
      ringOfRunLengths({ size, counts }, maskBudget());
    for (const counts of [[4], [10], [3, -1, 7], [1.5, 7.5], "~~~", "o", "ooooooooooo"]) {
      expect(read([3, 3], counts)).toThrow(BrokenMask);
    }
    expect(read([0, 3], [])).toThrow(BrokenMask);
    expect(read([1, 70_000], [0, 70_000])).toThrow(BrokenMask);
    const budget = { steps: 1_000, numbers: 1_000 };
    const wide = { size: [1, 2_000] as const, counts: [0, 2_000] };
    expect(() => ringOfRunLengths(wide, budget)).toThrow("too detailed");
  });

  it("knows a rectangle from what only looks like one", () => {
    expect(isRectangle([1, 1, 4, 1, 4, 3, 1, 3])).toBe(true);
    expect(isRectangle([4, 3, 4, 1, 1, 1, 1, 3])).toBe(true);
    expect(isRectangle([1, 1, 4, 1, 4, 3, 1, 2])).toBe(false);
    expect(isRectangle([1, 1, 4, 3, 4, 1, 1, 3])).toBe(false);
    expect(isRectangle([1, 1, 4, 1, 4, 3])).toBe(false);
  });
});
