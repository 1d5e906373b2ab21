// Invitations: a code that an admin makes, with which one person makes an account, or joins a
// workspace with the account they have. It is stored as its hash, used once, and ends by itself or
// when its maker is no admin of the workspace any more.

import { type SQL, sql } from "drizzle-orm";
import { invitation, workspace } from "../../../db/vision/schema.ts";
import { assert, Failure } from "../../../shared/errors.ts";
import { DAY, iso } from "../../../shared/time.ts";
import { ROLES, type Role } from "../../../shared/wire/vision.ts";
import { wireTime } from "../../http/database.ts";
import { columnsOf, type RowOf, rowsOf, selection } from "../../http/selection.ts";
import type { Parts, RegistrationMode } from "../base/parts.ts";
import { idList } from "../base/sql.ts";
import { type Act, auditEntries, DELETED_USER } from "./audit.ts";
import { forgetSessions } from "./caller-state.ts";
import { randomText, sha256 } from "./digest.ts";
import type { Caller } from "./scope.ts";

const CODE_PREFIX = "vni_";
const CODE_BYTES = 16;
/** Days after its end that an invitation is still listed. */
export const LISTED_DAYS = 30;

/** Whether the maker of an invitation `i` is an admin of its workspace still: else it ends. */
const HOLDS = sql`EXISTS (SELECT FROM membership m WHERE m.workspace_id = i.workspace_id
  AND m.account_id = i.created_by AND m.role = 'admin')`;

const STATUS = sql<
  "open" | "used" | "expired" | "revoked"
>`CASE WHEN i.used_at IS NOT NULL THEN 'used'
  WHEN i.revoked_at IS NOT NULL OR NOT ${HOLDS} THEN 'revoked' WHEN i.expires_at <= now() THEN 'expired'
  ELSE 'open' END`;

const i = columnsOf(invitation, "i");
const INVITATION = selection({
  invitation_id: i.id,
  workspace_id: i.workspaceId,
  workspace_name: columnsOf(workspace, "w").name,
  role: i.role,
  email: i.email,
  invited_by: sql<string | null>`CASE WHEN i.created_by IS NOT NULL THEN
    coalesce((SELECT display_name FROM account WHERE id = i.created_by), ${DELETED_USER}) END`,
  created_at: i.createdAt,
  expires_at: i.expiresAt,
  status: STATUS,
});
/** An invitation as the wire has it; its code is shown once. */
export type Invitation = RowOf<typeof INVITATION>;

/** Invites into a workspace for some days; with an email, the account of that email alone. */
export async function createInvitation(
  parts: Parts,
  invitation: { workspaceId: string; role: Role; email: string | null; days: number; act: Act },
): Promise<Invitation & { code: string }> {
  const { workspaceId, role, email, days, act } = invitation;
  const [id, code] = [crypto.randomUUID(), newCode()];
  const now = parts.clock();
  const entry = auditEntries(act, {
    subject: sql`'invitation:' || id`,
    workspaceId: sql`workspace_id`,
    before: sql`NULL::jsonb`,
    after: sql`jsonb_build_object('role', role)`,
    from: sql`made`,
  });
  await parts.database.execute(sql`
    WITH made AS (
      INSERT INTO invitation (id, hash, workspace_id, role, email, created_by, created_at,
        expires_at)
      VALUES (${id}::uuid, ${await hashOf(code)}, ${workspaceId}::uuid, ${role}, ${email},
        ${act.actorId}::uuid, ${iso(now)}::timestamptz, ${iso(now + days * DAY)}::timestamptz)
      RETURNING id, workspace_id, role)
    ${entry}`);
  const [made] = await rowsOf(parts.database, INVITATION)`
    SELECT ${INVITATION} FROM invitation i JOIN workspace w ON w.id = i.workspace_id
     WHERE i.id = ${id}::uuid`;
  assert(made, "an invitation that was just made is there");
  return { ...made, code };
}

const newCode = (): string => CODE_PREFIX + randomText(CODE_BYTES);

const hashOf = async (code: string): Promise<SQL> => sql`decode(${await sha256(code)}, 'hex')`;

/** Invitations into these workspaces, the newest first. */
export async function listInvitations(
  { database }: Parts,
  workspaceIds: readonly string[],
  page: { offset: number; limit: number },
): Promise<Invitation[]> {
  return await rowsOf(database, INVITATION)`
    SELECT ${INVITATION} FROM invitation i JOIN workspace w ON w.id = i.workspace_id
     WHERE i.workspace_id IN ${idList(workspaceIds)}
     ORDER BY i.created_at DESC, i.id LIMIT ${page.limit}::int OFFSET ${page.offset}::int`;
}

/** Ends an invitation; fails with `not_found`, or `state_conflict` where it was used already. */
export async function revokeInvitation(
  { database, clock }: Parts,
  { id, workspaceIds, act }: { id: string; workspaceIds: readonly string[]; act: Act },
): Promise<void> {
  const entry = auditEntries(act, {
    subject: sql`'invitation:' || id`,
    workspaceId: sql`workspace_id`,
    before: sql`jsonb_build_object('revoked_at', NULL)`,
    after: sql`jsonb_build_object('revoked_at', ${wireTime(sql`revoked_at`)})`,
    from: sql`ended`,
  });
  const { rows } = await database.execute<{ used: boolean }>(sql`
    WITH held AS (
      SELECT id, used_at FROM invitation
       WHERE id = ${id}::uuid AND workspace_id IN ${idList(workspaceIds)} FOR UPDATE),
    ended AS (
      UPDATE invitation SET revoked_at = ${iso(clock())}::timestamptz FROM held
       WHERE invitation.id = held.id AND held.used_at IS NULL AND revoked_at IS NULL
      RETURNING invitation.id, workspace_id, revoked_at),
    logged AS (${entry})
    SELECT used_at IS NOT NULL AS used FROM held`);
  if (!rows[0]) throw new Failure("not_found", "no such invitation into your workspaces");
  if (rows[0].used) throw new Failure("state_conflict", "the invitation was used already");
}

/** The invitation of a code that the account of an email may still use, as a query; locks it. */
export const openInvitation = async (code: string | undefined, email: string): Promise<SQL> => sql`
  SELECT id, workspace_id, role FROM invitation i
   WHERE hash = ${await hashOf(code ?? "")} AND used_at IS NULL AND revoked_at IS NULL
     AND expires_at > now() AND (email IS NULL OR email = ${email}) AND ${HOLDS} FOR UPDATE`;

/** Uses what a part `invited` of the statement found, for an account of one of its parts. */
export const invitationUse = (accountId: SQL, from: SQL): SQL => sql`
  UPDATE invitation SET used_at = now(), used_by = ${accountId} FROM invited, ${from}
   WHERE invitation.id = invited.id
  RETURNING invitation.id, invitation.workspace_id, invitation.role`;

/** The entry of an invitation that a part `used` of the statement used. */
export const acceptance = (act: Act): SQL =>
  auditEntries(act, {
    subject: sql`'invitation:' || id`,
    workspaceId: sql`workspace_id`,
    before: sql`NULL::jsonb`,
    after: sql`jsonb_build_object('role', role)`,
    from: sql`used`,
  });

/** Why nobody is let in. */
export function notInvited(mode: RegistrationMode, code: string | undefined): Failure {
  const unknown = "the invitation is unknown, used, expired or another's; ask for a new one";
  const missing = "send an `invitation`: a code that an admin makes";
  const detail = mode === "closed" ? "nobody registers here" : code ? unknown : missing;
  return new Failure("not_invited", detail);
}

const RANK = (role: SQL) =>
  sql`array_position(ARRAY[${sql.join(
    ROLES.map((role) => sql`${role}::text`),
    sql`, `,
  )}], ${role})`;

/** Has an account that is there join a workspace by an invitation; no role of it is lowered. */
export async function acceptInvitation(
  parts: Parts,
  { caller, code, act }: { caller: Caller; code: string; act: Act },
): Promise<void> {
  const { rows } = await parts.database.execute(sql`
    WITH invited AS (${await openInvitation(code, caller.email)}),
    used AS (${invitationUse(sql`caller.id`, sql`(SELECT ${caller.accountId}::uuid AS id) caller`)}),
    joined AS (
      INSERT INTO membership (workspace_id, account_id, role)
      SELECT workspace_id, ${caller.accountId}::uuid, role FROM used
      ON CONFLICT (workspace_id, account_id) DO UPDATE SET role = excluded.role
        WHERE ${RANK(sql`membership.role`)} < ${RANK(sql`excluded.role`)}),
    logged AS (${acceptance(act)})
    SELECT id FROM used`);
  if (rows.length === 0) throw notInvited("invited", code);
  forgetSessions(parts, caller.accountId);
}
