// The pipelines: what is fetched, when, how it is checked. One entry is one unit of ingest.

import { findPipeline, type Pipeline } from "./pipeline.ts";
import { dayAheadPrices, realtimePrices, systemLoad } from "./pipelines/ercot.ts";
import { agencyForecast, gasStorage, petroleumStatus } from "./pipelines/fundamentals.ts";
import { generationByFuel, gridRegion } from "./pipelines/grid.ts";
import { intradayBars } from "./pipelines/intraday.ts";
import { spotPrices } from "./pipelines/spot.ts";
import { degreeDays } from "./pipelines/weather.ts";

/** Every pipeline, in the order in which pages and lists show them. */
export const PIPELINES: readonly Pipeline[] = [
  gridRegion,
  generationByFuel,
  realtimePrices,
  dayAheadPrices,
  systemLoad,
  spotPrices,
  gasStorage,
  petroleumStatus,
  agencyForecast,
  degreeDays,
  intradayBars,
];

/** The pipeline of a job; undefined when it is gone, as an old execution's may be. */
export const pipelineOf = (job: string): Pipeline | undefined => findPipeline(PIPELINES, job);
