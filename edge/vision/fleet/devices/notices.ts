// Messages of alerts on their way to their workspace's webhook.

import { sql } from "drizzle-orm";
import { z } from "zod";
import { Secret } from "../../../../shared/secret.ts";
import { wireTime } from "../../../http/database.ts";
import { isAllowedHost } from "../../../http/outbound.ts";
import { sendWebhook } from "../../../http/webhook.ts";
import { type ClaimedMessage, claimDue, sendClaimed } from "../../base/outbox.ts";
import type { Parts } from "../../base/parts.ts";
import { unseal } from "../../base/sealing.ts";
import { webhookUse } from "./alerts.ts";

const OUTBOX = { table: sql`device_notice` };

const Webhook = z.object({ url: z.string(), secret: z.string() });

interface Notice extends ClaimedMessage {
  workspaceId: string;
  webhook: string | null;
  type: string;
  timestamp: string;
  data: Record<string, unknown>;
}

type NoticeParts = Pick<Parts, "database" | "clock" | "log" | "sealing" | "outbound">;

/** Sends what is due. The minute cron calls it. */
export async function sendNotices(parts: NoticeParts): Promise<void> {
  const notices = await dueNotices(parts);
  await sendClaimed(parts, OUTBOX, notices, (notice) => send(parts, notice));
}

async function dueNotices({ database, clock }: NoticeParts): Promise<Notice[]> {
  const { rows } = await database.execute<Notice>(sql`
    WITH ${claimDue(OUTBOX, clock())}
    SELECT n.id::text, n.workspace_id::text AS "workspaceId", n.attempts, f.webhook,
      'device.' || CASE n.kind WHEN 'raised' THEN a.kind ELSE 'recovered' END AS type,
      ${wireTime(sql`n.created_at`)} AS timestamp,
      jsonb_build_object('alert_id', a.id, 'kind', a.kind, 'value', a.value, 'device_id', d.id,
        'name', d.name, 'group', d.group_name, 'workspace_id', d.workspace_id,
        'raised_at', ${wireTime(sql`a.raised_at`)},
        'recovered_at', ${wireTime(sql`a.recovered_at`)}) AS data
      FROM claimed n JOIN device_alert a ON a.id = n.alert_id JOIN device d ON d.id = a.device_id
      LEFT JOIN fleet_setting f ON f.workspace_id = n.workspace_id`);
  return rows;
}

/** Sends a message once; null: it was taken, else why not. */
async function send(
  { sealing, outbound, clock, log }: NoticeParts,
  { id, workspaceId, webhook, type, timestamp, data }: Notice,
): Promise<string | null> {
  if (webhook === null) return "there is no webhook any more";
  try {
    const opened = await unseal(sealing, webhookUse(workspaceId), webhook);
    const { url, secret } = Webhook.parse(JSON.parse(opened.reveal()));
    const target = {
      url: new Secret(url),
      secret: new Secret(secret),
      allowPrivate: isAllowedHost(outbound, url),
      resolve: outbound.resolve,
    };
    const body = JSON.stringify({ type, timestamp, data });
    return await sendWebhook({ id, body }, target, clock());
  } catch (error) {
    log.error("webhook", { workspace_id: workspaceId, error });
    return "the webhook's address and secret could not be opened: enter them anew";
  }
}
