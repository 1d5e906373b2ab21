// What the console's pages show of the ledger: short forms of executions, checks, ticks and series,
// each in one statement however many there are.

import { type SQL, sql } from "drizzle-orm";
import { type Database, epochMs } from "../../http/database.ts";
import { type RowOf, rowsOf, selection, typed } from "../../http/selection.ts";
import type { CheckOutcome, CheckResult } from "./check.ts";
import { EXECUTION, EXECUTION_HEAD, isInState, STATE } from "./ledger.ts";
import { TICK } from "./ticks.ts";

const SUMMARY = selection({
  ...EXECUTION_HEAD,
  created_at: EXECUTION.createdAt,
  started_at: EXECUTION.startedAt,
  finished_at: EXECUTION.finishedAt,
  error_code: EXECUTION.errorCode,
  error_detail: EXECUTION.errorDetail,
  rows_written: typed<number | null>(sql`(metadata->>'rows_written')::int`),
  check: typed<CheckOutcome | null>(sql`
    CASE WHEN jsonb_exists(metadata, 'check') THEN jsonb_build_object(
      'passed', metadata->'check'->'passed', 'concerns',
      jsonb_array_length(metadata->'check'->'warnings')
        + jsonb_array_length(metadata->'check'->'stale_symbols')) END`),
});

/** An execution without its metadata. */
export type ExecutionSummary = RowOf<typeof SUMMARY>;

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
    ...(state ? [isInState(state)] : []),
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
  return await rowsOf(database, SUMMARY)`
    SELECT ${SUMMARY} FROM run ${where}
     ORDER BY run.created_at DESC, run.partition DESC, run.id DESC LIMIT ${filter.limit}::int`;
}

const each = (names: readonly string[]): SQL =>
  sql`jsonb_array_elements_text(${JSON.stringify(names)}::jsonb) AS n(name)`;

/**
 * The newest execution of each job's live partition: of the newest one that has any, whatever a
 * backfill or a repair does with older ones.
 */
export async function liveExecutions(database: Database, jobs: readonly string[]) {
  const rows = await rowsOf(database, SUMMARY)`
    SELECT one.* FROM ${each(jobs)} CROSS JOIN LATERAL (
      SELECT ${SUMMARY} FROM run WHERE run.job = n.name
       ORDER BY run.partition DESC, run.created_at DESC LIMIT 1) one`;
  return new Map(rows.map((line) => [line.job, line]));
}

/** The jobs with an execution that is running, or queued for its turn. */
export async function jobsAtWork(database: Database): Promise<Set<string>> {
  const { rows } = await database.execute<{ job: string }>(sql`
    SELECT DISTINCT job FROM run
     WHERE state IN ('queued', 'running') AND ${STATE} <> 'waiting'`);
  return new Set(rows.map(({ job }) => job));
}

/** How long executions of a job took of late. */
export interface JobPace {
  /** Executions measured. */
  runs: number;
  /** Their median, milliseconds; null when none was measured. */
  medianMs: number | null;
}

const MEASURED = 200;

/** The pace of a job, by those of its newest executions that succeeded at once. */
export async function jobPace(database: Database, job: string): Promise<JobPace> {
  const { rows } = await database.execute<{ runs: number; ms: number | null }>(sql`
    SELECT count(*)::int AS runs, percentile_cont(0.5) WITHIN GROUP (
        ORDER BY extract(epoch FROM finished_at - started_at) * 1000)::float8 AS ms
      FROM (SELECT * FROM run WHERE job = ${job} ORDER BY created_at DESC LIMIT ${MEASURED}::int) r
     WHERE state = 'succeeded' AND attempt = 1`);
  const [row] = rows;
  return { runs: row?.runs ?? 0, medianMs: row?.ms ?? null };
}

const CHECK = selection({
  job: EXECUTION.job,
  run_id: EXECUTION.id,
  partition: EXECUTION.partition,
  state: STATE,
  reconstructed: EXECUTION.reconstructed,
  finished_at: EXECUTION.finishedAt,
  error_detail: EXECUTION.errorDetail,
  check: typed<CheckResult | null>(sql`metadata->'check'`),
  /** How many instruments it read back; null where it read nothing back. */
  instruments: typed<number | null>(sql`
    CASE WHEN jsonb_exists(metadata, 'check')
      THEN jsonb_array_length(metadata->'instrument_ids') END`),
});

/** The outcome of an execution's read-back check, or that its gate let nothing be written. */
export type CheckSummary = RowOf<typeof CHECK>;

/**
 * The newest checks of each job, newest first: those of its forward executions, or those of its
 * reconstructions where it has no forward ones.
 */
export async function newestChecks(database: Database, jobs: readonly string[], limit: number) {
  const forward = await newestForwardChecks(database, jobs, limit);
  // Only where there are none: to find that out, all executions of a job are read.
  const others = jobs.filter((job) => !forward.has(job));
  const rebuilt = await checksOf(database, others, { reconstructed: true, limit });
  return new Map([...forward, ...rebuilt]);
}

/** The newest checks of each job's forward executions, newest first. */
export const newestForwardChecks = (database: Database, jobs: readonly string[], limit: number) =>
  checksOf(database, jobs, { reconstructed: false, limit });

async function checksOf(
  database: Database,
  jobs: readonly string[],
  { reconstructed, limit }: { reconstructed: boolean; limit: number },
): Promise<Map<string, CheckSummary[]>> {
  if (jobs.length === 0) return new Map();
  const rows = await rowsOf(database, CHECK)`
    SELECT one.* FROM ${each(jobs)} CROSS JOIN LATERAL (
      SELECT ${CHECK} FROM run WHERE run.job = n.name AND reconstructed = ${reconstructed}::boolean
         AND (jsonb_exists(metadata, 'check') OR error_code = 'gate_rejected')
       ORDER BY run.created_at DESC LIMIT ${limit}::int) one`;
  return Map.groupBy(rows, ({ job }) => job);
}

/** The newest ticks of each schedule, newest first. */
export async function recentTicks(database: Database, names: readonly string[], limit: number) {
  const rows = await rowsOf(database, TICK)`
    SELECT one.* FROM ${each(names)} CROSS JOIN LATERAL (
      SELECT ${TICK}
        FROM (SELECT * FROM tick WHERE schedule = n.name
              ORDER BY tick.scheduled_at DESC LIMIT ${limit}::int) t
        LEFT JOIN run ON run.id = t.run_id ORDER BY t.scheduled_at DESC) one`;
  return Map.groupBy(rows, ({ schedule }) => schedule);
}

/** Series of a library, or one of them: how many, and their newest times, epoch milliseconds. */
export interface SeriesSummary {
  [field: string]: unknown;
  library: string;
  /** Null: all of the library. */
  symbol: string | null;
  series: number;
  newest: number;
  as_of: number;
}

/**
 * The series that hold a vintage, in one line a library; those of the libraries in `apart`, which
 * several pipelines fill, in one line each.
 */
export async function summarizeSeries(
  database: Database,
  apart: readonly string[],
): Promise<SeriesSummary[]> {
  const { rows } = await database.execute<SeriesSummary>(sql`
    SELECT library, CASE WHEN jsonb_exists(${JSON.stringify(apart)}::jsonb, library) THEN symbol END
        AS symbol, count(*)::int AS series,
      ${epochMs(sql`max(valid_max)`)} AS newest,
      ${epochMs(sql`max(head_as_of)`)} AS as_of
      FROM series WHERE head_seq > 0 GROUP BY 1, 2`);
  return rows;
}
