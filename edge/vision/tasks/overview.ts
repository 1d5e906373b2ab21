// What operators look at: queues and stuck tasks.

import { sql } from "drizzle-orm";
import type { TaskKind } from "../../../shared/tasks/tasks.ts";
import { type Database, wireTime } from "../../http/database.ts";
import { jsonb } from "../../http/storable.ts";
import { type Realm, within } from "../auth/scope.ts";

/** A lease that expired this long ago was missed by the rescue. */
const RESCUE_LATE_SECONDS = 180;
/** A task is stuck without progress for these seconds, and for so many of its median steps. */
const SILENCE_SECONDS = 300;
const SILENCE_STEPS = 5;
const [MINUTES, HOURS, DAYS] = [60, 3_600, 86_400];
/** No attempt of a kind is expected to take longer. */
const ATTEMPT_SECONDS_MAX: Readonly<Record<TaskKind, number>> = {
  probe: 1 * HOURS,
  label: 4 * HOURS,
  preview: 10 * MINUTES,
  segment: 10 * MINUTES,
  embed: 1 * HOURS,
  crops: 1 * HOURS,
  frames: 10 * MINUTES,
  export: 4 * HOURS,
  model_export: 1 * HOURS,
  device_export: 4 * HOURS,
  engine_export: 4 * HOURS,
  train: 7 * DAYS,
  warm: 10 * MINUTES,
  predict: 4 * HOURS,
  comparison: 4 * HOURS,
  sam: 10 * MINUTES,
  sam_video: 4 * HOURS,
  workflow: 30 * MINUTES,
  workflow_video: 4 * HOURS,
};
/** Seconds for kinds of other releases. */
const OTHER_SECONDS_MAX = 4 * HOURS;
const STUCK_MAX = 1_000;

export interface StuckTask extends Record<string, unknown> {
  taskId: string;
  kind: string;
  subject: string;
  workspaceId: string;
  nodeId: string | null;
  startedAt: string;
  progressAt: string | null;
  reason: "lease_expired" | "no_progress" | "too_long";
}

const seconds = (count: number) => sql.raw(`${count} * interval '1 second'`);

/** What of its history tells of a row of `task`, and why it is stuck as `reason`, if it is. */
export const JUDGED = sql`LATERAL (SELECT coalesce(claimed_at, started_at) AS began,
    (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY step) FROM unnest(step_seconds) AS step)
      AS step) own,
  LATERAL (SELECT CASE
    WHEN lease_until < now() - ${seconds(RESCUE_LATE_SECONDS)} THEN 'lease_expired'
    WHEN began < now() - coalesce((${jsonb(ATTEMPT_SECONDS_MAX)}->>kind)::int,
      ${OTHER_SECONDS_MAX}::int) * interval '1 second' THEN 'too_long'
    WHEN coalesce(progress_at, began) < now() - greatest(${SILENCE_SECONDS}::float8,
      ${SILENCE_STEPS}::float8 * step) * interval '1 second' THEN 'no_progress'
    END AS reason) judged`;

/**
 * A realm's running tasks that do not behave as their own history lets expect: the lease expired
 * and nobody freed it, no step for five times the median one (and five minutes), or an attempt of
 * more than its kind's hours. What attempts before it did says nothing of the newest.
 */
export async function stuckTasks(database: Database, realm: Realm): Promise<StuckTask[]> {
  const { rows } = await database.execute<StuckTask>(sql`
    SELECT id::text AS "taskId", kind, subject, workspace_id::text AS "workspaceId",
      node_id::text AS "nodeId", ${wireTime(sql`started_at`)} AS "startedAt",
      ${wireTime(sql`progress_at`)} AS "progressAt", reason
      FROM task, ${JUDGED}
     WHERE state = 'running' AND reason IS NOT NULL AND ${within(realm, sql`workspace_id`)}
     ORDER BY started_at LIMIT ${STUCK_MAX}::int`);
  return rows;
}

export interface QueueRecord extends Record<string, unknown> {
  name: string;
  depth: number;
  delayed: number;
  running: number;
  consumers: number;
  oldest_queued_at: string | null;
}

/**
 * Every queue that holds tasks of a realm or has a consumer of them; a queue is the tasks of one
 * kind.
 */
export async function listQueues(database: Database, realm: Realm): Promise<QueueRecord[]> {
  const { rows } = await database.execute<QueueRecord>(sql`
    WITH held AS (
      SELECT kind, count(*) FILTER (WHERE state = 'queued')::int AS depth,
        count(*) FILTER (WHERE state = 'queued' AND available_at > now())::int AS delayed,
        count(*) FILTER (WHERE state = 'running')::int AS running,
        min(created_at) FILTER (WHERE state = 'queued') AS oldest
        FROM task WHERE state IN ('queued', 'running') AND ${within(realm, sql`workspace_id`)}
       GROUP BY kind),
    offered AS (
      SELECT kind, count(*)::int AS consumers
        FROM node, jsonb_array_elements_text(capabilities->'kinds') AS kind
       WHERE revoked_at IS NULL AND NOT draining AND last_heartbeat_at > now() - ${seconds(60)}
         AND (workspace_id IS NULL OR ${within(realm, sql`workspace_id`)})
       GROUP BY kind)
    SELECT kind AS name, coalesce(depth, 0) AS depth, coalesce(delayed, 0) AS delayed,
      coalesce(running, 0) AS running, coalesce(consumers, 0) AS consumers,
      ${wireTime(sql`oldest`)} AS oldest_queued_at
      FROM held FULL JOIN offered USING (kind) ORDER BY kind`);
  return rows;
}
