// The sides of a dataset's videos, drawn and kept. Goal: a video keeps its side whatever comes in,
// shares are met as nearly as whole videos allow, and look-alikes are together.

import fc from "fast-check";
import { expect, it } from "vitest";
import {
  type Side,
  type SideSpan,
  sidesOf,
} from "../../../../edge/vision/labeling/datasets/split.ts";
import { type DrawnVideo, drawSides } from "../../../../edge/vision/labeling/versions/sides.ts";

const SHARES = { valShare: 0.2, testShare: 0.1 };
const still = (index: number, group?: string): DrawnVideo => ({
  videoId: `video-${index}`,
  frames: [0],
  group,
  first: 0,
  last: 0,
});
const clip = (videoId: string, length: number): DrawnVideo => ({
  videoId,
  frames: Array.from({ length }, (_, index) => index),
  first: 0,
  last: length - 1,
});
const stills = (count: number, from = 0) =>
  Array.from({ length: count }, (_, index) => still(from + index));
const countOf = (spans: readonly SideSpan[], side: string) =>
  spans.filter((span) => span.side === side).length;

it("meets the shares of stills", () => {
  const spans = drawSides(stills(1_000), [], SHARES);
  expect(["train", "val", "test"].map((side) => countOf(spans, side))).toEqual([700, 200, 100]);
});

it("keeps every side as the dataset grows, in any steps, and meets the shares again", () => {
  const steps = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 8 });
  fc.assert(
    fc.property(steps, (sizes) => {
      let spans: SideSpan[] = [];
      let count = 0;
      for (const size of sizes) {
        count += size;
        const more = drawSides(stills(count), spans, SHARES);
        const known = new Set(spans.map(({ videoId }) => videoId));
        expect(more.filter(({ videoId }) => known.has(videoId))).toEqual([]);
        spans = [...spans, ...more];
      }
      const own = new Map(spans.map((one) => [one.videoId, one.side]));
      expect(own.size).toBe(count);
      if (count < 3) return;
      for (const [side, share] of Object.entries({ train: 0.7, val: 0.2, test: 0.1 })) {
        const found = [...own.values()].filter((one) => one === side).length;
        expect(Math.abs(found - share * count)).toBeLessThanOrEqual(2);
      }
    }),
  );
});

it("draws the same sides whatever the order of the videos", () => {
  const videos = stills(50);
  const sorted = (spans: SideSpan[]) =>
    spans.map(({ videoId, side }) => `${videoId} ${side}`).sort();
  expect(sorted(drawSides(videos.toReversed(), [], SHARES))).toEqual(
    sorted(drawSides(videos, [], SHARES)),
  );
});

it("puts look-alikes on the side where the first of them is", () => {
  const before = drawSides(stills(30), [], SHARES);
  const test = before.find(({ side }) => side === "test")?.videoId;
  const alike = { ...still(99, test), videoId: "alike" };
  const videos = stills(30).map((one) =>
    one.videoId === test ? { ...one, group: one.videoId } : one,
  );
  expect(drawSides([...videos, alike], before, SHARES)).toEqual([
    { videoId: "alike", fromIndex: 0, side: "test" },
  ]);
});

it("has a frame on each side from three videos on, and draws none without a share", () => {
  const clips = ["a", "b", "c"].map((id, index) => clip(id, 100 * (index + 1)));
  expect(new Set(drawSides(clips, [], SHARES).map(({ side }) => side)).size).toBe(3);
  // A long video is trained on, in whatever order they come.
  for (const long of ["a", "b", "c"]) {
    const lengths = ["a", "b", "c"].map((id) => clip(id, id === long ? 10_000 : 10));
    const train = drawSides(lengths, [], SHARES).filter(({ side }) => side === "train");
    expect(train.map(({ videoId }) => videoId)).toEqual([long]);
  }
  const none = drawSides(stills(20), [], { valShare: 0.2, testShare: 0 });
  expect(countOf(none, "test")).toBe(0);
});

it("cuts a dataset's only video into blocks of time, which stay when others come", () => {
  const only = clip("clip", 200);
  const spans = drawSides([only], [], SHARES);
  const sides = [...sidesOf(only.frames, spans).values()];
  const count = (side: string) => sides.filter((one) => one === side).length;
  expect([count("train"), count("val"), count("test")]).toEqual([140, 40, 20]);
  const more = drawSides([only, ...stills(3)], spans, SHARES);
  expect(more.map(({ videoId }) => videoId).sort()).toEqual(["video-0", "video-1", "video-2"]);
  // Frames that are labeled later are of the block that they lie in.
  const later = sidesOf([0, 1, 2, 199], spans);
  expect([...later.values()]).toEqual([sides[0], sides[1], sides[2], sides[199]]);
});

it("cuts the only video over all that its jobs are over, however little is labeled by then", () => {
  const some = { ...clip("clip", 10_000), frames: [0, 10, 20] };
  const spans = drawSides([some], [], SHARES);
  expect(spans).toEqual(drawSides([clip("clip", 10_000)], [], SHARES));
});

it("gives a copy of a video that was cut the same stretches", () => {
  const only = { ...clip("clip", 200), group: "clip" };
  const spans = drawSides([only], [], SHARES);
  const copy = { ...only, videoId: "copy" };
  expect(drawSides([only, copy], spans, SHARES)).toEqual(
    spans.map((span) => ({ ...span, videoId: "copy" })),
  );
});

const told = (side: Side, ...videos: readonly DrawnVideo[]): SideSpan[] =>
  videos.map(({ videoId }) => ({ videoId, fromIndex: 0, side }));

it("keeps what imports tell, after what is known and before what is drawn", () => {
  const [one, other, third, ...rest] = stills(20) as [DrawnVideo, DrawnVideo, DrawnVideo];
  const known = told("train", one);
  const brought = [...told("test", one, other), ...told("val", third)];
  const spans = drawSides([one, other, third, ...rest], known, SHARES, brought);
  expect(spans.slice(0, 2)).toEqual([
    { ...told("test", other)[0], origin: "import" },
    { ...told("val", third)[0], origin: "import" },
  ]);
  expect(
    spans
      .slice(2)
      .map(({ videoId }) => videoId)
      .toSorted(),
  ).toEqual(rest.map(({ videoId }) => videoId).toSorted());
  expect(spans.slice(2).some(({ origin }) => origin)).toBe(false);
  // Shares are those of all frames together: a test frame less is drawn.
  expect(countOf(spans, "test")).toBe(2);
});

it("puts look-alikes on the most held-out side that is told for one of them", () => {
  const group = [still(1, "g"), still(2, "g"), still(3, "g")] as const;
  const brought = [...told("train", group[0]), ...told("test", group[2]), ...told("val", still(4))];
  const spans = drawSides([...group, still(4), ...stills(5, 10)], [], SHARES, brought);
  expect(spans.filter(({ origin }) => origin).map(({ side }) => side)).toEqual([
    ...["test", "test", "test", "val"],
  ]);
  // One that is known already is followed: a frame that was trained on measures nothing.
  const after = drawSides([...group, still(4)], told("train", group[1]), SHARES, brought);
  expect(after.filter(({ videoId }) => videoId !== "video-4")).toEqual([
    ...told("train", group[0], group[2]),
  ]);
});

it("draws from training frames where imports tell none for validation", () => {
  const all = stills(20);
  const spans = drawSides(all, [], SHARES, told("train", ...all));
  expect([countOf(spans, "val"), countOf(spans, "test")]).toEqual([4, 2]);
  // A side that is known is one to validate on.
  const [first, ...others] = all as [DrawnVideo];
  const kept = drawSides(all, told("val", first), SHARES, told("train", ...all));
  expect(kept.map(({ side, origin }) => [side, origin])).toEqual(
    others.map(() => ["train", "import"]),
  );
});

it("has frames of a video on the side of the told one before them", () => {
  const video = clip("clip", 100);
  const spans = (["train", "val", "test"] as const).map((side, index) => ({
    videoId: "clip",
    fromIndex: index * 40,
    side,
  }));
  expect(drawSides([video], [], SHARES, spans)).toEqual(
    spans.map((span) => ({ ...span, origin: "import" })),
  );
});
