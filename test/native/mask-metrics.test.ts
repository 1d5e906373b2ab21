// Average precision by masks: the plain definition on random masks, pycocotools' figures, and what
// a person can count.

import { readFileSync } from "node:fs";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { MASK_SCENES, maskInput } from "../peers/formats-mask-scenes.ts";
import { native } from "./engine.ts";
import { type MaskedInput, plainEvaluation, plainMaskEvaluation } from "./plain-metrics.ts";

/** By pycocotools 2.0, from `npm run peers -- formats`. */
const golden = JSON.parse(
  readFileSync("test/golden/mask-average-precision.json", "utf8"),
) as Record<string, { mAP50: number; mAP50_95: number }>;
const SEED = process.env.SEED ? Number(process.env.SEED) : undefined;
const SIDE = 9;

/** A class, a confidence, and cells from one corner to another, but every so many. */
const object = fc.record({
  classIndex: fc.nat(1),
  confidence: fc.integer({ min: 0, max: 64 }).map((step) => step / 64),
  from: fc.nat(5),
  side: fc.integer({ min: 1, max: 4 }),
  gap: fc.constantFrom(0, 0, 2, 5),
});
type MaskObject = typeof object extends fc.Arbitrary<infer One> ? One : never;

function cellsOf({ from, side, gap }: MaskObject): Uint8Array {
  return Uint8Array.from({ length: SIDE * SIDE }, (_, cell) => {
    const [x, y] = [cell % SIDE, Math.floor(cell / SIDE)];
    const isInside = Math.min(x, y) >= from && Math.max(x, y) < from + side;
    return isInside && !(gap && cell % gap === 0) ? 1 : 0;
  });
}

const scene = fc
  .array(fc.tuple(fc.array(object, { maxLength: 5 }), fc.array(object, { maxLength: 8 })), {
    minLength: 1,
    maxLength: 3,
  })
  .map((images): MaskedInput => {
    const boxOf = ({ from, side }: MaskObject) => [from, from, from + side, from + side];
    const bytes = (own: MaskObject[]) => Uint8Array.from(own.flatMap((one) => [...cellsOf(one)]));
    return {
      classes: 2,
      truths: images.map(([own]) =>
        Float32Array.from(own.flatMap((one) => [one.classIndex, ...boxOf(one)])),
      ),
      detections: images.map(([, own]) =>
        Float32Array.from(own.flatMap((one) => [...boxOf(one), one.confidence, one.classIndex])),
      ),
      masks: {
        height: SIDE,
        width: SIDE,
        truths: images.map(([own]) => bytes(own)),
        detections: images.map(([, own]) => bytes(own)),
      },
    };
  });

const input = (truth: Uint8Array, ...found: Uint8Array[]): MaskedInput => ({
  classes: 1,
  truths: [Float32Array.of(0, 0, 0, SIDE, SIDE)],
  detections: [
    Float32Array.from(found.flatMap((_, index) => [0, 0, SIDE, SIDE, 0.9 - index / 10, 0])),
  ],
  masks: {
    height: SIDE,
    width: SIDE,
    truths: [truth],
    detections: [Uint8Array.from(found.flatMap((one) => [...one]))],
  },
});
const first = (count: number) =>
  Uint8Array.from({ length: SIDE * SIDE }, (_, cell) => (cell < count ? 1 : 0));

describe.skipIf(!native)("average precision by masks", () => {
  it("is that of the plain definition on random masks, and changes nothing by boxes", () => {
    fc.assert(
      fc.property(scene, (given) => {
        const [found, expected] = [native.evaluateDetections(given), plainMaskEvaluation(given)];
        const isKnown = expected.perClass.some((own) => own !== null);
        expect(found.maskMAP50 !== undefined).toBe(isKnown);
        if (isKnown) {
          expect(found.maskMAP50).toBeCloseTo(expected.mAP50, 9);
          expect(found.maskMAP50_95).toBeCloseTo(expected.mAP50_95, 9);
        }
        for (const [index, own] of expected.perClass.entries()) {
          expect(found.perClass[index]?.maskMAP50 ?? null).toEqual(
            own && expect.closeTo(own.mAP50, 9),
          );
          expect(found.perClass[index]?.maskMAP50_95 ?? null).toEqual(
            own && expect.closeTo(own.mAP50_95, 9),
          );
        }
        const byBoxes = plainEvaluation(given);
        expect(found.mAP50).toBeCloseTo(byBoxes.mAP50, 9);
        expect([...found.confusion]).toEqual(byBoxes.confusion);
      }),
      { numRuns: 150, ...(SEED === undefined ? {} : { seed: SEED }) },
    );
  });

  it.each(MASK_SCENES)("is what pycocotools makes of the scene $name", (one) => {
    const { maskMAP50, maskMAP50_95 } = native.evaluateDetections(maskInput(one));
    const expected = golden[one.name];
    expect(maskMAP50).toBeCloseTo(expected?.mAP50 ?? -1, 6);
    expect(maskMAP50_95).toBeCloseTo(expected?.mAP50_95 ?? -1, 6);
  });

  it("tells masks apart whose boxes are the same", () => {
    // 40 of 50 cells: IoU 0.8, seven of the ten thresholds.
    const close = native.evaluateDetections(input(first(50), first(40)));
    expect(close.mAP50_95).toBeCloseTo(1, 12);
    expect(close.maskMAP50).toBe(1);
    expect(close.maskMAP50_95).toBeCloseTo(0.7, 12);
    // The sure one has 20 of 50 cells: it is wrong at every threshold.
    const second = native.evaluateDetections(input(first(50), first(20), first(50)));
    expect(second.maskMAP50).toBeCloseTo(0.5, 12);
    const none = native.evaluateDetections(input(first(50), first(0)));
    expect([none.maskMAP50, none.maskMAP50_95]).toEqual([0, 0]);
  });

  it.each([
    ["of other images", { detections: [] }],
    ["of another size", { width: SIDE + 1 }],
    ["that are no bytes", { truths: [Float32Array.from(first(3))] }],
  ])("refuses masks %s", (_, change) => {
    const given = input(first(9), first(9));
    // Wrong values of every kind: types do not let them pass.
    const masks = { ...given.masks, ...change } as MaskedInput["masks"];
    expect(() => native.evaluateDetections({ ...given, masks })).toThrow(
      expect.objectContaining({ code: "bad_argument" }),
    );
  });
});
