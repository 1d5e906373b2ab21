// What the console's pages show of the ledger: short forms of executions, checks, ticks and series,
// each in one statement however many there are.

import { type SQL, sql } from "drizzle-orm";
import type { RunState, RunTrigger, Tick } from "../../../shared/markets.ts";
import { type Database, wireTime } from "../../http/database.ts";
import type { CheckResult } from "./check.ts";

/** An execution without its metadata. */
export interface ExecutionSummary {
  [field: string]: unknown;
  run_id: string;
  job: string;
  partition: string;
  trigger: RunTrigger;
  reconstructed: boolean;
  state: RunState;
  attempt: number;
  backfill_id: string | null;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
  error_code: string | null;
  error_detail: string | null;
  rows_written: number | null;
  check_passed: boolean | null;
}

const SUMMARY = sql`id::text AS run_id, job, partition::text, trigger, reconstructed, state, attempt,
  backfill_id::text, ${wireTime(sql`created_at`)} AS created_at,
  ${wireTime(sql`started_at`)} AS started_at, ${wireTime(sql`finished_at`)} AS finished_at,
  error_code, error_detail, (metadata->>'rows_written')::int AS rows_written,
  (metadata->'check'->>'passed')::boolean AS check_passed`;

/** Which executions are summed up; a field left out filters nothing. */
export interface SummaryFilter {
  limit: number;
  job?: string | undefined;
  state?: string | undefined;
  trigger?: string | undefined;
  partition?: string | undefined;
  backfillId?: string | undefined;
  /** Id of the last execution of the page before. */
  after?: string | undefined;
}

/** The newest executions first. */
export async function listExecutionSummaries(
  database: Database,
  filter: SummaryFilter,
): Promise<ExecutionSummary[]> {
  const { job, state, trigger, partition, backfillId, after } = filter;
  const conditions = [
    ...(job ? [sql`job = ${job}`] : []),
    ...(state ? [sql`state = ${state}`] : []),
    ...(trigger ? [sql`trigger = ${trigger}`] : []),
    ...(partition ? [sql`partition = ${partition}::date`] : []),
    ...(backfillId ? [sql`backfill_id = ${backfillId}::uuid`] : []),
    ...(after
      ? [
          sql`(run.created_at, run.partition, run.id) <
            (SELECT last.created_at, last.partition, last.id FROM run AS last
              WHERE last.id = ${after}::uuid)`,
        ]
      : []),
  ];
  const where = conditions.length > 0 ? sql`WHERE ${sql.join(conditions, sql` AND `)}` : sql``;
  const { rows } = await database.execute<ExecutionSummary>(sql`
    SELECT ${SUMMARY} FROM run ${where}
     ORDER BY run.created_at DESC, run.partition DESC, run.id DESC LIMIT ${filter.limit}::int`);
  return rows;
}

const each = (names: readonly string[]): SQL =>
  sql`jsonb_array_elements_text(${JSON.stringify(names)}::jsonb) AS n(name)`;

/** The newest execution of each job. */
export async function newestExecutions(database: Database, jobs: readonly string[]) {
  const { rows } = await database.execute<ExecutionSummary>(sql`
    SELECT one.* FROM ${each(jobs)} CROSS JOIN LATERAL (
      SELECT ${SUMMARY} FROM run WHERE run.job = n.name
       ORDER BY run.created_at DESC, run.partition DESC LIMIT 1) one`);
  return new Map(rows.map((line) => [line.job, line]));
}

/** The outcome of an execution's read-back check, or that its gate let nothing be written. */
export interface CheckSummary {
  [field: string]: unknown;
  job: string;
  run_id: string;
  partition: string;
  state: RunState;
  reconstructed: boolean;
  finished_at: string | null;
  error_detail: string | null;
  check: CheckResult | null;
}

/**
 * The newest checks of each job, newest first: those of its forward executions, or those of its
 * reconstructions where it has no forward ones.
 */
export async function newestChecks(database: Database, jobs: readonly string[], limit: number) {
  const newest = ({ reconstructed }: { reconstructed: boolean }) => sql`
    (SELECT job, id::text AS run_id, partition::text, state, reconstructed,
       ${wireTime(sql`finished_at`)} AS finished_at, error_detail, metadata->'check' AS "check"
       FROM run WHERE run.job = n.name AND reconstructed = ${reconstructed}::boolean
        AND (jsonb_exists(metadata, 'check') OR error_code = 'gate_rejected')
      ORDER BY run.created_at DESC LIMIT ${limit}::int)`;
  const { rows } = await database.execute<CheckSummary>(sql`
    SELECT one.* FROM ${each(jobs)} CROSS JOIN LATERAL (
      ${newest({ reconstructed: false })} UNION ALL ${newest({ reconstructed: true })}) one`);
  const byJob = [...Map.groupBy(rows, ({ job }) => job)].map(([job, lines]) => {
    const forward = lines.filter(({ reconstructed }) => !reconstructed);
    return [job, forward.length > 0 ? forward : lines] as const;
  });
  return new Map(byJob);
}

/** The newest ticks of each schedule, newest first. */
export async function recentTicks(database: Database, names: readonly string[], limit: number) {
  const { rows } = await database.execute<Tick>(sql`
    SELECT one.* FROM ${each(names)} CROSS JOIN LATERAL (
      SELECT schedule, ${wireTime(sql`t.scheduled_at`)} AS scheduled_at, t.run_id::text, t.skip_reason,
        run.state, run.partition::text
        FROM (SELECT * FROM tick WHERE schedule = n.name
              ORDER BY tick.scheduled_at DESC LIMIT ${limit}::int) t
        LEFT JOIN run ON run.id = t.run_id ORDER BY t.scheduled_at DESC) one`);
  return Map.groupBy(rows, ({ schedule }) => schedule);
}

/** The newest valid time and the newest knowledge time of a series, epoch milliseconds. */
export interface SeriesSummary {
  [field: string]: unknown;
  library: string;
  symbol: string;
  newest: number;
  as_of: number;
}

/** Every series that holds a vintage. */
export async function listSeriesSummaries(database: Database): Promise<SeriesSummary[]> {
  const { rows } = await database.execute<SeriesSummary>(sql`
    SELECT library, symbol, (extract(epoch FROM valid_max) * 1000)::float8 AS newest,
      (extract(epoch FROM head_as_of) * 1000)::float8 AS as_of FROM series WHERE head_seq > 0`);
  return rows;
}
