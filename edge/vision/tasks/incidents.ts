// Incidents of GPU nodes and task queues: a node without heartbeats, a queue without claims.

import { sql } from "drizzle-orm";
import { TASK_KIND_NAMES, taskKind } from "../../../shared/tasks/tasks.ts";
import { HOUR, MINUTE } from "../../../shared/time.ts";
import { wireTime } from "../../http/database.ts";
import { jsonb } from "../../http/storable.ts";
import { type IncidentParts, noteIncidents } from "../auth/incidents/incidents.ts";
import { instant } from "../base/sql.ts";
import { IS_LOST, nodesWhere } from "./nodes/nodes.ts";
import { JUDGED } from "./overview.ts";

/** A queue whose first in line waits for so long, with nothing claimed meanwhile, stands still. */
const STALLED_MS = 15 * MINUTE;
/** A node that fell silent longer ago is no news. */
const NODE_NEWS_MS = 24 * HOUR;
/** After a time in which nobody watched, nodes have so long to be heard of. */
const NODE_GRACE_MS = 3 * MINUTE;
/** The watch is of the last minutes. */
const WATCH_GAP_MS = 3 * MINUTE;

/** The lane of each kind of task; those of other releases are in the batch lane. */
const LANES = Object.fromEntries(TASK_KIND_NAMES.map((kind) => [kind, taskKind(kind)?.lane]));
const laneOf = (kind: ReturnType<typeof sql>) => sql`coalesce(${jsonb(LANES)}->>${kind}, 'batch')`;

/** Whether the cron has run without a gap for so long: before, silence may be of its own making. */
const watchedFor = (milliseconds: number, now: number) => sql`EXISTS (
  SELECT FROM fleet_watch WHERE since <= ${instant(now - milliseconds)}
     AND seen_at > ${instant(now - WATCH_GAP_MS)})`;

/** Nodes that fell silent; one that said before that it leaves was stopped on purpose. */
export async function noticeLostNodes(parts: IncidentParts): Promise<void> {
  const now = parts.clock();
  await noteIncidents(parts, {
    kind: "node_lost",
    wrong: sql`
      SELECT id::text AS subject, 'the node ' || name || ' was last heard of at '
          || ${wireTime(sql`last_heartbeat_at`)} AS detail
        FROM node WHERE ${IS_LOST} AND NOT draining
         AND last_heartbeat_at > ${instant(now - NODE_NEWS_MS)} AND ${watchedFor(NODE_GRACE_MS, now)}`,
    isOver: sql`NOT EXISTS (SELECT FROM node WHERE id::text = i.subject AND ${IS_LOST})`,
  });
}

/**
 * Kinds of tasks whose first in line waits too long while none is claimed. That the nodes which
 * could claim it are all at work on others of its lane, and get on with these, is no standstill.
 */
export async function noticeStalledQueues(parts: IncidentParts): Promise<void> {
  const now = parts.clock();
  const since = instant(now - STALLED_MS);
  const waits = sql`state = 'queued' AND available_at <= ${instant(now)}`;
  const isMoving = (kind: ReturnType<typeof sql>) => sql`EXISTS (
    SELECT FROM task WHERE kind = ${kind} AND claimed_at > ${since})`;
  const isBusy = sql`EXISTS (
    SELECT FROM task, ${JUDGED} WHERE state = 'running' AND node_id = node.id AND reason IS NULL
       AND ${laneOf(sql`task.kind`)} = ${laneOf(sql`first.kind`)})`;
  await noteIncidents(parts, {
    kind: "queue_stalled",
    wrong: sql`
      SELECT first.kind AS subject, 'the first ' || first.kind || ' of the lane '
          || ${laneOf(sql`first.kind`)} || ' waits since ' || ${wireTime(sql`first.since`)}
          || ', and none was claimed for ${sql.raw(String(STALLED_MS / MINUTE))} minutes' AS detail
        FROM (SELECT DISTINCT ON (kind) kind, workspace_id,
            greatest(created_at, available_at) AS since FROM task WHERE ${waits}
          ORDER BY kind, greatest(created_at, available_at)) first
       WHERE first.since <= ${since} AND NOT ${isMoving(sql`first.kind`)}
         AND ${watchedFor(STALLED_MS, now)}
         AND (SELECT coalesce(bool_or(NOT ${isBusy}), true) FROM node
           WHERE ${nodesWhere({ kind: sql`first.kind`, workspaceId: sql`first.workspace_id` })})`,
    isOver: sql`(${isMoving(sql`i.subject`)}
      OR NOT EXISTS (SELECT FROM task WHERE kind = i.subject AND ${waits}))`,
  });
}
