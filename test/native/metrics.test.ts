// What evaluation measures. Goal: the engine's figures are those of the plain definitions, on any
// detections, pycocotools' where it was asked, and what a person can work out on paper.

import { readFileSync } from "node:fs";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { confidenceBins } from "../../shared/detector/confidence-bins.ts";
import { CROWD_SCENES, SCENES, sceneInput } from "../peers/formats-scenes.ts";
import { native } from "./engine.ts";
import { type Input, plainEvaluation } from "./plain-metrics.ts";

/** By pycocotools 2.0, from `npm run peers -- formats`. */
const golden = JSON.parse(readFileSync("test/golden/average-precision.json", "utf8")) as Record<
  string,
  { mAP50: number; mAP50_95: number }
>;
const SEED = process.env.SEED ? Number(process.env.SEED) : undefined;

const flat = (rows: number[][]) => Float32Array.from(rows.flat());
/** One image: detections are x1, y1, x2, y2, confidence, class; truths class, x1, y1, x2, y2. */
const evaluated = (classes: number, ...images: { found: number[][]; truths: number[][] }[]) =>
  native.evaluateDetections({
    classes,
    detections: images.map(({ found }) => flat(found)),
    truths: images.map(({ truths }) => flat(truths)),
  });
const codeOf = (call: () => unknown) => {
  try {
    call();
    return "taken";
  } catch (error) {
    return (error as { code?: string }).code;
  }
};

const side = fc.integer({ min: 1, max: 12 });
const corner = fc.integer({ min: 0, max: 24 });
const box = fc.tuple(corner, corner, side, side).map(([x, y, w, h]) => [x, y, x + w, y + h]);
/** Half of them from a few values, so that many are equal. */
const confidence = fc.oneof(
  fc.constantFrom(0, 0.1, 0.25, 0.5, 0.75, 1),
  fc.double({ min: 0, max: 1, noNaN: true }),
);
const scene = fc.integer({ min: 1, max: 4 }).chain((classes) => {
  const classIndex = fc.integer({ min: 0, max: classes - 1 });
  const truth = fc.tuple(classIndex, box).map(([cls, corners]) => [cls, ...corners]);
  const image = fc.array(truth, { maxLength: 6 }).chain((truths) => {
    const stray = fc
      .tuple(box, confidence, classIndex)
      .map(([corners, sure, cls]) => [...corners, sure, cls]);
    const near = fc
      .tuple(fc.nat(), fc.array(fc.constantFrom(-1, 0, 0, 0.5, 2), { minLength: 4, maxLength: 4 }))
      .chain(([index, shift]) => {
        const [cls = 0, ...corners] = truths[index % Math.max(truths.length, 1)] ?? [0, 1, 1, 5, 5];
        const moved = corners.map((value, i) => value + (shift[i] ?? 0));
        return fc
          .tuple(confidence, fc.oneof({ weight: 4, arbitrary: fc.constant(cls) }, classIndex))
          .map(([sure, own]) => [...moved, sure, own]);
      });
    return fc
      .array(fc.oneof({ weight: 3, arbitrary: near }, stray), { maxLength: 12 })
      .map((found) => ({ truths, found }));
  });
  return fc.array(image, { minLength: 1, maxLength: 4 }).map(
    (images): Input => ({
      classes,
      detections: images.map(({ found }) => flat(found)),
      truths: images.map(({ truths }) => flat(truths)),
    }),
  );
});

function expectClose(found: ArrayLike<number>, expected: ArrayLike<number>, what: string) {
  expect(found.length, what).toBe(expected.length);
  let worst = 0;
  for (let index = 0; index < expected.length; index++) {
    worst = Math.max(worst, Math.abs((found[index] as number) - (expected[index] as number)));
  }
  expect(worst, what).toBeLessThan(1e-6);
}

describe("the plain definition", () => {
  it.each([...SCENES, ...CROWD_SCENES])("is pycocotools' of the scene $name", (one) => {
    const { mAP50, mAP50_95 } = plainEvaluation(sceneInput(one));
    expect(mAP50).toBeCloseTo(golden[one.name]?.mAP50 ?? -1, 6);
    expect(mAP50_95).toBeCloseTo(golden[one.name]?.mAP50_95 ?? -1, 6);
  });

  it("is another where crowds and what is ignored count as objects", () => {
    for (const { crowds: _, ignored: __, ...one } of CROWD_SCENES) {
      const { mAP50 } = plainEvaluation(sceneInput(one));
      expect(Math.abs(mAP50 - (golden[one.name]?.mAP50 ?? 0))).toBeGreaterThan(0.01);
    }
  });
});

describe.skipIf(!native)("average precision", () => {
  it("is that of the plain definitions on random detections", () => {
    fc.assert(
      fc.property(scene, (input) => {
        const [found, expected] = [native.evaluateDetections(input), plainEvaluation(input)];
        for (const name of ["precision", "recall", "mAP50", "mAP50_95", "confidence"] as const) {
          expectClose([found[name]], [expected[name]], name);
        }
        for (const [index, own] of expected.perClass.entries()) {
          const result = found.perClass[index];
          expect(result === null).toBe(own === null);
          if (!own || !result) continue;
          for (const name of ["precision", "recall", "mAP50", "mAP50_95", "truths"] as const) {
            expectClose([result[name]], [own[name]], `${name} of class ${index}`);
          }
          for (const name of ["precision", "recall", "f1", "precisionByRecall"] as const) {
            const what = `curve of ${name} of class ${index}`;
            expectClose(result.curves[name], own.curves[name], what);
          }
          const mean = result.curves.precisionByRecall.reduce((sum, value) => sum + value / 101, 0);
          expectClose([mean], [result.mAP50], `mean of precision by recall of class ${index}`);
        }
        for (const name of ["precision", "recall", "f1"] as const) {
          expectClose(found.curves[name], expected.curves[name], name);
        }
        expectClose(found.precisionByRecall, expected.precisionByRecall, "precision by recall");
        expect([...found.confusion]).toEqual(expected.confusion);
        expect(found.images).toBe(expected.images);
        const sure = input.detections.flatMap((own) => own.filter((_, at) => at % 6 === 4));
        const confidences = sure.flatMap((own) => [...own]);
        expect([...found.confidenceBins]).toEqual(confidenceBins(confidences));
      }),
      { numRuns: 150, ...(SEED === undefined ? {} : { seed: SEED }) },
    );
  });

  it("is 1 where every object was found exactly and nothing else was", () => {
    const truths = Array.from({ length: 40 }, (_, index) => [
      index % 4,
      index,
      index,
      index + 10,
      index + 20,
    ]);
    const images = [0, 1, 2].map((image) => ({
      truths,
      found: truths.map(([cls = 0, ...corners], index) => [
        ...corners,
        0.3 + index / 60 + image / 90,
        cls,
      ]),
    }));
    const result = evaluated(4, ...images);
    expect(result.mAP50).toBe(1);
    expect(result.mAP50_95).toBeCloseTo(1, 12);
    expect([result.precision, result.recall]).toEqual([1, 1]);
    expect(result.perClass.map((own) => own?.truths)).toEqual([30, 30, 30, 30]);
    const confusion = Array.from({ length: 25 }, (_, index) =>
      index % 6 === 0 && index < 24 ? 30 : 0,
    );
    expect([...result.confusion]).toEqual(confusion);
    expect(Math.min(...result.precisionByRecall)).toBe(1);
  });

  it("is 0 where nothing was found, or nothing right", () => {
    const truths = [[0, 10, 10, 50, 50]];
    const nothing = evaluated(1, { truths, found: [] });
    const wrong = evaluated(1, { truths, found: [[60, 60, 90, 90, 0.9, 0]] });
    for (const result of [nothing, wrong]) {
      expect([result.mAP50, result.mAP50_95, result.recall]).toEqual([0, 0, 0]);
      expect(result.perClass[0]?.truths).toBe(1);
    }
    expect([...nothing.confusion]).toEqual([0, 0, 1, 0]);
    expect([...wrong.confusion]).toEqual([0, 1, 1, 0]);
  });

  it("is what one works out on paper", () => {
    // Right, wrong, right of two objects: precision 1 up to recall ½, ⅔ from there to 1.
    const result = evaluated(1, {
      truths: [
        [0, 0, 0, 10, 10],
        [0, 50, 50, 60, 60],
      ],
      found: [
        [0, 0, 10, 10, 0.9, 0],
        [80, 80, 90, 90, 0.8, 0],
        [50, 50, 60, 60, 0.7, 0],
      ],
    });
    const sum = 51 * 1 + (50 * 2) / 3;
    expect(result.mAP50).toBeCloseTo(sum / 101, 12);
    expect(result.mAP50_95).toBeCloseTo(sum / 101, 12);
  });

  it("counts a detection at the thresholds up to its IoU", () => {
    // 10 × 10 against 10 × 7: IoU 0.7, thresholds 0.5 to 0.7 of the ten.
    const found = [[0, 0, 10, 7, 0.9, 0]];
    const result = evaluated(1, { truths: [[0, 0, 0, 10, 10]], found });
    expect(result.mAP50).toBe(1);
    expect(result.mAP50_95).toBeCloseTo(0.5, 12);
  });

  it("gives an object to the surest detection that overlaps it enough, at each threshold", () => {
    const truths = [[0, 0, 0, 10, 10]];
    const found = [
      [0, 0, 10, 8, 0.9, 0],
      [0, 0, 10, 10, 0.5, 0],
    ];
    const result = evaluated(1, { truths, found });
    expect(result.mAP50).toBe(1);
    // Above an IoU of 0.8 the sure one is wrong: precision ½ when the object is found.
    expect(result.mAP50_95).toBeCloseTo((7 + 3 / 2) / 10, 12);
    expect(result.perClass[0]?.recall).toBe(1);
  });

  it("loses nothing to faint duplicates that overlap the object better", () => {
    const objects = [0, 1, 2, 3].map((x) => [40 * x, 0, 40 * x + 20, 20]);
    const found = objects.flatMap(([x1 = 0, y1 = 0, x2 = 0, y2 = 0], index) => [
      [x1 + 2, y1, x2 + 2, y2, 0.9 - index / 100, 0],
      ...Array.from({ length: 20 }, (_, copy) => [x1, y1, x2, y2, 0.02 + copy / 1_000, 0]),
    ]);
    const result = evaluated(1, { truths: objects.map((box) => [0, ...box]), found });
    expect(result.mAP50).toBe(1);
  });

  it.each(SCENES)("is what pycocotools makes of the scene $name", ({ name, classes, images }) => {
    const given = images.map(({ detections, truths }) => ({ found: detections, truths }));
    const { mAP50, mAP50_95 } = evaluated(classes, ...given);
    expectClose([mAP50, mAP50_95], [golden[name]?.mAP50 ?? -1, golden[name]?.mAP50_95 ?? -1], name);
  });

  it("leaves classes without an object out of the means", () => {
    const found = [
      [0, 0, 10, 10, 0.9, 0],
      [30, 30, 40, 40, 0.9, 1],
    ];
    const result = evaluated(3, { truths: [[0, 0, 0, 10, 10]], found });
    expect([result.mAP50, result.precision]).toEqual([1, 1]);
    expect(result.perClass.map((own) => own === null)).toEqual([false, true, true]);
  });

  it("matches within an image only", () => {
    const result = evaluated(
      1,
      { truths: [[0, 0, 0, 10, 10]], found: [] },
      { truths: [], found: [[0, 0, 10, 10, 0.9, 0]] },
    );
    expect([result.mAP50, result.images]).toEqual([0, 2]);
  });

  it("puts what was taken for another class in its row and column", () => {
    const truths = [
      [0, 0, 0, 10, 10],
      [1, 50, 50, 60, 60],
    ];
    const found = [
      [0, 0, 10, 10, 0.9, 1],
      [50, 50, 60, 60, 0.2, 1],
      [80, 80, 90, 90, 0.6, 0],
    ];
    const { confusion } = evaluated(2, { truths, found });
    const rows = [0, 3, 6].map((from) => [...confusion.subarray(from, from + 3)]);
    expect(rows).toEqual([
      [0, 0, 1],
      [1, 0, 0],
      [0, 1, 0],
    ]);
  });

  it("holds for no image and no object", () => {
    const result = evaluated(2);
    expect([result.mAP50, result.precision, result.confidence, result.images]).toEqual([
      0, 0, 0, 0,
    ]);
    expect(result.curves.f1.length).toBe(1_000);
    expect([...result.confidenceBins]).toEqual(Array(20).fill(0));
  });

  it("refuses a class that is none and a confidence that is no number", () => {
    const truths = [[0, 0, 0, 10, 10]];
    for (const cls of [-1, 2, 0.5, Number.NaN]) {
      expect(codeOf(() => evaluated(2, { truths, found: [[0, 0, 1, 1, 0.5, cls]] }))).toBe(
        "bad_argument",
      );
      expect(codeOf(() => evaluated(2, { truths: [[cls, 0, 0, 1, 1]], found: [] }))).toBe(
        "bad_argument",
      );
    }
    const found = [[0, 0, 1, 1, Number.NaN, 0]];
    expect(codeOf(() => evaluated(2, { truths, found }))).toBe("bad_argument");
  });

  it("takes as many detections as a split of 500 images of 80 classes has", () => {
    const images = Array.from({ length: 500 }, (_, image) => {
      const truths = Array.from({ length: 8 }, (_, index) => {
        const x = (image * 37 + index * 71) % 500;
        return [(image + index * 11) % 80, x, x / 2, x + 40, x / 2 + 60];
      });
      const found = Array.from({ length: 300 }, (_, index) => {
        const [cls = 0, x = 0, y = 0] = truths[index % 8] ?? [];
        const off = (index * 7) % 23;
        return [x + off, y, x + 40, y + 60 - off, ((index * 131 + image) % 997) / 997, cls];
      });
      return { truths, found };
    });
    const input = {
      classes: 80,
      detections: images.map(({ found }) => flat(found)),
      truths: images.map(({ truths }) => flat(truths)),
    };
    const result = native.evaluateDetections(input);
    expect(result.images).toBe(500);
    expect(result.mAP50_95).toBeGreaterThan(0);
  });
});
