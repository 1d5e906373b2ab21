// Devices as rows, found only within the caller's workspaces: made, changed, revoked, deleted, and
// how they stand by their last heartbeat.

import { type SQL, sql } from "drizzle-orm";
import { device, deviceState } from "../../../../db/vision/fleet.ts";
import { Failure } from "../../../../shared/errors.ts";
import {
  type Device,
  type DeviceState,
  type EnrolmentCode,
  LATE_INTERVALS,
  ONLINE_INTERVALS,
} from "../../../../shared/wire/fleet.ts";
import type { Role } from "../../../../shared/wire/vision.ts";
import { type Database, wireTime } from "../../../http/database.ts";
import { columnsOf, joinedColumnsOf, rowsOf, selection, typed } from "../../../http/selection.ts";
import { type Act, auditEntries } from "../../auth/audit.ts";
import { allow, type Caller, workspacesOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { breaksReference, idList, instant, textList } from "../../base/sql.ts";
import { codeEntry, newCode } from "./enrolment.ts";

/** Devices of a workspace. */
export const DEVICES_MAX = 20_000;

/** When so many intervals of a device `d` are over since a beat, by default that of `s`. */
const lateAfter = (intervals: number, beat = sql`s.beat_at`): SQL =>
  sql`${beat} + ${intervals}::float8 * d.interval_seconds * interval '1 second'`;

/** How a device `d` with the beat `s` stands at an instant. */
export const stateAt = (now: SQL): SQL => sql`CASE WHEN s.beat_at IS NULL THEN 'never'
  WHEN ${lateAfter(ONLINE_INTERVALS)} > ${now} THEN 'online'
  WHEN ${lateAfter(LATE_INTERVALS)} > ${now} THEN 'late' ELSE 'lost' END`;

/** Whether a device `d` had its time to be heard since an instant, until another. */
export const hadTimeSince = (since: SQL, now: SQL): SQL =>
  sql`${lateAfter(LATE_INTERVALS, since)} <= ${now}`;

const d = columnsOf(device, "d");
const s = joinedColumnsOf(deviceState, "s");
/** A device `d` with its newest beat `s`, as the wire shows it. */
const deviceAt = (now: SQL): SQL<Device> =>
  selection({
    device_id: d.id,
    workspace_id: d.workspaceId,
    name: d.name,
    group: d.groupName,
    tags: d.tags,
    project_id: d.projectId,
    status: typed<DeviceState>(stateAt(now)),
    interval_s: d.intervalSeconds,
    enrolled_at: d.enrolledAt,
    revoked_at: d.revokedAt,
    last_heartbeat_at: s.beatAt,
    platform: d.platform,
    runtime: d.runtime,
    agent_version: s.agentVersion,
    battery: sql<number | null>`s.battery::float8`,
    temperature: sql<number | null>`s.temperature::float8`,
    uptime: s.uptimeSeconds,
    free_bytes: s.freeBytes,
    inference_rate: sql<number | null>`s.inference_rate::float8`,
    boot_id: s.bootId,
    clock_skew_s: s.clockSkewSeconds,
    model: typed<Device["model"]>(s.model),
    extra: sql<Device["extra"]>`coalesce(s.extra, '{}')`,
    alerts: sql<Device["alerts"]>`coalesce((SELECT jsonb_agg(a.kind ORDER BY a.kind)
      FROM device_alert a WHERE a.device_id = d.id AND a.recovered_at IS NULL), '[]')`,
    created_at: d.createdAt,
    updated_at: d.updatedAt,
  });

type DeviceParts = Pick<Parts, "database" | "clock" | "tokenSecret">;

/** Which devices are meant; each member narrows it. */
export interface DeviceFilter {
  group?: string | undefined;
  tag?: string | undefined;
  status?: DeviceState | undefined;
  offset: number;
  limit: number;
}

/** A page of the devices of these workspaces, by name. */
export async function listDevices(
  { database, clock }: DeviceParts,
  workspaces: readonly string[],
  { group, tag, status, offset, limit }: DeviceFilter,
): Promise<{ items: Device[]; total: number }> {
  const now = instant(clock());
  const conditions = [
    sql`d.workspace_id IN ${idList(workspaces)} AND d.deleted_at IS NULL`,
    group !== undefined && sql`d.group_name = ${group}`,
    tag !== undefined && sql`${tag} = ANY (d.tags)`,
    status !== undefined && sql`${stateAt(now)} = ${status}`,
  ].filter((one): one is SQL => Boolean(one));
  const from = sql`FROM device d LEFT JOIN device_state s ON s.device_id = d.id
    WHERE ${sql.join(conditions, sql` AND `)}`;
  const { rows } = await database.execute<{ total: number; items: Device[] }>(sql`
    SELECT (SELECT count(*)::int ${from}) AS total,
      coalesce((SELECT jsonb_agg(to_jsonb(page) ORDER BY page.name, page.device_id) FROM (
        SELECT ${deviceAt(now)} ${from} ORDER BY d.name, d.id
         LIMIT ${limit}::int OFFSET ${offset}::int) page), '[]') AS items`);
  return rows[0] ?? { items: [], total: 0 };
}

/** A device of these workspaces; fails with `not_found`. */
async function findDevice(
  { database, clock }: DeviceParts,
  workspaces: readonly string[],
  deviceId: string,
): Promise<Device> {
  const list = deviceAt(instant(clock()));
  const [found] = await rowsOf(database, list)`
    SELECT ${list} FROM device d LEFT JOIN device_state s ON s.device_id = d.id
     WHERE d.id = ${deviceId}::uuid AND d.workspace_id IN ${idList(workspaces)}
       AND d.deleted_at IS NULL`;
  if (!found) throw notThere();
  return found;
}

const notThere = () => new Failure("not_found", "no such device in your workspaces");

/** A device for a caller with at least this role in its workspace. */
export async function findDeviceFor(
  parts: DeviceParts,
  caller: Caller,
  deviceId: string,
  role: Role = "viewer",
): Promise<Device> {
  const device = await findDevice(parts, workspacesOf(caller), deviceId);
  allow(caller, device.workspace_id, role);
  return device;
}

/** What people decide of a device. */
export interface DeviceSettings {
  name: string;
  group: string | null;
  tags: readonly string[];
  projectId: string | null;
  intervalSeconds: number;
}

/**
 * Makes a device and its first code. Fails with `state_conflict` where the workspace has as many
 * as it may have.
 */
export async function createDevice(
  parts: DeviceParts,
  device: DeviceSettings & { workspaceId: string; act: Act },
): Promise<{ device: Device } & EnrolmentCode> {
  const { workspaceId, act } = device;
  const fresh = await newCode(parts);
  const [id, now] = [crypto.randomUUID(), instant(parts.clock())];
  const { rows } = await parts.database
    .execute(sql`
      WITH made AS (
        INSERT INTO device (id, workspace_id, name, group_name, tags, project_id,
          interval_seconds, created_by, created_at, updated_at)
        SELECT ${id}::uuid, ${workspaceId}::uuid, ${device.name}, ${device.group}::text,
          ARRAY ${textList(device.tags)}, ${device.projectId}::uuid,
          ${device.intervalSeconds}::int, ${act.actorId}::uuid, ${now}, ${now}
         WHERE (SELECT count(*) FROM device WHERE workspace_id = ${workspaceId}::uuid
           AND deleted_at IS NULL) < ${DEVICES_MAX}::int
        RETURNING id, workspace_id, name),
      code AS (
        INSERT INTO device_code (hash, device_id, created_by, created_at, expires_at)
        SELECT decode(${fresh.hash}, 'hex'), id, ${act.actorId}::uuid, ${now},
          ${fresh.expiresAt}::timestamptz FROM made),
      logged AS (${codeEntry(act, fresh)})
      SELECT id FROM made`)
    .catch(refuseGone);
  if (rows.length === 0) {
    const detail = `the workspace has ${DEVICES_MAX} devices, which is as many as it may have`;
    throw new Failure("state_conflict", detail, { data: { devices_max: DEVICES_MAX } });
  }
  const made = await findDevice(parts, [workspaceId], id);
  return { device: made, enrolment_code: fresh.code, expires_at: fresh.expiresAt };
}

function refuseGone(thrown: unknown): never {
  if (!breaksReference(thrown)) throw thrown;
  throw new Failure("not_found", "the project was deleted meanwhile", { cause: thrown });
}

/** Changes what people decide of a device; fails with `not_found` for one that is gone. */
export async function updateDevice(
  parts: DeviceParts,
  { device_id, workspace_id }: Device,
  change: { [Name in keyof DeviceSettings]?: DeviceSettings[Name] | undefined },
): Promise<Device> {
  const assignments = [
    change.name !== undefined && sql`name = ${change.name}`,
    change.group !== undefined && sql`group_name = ${change.group}::text`,
    change.tags !== undefined && sql`tags = ARRAY ${textList(change.tags)}`,
    change.projectId !== undefined && sql`project_id = ${change.projectId}::uuid`,
    change.intervalSeconds !== undefined && sql`interval_seconds = ${change.intervalSeconds}::int`,
    sql`updated_at = ${instant(parts.clock())}`,
  ].filter((one): one is SQL => Boolean(one));
  await parts.database
    .execute(sql`
      UPDATE device SET ${sql.join(assignments, sql`, `)}
       WHERE id = ${device_id}::uuid AND deleted_at IS NULL`)
    .catch(refuseGone);
  return findDevice(parts, [workspace_id], device_id);
}

const revokedEntry = (act: Act, from: SQL) =>
  auditEntries(act, {
    subject: sql`'device:' || id`,
    workspaceId: sql`workspace_id`,
    before: sql`jsonb_build_object('name', name, 'revoked_at', NULL)`,
    after: sql`jsonb_build_object('name', name, 'revoked_at', ${wireTime(sql`revoked_at`)})`,
    from,
  });

/**
 * Ends a device's tokens and open codes at once; a new code brings it back. Fails with
 * `state_conflict` where it is revoked already.
 */
export async function revokeDevice(
  { database, clock }: DeviceParts,
  { device_id }: Device,
  act: Act,
): Promise<void> {
  const { rows } = await database.execute(sql`
    WITH gone AS (
      UPDATE device SET revoked_at = ${instant(clock())}
       WHERE id = ${device_id}::uuid AND revoked_at IS NULL AND deleted_at IS NULL
      RETURNING id, workspace_id, name, revoked_at),
    tokens AS (DELETE FROM device_token USING gone WHERE device_id = gone.id),
    codes AS (DELETE FROM device_code USING gone WHERE device_id = gone.id AND used_at IS NULL),
    logged AS (${revokedEntry(act, sql`gone`)})
    SELECT id FROM gone`);
  if (rows.length === 0) throw new Failure("state_conflict", "the device is revoked already");
}

/** Deletes a device: nothing of it is seen from now on, and its logs go by the minute. */
export async function deleteDevice(
  { database, clock }: DeviceParts,
  { device_id }: Device,
  act: Act,
): Promise<void> {
  const entry = auditEntries(act, {
    subject: sql`'device:' || id`,
    workspaceId: sql`workspace_id`,
    before: sql`jsonb_build_object('name', name)`,
    after: sql`NULL::jsonb`,
    from: sql`gone`,
  });
  const { rows } = await database.execute(sql`
    WITH gone AS (
      UPDATE device SET deleted_at = ${instant(clock())}
       WHERE id = ${device_id}::uuid AND deleted_at IS NULL RETURNING id, workspace_id, name),
    tokens AS (DELETE FROM device_token USING gone WHERE device_id = gone.id),
    codes AS (DELETE FROM device_code USING gone WHERE device_id = gone.id),
    logged AS (${entry})
    SELECT id FROM gone`);
  if (rows.length === 0) throw notThere();
}

/** Fails with `not_found` unless a project is of the workspace. */
export async function requireProject(
  database: Database,
  workspaceId: string,
  projectId: string | null,
): Promise<void> {
  if (projectId === null) return;
  const { rows } = await database.execute(sql`
    SELECT FROM project WHERE id = ${projectId}::uuid AND workspace_id = ${workspaceId}::uuid`);
  if (rows.length === 0) throw new Failure("not_found", "no such project in the workspace");
}
