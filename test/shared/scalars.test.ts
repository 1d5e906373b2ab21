// Numbers and booleans written as text: what counts as one, and what is no silent 0.

import { describe, expect, it } from "vitest";
import { decimal, flag, whole } from "../../shared/scalars.ts";

const NO_NUMBERS = [
  "",
  " ",
  " 5",
  "5 ",
  "0x10",
  "1e1",
  "1E1",
  "+5",
  "05",
  "5.",
  ".5",
  "1_000",
  "٥",
];

describe("a whole number", () => {
  it.each(["0", "7", "1000"])("reads %s", (text) => {
    expect(whole(0, 1_000).parse(text)).toBe(Number(text));
  });

  it.each([...NO_NUMBERS, "5.0", "-1", "1001", "NaN", "9007199254740993"])("refuses %j", (text) => {
    const { error } = whole(0, 1_000).safeParse(text);
    expect(error?.issues[0]?.message).toBe("must be a whole number from 0 to 1000");
  });

  it("is no list, and may be a number already, as bindings are", () => {
    expect(whole(1).safeParse(["5"]).success).toBe(false);
    expect(whole(1).parse(5)).toBe(5);
    expect(whole(1).safeParse(1.5).error?.issues[0]?.message).toBe(
      "must be a whole number of at least 1",
    );
  });
});

describe("a decimal number", () => {
  it.each(["0", "0.25", "-0.023000", "12"])("reads %s", (text) => {
    expect(decimal().parse(text)).toBe(Number(text));
  });

  it.each([...NO_NUMBERS, "Infinity", "NaN", "1,5"])("refuses %j", (text) => {
    expect(decimal().safeParse(text).success).toBe(false);
  });

  it("keeps its bounds", () => {
    const { error } = decimal((number) => number.max(1)).safeParse("1.01");
    expect(error?.issues[0]?.message).toMatch(/<=\s?1$/);
  });
});

describe("a flag", () => {
  it.each([
    ["true", true],
    ["True", true],
    ["false", false],
  ] as const)("reads %s", (text, value) => {
    expect(flag().parse(text)).toBe(value);
  });

  it.each(["", "1", "yes", "on", "0"])("refuses %j", (text) => {
    expect(flag().safeParse(text).success).toBe(false);
  });
});
