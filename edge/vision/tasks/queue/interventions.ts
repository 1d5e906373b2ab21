// What people ask of tasks: cancel, revoke, purge; and the end of those that no node can do. A
// queued task ends at once; a running one is told with its node's next heartbeat. Which state
// follows which is `states.ts`'s.

import { type SQL, sql } from "drizzle-orm";
import type { TaskIntervention } from "../../../../shared/tasks/task-intervention.ts";
import { type Database, wireTime } from "../../../http/database.ts";
import { rowsOf } from "../../../http/selection.ts";
import { type Act, auditEntries } from "../../auth/audit.ts";
import { type Realm, within } from "../../auth/scope.ts";
import { idList } from "../../base/sql.ts";
import { countEnded } from "./counts.ts";
import { clock, errorEntries, type Task, WHOLE } from "./queue.ts";
import { destination } from "./states.ts";

/** Tasks by id, of a realm where one is given; or all of a subject. */
export type Which = { taskIds: readonly string[]; realm?: Realm } | { subject: string };

const matching = (which: Which): SQL =>
  "subject" in which
    ? sql`subject = ${which.subject}`
    : sql`id IN ${idList(which.taskIds)}
        AND ${within(which.realm ?? "installation", sql`workspace_id`)}`;

/** What an administrator did to a task, as a list to append to its errors; empty without an act. */
const interventionEntry = (
  intervention: { kind: TaskIntervention["kind"]; act: Act } | undefined,
  now: SQL,
): SQL =>
  intervention === undefined
    ? sql`'[]'::jsonb`
    : sql`jsonb_build_array(jsonb_build_object('attempt', task.attempt, 'node_id', task.node_id,
        'code', ${intervention.kind}::text, 'detail', ${DETAILS[intervention.kind]}::text,
        'actor_id', ${intervention.act.actorId}::text, 'at', ${wireTime(now)}))`;

const DETAILS = {
  revoked: "an administrator revoked the task",
  purged: "an administrator purged the task's queue",
} as const;

/** What is asked of tasks, and when. */
interface Demand {
  move: "cancel" | "revoke";
  /** Notes it on a task's row. */
  asked: SQL;
  /** The column that says since when it is asked. */
  since: SQL;
  now: number | undefined;
  /** Where it is to be written down: an entry for each task that nobody had asked it of. */
  act?: Act | undefined;
}

/** Asks for a move of tasks that have not ended. */
async function request(
  database: Database,
  which: Which,
  { move, asked, since, now, act }: Demand,
): Promise<Task[]> {
  // A running task keeps its state until its process is gone.
  const asks = `${move}_requested`;
  const entries =
    act &&
    auditEntries(act, {
      subject: sql`'task:' || "taskId"`,
      workspaceId: sql`"workspaceId"::uuid`,
      before: sql`jsonb_build_object('status', held_state, ${asks}::text, false)`,
      after: sql`jsonb_build_object('status', state, ${asks}::text, true)`,
      from: sql`moved WHERE is_news`,
    });
  const rows = await rowsOf(database, WHOLE)`
    WITH held AS (
      SELECT id, state AS held_state, ${since} IS NULL AS is_news FROM task
       WHERE ${matching(which)} AND state IN ('queued', 'running')
       ORDER BY id FOR UPDATE),
    moved AS (
      UPDATE task SET ${asked}, errors = errors || CASE WHEN is_news
          THEN ${interventionEntry(act && { kind: "revoked", act }, clock(now))} ELSE '[]' END,
        state = CASE state WHEN 'queued' THEN ${destination("queued", move)}
          ELSE ${destination("running", move)} END,
        ended_at = CASE state WHEN 'queued' THEN ${clock(now)} END
        FROM held WHERE task.id = held.id
      RETURNING ${WHOLE}, held_state, is_news)
    ${entries ? sql`, logged AS (${entries})` : sql``}
    SELECT * FROM moved`;
  countEnded(rows);
  return rows;
}

/**
 * Asks tasks to stop and keep what they did: a queued one is canceled at once, a running one is
 * told with its next heartbeat. Returns those that had not ended, in their new state.
 */
export function requestCancel(database: Database, which: Which, now?: number): Promise<Task[]> {
  const asked = sql`cancel_requested_at = coalesce(cancel_requested_at, ${clock(now)})`;
  const since = sql`cancel_requested_at`;
  return request(database, which, { move: "cancel", asked, since, now });
}

/**
 * Takes tasks from whoever has them: a queued one is revoked at once; of a running one nothing but
 * its process's exit is taken from then on. Returns those that had not ended, in their new state.
 * An act is written down for each task that was not asked before.
 */
export function requestRevoke(
  database: Database,
  which: Which & { act?: Act },
  now?: number,
): Promise<Task[]> {
  const asked = sql`fence = fence + (revoke_requested_at IS NULL)::int,
    revoke_requested_at = coalesce(revoke_requested_at, ${clock(now)})`;
  const since = sql`revoke_requested_at`;
  return request(database, which, { move: "revoke", asked, since, now, act: which.act });
}

/**
 * The newest intervention in the tasks `t` of a condition, a `TaskIntervention` as jsonb; NULL
 * where there is none.
 */
export const newestIntervention = (condition: SQL): SQL => sql`(
  SELECT jsonb_build_object('kind', one->'code', 'task_id', t.id, 'actor_id', one->'actor_id',
      'at', one->'at')
    FROM task t, jsonb_array_elements(t.errors) one
   WHERE ${condition} AND one ? 'actor_id' ORDER BY one->>'at' DESC, t.id LIMIT 1)`;

/** Ids of tasks that an entry of the audit log names; it says how many there are in all. */
const LOGGED_MAX = 100;

/**
 * Cancels a realm's queued tasks of a kind. Running ones are left alone and counted. An act is
 * written down once for each workspace that lost tasks: each one's admins see their own.
 */
export async function purge(
  database: Database,
  { kind, realm, act }: { kind: string; realm: Realm; act?: Act },
  now?: number,
): Promise<{ purged: Task[]; running: number }> {
  const entries =
    act &&
    auditEntries(act, {
      subject: sql`${`queue:${kind}`}::text`,
      workspaceId: sql`workspace_id`,
      before: sql`jsonb_build_object('status', 'queued')`,
      after: sql`jsonb_build_object('status', ${destination("queued", "purge")}::text,
        'count', count, 'task_ids', task_ids)`,
      from: sql`(SELECT "workspaceId"::uuid AS workspace_id, count(*) AS count,
        to_jsonb((array_agg("taskId" ORDER BY "taskId"))[1:${sql.raw(String(LOGGED_MAX))}])
          AS task_ids FROM moved GROUP BY "workspaceId") dropped`,
    });
  const rows = await rowsOf(database, WHOLE)`
    WITH held AS (
      SELECT id FROM task WHERE kind = ${kind} AND state = 'queued'
         AND ${within(realm, sql`workspace_id`)} ORDER BY id FOR UPDATE),
    moved AS (
      UPDATE task SET state = ${destination("queued", "purge")}, ended_at = ${clock(now)},
        errors = errors || ${interventionEntry(act && { kind: "purged", act }, clock(now))},
        cancel_requested_at = coalesce(cancel_requested_at, ${clock(now)})
        FROM held WHERE task.id = held.id
      RETURNING ${WHOLE})
    ${entries ? sql`, logged AS (${entries})` : sql``}
    SELECT * FROM moved`;
  countEnded(rows);
  const counted = await database.execute<{ running: number }>(sql`
    SELECT count(*)::int AS running FROM task WHERE kind = ${kind} AND state = 'running'
       AND ${within(realm, sql`workspace_id`)}`);
  return { purged: rows, running: counted.rows[0]?.running ?? 0 };
}

/** Fails a queued task that no node can do, for the reason given; null where it is not queued. */
export async function giveUp(
  database: Database,
  { taskId, reason }: { taskId: string; reason: { code: string; detail: string } },
  now?: number,
): Promise<Task | null> {
  const rows = await rowsOf(database, WHOLE)`
    UPDATE task SET state = ${destination("queued", "give_up")}, ended_at = ${clock(now)},
      errors = errors || ${errorEntries(reason, clock(now), sql`task.fence`)}
     WHERE id = ${taskId}::uuid AND state = 'queued'
    RETURNING ${WHOLE}`;
  countEnded(rows);
  return rows[0] ?? null;
}
