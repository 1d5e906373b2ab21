// The task queue: every verb is one statement, so it holds over Neon's HTTP driver and at any
// number of Workers at once. A node's write names its claim's fence and changes nothing when the
// task was claimed, revoked or rescued since. Which state follows which is `states.ts`'s.

import { type SQL, sql } from "drizzle-orm";
import { task } from "../../../../db/vision/schema.ts";
import { assert, Failure } from "../../../../shared/errors.ts";
import {
  LEASE_SECONDS,
  type Outcome,
  type TaskProgress,
  type Verdict,
} from "../../../../shared/tasks/node-protocol.ts";
import { TASK_KINDS, type TaskKind, type TaskPayload } from "../../../../shared/tasks/tasks.ts";
import { iso } from "../../../../shared/time.ts";
import { type Database, wireTime } from "../../../http/database.ts";
import {
  columnsOf,
  extended,
  type RowOf,
  rowsOf,
  selection,
  typed,
} from "../../../http/selection.ts";
import { jsonb, storable } from "../../../http/storable.ts";
import { SERVICE_PREFIXES } from "../../base/parts.ts";
import { idList } from "../../base/sql.ts";
import { referencedKeys } from "../objects.ts";
import { countAttempt, countClaimed, countEnqueued } from "./counts.ts";
import {
  BACKOFF,
  type Choice,
  type Circumstance,
  destination,
  fromRunning,
  hasEnded,
  isRepeated,
  MOVES,
  type Move,
  OUTCOME_MOVES,
  RESCUE_MOVES,
  REVOKE_GRACE_SECONDS,
} from "./states.ts";

const ATTEMPTS_MAX = 3;
/** Characters kept of what an attempt failed with. */
const DETAIL_MAX = 2_000;
/** Rows that one rescue takes; the next minute takes the rest. */
const RESCUE_MAX = 1_000;

/** A task to enqueue. References in its payload carry no address yet: see `objects.ts`. */
export type NewTask = {
  [Kind in TaskKind]: { kind: Kind; payload: TaskPayload<Kind> };
}[TaskKind] & {
  workspaceId: string;
  /** What it is part of, such as `job:<id>` or `video:<id>`. */
  subject: string;
  /** Higher is claimed first. Default: the kind's own. */
  priority?: number;
  /** Attempts before it fails. Default 3. */
  attemptsMax?: number;
  /** Enqueuing again under the same key adds no task: the first one stands for both. */
  idempotencyKey?: string;
};

/** What one attempt of a task failed with, or an administrator's intervention. */
export interface TaskError {
  attempt: number;
  /** Absent of an intervention, which is no attempt's. */
  fence?: number;
  node_id: string | null;
  code: string;
  detail: string;
  at: string;
  /** Account of the administrator who intervened; absent of an attempt. */
  actor_id?: string;
}

const t = columnsOf(task, "task");
const HEAD = selection({
  taskId: t.id,
  kind: typed<TaskKind>(t.kind),
  workspaceId: t.workspaceId,
  subject: t.subject,
  state: t.state,
  attempt: t.attempt,
  fence: t.fence,
  nodeId: t.nodeId,
  /** Oldest first. */
  errors: typed<TaskError[]>(t.errors),
  progress: typed<TaskProgress | null>(t.progress),
});
/** A task without its payload and result, which may be large. */
export type TaskHead = RowOf<typeof HEAD>;

/** The columns of a whole task, for interventions too. */
export const WHOLE = extended(HEAD, {
  payload: typed<Record<string, unknown>>(t.payload),
  result: typed<Record<string, unknown> | null>(t.result),
  /** Frames of a label task that were stored before it ended, by whichever attempt. */
  framesDone: typed<number[]>(t.framesDone),
});
export type Task = RowOf<typeof WHOLE>;

/** A task as `claim` hands it out; its references have no address yet. */
export interface ClaimRow extends Record<string, unknown> {
  taskId: string;
  kind: TaskKind;
  fence: number;
  attempt: number;
  leaseUntil: string;
  payload: Record<string, unknown>;
  /** Whether further tasks that the node asked for are due. */
  more: boolean;
}

/** The database's clock, or the instant that a test sets. */
export const clock = (now: number | undefined): SQL =>
  now === undefined ? sql`date_trunc('milliseconds', now())` : sql`${iso(now)}::timestamptz(3)`;
const seconds = (count: number): SQL => sql`${count}::float8 * interval '1 second'`;
/** SQL's word for a choice of `states.ts`: the name of the move, or NULL when none is allowed. */
function moveByChoice(choice: Choice, { retryable = true }: { retryable?: boolean } = {}): SQL {
  const holds: Record<Circumstance, SQL> = {
    always: sql`true`,
    revoke_requested: sql`task.revoke_requested_at IS NOT NULL`,
    cancel_requested: sql`task.cancel_requested_at IS NOT NULL`,
    attempts_used: sql`task.attempt >= task.attempts_max`,
    not_retryable: sql`${!retryable}::boolean`,
  };
  const arms = choice.map(([circumstance, move]) => sql`WHEN ${holds[circumstance]} THEN ${move}`);
  return sql`CASE ${sql.join(arms, sql` `)} END`;
}

const MOVES_OF_RUNNING = (Object.keys(MOVES) as Move[]).filter((move) => fromRunning(move));
/** The state that the chosen move leads to. */
const AFTER_RUNNING = sql.raw(
  `CASE held.move ${MOVES_OF_RUNNING.map(
    (move) => `WHEN '${move}' THEN '${fromRunning(move)}'`,
  ).join(" ")} END`,
);
/** Whether the chosen move ends the task. */
const ENDS_TASK = sql.raw(
  `held.move IN (${MOVES_OF_RUNNING.filter((move) => hasEnded(fromRunning(move) ?? "queued"))
    .map((move) => `'${move}'`)
    .join()})`,
);
const BACKOFF_INTERVAL = sql.raw(
  `least(${BACKOFF.seconds} * ${BACKOFF.factor} ^ greatest(task.attempt - 1, 0), ` +
    `${BACKOFF.secondsMax}) * interval '1 second'`,
);

/**
 * Puts tasks on the queue, all or none. One whose idempotency key was used before is the task of
 * that key. Returns the tasks in the given order.
 */
export async function enqueue(
  database: Database,
  tasks: readonly NewTask[],
  now?: number,
): Promise<{ taskId: string; created: boolean }[]> {
  const rows = tasks.map((task) => {
    // An object outside of these prefixes is one that an operator mapped to the workspace: its key
    // was checked when it was linked.
    const foreign = referencedKeys(task.payload).find(
      (key) =>
        SERVICE_PREFIXES.some((prefix) => key.startsWith(prefix)) &&
        !key.startsWith(`ws/${task.workspaceId}/`),
    );
    assert(foreign === undefined, `a task's objects are its workspace's own, not ${foreign}`);
    return {
      id: crypto.randomUUID() as string,
      kind: task.kind,
      workspace_id: task.workspaceId,
      subject: task.subject,
      payload: task.payload,
      priority: task.priority ?? TASK_KINDS[task.kind].priority,
      attempts_max: task.attemptsMax ?? ATTEMPTS_MAX,
      idempotency_key: task.idempotencyKey ?? null,
    };
  });
  if (rows.length === 0) return [];
  const inserted = await database.execute<{ id: string }>(sql`
    INSERT INTO task (id, kind, workspace_id, subject, payload, priority, attempts_max,
      idempotency_key, available_at, created_at)
    SELECT id, kind, workspace_id, subject, payload, priority, attempts_max, idempotency_key,
      ${clock(now)}, ${clock(now)}
      FROM jsonb_to_recordset(${jsonb(rows)}) AS new(id uuid, kind text, workspace_id uuid,
        subject text, payload jsonb, priority smallint, attempts_max int, idempotency_key text)
    ON CONFLICT (idempotency_key) DO NOTHING RETURNING id::text`);
  const created = new Set(inserted.rows.map(({ id }) => id));
  countEnqueued(rows.filter(({ id }) => created.has(id)));
  const keys = rows.flatMap((row) => (created.has(row.id) ? [] : [row.idempotency_key]));
  const known = keys.length > 0 ? await taskIdsByKey(database, keys as string[]) : new Map();
  return rows.map((row) => ({
    taskId: created.has(row.id) ? row.id : (known.get(row.idempotency_key) as string),
    created: created.has(row.id),
  }));
}

async function taskIdsByKey(database: Database, keys: string[]): Promise<Map<string, string>> {
  const { rows } = await database.execute<{ key: string; id: string }>(sql`
    SELECT idempotency_key AS key, id::text FROM task WHERE idempotency_key IN ${keys}`);
  return new Map(rows.map(({ key, id }) => [key, id]));
}

/** Who asks for a task. */
export interface Claimant {
  nodeId: string;
  /** The one workspace that the node serves; null serves all. */
  workspaceId: string | null;
  kinds: readonly string[];
}

/** Gives a node the next task of the kinds it names that it serves; null when none is due. */
export async function claim(
  database: Database,
  { nodeId, workspaceId, kinds }: Claimant,
  now?: number,
): Promise<ClaimRow | null> {
  if (kinds.length === 0) return null;
  const served = workspaceId ? sql`AND workspace_id = ${workspaceId}::uuid` : sql``;
  const due = sql`state = 'queued' AND kind IN ${[...kinds]} AND available_at <= ${clock(now)}
    ${served}`;
  const { rows } = await database.execute<ClaimRow>(sql`
    WITH next AS (
      SELECT id FROM task WHERE ${due}
         AND EXISTS (SELECT FROM node WHERE id = ${nodeId}::uuid AND revoked_at IS NULL)
       ORDER BY priority DESC NULLS LAST, available_at, place LIMIT 1 FOR UPDATE SKIP LOCKED)
    UPDATE task SET state = ${destination("queued", "claim")}, attempt = attempt + 1,
      fence = fence + 1, node_id = ${nodeId}::uuid, progress = NULL, progress_at = NULL,
      step_seconds = '{}', claimed_at = ${clock(now)},
      lease_until = ${clock(now)} + ${seconds(LEASE_SECONDS)},
      started_at = coalesce(started_at, ${clock(now)})
      FROM next WHERE task.id = next.id
    RETURNING ${HEAD}, task.payload, ${wireTime(sql`lease_until`)} AS "leaseUntil",
      EXISTS (SELECT FROM task WHERE ${due} AND task.id <> next.id) AS more`);
  if (rows[0]) countClaimed(rows[0]);
  return rows[0] ?? null;
}

/** A node's word that it is still at its tasks: renews their leases, and says what is wanted. */
export async function heartbeat(
  database: Database,
  nodeId: string,
  tasks: readonly { taskId: string; fence: number }[],
  now?: number,
): Promise<{ taskId: string; verdict: Verdict }[]> {
  if (tasks.length === 0) return [];
  const list = tasks.map(({ taskId, fence }) => ({ id: taskId, fence }));
  const { rows } = await database.execute<{ taskId: string; verdict: Verdict }>(sql`
    WITH given AS (
      SELECT id, fence FROM jsonb_to_recordset(${jsonb(list)}) AS given(id uuid, fence bigint)),
    held AS (
      SELECT task.id FROM task JOIN given ON given.id = task.id
       WHERE state = 'running' AND node_id = ${nodeId}::uuid
         AND task.fence = given.fence + (revoke_requested_at IS NOT NULL)::int
       ORDER BY task.id FOR UPDATE OF task),
    renewed AS (
      UPDATE task SET lease_until = ${clock(now)} + ${seconds(LEASE_SECONDS)}
        FROM held WHERE task.id = held.id
      RETURNING task.id, ${VERDICT} AS verdict)
    SELECT given.id::text AS "taskId", coalesce(renewed.verdict, 'lost') AS verdict
      FROM given LEFT JOIN renewed ON renewed.id = given.id`);
  return rows;
}

const VERDICT = sql`CASE WHEN revoke_requested_at IS NOT NULL THEN 'revoke'
  WHEN cancel_requested_at IS NOT NULL THEN 'cancel' ELSE 'go_on' END`;

export interface Report {
  nodeId: string;
  taskId: string;
  fence: number;
}

/** Steps of which the median is taken: a newer pace is soon most of them. */
const STEPS_MAX = 31;

/** Keeps how far a task is. Fails with `lease_stale` when it is no longer the node's. */
export async function reportProgress(
  database: Database,
  { nodeId, taskId, fence }: Report,
  progress: TaskProgress,
  now?: number,
): Promise<{ task: TaskHead; verdict: Verdict }> {
  const { rows } = await database.execute<TaskHead & { verdict: Verdict }>(sql`
    UPDATE task SET progress = ${jsonb(progress)}, progress_at = ${clock(now)},
      step_seconds = CASE
        WHEN coalesce((progress->>'done')::float8, 0) < ${progress.done}::float8 THEN
          (extract(epoch FROM ${clock(now)} - coalesce(progress_at, claimed_at, started_at))::real
            || step_seconds)[1:${STEPS_MAX}::int]
        ELSE step_seconds END
     WHERE id = ${taskId}::uuid AND state = 'running' AND node_id = ${nodeId}::uuid
       AND fence = ${fence}::bigint
    RETURNING ${HEAD}, ${VERDICT} AS verdict`);
  const row = rows[0];
  if (!row) throw await refusal(database, { nodeId, taskId, fence });
  const { verdict, ...task } = row;
  return { task, verdict };
}

/**
 * Replaces members of a running task's payload for later attempts. False when it does not run under
 * this fence any more, or the patch names an object that is not its workspace's own.
 */
export async function amendPayload(
  database: Database,
  { taskId, fence }: { taskId: string; fence: number },
  patch: Record<string, unknown>,
): Promise<boolean> {
  const { rows } = await database.execute(sql`
    UPDATE task SET payload = payload || ${jsonb(patch)}
     WHERE id = ${taskId}::uuid AND state = 'running' AND fence = ${fence}::bigint
       AND NOT EXISTS (
         SELECT FROM jsonb_array_elements_text(${jsonb(referencedKeys(patch))}) AS key
          WHERE NOT starts_with(key, 'ws/' || task.workspace_id::text || '/'))
    RETURNING id`);
  return rows.length > 0;
}

/**
 * Takes an attempt's outcome, once: a repeated report of the same outcome changes nothing. Fails
 * with `lease_stale` when the task is no longer the node's, and with `state_conflict` when nobody
 * asked for what the outcome answers to.
 */
export async function finish(
  database: Database,
  { nodeId, taskId, fence }: Report,
  outcome: Outcome,
  now?: number,
): Promise<{ task: Task; repeated: boolean }> {
  const name = outcome.outcome;
  const retryable = name !== "failed" || outcome.retryable;
  const error =
    name === "failed"
      ? { code: storable(outcome.code), detail: storable(outcome.detail).slice(0, DETAIL_MAX) }
      : null;
  const result = "result" in outcome ? outcome.result : null;
  const rows = await rowsOf(database, WHOLE)`
    WITH held AS (
      SELECT id, ${moveByChoice(OUTCOME_MOVES[name], { retryable })} AS move FROM task
       WHERE id = ${taskId}::uuid AND state = 'running' AND node_id = ${nodeId}::uuid
         AND fence = ${fence}::bigint + ${Number(name === "revoked")}::int
       FOR UPDATE)
    UPDATE task SET state = ${AFTER_RUNNING}, lease_until = NULL,
      ended_at = CASE WHEN ${ENDS_TASK} THEN ${clock(now)} END,
      attempt = attempt - (held.move = 'snooze')::int,
      available_at = CASE held.move WHEN 'retry' THEN ${clock(now)} + ${BACKOFF_INTERVAL}
        WHEN 'snooze' THEN ${clock(now)} + ${seconds(name === "snoozed" ? outcome.seconds : 0)}
        ELSE available_at END,
      result = ${result && jsonb(result)},
      errors = errors || ${errorEntries(error, clock(now), sql`${fence}::bigint`)}
      FROM held WHERE task.id = held.id AND held.move IS NOT NULL
    RETURNING ${WHOLE}`;
  if (rows[0]) {
    countAttempt(rows[0], name);
    return { task: rows[0], repeated: false };
  }
  const task = await findTask(database, taskId);
  if (!task) throw new Failure("not_found", "no task has this id");
  const trace = { ...task, failedFences: task.errors.flatMap((one) => one.fence ?? []) };
  if (isRepeated(trace, { nodeId, fence, outcome: name })) return { task, repeated: true };
  throw await refusal(database, { nodeId, taskId, fence });
}

/** The error that an attempt left, as a list to append; empty where it left none. */
export const errorEntries = (
  error: { code: string; detail: string } | null,
  now: SQL,
  fence: SQL,
): SQL =>
  error === null
    ? sql`'[]'::jsonb`
    : sql`jsonb_build_array(jsonb_build_object('attempt', task.attempt, 'fence', ${fence},
        'node_id', task.node_id, 'code', ${error.code}::text, 'detail', ${error.detail}::text,
        'at', ${wireTime(now)}))`;

/** Why a node's write changed nothing. */
export async function refusal(
  database: Database,
  { nodeId, taskId, fence }: Report,
): Promise<Failure> {
  const [one] = await heldBy(database, nodeId, taskId);
  if (!one) {
    const detail = "the task is not yours any more: end its process and report nothing";
    return new Failure("lease_stale", detail, { data: { verdict: "lost" } });
  }
  if (one.revoking && one.fence === fence + 1) {
    const detail = "the task was revoked: end its process, then report its exit";
    return new Failure("lease_stale", detail, { data: { verdict: "revoke" } });
  }
  if (one.fence === fence) {
    return new Failure("state_conflict", "nobody asked for what this outcome answers to");
  }
  const detail = "the task was claimed since: end its process and report nothing";
  return new Failure("lease_stale", detail, { data: { verdict: "lost" } });
}

async function heldBy(database: Database, nodeId: string, taskId: string) {
  const { rows } = await database.execute<{ fence: number; revoking: boolean }>(sql`
    SELECT fence::float8 AS fence, revoke_requested_at IS NOT NULL AS revoking FROM task
     WHERE id = ${taskId}::uuid AND state = 'running' AND node_id = ${nodeId}::uuid`);
  return rows;
}

/**
 * Frees tasks whose lease expired: queued again after a while, or ended where it was their last
 * attempt or somebody had asked for their end. Returns them in their new state.
 */
export async function rescue(database: Database, now?: number): Promise<Task[]> {
  const lost = { code: "lease_lost", detail: "the node stopped renewing its lease" };
  const grace = seconds(REVOKE_GRACE_SECONDS);
  const rows = await rowsOf(database, WHOLE)`
    WITH held AS (
      SELECT id, ${moveByChoice(RESCUE_MOVES)} AS move FROM task
       WHERE state = 'running' AND lease_until < ${clock(now)}
         AND (revoke_requested_at IS NULL OR lease_until < ${clock(now)} - ${grace})
       ORDER BY lease_until LIMIT ${RESCUE_MAX}::int FOR UPDATE SKIP LOCKED)
    UPDATE task SET state = ${AFTER_RUNNING}, lease_until = NULL, fence = fence + 1,
      ended_at = CASE WHEN ${ENDS_TASK} THEN ${clock(now)} END,
      available_at = CASE held.move WHEN 'retry' THEN ${clock(now)} + ${BACKOFF_INTERVAL}
        ELSE available_at END,
      errors = errors || ${errorEntries(lost, clock(now), sql`task.fence`)}
      FROM held WHERE task.id = held.id
    RETURNING ${WHOLE}`;
  for (const task of rows) countAttempt(task, "lease_lost");
  return rows;
}

/** Ended tasks whose outcome nobody has taken for this long; any order, so that none blocks all. */
export async function listUntaken(
  database: Database,
  { olderThanSeconds, limit }: { olderThanSeconds: number; limit: number },
  now?: number,
): Promise<Task[]> {
  const rows = await rowsOf(database, WHOLE)`
    SELECT ${WHOLE} FROM task
     WHERE ended_at IS NOT NULL AND settled_at IS NULL
       AND ended_at <= ${clock(now)} - ${seconds(olderThanSeconds)}
     ORDER BY random() LIMIT ${limit}::int`;
  return rows;
}

/** Notes that the outcomes of ended tasks were taken. */
export async function markTaken(
  database: Database,
  taskIds: readonly string[],
  now?: number,
): Promise<void> {
  await database.execute(sql`
    UPDATE task SET settled_at = ${clock(now)}
     WHERE id IN ${idList(taskIds)} AND ended_at IS NOT NULL AND settled_at IS NULL`);
}

/** The task of an id, with payload and result, or null. */
export async function findTask(database: Database, taskId: string): Promise<Task | null> {
  const rows = await rowsOf(database, WHOLE)`SELECT ${WHOLE} FROM task WHERE id = ${taskId}::uuid`;
  return rows[0] ?? null;
}

/** How a task ended, or null while it has not. Fails with `not_found` for an unknown id. */
export async function taskOutcome(database: Database, taskId: string): Promise<Task | null> {
  const task = await findTask(database, taskId);
  if (!task) throw new Failure("not_found", "no task has this id");
  return hasEnded(task.state) ? task : null;
}
