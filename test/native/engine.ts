// The engine as tests load it, with the environment that its threads want. Where it is not built, a
// notice says how to get it and the tests that need it are skipped.

import { ENGINE_ENVIRONMENT, loadEngine, type Native } from "../../native/load.ts";

/**
 * Where the engine of the tests against the reference computes: `ENGINE_DEVICE=cuda` has them judge
 * a GPU.
 */
export const DEVICE = process.env.ENGINE_DEVICE === "cuda" ? "cuda" : "cpu";
// Convolutions of fp32 would be rounded to ten bits of mantissa.
if (DEVICE === "cuda") process.env.NVIDIA_TF32_OVERRIDE = "0";

Object.assign(process.env, ENGINE_ENVIRONMENT);
const loaded = loadEngine();
if ("missing" in loaded) process.stderr.write(`SKIPPED: ${loaded.missing}\n`);

/** Undefined where the engine is not built: `describe.skipIf(!native)` comes first. */
export const native = ("native" in loaded ? loaded.native : undefined) as Native;

/** Whether steps in bf16 are for this CPU: others are never asked for them, and were not tried. */
export const hasBf16 = "native" in loaded && loaded.native.describe().cpuBf16;
if ("native" in loaded && !hasBf16) {
  process.stderr.write("SKIPPED: this CPU has no instructions for bf16\n");
}
/** Whether there is a GPU, and an engine that was built for it. */
export const hasGpu = "native" in loaded && loaded.native.describe().gpus.length > 0;
/** The precisions in which this CPU makes steps. */
export const PRECISIONS = hasBf16 ? (["fp32", "bf16"] as const) : (["fp32"] as const);
