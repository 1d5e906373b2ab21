// The rules of the dataset quality report, at and around each of their thresholds.

import { describe, expect, it } from "vitest";
import {
  type DatasetCounts,
  qualityReport,
} from "../../../../edge/vision/labeling/datasets/quality.ts";
import { augmentationOf, stepBytes } from "../../../../gpu-node/training/settings.ts";
import { AUGMENTATION_PRESETS, AUGMENTATIONS } from "../../../../shared/detector/augmentation.ts";
import { detectorGraph, parameterCount } from "../../../../shared/detector/detector.ts";
import { DatasetReport } from "../../../../shared/wire/dataset-report.ts";
import { TrainSettings } from "../../../../shared/wire/training.ts";

const JOB = crypto.randomUUID();
const classOf = (name: string, count: number, frames = count) => ({ class: name, count, frames });

/** A report of one well labeled class, but for what is given. */
function report(more: Partial<DatasetCounts> = {}) {
  const leftOut = { leftOutFrames: 0, leftOutAnnotatedFrames: 0, pendingFrames: 0 };
  const sound = { tiny: 0, inTwoClasses: 0, images: { alike: [], unsplit: 0 } };
  const counts = {
    annotatedFrames: 500,
    totalFrames: 600,
    ...leftOut,
    ...sound,
    small: 0,
    ...more,
  };
  const classes = more.classes ?? [classOf("cell", 500)];
  const dataset = { jobId: JOB, include: "not_rejected" } as const;
  return DatasetReport.parse(qualityReport(dataset, { ...counts, classes }, null));
}
const codes = (given: DatasetReport) => given.warnings.map(({ code }) => code);
const warning = (given: DatasetReport, wanted: string) =>
  given.warnings.find(({ code }) => code === wanted);

describe("recommended settings", () => {
  it.each([
    [0, "det26n", "aggressive", 150, 4],
    [49, "det26n", "aggressive", 150, 4],
    [50, "det26n", "standard", 100, 4],
    [199, "det26n", "standard", 100, 8],
    [200, "det26s", "standard", 100, 8],
    [999, "det26s", "standard", 100, 16],
    [1_000, "det26m", "standard", 100, 8],
    [1_000_000, "det26m", "standard", 100, 8],
  ] as const)("of %i annotated frames: %s, %s, %i epochs, batch %i", (...row) => {
    const [annotatedFrames, variant, preset, epochs, batch_size] = row;
    const { recommended } = report({ annotatedFrames, totalFrames: annotatedFrames });
    expect(recommended).toEqual({
      job_id: JOB,
      variant,
      epochs,
      augmentation: preset,
      batch_size,
      image_size: 640,
      include: "not_rejected",
    });
    expect(TrainSettings.parse(recommended)).toMatchObject({ variant, epochs, batch_size });
  });

  it.each([
    [100, 0, 50_000, 32],
    [100, 500, 50_000, 8],
    [500, 500, 50_000, 4],
    [5_000, 500, 50_000, 2],
    // A sixteenth of 80 % of the frames, as a power of two.
    [10, 0, 639, 16],
    [10, 0, 640, 32],
  ])("of %i annotated frames, %i of 500 boxes small, %i frames: batch %i", (...row) => {
    const [annotatedFrames, small, totalFrames, batch] = row;
    const given = report({ annotatedFrames, small, totalFrames });
    expect(given.recommended.batch_size).toBe(batch);
  });

  it.each([
    ["RBC", "rbc ", true],
    ["car", "cars", true],
    ["platelet", "platelets", true],
    ["platelet", "platlet", true],
    ["truck", "track", true],
    ["traffic light", "Traffic_Light", true],
    ["lane 1", "lane 2", false],
    ["type A", "type B", false],
    ["HER2+", "HER2-", false],
    ["C", "C++", false],
    ["กิน", "กน", false],
    ["cat", "car", false],
    ["RBC", "WBC", false],
    ["person", "bicycle", false],
  ])("warn of classes that may be one mistyped: %s, %s", (one, other, isWarned) => {
    const given = report({ classes: [classOf(one, 500), classOf(other, 200)] });
    expect(codes(given).includes("similar_classes")).toBe(isWarned);
    if (!isWarned) return;
    expect(warning(given, "similar_classes")?.data).toEqual({ pairs: [[one, other]] });
  });

  it("warn of images that are the same and of boxes that are likely mistakes", () => {
    const alike = [
      ["a.jpg", "b.jpg"],
      ["c.jpg", "d.jpg", "e.jpg"],
    ];
    const given = report({ images: { alike, unsplit: 7 }, tiny: 1, inTwoClasses: 2 });
    const [same, camera] = given.warnings.filter(({ code }) => code === "similar_images");
    expect(same).toMatchObject({ severity: "advice", data: { images: 5, groups: alike } });
    expect(same?.message).toContain(
      '5 images are the same as others or look alike, such as "a.jpg"',
    );
    expect(camera).toMatchObject({ severity: "warning", data: { images: 7 } });
    expect(warning(given, "two_classes")?.message).toContain("2 boxes of one object are there");
    expect(warning(given, "tiny_boxes")?.message).toContain("1 box is at most a pixel");
  });

  it("name the frames that are not trained on", () => {
    const given = report({ leftOutFrames: 5, leftOutAnnotatedFrames: 4, pendingFrames: 1 });
    expect(codes(given).slice(0, 2)).toEqual(["left_out_frames", "pending_frames"]);
    expect(warning(given, "left_out_frames")?.message).toBe(
      "Not trained on: 5 frames, 4 of them annotated, within the gap between the two sides of the " +
        "split of a single video.",
    );
    expect(warning(given, "pending_frames")?.message).toContain("1 frame with a pending");
  });

  it.each(["det26n", "det26s", "det26m"] as const)("of %s fit a GPU of 24 GB", (variant) => {
    const annotatedFrames = { det26n: 199, det26s: 999, det26m: 1_000 }[variant];
    for (const small of [0, 500]) {
      const { recommended } = report({ annotatedFrames, small, totalFrames: 100_000 });
      expect(recommended.variant).toBe(variant);
      const { image_size: side, batch_size: batch } = recommended;
      const step = (count: number) =>
        stepBytes(parameterCount(detectorGraph(variant, 3)), side, count);
      expect(step(batch)).toBeLessThan(0.65 * 24e9);
      expect(step(2 * batch)).toBeGreaterThan(0.65 * 24e9);
    }
  });

  it.each([
    [249, 1_000, 640],
    [250, 1_000, 1280],
    [1_000, 1_000, 1280],
  ])("with %i small boxes of %i: %i px", (small, count, pixels) => {
    const given = report({ small, classes: [classOf("cell", count, 500)] });
    expect(given.recommended.image_size).toBe(pixels);
    expect(codes(given).includes("small_objects")).toBe(pixels === 1280);
    expect(given.small_object_share).toBe(small / count);
  });
});

describe("augmentation presets", () => {
  it.each(AUGMENTATIONS)("%s is told as a node trains by it", (preset) => {
    const settings = TrainSettings.parse({ augmentation: preset, epochs: 1_000 });
    expect(augmentationOf(settings)).toEqual(AUGMENTATION_PRESETS[preset]);
  });
});

describe("class balance", () => {
  it("is sorted by frequency, with shares, and equals keep their order", () => {
    const given = report({ classes: [classOf("a", 10), classOf("b", 70), classOf("c", 10)] });
    expect(given).toMatchObject({
      total_annotations: 90,
      class_count: 3,
      annotated_frames: 500,
      total_frames: 600,
      imbalance_ratio: 7,
    });
    expect(given.class_balance.map((one) => [one.class, one.count])).toEqual([
      ...[
        ["b", 70],
        ["a", 10],
        ["c", 10],
      ],
    ]);
    const shares = given.class_balance.map(({ percentage }) => percentage);
    expect(shares).toEqual([(100 * 70) / 90, (100 * 10) / 90, (100 * 10) / 90]);
  });

  it("leaves a class without annotations out of the ratio, and tells of it", () => {
    const given = report({ classes: [classOf("a", 100), classOf("none", 0), classOf("b", 50)] });
    expect(given.imbalance_ratio).toBe(2);
    expect(warning(given, "empty_class")).toMatchObject({ data: { classes: ["none"] } });
    expect(given.class_balance.at(-1)).toMatchObject({ class: "none", count: 0, percentage: 0 });
    expect(codes(given)).not.toContain("rare_class");
  });

  it("of no annotations at all has no ratio, no shares, and one severe warning", () => {
    const given = report({ annotatedFrames: 0, classes: [classOf("a", 0), classOf("b", 0)] });
    expect(given).toMatchObject({ imbalance_ratio: null, small_object_share: 0 });
    expect(given.warnings).toMatchObject([{ code: "no_annotations", severity: "severe" }]);
    expect(report({ classes: [] })).toMatchObject({ class_count: 0, imbalance_ratio: null });
  });
});

describe("warnings", () => {
  it("are none of a good dataset", () => {
    expect(report().warnings).toEqual([]);
  });

  it.each([
    [99, true],
    [100, false],
  ])("of a class on %i frames: %s", (frames, warned) => {
    const classes = [classOf("cell", 500), classOf("dot", 500, frames)];
    const found = warning(report({ classes }), "few_frames");
    expect(found !== undefined).toBe(warned);
    if (found) {
      expect(found.data).toEqual({ advised: 100, classes: [{ class: "dot", frames: 99 }] });
      expect(found.message).toContain("100 or more per class");
    }
  });

  it.each([
    [999, false],
    [1_000, true],
  ])("of %i annotations against 100: %s", (count, warned) => {
    const found = warning(
      report({ classes: [classOf("rare", 100), classOf("cell", count)] }),
      "class_imbalance",
    );
    expect(found !== undefined).toBe(warned);
    if (found) {
      expect(found.data).toMatchObject({ most: { class: "cell" }, rarest: { class: "rare" } });
      expect(found.message).toBe(
        '"cell" is 10 times as frequent as "rare": label more of the rare one.',
      );
    }
  });

  it.each([
    [9, "severe"],
    [10, "warning"],
    [19, "warning"],
    [20, undefined],
  ])("of a rarest class with %i instances: %s", (count, severity) => {
    const classes = [classOf("cell", 30), classOf("rare", count)];
    expect(warning(report({ classes }), "rare_class")?.severity).toBe(severity);
  });

  it("speak of one instance as one", () => {
    const classes = [classOf("rare", 1)];
    expect(warning(report({ classes }), "rare_class")?.message).toContain("only 1 instance:");
  });
});
