// The thread of hang-watchdog.ts, which works while the main thread is inside the runtime.

import { workerData } from "node:worker_threads";
import { writeDurably } from "./durable-file.ts";
import type { Hang, WatchedMemory } from "./hang-watchdog.ts";

const { path, seconds, passages, version } = workerData as WatchedMemory;

/** Waits for the next passage; whether it came within so many seconds in which this process ran. */
function passes(passage: number, within: number): boolean {
  // Second by second: one in which the process was frozen counts once, however long it was.
  for (let second = 0; second < within; second++)
    if (Atomics.wait(passages, 0, passage, 1_000) !== "timed-out") return true;
  return false;
}

for (;;) {
  const passage = Atomics.load(passages, 0);
  const isInside = (passage & 1) === 1;
  const limit = Atomics.load(seconds, 0);
  if (passes(passage, isInside ? limit : Number.POSITIVE_INFINITY)) continue;
  const hang: Hang = { version: String(Atomics.load(version, 0)), seconds: limit };
  try {
    writeDurably(path, JSON.stringify(hang));
  } catch {
    // A full disk: starts that end so are counted, which comes to the same after three of them.
  } finally {
    process.kill(process.pid, "SIGKILL");
  }
}
