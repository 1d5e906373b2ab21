// A year of releases of one job and seasons of three on the machinery of ingest: on time, an hour
// or two late as the agency's API is, moved for holidays, a day early, days late, and never. Goal:
// each is stored within half an hour of its publication, and none is called late that is not.

import { expect, it } from "vitest";
import { expectedUntil } from "../../edge/markets/ingest/completeness.ts";
import { listPartitions } from "../../edge/markets/ingest/overview.ts";
import { startOfDay } from "../../edge/markets/ingest/partition.ts";
import { type Pipeline, requirePipeline } from "../../edge/markets/ingest/pipeline.ts";
import { PIPELINES } from "../../edge/markets/ingest/pipelines.ts";
import { nextTick } from "../../edge/markets/ingest/schedule.ts";
import { minuteTick } from "../../edge/markets/ingest/tick.ts";
import { DAY, HOUR, iso, isoDay, MINUTE } from "../../shared/time.ts";
import { scriptedIngest } from "../support/ingest.ts";
import { seeded } from "../support/weights.ts";

const at = (text: string) => Date.parse(text);
/** The clock of New York, in which reports come out, less UTC. */
const newYork = (day: number) =>
  day >= at("2026-03-08") && day < at("2026-11-01") ? -4 * HOUR : -5 * HOUR;

/** A release, by the key of its partition; null: there was none. */
type Releases = Map<string, number | null>;

/** Weekly reports, whose holiday weeks are listed by hand by EIA's practice of the years before. */
function weekly(
  { days, first, last }: { days: number; first: string; last: string },
  moved: Readonly<Record<string, string>>,
  odd: { early: string[]; late: string[]; missing: string[] },
): Releases {
  const random = seeded(days);
  const releases: Releases = new Map();
  for (let friday = at(first); friday <= at(last); friday += 7 * DAY) {
    const key = isoDay(friday);
    const day = friday + days * DAY;
    const usual = day + 10.5 * HOUR - newYork(day);
    // The agency's API lags by up to two hours.
    const lag = Math.floor(random() * 120) * MINUTE;
    releases.set(key, (moved[key] ? at(moved[key]) : usual) + lag);
  }
  // A day early, three days late, and left out altogether.
  const shift = (key: string, ms: number) => releases.set(key, (releases.get(key) ?? 0) + ms);
  for (const key of odd.early) shift(key, -23 * HOUR);
  for (const key of odd.late) shift(key, 77 * HOUR);
  for (const key of odd.missing) releases.set(key, null);
  return releases;
}

const daily = (): Releases => {
  const random = seeded(7);
  const releases: Releases = new Map();
  for (let day = at("2026-06-15"); day < at("2026-06-23"); day += DAY)
    // On the day before, between 12:35 and 14:00 of Texas.
    releases.set(isoDay(day), day - DAY + 17 * HOUR + (35 + Math.floor(random() * 85)) * MINUTE);
  releases.set("2026-06-20", at("2026-06-19T22:30Z"));
  return releases;
};

const monthly: Releases = new Map([
  ["2026-03-01", at("2026-04-09T14:20Z")],
  ["2026-04-01", at("2026-05-22T12:00Z")],
  ["2026-05-01", at("2026-06-05T13:00Z")],
]);

const gas = weekly(
  { days: 6, first: "2026-01-02", last: "2026-12-18" },
  { "2026-11-06": "2026-11-13T15:30Z", "2026-11-20": "2026-11-25T17:00Z" },
  {
    early: ["2026-02-06", "2026-06-26", "2026-10-30"],
    late: ["2026-03-06", "2026-08-14", "2026-11-13"],
    missing: ["2026-05-15", "2026-12-04"],
  },
);
const petroleum = weekly(
  { days: 5, first: "2026-08-28", last: "2026-10-16" },
  { "2026-09-04": "2026-09-10T15:00Z", "2026-10-09": "2026-10-15T15:00Z" },
  { early: ["2026-09-18"], late: ["2026-08-28"], missing: ["2026-09-25"] },
);

it.each([
  ["gas_storage", gas],
  ["petroleum_status", petroleum],
  ["day_ahead_prices", daily()],
  ["degree_days", monthly],
] as const)(
  "stores each release of %s as it comes",
  async (job, releases) => {
    const pipeline = released(requirePipeline(PIPELINES, job), releases, () => ingest.now);
    const keys = [...releases.keys()];
    const times = [...releases.values()].filter((one) => one !== null);
    const [from, until] = [Math.min(...times) - 3 * DAY, Math.max(...times) + DAY];
    const ingest = await scriptedIngest({ pipelines: [pipeline], now: from });
    const stored = new Map<string, number>();
    const late = new Set<string>();
    try {
      for (;;) {
        const ticks = pipeline.schedules.map((one) => nextTick(one, ingest.now) ?? Infinity);
        const due = Math.min(...ticks, ...ingest.queue.map(({ at: then }) => then));
        if (due >= until) break;
        ingest.now = Math.max(due, ingest.now);
        if (ticks.includes(ingest.now)) await minuteTick(ingest.parts, ingest.now);
        if ((await ingest.consume()) === 0) continue;
        // A release that never comes stays open, beside the next few.
        for (const key of keys.filter((one) => !stored.has(one)).slice(0, 4)) {
          const cells = await listPartitions(ingest.parts, job, { first: key, last: key }).catch(
            () => [],
          );
          if (cells[0]?.state === "materialized") stored.set(key, ingest.now);
          if (cells[0]?.state === "late") late.add(key);
        }
      }
    } finally {
      await ingest.close();
    }
    const slow = [...releases].flatMap(([key, time]) => {
      if (time === null) return stored.has(key) ? [`${key} was never out`] : [];
      const took = (stored.get(key) ?? Infinity) - time;
      return took <= 30 * MINUTE ? [] : [`${key}, out ${iso(time)}, after ${took / MINUTE} min`];
    });
    expect(slow).toEqual([]);
    const wrongly = [...late].filter((key) => {
      const time = releases.get(key);
      return time && time < expectedUntil(pipeline, key);
    });
    expect(wrongly).toEqual([]);
  },
  30 * MINUTE,
);

/** The pipeline with its own schedules and calendar, and a provider that has what is out by now. */
function released(real: Pipeline, releases: Releases, clock: () => number): Pipeline {
  const [library = ""] = real.libraries;
  const { owns: _owns, publications: _publications, complete: _complete, ...kept } = real;
  return {
    ...kept,
    lookbackMs: 0,
    fetch: async (_, { window }) => {
      const rows = [...releases]
        .filter(([, time]) => time !== null && time <= clock())
        .map(([key]) => startOfDay(real.partitions, at(key)))
        .filter((datetime) => datetime >= window.from && datetime < window.to)
        .map((datetime) => ({ datetime, instrumentId: `${library}.one`, values: [1] }));
      const series = rows.length > 0 ? [{ library, symbol: "one", rows }] : [];
      return { series, sourceUrl: "sandbox://releases", sandbox: true };
    },
    gate: (fetched) => ({ accepted: [...fetched], findings: [] }),
  };
}
