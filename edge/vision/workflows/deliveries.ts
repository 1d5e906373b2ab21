// Webhooks of runs on their way. The outbox holds what is sent and only the names of secrets, which
// are opened for one attempt each; what is over keeps neither address nor body.

import { type SQL, sql } from "drizzle-orm";
import { z } from "zod";
import { workflowDelivery } from "../../../db/vision/workflows.ts";
import { Secret } from "../../../shared/secret.ts";
import type { WorkflowDelivery } from "../../../shared/wire/workflows.ts";
import { WebhookEffect } from "../../../shared/workflow/blocks/sinks.ts";
import { batch } from "../../http/database.ts";
import { isAllowedHost } from "../../http/outbound.ts";
import { columnsOf, rowsOf, selection } from "../../http/selection.ts";
import { jsonb } from "../../http/storable.ts";
import { isWebhookSecret, sendWebhook, type WebhookTarget } from "../../http/webhook.ts";
import { type ClaimedMessage, claimDue, sendClaimed } from "../base/outbox.ts";
import type { Parts } from "../base/parts.ts";
import { keep } from "../base/retention.ts";
import { idList, instant } from "../base/sql.ts";
import { lockRegistry } from "../models/registry.ts";
import { openSecrets } from "./secrets.ts";

/** Messages of a workspace that wait at once. */
const PENDING_MAX = 500;
/** Deliveries are kept for 30 days. */
export const KEPT_DELIVERIES = keep(workflowDelivery, "createdAt", { days: 30 });

const OUTBOX = {
  table: sql`workflow_delivery`,
  over: (now: SQL) => sql`request = NULL, ended_at = ${now}`,
};

const Target = WebhookEffect.omit({ payload: true });
const Request = z.object({ target: Target, body: z.string() });

/** Which run asks for effects. */
export interface EffectSource {
  workspaceId: string;
  /** The deployed workflow; null of a run that was given its definition. */
  workflowId: string | null;
  runId: string;
  /** The account that asked; null: none did. */
  actorId: string | null;
}

/** A message of a run. */
export interface NewDelivery {
  step: string;
  element: readonly number[];
  target: z.infer<typeof Target>;
  body: string;
}

const elementOf = (element: readonly number[]): string => element.join(".");

/** What is saved for sure where nothing is. */
const NOTHING = sql`saved AS (SELECT 1)`;

/**
 * Writes messages of a run to the outbox, and with them, in the same statement, what the run's
 * steps remember; `saving` is as `savingStream` makes it. Returns the messages that are in the
 * outbox, now or since before: the rest found as many waiting as may. Null: nothing was saved, and
 * so nothing written.
 */
export async function enqueueDeliveries(
  { database, clock }: Pick<Parts, "database" | "clock">,
  { workspaceId, workflowId, runId }: EffectSource,
  { deliveries, saving }: { deliveries: readonly NewDelivery[]; saving: SQL | null },
): Promise<Set<NewDelivery> | null> {
  if (deliveries.length === 0 && !saving) return new Set();
  const now = instant(clock());
  const made = deliveries.map(({ step, element, target, body }) => ({
    id: crypto.randomUUID(),
    step,
    element: elementOf(element),
    request: { target, body },
  }));
  type Rows = [unknown, unknown, { step: string; element: string }];
  const [, saved, rows] = await batch<Rows>(database, [
    lockRegistry(workspaceId),
    sql`
      WITH ${saving ?? NOTHING},
      queued AS (
      INSERT INTO workflow_delivery (id, workspace_id, workflow_id, run_id, step, element, request,
        delivery, next_at, created_at)
      SELECT (one->>'id')::uuid, ${workspaceId}::uuid, ${workflowId}::uuid, ${runId}::uuid,
        one->>'step', one->>'element', one->'request', 'pending', ${now}, ${now}
        FROM jsonb_array_elements(${jsonb(made)}) WITH ORDINALITY AS made (one, number)
       WHERE EXISTS (SELECT FROM saved)
       ORDER BY number LIMIT greatest(0, ${PENDING_MAX}::int - (SELECT count(*)
         FROM workflow_delivery WHERE workspace_id = ${workspaceId}::uuid
          AND delivery = 'pending'))
      ON CONFLICT (run_id, step, element) DO NOTHING)
      SELECT FROM saved`,
    sql`
      SELECT step, element FROM workflow_delivery
       WHERE run_id = ${runId}::uuid AND workspace_id = ${workspaceId}::uuid`,
  ]);
  if (saved.length === 0) return null;
  const known = new Set(rows.map(({ step, element }) => `${step} ${element}`));
  return new Set(
    deliveries.filter(({ step, element }) => known.has(`${step} ${elementOf(element)}`)),
  );
}

type DeliveryParts = Pick<Parts, "database" | "clock" | "log" | "sealing" | "outbound">;

interface Message extends ClaimedMessage {
  workspaceId: string;
  runId: string;
  step: string;
  element: string;
  request: z.infer<typeof Request>;
}

/**
 * Sends what is due, of one run or of all. The minute cron calls it, and whoever has performed a
 * run's effects.
 */
export async function sendDeliveries(
  parts: DeliveryParts,
  { runId }: { runId?: string } = {},
): Promise<void> {
  const among = runId === undefined ? sql`true` : sql`run_id = ${runId}::uuid`;
  const { rows } = await parts.database.execute<Message>(sql`
    WITH ${claimDue(OUTBOX, parts.clock(), among)}
    SELECT id::text, workspace_id::text AS "workspaceId", run_id::text AS "runId", step, element,
      attempts, request FROM claimed`);
  await sendClaimed(parts, OUTBOX, rows, (message) => send(parts, message));
}

/** Sends a message once; null: it was taken, else why not. */
async function send(parts: DeliveryParts, message: Message): Promise<string | null> {
  const { runId, step, element } = message;
  try {
    const { target, body } = Request.parse(message.request);
    const opened = await openTarget(parts, message.workspaceId, target);
    if (typeof opened === "string") return opened;
    // The same in every attempt, so that a receiver drops what comes twice.
    const id = [runId, step, ...(element ? [element] : [])].join(".");
    return await sendWebhook({ id, body }, opened, parts.clock());
  } catch (error) {
    parts.log.error("webhook", { workspace_id: message.workspaceId, run_id: runId, step, error });
    return "its address and secrets could not be opened: enter them anew";
  }
}

/** Where a message goes, its secrets opened; or why it goes nowhere. */
async function openTarget(
  parts: DeliveryParts,
  workspaceId: string,
  { url, url_secret, signing_secret, headers, secret_headers }: z.infer<typeof Target>,
): Promise<WebhookTarget | string> {
  const names = [url_secret, signing_secret, ...Object.values(secret_headers)].filter(
    (name) => name !== null,
  );
  const secrets = await openSecrets(parts, workspaceId, names);
  const missing = names.find((name) => !secrets.has(name));
  if (missing !== undefined) return `not sent: the workspace has no secret ${missing}`;
  const opened = (name: string | null): Secret | null =>
    name === null ? null : (secrets.get(name) ?? null);
  const address = opened(url_secret) ?? (url === null ? null : new Secret(url));
  if (!address) return "not sent: it has no address";
  const secret = opened(signing_secret);
  if (secret && !isWebhookSecret(secret.reveal())) {
    const form = "it needs 24 characters or more, or whsec_ and base64";
    return `not sent: the secret ${signing_secret} cannot sign: ${form}`;
  }
  const sent: Record<string, Secret> = {};
  for (const [header, value] of Object.entries(headers)) sent[header] = new Secret(value);
  for (const [header, name] of Object.entries(secret_headers)) {
    const value = opened(name);
    if (!value || !/^[\x20-\x7e]+$/.test(value.reveal())) {
      return `not sent: the secret ${name} cannot be the value of a header`;
    }
    sent[header] = value;
  }
  return {
    url: address,
    secret,
    headers: sent,
    allowPrivate: isAllowedHost(parts.outbound, address.reveal()),
    resolve: parts.outbound.resolve,
  };
}

const d = columnsOf(workflowDelivery, "d");
const DELIVERY = selection({
  delivery_id: d.id,
  workspace_id: d.workspaceId,
  workflow_id: d.workflowId,
  run_id: d.runId,
  step: d.step,
  element: d.element,
  status: d.delivery,
  attempts: d.attempts,
  last_error: d.lastError,
  created_at: d.createdAt,
  ended_at: d.endedAt,
});

/** Which deliveries are meant. */
export interface DeliveryFilter {
  status?: WorkflowDelivery["status"] | undefined;
  runId?: string | undefined;
  limit: number;
  offset: number;
}

/** Deliveries of workspaces, newest first. */
export async function listDeliveries(
  { database }: Pick<Parts, "database">,
  workspaces: readonly string[],
  { status, runId, limit, offset }: DeliveryFilter,
): Promise<WorkflowDelivery[]> {
  const rows = await rowsOf(database, DELIVERY)`
    SELECT ${DELIVERY} FROM workflow_delivery d WHERE workspace_id IN ${idList(workspaces)}
       AND (${status ?? null}::text IS NULL OR delivery = ${status ?? null}::text)
       AND (${runId ?? null}::uuid IS NULL OR run_id = ${runId ?? null}::uuid)
     ORDER BY created_at DESC, id LIMIT ${limit}::int OFFSET ${offset}::int`;
  return rows.map((row) => ({
    ...row,
    element: row.element === "" ? [] : row.element.split(".").map(Number),
  }));
}
