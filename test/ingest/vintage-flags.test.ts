// The check of flags in a store that was filled without the publication rule.

import { afterAll, beforeAll, expect, it } from "vitest";
import type { Pipeline } from "../../edge/markets/ingest/pipeline.ts";
import { listLateRows } from "../../edge/markets/ingest/vintage-flags.ts";
import { commit } from "../../edge/markets/store/commit.ts";
import { iso, systemClock } from "../../shared/time.ts";
import { type ScriptedIngest, scriptedIngest } from "../support/ingest.ts";
import { DAY } from "../support/world.ts";

const TODAY = Math.floor(systemClock() / DAY) * DAY;
const pipeline = {
  job: "hourly",
  libraries: ["power.hourly"],
  publishedWithinMs: 3 * DAY,
} as Partial<Pipeline> as Pipeline;

let ingest: ScriptedIngest;
beforeAll(async () => {
  ingest = await scriptedIngest({ pipelines: [pipeline], now: TODAY });
});
afterAll(() => ingest.close());

/** Commits the rows of some days ago as true vintages, against the rule. */
const learn = (symbol: string, daysAgo: Record<number, number>, reconstructed = false) =>
  commit(ingest.parts, {
    library: "power.hourly",
    symbol,
    valueColumns: ["value"],
    runId: "run",
    partition: "2026-01-10",
    sandbox: false,
    sourceUrl: "https://api.eia.gov/v2/",
    covered: { from: TODAY - 30 * DAY, to: TODAY + DAY },
    reconstructed,
    rows: Object.entries(daysAgo).map(([days, value]) => ({
      datetime: TODAY - Number(days) * DAY,
      instrumentId: `power.hourly.${symbol}`,
      values: [value],
    })),
  });

it("names the series with rows flagged true that were learned too late, and no other", async () => {
  await learn("late", { 20: 1, 10: 1, 1: 1 });
  await learn("late", { 20: 2, 10: 1, 1: 1, 9: 1 });
  await learn("timely", { 1: 1, 0: 1 });
  // A backfill flagged the row; its revision is a true vintage.
  await learn("filled", { 20: 1 }, true);
  await learn("filled", { 20: 2 });
  // In time when its commit began, and late by the time it was through.
  await learn("timely", { [(TODAY - systemClock() + 3 * DAY + 1_000) / DAY]: 1 });
  expect(await listLateRows(ingest.parts, "hourly")).toEqual([
    {
      job: "hourly",
      library: "power.hourly",
      symbol: "late",
      first: iso(TODAY - 20 * DAY),
      last: iso(TODAY - 9 * DAY),
      rows: 3,
    },
  ]);
  await expect(listLateRows(ingest.parts, "nothing")).rejects.toMatchObject({
    code: "unknown_job",
  });
});
