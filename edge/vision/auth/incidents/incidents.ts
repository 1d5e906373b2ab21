// What is wrong with the installation, as against what is wrong with a workspace's things: each
// incident is raised once, is over once, and has a message for either. Whoever finds one says how
// (`causes.ts`); here it is written down.

import { type SQL, sql } from "drizzle-orm";
import { incident, incidentNotice } from "../../../../db/vision/incidents.ts";
import type { Database } from "../../../http/database.ts";
import { columnsOf, type RowOf, rowsOf, selection } from "../../../http/selection.ts";
import type { Page } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { keep } from "../../base/retention.ts";
import { instant } from "../../base/sql.ts";

/** Every kind of incident. */
export const INCIDENT_KINDS = [
  "node_lost",
  "queue_stalled",
  "duty_failed",
  "backup_missing",
  "endpoint_errors",
] as const;
export type IncidentKind = (typeof INCIDENT_KINDS)[number];

/** What became of a message; `unsent` is one that there was no webhook for. */
export const DELIVERIES = ["pending", "delivered", "given_up", "unsent"] as const;

/** An incident is kept for four months after it was over. */
export const KEPT_INCIDENTS = keep(incident, "recoveredAt", { days: 120 });

export type IncidentParts = Pick<Parts, "database" | "clock" | "operatorWebhook">;

/** How incidents of a kind begin and end. */
export interface Cause {
  kind: IncidentKind;
  /** A query of `subject` and `detail`: a row for each thing that is wrong now. */
  wrong: SQL;
  /** Whether the open incident `i` is over. */
  isOver: SQL;
}

/**
 * Writes down what began and what is over, with a message for each, all in one statement: of two
 * that run at the same moment one finds nothing left to do.
 */
export async function noteIncidents(
  { database, clock, operatorWebhook }: IncidentParts,
  { kind, wrong, isOver }: Cause,
): Promise<void> {
  const now = instant(clock());
  const delivery = operatorWebhook ? "pending" : "unsent";
  await database.execute(sql`
    WITH wrong AS (${wrong}),
    raised AS (
      INSERT INTO incident (id, kind, subject, detail, raised_at)
      SELECT gen_random_uuid(), ${kind}::text, subject, detail, ${now} FROM wrong
       WHERE NOT EXISTS (SELECT FROM incident i WHERE i.kind = ${kind}::text
         AND i.subject = wrong.subject AND i.recovered_at IS NULL)
      ON CONFLICT (kind, subject) WHERE recovered_at IS NULL DO NOTHING
      RETURNING id),
    recovered AS (
      UPDATE incident i SET recovered_at = ${now}
       WHERE i.kind = ${kind}::text AND i.recovered_at IS NULL AND ${isOver}
         AND NOT EXISTS (SELECT FROM wrong WHERE wrong.subject = i.subject)
      RETURNING i.id)
    INSERT INTO incident_notice (id, incident_id, kind, delivery, next_at, created_at)
    SELECT gen_random_uuid(), n.id, n.kind, ${delivery}::text, ${now}, ${now}
      FROM (SELECT id, 'raised' AS kind FROM raised
        UNION ALL SELECT id, 'recovered' FROM recovered) n`);
}

const i = columnsOf(incident, "i");
const n = columnsOf(incidentNotice, "n");
const INCIDENT = selection({
  incident_id: i.id,
  kind: i.kind,
  subject: i.subject,
  detail: i.detail,
  raised_at: i.raisedAt,
  recovered_at: i.recoveredAt,
  delivery: n.delivery,
  last_error: n.lastError,
});
/** An incident as the wire has it, with what became of its newest message. */
export type IncidentRecord = RowOf<typeof INCIDENT>;

/** Incidents, newest first. */
export async function listIncidents(
  { database }: Pick<Parts, "database">,
  { open, offset, limit }: Page & { open?: boolean | undefined },
): Promise<IncidentRecord[]> {
  return await rowsOf(database, INCIDENT)`
    SELECT ${INCIDENT} FROM incident i,
        LATERAL (SELECT delivery, last_error FROM incident_notice WHERE incident_id = i.id
          ORDER BY created_at DESC, kind DESC LIMIT 1) n
     WHERE (${open ?? null}::boolean IS NULL
         OR (i.recovered_at IS NULL) = ${open ?? null}::boolean)
     ORDER BY i.raised_at DESC, i.id LIMIT ${limit}::int OFFSET ${offset}::int`;
}

/** How many incidents of each kind are not over. */
export async function countOpenIncidents(
  database: Database,
): Promise<{ kind: IncidentKind; open: number }[]> {
  const { rows } = await database.execute<{ kind: IncidentKind; open: number }>(sql`
    SELECT kind, count(*)::int AS open FROM incident WHERE recovered_at IS NULL GROUP BY kind`);
  const found = new Map(rows.map(({ kind, open }) => [kind, open]));
  return INCIDENT_KINDS.map((kind) => ({ kind, open: found.get(kind) ?? 0 }));
}
