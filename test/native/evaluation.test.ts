// Metrics of a split. Goal: they are those of the detections that the same engine predicts on the
// same images letterboxed and that the predictor cuts at the image, whatever the batch; an
// evaluation ends when it is told to.

import { describe, expect, it } from "vitest";
import type { Detections, Engine } from "../../native/index.d.ts";
import { placementOf, unletterbox } from "../../shared/detector/letterbox.ts";
import { native } from "./engine.ts";
import { COLOURS, type RgbImage, rectangleImages, withImages } from "./rectangle-images.ts";

const SIZE = 160;

/** The image as the engine is to see it: at its own scale, grey around. */
function padded({ width, height, rgb }: RgbImage) {
  const [left, top] = [(SIZE - width) / 2, (SIZE - height) / 2];
  const images = new Float32Array(3 * SIZE * SIZE).fill(114 / 255);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      for (const c of [0, 1, 2]) {
        const value = (rgb[(y * width + x) * 3 + c] as number) / 255;
        images[c * SIZE * SIZE + (y + top) * SIZE + x + left] = value;
      }
    }
  }
  return { images, left, top };
}

/** Detections in pixels of the image, cut at it as those of the predictor are. */
function cutAtImage(detections: Detections, { width, height }: RgbImage): Detections {
  const placement = placementOf({ width, height }, { width: SIZE, height: SIZE });
  const rows = Array.from({ length: detections.length / 6 }, (_, row) =>
    detections.subarray(6 * row, 6 * row + 6),
  );
  return Float32Array.from(
    rows.flatMap(([x1 = 0, y1 = 0, x2 = 0, y2 = 0, ...rest]) => {
      const bbox = unletterbox([x1, y1, x2, y2], placement);
      return bbox ? [...bbox, ...rest] : [];
    }),
  );
}

/** Objects where the untrained engine sees some, so that the figures are not all zero. */
async function withObjectsItSees(engine: Engine, sources: readonly RgbImage[]) {
  const found: Detections[] = [];
  const seen: RgbImage[] = [];
  for (const [index, image] of sources.entries()) {
    const { images, left, top } = padded(image);
    const batch = { images, count: 1, height: SIZE, width: SIZE };
    const [detections] = (await engine.predict(batch, 0.001)) as [Detections];
    found.push(detections);
    const boxes = [0, 1, 2].flatMap((i) => {
      const from = ((index * 5 + i * 11) % (detections.length / 6)) * 6;
      const [x1 = 0, y1 = 0, x2 = 0, y2 = 0, , cls = 0] = detections.subarray(from, from + 6);
      const clamp = (value: number, last: number) => Math.min(Math.max(value, 0), last);
      const corners = [
        ...[clamp(x1 - left + i, image.width), clamp(y1 - top - i, image.height)],
        ...[clamp(x2 - left + i, image.width), clamp(y2 - top - i, image.height)],
      ] as [number, number, number, number];
      const isBox = corners[2] > corners[0] && corners[3] > corners[1];
      return isBox ? [[cls, ...corners]] : [];
    });
    seen.push({ ...image, boxes });
  }
  const truths = seen.map(({ boxes }) => Float32Array.from(boxes.flat()));
  const moved = seen.map((image) => {
    const { left, top } = padded(image);
    return Float32Array.from(
      image.boxes.flatMap(([cls = 0, x1 = 0, y1 = 0, x2 = 0, y2 = 0]) => [
        ...[cls, x1 + left, y1 + top, x2 + left, y2 + top],
      ]),
    );
  });
  const cut = found.map((detections, index) => cutAtImage(detections, seen[index] as RgbImage));
  const classes = COLOURS.length;
  return {
    seen,
    expected: native.evaluateDetections({ classes, detections: cut, truths }),
    uncut: native.evaluateDetections({ classes, detections: found, truths: moved }),
  };
}

describe.skipIf(!native)("evaluation", () => {
  it("measures what the engine predicts on the letterboxed images", async () => {
    const sources = rectangleImages(10);
    await withImages({ sources }, async (engine, { path, images }) => {
      const { seen, expected, uncut } = await withObjectsItSees(engine, sources);
      expect(expected.mAP50).toBeGreaterThan(0);
      // What lies outside of an image counts against a box that is not cut.
      expect(uncut.mAP50_95).toBeLessThan(expected.mAP50_95 - 0.01);
      const entries = images.map((image, index) => ({
        ...image,
        boxes: Float32Array.from(seen[index]?.boxes.flat() ?? []),
      }));
      await engine.setDataset("val", { path, images: entries });
      for (const batch of [1, 4, 64]) {
        const done: number[] = [];
        const result = await engine.evaluate(
          { split: "val", batch, imageSize: SIZE },
          ({ images: count, of }) => {
            expect(of).toBe(10);
            done.push(count);
          },
        );
        expect(done).toEqual([...done].sort((a, b) => a - b));
        expect(result.images).toBe(10);
        expect(result.seconds).toBeGreaterThan(0);
        // Batches of other sizes are summed in another order: a rank may change with a last digit.
        expect(result.mAP50).toBeCloseTo(expected.mAP50, 3);
        expect(result.mAP50_95).toBeCloseTo(expected.mAP50_95, 3);
        expect(result.recall).toBeCloseTo(expected.recall, 3);
        // Of those that drift looks at; below, one more or less is at the bound of what counts.
        expect([...result.confidenceBins].slice(5)).toEqual([...expected.confidenceBins].slice(5));
        expect(result.perClass.map((own) => own?.truths)).toEqual(
          expected.perClass.map((own) => own?.truths),
        );
      }
    });
  });

  it("letterboxes into the size it is asked for", async () => {
    const sources = rectangleImages(6);
    await withImages({ sources }, async (engine) => {
      for (const imageSize of [64, 96, 320]) {
        const result = await engine.evaluate({ split: "train", batch: 4, imageSize });
        expect(result.images).toBe(6);
        expect(result.perClass.map((own) => own?.truths)).toEqual([1, 1, 1, 1, 1, 1]);
      }
    });
  });

  it("ends within a step of an interrupt, with what was done, and begins anew afterwards", async () => {
    const sources = rectangleImages(60);
    await withImages({ sources }, async (engine) => {
      const options = { split: "train", batch: 1, imageSize: 320 } as const;
      const result = await engine.evaluate(options, () => engine.interrupt());
      expect(result.images).toBeGreaterThan(0);
      expect(result.images).toBeLessThan(60);
      const again = await engine.evaluate({ ...options, imageSize: 32, batch: 64 });
      expect(again.images).toBe(60);
    });
  });

  it("refuses a split without a dataset and sizes that no network takes", async () => {
    await withImages({ sources: rectangleImages(1) }, async (engine) => {
      const refused = (options: Parameters<Engine["evaluate"]>[0]) =>
        expect(engine.evaluate(options)).rejects.toMatchObject({ code: "bad_argument" });
      await refused({ split: "val", batch: 1, imageSize: SIZE });
      await refused({ split: "train", batch: 0, imageSize: SIZE });
      await refused({ split: "train", batch: 1, imageSize: 100 });
      await refused({ split: "test" as "val", batch: 1, imageSize: SIZE });
    });
  });

  it("leaves no engine behind", () => {
    expect(native.alive().engines).toBe(0);
  });
});
