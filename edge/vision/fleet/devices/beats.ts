// Heartbeats. One is one statement: it lets the token pass, writes over the device's state, adds to
// its history and answers what is wanted of it. Another one follows only where the device says
// something new of its model: at once where that moved, once a minute at most where only its
// figures did. History is whole for a day, then means of quarters of an hour for a month.

import { type SQL, sql } from "drizzle-orm";
import { deviceMean } from "../../../../db/vision/fleet.ts";
import { Failure } from "../../../../shared/errors.ts";
import { DAY, iso, MINUTE } from "../../../../shared/time.ts";
import type {
  DesiredModel,
  DeviceReading,
  Heartbeat,
  HeartbeatAnswer,
} from "../../../../shared/wire/fleet.ts";
import { wireTime } from "../../../http/database.ts";
import { jsonb } from "../../../http/storable.ts";
import type { Parts } from "../../base/parts.ts";
import { repeatFor } from "../../base/repeat.ts";
import { keep } from "../../base/retention.ts";
import { instant } from "../../base/sql.ts";
import { DESIRED, noteReport } from "../rollouts/devices.ts";
import { noteFirstUse, opensAt } from "./access.ts";
import { requireShallow, single } from "./readings.ts";

/** Beats that come sooner after another are not kept in the history. */
const KEPT_APART_MS = 5_000;
/**
 * How long a beat is told to be late by another one of its boot that said a longer uptime. An agent
 * whose uptime jumps back is heard again after so long.
 */
const LATE_MS = 10 * MINUTE;
/** Intervals are told so much shorter or longer, that devices do not come all at once. */
const JITTER = 0.1;

const WHOLE_MS = DAY;
/** Means are kept for 30 days. */
export const KEPT_MEANS = keep(deviceMean, "at", { days: 30, max: 50_000 });
const QUARTER_MS = 15 * MINUTE;
/** Rows that one statement moves, or forgets, and how long a minute's statements go on. */
const MOVED_MAX = 20_000;
const MOVING_MS = 10_000;

/** What the statement of a beat tells. */
interface Beat extends Record<string, unknown> {
  deviceId: string;
  workspaceId: string;
  intervalSeconds: number;
  isNew: boolean;
  /** Whether what it says of its model is to be taken down. */
  isNews: boolean;
  desired: DesiredModel | null;
}

/** What of a reported model is a move; the rest are figures, which change with every inference. */
const moveOf = (model: SQL): SQL => sql`jsonb_build_array(${model}->'rollout_id',
  ${model}->'version', ${model}->'status', ${model}->'failure', ${model}->'crashes')`;
const minuteOf = (at: SQL): SQL => sql`floor(extract(epoch FROM ${at}) / 60)`;

/** The sender of a heartbeat. */
export interface BeatSender {
  deviceId: string;
  /** Hash of the device's token; null where an engineer of the device's workspace sends it. */
  tokenHash: string | null;
}

/**
 * Takes a heartbeat; one that comes after a later one of its boot changes nothing. Null: the token
 * opens nothing, or an engineer's device was revoked or deleted meanwhile. Fails with `not_found`
 * where it is another device's, and nothing is written.
 */
export async function takeHeartbeat(
  parts: Parts,
  { deviceId, tokenHash }: BeatSender,
  heartbeat: Heartbeat,
): Promise<HeartbeatAnswer | null> {
  requireShallow(heartbeat);
  const now = parts.clock();
  const skew = heartbeat.time === null ? null : (Date.parse(heartbeat.time) - now) / 1_000;
  const statement = beatStatement({ deviceId, tokenHash, now, skew }, heartbeat);
  const { rows } = await parts.database.execute<Beat>(statement);
  const [beat] = rows;
  if (!beat) return null;
  if (beat.deviceId !== deviceId) {
    throw new Failure("not_found", "no such device, or not the token's own");
  }
  if (beat.isNew && tokenHash !== null) await noteFirstUse(parts, { hash: tokenHash, now });
  if (beat.isNews) {
    const { workspaceId } = beat;
    await noteReport(parts, { deviceId, workspaceId, model: heartbeat.model });
  }
  const jittered = beat.intervalSeconds * (1 - JITTER + 2 * JITTER * Math.random());
  return {
    server_time: iso(now),
    clock_skew_s: skew,
    next_s: Math.round(jittered * 1_000) / 1_000,
    desired: beat.desired,
  };
}

/** The one statement of a beat that came at `now`, by a clock that is `skew` seconds ahead. */
function beatStatement(
  { deviceId, tokenHash, now, skew }: BeatSender & { now: number; skew: number | null },
  heartbeat: Heartbeat,
) {
  const { battery, temperature, uptime, free_bytes, inference_rate, ...rest } = heartbeat;
  const { agent_version, boot_id, model, time: _, ...extra } = rest;
  const at = instant(now);
  const readings = sql`${single(battery)}::real, ${single(temperature)}::real, ${uptime}::float8,
    ${free_bytes}::bigint, ${single(inference_rate)}::real`;
  const opened =
    tokenHash === null
      ? sql`SELECT id, false AS is_new FROM device
         WHERE id = ${deviceId}::uuid AND revoked_at IS NULL AND deleted_at IS NULL`
      : sql`SELECT d.id, t.used_at IS NULL AS is_new FROM device_token t
          JOIN device d ON d.id = t.device_id
         WHERE t.hash = decode(${tokenHash}, 'hex') AND ${opensAt(at)}`;
  const reported = model === null ? sql`NULL::jsonb` : jsonb(model);
  // Whether a state `s` is late; nothing is known where either lacks its boot or uptime.
  const isLate = sql`(s.boot_id = ${boot_id}::text AND ${uptime}::float8 < s.uptime_seconds
    AND s.beat_at > ${instant(now - LATE_MS)})`;
  return sql`
    WITH known AS (${opened}),
    own AS (SELECT id FROM known WHERE id = ${deviceId}::uuid),
    former AS (
      SELECT s.model, s.beat_at, ${isLate} IS TRUE AS is_late
        FROM device_state s JOIN own ON own.id = s.device_id),
    state AS (
      INSERT INTO device_state AS s (device_id, beat_at, battery, temperature, uptime_seconds,
        free_bytes, inference_rate, agent_version, boot_id, clock_skew_seconds, model, extra)
      SELECT id, ${at}, ${readings}, ${agent_version}::text, ${boot_id}::text, ${skew}::float8,
        ${reported}, ${jsonb(extra)} FROM own
      ON CONFLICT (device_id) DO UPDATE SET beat_at = greatest(s.beat_at, excluded.beat_at),
        battery = excluded.battery, temperature = excluded.temperature,
        uptime_seconds = excluded.uptime_seconds, free_bytes = excluded.free_bytes,
        inference_rate = excluded.inference_rate, agent_version = excluded.agent_version,
        boot_id = excluded.boot_id, clock_skew_seconds = excluded.clock_skew_seconds,
        model = excluded.model, extra = excluded.extra WHERE ${isLate} IS NOT TRUE),
    kept AS (
      INSERT INTO device_beat (device_id, at, battery, temperature, uptime_seconds, free_bytes,
        inference_rate)
      SELECT own.id, ${at}, ${readings} FROM own
       WHERE NOT EXISTS (SELECT FROM former WHERE is_late)
         AND NOT EXISTS (SELECT FROM device_beat b WHERE b.device_id = own.id
         AND b.at > ${instant(now - KEPT_APART_MS)})
      ON CONFLICT DO NOTHING)
    SELECT d.id::text AS "deviceId", d.workspace_id::text AS "workspaceId",
      d.interval_seconds AS "intervalSeconds", known.is_new AS "isNew",
      former.is_late IS NOT TRUE AND former.model IS DISTINCT FROM ${reported}
        AND (${moveOf(sql`former.model`)} IS DISTINCT FROM ${moveOf(reported)}
          OR ${minuteOf(sql`former.beat_at`)} IS DISTINCT FROM ${minuteOf(at)}) AS "isNews",
      (${DESIRED}) AS desired
      FROM known JOIN device d ON d.id = known.id LEFT JOIN former ON true`;
}

/** Which of a device's readings are meant: epoch milliseconds, `from` inclusive, `to` exclusive. */
export interface ReadingRange {
  from?: number | undefined;
  to?: number | undefined;
  limit: number;
}

/** A device's readings of a range, newest first: those of a day as they came, then means. */
export async function listReadings(
  { database }: Pick<Parts, "database">,
  deviceId: string,
  { from, to, limit }: ReadingRange,
): Promise<DeviceReading[]> {
  // In seconds, since Postgres reads no year 0.
  const second = (milliseconds: number) => sql`to_timestamp(${milliseconds}::float8 / 1000)`;
  const range = sql`device_id = ${deviceId}::uuid
    AND ${from === undefined ? sql`true` : sql`at >= ${second(from)}`}
    AND ${to === undefined ? sql`true` : sql`at < ${second(to)}`}`;
  const { rows } = await database.execute<DeviceReading & Record<string, unknown>>(sql`
    SELECT ${wireTime(sql`r.at`)} AS at, beats, battery::float8, temperature::float8,
      uptime_seconds AS uptime, free_bytes, inference_rate::float8 FROM (
        (SELECT at, 1 AS beats, battery, temperature, uptime_seconds, free_bytes::float8,
          inference_rate FROM device_beat WHERE ${range} ORDER BY at DESC LIMIT ${limit}::int)
        UNION ALL
        (SELECT at, beats, battery, temperature, uptime_seconds, free_bytes, inference_rate
          FROM device_mean WHERE ${range} ORDER BY at DESC LIMIT ${limit}::int)) r
     ORDER BY r.at DESC LIMIT ${limit}::int`);
  return rows;
}

/**
 * Makes means of readings that are older than a day, and forgets means that are older than a month.
 * Quarters move whole or in parts: a mean takes in what comes later by its count. The minute cron
 * calls it.
 */
export async function condenseReadings({
  database,
  clock,
}: Pick<Parts, "database" | "clock">): Promise<void> {
  const now = clock();
  const until = Math.floor((now - WHOLE_MS) / QUARTER_MS) * QUARTER_MS;
  const merged = (column: string) => {
    const name = sql.raw(column);
    // A reading that one of the two lacks is the other's.
    return sql`${name} = CASE WHEN m.${name} IS NULL THEN excluded.${name}
      WHEN excluded.${name} IS NULL THEN m.${name}
      ELSE (m.${name} * m.beats + excluded.${name} * excluded.beats)
        / (m.beats + excluded.beats) END`;
  };
  const columns = ["battery", "temperature", "uptime_seconds", "free_bytes", "inference_rate"];
  const counted = async (changed: SQL, of: SQL) => {
    const { rows } = await database.execute<{ count: number }>(sql`
      WITH ${changed} SELECT count(*)::int AS count FROM ${of}`);
    return rows[0]?.count ?? 0;
  };
  const moved = sql`
    moved AS (
      DELETE FROM device_beat b USING (
        SELECT device_id, at FROM device_beat WHERE at < ${instant(until)}
         ORDER BY at LIMIT ${MOVED_MAX}::int) o
       WHERE b.device_id = o.device_id AND b.at = o.at RETURNING b.*),
    means AS (
      INSERT INTO device_mean AS m (device_id, at, beats, battery, temperature, uptime_seconds,
        free_bytes, inference_rate)
      SELECT device_id, date_bin('15 minutes', at, '2000-01-01Z'), count(*)::int, avg(battery),
        avg(temperature), avg(uptime_seconds), avg(free_bytes)::float8, avg(inference_rate)
        FROM moved GROUP BY 1, 2
      ON CONFLICT (device_id, at) DO UPDATE SET ${sql.join(columns.map(merged), sql`, `)},
        beats = m.beats + excluded.beats)`;
  await repeatFor({ clock }, MOVING_MS, () => counted(moved, sql`moved`));
}
