// The engine as tests load it, with the environment that its threads want. Where it is not built, a
// notice says how to get it and the tests that need it are skipped.

import { ENGINE_ENVIRONMENT, loadEngine, type Native } from "../../native/load.ts";

Object.assign(process.env, ENGINE_ENVIRONMENT);
const loaded = loadEngine();
if ("missing" in loaded) process.stderr.write(`SKIPPED: ${loaded.missing}\n`);

/** Undefined where the engine is not built: `describe.skipIf(!native)` comes first. */
export const native = ("native" in loaded ? loaded.native : undefined) as Native;
