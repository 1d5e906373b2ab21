// Tracks over drawn motion: who keeps an id, who gets a new one, and which detections repeat
// another class's.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { flagDuplicates } from "../../gpu-node/segmenters/duplicates.ts";
import { type FrameBoxes, track } from "../../shared/detector/tracks.ts";
import type { Bbox } from "../../shared/tasks/tasks.ts";

const seed = process.env.SEED ? { seed: Number(process.env.SEED) } : {};

const at = (x: number, y: number, size = 40): Bbox => [x, y, x + size, y + size];
const box = (x: number, y: number, confidence = 0.9) => ({ bbox: at(x, y), confidence });
const frames = (...lists: FrameBoxes["boxes"][]): FrameBoxes[] =>
  lists.map((boxes, frameIndex) => ({ frameIndex, boxes }));

describe("a track", () => {
  it("follows two objects that cross, by their motion", () => {
    const crossing = Array.from({ length: 21 }, (_, step) => [
      box(step * 10, 100 - step * 2),
      box(200 - step * 10, 60 + step * 2),
    ]);
    const ids = track(frames(...crossing));
    expect(new Set(ids.map(([first]) => first))).toEqual(new Set([1]));
    expect(new Set(ids.map(([, second]) => second))).toEqual(new Set([2]));
  });

  it("lives on through weak sightings, which start none", () => {
    const ids = track(
      frames([box(0, 0)], [box(2, 0, 0.2)], [box(4, 0, 0.2), box(200, 0, 0.3)], [box(6, 0)]),
    );
    expect(ids).toEqual([[1], [1], [1, null], [1]]);
  });

  it("is the same after being hidden, and another after too long", () => {
    const hidden = (count: number) =>
      frames([box(0, 0)], [box(5, 0)], [box(10, 0)], ...Array(count).fill([]), [
        box(10 + 5 * (count + 1), 0),
      ]);
    expect(track(hidden(3), { lostFramesMax: 5 }).at(-1)).toEqual([1]);
    expect(track(hidden(6), { lostFramesMax: 5 }).at(-1)).toEqual([2]);
  });

  it("counts motion by frame index, so gaps between sampled frames do not break it", () => {
    const moving = [0, 1, 2, 3, 7, 8].map((frameIndex) => ({
      frameIndex,
      boxes: [box(frameIndex * 12, 0)],
    }));
    expect(track(moving).flat()).toEqual([1, 1, 1, 1, 1, 1]);
  });

  it("numbers from where it is told, and takes no part below the lowest confidence", () => {
    expect(track(frames([box(0, 0), box(0, 0, 0.05)]), { firstId: 10 })).toEqual([[10, null]]);
    expect(track([])).toEqual([]);
  });

  it("gives each box one id, and no id twice in a frame, over random frames", () => {
    const boxes = fc.array(
      fc.record({
        bbox: fc
          .tuple(fc.integer({ max: 200, min: 0 }), fc.integer({ max: 200, min: 0 }))
          .map(([x, y]) => at(x, y)),
        confidence: fc.double({ min: 0, max: 1, noNaN: true }),
      }),
      { maxLength: 8 },
    );
    fc.assert(
      fc.property(fc.array(boxes, { maxLength: 12 }), (lists) => {
        const ids = track(frames(...lists));
        expect(ids.map((list) => list.length)).toEqual(lists.map((list) => list.length));
        ids.forEach((list, index) => {
          const given = list.filter((id) => id !== null);
          expect(new Set(given).size).toBe(given.length);
          lists[index]?.forEach(({ confidence }, position) => {
            if (confidence >= 0.5) expect(list[position]).not.toBeNull();
            if (confidence < 0.1) expect(list[position]).toBeNull();
          });
        });
      }),
      { numRuns: 200, ...seed },
    );
  });
});

describe("duplicates", () => {
  const detection = (class_name: string, bbox: Bbox, confidence: number) => ({
    class_name,
    bbox,
    confidence,
  });

  it("point from the less to the more confident of two classes on one object", () => {
    const flags = flagDuplicates([
      detection("truck", at(0, 0), 0.4),
      detection("car", at(1, 0), 0.8),
      detection("car", at(100, 0), 0.7),
      detection("van", at(0, 1), 0.3),
    ]);
    expect(flags).toEqual([1, null, null, 1]);
  });

  it("are never of the same class, nor chained, nor below the overlap", () => {
    expect(
      flagDuplicates([detection("car", at(0, 0), 0.9), detection("car", at(0, 0), 0.8)]),
    ).toEqual([null, null]);
    expect(
      flagDuplicates([detection("car", at(0, 0), 0.9), detection("bus", at(3, 0), 0.8)]),
    ).toEqual([null, null]);
    const tie = [detection("a", at(0, 0), 0.5), detection("b", at(0, 0), 0.5)];
    expect(flagDuplicates(tie)).toEqual([null, 0]);
  });
});
