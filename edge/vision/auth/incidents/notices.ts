// Messages of incidents on their way to the operator's webhook.

import { sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import { iso } from "../../../../shared/time.ts";
import { wireTime } from "../../../http/database.ts";
import { sendWebhook } from "../../../http/webhook.ts";
import { type ClaimedMessage, claimDue, sendClaimed } from "../../base/outbox.ts";
import type { Parts } from "../../base/parts.ts";
import { type Act, auditEntries } from "../audit.ts";

/** They all have the one receiver. */
const OUTBOX = { table: sql`incident_notice`, receiver: sql`true` };

interface Notice extends ClaimedMessage {
  type: string;
  timestamp: string;
  data: Record<string, unknown>;
}

type NoticeParts = Pick<Parts, "database" | "clock" | "log" | "operatorWebhook">;

/** Sends what is due. */
export async function sendIncidentNotices(parts: NoticeParts): Promise<void> {
  const { database, clock, operatorWebhook } = parts;
  const { rows } = await database.execute<Notice>(sql`
    WITH ${claimDue(OUTBOX, clock())}
    SELECT n.id::text, n.attempts,
      'incident.' || CASE n.kind WHEN 'raised' THEN i.kind ELSE 'recovered' END AS type,
      ${wireTime(sql`n.created_at`)} AS timestamp,
      jsonb_build_object('incident_id', i.id, 'kind', i.kind, 'subject', i.subject,
        'detail', i.detail, 'raised_at', ${wireTime(sql`i.raised_at`)},
        'recovered_at', CASE n.kind WHEN 'recovered' THEN ${wireTime(sql`i.recovered_at`)} END)
        AS data
      FROM claimed n JOIN incident i ON i.id = n.incident_id ORDER BY n.created_at, n.kind`);
  await sendClaimed(parts, OUTBOX, rows, async ({ id, type, timestamp, data }) => {
    // It may have been taken away since the message was written.
    if (!operatorWebhook) return "there is no webhook any more";
    const body = JSON.stringify({ type, timestamp, data });
    return sendWebhook({ id, body }, operatorWebhook, clock());
  });
}

/** What became of a test. */
export interface SentTest {
  delivered: boolean;
  last_error: string | null;
}

/**
 * Sends a test to the operator's webhook at once, and writes down that it was sent. Fails with
 * `state_conflict` where there is no webhook.
 */
export async function sendTestNotice(
  { database, clock, operatorWebhook }: NoticeParts,
  act: Act,
): Promise<SentTest> {
  if (!operatorWebhook) {
    const detail = "no webhook is set: ALERT_WEBHOOK_URL and ALERT_WEBHOOK_SECRET";
    throw new Failure("state_conflict", detail);
  }
  const now = clock();
  const data = { detail: "a test" };
  const body = JSON.stringify({ type: "incident.test", timestamp: iso(now), data });
  const problem = await sendWebhook({ id: crypto.randomUUID(), body }, operatorWebhook, now);
  const delivered = problem === null;
  await database.execute(
    auditEntries(act, {
      subject: sql`'incidents'`,
      workspaceId: sql`NULL::uuid`,
      before: sql`NULL::jsonb`,
      after: sql`jsonb_build_object('delivered', ${delivered}::boolean)`,
      from: sql`(VALUES (1)) AS sent`,
    }),
  );
  return { delivered, last_error: problem };
}
