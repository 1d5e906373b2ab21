// What the commands print: aligned, and with what went wrong in it.

import { expect, it } from "vitest";
import { barOf, detailOf, eventLine, table } from "../../edge/local/lines.ts";
import type { Run } from "../../shared/markets.ts";

const counts = { queued: 0, running: 0, succeeded: 0, failed: 0, late: 0, canceled: 0 };

it("aligns columns, and leaves no blanks at the end", () => {
  expect(table([["a", "long", "x"], ["longer", "b", ""], ["c"]])).toEqual([
    "a       long  x",
    "longer  b",
    "c",
  ]);
  expect(table([])).toEqual([]);
});

it("fills its bar by what ended, and names what ended badly", () => {
  expect(barOf({ runs: { ...counts, queued: 30 } })).toBe(`[${"-".repeat(30)}]   0/30`);
  const half = { ...counts, queued: 14, running: 1, succeeded: 12, failed: 2, late: 1 };
  const bar = `[${"#".repeat(15)}${"-".repeat(15)}]`;
  expect(barOf({ runs: half })).toBe(`${bar}  15/30  2 failed  1 late`);
  expect(barOf({ runs: { ...counts, succeeded: 2 } })).toBe(`[${"#".repeat(30)}]  2/2`);
});

it("tells of a run what it wrote, what its check found, and why it failed", () => {
  const run = (more: object) => ({ metadata: null, error_code: null, ...more }) as unknown as Run;
  const check = { passed: false, reason: "stale" };
  expect(detailOf(run({ metadata: { rows_written: 3, check } }))).toBe(
    "  3 rows  CHECK FAILED stale",
  );
  const failed = { error_code: "gate_rejected", error_detail: "no_rows" };
  expect(detailOf(run(failed))).toBe("  gate_rejected: no_rows");
  expect(detailOf(run({}))).toBe("");
});

it("writes a journal's entry on one line", () => {
  const event = { attempt: 2, at: "2026-01-01T00:00:00.000Z", event: "gate" };
  expect(eventLine({ ...event, level: "warning", detail: { rule: "holes", count: 2 } })).toBe(
    "2026-01-01T00:00:00.000Z  #2  WARNING gate  rule=holes  count=2",
  );
});
