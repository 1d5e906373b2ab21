// The pipelines: what is fetched, when, how it is checked. One entry is one unit of ingest.

import type { Pipeline } from "./pipeline.ts";
import { gridRegion } from "./pipelines/grid.ts";

export const PIPELINES: readonly Pipeline[] = [gridRegion];
