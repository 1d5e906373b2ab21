// All that a node runs: its own blocks, and those that any host runs.

import type { RunBlock } from "../../shared/workflow/block.ts";
import { barcode } from "./barcodes.ts";
import { blur } from "./blur-run.ts";
import { DRAWING_RUNS } from "./drawing-runs.ts";
import { IMAGE_RUNS } from "./image-runs.ts";
import { type ModelServices, modelRuns } from "./model-runs.ts";

/** The blocks of pixels and models of one run, by type. */
export const nodeRuns = (services: ModelServices): ReadonlyMap<string, RunBlock> =>
  new Map([
    ...IMAGE_RUNS,
    ...DRAWING_RUNS,
    ["blur@1", blur] as const,
    ["barcode@1", barcode] as const,
    ...modelRuns(services),
  ]);
