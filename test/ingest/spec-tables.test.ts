// The tables of the contract, row by row: what each library holds, when each schedule fires and
// which partition a tick takes, and the libraries that each check reads back.

import { expect, it } from "vitest";
import { describeSymbol } from "../../edge/markets/client/symbols.ts";
import { latestPartition } from "../../edge/markets/ingest/partition.ts";
import type { Pipeline } from "../../edge/markets/ingest/pipeline.ts";
import { PIPELINES, pipelineOf } from "../../edge/markets/ingest/pipelines.ts";
import { latestTick, nextTick } from "../../edge/markets/ingest/schedule.ts";
import { iso } from "../../shared/time.ts";

const at = (text: string) => Date.parse(text);

/** A pipeline that exists. */
function known(job: string): Pipeline {
  const pipeline = pipelineOf(job);
  if (!pipeline) throw new Error(`no pipeline is named ${job}`);
  return pipeline;
}

it("the pipelines fill the twelve libraries of the contract", () => {
  const libraries = new Set(PIPELINES.flatMap((pipeline) => pipeline.libraries));
  const owed = [
    "fundamentals.agency",
    "power.dalmp",
    "power.demand",
    "power.demand_forecast",
    "power.generation",
    "power.generation_by_fuel",
    "power.interchange",
    "power.lmp",
    "power.load",
    "prices.intraday",
    "prices.spot",
    "weather",
  ];
  expect(owed.filter((library) => !libraries.has(library))).toEqual([]);
});

it.each([
  ["power.demand", "erco", /^Demand/, "PT1H", "actual"],
  ["power.demand_forecast", "erco", /^Day-ahead demand forecast/, "PT1H", "ahead"],
  ["power.generation", "erco", /^Net generation/, "PT1H", "actual"],
  ["power.interchange", "erco", /^Interchange/, "PT1H", "actual"],
  ["power.generation_by_fuel", "erco", /^Net generation by fuel/, "PT1H", "actual"],
  ["power.lmp", "hb_north", /real-time price, hub/, "PT15M", "actual"],
  ["power.lmp", "lz_west", /real-time price, load zone/, "PT15M", "actual"],
  ["power.dalmp", "hb_north", /day-ahead price/, "PT1H", "ahead"],
  ["power.load", "ercot", /system load/, "PT1H", "actual"],
  ["prices.spot", "rngwhhd", /spot/, "P1D", "actual"],
  ["prices.intraday", "ung", /bars/, "PT5M", "actual"],
  ["fundamentals.agency", "gas_storage", /gas in underground storage/, "P7D", "actual"],
  ["fundamentals.agency", "petroleum_status", /Petroleum status/, "P7D", "actual"],
  ["weather", "hdd", /Heating degree days/, "P1M", "actual"],
  ["weather", "cdd", /Cooling degree days/, "P1M", "actual"],
])("library %s, symbol %s: %s a step of %s, %s", (library, symbol, name, step, kind) => {
  const described = describeSymbol(library, symbol);
  expect(described.name).toMatch(name);
  expect(described).toMatchObject({ step, kind });
});

it.each([
  ["prices.intraday", ["close", "high", "low", "open", "value", "volume"]],
  ["prices.spot", ["value"]],
  ["power.demand", ["value"]],
])("library %s has the value columns %j", (library, columns) => {
  const [pipeline] = PIPELINES.filter(({ libraries }) => libraries.includes(library));
  expect(pipeline?.valueColumns.toSorted()).toEqual(columns);
});

const NEW_YORK = "America/New_York";
const CENTRAL = "America/Chicago";

// A tick in winter and one in summer, where the same clocks show another hour of UTC. Central ticks
// before midnight lie on the next day in UTC, and still take the operating day.
it.each([
  ["grid_region", "20 * * * *", NEW_YORK, "2026-01-15T23:20Z", "2026-01-15"],
  ["generation_by_fuel", "20 * * * *", NEW_YORK, "2026-06-18T23:20Z", "2026-06-18"],
  ["realtime_prices", "25 * * * *", CENTRAL, "2026-01-16T05:25Z", "2026-01-15"],
  ["realtime_prices", "25 * * * *", CENTRAL, "2026-06-19T04:25Z", "2026-06-18"],
  ["system_load", "35 * * * *", CENTRAL, "2026-01-16T05:35Z", "2026-01-15"],
  ["system_load", "35 * * * *", CENTRAL, "2026-06-19T04:35Z", "2026-06-18"],
  ["day_ahead_prices", "0 14 * * *", CENTRAL, "2026-01-15T20:00Z", "2026-01-16"],
  ["day_ahead_prices", "0 14 * * *", CENTRAL, "2026-06-18T19:00Z", "2026-06-19"],
  ["spot_prices", "30 9 * * 1-5", NEW_YORK, "2026-01-15T14:30Z", "2026-01-14"],
  ["spot_prices", "30 9 * * 1-5", NEW_YORK, "2026-06-18T13:30Z", "2026-06-17"],
  ["gas_storage", "35 10 * * 4", NEW_YORK, "2026-01-15T15:35Z", "2026-01-09"],
  ["gas_storage", "35 10 * * 4", NEW_YORK, "2026-06-18T14:35Z", "2026-06-12"],
  ["petroleum_status", "35 10 * * 3", NEW_YORK, "2026-01-14T15:35Z", "2026-01-09"],
  ["petroleum_status", "35 10 * * 3", NEW_YORK, "2026-06-17T14:35Z", "2026-06-12"],
  ["degree_days", "0 12 6 * *", NEW_YORK, "2026-01-06T17:00Z", "2025-12-01"],
  ["degree_days", "0 12 6 * *", NEW_YORK, "2026-06-06T16:00Z", "2026-05-01"],
])("%s fires at %s in %s: the tick of %s takes %s", (job, cron, timeZone, tick, partition) => {
  const { schedules, partitions } = known(job);
  const [schedule] = schedules;
  if (!schedule) throw new Error(`${job} has no schedule`);
  expect(schedule).toEqual({ name: job, cron, timeZone, aim: "latest" });
  expect(iso(latestTick(schedule, at(tick)) ?? 0)).toBe(iso(at(tick)));
  expect(iso(nextTick(schedule, at(tick) - 1) ?? 0)).toBe(iso(at(tick)));
  expect(latestPartition(partitions, at(tick))).toBe(partition);
});

it("only the intraday bars have no schedule", () => {
  const unscheduled = PIPELINES.filter(({ schedules }) => schedules.length === 0);
  expect(unscheduled.map(({ job }) => job)).toEqual(["intraday_bars"]);
});

it.each([
  [
    "grid_region",
    ["power.demand", "power.demand_forecast", "power.generation", "power.interchange"],
  ],
  ["generation_by_fuel", ["power.generation_by_fuel"]],
  ["realtime_prices", ["power.lmp"]],
  ["day_ahead_prices", ["power.dalmp"]],
  ["system_load", ["power.load"]],
  ["gas_storage", ["fundamentals.agency"]],
  ["petroleum_status", ["fundamentals.agency"]],
  ["spot_prices", ["prices.spot"]],
  ["degree_days", ["weather"]],
  ["intraday_bars", ["prices.intraday"]],
])("the check of %s reads back %j", (job, libraries) => {
  expect(known(job).libraries.toSorted()).toEqual(libraries);
});
