// Requests of the direct line in a child process. Goal: each one ends, whatever becomes of the
// child, and leaves nothing behind in the supervisor.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, beforeEach, expect, it } from "vitest";
import { createLog } from "../../../gpu-node/base/log.ts";
import { IMAGE_ARGUMENTS, Slot } from "../../../gpu-node/node/slot.ts";

/** Answers what it is asked, but for a body of one byte, on which it hangs. */
const CHILD = `process.on("message", ({ type, id, body, taskId }) => {
  if (type === "task") {
    process.send({ type: "outcome", taskId, outcome: { outcome: "finished", result: {} } });
  }
  if (type !== "ask" || body.length === 1) return;
  const words = Buffer.from(JSON.stringify(process.execArgv));
  process.send({ type: "answer", id, answer: { status: 200, body: words } });
});`;
const MS = 60_000;
const ASKS = 20;
const ANSWERED = new Uint8Array(2);
const HANGS = new Uint8Array(1);
const { signal } = new AbortController();

let dir: string;
let slot: Slot;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "vantage-slot-"));
  const entry = join(dir, "child.mjs");
  writeFileSync(entry, CHILD);
  slot = new Slot({
    entry,
    environment: {},
    runtimeArguments: IMAGE_ARGUMENTS,
    // This child has no use for them.
    settings: {} as never,
    setpriv: null,
    log: createLog(() => {}),
    grace: { askMs: 100 },
  });
});
afterEach(async () => {
  await slot.end({ force: true });
  rmSync(dir, { recursive: true, force: true });
});

/** How many of these are still in memory. */
function keptOf(refs: readonly WeakRef<object>[]): number {
  setFlagsFromString("--expose-gc");
  (runInNewContext("gc") as () => void)();
  return refs.filter((one) => one.deref()).length;
}

it("keeps no answer that it gave", async () => {
  const answers: WeakRef<object>[] = [];
  for (let index = 0; index < ASKS; index++) {
    const answer = await slot.ask(ANSWERED, MS, signal);
    answers.push(new WeakRef(answer as object));
  }
  await expect.poll(() => keptOf(answers)).toBeLessThan(ASKS / 2);
});

it("runs the program with the arguments of its runtime, and passes its words on", async () => {
  const answer = await slot.ask(ANSWERED, MS, signal);
  const words = JSON.parse(Buffer.from(answer?.body ?? []).toString());
  expect(words).toEqual(expect.arrayContaining(IMAGE_ARGUMENTS));
});

it("keeps no outcome of a task", async () => {
  const outcomes: WeakRef<object>[] = [];
  const listener = { progress: () => {}, request: async () => ({ problem: "none is asked" }) };
  for (let index = 0; index < ASKS; index++) {
    const own = { task_id: `t${index}`, kind: "label", payload: {} };
    const rest = { fence: 1, attempt: 1, lease_until: "", more: false };
    const end = await slot.work({ ...own, ...rest }, listener);
    if (end.how === "outcome") outcomes.push(new WeakRef(end.outcome));
  }
  expect(outcomes).toHaveLength(ASKS);
  await expect.poll(() => keptOf(outcomes)).toBeLessThan(ASKS / 2);
});

it("answers nothing for a child that died, and asks the next one", async () => {
  expect(await slot.ask(ANSWERED, MS, signal)).toMatchObject({ status: 200 });
  const asked = slot.ask(HANGS, MS, signal);
  const before = slot.pid;
  process.kill(-(before as number), "SIGKILL");
  expect(await asked).toBeNull();
  expect(await slot.ask(ANSWERED, MS, signal)).toMatchObject({ status: 200 });
  expect(slot.pid).not.toBe(before);
});

it("ends a child that hangs on a request long after its time", async () => {
  expect(await slot.ask(HANGS, 500, signal)).toBeNull();
  expect(slot.idle).toBe(true);
  expect(await slot.ask(ANSWERED, MS, signal)).toMatchObject({ status: 200 });
});
