// Suppression and fusion agree with ensemble-boxes, comparisons lose no object, and what is found
// on tiles comes back to where it is on the image that they were cut from, masks pixel by pixel.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { BlockFailure } from "../../../shared/workflow/block.ts";
import { FUSION_BLOCKS } from "../../../shared/workflow/blocks/fusion.ts";
import { fuseBoxes, keptBoxes, type ScoredBox } from "../../../shared/workflow/box-fusion.ts";
import { maskOnRoot, maskSteps } from "../../../shared/workflow/root-masks.ts";
import type { Detections, ImageFrame } from "../../../shared/workflow/values.ts";
import { runnerOf } from "../../support/block-runner.ts";

const run = runnerOf(FUSION_BLOCKS);

interface GoldenCase {
  iou: number;
  models: ScoredBox[][];
  fused: { avg: ScoredBox[]; max: ScoredBox[] };
  kept: { class_aware: number[]; agnostic: number[] };
}
const golden: { cases: GoldenCase[] } = JSON.parse(
  readFileSync(resolve(import.meta.dirname, "../../golden/workflow/box-fusion.json"), "utf8"),
);
const numbered = golden.cases.map((each, index) => [index, each] as const);

const FRAME: ImageFrame = { width: 1_000, height: 1_000, offset: [0, 0], scale: [1, 1] };
const onFrame = (objects: readonly unknown[], frame: ImageFrame = FRAME) => ({ frame, objects });
const byConfidence = (one: ScoredBox, other: ScoredBox) =>
  other.confidence - one.confidence || (one.bbox[0] ?? 0) - (other.bbox[0] ?? 0);

describe("suppression", () => {
  it.each(numbered)("keeps what ensemble-boxes keeps, case %i", (_, { iou, models, kept }) => {
    const suppression = { overlapMax: iou, overlap: "union" } as const;
    const boxes = models.flat();
    expect(keptBoxes(boxes, { ...suppression, isClassAware: true })).toEqual(kept.class_aware);
    expect(keptBoxes(boxes, { ...suppression, isClassAware: false })).toEqual(kept.agnostic);
  });

  it("keeps the order of boxes that are equally sure, and boxes that only touch", async () => {
    const [left, right] = [
      { class: "cat", confidence: 0.5, bbox: [0, 0, 10, 10] },
      { class: "cat", confidence: 0.5, bbox: [10, 0, 20, 10] },
    ];
    const { detections } = await run("nms@1", { detections: onFrame([left, right]), iou: 0 });
    expect(detections).toEqual(onFrame([left, right]));
  });
});

describe("consensus", () => {
  it.each(numbered)("fuses as ensemble-boxes does, case %i", async (_, { iou, models, fused }) => {
    const ports = models.map((objects, index) => [`detections_${index + 1}`, onFrame(objects)]);
    for (const [confidence, wanted] of [
      ["agreement", fused.avg],
      ["max", fused.max],
    ] as const) {
      const { detections } = await run(
        "consensus@1",
        { ...Object.fromEntries(ports), iou },
        { votes_min: 1, confidence },
      );
      const { objects } = detections as Detections;
      expect(objects.length).toBe(wanted.length);
      const sorted = wanted.toSorted(byConfidence);
      for (const [index, object] of objects.toSorted(byConfidence).entries()) {
        const other = sorted[index] as ScoredBox;
        expect(object.class).toBe(other.class);
        // The reference adds up in float32: boxes of a thousand pixels are right to a thousandth.
        expect(object.confidence).toBeCloseTo(other.confidence, 5);
        for (const [corner, value] of object.bbox.entries()) {
          expect(value).toBeCloseTo(other.bbox[corner] ?? NaN, 3);
        }
      }
    }
  });

  const cat = { class: "cat", confidence: 0.8, bbox: [0, 0, 100, 100] };
  const dog = { class: "dog", confidence: 0.6, bbox: [0, 0, 100, 90] };

  it("leaves out what too few models voted for, and counts a model once", async () => {
    const inputs = { detections_1: onFrame([cat, cat]), detections_2: onFrame([dog]) };
    const alone = await run("consensus@1", inputs, { votes_min: 2 });
    expect(alone).toEqual({ detections: onFrame([]), agreement: 0.5 });
    const blind = await run("consensus@1", inputs, { votes_min: 2, class_aware: false });
    expect(blind.detections).toMatchObject({ objects: [{ class: "cat", data: { votes: 2 } }] });
  });

  it("asks only models that looked: a masked one lowers nobody's confidence", async () => {
    const inputs = { detections_1: onFrame([cat]), detections_2: null };
    const { detections, agreement } = await run("consensus@1", inputs, { votes_min: 1 });
    expect(detections).toMatchObject({ objects: [{ confidence: 0.8 }] });
    expect(agreement).toBe(1);
    const none = await run("consensus@1", { detections_1: null });
    expect(none).toEqual({ detections: null, agreement: null });
  });

  it("refuses objects of two images", async () => {
    const other = onFrame([cat], { ...FRAME, offset: [5, 0] });
    const inputs = { detections_1: onFrame([cat]), detections_2: other };
    await expect(run("consensus@1", inputs)).rejects.toThrow(BlockFailure);
    await expect(run("compare@1", { a: onFrame([cat]), b: other })).rejects.toThrow(BlockFailure);
  });

  it("gives boxes without any confidence a box, too", () => {
    const box = { class: "cat", confidence: 0, bbox: [0, 0, 9, 9] as const };
    const boxes = [0, 1].map((model) => ({ ...box, bbox: [...box.bbox] as const, model }));
    const [fused] = fuseBoxes(boxes as never[], { iouMin: 0.5, isClassAware: true }); // same shape
    expect(fused).toMatchObject({ bbox: [0, 0, 9, 9], mean: 0, models: [0, 1] });
  });
});

describe("comparison", () => {
  const bbox = fc
    .tuple(fc.nat(6), fc.nat(6), fc.integer({ min: 1, max: 5 }), fc.integer({ min: 1, max: 5 }))
    .map(([x, y, width, height]) => [x, y, x + width, y + height]);
  const objects = fc.array(
    fc.record({
      class: fc.constantFrom("cat", "dog"),
      confidence: fc.constantFrom(0.2, 0.7),
      bbox,
    }),
    { maxLength: 8 },
  );

  it("tells every object once", async () => {
    await fc.assert(
      fc.asyncProperty(objects, objects, async (a, b) => {
        const result = await run("compare@1", { a: onFrame(a), b: onFrame(b) });
        const [both, onlyA, onlyB, other] = ["both", "only_a", "only_b", "other_class"].map(
          (port) => (result[port] as Detections).objects.length,
        ) as [number, number, number, number];
        expect(both + other + onlyA).toBe(a.length);
        expect(both + other + onlyB).toBe(b.length);
        const total = a.length + b.length;
        expect(result.agreement).toBe(total === 0 ? 1 : (2 * both) / total);
      }),
    );
  });
});

/** Run lengths of a mask given by its pixels, and back. */
const encode = (isOn: (x: number, y: number) => boolean, width: number, height: number) => {
  const counts = [0];
  let value = false;
  for (let pixel = 0; pixel < width * height; pixel++) {
    if (isOn(Math.floor(pixel / height), pixel % height) !== value) {
      counts.push(0);
      value = !value;
    }
    counts.push((counts.pop() ?? 0) + 1);
  }
  return { size: [height, width] as [number, number], counts };
};

describe("masks on the root", () => {
  it("are on where the pixel of the cut image under the root's pixel is on", () => {
    const side = fc.integer({ min: 1, max: 7 });
    const scale = fc.constantFrom(0.5, 1, 1.5, 3);
    fc.assert(
      fc.property(
        fc.record({ width: side, height: side, rootWidth: side, rootHeight: side }),
        fc.tuple(fc.integer({ min: -4, max: 6 }), fc.integer({ min: -4, max: 6 })),
        fc.tuple(scale, scale),
        fc.array(fc.boolean(), { minLength: 49, maxLength: 49 }),
        ({ width, height, rootWidth, rootHeight }, offset, scales, pixels) => {
          const isOn = (x: number, y: number) => pixels[x * height + y] === true;
          const root = { width: rootWidth, height: rootHeight };
          const frame: ImageFrame = { width, height, offset, scale: scales, root };
          const mask = encode(isOn, width, height);
          const wanted = encode(
            (x, y) => {
              const [cutX, cutY] = [
                Math.floor((x + 0.5 - offset[0]) / scales[0]),
                Math.floor((y + 0.5 - offset[1]) / scales[1]),
              ];
              const isInside = cutX >= 0 && cutY >= 0 && cutX < width && cutY < height;
              return isInside && isOn(cutX, cutY);
            },
            rootWidth,
            rootHeight,
          );
          expect(maskOnRoot(mask, frame, maskSteps())).toEqual(wanted);
        },
      ),
      { numRuns: 300 },
    );
  });

  it("are refused where they are broken, or more than can be paid for", () => {
    const frame = { ...FRAME, width: 4, height: 4 };
    const of = (counts: number[]) => ({ size: [4, 4] as [number, number], counts });
    expect(() => maskOnRoot(of([15]), frame, maskSteps())).toThrow("add up");
    expect(() => maskOnRoot(of([0, 17]), frame, maskSteps())).toThrow("add up");
    expect(() => maskOnRoot(of([16]), FRAME, maskSteps())).toThrow("size");
    expect(() => maskOnRoot(of([0, 16]), frame, { left: 3 })).toThrow("too detailed");
  });
});

describe("stitching", () => {
  const root = { width: 200, height: 100 };
  const tile = (x: number): ImageFrame => ({
    width: 60,
    height: 50,
    offset: [x, 0],
    scale: [2, 2],
    root,
  });
  const whole = { width: 200, height: 100, offset: [0, 0], scale: [1, 1] };
  const car = (confidence: number, bbox: number[]) => ({ class: "car", confidence, bbox });

  it("leaves out what the edge of a tile has cut off, but nothing of one and the same tile", async () => {
    const tiles = [
      onFrame(
        [car(0.5, [45, 10, 60, 20]), car(0.9, [5, 5, 15, 15]), car(0.4, [6, 6, 14, 14])],
        tile(0),
      ),
      onFrame([car(0.8, [5, 10, 25, 20])], tile(80)),
    ];
    const { detections } = await run("stitch@1", { detections: tiles });
    expect(detections).toEqual({
      frame: whole,
      objects: [
        car(0.9, [10, 10, 30, 30]),
        car(0.8, [90, 20, 130, 40]),
        car(0.4, [12, 12, 28, 28]),
      ],
    });
  });

  it("cuts boxes to the root, and leaves out what lies outside of it", async () => {
    const tiles = [onFrame([car(0.9, [-5, -5, 10, 10]), car(0.8, [0, 51, 5, 60])], tile(0))];
    const { detections } = await run("stitch@1", { detections: tiles });
    expect(detections).toEqual({ frame: whole, objects: [car(0.9, [0, 0, 20, 20])] });
  });

  it("is masked without any tile, and refuses tiles of two images or broken masks", async () => {
    expect(await run("stitch@1", { detections: [] })).toEqual({ detections: null });
    const tiles = [onFrame([], tile(0)), onFrame([])];
    await expect(run("stitch@1", { detections: tiles })).rejects.toThrow("one image");
    const broken = { ...car(1, [0, 0, 5, 5]), mask: { size: [1, 1], counts: [1] } };
    const one = [onFrame([broken], tile(0))];
    await expect(run("stitch@1", { detections: one })).rejects.toThrow(BlockFailure);
  });
});
