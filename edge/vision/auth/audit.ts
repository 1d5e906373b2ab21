// The log of what administrators did: who, what, to what, the changed fields before and after. An
// entry is a part of the statement that makes the change, so neither is there without the other. It
// holds no secret, hash, token or address: only what is named here goes into it.

import { type SQL, sql } from "drizzle-orm";
import type { Context } from "hono";
import { auditEntry } from "../../../db/vision/audit.ts";
import { account } from "../../../db/vision/schema.ts";
import { DAY } from "../../../shared/time.ts";
import {
  columnsOf,
  joinedColumnsOf,
  type RowOf,
  rowsOf,
  selection,
  typed,
} from "../../http/selection.ts";
import type { Parts } from "../base/parts.ts";
import { FORGOTTEN_MAX, type Retention } from "../base/retention.ts";
import { allOf } from "../base/sql.ts";
import { callerOf, type Realm, within } from "./scope.ts";

/** What is written down: operations, by their ids in the description of the API. */
export const AUDIT_ACTIONS = [
  "acceptInvitation",
  "activateModel",
  "addTarget",
  "changeFleetSettings",
  "changeTarget",
  "deleteAccount",
  "deleteDevice",
  "deleteTarget",
  "deleteUser",
  "deleteWorkflowSecret",
  "enrolDevice",
  "failJob",
  "failRun",
  "makeApiToken",
  "makeDevice",
  "makeDeviceCode",
  "makeEndpointKey",
  "makeInvitation",
  "makeNodeCode",
  "makePasswordReset",
  "makeWorkspace",
  "promoteModel",
  "purgeQueue",
  "registerNode",
  "removeName",
  "resetPassword",
  "revokeApiToken",
  "revokeDevice",
  "revokeEndpointKey",
  "revokeInvitation",
  "revokeNode",
  "revokeTask",
  "rollBackModel",
  "sendTestIncident",
  "setRole",
  "setWorkflowSecret",
] as const;
export type AuditAction = (typeof AUDIT_ACTIONS)[number];

/** What an actor was: an operator is an admin of the default workspace. */
export const ACTOR_KINDS = ["member", "operator", "service"] as const;
export type ActorKind = (typeof ACTOR_KINDS)[number];

/** Something that somebody does and that is to be written down. */
export interface Act {
  action: AuditAction;
  /** Null: the service itself. */
  actorId: string | null;
  actorKind: ActorKind;
  /** The API token that sent the request; none for a session. */
  tokenId?: string | undefined;
  /** Null of what no request asked for. */
  requestId: string | null;
}

/** The act of a request's caller. */
export function actOf(context: Pick<Context, "get">, action: AuditAction): Act {
  const { accountId, operator, apiToken } = callerOf(context);
  return {
    action,
    actorId: accountId,
    actorKind: operator ? "operator" : "member",
    tokenId: apiToken?.tokenId,
    requestId: context.get("requestId") as string,
  };
}

/** What an account is now, as an actor; the service itself where it is none. */
export const actorKindOf = (
  accountId: SQL,
): SQL => sql`CASE WHEN ${accountId} IS NULL THEN 'service'
    WHEN EXISTS (SELECT FROM membership m JOIN workspace w ON w.id = m.workspace_id
      WHERE m.account_id = ${accountId} AND m.role = 'admin' AND w.is_default) THEN 'operator'
    ELSE 'member' END`;

/** What an act changed, in terms of the rows that its statement changed. */
interface Changes {
  /** What it was done to, such as `account:<id>`. */
  subject: SQL;
  /** Whose entry it is; null is the installation's. */
  workspaceId: SQL;
  /** The changed fields as jsonb; NULL where there was, or is, nothing. */
  before: SQL;
  after: SQL;
  /** The part of the statement that has a row for each entry, and none where nothing changed. */
  from: SQL;
}

/** The entries of an act, as a part of the statement that makes the change. */
export const auditEntries = (act: Act, { subject, workspaceId, before, after, from }: Changes) =>
  sql`INSERT INTO audit_entry (actor_id, actor_kind, token_id, action, subject, workspace_id, before,
      after, request_id)
    SELECT ${act.actorId}::uuid, ${act.actorKind}, ${act.tokenId ?? null}::uuid, ${act.action}, ${subject}, ${workspaceId},
      ${before}, ${after}, ${act.requestId}::text FROM ${from}`;

/**
 * The changes of a job's or run's move, whose statement has a part `moved` with the state before as
 * `held_state`.
 */
export const moveChanges = (subject: string): Changes => ({
  subject: sql`${subject}::text`,
  workspaceId: sql`workspace_id`,
  before: sql`jsonb_build_object('status', held_state)`,
  after: sql`jsonb_build_object('status', state, 'failure', failure)`,
  from: sql`moved`,
});

/** Name that is shown of an account which was deleted. */
export const DELETED_USER = "deleted user";

const e = columnsOf(auditEntry, "e");
const a = joinedColumnsOf(account, "a");
const ENTRY = selection({
  entry_id: e.id,
  at: e.at,
  actor_id: e.actorId,
  actor_name: sql<string | null>`CASE WHEN ${e.actorId} IS NOT NULL
    THEN coalesce(${a.displayName}, ${DELETED_USER}) END`,
  actor_kind: e.actorKind,
  token_id: e.tokenId,
  action: typed<AuditAction>(e.action),
  subject: e.subject,
  workspace_id: e.workspaceId,
  before: typed<Record<string, unknown> | null>(e.before),
  after: typed<Record<string, unknown> | null>(e.after),
  request_id: e.requestId,
});
/** An entry of the log, as the wire has it. */
export type AuditEntry = RowOf<typeof ENTRY>;

/** Which entries are meant; each member narrows it. */
export interface AuditFilter {
  actorId?: string | undefined;
  action?: AuditAction | undefined;
  subject?: string | undefined;
  workspaceId?: string | undefined;
  /** Epoch milliseconds, from the first inclusive to the second exclusive. */
  from?: number | undefined;
  to?: number | undefined;
  /** Only entries older than this one. */
  before?: number | undefined;
  limit: number;
}

/** In seconds, since Postgres reads no year 0. */
const instant = (milliseconds: number): SQL => sql`to_timestamp(${milliseconds}::float8 / 1000)`;

/** Entries of a realm, newest first, and where the next page begins; null where none follows. */
export async function listAuditEntries(
  { database }: Pick<Parts, "database">,
  realm: Realm,
  filter: AuditFilter,
): Promise<{ items: AuditEntry[]; next: number | null }> {
  const { actorId, action, subject, workspaceId, from, to, before, limit } = filter;
  const conditions = [
    within(realm, sql`e.workspace_id`),
    actorId !== undefined && sql`e.actor_id = ${actorId}::uuid`,
    action !== undefined && sql`e.action = ${action}`,
    subject !== undefined && sql`e.subject = ${subject}`,
    workspaceId !== undefined && sql`e.workspace_id = ${workspaceId}::uuid`,
    from !== undefined && sql`e.at >= ${instant(from)}`,
    to !== undefined && sql`e.at < ${instant(to)}`,
    before !== undefined && sql`e.id < ${before}::bigint`,
  ];
  const rows = await rowsOf(database, ENTRY)`
    SELECT ${ENTRY} FROM audit_entry e LEFT JOIN account a ON a.id = e.actor_id
     WHERE ${allOf(conditions)}
     ORDER BY e.id DESC LIMIT ${limit + 1}::int`;
  const items = rows.slice(0, limit);
  return { items, next: rows.length > limit ? (items.at(-1)?.entry_id ?? null) : null };
}

/** Entries are kept for `AUDIT_DAYS`. The service has no right to delete them by itself. */
export const KEPT_ENTRIES: Retention = {
  name: "old_audit_entry",
  forget: ({ clock, limits }) => sql`
    SELECT forget_audit_entries(${instant(clock() - limits.auditDays * DAY)},
      ${FORGOTTEN_MAX}::int)`,
};
