// The real node in a process of its own, with the tests' segmenter and shorter times.

import { join } from "node:path";
import { runNode } from "../../gpu-node/main.ts";
import { probeEngine } from "../../gpu-node/training/engine-probe.ts";
import { RECTANGLES } from "./rectangles.ts";

const { TEST_STALL_MS: stallMs, TEST_TRAINING: training } = process.env;
// A child that heeds a cancel is not ended for being slow, unless the test is about one that does
// not.
const { TEST_CANCEL_MS: cancelMs = "240000" } = process.env;
const status = await runNode(process.env, {
  childEntry: join(import.meta.dirname, "node-child.ts"),
  listSegmenters: async () => [RECTANGLES],
  // Torch takes a second to load, which is of no use to most tests.
  probeEngine: training ? probeEngine : async () => ({ missing: "no test asked for it" }),
  worker: { heartbeatMs: 100, idleMs: 200, ...(stallMs ? { stallMs: Number(stallMs) } : {}) },
  grace: { cancelMs: Number(cancelMs), trainingCancelMs: 240_000, termMs: 300 },
});
process.exit(status);
