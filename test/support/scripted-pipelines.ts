// Ingest with a weekly and a daily pipeline whose provider, gate and clock the test decides.

import { afterAll, beforeAll, beforeEach } from "vitest";
import type { finding } from "../../edge/markets/ingest/gate.ts";
import { listExecutions } from "../../edge/markets/ingest/ledger.ts";
import { setSchedule } from "../../edge/markets/ingest/operate.ts";
import { listPartitions } from "../../edge/markets/ingest/overview.ts";
import type { FetchRequest, Pipeline } from "../../edge/markets/ingest/pipeline.ts";
import { minuteTick } from "../../edge/markets/ingest/tick.ts";
import { DAY, HOUR, MINUTE } from "../../shared/time.ts";
import { type ScriptedIngest, scriptedIngest } from "./ingest.ts";

/** A Thursday, when the weekly job fires at 14:35Z. */
export const THURSDAY = Date.parse("2026-06-18T14:35:00Z");
export const FRIDAY_BEFORE = "2026-06-12";

export let ingest: ScriptedIngest;

interface Script {
  /** What the provider does when it is asked. */
  provider: (request: FetchRequest) => Map<string, number> | Promise<Map<string, number>>;
  /** What the gate finds. */
  refuses: ReturnType<typeof finding>[];
  published: Map<string, number>;
}

/** What happens; a test changes it. */
export const script: Script = {
  provider: () => script.published,
  refuses: [],
  published: new Map(),
};

const base = {
  provider: "eia" as const,
  timeZone: "America/New_York",
  valueColumns: ["value"],
  topicsOf: () => [],
  freshness: { warningMs: 10 * DAY, errorMs: 20 * DAY },
  publishedWithinMs: Infinity,
};
export const fetchRows =
  (library: string): Pipeline["fetch"] =>
  async (_, request) => {
    const { window } = request;
    const rows = [...(await script.provider(request))]
      .map(([at, value]) => ({
        datetime: Date.parse(at),
        instrumentId: `${library}.one`,
        values: [value],
      }))
      .filter(({ datetime }) => datetime >= window.from && datetime < window.to);
    const series = rows.length > 0 ? [{ library, symbol: "one", rows }] : [];
    return { series, sourceUrl: "sandbox://provider", sandbox: true };
  };
const gate: Pipeline["gate"] = (fetched) => {
  const spoiled = script.refuses.some(({ severity }) => severity === "error");
  return { accepted: spoiled ? [] : [...fetched], findings: script.refuses };
};

export const weekly: Pipeline = {
  ...base,
  job: "weekly",
  title: "Weekly",
  libraries: ["fundamentals.weekly"],
  partitions: { unit: "week", first: "2020-01-03", lagMs: 6 * DAY + 14 * HOUR },
  schedules: [
    { name: "weekly", cron: "35 10 * * 4", timeZone: base.timeZone, aim: "latest" },
    { name: "weekly_repair", cron: "50 */3 * * *", timeZone: base.timeZone, aim: "unfinished" },
  ],
  lookbackMs: 28 * DAY,
  release: { everyMs: 10 * MINUTE, windowMs: 3 * HOUR },
  fetch: fetchRows("fundamentals.weekly"),
  gate,
};
export const daily: Pipeline = {
  ...base,
  job: "daily",
  title: "Daily",
  libraries: ["power.daily"],
  partitions: { unit: "day", first: "2026-01-01" },
  schedules: [{ name: "daily", cron: "20 * * * *", timeZone: base.timeZone, aim: "latest" }],
  lookbackMs: 0,
  release: null,
  fetch: fetchRows("power.daily"),
  gate,
};

beforeAll(async () => {
  ingest = await scriptedIngest({ pipelines: [weekly, daily], now: THURSDAY });
});
afterAll(() => ingest.close());
beforeEach(async () => {
  await ingest.reset();
  ingest.now = THURSDAY;
  script.refuses = [];
  script.published = new Map([["2026-06-05T00:00:00Z", 1]]);
  script.provider = () => script.published;
});

export const tickAt = async (now: number) => {
  ingest.now = now;
  await minuteTick(ingest.parts, now);
};
/** Executes message after message, each at its time, until none is left before an instant. */
export async function drain(until = Infinity) {
  for (let next = nextMessage(); next !== undefined && next < until; next = nextMessage()) {
    ingest.now = Math.max(ingest.now, next);
    await ingest.consume();
  }
}
const nextMessage = () => ingest.queue.map(({ at }) => at).toSorted((a, b) => a - b)[0];

/** Only one schedule is of interest. */
export const silence = (...names: string[]) =>
  Promise.all(names.map((name) => setSchedule(ingest.parts, name, { enabled: false })));
export const runs = (job: string) => listExecutions(ingest.parts.database, { job, limit: 100 });
export const newest = async (job: string) => {
  const [run] = await runs(job);
  if (!run) throw new Error("no run");
  return run;
};
export const states = async (job: string, first: string, last: string) =>
  (await listPartitions(ingest.parts, job, { first, last })).map(
    ({ partition, state }) => `${partition} ${state}`,
  );
