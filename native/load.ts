// The only way to the addon. To be called in child processes alone: torch brings another OpenSSL
// than Node's, and a fault of CUDA must not take the supervisor down. Their environment has
// ENGINE_ENVIRONMENT: the engine has threads of its own.

import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

export type Native = typeof import("./index.d.ts");

/** Where the build leaves the addon. */
export const ADDON = join(import.meta.dirname, "build/vantage.node");

/** What a child that loads the engine has in its environment. */
export const ENGINE_ENVIRONMENT = { OPENBLAS_NUM_THREADS: "1", GOMP_SPINCOUNT: "1000" } as const;

const TORCH =
  "apt-get install --no-install-recommends libtorch-dev libopenblas0-pthread, or the faster one " +
  "of npm run engine -- install";

/** The engine, or why there is none on this machine and what would change that. */
export function loadEngine(path = ADDON): { native: Native } | { missing: string } {
  if (!existsSync(path)) {
    return {
      missing:
        "the training engine is not built: it needs cmake, g++, make and libtorch " +
        `(${TORCH}), and is then built by the next npm run gpu-node`,
    };
  }
  try {
    return { native: createRequire(import.meta.url)(path) as Native };
  } catch (error) {
    const [reason] = String(error instanceof Error ? error.message : error).split("\n");
    return {
      missing:
        `the training engine does not load (${reason}): install torch as it was when the engine ` +
        `was built (${TORCH}), or delete native/build and run npm run gpu-node again`,
    };
  }
}
