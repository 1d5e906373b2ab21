// What makes an incident of the installation, and what ends it. The minute cron looks.

import { sql } from "drizzle-orm";
import { TASK_KIND_NAMES, taskKind } from "../../../shared/tasks.ts";
import { HOUR, MINUTE } from "../../../shared/time.ts";
import { wireTime } from "../../http/database.ts";
import { type DutyOutcome, performDuties } from "../../http/duties.ts";
import { jsonb } from "../../http/storable.ts";
import type { Parts } from "../base/parts.ts";
import { instant, textList } from "../base/sql.ts";
import { BAD_SHARE, FAULT_REQUESTS_MIN, FAULT_WINDOW_MS, WELL_SHARE } from "../endpoints/faults.ts";
import { claims, IS_LOST } from "../tasks/nodes.ts";
import { JUDGED } from "../tasks/overview.ts";
import { sendIncidentNotices } from "./incident-notices.ts";
import { forgetIncidents, type IncidentParts, noteIncidents } from "./incidents.ts";

/** A queue whose first in line waits for so long, with nothing claimed meanwhile, stands still. */
const STALLED_MS = 15 * MINUTE;
/** A duty that failed so often in a row is told of. */
const FAILURES_MIN = 3;
/** A duty that neither failed nor was performed for so long is none any more. */
const UNHEARD_MS = HOUR;
/** An endpoint without requests for so long has no errors either. */
const NO_REQUESTS_MS = HOUR;
/** A node that fell silent longer ago is no news. */
const NODE_NEWS_MS = 24 * HOUR;
/** After a time in which nobody watched, nodes have so long to be heard of. */
const NODE_GRACE_MS = 3 * MINUTE;
/** The watch is of the last minutes. */
const WATCH_GAP_MS = 3 * MINUTE;

/** The lane of each kind of task; those of other releases are in the batch lane. */
const LANES = Object.fromEntries(TASK_KIND_NAMES.map((kind) => [kind, taskKind(kind)?.lane]));
const laneOf = (kind: ReturnType<typeof sql>) => sql`coalesce(${jsonb(LANES)}->>${kind}, 'batch')`;

type CauseParts = IncidentParts & Pick<Parts, "log" | "limits">;

/**
 * Notices what began and what is over, and sends what is due. One that fails keeps none of the
 * others; it is a duty of the minute itself, and told of like those. `minute` is the cron's.
 */
export async function tendIncidents(
  parts: CauseParts,
  outcome: DutyOutcome,
  minute: number,
): Promise<void> {
  const own = await performDuties(
    parts.log,
    {
      lost_nodes: noticeLostNodes,
      stalled_queues: noticeStalledQueues,
      missing_backups: noticeMissingBackup,
      endpoint_errors: noticeEndpointErrors,
      old_incidents: forgetIncidents,
    },
    parts,
  );
  const whole = {
    succeeded: [...outcome.succeeded, ...own.succeeded],
    failed: [...outcome.failed, ...own.failed],
  };
  await performDuties(parts.log, {
    failed_duties: () => noticeFailedDuties(parts, whole, minute),
    incident_notices: () => sendIncidentNotices(parts),
  });
}

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
           WHERE ${claims(sql`first.kind`, sql`first.workspace_id`)})`,
    isOver: sql`(${isMoving(sql`i.subject`)}
      OR NOT EXISTS (SELECT FROM task WHERE kind = i.subject AND ${waits}))`,
  });
}

/** Counts duties that failed in a row, and tells of those that did for minutes. */
export async function noticeFailedDuties(
  parts: IncidentParts,
  { succeeded, failed }: DutyOutcome,
  minute: number,
): Promise<void> {
  const at = instant(minute - (minute % MINUTE));
  await parts.database.execute(sql`
    WITH counted AS (
      INSERT INTO duty_failure AS d (duty, failures, minute)
      SELECT duty, 1, ${at} FROM ${textList(failed)} AS given(duty)
      ON CONFLICT (duty) DO UPDATE SET failures = d.failures + 1, minute = excluded.minute
       WHERE d.minute < excluded.minute)
    DELETE FROM duty_failure WHERE duty IN ${textList(succeeded)}
       OR (minute < ${instant(minute - UNHEARD_MS)} AND NOT duty IN ${textList(failed)})`);
  await noteIncidents(parts, {
    kind: "duty_failed",
    wrong: sql`
      SELECT duty AS subject, 'the duty ' || duty || ' of each minute failed ' || failures
          || ' times in a row; the log says why' AS detail
        FROM duty_failure WHERE failures >= ${FAILURES_MIN}::int`,
    isOver: sql`NOT EXISTS (SELECT FROM duty_failure WHERE duty = i.subject)`,
  });
}

/** The one database that is looked after. */
const VISION = "vision";

/** A newest backup that is too old, or that is not there; nothing where nobody set an age. */
export async function noticeMissingBackup(
  parts: IncidentParts & Pick<Parts, "limits">,
): Promise<void> {
  const hours = parts.limits.backupHoursMax;
  const isFresh = sql`EXISTS (SELECT FROM database_backup
    WHERE made_at > ${instant(parts.clock() - (hours ?? 0) * HOUR)})`;
  const detail = sql`coalesce((SELECT 'the newest whole backup of the database was made at '
      || ${wireTime(sql`made_at`)} FROM database_backup),
    'no whole backup of the database was ever made')`;
  await noteIncidents(parts, {
    kind: "backup_missing",
    wrong: sql`SELECT ${VISION}::text AS subject, ${detail} AS detail
      WHERE ${hours !== null}::boolean AND NOT ${isFresh}`,
    isOver: sql`true`,
  });
}

/** Endpoints of which too many requests failed by a fault of the service. */
export async function noticeEndpointErrors(parts: IncidentParts): Promise<void> {
  const now = parts.clock();
  const figures = sql`endpoint_faults f JOIN endpoint e ON e.id = f.endpoint_id
     WHERE e.deleted_at IS NULL`;
  await noteIncidents(parts, {
    kind: "endpoint_errors",
    wrong: sql`
      SELECT e.id::text AS subject, f.faults || ' of ' || f.requests || ' requests of the endpoint '
          || e.slug || ' failed by a fault of the service within '
          || '${sql.raw(String(FAULT_WINDOW_MS / MINUTE))} minutes' AS detail
        FROM ${figures} AND f.at > ${instant(now - FAULT_WINDOW_MS)}
         AND f.requests >= ${FAULT_REQUESTS_MIN}::int
         AND f.faults > f.requests * ${BAD_SHARE}::float8`,
    isOver: sql`NOT EXISTS (
      SELECT FROM ${figures} AND e.id::text = i.subject
         AND f.at > ${instant(now - NO_REQUESTS_MS)}
         AND f.faults > 0 AND f.faults >= f.requests * ${WELL_SHARE}::float8)`,
  });
}
