// The pipelines: what is fetched, when, how it is checked. One entry is one unit of ingest.

import type { Pipeline } from "./pipeline.ts";
import { dayAheadPrices, realtimePrices, systemLoad } from "./pipelines/ercot.ts";
import { agencyForecast, gasStorage, petroleumStatus } from "./pipelines/fundamentals.ts";
import { generationByFuel, gridRegion } from "./pipelines/grid.ts";
import { intradayBars } from "./pipelines/intraday.ts";
import { spotPrices } from "./pipelines/spot.ts";
import { degreeDays } from "./pipelines/weather.ts";

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

export const pipelineOf = (job: string): Pipeline | undefined =>
  PIPELINES.find((pipeline) => pipeline.job === job);
