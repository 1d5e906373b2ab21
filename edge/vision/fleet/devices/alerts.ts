// What is wrong with devices: noticed by the minute, told of once when it begins and once when it
// is over. A device is not hot and well again by every wobble: what is over has to be so clearly.

import { type SQL, sql } from "drizzle-orm";
import { device, deviceAlert, deviceNotice } from "../../../../db/vision/fleet.ts";
import { MINUTE } from "../../../../shared/time.ts";
import {
  type DeviceAlert,
  type FleetSettings,
  HOT_CELSIUS,
  LOW_BATTERY,
} from "../../../../shared/wire/fleet.ts";
import { batch } from "../../../http/database.ts";
import { columnsOf, rowsOf, selection } from "../../../http/selection.ts";
import { type Act, auditEntries } from "../../auth/audit.ts";
import type { Parts } from "../../base/parts.ts";
import { keep } from "../../base/retention.ts";
import { seal } from "../../base/sealing.ts";
import { idList, instant } from "../../base/sql.ts";
import { hadTimeSince, stateAt } from "./devices.ts";
import { single } from "./readings.ts";

/** By so much a device has to be cooler, and a battery fuller, until that is over. */
const COOLER_CELSIUS = 3;
const FULLER_PERCENT = 5;
/** After so long without a look at devices, those that were not heard of get their time anew. */
const WATCH_GAP_MS = 3 * MINUTE;
/** An alert is kept for four months after it was over. */
export const KEPT_ALERTS = keep(deviceAlert, "recoveredAt", { days: 120 });

type AlertParts = Pick<Parts, "database" | "clock">;

/**
 * Notices what began and what is over, and writes a message for each; all in one statement. A lost
 * device is not told of as cool again: nothing is known of it. After a gap, in which no device
 * could be heard perhaps, one is lost only once it had its time since. The minute cron calls it.
 */
export async function noticeAlerts({ database, clock }: AlertParts): Promise<void> {
  const at = clock();
  const now = instant(at);
  const isHeard = sql`state IN ('online', 'late')`;
  await database.execute(sql`
    WITH watch AS (
      INSERT INTO fleet_watch AS w (since, seen_at) VALUES (${now}, ${now})
      ON CONFLICT (id) DO UPDATE SET seen_at = greatest(w.seen_at, excluded.seen_at),
        since = CASE WHEN w.seen_at < ${instant(at - WATCH_GAP_MS)} THEN excluded.since
          ELSE w.since END
      RETURNING since),
    standing AS (
      SELECT d.id, d.workspace_id, s.temperature, s.battery, ${stateAt(now)} AS state,
        ${hadTimeSince(sql`watch.since`, now)} AS had_time,
        d.revoked_at IS NOT NULL AS revoked,
        CASE WHEN f.workspace_id IS NULL THEN ${HOT_CELSIUS}::real ELSE f.hot_celsius END AS hot,
        CASE WHEN f.workspace_id IS NULL THEN ${LOW_BATTERY}::real ELSE f.low_battery END AS low,
        f.webhook IS NOT NULL AS has_webhook
        FROM device d JOIN device_state s ON s.device_id = d.id CROSS JOIN watch
        LEFT JOIN fleet_setting f ON f.workspace_id = d.workspace_id
       WHERE d.deleted_at IS NULL),
    wrong AS (
      SELECT id, workspace_id, 'lost' AS kind, NULL::real AS value FROM standing
       WHERE state = 'lost' AND had_time AND NOT revoked
      UNION ALL
      SELECT id, workspace_id, 'hot', temperature FROM standing
       WHERE ${isHeard} AND temperature >= hot
      UNION ALL
      SELECT id, workspace_id, 'low_battery', battery FROM standing
       WHERE ${isHeard} AND battery <= low),
    raised AS (
      INSERT INTO device_alert (id, workspace_id, device_id, kind, value, raised_at)
      SELECT gen_random_uuid(), workspace_id, id, kind, value, ${now} FROM wrong
       WHERE NOT EXISTS (SELECT FROM device_alert a WHERE a.device_id = wrong.id
         AND a.kind = wrong.kind AND a.recovered_at IS NULL)
      ON CONFLICT (device_id, kind) WHERE recovered_at IS NULL DO NOTHING
      RETURNING id, workspace_id, device_id),
    recovered AS (
      UPDATE device_alert a SET recovered_at = ${now} FROM standing st
       WHERE st.id = a.device_id AND a.recovered_at IS NULL AND CASE a.kind
         WHEN 'lost' THEN st.revoked OR st.${isHeard}
         WHEN 'hot' THEN st.${isHeard}
           AND coalesce(st.temperature < st.hot - ${COOLER_CELSIUS}::real, true)
         ELSE st.${isHeard} AND coalesce(st.battery > st.low + ${FULLER_PERCENT}::real, true) END
      RETURNING a.id, a.workspace_id, a.device_id)
    INSERT INTO device_notice (id, workspace_id, alert_id, kind, delivery, next_at, created_at)
    SELECT gen_random_uuid(), n.workspace_id, n.id, n.kind,
      CASE WHEN st.has_webhook THEN 'pending' ELSE 'unsent' END, ${now}, ${now}
      FROM (SELECT *, 'raised' AS kind FROM raised
        UNION ALL SELECT *, 'recovered' FROM recovered) n
      JOIN standing st ON st.id = n.device_id`);
}

const a = columnsOf(deviceAlert, "a");
const n = columnsOf(deviceNotice, "n");
const ALERT: SQL<DeviceAlert> = selection({
  alert_id: a.id,
  device_id: a.deviceId,
  device_name: columnsOf(device, "d").name,
  kind: a.kind,
  value: sql<number | null>`a.value::float8`,
  raised_at: a.raisedAt,
  recovered_at: a.recoveredAt,
  delivery: n.delivery,
  last_error: n.lastError,
});

/** Alerts of these workspaces, newest first. */
export async function listAlerts(
  { database }: Pick<Parts, "database">,
  workspaces: readonly string[],
  { open, offset, limit }: { open?: boolean | undefined; offset: number; limit: number },
): Promise<DeviceAlert[]> {
  return await rowsOf(database, ALERT)`
    SELECT ${ALERT} FROM device_alert a JOIN device d ON d.id = a.device_id,
        LATERAL (SELECT delivery, last_error FROM device_notice WHERE alert_id = a.id
          ORDER BY created_at DESC, kind DESC LIMIT 1) n
     WHERE a.workspace_id IN ${idList(workspaces)} AND d.deleted_at IS NULL
       AND (${open ?? null}::boolean IS NULL OR (a.recovered_at IS NULL) = ${open ?? null}::boolean)
     ORDER BY a.raised_at DESC, a.id LIMIT ${limit}::int OFFSET ${offset}::int`;
}

const SETTINGS = sql`workspace_id::text, hot_celsius::float8 AS hot_c,
  low_battery::float8 AS low_battery, webhook IS NOT NULL AS webhook`;

/** What a workspace wants to be told of its devices. */
export async function fleetSettings(
  { database }: Pick<Parts, "database">,
  workspaceId: string,
): Promise<FleetSettings> {
  const { rows } = await database.execute<FleetSettings & Record<string, unknown>>(sql`
    SELECT ${SETTINGS} FROM fleet_setting WHERE workspace_id = ${workspaceId}::uuid`);
  const unset = { hot_c: HOT_CELSIUS, low_battery: LOW_BATTERY, webhook: false };
  return rows[0] ?? { workspace_id: workspaceId, ...unset };
}

/** What is to change of them; a webhook of null ends it. */
export interface FleetChange {
  hot_c?: number | null | undefined;
  low_battery?: number | null | undefined;
  webhook?: { url: string; secret: string } | null | undefined;
}

/** What webhooks are sealed for. */
export const webhookUse = (workspaceId: string) => ({
  purpose: "fleet webhook",
  rowId: workspaceId,
});

/** Changes what a workspace wants to be told. The audit log has no word of where it is told. */
export async function changeFleetSettings(
  parts: Pick<Parts, "database" | "clock" | "sealing">,
  workspaceId: string,
  { change, act }: { change: FleetChange; act: Act },
): Promise<FleetSettings> {
  const { hot_c, low_battery, webhook } = change;
  const now = instant(parts.clock());
  const sealed = webhook
    ? await seal(parts.sealing, webhookUse(workspaceId), JSON.stringify(webhook))
    : null;
  // Whoever has the row's lock reads what the one before left: each statement sees anew.
  const lock = sql`
    INSERT INTO fleet_setting (workspace_id, hot_celsius, low_battery, updated_at)
    VALUES (${workspaceId}::uuid, ${HOT_CELSIUS}::real, ${LOW_BATTERY}::real, ${now})
    ON CONFLICT (workspace_id) DO UPDATE SET updated_at = excluded.updated_at`;
  const given = [
    sql`updated_at = ${now}`,
    hot_c !== undefined && sql`hot_celsius = ${single(hot_c)}::real`,
    low_battery !== undefined && sql`low_battery = ${single(low_battery)}::real`,
    webhook !== undefined && sql`webhook = ${sealed}::text`,
  ].filter((one): one is SQL => Boolean(one));
  const shown = (of: SQL) => sql`jsonb_build_object('hot_c', ${of}.hot_celsius,
    'low_battery', ${of}.low_battery, 'webhook', ${of}.webhook IS NOT NULL)`;
  const entry = auditEntries(act, {
    subject: sql`'fleet:' || made.workspace_id`,
    workspaceId: sql`made.workspace_id`,
    before: shown(sql`former`),
    after: shown(sql`made`),
    from: sql`made, former`,
  });
  const own = sql`workspace_id = ${workspaceId}::uuid`;
  const [, [settings]] = await batch<[unknown, FleetSettings]>(parts.database, [
    lock,
    sql`
      WITH former AS (SELECT * FROM fleet_setting WHERE ${own}),
      made AS (UPDATE fleet_setting SET ${sql.join(given, sql`, `)} WHERE ${own} RETURNING *),
      logged AS (${entry})
      SELECT ${SETTINGS} FROM made`,
  ]);
  return settings as FleetSettings;
}
