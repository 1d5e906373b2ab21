// The driver's own judgement. Goal: a difference nobody listed fails, a listed one does not, one
// that has gone must leave the list, and no script's silence counts as a success.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  count,
  judge,
  type KnownDifference,
  KnownDifferences,
  type Outcome,
  parseOutcomes,
  summaryLine,
} from "./known.ts";

const passed = (name: string): Outcome => ({ case: name, outcome: "passed" });
const failed = (name: string): Outcome => ({ case: name, outcome: "failed", detail: "differs" });
const skipped = (name: string): Outcome => ({ case: name, outcome: "skipped", detail: "no PyPI" });
const known = (name: string) => ({ case: name, why: "a later issue repairs it" });

describe("a group's outcomes beside the known differences", () => {
  const verdicts = (outcomes: Outcome[], entries: KnownDifference[], groups = ["a"]) =>
    judge(outcomes, entries, groups).map(({ case: name, verdict }) => [name, verdict]);

  it("passes what passed and fails a difference that nobody listed", () => {
    expect(verdicts([passed("a/x"), failed("a/y")], [])).toEqual([
      ["a/x", "passed"],
      ["a/y", "failed"],
    ]);
  });

  it("lets a listed difference be, with the reason that the list gives", () => {
    expect(judge([failed("a/y")], [known("a/y")], ["a"])).toEqual([
      { case: "a/y", verdict: "known", detail: "a later issue repairs it (differs)" },
    ]);
  });

  it("lists cases one by one: neither a folder nor the beginning of a name covers others", () => {
    expect(verdicts([failed("a/y/z"), failed("a/y")], [known("a/y")])).toEqual([
      ["a/y/z", "failed"],
      ["a/y", "known"],
    ]);
    expect(verdicts([failed("a/yes"), failed("a/y")], [known("a/y")])[0]).toEqual([
      "a/yes",
      "failed",
    ]);
  });

  it("fails for a listed difference that is gone, whether its case passed or has no line", () => {
    const gone = ["a/y", "failed"];
    expect(verdicts([passed("a/y")], [known("a/y")])).toEqual([["a/y", "passed"], gone]);
    expect(verdicts([passed("a/x")], [known("a/y")])).toEqual([["a/x", "passed"], gone]);
    expect(judge([], [known("a/y")], ["a"])[0]?.detail).toContain("take the entry out");
  });

  it("lets one that shows by chance be gone, and known where it shows", () => {
    const entry = { ...known("a/y"), by_chance: true as const };
    expect(verdicts([passed("a/y")], [entry])).toEqual([["a/y", "passed"]]);
    expect(verdicts([failed("a/y")], [entry])).toEqual([["a/y", "known"]]);
  });

  it("keeps what was not looked at: another group's, and what lies under a skipped case", () => {
    expect(verdicts([passed("a/x")], [known("b/y"), known("ab/y")])).toEqual([["a/x", "passed"]]);
    expect(verdicts([skipped("a")], [known("a/y")])).toEqual([["a", "skipped"]]);
    expect(verdicts([skipped("a/tool")], [known("a/tool/y"), known("a/toolbox/y")])).toEqual([
      ["a/tool", "skipped"],
      ["a/toolbox/y", "failed"],
    ]);
  });
});

describe("what a script says", () => {
  const good = { code: 0, timedOut: false };
  const line = (name: string, outcome: string) =>
    JSON.stringify({ case: name, outcome, detail: "" });

  it("is read line by line, past its chatter", () => {
    const output = `loading …\n${line("a/x", "passed")}\n\n${line("a/y", "failed")}\n`;
    expect(parseOutcomes("a/tool", output, good)).toEqual([
      { case: "a/x", outcome: "passed", detail: "" },
      { case: "a/y", outcome: "failed", detail: "" },
    ]);
  });

  it("is a failure where it said nothing, and where it ended badly after good words", () => {
    expect(parseOutcomes("a/tool", "hello\n", good)).toMatchObject([
      { case: "a/tool", outcome: "failed", detail: "said nothing" },
    ]);
    const ending = { code: 3, timedOut: false };
    const output = `${line("a/x", "passed")}\nTraceback: no such module\n`;
    const [, crash] = parseOutcomes("a/tool", output, ending);
    expect(crash).toMatchObject({ case: "a/tool", outcome: "failed" });
    expect(crash?.detail).toContain("ended with 3");
    expect(crash?.detail).toContain("no such module");
  });

  it("is a skip of its own where its time was up", () => {
    const outcomes = parseOutcomes("a/tool", "", { code: null, timedOut: true });
    expect(outcomes).toEqual([{ case: "a/tool", outcome: "skipped", detail: "its time was up" }]);
  });

  it("is refused when it is no outcome", () => {
    expect(() => parseOutcomes("a/tool", line("a/x", "maybe"), good)).toThrow();
    expect(() => parseOutcomes("a/tool", '{"case": cut off', good)).toThrow();
  });
});

describe("the closing line", () => {
  it("counts every verdict", () => {
    const outcomes = [passed("a/x"), failed("a/y"), failed("a/z"), skipped("a/w")];
    const counts = count(judge(outcomes, [known("a/z")], ["a"]));
    expect(counts).toEqual({ passed: 1, failed: 1, known: 1, skipped: 1 });
    expect(summaryLine(counts)).toBe("peers: 1 passed, 1 failed, 1 known, 1 skipped");
  });
});

describe("the list of known differences", () => {
  it("is well formed: each case once, in a group, with its reason", () => {
    const path = join(import.meta.dirname, "known.json");
    const listed = KnownDifferences.parse(JSON.parse(readFileSync(path, "utf8")));
    for (const entry of listed)
      expect(entry.case).toMatch(/^(formats|contract|elsewhere|markets|serving)\/./);
  });

  it("takes no case twice, no reason that is empty, and no other field", () => {
    expect(KnownDifferences.safeParse([known("a/y"), known("a/y")]).success).toBe(false);
    expect(KnownDifferences.safeParse([{ case: "a/y", why: "" }]).success).toBe(false);
    expect(KnownDifferences.safeParse([{ ...known("a/y"), wide: true }]).success).toBe(false);
  });
});
