// Train and validation: no frame on both sides, repeatable, near the share, and never side by side.

import fc from "fast-check";
import { assert, describe, expect, it } from "vitest";
import { type SplitVideo, splitFrames } from "../../../../edge/vision/labeling/datasets/split.ts";

const seed = process.env.SEED ? { seed: Number(process.env.SEED) } : {};
const frames = (count: number) => Array.from({ length: count }, (_, index) => index * 3);
const videos = fc
  .array(fc.integer({ min: 0, max: 300 }), { minLength: 1, maxLength: 12 })
  .map((counts) =>
    counts.map((count, index): SplitVideo => ({ videoId: `v${index}`, frames: frames(count) })),
  );

/** The split of a single video of so many frames. */
function splitOne(count: number, number: number) {
  const given = [{ videoId: "v", frames: frames(count) }];
  const own = splitFrames(given, { valShare: 0.2, seed: number }).get("v");
  assert(own, "the video has frames");
  return own;
}

describe("the split of a dataset", () => {
  it("keeps a video whole where there are several, and both sides filled", () => {
    fc.assert(
      fc.property(videos, fc.nat(), (given, number) => {
        const sides = splitFrames(given, { valShare: 0.2, seed: number });
        const labeled = given.filter((video) => video.frames.length > 0);
        if (labeled.length < 2) return;
        const of = labeled.map(({ videoId, frames: own }) => {
          const used = new Set(own.map((frame) => sides.get(videoId)?.sides.get(frame)));
          expect(used.size).toBe(1);
          return [...used][0];
        });
        expect(new Set(of)).toEqual(new Set(["train", "val"]));
      }),
      { numRuns: 500, ...seed },
    );
  });

  it("is the same for the same seed", () => {
    fc.assert(
      fc.property(videos, fc.nat(), (given, number) => {
        const once = splitFrames(given, { valShare: 0.3, seed: number });
        expect(splitFrames(given, { valShare: 0.3, seed: number })).toEqual(once);
      }),
      { ...seed },
    );
  });

  it("cuts a single video into blocks of time, every frame on a side, with a gap without its border", () => {
    for (let number = 0; number < 50; number++) {
      const { sides, border } = splitOne(1_000, number);
      const val = [...sides].filter(([, side]) => side === "val").map(([frame]) => frame / 3);
      const train = [...sides]
        .filter(([frame, side]) => side === "train" && !border.has(frame))
        .map(([frame]) => frame / 3);
      expect(sides.size).toBe(1_000);
      expect(val.length).toBe(200);
      expect(train.length).toBeGreaterThan(700);
      expect([...border].every((frame) => sides.get(frame) === "train")).toBe(true);
      const apart = val.flatMap((one) => train.map((two) => Math.abs(one - two)));
      expect(apart.filter((frames) => frames <= 9)).toEqual([]);
    }
  });

  it("has a border in a short video too", () => {
    for (let number = 0; number < 50; number++) {
      const { sides, border } = splitOne(50, number);
      expect([...sides.values()].filter((side) => side === "val")).toHaveLength(10);
      const next = [...sides].filter(
        ([frame, side]) =>
          side === "train" && [frame - 3, frame + 3].some((other) => sides.get(other) === "val"),
      );
      expect(next.map(([frame]) => frame)).toEqual([...border]);
    }
  });

  it("never validates on most of a job because one video is long", () => {
    const given = [900, 50, 50].map((count, index) => ({
      videoId: `v${index}`,
      frames: frames(count),
    }));
    for (let number = 0; number < 50; number++) {
      const sides = splitFrames(given, { valShare: 0.2, seed: number });
      expect([...(sides.get("v0")?.sides.values() ?? [])][0]).toBe("train");
    }
  });

  it("gives even two frames a side each, and no validation when none is wanted", () => {
    const two = [{ videoId: "v", frames: [4, 9] }];
    const sides = splitFrames(two, { valShare: 0.2, seed: 1 }).get("v")?.sides;
    expect(new Set(sides?.values())).toEqual(new Set(["train", "val"]));
    const none = splitFrames(two, { valShare: 0, seed: 1 }).get("v")?.sides;
    expect([...(none?.values() ?? [])]).toEqual(["train", "train"]);
    const many = [...two, { videoId: "w", frames: [1] }];
    const all = [...splitFrames(many, { valShare: 0, seed: 1 }).values()];
    expect(all.flatMap((own) => [...own.sides.values()])).toEqual(["train", "train", "train"]);
  });
});
