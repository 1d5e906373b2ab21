// Suppression of overlapping boxes. Goal: it keeps what the published definition keeps, by class
// and in order; and what weights say of it is read as it was written, or refused.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { placementOf, predictionsOf } from "../../shared/detector/letterbox.ts";
import { suppress, suppressionOf, withSuppression } from "../../shared/detector/suppression.ts";
import { iou } from "../../shared/detector/tracks.ts";
import type { Bbox } from "../../shared/tasks/tasks.ts";

type Row = [number, number, number, number, number, number];
const rowsOf = (rows: readonly (readonly number[])[]) => ({
  values: Float32Array.from(rows.flat()),
  width: rows[0]?.length ?? 6,
});

const boxOf = ([x1, y1, x2, y2]: Row): Bbox => [x1, y1, x2, y2];

/** Greedy suppression in its plainest form: the surest of what is left, again and again. */
function naive(rows: readonly Row[], limit: number): Row[] {
  const left = [...rows];
  const kept: Row[] = [];
  for (let best = left.shift(); best; best = left.shift()) {
    kept.push(best);
    const { length } = left;
    for (let at = length - 1; at >= 0; at--) {
      const other = left[at] as Row;
      const overlap = iou(boxOf(best), boxOf(other));
      if (other[5] === best[5] && overlap > limit) left.splice(at, 1);
    }
  }
  return kept;
}

describe("suppression", () => {
  it("keeps what plain greedy suppression keeps, and puts the rest behind it with no score", () => {
    const side = fc.integer({ min: 1, max: 40 });
    const corner = fc.integer({ min: 0, max: 60 });
    const box = fc.tuple(corner, corner, side, side, fc.integer({ min: 0, max: 2 }));
    fc.assert(
      fc.property(
        fc.array(box, { maxLength: 60 }),
        fc.constantFrom(0.3, 0.61, 0.8),
        (all, limit) => {
          const rows = all.map(([x, y, width, height, index], at): Row => {
            return [x, y, x + width, y + height, 1 - at / 64, index];
          });
          const { values } = suppress(rowsOf(rows), limit);
          const kept = naive(rows, limit);
          expect(values.length).toBe(6 * rows.length);
          expect([...values.subarray(0, 6 * kept.length)]).toEqual(kept.flat());
          const behind = values.subarray(6 * kept.length);
          for (let at = 4; at < behind.length; at += 6) expect(behind[at]).toBe(0);
        },
      ),
    );
  });

  it("moves whole rows, those of masks too", () => {
    const one = [0, 0, 10, 10, 0.9, 0, 7, 8];
    const same = [0, 0, 10, 9, 0.8, 0, 5, 6];
    const other = [0, 0, 10, 10, 0.7, 1, 3, 4];
    const { values, width } = suppress(rowsOf([one, same, other]), 0.5);
    expect(width).toBe(8);
    const expected = Float32Array.from([...one, ...other, 0, 0, 10, 9, 0, 0, 5, 6]);
    expect(values).toEqual(expected);
  });

  it("lets the surer of two boxes stay that a rounding has turned", () => {
    const rows = rowsOf([
      [0, 0, 10, 10, 0.5, 0],
      [0, 0, 10, 10, 0.75, 0],
    ]);
    expect([...suppress(rows, 0.5).values]).toEqual([0, 0, 10, 10, 0.75, 0, 0, 0, 10, 10, 0, 0]);
  });

  it("leaves nothing to be told at any confidence, 0 included", () => {
    const rows = rowsOf([
      [0, 0, 10, 10, 0.75, 0],
      [0, 0, 10, 10, 0.5, 0],
    ]);
    const square = { width: 16, height: 16 };
    const placement = placementOf(square, square);
    const told = predictionsOf(suppress(rows, 0.5), { classes: ["a"], confidence: 0, placement });
    expect(told.map(({ confidence }) => confidence)).toEqual([0.75]);
  });

  it("is read of metadata as it was written, and is none where they say nothing", () => {
    const others = { variant: "det26n", epoch: "3" };
    expect(suppressionOf(others)).toBeNull();
    const chosen = withSuppression(others, { head: "one_to_one", nmsIou: 0.6 });
    expect(chosen).toEqual({ ...others, head: "one_to_one", nms_iou: "0.6" });
    expect(suppressionOf(chosen)).toEqual({ head: "one_to_one", nmsIou: 0.6 });
    const other = withSuppression(chosen, { head: "one_to_many", nmsIou: 0.7 });
    expect(suppressionOf(other)).toEqual({ head: "one_to_many", nmsIou: 0.7 });
    expect(withSuppression(chosen, null)).toEqual(others);
  });

  it.each(["", " ", "none", "0", "1", "-0.5", "1.5", "NaN"])("is not %j", (text) => {
    expect(() => suppressionOf({ nms_iou: text })).toThrow("no number between 0 and 1");
  });

  it("is not of a head that is not deployed", () => {
    expect(() => suppressionOf({ head: "of nobody", nms_iou: "0.6" })).toThrow("of nobody");
    expect(suppressionOf({ head: "of another program" })).toBeNull();
  });
});
