// Texts → classes of the closed vocabulary: what is understood, what is said to be ignored, and
// what is refused.

import { describe, expect, it } from "vitest";
import { COCO_NAMES, COCO_WORDS } from "../../../gpu-node/segmenters/coco-words.ts";
import { editDistance, ground, nearestWords, plain } from "../../../shared/vocabulary.ts";

const ids = (text: string) => {
  const grounded = ground(text, COCO_WORDS);
  return "ids" in grounded ? grounded.ids : null;
};
const ignored = (text: string) => {
  const grounded = ground(text, COCO_WORDS);
  return "ids" in grounded ? grounded.ignored : null;
};

describe("the vocabulary", () => {
  it("has COCO's 80 classes, each answering to its own name and plural", () => {
    expect(COCO_NAMES).toHaveLength(80);
    expect(new Set(COCO_NAMES).size).toBe(80);
    for (const name of COCO_NAMES) {
      expect(ids(name)).toEqual([name]);
      expect(ids(name.toUpperCase())).toEqual([name]);
      const plural = /(s|x|ch|sh)$/.test(name) ? `${name}es` : `${name}s`;
      expect(ids(plural)).toEqual([name]);
    }
  });

  it("names only classes that exist", () => {
    for (const classes of COCO_WORDS.values())
      for (const name of classes) expect(COCO_NAMES).toContain(name);
  });

  it.each([
    ["people", ["person"]],
    ["Pedestrians", ["person"]],
    ["the women", ["person"]],
    ["buses", ["bus"]],
    ["knives", ["knife"]],
    ["puppies", ["dog"]],
    ["mobile phones", ["cell phone"]],
    ["café tables", ["dining table"]],
    ["pets", ["cat", "dog"]],
    ["cars and trucks", ["car", "truck"]],
    ["cars, buses or vans", ["car", "bus", "truck"]],
    ["hot dogs", ["hot dog"]],
  ])("grounds %j", (text, classes) => {
    expect(ids(text)).toEqual(classes);
  });

  it("takes the head noun and says what it left out", () => {
    expect(ids("red car")).toEqual(["car"]);
    expect(ignored("red car")).toEqual(["red"]);
    expect(ids("a man with a yellow hat")).toEqual(["person"]);
    expect(ignored("a man with a yellow hat")).toEqual(["with a yellow hat"]);
    expect(ignored("tennis racket")).toEqual([]);
    expect(ids("cup of coffee")).toEqual(["cup"]);
  });

  it.each(["forklift", "hard hat", "glasses", "bus stop", "car and forklift", "", "!?", "駅"])(
    "refuses %j rather than guess",
    (text) => {
      expect(ground(text, COCO_WORDS)).toHaveProperty("unknown");
    },
  );

  it("names the part that it does not know, and words that look like it", () => {
    expect(ground("car and forklift", COCO_WORDS)).toEqual({ unknown: "forklift" });
    expect(nearestWords("phne", COCO_WORDS)[0]).toBe("phone");
    expect(nearestWords("umbrela", COCO_WORDS)[0]).toBe("umbrella");
    expect(nearestWords("bycicle", COCO_WORDS)[0]).toBe("bicycle");
    expect(nearestWords("qqqqqqqqqqqqqq", COCO_WORDS)).toEqual([]);
  });

  it("counts edits, and strips accents, articles and punctuation", () => {
    expect(editDistance("kitten", "sitting")).toBe(3);
    expect(editDistance("", "abc")).toBe(3);
    expect(plain("  The  Crêpe-Maker! ")).toBe("crepe maker");
    expect(plain("a")).toBe("a");
  });
});
