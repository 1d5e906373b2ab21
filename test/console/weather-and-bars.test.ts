// Degree days and intraday bars in workerd, from their sandboxes to the read API: forward runs,
// revisions, a directory that was set back, holidays.

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { followBackfill, followRun } from "../../edge/local/operator.ts";
import { appearsAt } from "../../edge/local/sandbox/noaa.ts";
import { type Sandbox, startSandbox } from "../../edge/local/sandbox/server.ts";
import { latestPartition } from "../../edge/markets/ingest/partition.ts";
import { degreeDays } from "../../edge/markets/ingest/pipelines/weather.ts";
import { LeftOut } from "../../edge/markets/ingest/sources/left-out.ts";
import { parseDegreeDays } from "../../edge/markets/ingest/sources/noaa.ts";
import { commit } from "../../edge/markets/store/commit.ts";
import { addMonths, iso, isoDay, systemClock } from "../../shared/time.ts";
import { SeriesRecord } from "../../shared/wire/markets.ts";
import { hasRecordings, recording } from "../support/recordings.ts";
import { attemptRun } from "../support/runs.ts";
import { createWorld, onlySchedules, type World } from "../support/world.ts";

/** The newest partition, whether or not its file would be there today. */
const newest = Date.parse(latestPartition(degreeDays.partitions, systemClock()));
const before = addMonths(newest, -1);

let world: World;
let sandbox: Sandbox;
let providerNow = appearsAt(before, "cddcst");

beforeAll(async () => {
  sandbox = await startSandbox({ clock: () => providerNow });
  world = await createWorld({
    services: ["markets", "console"],
    environment: { console: { SANDBOX_URL: sandbox.url } },
  });
  await onlySchedules(world, []);
});
afterAll(() => sandbox.close());

const launch = async (job: string, partition?: string) =>
  followRun(world.operator, await world.operator.launch(job, partition));
const series = async (library: string, symbol: string, query = "") => {
  const path = `/series?library=${library}&symbol=${symbol}&provenance=full${query}`;
  const response = await fetch(`${world.urls.markets}${path}`);
  expect(response.status).toBe(200);
  return SeriesRecord.loose()
    .array()
    .parse(await response.json());
};

describe("degree days", () => {
  it("are committed over two years while the newest month is awaited, or late", async () => {
    const run = await attemptRun(world.operator, "degree_days");
    expect(["waiting", "late"]).toContain(run.state);
    expect(run).toMatchObject({
      error_code: "not_released",
      error_detail: expect.stringContaining(isoDay(newest)),
    });
    const rows = await series("weather", "hdd");
    const national = rows.filter((row) => row.instrument_id === "weather.hdd.us");
    expect(national.length).toBeGreaterThanOrEqual(23);
    expect(national.at(-1)).toMatchObject({
      Datetime: iso(before),
      source_published_at: iso(Date.parse(isoDay(appearsAt(before, "hddcst")))),
      // Learned after the release window of its month.
      vintage_reconstructed: true,
    });
    expect(new Set(rows.map((row) => row.instrument_id)).size).toBe(58);
    const regions = await fetch(`${world.urls.markets}/graph/entities?label=Region`);
    const keys = ((await regions.json()) as { key: string }[]).map(({ key }) => key);
    expect(keys).toEqual(expect.arrayContaining(["us", "tx", "pacific"]));
  });

  it("gain a month and revisions with the next file, and keep what was known before", async () => {
    const known = await series("weather", "hdd");
    const asOf = known.reduce((most, row) => (row.as_of > most ? row.as_of : most), "");
    providerNow = appearsAt(newest, "cddcst");
    const run = await launch("degree_days");
    expect(run).toMatchObject({
      state: "succeeded",
      metadata: { sandbox: true, source_url: expect.stringMatching(/^sandbox:\/\/noaa\/.*-v1/) },
    });
    expect(run.metadata?.check).toMatchObject({ passed: true, warnings: [], failures: 0 });
    const rows = await series("weather", "hdd");
    expect(rows.filter((row) => row.Datetime === iso(newest))).toHaveLength(58);
    expect(await series("weather", "hdd", `&as_of=${asOf}`)).toEqual(known);
    expect((await launch("degree_days")).metadata).toMatchObject({ rows_written: 0 });
  });

  it("refuse a directory that was set back, and change nothing", async () => {
    const rows = await series("weather", "cdd");
    providerNow = appearsAt(before, "cddcst");
    const run = await launch("degree_days");
    expect(run).toMatchObject({ state: "failed", error_code: "gate_rejected" });
    expect(run.error_detail).toContain("the file is older than the last one");
    providerNow = appearsAt(newest, "cddcst");
    expect(await series("weather", "cdd")).toEqual(rows);
  });

  it("are there since 1895", async () => {
    const range = { first: "1895-01-01", last: "1895-02-01" };
    const started = await world.operator.startBackfill({ job: "degree_days", ...range });
    const { runs } = await followBackfill(world.operator, started, () => {});
    expect(runs).toMatchObject({ succeeded: 2, failed: 0 });
    const rows = await series("weather", "hdd", "&end=1895-12-31");
    expect(rows).toHaveLength(2 * 58);
    expect(rows.every((row) => row.vintage_reconstructed)).toBe(true);
  });

  it.skipIf(!hasRecordings("nclimdiv"))("commit exactly the rows really revised", async () => {
    const national = (path: string) =>
      parseDegreeDays(
        recording(`nclimdiv/climdiv-hddcst-v1.0.0-${path}`),
        "hdd",
        new LeftOut(),
      ).flatMap(({ area, year, months }) =>
        months.flatMap((value, month) =>
          area !== "us" || Number.isNaN(value)
            ? []
            : [
                {
                  datetime: Date.UTC(year, month, 1),
                  instrumentId: "weather.hdd.us",
                  values: [value],
                },
              ],
        ),
      );
    const covered = { from: Date.UTC(2015, 0, 1), to: Date.UTC(2026, 6, 1) };
    const write = (path: string) =>
      commit(world.writer, {
        library: "weather",
        symbol: "recorded",
        valueColumns: ["value"],
        covered,
        rows: national(path),
        reconstructed: false,
        sandbox: true,
        partition: "2026-05-01",
        runId: crypto.randomUUID(),
        sourceUrl: `https://noaa.example/${path}`,
      });
    expect(await write("20250905.trim")).toMatchObject({ inserted: 128, revised: 0 });
    const second = await write("20260604.national.trim");
    expect(second).toMatchObject({ seq: 2, inserted: 9, revised: 7, retracted: 0 });
    expect(second?.changedAt.map((instant) => isoDay(instant)).sort()).toEqual([
      ...["2024-01-01", "2024-02-01", "2024-03-01", "2024-10-01", "2024-11-01"],
      ...["2025-01-01", "2025-04-01"],
    ]);
  });
});

describe("intraday bars", () => {
  it("are none on a holiday, which is no failure, not even of the first run", async () => {
    const run = await launch("intraday_bars", "2025-12-25");
    expect(run).toMatchObject({
      state: "succeeded",
      metadata: {
        rows_written: 0,
        check: { passed: true, reason: expect.stringContaining("the exchange is closed") },
      },
    });
  });

  it("come by hand only, with their prices and volumes", async () => {
    providerNow = systemClock();
    const job = (await world.operator.jobs()).find((one) => one.job === "intraday_bars");
    expect(job?.schedules).toEqual([]);
    const run = await launch("intraday_bars");
    expect(run.state).toBe("succeeded");
    const rows = await series("prices.intraday", "ung");
    expect(rows.length).toBeGreaterThan(78);
    expect(rows[0]).toMatchObject({ open: expect.any(Number), volume: expect.any(Number) });
    expect(rows.every((row) => row.value === row.close)).toBe(true);
    const symbols = await fetch(`${world.urls.markets}/symbols?library=prices.intraday`);
    expect(await symbols.json()).toEqual(["ung", "uso", "xle", "xlu"]);
  });
});
