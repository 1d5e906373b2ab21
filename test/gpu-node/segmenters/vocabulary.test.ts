// Texts → classes of the closed vocabulary: what is understood, what is said to be ignored, and
// what is refused.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { COCO_NAMES, COCO_WORDS } from "../../../gpu-node/segmenters/coco-words.ts";
import {
  apportion,
  editDistance,
  emptyPromptDetail,
  type Grounding,
  ground,
  groundingWarning,
  nearest,
  nearestWords,
  plain,
} from "../../../shared/detector/vocabulary.ts";

const ids = (text: string) => {
  const grounded = ground(text, COCO_WORDS);
  return "ids" in grounded ? grounded.ids : null;
};
const ignored = (text: string) => {
  const grounded = ground(text, COCO_WORDS);
  return "ids" in grounded ? grounded.ignored : null;
};

describe("the declared name nearest to another", () => {
  const name = fc.string({ unit: fc.constantFrom(..."abcde_"), maxLength: 12 });

  it("is the first of those with the fewest edits, if these are a third of it at most", () => {
    const bare = (text: string) => text.replaceAll("_", "");
    const property = fc.property(name, fc.array(name, { maxLength: 8 }), (given, declared) => {
      const edits = declared.map((each) => editDistance(bare(given), bare(each)));
      const best = declared[edits.indexOf(Math.min(...edits))];
      const isNear = Math.min(...edits) <= Math.max(1, bare(best ?? "").length / 3);
      expect(nearest(given, declared)).toBe(best !== undefined && isNear ? best : null);
    });
    fc.assert(property, { numRuns: 500 });
  });

  it("is compared no further than a bound asks", () => {
    const property = fc.property(name, name, fc.nat(8), (one, other, max) => {
      const edits = editDistance(one, other);
      const bounded = editDistance(one, other, max);
      expect(bounded > max ? max + 1 : bounded).toBe(Math.min(edits, max + 1));
    });
    fc.assert(property, { numRuns: 500 });
  });
});

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
    for (const { classes } of COCO_WORDS.values())
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
    expect(ignored("a man with a yellow hat")).toEqual(["man", "with a yellow hat"]);
    expect(ignored("tennis racket")).toEqual([]);
    expect(ids("cup of coffee")).toEqual(["cup"]);
  });

  it.each(["cyclist", "Men", "pigeons", "a taxi", "vans", "children"])(
    "knows that %j names less than its class",
    (text) => {
      expect(ignored(text)).toHaveLength(1);
      expect(groundingWarning("Built-in", text, ground(text, COCO_WORDS) as Grounding)).toMatch(
        /^".*": Built-in looks for every \w+; it cannot tell ".*" apart$/,
      );
    },
  );

  it.each(["people", "bikes", "automobile", "sofa", "animals", "cars and buses"])(
    "warns of nothing where %j is all that it finds",
    (text) => {
      expect(groundingWarning("Built-in", text, ground(text, COCO_WORDS) as Grounding)).toBeNull();
    },
  );

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

  it.each([
    ["kangaroo", ["animal"]],
    ["Foxes", ["animal"]],
    ["a mountain lion", ["animal"]],
    ["wolves", ["animal"]],
    ["goat", ["animal"]],
    ["rabbits on grass", ["animal"]],
    ["penguin", ["bird"]],
    ["strawberries", ["fruit"]],
    ["forklift", ["vehicle"]],
    ["chair leg", ["chair"]],
    ["saxophonist", []],
  ])("offers for %j what it is, never what is spelled like it", (text, near) => {
    expect(nearestWords(text, COCO_WORDS)).toEqual(near);
  });

  it("counts edits, and strips accents, articles and punctuation", () => {
    expect(editDistance("kitten", "sitting")).toBe(3);
    expect(editDistance("", "abc")).toBe(3);
    expect(plain("  The  Crêpe-Maker! ")).toBe("crepe maker");
    expect(plain("a")).toBe("a");
  });
});

describe("prompts of one job", () => {
  const grounded = (...texts: string[]) =>
    texts.map((text) => ({ text, ids: (ground(text, COCO_WORDS) as Grounding).ids }));

  it("have classes of their own: the prompt that names fewer takes them", () => {
    const shares = apportion(grounded("motor vehicles", "taxi", "people"));
    expect(shares).toEqual({
      ids: [["bus", "truck", "motorcycle"], ["car"], ["person"]],
      warnings: ['"motor vehicles": a car is labeled "taxi" only'],
    });
    expect(apportion(grounded("cars and buses", "buses and trucks"))).toEqual({
      ids: [["car", "bus"], ["truck"]],
      warnings: ['"buses and trucks": a bus is labeled "cars and buses" only'],
    });
    expect(apportion([])).toEqual({ ids: [], warnings: [] });
  });

  it.each([
    [["person", "man", "dog"], "man", ["person"]],
    [["man", "woman", "cyclist"], "woman", ["man"]],
    [["cat", "pets", "dog"], "pets", ["cat", "dog"]],
  ])("of %j are refused: nothing is left for %j", (texts, empty, owners) => {
    const shares = apportion(grounded(...texts));
    expect(shares).toMatchObject({
      empty: { text: empty },
      owners: owners.map((text) => ({ text })),
    });
  });

  it("are named when they look for the same", () => {
    const [man, person] = grounded("man", "person");
    if (!man || !person) throw new Error("both are words");
    expect(emptyPromptDetail(man, [person])).toBe(
      '"man" looks for person, as "person" does: every object would be labeled twice; leave one out',
    );
  });
});
