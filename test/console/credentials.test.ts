// Runs of providers whose credentials are not set, where no sandbox stands in for them.

import { beforeAll, expect, it } from "vitest";
import { followRun } from "../../edge/local/operator.ts";
import { createWorld, type World } from "../support/world.ts";

let world: World;

beforeAll(async () => {
  world = await createWorld({ services: ["console"] });
});

it.each([
  ["grid_region", "EIA_API_KEY"],
  ["system_load", "ERCOT_USERNAME"],
  ["intraday_bars", "TWELVE_DATA_API_KEY"],
])("%s fails at once, and names %s", async (job, key) => {
  const run = await followRun(world.operator, await world.operator.launch(job));
  expect(run).toMatchObject({ state: "failed", attempt: 1, error_code: "credential_missing" });
  expect(run.error_detail).toContain(key);
});
