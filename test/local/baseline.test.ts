// The first ranges of a new state folder: long enough to be useful, short enough to come soon, and
// never the partition that a schedule is to write.

import { describe, expect, it } from "vitest";
import {
  baselineRange,
  followBaseline,
  requestBaseline,
  runHourly,
} from "../../edge/local/baseline.ts";
import type { Operator } from "../../edge/local/operator.ts";
import { type Partitions, partitionsBetween } from "../../edge/markets/ingest/partition.ts";
import { PIPELINES } from "../../edge/markets/ingest/pipelines.ts";
import type { Backfill, Job } from "../../shared/wire/markets.ts";

const SCHEDULE = {
  schedule: "x",
  job: "x",
  cron: "0 * * * *",
  time_zone: "UTC",
  aim: "latest" as const,
  enabled: true,
  next_tick: null,
  last_tick: null,
  switched_by: null,
  switched_at: null,
};
const jobOf = (
  partition_unit: Job["partition_unit"],
  latest_partition: string,
  more: Partial<Job> = {},
): Job => ({
  job: partition_unit,
  title: "",
  provider: "eia",
  libraries: [],
  partition_unit,
  first_partition: "2015-01-01",
  latest_partition,
  schedules: [SCHEDULE],
  ...more,
});

describe("a job's baseline", () => {
  it.each([
    [jobOf("day", "2026-11-21"), "2026-10-22", "2026-11-20", 30],
    [jobOf("operating_day", "2026-11-22"), "2026-10-23", "2026-11-21", 30],
    [jobOf("weekday", "2026-11-20"), "2026-10-21", "2026-11-19", 22],
    [jobOf("weekday", "2026-11-23"), "2026-10-22", "2026-11-20", 22],
    [jobOf("week", "2026-11-13"), "2026-05-15", "2026-11-06", 26],
    [jobOf("month", "2026-10-01"), "2024-10-01", "2026-09-01", 24],
    [jobOf("weekday", "2026-11-20", { schedules: [] }), "2026-11-13", "2026-11-19", 5],
    [
      jobOf("month", "2026-10-01", { first_partition: "2026-08-01" }),
      "2026-08-01",
      "2026-09-01",
      2,
    ],
  ])("ends before the newest partition: %#", (job, first, last, count) => {
    expect(baselineRange(job)).toEqual({ first, last });
    const partitions: Partitions = {
      unit: job.partition_unit,
      timeZone: "America/Chicago",
      first: job.first_partition,
    };
    const keys = partitionsBetween(partitions, first, last, Date.UTC(2026, 11, 20));
    expect(keys).toHaveLength(count);
    expect(keys[0]).toBe(last);
  });

  it("is none while there is only the newest partition", () => {
    expect(baselineRange(jobOf("day", "2026-11-21", { first_partition: "2026-11-21" }))).toBeNull();
  });

  it("exists for every pipeline", () => {
    expect(PIPELINES.length).toBeGreaterThan(2);
    for (const { job, partitions, schedules } of PIPELINES) {
      const described = jobOf(partitions.unit, "2026-10-01", {
        job,
        first_partition: partitions.first,
        schedules: schedules.map(() => SCHEDULE),
      });
      expect([job, baselineRange(described)?.last]).not.toEqual([job, undefined]);
    }
  });
});

/** An operator API whose backfills end one run a look. */
function scripted(jobs: Job[]) {
  const backfills = new Map<string, Backfill>();
  const asked: string[] = [];
  const operator = {
    jobs: async () => jobs,
    startBackfill: async (body: { job: string; first: string; last: string }) => {
      asked.push(body.job);
      const counts = {
        queued: 12,
        waiting: 0,
        running: 0,
        succeeded: 0,
        partial: 0,
        failed: 0,
        late: 0,
        canceled: 0,
      };
      const { job, first, last } = body;
      const times = { created_at: "", canceled_at: null, launched_by: null, canceled_by: null };
      const started = { backfill_id: job, job, first, last, ...times, runs: counts };
      const known = backfills.get(job) ?? started;
      backfills.set(job, known);
      return known;
    },
    backfill: async (id: string) => {
      const known = backfills.get(id);
      if (!known) throw new Error(`no ${id}`);
      const { queued, succeeded, failed } = known.runs;
      const fails = id === "month" && queued === 1;
      const runs = {
        ...known.runs,
        queued: Math.max(0, queued - 1),
        succeeded: queued > 0 && !fails ? succeeded + 1 : succeeded,
        failed: fails ? 1 : failed,
      };
      const next = { ...known, runs };
      backfills.set(id, next);
      return next;
    },
  };
  // The baseline calls no other verb of an operator.
  return { operator: operator as unknown as Operator, asked };
}

describe("the baseline of all jobs", () => {
  const jobs = () => [jobOf("day", "2026-11-21"), jobOf("month", "2026-10-01")];

  it("is asked for with the small ones first", async () => {
    const { operator, asked } = scripted([...jobs(), jobOf("week", "2026-11-13")]);
    await requestBaseline(operator);
    expect(asked).toEqual(["month", "week", "day"]);
  });

  it("leaves the newest partitions of the hourly jobs to a run each", async () => {
    const weekly = { ...SCHEDULE, cron: "35 10 * * 4" };
    const hourly = { ...SCHEDULE, cron: "20 * * * *" };
    const jobs = [
      jobOf("day", "2026-11-21", { schedules: [hourly, weekly] }),
      jobOf("week", "2026-11-20", { schedules: [weekly, hourly] }),
      jobOf("month", "2026-10-01", { schedules: [] }),
      jobOf("operating_day", "2026-11-21", { schedules: [hourly] }),
    ];
    const launched: string[] = [];
    const operator = {
      jobs: async () => jobs,
      launch: async (job: string) => {
        launched.push(job);
        return job;
      },
      run: async (runId: string) => ({ state: runId === "day" ? "succeeded" : "failed" }),
    };
    // The other verbs are not called.
    expect(await runHourly(operator as unknown as Operator)).toBe(1);
    expect(launched).toEqual(["day", "operating_day"]);
  });

  it("is followed for all at once, in few lines, and says how to see what failed", async () => {
    const { operator } = scripted(jobs());
    const lines: string[] = [];
    expect(await followBaseline(operator, (line) => lines.push(line))).toBe(true);
    expect(lines[0]).toContain("30 days, 26 weeks or 24 months");
    expect(lines.slice(1).sort()).toEqual([
      "  day 2026-10-22 to 2026-11-20: 10/12",
      "  day 2026-10-22 to 2026-11-20: 12/12",
      "  month 2024-10-01 to 2026-09-01: 10/12",
      "  month 2024-10-01 to 2026-09-01: 12/12, 1 failed",
      "See why: npm run job -- runs --state failed",
    ]);
    expect(await followBaseline(operator, () => {})).toBe(false);
  });
});
