// Tracks of boxes that move, cross, hide and flicker.

import { describe, expect, it } from "vitest";
import type { Bbox } from "../../shared/tasks.ts";
import { iou, type TrackBox, track } from "../../shared/tracks.ts";

const at = (x: number, y: number, size = 40): Bbox => [x, y, x + size, y + size];
/** The track ids of each object, in the order of its boxes. */
function tracksOf(objects: readonly (TrackBox & { object: string })[]) {
  const boxes = objects.toSorted((left, right) => left.frame - right.frame);
  const ids = track(boxes);
  return Map.groupBy(
    boxes.map(({ object }, place) => ({ object, id: ids[place] })),
    ({ object }) => object,
  );
}
const idsOf = (tracks: ReturnType<typeof tracksOf>, object: string) => [
  ...new Set(tracks.get(object)?.map(({ id }) => id)),
];

describe("tracking", () => {
  it("keeps the ids of two that cross, by where they were going", () => {
    const objects = Array.from({ length: 40 }, (_, frame) => [
      { object: "right", frame, bbox: at(frame * 10, 100), score: 0.9 },
      { object: "left", frame, bbox: at(390 - frame * 10, 115), score: 0.8 },
    ]).flat();
    const tracks = tracksOf(objects);
    expect(idsOf(tracks, "right")).toHaveLength(1);
    expect(idsOf(tracks, "left")).toHaveLength(1);
    expect(idsOf(tracks, "left")).not.toEqual(idsOf(tracks, "right"));
  });

  it("bridges a hidden stretch, and gives a new id after a long one", () => {
    const seen = [...Array(10).keys(), ...Array.from({ length: 5 }, (_, index) => 20 + index)];
    const walker = seen.map((frame) => ({
      ...{ object: "walker", frame, bbox: at(50 + frame, 50), score: 0.9 },
    }));
    // Another object keeps the frames of the gap in the sequence.
    const clock = (until: number) =>
      Array.from({ length: until }, (_, frame) => ({
        ...{ object: "clock", frame, bbox: at(500, 500), score: 0.9 },
      }));
    expect(idsOf(tracksOf([...walker, ...clock(30)]), "walker")).toHaveLength(1);
    const late = { object: "walker", frame: 90, bbox: at(60, 50), score: 0.9 };
    expect(idsOf(tracksOf([...walker, late, ...clock(91)]), "walker")).toHaveLength(2);
  });

  it("lets a low score continue a track, and never begin one", () => {
    const faint = [0.9, 0.9, 0.2, 0.15, 0.9].map((score, frame) => ({
      ...{ object: "a", frame, score, bbox: at(10 + frame, 10) },
    }));
    expect(idsOf(tracksOf(faint), "a")).toEqual([1]);
    const never = [0.3, 0.3].map((score, frame) => ({
      ...{ object: "a", frame, score, bbox: at(10, 10) },
    }));
    expect(idsOf(tracksOf(never), "a")).toEqual([null]);
    expect(idsOf(tracksOf([{ object: "a", frame: 0, score: 0.05, bbox: at(1, 1) }]), "a")).toEqual([
      null,
    ]);
  });

  it("measures overlap", () => {
    expect(iou(at(0, 0), at(0, 0))).toBe(1);
    expect(iou(at(0, 0), at(20, 0))).toBeCloseTo(1 / 3, 12);
    expect(iou(at(0, 0), at(40, 0))).toBe(0);
  });
});
