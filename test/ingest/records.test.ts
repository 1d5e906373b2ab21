// What a materialization records of what it covered, changed or not, and which of it changed.

import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { findExecution } from "../../edge/markets/ingest/ledger.ts";
import { launch } from "../../edge/markets/ingest/operate.ts";
import type { Pipeline } from "../../edge/markets/ingest/pipeline.ts";
import { commit } from "../../edge/markets/store/commit.ts";
import { systemClock } from "../../shared/time.ts";
import { type ScriptedIngest, scriptedIngest } from "../support/ingest.ts";
import { DAY, HOUR } from "../support/world.ts";

let ingest: ScriptedIngest;
/** Values of the day's first hour, by symbol. */
let values: Map<string, number>;
/** The instrument of a symbol's row five days ago; that of the other row where null. */
let formerInstrument: string | null = null;
const now = systemClock();
const today = Math.floor(now / DAY) * DAY;

const hourly: Pipeline = {
  job: "hourly",
  title: "Hourly",
  provider: "eia",
  timeZone: "UTC",
  valueColumns: ["value"],
  topicsOf: () => [],
  freshness: { warningMs: 10 * DAY, errorMs: 20 * DAY },
  publishedWithinMs: 2 * DAY,
  libraries: ["power.hourly"],
  partitions: { unit: "day", first: "2020-01-01" },
  schedules: [],
  lookbackMs: 5 * DAY,
  release: null,
  fetch: async () => ({
    series: [...values].map(([symbol, value]) => ({
      library: "power.hourly",
      symbol,
      rows: [today, today - 5 * DAY].map((datetime) => ({
        datetime,
        instrumentId: (datetime < today && formerInstrument) || `power.hourly.${symbol}`,
        values: [value],
      })),
    })),
    sourceUrl: "sandbox://provider",
    sandbox: true,
  }),
  gate: (fetched) => ({ accepted: [...fetched], findings: [] }),
};

beforeAll(async () => {
  ingest = await scriptedIngest({ pipelines: [hourly], now });
});
afterAll(() => ingest.close());
beforeEach(async () => {
  await ingest.reset();
  formerInstrument = null;
  values = new Map([
    ["one", 1],
    ["two", 2],
  ]);
});

async function materialize(before?: (runId: string) => Promise<unknown>) {
  const runId = await launch(ingest.parts, "hourly");
  await before?.(runId);
  await ingest.consume();
  const run = await findExecution(ingest.parts.database, runId);
  expect(run?.state).toBe("succeeded");
  return run?.metadata as Record<string, unknown>;
}

it("an execution that changes nothing records what is in force", async () => {
  const first = await materialize();
  expect(first).toMatchObject({
    rows_written: 4,
    rows_reconstructed: 2,
    vintage_reconstructed: false,
    instrument_ids: ["power.hourly.one", "power.hourly.two"],
    changed_instrument_ids: ["power.hourly.one", "power.hourly.two"],
    // The look-back is a vintage of its own.
    store_version: { "power.hourly.one": 2, "power.hourly.two": 2 },
  });
  expect(Date.parse(String(first.as_of))).toBeGreaterThan(now - HOUR);
  const second = await materialize();
  expect(second).toMatchObject({
    rows_written: 0,
    rows_reconstructed: 0,
    instrument_ids: first.instrument_ids,
    changed_instrument_ids: [],
    as_of: first.as_of,
    store_version: first.store_version,
  });
});

it("an execution that changes a part records all it covered, and the part", async () => {
  const first = await materialize();
  values.set("two", 3);
  const second = await materialize();
  expect(second).toMatchObject({
    rows_written: 2,
    rows_reconstructed: 0,
    instrument_ids: ["power.hourly.one", "power.hourly.two"],
    changed_instrument_ids: ["power.hourly.two"],
    store_version: { "power.hourly.one": 2, "power.hourly.two": 3 },
  });
  expect(String(second.as_of) > String(first.as_of)).toBe(true);
});

it("an execution that was killed between two vintages of a series records those of both", async () => {
  formerInstrument = "power.hourly.former";
  values.delete("two");
  const record = await materialize((runId) =>
    // What the attempt that was killed had written: the late row alone.
    commit(ingest.parts, {
      library: "power.hourly",
      symbol: "one",
      valueColumns: ["value"],
      rows: [{ datetime: today - 5 * DAY, instrumentId: "power.hourly.former", values: [1] }],
      covered: { from: today - 5 * DAY, to: today },
      reconstructed: true,
      sandbox: true,
      runId,
      partition: "2026-01-01",
      sourceUrl: "sandbox://provider",
    }),
  );
  expect(record).toMatchObject({ rows_written: 2, rows_reconstructed: 1 });
  expect((record.changed_instrument_ids as string[]).toSorted()).toEqual([
    "power.hourly.former",
    "power.hourly.one",
  ]);
});
