// The thread of hang-watchdog.ts, which works while the main thread is inside the runtime.

import { workerData } from "node:worker_threads";
import { writeDurably } from "./durable-file.ts";
import type { Hang, WatchedMemory } from "./hang-watchdog.ts";

const { path, seconds, passages, version } = workerData as WatchedMemory;

for (;;) {
  const passage = Atomics.load(passages, 0);
  const isInside = (passage & 1) === 1;
  const limit = isInside ? seconds * 1_000 : Number.POSITIVE_INFINITY;
  if (Atomics.wait(passages, 0, passage, limit) !== "timed-out") continue;
  const hang: Hang = { version: String(Atomics.load(version, 0)), seconds };
  try {
    writeDurably(path, JSON.stringify(hang));
  } catch {
    // A full disk: starts that end so are counted, which comes to the same after three of them.
  } finally {
    process.kill(process.pid, "SIGKILL");
  }
}
