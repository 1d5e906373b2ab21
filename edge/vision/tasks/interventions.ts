// What people ask of tasks: cancel, revoke, purge. A queued task ends at once; a running one is
// told with its node's next heartbeat. Which state follows which is `states.ts`'s.

import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../http/database.ts";
import { type Realm, within } from "../auth/scope.ts";
import { idList } from "../base/sql.ts";
import { clock, type Task, WHOLE } from "./queue.ts";
import { destination } from "./states.ts";

/** Tasks by id, of a realm where one is given; or all of a subject. */
export type Which = { taskIds: readonly string[]; realm?: Realm } | { subject: string };

const matching = (which: Which): SQL =>
  "subject" in which
    ? sql`subject = ${which.subject}`
    : sql`id IN ${idList(which.taskIds)}
        AND ${within(which.realm ?? "installation", sql`workspace_id`)}`;

/** Asks for a move of tasks that have not ended; `asked` notes it on the row of each. */
async function request(
  database: Database,
  which: Which,
  { move, asked, now }: { move: "cancel" | "revoke"; asked: SQL; now: number | undefined },
): Promise<Task[]> {
  const { rows } = await database.execute<Task>(sql`
    WITH held AS (
      SELECT id FROM task WHERE ${matching(which)} AND state IN ('queued', 'running')
       ORDER BY id FOR UPDATE)
    UPDATE task SET ${asked},
      state = CASE state WHEN 'queued' THEN ${destination("queued", move)}
        ELSE ${destination("running", move)} END,
      ended_at = CASE state WHEN 'queued' THEN ${clock(now)} END
      FROM held WHERE task.id = held.id
    RETURNING ${WHOLE}`);
  return rows;
}

/**
 * Asks tasks to stop and keep what they did: a queued one is canceled at once, a running one is
 * told with its next heartbeat. Returns those that had not ended, in their new state.
 */
export function requestCancel(database: Database, which: Which, now?: number): Promise<Task[]> {
  const asked = sql`cancel_requested_at = coalesce(cancel_requested_at, ${clock(now)})`;
  return request(database, which, { move: "cancel", asked, now });
}

/**
 * Takes tasks from whoever has them: a queued one is revoked at once; of a running one nothing but
 * its process's exit is taken from then on. Returns those that had not ended, in their new state.
 */
export function requestRevoke(database: Database, which: Which, now?: number): Promise<Task[]> {
  const asked = sql`fence = fence + (revoke_requested_at IS NULL)::int,
    revoke_requested_at = coalesce(revoke_requested_at, ${clock(now)})`;
  return request(database, which, { move: "revoke", asked, now });
}

/** Cancels a realm's queued tasks of a kind. Running ones are left alone and counted. */
export async function purge(
  database: Database,
  { kind, realm }: { kind: string; realm: Realm },
  now?: number,
): Promise<{ purged: Task[]; running: number }> {
  const { rows } = await database.execute<Task>(sql`
    WITH held AS (
      SELECT id FROM task WHERE kind = ${kind} AND state = 'queued'
         AND ${within(realm, sql`workspace_id`)} ORDER BY id FOR UPDATE)
    UPDATE task SET state = ${destination("queued", "purge")}, ended_at = ${clock(now)},
      cancel_requested_at = coalesce(cancel_requested_at, ${clock(now)})
      FROM held WHERE task.id = held.id
    RETURNING ${WHOLE}`);
  const counted = await database.execute<{ running: number }>(sql`
    SELECT count(*)::int AS running FROM task WHERE kind = ${kind} AND state = 'running'
       AND ${within(realm, sql`workspace_id`)}`);
  return { purged: rows, running: counted.rows[0]?.running ?? 0 };
}
