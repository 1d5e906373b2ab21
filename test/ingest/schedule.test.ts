// When the grid schedule fires and which partition a tick resolves to, across daylight-saving
// changes.

import { describe, expect, it } from "vitest";
import {
  latestPartition,
  partitionRange,
  partitionsBetween,
} from "../../edge/markets/ingest/partition.ts";
import { PIPELINES } from "../../edge/markets/ingest/pipelines.ts";
import { latestTick, nextTick } from "../../edge/markets/ingest/schedule.ts";
import { DAY, HOUR, iso, MINUTE } from "../../shared/time.ts";
import { hasRecordings, recording } from "../support/recordings.ts";

const grid = PIPELINES[0]?.schedules[0] ?? { cron: "", timeZone: "" };
const at = (text: string) => Date.parse(text);

describe("the grid schedule", () => {
  it("is the spec's", () => {
    expect(grid).toMatchObject({ cron: "20 * * * *", timeZone: "America/New_York" });
  });

  it.each([
    ["spring", "2026-03-08T05:20:00Z"],
    ["fall", "2026-11-01T04:20:00Z"],
  ])("fires once every real hour across the %s change", (_, first) => {
    for (let tick = at(first), count = 0; count < 6; count++, tick += HOUR) {
      expect(iso(nextTick(grid, tick) ?? 0)).toBe(iso(tick + HOUR));
      expect(iso(latestTick(grid, tick + HOUR - 1) ?? 0)).toBe(iso(tick));
    }
  });

  it("finds the same instant from a minute that is on time, late or repeated", () => {
    const tick = at("2026-05-05T10:20:00Z");
    for (const late of [0, 1, MINUTE, 59 * MINUTE])
      expect(latestTick(grid, tick + late)).toBe(tick);
    expect(latestTick(grid, tick - 1)).toBe(tick - HOUR);
  });

  it.skipIf(!hasRecordings("dst_vectors.json"))("agrees with the vectors of both zones", () => {
    const { hourly } = JSON.parse(recording("dst_vectors.json")) as {
      hourly: Record<string, Record<string, { utc: string }[]>>;
    };
    const schedules = {
      grid,
      rt_prices: { cron: "25 * * * *", timeZone: "America/Chicago" },
      load: { cron: "35 * * * *", timeZone: "America/Chicago" },
    };
    for (const [name, schedule] of Object.entries(schedules)) {
      for (const vectors of Object.values(hourly[name] ?? {})) {
        const ticks = vectors.map(({ utc }) => at(utc));
        expect(ticks.length).toBeGreaterThan(5);
        for (const tick of ticks) expect(latestTick(schedule, tick + 5 * MINUTE)).toBe(tick);
        ticks.slice(1).forEach((tick, index) => {
          expect(nextTick(schedule, ticks[index] ?? 0)).toBe(tick);
        });
      }
    }
  });
});

describe("daily partitions", () => {
  const partitions = { unit: "day" as const, first: "2015-07-01" };
  const now = at("2026-05-05T00:00:00Z");

  it("resolve to the day that holds the instant, from its first millisecond", () => {
    expect(latestPartition(partitions, now)).toBe("2026-05-05");
    expect(latestPartition(partitions, now - 1)).toBe("2026-05-04");
    expect(partitionRange(partitions, "2026-05-04", now)).toEqual({ from: now - DAY, to: now });
  });

  it("refuse keys that are malformed, too old or in the future", () => {
    for (const key of ["2026-5-4", "2026-02-30", "yesterday", "2015-06-30", "2026-05-06"]) {
      expect(() => partitionRange(partitions, key, now)).toThrow(
        expect.objectContaining({ code: "bad_partition" }),
      );
    }
  });

  it("list a range newest first, both ends included", () => {
    const listed = partitionsBetween(partitions, "2026-02-27", "2026-03-02", now);
    expect(listed).toEqual(["2026-03-02", "2026-03-01", "2026-02-28", "2026-02-27"]);
    expect(() => partitionsBetween(partitions, "2026-03-02", "2026-03-01", now)).toThrow(
      "lies after",
    );
  });
});
