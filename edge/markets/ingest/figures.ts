// Figures of ingest for monitoring. Each is read by an index that bounds it, or from a table with a
// row a series, schedule or chore: none reads what grows for ever.

import { sql } from "drizzle-orm";
import { DAY } from "../../../shared/time.ts";
import type { Database } from "../../http/database.ts";
import { at, STATE } from "./ledger.ts";

/** How many there are of a kind. */
export interface Count extends Record<string, unknown> {
  job: string;
  /** A run's state, or an incident's kind. */
  kind: string;
  count: number;
}

/** Figures at an instant; times in seconds since the epoch. */
export interface Figures {
  openRuns: Count[];
  /** Runs that ended in the last 24 hours. */
  endedRuns: Count[];
  openIncidents: Count[];
  /** When the newest successful run of a job ended. */
  lastSuccess: ReadonlyMap<string, number>;
  /** The newest valid time of a library. */
  newestDatetime: ReadonlyMap<string, number>;
  /** The minute cron's last event; null before the first. */
  lastMinute: number | null;
  alertsPending: number;
  /** What commits added since the last compaction. */
  pending: { series: number; vintages: number; rows: number; objects: number };
}

/** Where the minute cron's last event is kept. */
const MINUTE_CHORE = "minute";

/** The figures of the jobs named. */
export async function readFigures(
  database: Database,
  jobs: readonly string[],
  now: number,
): Promise<Figures> {
  const [openRuns, endedRuns, openIncidents, times, pending] = await Promise.all([
    database.execute<Count>(sql`
      SELECT job, ${STATE} AS kind, count(*)::int AS count FROM run
       WHERE state IN ('queued', 'running') GROUP BY 1, 2`),
    database.execute<Count>(sql`
      SELECT job, state AS kind, count(*)::int AS count FROM run
       WHERE finished_at > ${at(now - DAY)} GROUP BY job, state`),
    database.execute<Count>(sql`
      SELECT job, kind, count(*)::int AS count FROM alert
       WHERE ended_at IS NULL GROUP BY job, kind`),
    readTimes(database, jobs),
    readPending(database),
  ]);
  return {
    openRuns: openRuns.rows,
    endedRuns: endedRuns.rows,
    openIncidents: openIncidents.rows,
    ...times,
    ...pending,
  };
}

interface NamedTime extends Record<string, unknown> {
  what: "success" | "newest" | "minute";
  name: string;
  seconds: number;
}

async function readTimes(database: Database, jobs: readonly string[]) {
  const { rows } = await database.execute<NamedTime>(sql`
    SELECT what, name, extract(epoch FROM at)::float8 AS seconds FROM (
      SELECT 'success' AS what, job.name, newest.at
        FROM jsonb_array_elements_text(${JSON.stringify(jobs)}::jsonb) AS job(name)
       CROSS JOIN LATERAL (
         SELECT finished_at AS at FROM run WHERE run.job = job.name AND state = 'succeeded'
          ORDER BY finished_at DESC LIMIT 1) newest
      UNION ALL
      SELECT 'newest', library, max(valid_max) FROM series WHERE head_seq > 0 GROUP BY library
      UNION ALL
      SELECT 'minute', chore, last_at FROM housekeeping WHERE chore = ${MINUTE_CHORE}) times
     ORDER BY what, name`);
  const named = (what: NamedTime["what"]) =>
    new Map(rows.filter((row) => row.what === what).map(({ name, seconds }) => [name, seconds]));
  return {
    lastSuccess: named("success"),
    newestDatetime: named("newest"),
    lastMinute: named("minute").get(MINUTE_CHORE) ?? null,
  };
}

interface PendingCounts extends Record<string, unknown> {
  alerts: number;
  series: number;
  vintages: number;
  rows: number;
  objects: number;
}

async function readPending(database: Database) {
  const { rows } = await database.execute<PendingCounts>(sql`
    SELECT (SELECT count(*) FROM alert WHERE delivery = 'pending')::int AS alerts,
      count(*)::int AS series, coalesce(sum(pending_vintages), 0)::float8 AS vintages,
      coalesce(sum(pending_rows), 0)::float8 AS rows,
      coalesce(sum(pending_objects), 0)::float8 AS objects
      FROM series WHERE pending_vintages > 0`);
  const { alerts, ...pending } = rows[0] ?? {
    alerts: 0,
    series: 0,
    vintages: 0,
    rows: 0,
    objects: 0,
  };
  return { alertsPending: alerts, pending };
}
