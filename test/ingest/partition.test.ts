// Partitions of every unit, and which of them a schedule aims at, against the vectors of both
// daylight-saving changes.

import { describe, expect, it } from "vitest";
import { expectedUntil } from "../../edge/markets/ingest/completeness.ts";
import {
  firstLatestAt,
  holdingPartition,
  latestPartition,
  type Partitions,
  partitionRange,
  partitionsBetween,
  shiftPartition,
} from "../../edge/markets/ingest/partition.ts";
import type { Pipeline } from "../../edge/markets/ingest/pipeline.ts";
import { PIPELINES } from "../../edge/markets/ingest/pipelines.ts";
import { latestTick, nextTick } from "../../edge/markets/ingest/schedule.ts";
import { DAY, HOUR, iso, MINUTE } from "../../shared/time.ts";
import { hasRecordings, recording } from "../support/recordings.ts";

it.each([
  // In winter, and in summer, where the same clocks show another hour of UTC.
  ["gas_storage", "2026-01-09", "2026-01-15T18:35Z"],
  ["gas_storage", "2026-06-12", "2026-06-18T17:35Z"],
  ["petroleum_status", "2026-06-12", "2026-06-17T17:35Z"],
  ["degree_days", "2026-05-01", "2026-06-20T16:00Z"],
  // The day after the clocks change has the 14:00 tick of the day before.
  ["day_ahead_prices", "2026-03-09", "2026-03-09T01:00Z"],
  // Announced for the Friday after Veterans Day and the Wednesday before Thanksgiving.
  ["gas_storage", "2026-11-06", "2026-11-13T18:30Z"],
  ["gas_storage", "2026-11-20", "2026-11-25T20:00Z"],
  // By the rule: of Juneteenth on a Thursday, Christmas on a Wednesday, and a Monday's holiday.
  ["gas_storage", "2025-06-13", "2025-06-18T19:00Z"],
  ["gas_storage", "2024-12-20", "2024-12-27T18:30Z"],
  ["gas_storage", "2026-09-04", "2026-09-10T17:35Z"],
  ["petroleum_status", "2026-09-04", "2026-09-10T18:00Z"],
  ["petroleum_status", "2026-11-06", "2026-11-12T19:00Z"],
  ["system_load", "2026-11-02", "2026-11-02T08:35Z"],
  ["grid_region", "2026-06-18", "2026-06-20T00:00Z"],
  ["realtime_prices", "2026-06-18", "2026-06-18T08:00Z"],
  ["spot_prices", "2026-06-12", "2026-06-28T00:00Z"],
  ["intraday_bars", "2026-06-12", "2026-06-12T21:30Z"],
])("%s of %s is awaited until %s", (job, key, until) => {
  const pipeline = PIPELINES.find((one) => one.job === job) as Pipeline;
  expect(iso(expectedUntil(pipeline, key))).toBe(iso(at(until)));
});

const at = (text: string) => Date.parse(text);
const NOW = at("2028-01-01T00:00:00Z");
const since = "2010-01-01";
const week: Partitions = { unit: "week", first: "2010-01-01" };
const month: Partitions = { unit: "month", first: since };
const weekday: Partitions = { unit: "weekday", first: since };
const operating: Partitions = {
  unit: "operating_day",
  timeZone: "America/Chicago",
  first: since,
};

describe("a partition", () => {
  it("of a week begins on the Friday its report is dated", () => {
    expect(latestPartition(week, at("2026-06-19T00:00:00Z"))).toBe("2026-06-19");
    expect(latestPartition(week, at("2026-06-18T23:59:59Z"))).toBe("2026-06-12");
    const { from, to } = partitionRange(week, "2026-06-12", NOW);
    expect([iso(from), to - from]).toEqual(["2026-06-12T00:00:00.000Z", 7 * DAY]);
    expect(() => partitionRange(week, "2026-06-15", NOW)).toThrow(/holds it is 2026-06-12/);
  });

  it("of a month has the month's length", () => {
    expect(latestPartition({ ...month, offset: -1 }, at("2026-03-06T17:00:00Z"))).toBe(
      "2026-02-01",
    );
    const { from, to } = partitionRange(month, "2026-02-01", NOW);
    expect((to - from) / DAY).toBe(28);
    expect(shiftPartition(month, "2026-01-01", -1)).toBe("2025-12-01");
  });

  it("of a weekday leaves weekends out", () => {
    expect(latestPartition({ ...weekday, offset: -1 }, at("2026-06-22T13:30:00Z"))).toBe(
      "2026-06-19",
    );
    expect(latestPartition(weekday, at("2026-06-21T13:30:00Z"))).toBe("2026-06-19");
    expect(partitionsBetween(weekday, "2026-06-18", "2026-06-23", NOW)).toEqual([
      ...["2026-06-23", "2026-06-22", "2026-06-19", "2026-06-18"],
    ]);
    expect(() => partitionRange(weekday, "2026-06-20", NOW)).toThrow(/begins no weekday/);
  });

  it("of an operating day is 23, 24 or 25 hours long, and holds every instant in it", () => {
    const hours = (key: string) => {
      const { from, to } = partitionRange(operating, key, NOW);
      for (const instant of [from, to - 1]) expect(holdingPartition(operating, instant)).toBe(key);
      return (to - from) / HOUR;
    };
    expect(["2026-03-08", "2026-06-01", "2026-11-01"].map(hours)).toEqual([23, 24, 25]);
    const eastern: Partitions = { ...operating, timeZone: "America/New_York" };
    const { from } = partitionRange(eastern, "2026-06-01", NOW);
    expect(iso(from)).toBe("2026-06-01T04:00:00.000Z");
    expect(holdingPartition(eastern, from - 1)).toBe("2026-05-31");
    expect(iso(firstLatestAt(eastern, "2026-06-01"))).toBe(iso(from));
  });

  it("of any range is named by any two days that hold the beginning of one", () => {
    expect(partitionsBetween(week, "2026-06-01", "2026-06-30", NOW)).toEqual([
      ...["2026-06-26", "2026-06-19", "2026-06-12", "2026-06-05"],
    ]);
    expect(partitionsBetween(month, "2026-01-15", "2026-03-20", NOW)).toEqual([
      ...["2026-03-01", "2026-02-01"],
    ]);
    expect(() => partitionsBetween(month, "2026-01-05", "2026-01-20", NOW)).toThrow(
      /no month begins/,
    );
    expect(() => partitionsBetween(week, "2009-12-01", "2026-06-30", NOW)).toThrow(/outside/);
    expect(() => partitionsBetween(week, "yesterday", "2026-06-30", NOW)).toThrow(/YYYY-MM-DD/);
  });
});

interface Vector {
  utc: string;
  partition: string | null;
}

const vectors = hasRecordings("dst_vectors.json")
  ? (JSON.parse(recording("dst_vectors.json")) as {
      hourly: Record<string, Record<string, Vector[]>>;
      daily: Record<string, Vector[]>;
      operating_days: { day: string; start: string; end: string; hours: number }[];
    })
  : null;

/** The vectors' names of our jobs. */
const JOBS: Readonly<Record<string, string>> = {
  grid: "grid_region",
  rt_prices: "realtime_prices",
  load: "system_load",
  dam: "day_ahead_prices",
  spot: "spot_prices",
  gas_storage: "gas_storage",
  petroleum: "petroleum_status",
  degree_days: "degree_days",
};

function scheduleOf(name: string) {
  const pipeline = PIPELINES.find(({ job }) => job === JOBS[name]) as Pipeline;
  expect(pipeline, `${name} is a pipeline`).toBeDefined();
  const [schedule] = pipeline.schedules;
  if (!schedule) throw new Error(`${name} has no schedule`);
  return { pipeline, schedule };
}

describe.skipIf(!vectors)("the vectors of dst_vectors.json", () => {
  it.each(["grid", "rt_prices", "load"])(
    "of %s: every real hour, once, and its partition",
    (name) => {
      const { pipeline, schedule } = scheduleOf(name);
      for (const list of Object.values(vectors?.hourly[name] ?? {})) {
        expect(list.length).toBeGreaterThan(5);
        list.forEach(({ utc, partition }, index) => {
          for (const late of [0, 5 * MINUTE])
            expect(latestTick(schedule, at(utc) + late)).toBe(at(utc));
          if (partition) expect(latestPartition(pipeline.partitions, at(utc))).toBe(partition);
          const next = list[index + 1];
          if (next) expect(iso(nextTick(schedule, at(utc)) ?? 0)).toBe(iso(at(next.utc)));
        });
      }
    },
  );

  it.each(["dam", "spot", "gas_storage", "petroleum", "degree_days"])("of %s", (name) => {
    const { pipeline, schedule } = scheduleOf(name);
    const list = vectors?.daily[name] ?? [];
    expect(list.length).toBeGreaterThan(1);
    for (const { utc, partition } of list) {
      expect(iso(nextTick(schedule, at(utc) - 1) ?? 0)).toBe(iso(at(utc)));
      expect(latestTick(schedule, at(utc) + 59 * MINUTE)).toBe(at(utc));
      if (partition) expect(latestPartition(pipeline.partitions, at(utc))).toBe(partition);
    }
  });

  it("of operating days", () => {
    for (const { day, start, end, hours } of vectors?.operating_days ?? []) {
      const { from, to } = partitionRange(operating, day, NOW);
      expect([from, to, (to - from) / HOUR]).toEqual([at(start), at(end), hours]);
    }
  });
});
