// What npm start makes of its settings before it starts anything.

import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, it } from "vitest";
import { providerKeys, startStack } from "../../edge/local/stack.ts";
import { stateAt } from "../../edge/local/state.ts";
import { temporaryFolder } from "../support/postgres.ts";

it.each(["*", "https://app.example.com,*", "https://*.example.com", "app.example.com"])(
  "refuses the origins %s before it starts anything, saying what to write instead",
  async (origins) => {
    const steps: string[] = [];
    const start = startStack({
      state: stateAt(temporaryFolder()),
      sandbox: true,
      gpuNode: false,
      host: "127.0.0.1",
      ports: { markets: 0, console: 0, vision: 0 },
      environment: { SERVICE_CORS_ORIGINS: origins },
      onStep: (step) => steps.push(step),
      onTold: () => {},
      onServicesRestarted: () => {},
    });
    await expect(start).rejects.toThrow(/SERVICE_CORS_ORIGINS: no origin .* Write each origin/);
    expect(steps).toEqual([]);
  },
);

it("takes empty variables for unset", () => {
  const unset = { VANTAGE_MARKETS_PORT: "", VANTAGE_HOST: "", VANTAGE_STATE: "" };
  const start = join(import.meta.dirname, "../../edge/local/start.ts");
  const { status, stderr } = spawnSync(process.execPath, [start, "--help"], {
    env: { ...process.env, ...unset },
    encoding: "utf8",
  });
  expect([status, stderr]).toEqual([0, ""]);
});

it("counts a setting among those that select real providers unless it is empty or false", () => {
  const given = { EIA_API_KEY: "", TWELVE_DATA_API_KEY: "hunter2", ERCOT_PUBLIC_LISTS: "true" };
  expect(providerKeys(given)).toEqual(["ERCOT_PUBLIC_LISTS", "TWELVE_DATA_API_KEY"]);
  expect(providerKeys({ ERCOT_PUBLIC_LISTS: "false" })).toEqual([]);
});
