// The bitemporal rules that real data exposes, on the pure functions.

import { describe, expect, it } from "vitest";
import { canonicalText, diff, type Row } from "../../edge/markets/store/rows.ts";

const row = (datetime: number, value: number, instrumentId = "a"): Row => ({
  datetime,
  instrumentId,
  values: [value],
});
const all = { from: -Infinity, to: Infinity };

describe("diff", () => {
  it("finds insertions, revisions and retractions inside the covered range", () => {
    const changes = diff([row(1, 10), row(2, 20), row(3, 30)], [row(2, 21), row(4, 40)], {
      from: 2,
      to: 5,
    });
    expect(changes).toMatchObject({ inserted: 1, revised: 1, retracted: 1 });
    expect(changes.rows.map((one) => [one.datetime, one.retracted])).toEqual([
      [2, false],
      [3, true],
      [4, false],
    ]);
  });

  it("leaves rows outside the covered range alone: absence there is no retraction", () => {
    expect(diff([row(1, 10), row(9, 90)], [], { from: 2, to: 9 }).rows).toEqual([]);
  });

  it("treats NaN as equal to NaN and −0 as 0", () => {
    expect(
      diff([row(1, NaN), row(2, 0)], [row(1, NaN), row(2, -0)], { from: 1, to: 3 }).rows,
    ).toEqual([]);
    expect(diff([row(1, NaN)], [row(1, 1)], { from: 1, to: 2 }).revised).toBe(1);
  });

  it("tells instruments at one instant apart", () => {
    const changes = diff(
      [row(1, 10, "a"), row(1, 20, "b")],
      [row(1, 10, "a"), row(1, 21, "b")],
      all,
    );
    expect(changes.rows).toEqual([{ ...row(1, 21, "b"), retracted: false }]);
  });
});

describe("canonicalText", () => {
  it("gives equal economic content equal text", () => {
    const text = (value: number) => canonicalText([{ ...row(1, value), retracted: false }], all);
    expect(text(Number("29.0"))).toBe(text(Number("29")));
    expect(text(-0)).toBe(text(0));
    expect(text(29)).not.toBe(text(29.1));
  });
});
