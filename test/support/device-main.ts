// The real agent in a process of its own, which can be cut off at any move: TEST_KILL_AT names one,
// such as `after:staged`, and TEST_SKIP how many of them pass before. TEST_CLOCK names a file with
// the milliseconds that its clock is ahead, read at each look.

import { appendFileSync, readFileSync } from "node:fs";
import { runDevice } from "../../gpu-node/agent/device.ts";
import { type Clock, systemClock } from "../../shared/time.ts";

const { TEST_KILL_AT: killAt, TEST_SKIP: skip = "0", TEST_STEPS: steps } = process.env;
const { TEST_CLOCK: clockFile } = process.env;
const ahead: Clock = () => systemClock() + Number(readFileSync(clockFile ?? "", "utf8"));
let passed = 0;

runDevice(process.env, process.argv.slice(2), {
  clock: clockFile ? ahead : systemClock,
  // Most tests wait for what is written.
  flushMs: 1_000,
  onStep: (step) => {
    if (steps) appendFileSync(steps, `${step}\n`);
    if (step !== killAt || passed++ < Number(skip)) return;
    // No handler runs and nothing is flushed, as when the power goes.
    process.kill(process.pid, "SIGKILL");
    // The signal comes before the next statement of this thread's that makes a system call.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10_000);
  },
}).then(
  () => process.exit(0),
  (thrown: unknown) => {
    process.stderr.write(`${(thrown as Error).message}\n`);
    process.exit(1);
  },
);
