// The table of Vision's contract: each statement is there once, with a test that is there.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { VISION } from "./vision.ts";

const ROOT = join(import.meta.dirname, "../..");

it("numbers the 147 statements of the contract from 1", () => {
  const numbers = VISION.map(({ number }) => number);
  expect(numbers).toEqual(Array.from({ length: 147 }, (_, index) => index + 1));
});

it("names a test by its title for each statement", () => {
  const unheld = VISION.filter(
    ({ file, test }) => !readFileSync(join(ROOT, file), "utf8").includes(test),
  );
  expect(unheld).toEqual([]);
});
