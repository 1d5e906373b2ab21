// What the commands print: aligned, and with what went wrong in it.

import { expect, it } from "vitest";
import { backfillView } from "../../edge/local/backfill-view.ts";
import { barOf, detailOf, eventLine, table } from "../../edge/local/lines.ts";
import type { RunFilter } from "../../edge/local/operator.ts";
import type { Backfill, Run } from "../../shared/wire/markets.ts";

const counts = {
  queued: 0,
  waiting: 0,
  running: 0,
  succeeded: 0,
  partial: 0,
  failed: 0,
  late: 0,
  canceled: 0,
};

it("aligns columns, and leaves no blanks at the end", () => {
  expect(table([["a", "long", "x"], ["longer", "b", ""], ["c"]])).toEqual([
    "a       long  x",
    "longer  b",
    "c",
  ]);
  expect(table([])).toEqual([]);
});

it("fills its bar by what ended, and names what ended badly", () => {
  expect(barOf({ runs: { ...counts, queued: 30, waiting: 0 } })).toBe(`[${"-".repeat(30)}]   0/30`);
  const half = { ...counts, queued: 14, waiting: 0, running: 1, succeeded: 12, failed: 2, late: 1 };
  const bar = `[${"#".repeat(15)}${"-".repeat(15)}]`;
  expect(barOf({ runs: half })).toBe(`${bar}  15/30  2 failed  1 late`);
  expect(barOf({ runs: { ...counts, succeeded: 2 } })).toBe(`[${"#".repeat(30)}]  2/2`);
});

it("tells of a run what it wrote, what its check found, and why it failed", () => {
  // A line is made of these fields of a run alone.
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

/** What is written of a backfill whose runs end one after the other, the third with a failure. */
async function seen(total: number, isTerminal: boolean): Promise<string> {
  const ended: Run[] = [];
  const runs = async ({ state, limit = 0 }: RunFilter) =>
    ended.filter((run) => state === undefined || run.state === state).slice(-limit);
  let text = "";
  const write = (more: string) => {
    text += more;
  };
  const show = backfillView({ runs }, { isTerminal, write });
  for (let count = 0; count <= total; count++) {
    const failed = Number(count >= 3);
    const of = { ...counts, queued: total - count, succeeded: count - failed, failed };
    await show({ backfill_id: "b", runs: of } as Backfill);
    const state = count === 2 ? "failed" : "succeeded";
    const at = String(count).padStart(4, "0");
    ended.push({ run_id: at, partition: at, state, finished_at: at, metadata: null } as Run);
  }
  return text;
}

it("gives a backfill a line for each partition where nobody watches", async () => {
  const lines = (await seen(5, false)).trimEnd().split("\n");
  expect(lines).toEqual([
    ...["0000  succeeded", "0001  succeeded", "0002  failed"],
    ...["0003  succeeded", "0004  succeeded"],
  ]);
});

it("gives one of very many its failures and fifty bars", async () => {
  const lines = (await seen(600, false)).trimEnd().split("\n");
  expect(lines).toHaveLength(1 + 50);
  expect(lines[0]).toBe("0002  failed");
  expect(lines.at(-1)).toMatch(/^\[#{30}\] {2}600\/600 {2}1 failed$/);
});

it("draws one bar over and over on a terminal, with failures above it", async () => {
  const drawn = (await seen(4, true)).split("\r\x1b[K");
  expect(drawn.filter((part) => part.endsWith("\n"))).toEqual([
    "0002  failed\n",
    expect.stringMatching(/4\/4 {2}1 failed\n$/),
  ]);
  expect(drawn.filter((part) => part.startsWith("["))).toHaveLength(5);
});
