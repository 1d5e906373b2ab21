// How a prompt finds its word.

import { describe, expect, it } from "vitest";
import { ground, nearestWords } from "../../shared/vocabulary.ts";

const KNOWN = new Set(["person", "car", "bus", "wine glass", "glass", "knife", "sheep", "berry"]);

describe("a prompt", () => {
  it.each([
    ["person", "person", null],
    ["  The Person ", "person", null],
    ["Cars", "car", null],
    ["buses", "bus", null],
    ["berries", "berry", null],
    ["sheep", "sheep", null],
    ["red car", "car", "red"],
    ["a small red car", "car", "small red"],
    ["empty wine glasses", "wine glass", "empty"],
    ["tall glass", "glass", "tall"],
    ["pérson", "person", null],
  ])("%j is %j, without %j", (text, word, ignored) => {
    expect(ground(KNOWN, text)).toEqual({ word, ignored });
  });

  it.each(["forklift", "", "carpet", "glassware", "🚗"])("%j has no word", (text) => {
    expect(ground(KNOWN, text)).toEqual({ word: null, ignored: null });
  });

  it("is offered what is near, nearest first, and nothing that is far", () => {
    expect(nearestWords(KNOWN, "persn")).toEqual(["person"]);
    expect(nearestWords(KNOWN, "cat")[0]).toBe("car");
    expect(nearestWords(KNOWN, "electroencephalograph")).toEqual([]);
  });
});
