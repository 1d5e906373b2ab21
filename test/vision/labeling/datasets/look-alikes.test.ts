// Images that are the same, or nearly. Goal: they are found among very many, and no split has one
// on each side; different images, and those of a fixed camera, are split as before.

import { describe, expect, it } from "vitest";
import {
  type HashedVideo,
  lookAlikes,
} from "../../../../edge/vision/labeling/datasets/look-alikes.ts";
import { splitFrames } from "../../../../edge/vision/labeling/datasets/split.ts";
import { seeded } from "../../../support/weights.ts";

const random = seeded(7);
const bits = () => Array.from({ length: 256 }, () => (random() < 0.5 ? 0 : 1));
const hex = (given: readonly number[]) =>
  Array.from({ length: 64 }, (_, digit) =>
    Number.parseInt(given.slice(4 * digit, 4 * digit + 4).join(""), 2).toString(16),
  ).join("");
/** The bits with so many others turned over. */
function turned(given: readonly number[], count: number): number[] {
  const order = given.map((_, index) => ({ index, key: random() })).sort((a, b) => a.key - b.key);
  const chosen = new Set(order.slice(0, count).map(({ index }) => index));
  return given.map((bit, index) => (chosen.has(index) ? 1 - bit : bit));
}
const still = (id: string, look: readonly number[] | null, more: Partial<HashedVideo> = {}) => ({
  id,
  frame_count: 1,
  bytes: 1_000,
  pixels: hex(bits()),
  look: look && hex(look),
  ...more,
});
const others = (count: number) => Array.from({ length: count }, (_, at) => still(`o${at}`, bits()));

describe("images", () => {
  it("that are the same are together, whatever they are called and however plain", () => {
    const pixels = hex(bits());
    const same = ["a", "b", "c"].map((id) => still(id, null, { pixels }));
    const clip = { frame_count: 90, pixels };
    const clips = ["x", "y"].map((id) => still(id, null, clip));
    // Another clip, of which one frame is the same.
    clips.push(still("z", null, { ...clip, bytes: 1_001 }));
    const { groups, unsplit } = lookAlikes([...others(20), ...same, ...clips]);
    expect(groups.map((ids) => ids.toSorted())).toEqual([
      ["a", "b", "c"],
      ["x", "y"],
    ]);
    expect(unsplit).toBe(0);
  });

  it("that look alike are together; different ones, clips and plain ones are not", () => {
    const look = bits();
    const given = [
      ...others(30),
      still("first", look),
      still("copy", turned(look, 15)),
      still("different", turned(look, 60)),
      still("clip", look, { frame_count: 2 }),
      still("unhashed", null, { pixels: null }),
      still("odd", null, { look: "not a hash", pixels: "nor this" }),
    ];
    expect(lookAlikes(given)).toEqual({ groups: [["first", "copy"]], unsplit: 0 });
  });

  it("of one fixed camera are split all the same, but for those that are equal", () => {
    const look = bits();
    const pixels = hex(bits());
    const given = Array.from({ length: 40 }, (_, at) =>
      still(`s${at}`, turned(look, 4), at < 2 ? { pixels } : {}),
    );
    expect(lookAlikes(given)).toEqual({ groups: [["s0", "s1"]], unsplit: 40 });
  });

  it("of which too few would be left for the other side are apart, and counted", () => {
    const pixels = hex(bits());
    const same = ["a", "b", "c"].map((id) => still(id, null, { pixels }));
    expect(lookAlikes(same)).toEqual({ groups: [], unsplit: 3 });
    expect(lookAlikes(same.slice(0, 2))).toEqual({ groups: [], unsplit: 2 });
    expect(lookAlikes([...same, ...others(2)])).toEqual({ groups: [], unsplit: 3 });
    expect(lookAlikes([...same, ...others(3)])).toEqual({ groups: [["a", "b", "c"]], unsplit: 0 });
  });

  it("of a few are a pair all the same, and then none is told to be apart", () => {
    const look = bits();
    const pair = [still("a", look), still("b", turned(look, 10))];
    expect(lookAlikes([...pair, ...others(4)])).toEqual({ groups: [["a", "b"]], unsplit: 0 });
  });

  it("are found among a hundred thousand, most of those that differ by 30 bits too", () => {
    const given = others(100_000);
    const looks = Array.from({ length: 200 }, bits);
    const near = looks.map((look, at) => still(`near${at}`, turned(look, 15)));
    const far = looks.map((look, at) => still(`far${at}`, turned(look, 30)));
    const firsts = looks.map((look, at) => still(`first${at}`, look));
    const { groups } = lookAlikes([...given, ...firsts, ...near, ...far]);
    const withNear = groups.filter((ids) => ids.some((id) => id.startsWith("near")));
    expect(withNear).toHaveLength(200);
    const withFar = groups.filter((ids) => ids.some((id) => id.startsWith("far")));
    expect(withFar.length).toBeGreaterThan(160);
    expect(groups.flat().filter((id) => id.startsWith("o"))).toEqual([]);
  });
});

describe("a split", () => {
  it("has all of a group on one side, and both sides filled", () => {
    const groups = Array.from({ length: 30 }, (_, at) => `g${at % 10}`);
    const videos = groups.map((group, at) => ({ videoId: `v${at}`, frames: [0], group }));
    for (let seed = 0; seed < 50; seed++) {
      const sides = splitFrames(videos, { valShare: 0.2, seed });
      const sideOf = (index: number) => sides.get(`v${index}`)?.sides.get(0);
      for (const index of groups.keys()) expect(sideOf(index)).toBe(sideOf(index % 10));
      const val = [...groups.keys()].filter((index) => sideOf(index) === "val");
      expect(val).toHaveLength(6);
    }
  });

  it("of one group alone is all training", () => {
    const videos = ["a", "b"].map((videoId) => ({ videoId, frames: [0], group: "same" }));
    const sides = splitFrames(videos, { valShare: 0.2, seed: 1 });
    expect([...sides.values()].map((one) => one.sides.get(0))).toEqual(["train", "train"]);
  });
});
