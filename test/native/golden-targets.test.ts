// The engine's target assignment against the reference's, over many random scenes of predictions.

import { describe, expect, it } from "vitest";
import { native } from "./engine.ts";
import { assign, MANY, ONE, type Truth } from "./reference/assigner.ts";
import { type Anchor, anchorsOf, type Corners } from "./reference/boxes.ts";
import { measured } from "./reference/pair.ts";
import { filled } from "./reference/tensor.ts";
import { seeded, uniform } from "./reference/weights.ts";

/** Of a target's score: measured 1.6e-6. */
const TARGET_MAX = 5e-6;

interface Predictions {
  anchors: readonly Anchor[];
  boxes: Corners[];
  logits: number[][];
  truths: Truth[];
}

function assigned(
  { anchors, boxes, logits, truths }: Predictions,
  oneToOne: boolean,
  side: number,
) {
  const count = anchors.length;
  const found = native.assignTargets({
    classes: 3,
    height: side,
    width: side,
    oneToOne,
    images: 1,
    boxes: Float32Array.from({ length: 4 * count }, (_, index) => {
      const box = boxes[index % count] as Corners;
      return box[Math.floor(index / count)] as number;
    }),
    logits: Float32Array.from({ length: 3 * count }, (_, index) => {
      const own = logits[index % count] as number[];
      return own[Math.floor(index / count)] as number;
    }),
    truths: Float32Array.from([
      ...truths.flatMap(({ classIndex, box }) => [classIndex, ...box]),
      // Padding, which nothing may learn.
      ...[-1, 0, 0, side, side],
    ]),
  });
  const expected = assign(
    {
      anchors,
      box: (anchor) => boxes[anchor] as Corners,
      logit: (anchor, classIndex) => logits[anchor]?.[classIndex] as number,
    },
    truths,
    oneToOne ? ONE : MANY,
  );
  return { found, expected };
}

describe.skipIf(!native)("targets", () => {
  it.each([
    ["the one-to-one", true, 0],
    ["the one-to-many", false, 0],
    ["the one-to-one", true, 8],
    ["the one-to-many", false, 8],
  ] as const)("of %s branch (%s) on a grid of %i px, in 100 random scenes", (_, oneToOne, grid) => {
    const side = 96;
    const maps = [8, 16, 32].map((stride) => filled([1, 4, side / stride, side / stride]));
    const anchors = anchorsOf(maps);
    let distanceMax = 0;
    for (let seed = 0; seed < 100; seed++) {
      const random = seeded(seed);
      const laid = (value: number) => Math.fround(grid ? Math.round(value / grid) * grid : value);
      const around = (x: number, y: number, reach: number): Corners => {
        const far = () => laid(reach * (0.3 + random()));
        // `map` forgets that they are four.
        return [x - far(), y - far(), x + far(), y + far()].map(Math.fround) as never as Corners;
      };
      const truths = Array.from({ length: Math.floor(8 * random()) }, () => ({
        classIndex: Math.floor(3 * random()),
        box: around(laid(side * random()), laid(side * random()), random() < 0.3 ? 6 : 40),
      })).filter(({ box: [x1, y1, x2, y2] }) => x2 > x1 && y2 > y1);
      // On a grid, boxes and scores repeat, so that anchors tie and the lower one has to win.
      const boxes = anchors.map(({ x, y }) => around(x, y, 40));
      const logits = anchors.map(() =>
        [0, 1, 2].map(() => (grid ? Math.round(2 * random()) : uniform(random, -4, 2))),
      );
      const { found, expected } = assigned({ anchors, boxes, logits, truths }, oneToOne, side);
      const wanted = new Map(expected.map((positive) => [positive.anchor, positive]));
      for (const anchor of anchors.keys()) {
        const { target, truth: object } = wanted.get(anchor) ?? { target: 0, truth: -1 };
        const apart = Math.abs((found.scores[anchor] as number) - target);
        distanceMax = Math.max(distanceMax, apart);
        if (target > TARGET_MAX) expect([seed, found.objects[anchor]]).toEqual([seed, object]);
      }
    }
    measured(`targets, one to one ${oneToOne}, grid ${grid}`, distanceMax);
    expect(distanceMax).toBeLessThan(TARGET_MAX);
  });
});
