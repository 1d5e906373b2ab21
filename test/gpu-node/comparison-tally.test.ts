// What a comparison comes to, without any model: figures against pycocotools' of the same boxes,
// the counts of what differs, and the order in which frames are told.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { ComparisonRanking } from "../../gpu-node/tasks/comparison-ranking.ts";
import { ComparisonTally, quantileMs } from "../../gpu-node/tasks/comparison-tally.ts";
import { ComparedFrame } from "../../shared/tasks/comparison-task.ts";
import type { Bbox, Prediction } from "../../shared/tasks/tasks.ts";
import { SCENES } from "../peers/formats-scenes.ts";

const GOLDEN = JSON.parse(
  readFileSync(resolve(import.meta.dirname, "../golden/average-precision.json"), "utf8"),
) as Record<string, { mAP50: number; mAP50_95: number }>;

const head = (frame_index: number) => ({
  video_id: null,
  filename: "a.mp4",
  frame_index,
  time: frame_index / 10,
  width: 1_000,
  height: 1_000,
  truth: null,
});
const found = (name: string, x: number, confidence = 0.9): Prediction => ({
  class: name,
  confidence,
  bbox: [x, 0, x + 10, 10],
});
const RULES = { iou: 0.5, confidences: { a: 0.5, b: 0.5 }, hasTruth: false };

describe("figures by the truth", () => {
  it.each(SCENES.map((scene) => [scene.name, scene] as const))(
    "are pycocotools' for either model: %s",
    (name, { images }) => {
      const confidences = { a: 0.5, b: 0.9 };
      const tally = new ComparisonTally({ iou: 0.5, confidences, hasTruth: true });
      for (const [index, { truths, detections }] of images.entries()) {
        const truth = truths.map(([own, ...bbox]) => ({ class: `c${own}`, bbox: bbox as Bbox }));
        const rows = detections
          .map((row) => ({
            class: `c${row[5]}`,
            confidence: row[4] ?? 0,
            bbox: row.slice(0, 4) as Bbox,
          }))
          .sort((one, other) => other.confidence - one.confidence);
        tally.add({ ...head(index), truth }, { a: rows, b: rows });
      }
      const figures = tally.figures();
      const { a, b } = figures?.overall ?? {};
      for (const side of [a, b]) {
        expect(side?.ap50).toBeCloseTo(GOLDEN[name]?.mAP50 ?? -1, 10);
        expect(side?.ap50_95).toBeCloseTo(GOLDEN[name]?.mAP50_95 ?? -1, 10);
      }
      // The same boxes; but less of them are sure enough to count.
      expect(b?.detections).toBeLessThan(a?.detections ?? 0);
      expect(b?.truths).toBe(a?.truths);
      expect(figures?.per_class.map((one) => one.class).sort()).toEqual(["c0", "c1", "c2"]);
    },
  );

  it("are those of the asked confidence and overlap, and null without a truth", () => {
    const truth = [{ class: "disc", bbox: [0, 0, 10, 10] as Bbox }];
    const add = (iou: number) => {
      const tally = new ComparisonTally({ ...RULES, iou, hasTruth: true });
      tally.add({ ...head(0), truth }, { a: [found("disc", 2), found("star", 50)], b: [] });
      return tally.figures();
    };
    const near = add(0.5);
    expect(near?.overall.a).toMatchObject({
      truths: 1,
      detections: 2,
      true_positives: 1,
      false_positives: 1,
      false_negatives: 0,
      precision: 0.5,
      recall: 1,
      ap50: 1,
    });
    expect(near?.overall.b).toMatchObject({ truths: 1, detections: 0, precision: null, recall: 0 });
    expect(near?.per_class.map((one) => [one.class, one.a.ap50, one.b.ap50])).toEqual([
      ["disc", 1, 0],
      ["star", null, null],
    ]);
    // Boxes that overlap by 8 / 12.
    expect(add(0.7)?.overall.a).toMatchObject({ true_positives: 0, precision: 0, ap50: 1 });
    expect(new ComparisonTally(RULES).figures()).toBeNull();
  });
});

describe("a frame", () => {
  it("counts what both, one or two classes found, and by how much it differs", () => {
    const tally = new ComparisonTally(RULES);
    const a = [found("disc", 0), found("disc", 100), found("disc", 200), found("disc", 300, 0.4)];
    const b = [found("disc", 2), found("star", 100), found("disc", 400)];
    const frame = tally.add(head(7), { a, b });
    expect(ComparedFrame.parse(frame)).toEqual(frame);
    expect(frame).toMatchObject({ both: 1, other_class: 1, only_a: 1, only_b: 1 });
    expect(frame.objects.map(({ match, iou }) => [match, iou])).toEqual([
      ["both", 0.666667],
      ["other_class", 1],
      ["only_a", null],
      ["only_b", null],
    ]);
    expect(frame.difference).toBeCloseTo(3 + 1 / 3, 5);
    tally.add(head(8), { a: [found("disc", 0)], b: [found("disc", 0)] });
    expect(tally.agreement()).toEqual({
      both: 2,
      other_class: 1,
      only_a: 1,
      only_b: 1,
      iou: 0.833334,
    });
    expect(tally.objects).toBe(5);
  });

  it("is told in the order of what differs, of equals in the order they came", async () => {
    const tally = new ComparisonTally(RULES);
    const ranking = new ComparisonRanking(2);
    const image = { data: new Uint8Array(3 * 64 * 64), width: 64, height: 64 };
    for (const [index, count] of [0, 2, 1, 2, 3].entries()) {
      const a = Array.from({ length: count }, (_, at) => found("disc", 20 * at));
      await ranking.add(tally.add(head(index), { a, b: [] }), image);
    }
    const { bytes, blocks } = ranking.report();
    const lines = bytes.toString().trimEnd().split("\n");
    expect(lines.map((line) => JSON.parse(line).frame_index)).toEqual([4, 1, 3, 2, 0]);
    expect(blocks).toEqual([0]);
    expect(await Array.fromAsync(ranking.overlays())).toHaveLength(2);
  });

  it("begins a block of the report where the offsets say", async () => {
    const tally = new ComparisonTally(RULES);
    const ranking = new ComparisonRanking(0);
    const image = { data: new Uint8Array(3), width: 1, height: 1 };
    for (let index = 0; index < 45; index++) {
      await ranking.add(tally.add(head(index), { a: [], b: [] }), image);
    }
    const { bytes, blocks } = ranking.report();
    const firsts = blocks.map((from) => bytes.subarray(from).toString().split("\n")[0] ?? "");
    expect(firsts.map((line) => JSON.parse(line).frame_index)).toEqual([0, 20, 40]);
  });
});

it("tells the duration that a share of all stays within", () => {
  const durations = Array.from({ length: 20 }, (_, index) => 20 - index);
  expect([0.5, 0.95, 1].map((part) => quantileMs(durations, part))).toEqual([10, 19, 20]);
  expect(quantileMs([], 0.5)).toBe(0);
});
