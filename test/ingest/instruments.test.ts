// Silence of instruments through real executions: judged by their newest stored row, however long
// ago that was, until an operator retires them.

import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { alertMinute, listAlerts } from "../../edge/markets/ingest/alert-outbox.ts";
import { listInstruments, setRetired } from "../../edge/markets/ingest/instruments.ts";
import { findExecution } from "../../edge/markets/ingest/ledger.ts";
import { launch } from "../../edge/markets/ingest/operate.ts";
import type { Pipeline } from "../../edge/markets/ingest/pipeline.ts";
import { DAY, iso } from "../../shared/time.ts";
import { type ScriptedIngest, scriptedIngest } from "../support/ingest.ts";

const START = Date.parse("2026-06-18T00:00:00Z");
const LIBRARY = "power.fuels";

let ingest: ScriptedIngest;
/** The newest valid time of each instrument that the provider knows. */
let newest: Map<string, number>;

const fuels: Pipeline = {
  job: "fuels",
  title: "Fuels",
  provider: "eia",
  timeZone: "UTC",
  valueColumns: ["value"],
  topicsOf: () => [],
  freshness: { warningMs: 10 * DAY, errorMs: 20 * DAY },
  publishedWithinMs: Infinity,
  libraries: [LIBRARY],
  partitions: { unit: "day", first: "2026-01-01" },
  schedules: [],
  lookbackMs: 9 * DAY,
  release: null,
  fetch: async (_, { window }) => ({
    series: ["erco", "pjm"]
      .filter((symbol) => [...newest.keys()].some((name) => name.startsWith(`${symbol}.`)))
      .map((symbol) => ({
        library: LIBRARY,
        symbol,
        rows: [...newest]
          .filter(([name]) => name.startsWith(`${symbol}.`))
          .filter(([, datetime]) => datetime >= window.from && datetime < window.to)
          .map(([name, datetime]) => ({
            datetime,
            instrumentId: `${LIBRARY}.${name}`,
            values: [1],
          })),
      })),
    sourceUrl: "sandbox://provider",
    sandbox: true,
  }),
  gate: (fetched) => ({ accepted: [...fetched], findings: [] }),
};

beforeAll(async () => {
  ingest = await scriptedIngest({ pipelines: [fuels], now: START });
});
afterAll(() => ingest.close());
beforeEach(async () => {
  await ingest.reset();
  newest = new Map(["wnd", "sun", "col"].map((fuel) => [`erco.${fuel}`, START]));
  await checkAt(0);
});

/** Executes the newest partition so many days after the start, and returns its watch-list. */
async function checkAt(days: number) {
  ingest.now = START + days * DAY;
  const runId = await launch(ingest.parts, "fuels");
  await ingest.consume();
  await alertMinute(ingest.parts, null, ingest.now);
  const run = await findExecution(ingest.parts.database, runId);
  expect(run?.state).toBe("succeeded");
  const metadata = run?.metadata ?? {};
  const check = metadata.check as Record<string, unknown>;
  expect(check.passed).toBe(true);
  return { stale: check.stale_symbols, retired: check.retired_symbols };
}

/** Days on which wind and sun report, and coal does not. */
async function coalSilentUntil(days: number) {
  for (const fuel of ["wnd", "sun"]) newest.set(`erco.${fuel}`, START + days * DAY);
  return checkAt(days);
}
const retire = (retired: boolean, fuel = "col") =>
  setRetired(ingest.parts.database, `${LIBRARY}.erco.${fuel}`, {
    retired,
    by: "ada",
    now: ingest.now,
  });
const told = async () =>
  (await listAlerts(ingest.parts.database, { limit: 100 }))
    .map(({ kind, series, detail }) => [kind, series, detail])
    .toReversed();

it("an instrument stays on the list long after its last row left the window", async () => {
  expect(await coalSilentUntil(2)).toEqual({ stale: [], retired: [] });
  expect(await coalSilentUntil(5)).toEqual({ stale: ["erco.col"], retired: [] });
  expect(await coalSilentUntil(40)).toEqual({ stale: ["erco.col"], retired: [] });
});

it("an instrument is an incident once, until it reports again", async () => {
  await coalSilentUntil(5);
  await coalSilentUntil(40);
  expect(await told()).toEqual([["stale", "erco.col", expect.stringContaining("lags")]]);
  newest.set("erco.col", START + 41 * DAY);
  expect(await coalSilentUntil(41)).toEqual({ stale: [], retired: [] });
  expect((await told()).at(-1)).toEqual(["recovered", "erco.col", "erco.col is fresh again"]);
});

it("an instrument that an operator retired is listed apart, until it has a newer row", async () => {
  await coalSilentUntil(5);
  await retire(true);
  expect(await coalSilentUntil(6)).toEqual({ stale: [], retired: ["erco.col"] });
  expect((await told()).at(-1)).toEqual(["recovered", "erco.col", "erco.col is retired"]);
  const [coal] = await listInstruments(ingest.parts.database, [LIBRARY]);
  expect(coal).toMatchObject({ retiredBy: "ada", retiredAt: iso(START + 5 * DAY) });
  newest.set("erco.col", START + 7 * DAY);
  expect(await coalSilentUntil(7)).toEqual({ stale: [], retired: [] });
  expect(await coalSilentUntil(20)).toEqual({ stale: ["erco.col"], retired: [] });
});

it("a retired instrument is watched again where an operator wants it", async () => {
  await coalSilentUntil(5);
  await retire(true);
  await retire(false);
  expect(await coalSilentUntil(6)).toEqual({ stale: ["erco.col"], retired: [] });
});

it("an instrument that no check knows cannot be retired", async () => {
  const { database } = ingest.parts;
  const action = { retired: true, by: null, now: START };
  await expect(setRetired(database, "power.fuels.nowhere", action)).rejects.toMatchObject({
    code: "unknown_instrument",
  });
});

it("a series whose instruments no check recorded is read whole, once", async () => {
  await coalSilentUntil(5);
  await ingest.forgetInstruments();
  expect(await coalSilentUntil(40)).toEqual({ stale: ["erco.col"], retired: [] });
});

it("an instrument does not recover where all others of its symbol fall silent too", async () => {
  await coalSilentUntil(5);
  newest.set("pjm.wnd", START + 20 * DAY);
  expect(await checkAt(20)).toEqual({ stale: ["erco"], retired: [] });
  const begun = await told();
  expect(begun.map(([kind, series]) => [kind, series])).toEqual([
    ["stale", "erco.col"],
    ["stale", "erco"],
  ]);
  for (const fuel of ["wnd", "sun", "col"]) await retire(true, fuel);
  expect((await checkAt(21)).stale).toEqual([]);
  const ended = (await told()).slice(begun.length).map(([kind, , detail]) => `${kind}: ${detail}`);
  expect(ended.sort()).toEqual([
    "recovered: erco has nothing silent but what is retired",
    "recovered: erco.col is retired",
  ]);
});
