// Which rollout is wanted of which device. A device has the newest rollout that is for it and has
// reached it; one that failed on it has what it confirmed before, by a manifest of a new version.
// Every statement here may run again: it changes only what is not yet as it should be.

import { type SQL, sql } from "drizzle-orm";
import { LATE_INTERVALS, type ReportedModel } from "../../../../shared/wire/fleet.ts";
import { ROLLOUT_BUCKETS } from "../../../../shared/wire/rollouts.ts";
import { batch, type Database, isSilent } from "../../../http/database.ts";
import { storable } from "../../../http/storable.ts";
import { API } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";

/** What a device said of its model, where that is news. */
export interface ModelReport {
  deviceId: string;
  workspaceId: string;
  model: ReportedModel | null;
}

/** A device that beat within so many of its intervals is there. */
const LIVE_INTERVALS = 3;
/** Days of silence after which a device that decided nothing is no part of a rollout any more. */
const AWAY_DAYS = 7;
/** Failures of devices begin with a code; this one says that they gave up after crashes. */
export const CRASH_LOOP = "crash_loop";
const NEXT_VERSION = sql`nextval(pg_get_serial_sequence('device_desired', 'version'))`;
/** States of a device that are the end of a rollout on it. */
export const ENDED: SQL = sql`('rolled_back', 'failed')`;

/** Whether a device `d` is one of those that a rollout `r` is for. */
export const isFor: SQL = sql`d.workspace_id = r.workspace_id AND d.deleted_at IS NULL
  AND d.revoked_at IS NULL AND (r.group_name IS NULL OR d.group_name = r.group_name)
  AND d.tags @> r.tags`;

/** Whether a device `d` with its state `s` is there; NULL where it never beat. */
export const isLive: SQL = sql`s.beat_at > now() - ${sql.raw(String(LIVE_INTERVALS))}
  * d.interval_seconds * interval '1 second'`;

/** Whether nothing was heard of a device `d` for so long since a rollout was given to it as `o`. */
const isSilentFor = (interval: SQL): SQL =>
  sql`greatest(s.beat_at, o.assigned_at) < now() - ${interval}`;
const LATE: SQL = sql`${sql.raw(String(LATE_INTERVALS))} * d.interval_seconds * interval '1 second'`;
/** Whether a device has neither confirmed a rollout nor ended it. */
const IS_OPEN = sql`o.state NOT IN ('confirmed', 'rolled_back', 'failed')`;
const IS_OUT = sql`(d.revoked_at IS NOT NULL OR d.deleted_at IS NOT NULL)`;
/** Whether it began to run the file: from here on its silence may be the model's doing. */
const IS_TRIED = sql`o.state IN ('staged', 'active')`;

/**
 * Whether a device `d` with its state `s` counts as failed in a rollout `r` that was given to it as
 * `o`: it fell silent with the model on trial, and is lost for longer than it may take to confirm.
 */
export const fellSilent: SQL = sql`(${IS_TRIED} AND NOT ${IS_OUT} AND ${isSilentFor(
  sql`(${LATE} + (r.confirm->>'seconds')::float8 * interval '1 second')`,
)})`;

/** Whether it is lost before it decided, and nothing says that the model is why. */
export const isLost: SQL = sql`(${IS_OPEN} AND NOT ${IS_TRIED} AND ${isSilentFor(LATE)})`;

/** Whether it decided nothing and is no part of the rollout any more: put out, or long away. */
export const hasLeft: SQL = sql`(${IS_OPEN} AND NOT ${fellSilent} AND (${IS_OUT} OR ${isSilentFor(
  sql`${sql.raw(String(AWAY_DAYS))} * interval '1 day'`,
)}))`;

/**
 * The bucket of a device `d` in a rollout `r`: the first 32 bits of the SHA-256 of both ids as
 * `<rollout>:<device>`, modulo the number of buckets.
 */
export const BUCKET: SQL = sql`(('x' || left(encode(sha256(convert_to(
    r.id::text || ':' || d.id::text, 'UTF8')), 'hex'), 8))::bit(32)::bigint
  % ${sql.raw(String(ROLLOUT_BUCKETS))})::int`;

/** Whether a bucket is within the share of a rollout's current stage. */
const WITHIN_STAGE = sql`${BUCKET} < r.stages[r.stage + 1] * ${sql.raw(String(ROLLOUT_BUCKETS / 100))}`;

/**
 * Gives devices what they should have: the newest rollout that has reached them. Where a stage's
 * share is nobody's, the rollout still begins with one device: that of the lowest bucket, those
 * that were heard of lately before others. Where all that have it were lost before they decided,
 * one more that is there gets it.
 */
export async function assignRollouts(
  database: Database,
  { workspaceId }: { workspaceId?: string } = {},
): Promise<number> {
  const own = workspaceId === undefined ? sql`true` : sql`r.workspace_id = ${workspaceId}::uuid`;
  const { rows } = await database.execute(sql`
    WITH live AS (
      SELECT r.* FROM rollout r WHERE r.state IN ('rolling', 'paused', 'completed') AND ${own}),
    hopeful AS (
      SELECT DISTINCT o.rollout_id FROM live r JOIN rollout_device o ON o.rollout_id = r.id
        JOIN device d ON d.id = o.device_id LEFT JOIN device_state s ON s.device_id = d.id
       WHERE r.state = 'rolling' AND NOT ${isLost} AND NOT ${hasLeft}),
    first AS (
      SELECT DISTINCT ON (r.id) r.id AS rollout_id, d.id AS device_id
        FROM live r JOIN device d ON ${isFor} LEFT JOIN device_state s ON s.device_id = d.id
       WHERE r.state = 'rolling'
         AND (NOT EXISTS (SELECT FROM rollout_device o WHERE o.rollout_id = r.id)
           OR (${isLive}) AND NOT EXISTS (SELECT FROM rollout_device o
                WHERE o.rollout_id = r.id AND o.device_id = d.id)
             AND NOT EXISTS (SELECT FROM hopeful h WHERE h.rollout_id = r.id))
       ORDER BY r.id, (${isLive}) DESC NULLS LAST, ${BUCKET}, d.id),
    candidate AS (
      SELECT DISTINCT ON (d.id) d.id AS device_id, r.id AS rollout_id, ${BUCKET} AS bucket
        FROM live r JOIN device d ON ${isFor}
        LEFT JOIN rollout_device o ON o.rollout_id = r.id AND o.device_id = d.id
        LEFT JOIN first f ON f.rollout_id = r.id AND f.device_id = d.id
       WHERE (o.state IS NULL OR o.state NOT IN ${ENDED})
         AND (o.state IS NOT NULL OR (r.state <> 'paused'
           AND (f.device_id IS NOT NULL OR ${WITHIN_STAGE})))
       ORDER BY d.id, r.created_at DESC, r.id),
    desired AS (
      INSERT INTO device_desired AS n (device_id, rollout_id)
      SELECT c.device_id, c.rollout_id FROM candidate c
        LEFT JOIN device_desired w ON w.device_id = c.device_id
       WHERE w.rollout_id IS DISTINCT FROM c.rollout_id
      ON CONFLICT (device_id) DO UPDATE SET rollout_id = excluded.rollout_id,
        version = excluded.version, confirmed = false, set_at = now(),
        former_id = nullif(CASE WHEN n.confirmed THEN n.rollout_id ELSE n.former_id END,
          excluded.rollout_id)
       WHERE n.rollout_id IS DISTINCT FROM excluded.rollout_id
      RETURNING device_id, rollout_id, version, former_id)
    INSERT INTO rollout_device (rollout_id, device_id, bucket, version, former_id)
    SELECT n.rollout_id, n.device_id, c.bucket, n.version, n.former_id
      FROM desired n JOIN candidate c USING (device_id)
    ON CONFLICT (rollout_id, device_id) DO UPDATE SET version = excluded.version,
      former_id = excluded.former_id, state = 'pending', failure = NULL, assigned_at = now(),
      reported_at = NULL
    RETURNING device_id`);
  return rows.length;
}

/** A rollout whose file is still held on to; NULL of one that was let go, and of none. */
const held = (rolloutId: SQL): SQL =>
  sql`(SELECT h.rollout_id FROM rollout_hold h WHERE h.rollout_id = ${rolloutId})`;

/**
 * Sends devices back to what they confirmed before: those that failed on what is wanted of them, or
 * whose rollout was called off or let go. One without any that is still held on to keeps what it
 * has, and nothing is wanted of it.
 */
const goingBack = (own: SQL): SQL => sql`
  WITH back AS (
    UPDATE device_desired n SET rollout_id = ${held(sql`n.former_id`)},
      version = ${NEXT_VERSION}, confirmed = ${held(sql`n.former_id`)} IS NOT NULL, set_at = now(),
      former_id = (SELECT ${held(sql`p.former_id`)} FROM rollout_device p
        WHERE p.rollout_id = n.former_id AND p.device_id = n.device_id)
      FROM rollout_device o JOIN rollout r ON r.id = o.rollout_id
     WHERE o.rollout_id = n.rollout_id AND o.device_id = n.device_id
       AND (o.state IN ${ENDED} OR r.state IN ('rolled_back', 'aborted')
         OR ${held(sql`r.id`)} IS NULL) AND ${own}
    RETURNING n.device_id, n.rollout_id, n.version)
  UPDATE rollout_device o SET version = back.version, state = 'pending', failure = NULL,
    assigned_at = now() FROM back
   WHERE o.rollout_id = back.rollout_id AND o.device_id = back.device_id
     AND o.state NOT IN ${ENDED}`;

/** What was called off is nothing to go back to: what the device had before it is. */
const FORGET_CALLED_OFF = sql`
  UPDATE device_desired n SET former_id = nullif(${held(sql`o.former_id`)}, n.rollout_id)
    FROM rollout_device o JOIN rollout r ON r.id = o.rollout_id
   WHERE o.rollout_id = n.former_id AND o.device_id = n.device_id
     AND r.state IN ('rolled_back', 'aborted')`;

/** The statements that send back all devices of a rollout that was called off, in this order. */
export const sendingBack = (rolloutId: string): SQL[] => [
  sql`UPDATE rollout_device o SET state = 'rolled_back',
        failure = coalesce(o.failure, 'withdrawn: the rollout was called off') FROM rollout r
       WHERE o.rollout_id = ${rolloutId}::uuid AND o.state NOT IN ${ENDED}
         AND r.id = o.rollout_id AND r.state IN ('rolled_back', 'aborted')`,
  FORGET_CALLED_OFF,
  goingBack(sql`o.rollout_id = ${rolloutId}::uuid`),
];

/** Takes up what a crash kept from being sent back. The minute's duty. */
export async function sendBackAll(database: Database): Promise<void> {
  await batch(database, [FORGET_CALLED_OFF, goingBack(sql`true`)]);
}

const totalOf = (bins: SQL): SQL =>
  sql`(SELECT coalesce(sum(count), 0) FROM unnest(${bins}) AS count)`;

/**
 * Takes down what a device says of the model that is wanted of it; what it says of another manifest
 * is old. One that failed on it is sent back in the same transaction. An end is never taken back.
 */
export async function noteReport(
  { database }: Parts,
  { deviceId, model }: ModelReport,
): Promise<void> {
  if (!model?.rollout_id || !/^[1-9]\d{0,17}$/.test(model.version ?? "")) return;
  const { rollout_id: rolloutId, status: state, failure, scores } = model;
  const own = sql`o.rollout_id = ${rolloutId}::uuid AND o.device_id = ${deviceId}::uuid
    AND o.version = ${model.version}::bigint`;
  const told = sql`(SELECT array_agg(value::bigint ORDER BY at) FROM jsonb_array_elements_text(
    ${JSON.stringify(scores ?? [])}::jsonb) WITH ORDINALITY AS bin (value, at))`;
  // A device that began to count anew takes nothing away: the gate of the next model needs it.
  const bins = sql`CASE WHEN ${totalOf(told)} >= ${totalOf(sql`o.scores`)} THEN ${told}
    ELSE o.scores END`;
  const note = sql`
    WITH noted AS (
      UPDATE rollout_device o SET state = ${state},
        failure = ${failure === null ? null : storable(failure)}::text,
        crashes = least(${model.crashes ?? 0}::bigint, 2147483647)::int,
        inferences = coalesce(${model.inferences ?? null}::bigint, o.inferences),
        inference_failures = coalesce(${model.failures ?? null}::bigint, o.inference_failures),
        latency_ms = coalesce(${model.latency_p50_ms ?? null}::float8, o.latency_ms),
        scores = ${scores ? bins : sql`o.scores`}, reported_at = now()
       WHERE ${own} AND o.state NOT IN ${ENDED}
      RETURNING o.state)
    UPDATE device_desired n SET confirmed = true FROM noted
     WHERE noted.state = 'confirmed' AND NOT n.confirmed AND n.device_id = ${deviceId}::uuid AND n.version = ${model.version}::bigint`;
  const isEnd = state === "rolled_back" || state === "failed";
  const statements: readonly SQL[] = isEnd ? [note, goingBack(own)] : [note];
  await batch(database, statements);
}

/** Reports that one minute takes up. */
const MISSED_MAX = 500;

/**
 * Whether figures of a state `s` are not in `o` though it was long heard of: the second of a minute
 * is left out, and one that says nothing new after it is, too.
 */
const HAS_UNTOLD: SQL = sql`(o.reported_at < now() - interval '2 minutes'
  AND (coalesce((s.model->>'inferences')::bigint, o.inferences),
    coalesce((s.model->>'failures')::bigint, o.inference_failures))
    IS DISTINCT FROM (o.inferences, o.inference_failures))`;

/**
 * Takes up reports that a fault kept from being taken down, and figures that came too soon after
 * others: a device tells its state again, but it is heard of only when it changes. The minute's
 * duty.
 */
export async function takeMissedReports(parts: Parts): Promise<void> {
  const { rows } = await parts.database.execute<ModelReport & Record<string, unknown>>(sql`
    SELECT o.device_id::text AS "deviceId", r.workspace_id::text AS "workspaceId", s.model
      FROM rollout_device o JOIN rollout r ON r.id = o.rollout_id
      JOIN device_desired n ON n.device_id = o.device_id AND n.rollout_id = o.rollout_id
        AND n.version = o.version
      JOIN device_state s ON s.device_id = o.device_id
     WHERE o.state NOT IN ${ENDED} AND s.model->>'rollout_id' = o.rollout_id::text
       AND s.model->>'version' = o.version::text
       AND (s.model->>'status' <> o.state OR ${HAS_UNTOLD})
     LIMIT ${MISSED_MAX}::int`);
  for (const row of rows) {
    try {
      await noteReport(parts, row);
    } catch (error) {
      parts.log.error("report_not_taken", { device_id: row.deviceId, error });
      if (isSilent(error)) return;
    }
  }
}

/** Lets go of models and exports that no device may be asked for any more. The minute's duty. */
export async function releaseHolds(database: Database): Promise<void> {
  await database.execute(sql`
    DELETE FROM rollout_hold h USING rollout r
     WHERE r.id = h.rollout_id AND r.state IN ('superseded', 'rolled_back', 'aborted')
       AND NOT EXISTS (SELECT FROM device_desired n
         WHERE n.rollout_id = h.rollout_id OR n.former_id = h.rollout_id)`);
}

/** The wire's `DesiredModel` of a device `d`; NULL where nothing is wanted of it. */
export const DESIRED: SQL = sql`(SELECT jsonb_build_object('rollout_id', r.id, 'model_id', r.model_id,
    'export_id', r.export_id, 'version', n.version::text,
    'manifest_url', ${`${API}/devices/`}::text || d.id || '/manifest')
  FROM device_desired n JOIN rollout r ON r.id = n.rollout_id WHERE n.device_id = d.id)`;
