// How a file of lower precision is judged. Goal: figures are COCO's, a file that finds less shows
// it, and the recommended score makes it as precise as its model.

import { describe, expect, it } from "vitest";
import {
  accuracyOf,
  type JudgedImage,
  recommendedConfidence,
} from "../../../gpu-node/export/accuracy.ts";
import { compareObjects, p99Difference } from "../../../gpu-node/export/verification.ts";
import {
  boxTolerance,
  type ExportFigures,
  missesOf,
} from "../../../shared/detector/export-formats.ts";
import type { Bbox, Prediction } from "../../../shared/tasks/tasks.ts";
import { seeded } from "../../support/weights.ts";

const CLASSES = ["disc", "square"];
const boxAt = (x: number): Bbox => [x, 10, x + 20, 30];
const at = (x: number, confidence: number, name = "disc"): Prediction => ({
  class: name,
  confidence,
  bbox: boxAt(x),
});
const truthAt = (x: number, className = "disc") => ({ className, bbox: boxAt(x) });

describe("average precision", () => {
  it("is that of the labeled classes, for the file and its model", () => {
    const images: JudgedImage[] = [
      {
        truths: [truthAt(0), truthAt(50)],
        model: [at(0, 0.9), at(50, 0.8)],
        file: [at(0, 0.9)],
      },
    ];
    expect(accuracyOf(images, { classes: CLASSES, precision: "int8" })).toEqual({
      images: 1,
      truths: 2,
      // Half of the recalls, 51 of 101, at a precision of 1.
      map50: 51 / 101,
      map50_95: expect.closeTo(51 / 101, 10),
      model_map50: 1,
      model_map50_95: expect.closeTo(1, 10),
      // One of the two objects is half of all, and a tenth is the most.
      drop_max: 0.1,
    });
  });

  it("is none where nothing is labeled", () => {
    const images: JudgedImage[] = [{ truths: [], model: [at(0, 0.9)], file: [] }];
    expect(accuracyOf(images, { classes: CLASSES, precision: "int8" })).toBeNull();
  });
});

describe("the recommended score", () => {
  /** Surer detections are right more often. */
  const found = (shrink: number): JudgedImage[] => {
    const random = seeded(11);
    return Array.from({ length: 60 }, () => {
      const truths = [truthAt(0), truthAt(100), truthAt(200)];
      const detections = Array.from({ length: 6 }, (_, index) => {
        const confidence = random();
        const hit = index < 3 && random() < 0.2 + 0.8 * confidence;
        return at(hit ? 100 * index : 400 + 40 * index, confidence);
      });
      const file = detections.map((one) => ({ ...one, confidence: one.confidence * shrink }));
      return { truths, model: detections, file };
    });
  };

  it("is 0.25 where nothing changed", () =>
    expect(recommendedConfidence(found(1), CLASSES)).toBe(0.25));

  it("falls with the file's scores", () => {
    const half = recommendedConfidence(found(0.5), CLASSES) ?? 0;
    expect(Math.abs(half - 0.125)).toBeLessThan(0.04);
  });

  it("is none where the model finds nothing", () => {
    const images = [{ truths: [truthAt(0)], model: [], file: [at(0, 0.9)] }];
    expect(recommendedConfidence(images, CLASSES)).toBeNull();
  });
});

describe("objects of a file and of its model", () => {
  const rows = (...list: number[][]) => ({ values: Float32Array.from(list.flat()), width: 6 });
  const MODEL = rows([10, 10, 30, 30, 0.9, 0], [50, 10, 70, 30, 0.6, 1], [5, 5, 9, 9, 0.2, 0]);

  it("are paired by what is most alike, below the cut too", () => {
    const file = rows([50, 11, 70, 30, 0.24, 1], [11, 10, 30, 30, 0.8, 0], [0, 0, 1, 1, 0.1, 0]);
    expect(compareObjects(file, MODEL)).toEqual({
      rows: 2,
      objects: 2,
      box: 1,
      score: expect.closeTo(0.36, 5),
      unmatched: 0,
      scores: { file: expect.closeTo(1.04, 5), predictor: expect.closeTo(1.5, 5) },
      pairs: expect.objectContaining({ length: 2 }),
    });
  });

  it("are missed where the file has none of the class", () => {
    const file = rows([10, 10, 30, 30, 0.9, 0], [50, 10, 70, 30, 0.6, 0], [5, 5, 9, 9, 0.2, 0]);
    expect(compareObjects(file, MODEL)).toMatchObject({ rows: 3, unmatched: 1, box: 61 });
    const broken = rows([Number.NaN, 10, 30, 30, 0.9, 0], [50, 10, 70, 30, 0.6, 1]);
    expect(compareObjects(broken, MODEL)).toMatchObject({ unmatched: 2 });
  });

  it("at the cut of a full list do not count, since others may have taken their rows", () => {
    const full = rows([10, 10, 30, 30, 0.9, 0], [50, 10, 70, 30, 0.6, 1], [5, 5, 9, 9, 0.58, 0]);
    const other = rows([10, 10, 30, 30, 0.9, 0], [80, 80, 90, 90, 0.62, 0], [5, 5, 9, 9, 0.57, 0]);
    expect(compareObjects(other, full)).toMatchObject({ rows: 1, box: 0, unmatched: 0 });
    expect(compareObjects(other, full, 0.01)).toMatchObject({ rows: 3, unmatched: 1 });
  });

  it("differ by those that the file alone has", () => {
    const twice = rows(
      [10, 10, 30, 30, 0.9, 0],
      [50, 10, 70, 30, 0.6, 1],
      [80, 10, 99, 30, 0.5, 1],
    );
    expect(compareObjects(twice, MODEL)).toMatchObject({ rows: 3, unmatched: 1 });
    const far = rows([10, 10, 30, 30, 0.9, 0], [50, 10, 70, 30, 0.6, 1], [80, 10, 99, 30, 0.5, 0]);
    expect(compareObjects(far, MODEL)).toMatchObject({ rows: 3, box: 90, unmatched: 0 });
    // However many there are, so that none is below the file's last one.
    const sure = [80, 80, 99, 99, 0.95, 1];
    expect(compareObjects(rows(sure, sure, sure), MODEL).unmatched).toBeGreaterThan(0);
    // One that rose over the bound has its row below it.
    const last = [0, 0, 1, 1, 0.01, 0];
    const model = rows([10, 10, 30, 30, 0.9, 0], [5, 5, 9, 9, 0.24, 0], last);
    const risen = rows([10, 10, 30, 30, 0.9, 0], [5, 5, 9, 9, 0.26, 0], last);
    expect(compareObjects(risen, model)).toMatchObject({ rows: 2, box: 0, unmatched: 0 });
  });

  it("are the surer half where none is sure", () => {
    const weak = rows([10, 10, 30, 30, 0.1, 0], [50, 10, 70, 30, 0.06, 1], [5, 5, 9, 9, 0.01, 0]);
    expect(compareObjects(weak, weak)).toMatchObject({ rows: 2, objects: 0, box: 0, score: 0 });
  });
});

describe("tolerances", () => {
  const good = {
    box_difference_max: 0,
    box_difference_p99: 0,
    score_difference_max: 0,
    confidence_ratio: 1,
    accuracy: { truths: 2_000, map50: 0.8, map50_95: 0.5, model_map50: 0.8, model_map50_95: 0.5 },
    masks: null,
  };
  const size = [320, 320] as const;
  const masks = { prototype_error: 0, coefficient_error: 0, iou: 1 };
  it.each<[string, "fp32" | "fp16" | "int8", Partial<ExportFigures>, RegExp | null]>([
    ["what is equal", "fp32", {}, null],
    ["a box", "fp32", { box_difference_max: 0.002 }, /^boxes by 0\.00200 pixels \(0\.001/],
    ["no number", "fp32", { box_difference_max: Number.NaN }, /^boxes by NaN/],
    ["the worst box of half precision", "fp16", { box_difference_max: 0.3 }, null],
    ["one beyond it", "fp16", { box_difference_max: 0.31 }, /^boxes by 0\.310 pixels \(0\.3 /],
    [
      "boxes of half precision on the whole",
      "fp16",
      { box_difference_max: 0.2, box_difference_p99: 0.11 },
      /^boxes of 1 in 100 by 0\.110 pixels \(0\.1 are allowed\)$/,
    ],
    ["a node that did not look", "fp16", { box_difference_p99: null }, null],
    ["those of int8", "int8", { box_difference_max: 2, box_difference_p99: 2 }, null],
    ["masks that are equal", "fp32", { masks }, null],
    [
      "prototypes",
      "fp32",
      { masks: { ...masks, prototype_error: 2e-4 } },
      /^prototypes of masks by 0\.000200 of their size \(0\.0001 is allowed\)$/,
    ],
    [
      "their weights",
      "fp16",
      { masks: { ...masks, coefficient_error: 0.02 } },
      /^weights of prototypes by 0\.0200 of their size \(0\.01 /,
    ],
    [
      "prototypes that are no numbers",
      "int8",
      { masks: { ...masks, prototype_error: Number.NaN } },
      /^prototypes of masks by NaN/,
    ],
    [
      "masks",
      "int8",
      { masks: { ...masks, iou: 0.79 } },
      /^masks overlap by 0\.790 on average \(0\.8 is needed\)$/,
    ],
    ["objects without a mask", "int8", { masks: { ...masks, iou: null } }, null],
    ["a score", "fp16", { score_difference_max: 0.02 }, /^scores by 0\.0200 \(0\.01/],
    ["any score of int8", "int8", { score_difference_max: 0.3 }, null],
    ["scores on average", "int8", { confidence_ratio: 0.9 }, /^scores on average .* 0\.900/],
    [
      "average precision",
      "int8",
      { accuracy: { ...good.accuracy, map50: 0.78 } },
      /^map50 by 0\.0200 \(0\.01 is allowed\)/,
    ],
    [
      "its fall in half precision",
      "fp16",
      { accuracy: { ...good.accuracy, map50_95: 0.498 } },
      /^map50_95/,
    ],
    [
      "the last-ranked one of sixteen objects",
      "int8",
      { accuracy: { ...good.accuracy, truths: 16, map50: 0.8 - 0.0693, map50_95: 0.5 - 0.0693 } },
      null,
    ],
    [
      "more than one of them",
      "int8",
      { accuracy: { ...good.accuracy, truths: 16, map50_95: 0.42 } },
      /^map50_95 by 0\.0800 \(0\.075 is allowed\)$/,
    ],
    [
      "the only object",
      "int8",
      { accuracy: { truths: 1, map50: 0, map50_95: 0, model_map50: 1, model_map50_95: 1 } },
      /^map50 by 1\.00 \(0\.1 is allowed\),map50_95 by 1\.00 \(0\.1 is allowed\)$/,
    ],
    [
      "one of a thousand in half precision",
      "fp16",
      { accuracy: { ...good.accuracy, truths: 1_000, map50_95: 0.4989 } },
      null,
    ],
    ["its rise", "int8", { accuracy: { ...good.accuracy, map50: 0.9 } }, null],
  ])("know %s", (_, precision, more, wanted) => {
    const misses = missesOf({ ...good, ...more }, { precision, size });
    if (wanted) expect(misses.join()).toMatch(wanted);
    else expect(misses).toEqual([]);
  });

  it("leave out one object in a hundred, and one of fewer, but not the only one", () => {
    expect(p99Difference([])).toBeNull();
    expect(p99Difference([0.3])).toBe(0.3);
    expect(p99Difference([0.02, 0.3, 0.01])).toBe(0.02);
    const hundreds = Array.from({ length: 198 }, () => 0.01);
    expect(p99Difference([0.3, ...hundreds, 0.2])).toBe(0.01);
    expect(p99Difference([0.3, 0.2, ...hundreds, 0.1])).toBe(0.01);
    expect(p99Difference([0.3, 0.2, ...hundreds.slice(1), 0.1])).toBe(0.1);
  });

  it("grow with the input beyond 640 pixels", () => {
    expect(boxTolerance("fp32", [320, 640])).toBe(1e-3);
    expect(boxTolerance("int8", [1_280, 640])).toBe(6);
  });
});
