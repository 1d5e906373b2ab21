// The pipelines: what is fetched, when, how it is checked. One entry is one unit of ingest.

import type { Pipeline } from "./pipeline.ts";
import { agencyForecast, gasStorage, petroleumStatus } from "./pipelines/fundamentals.ts";
import { generationByFuel, gridRegion } from "./pipelines/grid.ts";
import { spotPrices } from "./pipelines/spot.ts";
import type { Schedule } from "./schedule.ts";

export const PIPELINES: readonly Pipeline[] = [
  gridRegion,
  generationByFuel,
  spotPrices,
  gasStorage,
  petroleumStatus,
  agencyForecast,
];

export const pipelineOf = (job: string): Pipeline | undefined =>
  PIPELINES.find((pipeline) => pipeline.job === job);

/** Every schedule with its pipeline. */
export const SCHEDULES: readonly { pipeline: Pipeline; schedule: Schedule }[] = PIPELINES.flatMap(
  (pipeline) => pipeline.schedules.map((schedule) => ({ pipeline, schedule })),
);
