// The ingest ledger: executions and backfills as rows. Each move of an execution is one conditional
// statement, so that of a message delivered twice, or of a late process and the cron that rescues
// its execution, only one wins. The table of executions is called `run`, as the wire calls them.

import { type SQL, sql } from "drizzle-orm";
import * as tables from "../../../db/markets/schema.ts";
import { iso } from "../../../shared/time.ts";
import type { Backfill, Run, RunState, RunTrigger } from "../../../shared/wire/markets.ts";
import { type Database, epochMs, wireTime } from "../../http/database.ts";
import { columnsOf, extended, rowsOf, selection, typed } from "../../http/selection.ts";
import { jsonb, storable } from "../../http/storable.ts";
import type { Range } from "../store/rows.ts";

/** An instant, epoch milliseconds, as SQL. */
export const at = (instant: number): SQL => sql`${iso(instant)}::timestamptz`;

/** A delayed message may come this much before its time. */
const EARLY_MS = 1_000;
/** Attempts of an execution whose failures are worth another. */
export const ATTEMPTS_MAX = 5;

/**
 * The `available_at` of a backfill's executions that wait for their turn. A few are sent at a time,
 * so that a schedule's execution with the same provider never queues up behind years of partitions.
 */
const HELD = sql`'9999-01-01Z'::timestamptz`;
const RELEASED_MAX = 4;

/** An execution put back because its provider had not published is `waiting`, not `queued`. */
const WAITS = sql`(state = 'queued' AND error_code IS NOT DISTINCT FROM 'not_released')`;
/** The state of an execution as the wire and the pages tell it. */
export const STATE = typed<RunState>(sql`CASE WHEN ${WAITS} THEN 'waiting' ELSE state END`);
/** Whether an execution is in a state as the wire tells it. */
export const isInState = (state: string): SQL => {
  if (state === "waiting") return WAITS;
  return state === "queued" ? sql`state = 'queued' AND NOT ${WAITS}` : sql`state = ${state}`;
};

/** The columns of executions, of a statement that calls their table by its name. */
export const EXECUTION = columnsOf(tables.run, "run");

/** What a list and a page tell of an execution before its times. */
export const EXECUTION_HEAD = {
  run_id: EXECUTION.id,
  job: EXECUTION.job,
  partition: EXECUTION.partition,
  trigger: EXECUTION.trigger,
  reconstructed: EXECUTION.reconstructed,
  state: STATE,
  attempt: EXECUTION.attempt,
  backfill_id: EXECUTION.backfillId,
  launched_by: EXECUTION.launchedBy,
};

const RUN = selection({
  ...EXECUTION_HEAD,
  scheduled_at: EXECUTION.scheduledAt,
  created_at: EXECUTION.createdAt,
  available_at: typed<string | null>(wireTime(sql`nullif(available_at, ${HELD})`)),
  started_at: EXECUTION.startedAt,
  finished_at: EXECUTION.finishedAt,
  error_code: EXECUTION.errorCode,
  error_detail: EXECUTION.errorDetail,
  metadata: typed<Run["metadata"]>(EXECUTION.metadata),
});

/** An execution whose message is to be sent. */
const QUEUED = selection({ runId: EXECUTION.id, job: EXECUTION.job });

/** An execution that is to be queued. */
export interface NewExecution {
  runId: string;
  job: string;
  partition: string;
  trigger: RunTrigger;
  reconstructed: boolean;
}

/**
 * An execution that this process holds. `attempt` is its fence: once another attempt began, the
 * writes of this one change nothing.
 */
export interface ClaimedExecution {
  run_id: string;
  job: string;
  partition: string;
  trigger: RunTrigger;
  reconstructed: boolean;
  attempt: number;
  attempts_max: number;
  /** Epoch milliseconds of the tick that started it, or null. */
  scheduled_at: number | null;
}

const CLAIMED: SQL<ClaimedExecution> = selection({
  run_id: EXECUTION.id,
  job: EXECUTION.job,
  partition: EXECUTION.partition,
  trigger: EXECUTION.trigger,
  reconstructed: EXECUTION.reconstructed,
  attempt: EXECUTION.attempt,
  attempts_max: EXECUTION.attemptsMax,
  scheduled_at: typed<number | null>(epochMs(sql`scheduled_at`)),
});

/** Queues an execution. */
export async function createExecution(
  database: Database,
  execution: NewExecution & { launchedBy?: string | null },
  now: number,
): Promise<void> {
  await database.execute(sql`
    INSERT INTO run (id, job, partition, trigger, reconstructed, state, created_at, available_at,
      attempts_max, launched_by)
    VALUES (${execution.runId}::uuid, ${execution.job}, ${execution.partition}::date,
      ${execution.trigger}, ${execution.reconstructed}::boolean, 'queued', ${at(now)}, ${at(now)},
      ${ATTEMPTS_MAX}::int, ${execution.launchedBy ?? null})`);
}

/**
 * Creates a backfill and its executions, newest partition first, in one statement. A repeated
 * idempotency key returns the first backfill and creates nothing.
 */
export async function createBackfill(
  database: Database,
  backfill: {
    backfillId: string;
    job: string;
    first: string;
    last: string;
    idempotencyKey: string | null;
    launchedBy: string | null;
  },
  executions: readonly { runId: string; partition: string }[],
  now: number,
): Promise<{ backfillId: string; created: boolean }> {
  const { rows } = await database.execute<{ id: string; created: boolean }>(sql`
    WITH b AS (
      INSERT INTO backfill (id, job, first, last, idempotency_key, created_at, launched_by)
      VALUES (${backfill.backfillId}::uuid, ${backfill.job}, ${backfill.first}::date,
        ${backfill.last}::date, ${backfill.idempotencyKey}, ${at(now)}, ${backfill.launchedBy})
      ON CONFLICT (idempotency_key) DO NOTHING RETURNING id),
    r AS (
      INSERT INTO run (id, backfill_id, job, partition, trigger, reconstructed, state, created_at,
        available_at, attempts_max, launched_by)
      SELECT x."runId", b.id, ${backfill.job}, x.partition, 'backfill', true, 'queued', ${at(now)},
        ${HELD}, ${ATTEMPTS_MAX}::int, ${backfill.launchedBy}
        FROM b, jsonb_to_recordset(${JSON.stringify(executions)}::jsonb)
          AS x("runId" uuid, partition date))
    SELECT id::text, true AS created FROM b
    UNION ALL
    SELECT id::text, false FROM backfill WHERE idempotency_key = ${backfill.idempotencyKey}`);
  const row = rows[0];
  // Nothing inserted and nothing seen: the same key committed in between, and is visible by now.
  if (!row) return createBackfill(database, backfill, executions, now);
  return { backfillId: row.id, created: row.created };
}

/**
 * Takes a queued execution, or returns null when it is not to be executed now: its message came
 * late, early or again.
 */
export async function claimExecution(
  database: Database,
  runId: string,
  now: number,
  leaseMs: number,
): Promise<ClaimedExecution | null> {
  const [claimed] = await rowsOf(database, CLAIMED)`
    UPDATE run SET state = 'running', attempt = attempt + 1, lease_until = ${at(now + leaseMs)},
      started_at = coalesce(started_at, ${at(now)}), error_code = NULL, error_detail = NULL
     WHERE id = ${runId}::uuid AND state = 'queued' AND available_at <= ${at(now + EARLY_MS)}
     RETURNING ${CLAIMED}`;
  return claimed ?? null;
}

/** Whether this process still holds an execution, as a condition on its row. */
export const isHeld = ({ run_id, attempt }: ClaimedExecution): SQL =>
  sql`id = ${run_id}::uuid AND state = 'running' AND attempt = ${attempt}::int`;

/**
 * Moves the end of a lease to `until`. False when the lease was lost: the execution was canceled,
 * or another process holds it now.
 */
export async function renewLease(
  database: Database,
  execution: ClaimedExecution,
  until: number,
): Promise<boolean> {
  const { rows } = await database.execute(
    sql`UPDATE run SET lease_until = ${at(until)} WHERE ${isHeld(execution)} RETURNING id`,
  );
  return rows.length > 0;
}

/** Why an attempt failed. */
export interface ExecutionError {
  code: string;
  detail: string;
  metadata: object | null;
}

/** The outcome of an execution that committed what its answer held. */
export interface Materialization {
  /** Why some series were left as they were, as they were refused or not sent; null: none was. */
  partialReason: string | null;
  metadata: object;
  /** Valid time whose partitions it materialized. */
  covered: Range;
  /** Rows it revised or retracted, by partition. */
  revised: Readonly<Record<string, number>>;
}

/** Whether an execution committed what its answer held. */
export const hasCommitted = ({ state }: { state?: string | undefined }): boolean =>
  state === "succeeded" || state === "partial";
/** The same of rows of `run`. */
export const HAS_COMMITTED = sql`state IN ('succeeded', 'partial')`;

/** Ends an execution as `succeeded` or `partial`. */
export async function completeExecution(
  database: Database,
  execution: ClaimedExecution,
  { partialReason, metadata, covered, revised }: Materialization,
  now: number,
) {
  await database.execute(sql`
    UPDATE run SET state = ${partialReason === null ? "succeeded" : "partial"},
      error_detail = ${partialReason === null ? null : storable(partialReason)}, finished_at = ${at(now)}, lease_until = NULL,
      covered_from = ${at(covered.from)}, covered_to = ${at(covered.to)},
      revised = ${jsonb(revised)},
      metadata = ${jsonb(metadata)} WHERE ${isHeld(execution)}`);
}

/** Ends an execution for good: `failed`, or `late` when what it waited for never came. */
export async function failExecution(
  database: Database,
  execution: ClaimedExecution,
  { state, error }: { state: "failed" | "late"; error: ExecutionError },
  now: number,
) {
  await database.execute(sql`
    UPDATE run SET state = ${state}, finished_at = ${at(now)}, lease_until = NULL,
      error_code = ${error.code}, error_detail = ${storable(error.detail)},
      metadata = ${error.metadata ? jsonb(error.metadata) : sql`NULL`} WHERE ${isHeld(execution)}`);
}

/**
 * Puts an execution back for a later attempt. An execution that waits for its provider gets the
 * attempt back: only failures use attempts up.
 */
export async function requeueExecution(
  database: Database,
  execution: ClaimedExecution,
  { error, availableAt, waits }: { error: ExecutionError; availableAt: number; waits: boolean },
) {
  await database.execute(sql`
    UPDATE run SET state = 'queued', lease_until = NULL, available_at = ${at(availableAt)},
      attempts_max = attempts_max + ${waits ? 1 : 0}::int, error_code = ${error.code},
      error_detail = ${storable(error.detail)} WHERE ${isHeld(execution)}`);
}

/**
 * Ends queued and running executions at an operator's wish; a process that works on one loses its
 * lease. What was committed stays. Returns how many ended. Their journals say who did it.
 */
export async function cancelExecutions(
  database: Database,
  which: { runId: string } | { backfillId: string },
  { by, now }: OperatorAction,
): Promise<number> {
  const isMeant =
    "runId" in which
      ? sql`id = ${which.runId}::uuid`
      : sql`backfill_id = (SELECT id FROM ended) OR backfill_id = ${which.backfillId}::uuid`;
  const endedBackfill =
    "backfillId" in which
      ? sql`ended AS (
          UPDATE backfill SET canceled_at = coalesce(canceled_at, ${at(now)}),
            canceled_by = CASE WHEN canceled_at IS NULL THEN ${by}::text ELSE canceled_by END
           WHERE id = ${which.backfillId}::uuid RETURNING id),`
      : sql``;
  const { rows } = await database.execute(sql`
    WITH ${endedBackfill} moved AS (
      UPDATE run SET state = 'canceled', finished_at = ${at(now)}, lease_until = NULL,
        error_code = 'run_canceled', error_detail = 'an operator canceled it'
       WHERE (${isMeant}) AND state IN ('queued', 'running') RETURNING id, attempt)
    ${noteMoved("canceled", { by, now })}`);
  return rows.length;
}

/** Who asked for a move of executions, and when; null: nobody with a name. */
export interface OperatorAction {
  by: string | null;
  now: number;
}

/** The journal entry of each execution that an operator moved. */
const noteMoved = (event: string, { by, now }: OperatorAction): SQL => sql`
  INSERT INTO run_event (run_id, attempt, at, level, event, detail)
  SELECT id, attempt, ${at(now)}, 'warning', ${event}, ${JSON.stringify({ by })}::jsonb FROM moved
  RETURNING run_id`;

/**
 * Frees executions whose lease expired, fails those out of attempts, and returns the queued ones
 * whose message seems lost: available for long, or just freed. They are to be sent again.
 */
export async function rescueExecutions(
  database: Database,
  limits: { resendAfterMs: number; resendMax: number },
  now: number,
): Promise<{ rescued: number; resend: { runId: string; job: string }[] }> {
  const freed = extended(QUEUED, { state: EXECUTION.state });
  const ended = await rowsOf(database, freed)`
    UPDATE run SET lease_until = NULL, available_at = ${at(now)},
      state = CASE WHEN attempt >= attempts_max THEN 'failed' ELSE 'queued' END,
      finished_at = CASE WHEN attempt >= attempts_max THEN ${at(now)} END,
      error_code = 'lease_lost', error_detail = 'the process of this run stopped renewing its lease'
     WHERE state = 'running' AND lease_until < ${at(now)} RETURNING ${freed}`;
  const lost = await rowsOf(database, QUEUED)`
    UPDATE run SET available_at = ${at(now)} WHERE id IN (
      SELECT id FROM run WHERE state = 'queued' AND available_at < ${at(now - limits.resendAfterMs)}
       ORDER BY available_at LIMIT ${limits.resendMax}::int)
     RETURNING ${QUEUED}`;
  const requeued = ended.filter((row) => row.state === "queued");
  return { rescued: ended.length, resend: [...requeued, ...lost] };
}

/**
 * Has a backfill's failed, late and canceled executions wait again, and its partial ones where
 * these are meant, with as many attempts as new ones.
 */
export async function retryFailedExecutions(
  database: Database,
  { backfillId, withPartial }: { backfillId: string; withPartial: boolean },
  action: OperatorAction,
): Promise<void> {
  const partial = withPartial ? sql`OR state = 'partial'` : sql``;
  await database.execute(sql`
    WITH reopened AS (
      UPDATE backfill SET canceled_at = NULL, canceled_by = NULL
       WHERE id = ${backfillId}::uuid),
    moved AS (
      UPDATE run SET state = 'queued', finished_at = NULL, available_at = ${HELD},
        error_code = NULL, error_detail = NULL, attempts_max = attempt + ${ATTEMPTS_MAX}::int
       WHERE backfill_id = ${backfillId}::uuid
         AND (state IN ('failed', 'late', 'canceled') ${partial})
       RETURNING id, attempt)
    ${noteMoved("requeued", action)}`);
}

/**
 * Lets the next executions of every backfill begin, newest partition first, so that a few of each
 * backfill are under way. Returns those executions; they are to be sent.
 */
export async function releaseHeldExecutions(
  database: Database,
  now: number,
): Promise<{ runId: string; job: string }[]> {
  return await rowsOf(database, QUEUED)`
    WITH backfills AS (
      SELECT backfill_id, count(*) FILTER (WHERE available_at < ${HELD}) AS under_way
        FROM run WHERE state IN ('queued', 'running') AND backfill_id IS NOT NULL
       GROUP BY backfill_id HAVING count(*) FILTER (WHERE available_at < ${HELD}) < ${RELEASED_MAX}::int),
    waiting AS (
      SELECT id, under_way,
        row_number() OVER (PARTITION BY backfill_id ORDER BY partition DESC) AS position
        FROM run JOIN backfills USING (backfill_id)
       WHERE state = 'queued' AND available_at = ${HELD})
    UPDATE run SET available_at = ${at(now)} FROM waiting w
     WHERE run.id = w.id AND w.position + w.under_way <= ${RELEASED_MAX}::int
       AND run.state = 'queued' AND run.available_at = ${HELD}
     RETURNING ${QUEUED}`;
}

/** Whether an execution that writes forward vintages waits for a partition's release. */
export async function isAwaited(
  database: Database,
  job: string,
  partition: string,
): Promise<boolean> {
  const { rows } = await database.execute(sql`
    SELECT FROM run WHERE job = ${job} AND partition = ${partition}::date
       AND NOT reconstructed AND ${WAITS} LIMIT 1`);
  return rows.length > 0;
}

/** An execution as the wire shows it, or null. */
export async function findExecution(database: Database, runId: string): Promise<Run | null> {
  const [found] = await rowsOf(database, RUN)`SELECT ${RUN} FROM run WHERE id = ${runId}::uuid`;
  return found ?? null;
}

/** Which executions are listed; a field left out filters nothing. */
export interface ExecutionFilter {
  limit: number;
  backfillId?: string | undefined;
  job?: string | undefined;
  partition?: string | undefined;
  state?: string | undefined;
}

/** The newest executions first. */
export async function listExecutions(database: Database, filter: ExecutionFilter): Promise<Run[]> {
  const { backfillId, job, partition, state } = filter;
  const conditions = [
    ...(backfillId ? [sql`backfill_id = ${backfillId}::uuid`] : []),
    ...(job ? [sql`job = ${job}`] : []),
    ...(partition ? [sql`partition = ${partition}::date`] : []),
    ...(state ? [isInState(state)] : []),
  ];
  const where = conditions.length > 0 ? sql`WHERE ${sql.join(conditions, sql` AND `)}` : sql``;
  return await rowsOf(database, RUN)`
    SELECT ${RUN} FROM run ${where}
     ORDER BY run.created_at DESC, run.partition DESC LIMIT ${filter.limit}::int`;
}

const count = (state: string): SQL => sql`count(*) FILTER (WHERE ${isInState(state)})`;
const backfill = columnsOf(tables.backfill, "b");
const BACKFILL = selection({
  backfill_id: backfill.id,
  job: backfill.job,
  first: backfill.first,
  last: backfill.last,
  launched_by: backfill.launchedBy,
  canceled_by: backfill.canceledBy,
  created_at: backfill.createdAt,
  canceled_at: backfill.canceledAt,
  runs: typed<Backfill["runs"]>(sql`json_build_object(
    'queued', ${count("queued")}, 'waiting', ${count("waiting")}, 'running', ${count("running")},
    'succeeded', ${count("succeeded")}, 'partial', ${count("partial")},
    'failed', ${count("failed")}, 'late', ${count("late")}, 'canceled', ${count("canceled")})`),
});

/** A backfill with the counts of its executions, or null. */
export async function findBackfill(
  database: Database,
  backfillId: string,
): Promise<Backfill | null> {
  const [found] = await rowsOf(database, BACKFILL)`
    SELECT ${BACKFILL} FROM backfill b LEFT JOIN run r ON r.backfill_id = b.id
     WHERE b.id = ${backfillId}::uuid GROUP BY b.id`;
  return found ?? null;
}

/** The newest backfills first. */
export async function listBackfills(database: Database, limit: number): Promise<Backfill[]> {
  return await rowsOf(database, BACKFILL)`
    SELECT ${BACKFILL}
      FROM (SELECT * FROM backfill ORDER BY created_at DESC LIMIT ${limit}::int) b
      LEFT JOIN run r ON r.backfill_id = b.id
     GROUP BY b.id, b.job, b.first, b.last, b.created_at, b.canceled_at, b.launched_by,
       b.canceled_by
     ORDER BY b.created_at DESC`;
}
