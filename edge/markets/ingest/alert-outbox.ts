// The outbox of alerts: who is sent which alert when, and what became of it. A claim moves the next
// attempt to after the time that the attempt may take, in one statement that skips what another
// process claims at the same moment; so two crons send nothing twice, and what a process that died
// had claimed comes again.

import { type SQL, sql } from "drizzle-orm";
import * as tables from "../../../db/markets/schema.ts";
import { DAY, HOUR, iso, MINUTE } from "../../../shared/time.ts";
import type { Alert } from "../../../shared/wire/alerts.ts";
import { type Database, wireTime } from "../../http/database.ts";
import { performDuties, performEach } from "../../http/duties.ts";
import { scrub } from "../../http/log.ts";
import { columnsOf, rowsOf, selection, typed } from "../../http/selection.ts";
import { sendWebhook, type WebhookTarget } from "../../http/webhook.ts";
import { noticeIncidents } from "./alerts.ts";
import { at } from "./ledger.ts";
import type { IngestParts } from "./parts.ts";

/** Pauses between attempts; after the last one, about a day after the first, it is given up. */
const PAUSES_MS = [
  MINUTE / 2,
  2 * MINUTE,
  10 * MINUTE,
  HOUR,
  3 * HOUR,
  8 * HOUR,
  12 * HOUR,
] as const;
/** A pause is longer by up to this share, so that a receiver is not met by all at once. */
const JITTER = 0.2;
/** So many are sent in a minute, and so many at a time. */
const SENT_MAX = 20;
const SENT_AT_ONCE = 4;
/** Longer than all attempts of a claim take, begun by a cron that was late. */
const CLAIM_MS = 2 * MINUTE;
const KEPT_DAYS = 120;
const FORGET_AT_ONCE = 5_000;

type OutboxParts = Pick<IngestParts, "pipelines" | "database" | "log" | "clock">;

const alert = columnsOf(tables.alert, "alert");
const ALERT: SQL<Alert> = selection({
  alert_id: alert.id,
  kind: alert.kind,
  incident_id: alert.incidentId,
  job: typed<string | null>(sql`nullif(job, '')`),
  partition: typed<string | null>(
    sql`CASE WHEN subject LIKE 'partition %' THEN substr(subject, 11) END`,
  ),
  series: typed<string | null>(sql`CASE WHEN subject LIKE 'series %' THEN substr(subject, 8) END`),
  run_id: alert.runId,
  error_code: alert.errorCode,
  detail: alert.detail,
  created_at: alert.createdAt,
  ended_at: alert.endedAt,
  delivery: alert.delivery,
  attempts: alert.attempts,
  next_attempt_at: typed<string | null>(
    sql`CASE WHEN delivery = 'pending' THEN ${wireTime(sql`next_at`)} END`,
  ),
  delivered_at: alert.deliveredAt,
  last_error: alert.lastError,
});

/** What the minute cron does about alerts; without a webhook they are recorded and none is sent. */
export async function alertMinute(parts: OutboxParts, webhook: WebhookTarget | null, now: number) {
  await performDuties(parts.log, {
    notice: () => noticeIncidents(parts, webhook ? "pending" : "unsent", now),
    deliver: () => webhook && deliverAlerts(parts, webhook, now),
    forget: () => now % HOUR < MINUTE && forgetAlerts(parts.database, now),
  });
}

/** Sends what is due, oldest first, at most 20. */
export async function deliverAlerts(parts: OutboxParts, webhook: WebhookTarget, now: number) {
  const claimed = await claimDue(parts.database, now);
  const due = { duty: "deliver", items: claimed, atOnce: SENT_AT_ONCE };
  await performEach(parts.log, due, (alert) => attempt(parts, webhook, alert));
}

async function claimDue(database: Database, now: number): Promise<Alert[]> {
  const rows = await rowsOf(database, ALERT)`
    UPDATE alert SET attempts = attempts + 1, next_at = ${at(now + CLAIM_MS)}
     WHERE id IN (
       SELECT id FROM alert WHERE delivery = 'pending' AND next_at <= ${at(now)}
        ORDER BY next_at, alert.created_at LIMIT ${SENT_MAX}::int FOR UPDATE SKIP LOCKED)
     RETURNING ${ALERT}`;
  return rows.toSorted((one, other) => one.created_at.localeCompare(other.created_at));
}

async function attempt(
  { database, log, clock }: OutboxParts,
  webhook: WebhookTarget,
  alert: Alert,
): Promise<void> {
  const { alert_id, attempts } = alert;
  const now = clock();
  const problem = await sendWebhook({ id: alert_id, body: messageOf(alert) }, webhook, now);
  const isHeld = sql`id = ${alert_id}::uuid AND attempts = ${attempts}::int
    AND delivery = 'pending'`;
  if (problem === null) {
    log.info("alert_delivered", { alert_id, attempts });
    await database.execute(sql`
      UPDATE alert SET delivery = 'delivered', delivered_at = ${at(now)}, last_error = NULL
       WHERE ${isHeld}`);
    return;
  }
  log.warning("alert_not_delivered", { alert_id, attempts, problem });
  const pause = PAUSES_MS[attempts - 1];
  const outcome =
    pause === undefined
      ? sql`delivery = 'given_up'`
      : sql`next_at = ${at(now + pause * (1 + JITTER * shareOf(alert_id)))}`;
  await database.execute(sql`
    UPDATE alert SET ${outcome}, last_error = ${problem} WHERE ${isHeld}`);
}

/** From 0 to 1, evenly spread over ids, which are random. */
const shareOf = (id: string): number => Number.parseInt(id.slice(0, 4), 16) / 0xffff;

/** The body of an alert's message: an event of the Standard Webhooks' form. */
function messageOf(alert: Alert): string {
  const { alert_id, kind, incident_id, job, partition, series, run_id, error_code } = alert;
  return JSON.stringify({
    type: `alert.${kind}`,
    timestamp: iso(Date.parse(alert.created_at)),
    data: {
      alert_id,
      incident_id,
      job,
      partition,
      series,
      run_id,
      error_code,
      detail: scrub(alert.detail),
    },
  });
}

/** Records a test alert and sends it at once; returns it with what became of it. */
export async function sendTestAlert(parts: OutboxParts, webhook: WebhookTarget, by: string) {
  const { database, clock } = parts;
  const [id, now] = [crypto.randomUUID(), clock()];
  const rows = await rowsOf(database, ALERT)`
    INSERT INTO alert (id, kind, incident_id, job, subject, detail, created_at, ended_at, delivery,
      attempts, next_at)
    VALUES (${id}::uuid, 'test', ${id}::uuid, '', 'test', ${`a test, sent by ${by}`}, ${at(now)},
      ${at(now)}, 'pending', 1, ${at(now + CLAIM_MS)}) RETURNING ${ALERT}`;
  for (const test of rows) await attempt(parts, webhook, test);
  return findAlert(database, id);
}

/** An alert, or null. */
export async function findAlert(database: Database, alertId: string): Promise<Alert | null> {
  const [found] = await rowsOf(database, ALERT)`
    SELECT ${ALERT} FROM alert WHERE id = ${alertId}::uuid`;
  return found ?? null;
}

/** The newest alerts first; those after the one that `after` names. */
export async function listAlerts(
  database: Database,
  { after, limit }: { after?: string | undefined; limit: number },
): Promise<Alert[]> {
  const older: SQL = after
    ? sql`WHERE (alert.created_at, alert.id) <
        (SELECT last.created_at, last.id FROM alert AS last WHERE last.id = ${after}::uuid)`
    : sql``;
  return await rowsOf(database, ALERT)`
    SELECT ${ALERT} FROM alert ${older}
     ORDER BY alert.created_at DESC, alert.id DESC LIMIT ${limit}::int`;
}

/**
 * Deletes alerts older than 120 days, some at a time. A series that is stale for longer keeps its
 * open incident, or it would be told of again.
 */
export async function forgetAlerts(database: Database, now: number): Promise<void> {
  await database.execute(sql`
    DELETE FROM alert WHERE id IN (
      SELECT id FROM alert WHERE created_at < ${at(now - KEPT_DAYS * DAY)}
         AND (ended_at IS NOT NULL OR subject LIKE 'partition %')
       ORDER BY created_at LIMIT ${FORGET_AT_ONCE}::int)`);
}
