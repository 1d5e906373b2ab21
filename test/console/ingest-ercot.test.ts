// ERCOT's pipelines in workerd: sandbox → queue → gate → vintage → read-back → read API, on the
// current day and on days of 23 and 25 hours; restated load as a vintage; a wrong answer named.

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { followBackfill, followRun } from "../../edge/local/operator.ts";
import { type Sandbox, startSandbox } from "../../edge/local/sandbox/server.ts";
import { SETTLEMENT_SYMBOLS } from "../../edge/markets/ingest/settlement-points.ts";
import { dayOfLabel } from "../../edge/markets/ingest/sources/ercot-hours.ts";
import { operatingDay } from "../../edge/markets/store/operating-day.ts";
import { DAY, HOUR, iso, systemClock } from "../../shared/time.ts";
import { SeriesRecord } from "../../shared/wire/markets.ts";
import { launchOrSkip } from "../support/runs.ts";
import { createWorld, onlySchedules, type World } from "../support/world.ts";

let world: World;
let sandbox: Sandbox;
let providerNow: number | null = null;

beforeAll(async () => {
  sandbox = await startSandbox({ clock: () => providerNow ?? systemClock() });
  world = await createWorld({
    services: ["markets", "console"],
    environment: { console: { SANDBOX_URL: sandbox.url } },
  });
  await onlySchedules(world, []);
});
afterAll(() => sandbox.close());

const launch = async (job: string, partition?: string) =>
  followRun(world.operator, await world.operator.launch(job, partition));
const read = async (
  library: string,
  symbol: string,
  { from, to }: { from: number; to: number },
) => {
  const query = `library=${library}&symbol=${symbol}&start=${iso(from)}&end=${iso(to - 1)}`;
  const response = await fetch(`${world.urls.markets}/series?${query}`);
  expect(response.status).toBe(200);
  return SeriesRecord.array().parse(await response.json());
};

describe("the newest partition", () => {
  it.for([
    ["realtime_prices", "power.lmp", "hb_north"],
    ["day_ahead_prices", "power.dalmp", "lz_houston"],
    ["system_load", "power.load", "ercot"],
  ] as const)("of %s is committed, checked and served", async ([job, library, symbol], context) => {
    const run = await launchOrSkip(world.operator, job, context);
    expect(run).toMatchObject({ state: "succeeded", attempt: 1 });
    expect(run.metadata).toMatchObject({
      sandbox: true,
      vintage_reconstructed: false,
      source_url: expect.stringMatching(/^sandbox:\/\/ercot\//),
      check: { passed: true, schema: library, failures: 0, stale_symbols: [] },
    });
    const symbols = await fetch(`${world.urls.markets}/symbols?library=${library}`);
    const expected = library === "power.load" ? ["ercot"] : [...SETTLEMENT_SYMBOLS].toSorted();
    expect(((await symbols.json()) as string[]).toSorted()).toEqual(expected);
    const yesterday = operatingDay(operatingDay(systemClock()).from - 1);
    const rows = await read(library, symbol, yesterday);
    const step = library === "power.lmp" ? HOUR / 4 : HOUR;
    expect(rows.length).toBeGreaterThanOrEqual((yesterday.to - yesterday.from) / step - 4);
    expect(rows.every((row) => row.instrument_id === `${library}.${symbol}`)).toBe(true);
  });
});

describe("a backfill", () => {
  it("fills days of 23 and 25 hours from the archive, with its posting times", async () => {
    for (const [job, library, symbol, step] of [
      ["realtime_prices", "power.lmp", "hb_west", HOUR / 4],
      ["day_ahead_prices", "power.dalmp", "hb_hubavg", HOUR],
      ["system_load", "power.load", "ercot", HOUR],
    ] as const) {
      for (const key of ["2025-03-09", "2025-11-02"]) {
        const idempotency_key = `${job} ${key}`;
        const id = await world.operator.startBackfill({
          job,
          first: key,
          last: key,
          idempotency_key,
        });
        const { runs } = await followBackfill(world.operator, id, () => {});
        expect(runs).toMatchObject({ succeeded: 1, failed: 0 });
        const { from, to } = dayOfLabel(key);
        const rows = await read(library, symbol, { from, to });
        expect(rows.map((row) => Date.parse(row.Datetime))).toEqual(
          Array.from({ length: (to - from) / step }, (_, index) => from + index * step),
        );
        expect(rows.every((row) => row.vintage_reconstructed)).toBe(true);
      }
    }
  });
});

describe("the passing of time", () => {
  it("restates a page's load by the settled report, as a vintage of its own", async () => {
    const day = operatingDay(systemClock() - 5 * DAY);
    providerNow = day.to + 2 * HOUR;
    // The run's own clock has the report settled; this provider's clock has not posted it yet.
    expect(await launch("system_load", day.key)).toMatchObject({ state: "succeeded" });
    const shown = await read("power.load", "ercot", day);
    providerNow = null;
    expect(await launch("system_load", day.key)).toMatchObject({ state: "succeeded" });
    const settled = await read("power.load", "ercot", day);
    expect(settled.map((row) => row.Datetime)).toEqual(shown.map((row) => row.Datetime));
    expect(settled.map((row) => row.value)).not.toEqual(shown.map((row) => row.value));
  });
});

describe("a wrong answer", () => {
  it.each([
    ["refused", "upstream_unauthorized", "ERCOT_"],
    ["drifted", "upstream_schema_drift", "settlementPointPrice"],
  ] as const)(
    "of a provider that is %s ends the run at once, by name",
    async (fault, code, named) => {
      sandbox.break("ercot", fault);
      const run = await launch("realtime_prices");
      sandbox.break("ercot", null);
      expect(run).toMatchObject({ state: "failed", attempt: 1, error_code: code });
      expect(run.error_detail).toContain(named);
      expect(world.logs.join("\n")).not.toContain("sandbox-token");
    },
  );
});
