// What operators read of a broken rule.

import { expect, it } from "vitest";
import { finding } from "../../edge/markets/ingest/gate.ts";
import { clauseOf, sentencesOf } from "../../edge/markets/ingest/rules.ts";

it("says of each rule how many things broke it, and in which series", () => {
  expect(
    sentencesOf([
      finding("warning", "holes", 2, "ciso"),
      finding("error", "holes", 1, "ciso"),
      finding("warning", "spike", 1, "pjm"),
      finding("error", "missing_series", 2, "erco pjm"),
      finding("warning", "aging", 1, ""),
    ]),
  ).toEqual([
    "3 hours missing in CISO",
    "1 spike in PJM",
    "2 series missing from the answer in ERCO, PJM",
    "the newest data is older than usual",
  ]);
});

it("names three series, and counts the others", () => {
  const symbols = ["ciso", "erco", "isne", "miso", "pjm"];
  const found = symbols.map((symbol) => finding("error", "mass_retraction", 1_000, symbol));
  expect(sentencesOf(found)).toEqual([
    "5,000 rows would be withdrawn in CISO, ERCO, ISNE and 2 more",
  ]);
});

it("tells how a rule was broken where it is about no series", () => {
  expect(
    sentencesOf([
      finding("warning", "unreadable_rows", 1, 'value "W" is no number'),
      finding("error", "no_rows", 1, "the provider sent nothing"),
      finding("warning", "unknown_fuel", 1, "ciso xyz"),
    ]),
  ).toEqual([
    '1 row could not be read: value "W" is no number',
    "no rows at all: the provider sent nothing",
    "1 unknown fuel: ciso xyz",
  ]);
});

it("reads the names of rules that there were once", () => {
  expect(clauseOf("storage_mixed_up", 1)).toBe("storage mixed up");
});
