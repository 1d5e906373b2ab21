// Accounts, workspaces and who is what in which. Each verb is one statement, or one batch where it
// needs a lock first.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import { iso } from "../../../shared/time.ts";
import type { Membership, Role, User } from "../../../shared/wire/vision.ts";
import { batch, wireTime } from "../../http/database.ts";
import type { Parts } from "../base/parts.ts";
import { breaksReference, idList } from "../base/sql.ts";
import { type Act, auditEntries } from "./audit.ts";
import { forgetSessions } from "./caller-state.ts";
import { sha256 } from "./digest.ts";
import { acceptance, invitationUse, notInvited, openInvitation } from "./invitations.ts";

/** The advisory lock of making an account: of two at once, only one can be the first. */
const FIRST_ACCOUNT_LOCK = 5_601;

export interface Account {
  accountId: string;
  email: string;
  passwordHash: string;
  sessionVersion: number;
}

/** An account that is to be made. */
interface NewAccount {
  email: string;
  displayName: string;
  passwordHash: string;
  /** The code of an invitation, or the bootstrap token. */
  invitation: string | undefined;
  requestId: string;
}

/**
 * Makes an account that is a viewer of the default workspace, and has the role of its invitation.
 * The very first one is admin of the default workspace; where there is a bootstrap token, the one
 * that has it, who is also admin of a new team workspace where one is configured. Fails with
 * `not_invited` where registration is not open to it, and `email_taken`.
 */
export async function createAccount(parts: Parts, account: NewAccount): Promise<Account> {
  const { mode, bootstrapToken, teamWorkspace } = parts.registration;
  const { invitation: code } = account;
  const id = crypto.randomUUID();
  const isFirstAdmin =
    code !== undefined &&
    bootstrapToken !== undefined &&
    (await sha256(code)) === (await sha256(bootstrapToken.reveal()));
  const byOrder = sql`CASE WHEN ${bootstrapToken === undefined}::boolean
    AND NOT EXISTS (SELECT FROM account) THEN 'admin' ELSE 'viewer' END`;
  const act = { action: "acceptInvitation", actorId: id, actorKind: "member" } as const;
  const [, created] = await batch(parts.database, [
    sql`SELECT pg_advisory_xact_lock(${FIRST_ACCOUNT_LOCK}::int)`,
    sql`
      WITH invited AS (${await openInvitation(code, account.email)}),
      admitted AS (
        SELECT CASE
          WHEN ${isFirstAdmin}::boolean THEN CASE WHEN NOT EXISTS (
            SELECT FROM membership m JOIN workspace w ON w.id = m.workspace_id
             WHERE w.is_default AND m.role = 'admin') THEN 'admin' END
          WHEN ${mode === "closed"}::boolean THEN NULL
          WHEN EXISTS (SELECT FROM invited) THEN 'viewer'
          WHEN ${mode === "open" && code === undefined}::boolean THEN ${byOrder} END AS role),
      made AS (
        INSERT INTO account (id, email, display_name, password_hash)
        SELECT ${id}::uuid, ${account.email}, ${account.displayName}, ${account.passwordHash}
          FROM admitted WHERE role IS NOT NULL
        ON CONFLICT (email) DO NOTHING RETURNING id),
      joined AS (
        INSERT INTO membership (workspace_id, account_id, role)
        SELECT w.id, made.id, coalesce(invited.role, admitted.role)
          FROM made, admitted, workspace w LEFT JOIN invited ON invited.workspace_id = w.id
         WHERE w.is_default OR invited.id IS NOT NULL),
      used AS (${invitationUse(sql`made.id`, sql`made`)}),
      logged AS (${acceptance({ ...act, requestId: account.requestId })})
      SELECT admitted.role IS NOT NULL AS admitted, EXISTS (SELECT FROM made) AS made FROM admitted`,
    ...(isFirstAdmin && teamWorkspace !== undefined
      ? [
          workspaceInsert(parts, crypto.randomUUID(), {
            act: { ...act, action: "makeWorkspace", requestId: account.requestId },
            accountId: id,
            name: teamWorkspace,
          }),
        ]
      : []),
  ]);
  const [outcome] = created as { admitted: boolean; made: boolean }[];
  if (!outcome?.admitted) throw notInvited(mode, code);
  if (!outcome.made) {
    throw new Failure("email_taken", "an account with this email exists; log in instead");
  }
  if (isFirstAdmin) parts.log.info("first_admin", { account_id: id });
  return {
    accountId: id,
    email: account.email,
    passwordHash: account.passwordHash,
    sessionVersion: 1,
  };
}

async function findAccount(
  { database }: Parts,
  by: { email: string } | { id: string },
): Promise<Account | null> {
  const where = "email" in by ? sql`email = ${by.email}` : sql`id = ${by.id}::uuid`;
  const { rows } = await database.execute<Account & Record<string, unknown>>(sql`
    SELECT id::text AS "accountId", email, password_hash AS "passwordHash", session_version AS "sessionVersion"
      FROM account WHERE ${where}`);
  return rows[0] ?? null;
}

/** The account of an email in its normal spelling, or null. */
export const accountByEmail = (parts: Parts, email: string) => findAccount(parts, { email });
/** The account of an id, or null. */
export const accountById = (parts: Parts, id: string) => findAccount(parts, { id });

/** Replaces a hash by one of the same password, unless that was changed since it was read. */
export async function replaceHash(
  { database }: Parts,
  account: Account,
  passwordHash: string,
): Promise<void> {
  await database.execute(sql`
    UPDATE account SET password_hash = ${passwordHash}
     WHERE id = ${account.accountId}::uuid AND password_hash = ${account.passwordHash}`);
}

type UserRow = Omit<User, "workspaces"> & { workspaces: Membership[] } & Record<string, unknown>;

const CREATED = wireTime(sql`a.created_at`);

/** A user as the wire shows it; `visible` limits which of the memberships are shown. */
const userFields = (visible = sql`true`) => sql`
  a.id::text, a.email, a.display_name, ${CREATED} AS created_at,
  coalesce((SELECT jsonb_agg(jsonb_build_object('workspace_id', m.workspace_id, 'name', w.name,
      'role', m.role) ORDER BY NOT w.is_default, w.name, w.id)
    FROM membership m JOIN workspace w ON w.id = m.workspace_id
    WHERE m.account_id = a.id AND ${visible}), '[]') AS workspaces`;

/** The failure of a request whose account was deleted meanwhile. */
export const accountGone = () => new Failure("unauthorized", "the account is no more");

/** The account as its owner sees it. */
export async function userRecord({ database }: Parts, accountId: string): Promise<User> {
  const { rows } = await database.execute<UserRow>(
    sql`SELECT ${userFields()} FROM account a WHERE a.id = ${accountId}::uuid`,
  );
  const user = rows[0];
  if (!user) throw accountGone();
  return user;
}

/** Users with a role in one of these workspaces, by email, with only those roles. */
export async function listUsers(
  { database }: Parts,
  workspaceIds: readonly string[],
  page: { offset: number; limit: number },
): Promise<User[]> {
  const { rows } = await database.execute<UserRow>(sql`
    SELECT ${userFields(sql`m.workspace_id IN ${idList(workspaceIds)}`)} FROM account a
     WHERE EXISTS (SELECT FROM membership
       WHERE account_id = a.id AND workspace_id IN ${idList(workspaceIds)})
     ORDER BY a.email LIMIT ${page.limit}::int OFFSET ${page.offset}::int`);
  return rows;
}

/**
 * Locks memberships that decide whether a workspace has an admin, in one order everywhere, so that
 * of two who leave at once each waits for the other, and neither for ever.
 */
export const membershipLock = (condition: SQL): SQL => sql`
  SELECT workspace_id, account_id FROM membership WHERE ${condition}
   ORDER BY workspace_id, account_id FOR UPDATE`;

/**
 * Gives an account a role in a workspace, or takes it away with null; its access tokens end. The
 * account must have a role in one of `visibleIn`, else it is `not_found`. The last admin stays one:
 * of two admins who demote each other at once, the second fails with `state_conflict`.
 */
export async function setRole(
  parts: Parts,
  change: {
    act: Act;
    accountId: string;
    workspaceId: string;
    role: Role | null;
    visibleIn: readonly string[];
  },
): Promise<User> {
  const { act, accountId, workspaceId, role } = change;
  const entries = auditEntries(act, {
    subject: sql`'account:' || id`,
    workspaceId: sql`${workspaceId}::uuid`,
    before: sql`jsonb_build_object('role', held_role)`,
    after: sql`jsonb_build_object('role', ${role}::text)`,
    from: sql`allowed`,
  });
  // The admins' rows are locked, and those demoted meanwhile drop out of the count. So is the
  // member's own, and read before it is changed: what another wrote meanwhile is seen.
  const deciding = sql`workspace_id = ${workspaceId}::uuid
    AND (role = 'admin' OR account_id = ${accountId}::uuid)`;
  const statement = sql`
    WITH admins AS (
      SELECT account_id FROM membership
       WHERE workspace_id = ${workspaceId}::uuid AND role = 'admin'
       ORDER BY account_id FOR UPDATE),
    held AS (
      SELECT role FROM membership
       WHERE workspace_id = ${workspaceId}::uuid AND account_id = ${accountId}::uuid FOR UPDATE),
    target AS (
      SELECT id, (SELECT role FROM held) AS held_role FROM account
       WHERE id = ${accountId}::uuid AND EXISTS (SELECT FROM membership
         WHERE account_id = account.id AND workspace_id IN ${idList(change.visibleIn)})),
    allowed AS (
      SELECT id, held_role FROM target WHERE ${role}::text IS NOT DISTINCT FROM 'admin'
        OR EXISTS (SELECT FROM admins WHERE account_id <> target.id)),
    removed AS (
      DELETE FROM membership USING allowed WHERE ${role}::text IS NULL
        AND workspace_id = ${workspaceId}::uuid AND account_id = allowed.id),
    given AS (
      INSERT INTO membership (workspace_id, account_id, role)
      SELECT ${workspaceId}::uuid, id, ${role}::text FROM allowed WHERE ${role}::text IS NOT NULL
      ON CONFLICT (workspace_id, account_id) DO UPDATE SET role = excluded.role),
    raised AS (
      UPDATE account SET session_version = session_version + 1 FROM allowed
       WHERE account.id = allowed.id),
    logged AS (${entries})
    SELECT EXISTS (SELECT FROM target) AS seen, EXISTS (SELECT FROM allowed) AS kept`;
  const notThere = new Failure("not_found", "no such user in your workspaces");
  const [, [outcome]] = await batch<[unknown, { seen: boolean; kept: boolean }]>(parts.database, [
    membershipLock(deciding),
    statement,
  ]).catch((thrown: unknown) => {
    // The account was deleted meanwhile.
    throw breaksReference(thrown) ? notThere : thrown;
  });
  if (!outcome?.seen) throw notThere;
  if (!outcome.kept) {
    throw new Failure("state_conflict", "the workspace's last admin must stay one");
  }
  forgetSessions(parts, accountId);
  return userRecord(parts, accountId);
}

export interface Workspace extends Record<string, unknown> {
  workspace_id: string;
  name: string;
  is_default: boolean;
  members: number;
  bytes_stored: number;
  created_at: string;
}

/** These workspaces, the default first, with what they hold. */
export async function listWorkspaces(
  { database }: Parts,
  ids: readonly string[],
): Promise<Workspace[]> {
  const { rows } = await database.execute<Workspace>(sql`
    SELECT a.id::text AS workspace_id, a.name, a.is_default, ${CREATED} AS created_at,
        (SELECT count(*)::int FROM membership WHERE workspace_id = a.id) AS members,
        (SELECT coalesce(sum(v.bytes), 0)::float8 FROM video v JOIN project p ON p.id = v.project_id
          WHERE p.workspace_id = a.id) AS bytes_stored
      FROM workspace a WHERE a.id IN ${idList(ids)} ORDER BY NOT a.is_default, a.name, a.id`);
  return rows;
}

/**
 * Makes a workspace whose admin is its maker. Fails with `quota_exceeded` where the account made as
 * many as it may.
 */
export async function createWorkspace(
  parts: Parts,
  { act, accountId, name }: NewWorkspace,
): Promise<Workspace> {
  const id = crypto.randomUUID();
  // Where two make the last one at once, the second counts the first's.
  const lock = sql`SELECT id FROM account WHERE id = ${accountId}::uuid FOR NO KEY UPDATE`;
  const insert = workspaceInsert(parts, id, { act, accountId, name });
  const [makers] = await batch(parts.database, [lock, insert]);
  if (makers?.length === 0) throw accountGone();
  // More rights need no new token: only what takes rights away ends the ones there are.
  forgetSessions(parts, accountId);
  const [made] = await listWorkspaces(parts, [id]);
  if (made) return made;
  const detail = "you have made as many workspaces as an account may";
  throw new Failure("quota_exceeded", detail, {
    data: { workspaces_max: parts.limits.accountWorkspacesMax },
  });
}

/** A workspace that is to be made, by the account that becomes its admin. */
interface NewWorkspace {
  act: Act;
  accountId: string;
  name: string;
}

/** Makes a workspace with its admin and audit entry, where the account exists and may make one. */
function workspaceInsert(parts: Parts, id: string, { act, accountId, name }: NewWorkspace): SQL {
  const now = iso(parts.clock());
  const entry = auditEntries(act, {
    subject: sql`'workspace:' || id`,
    workspaceId: sql`id`,
    before: sql`NULL::jsonb`,
    after: sql`jsonb_build_object('name', ${name}::text)`,
    from: sql`made`,
  });
  const max = parts.limits.accountWorkspacesMax;
  const maker = sql`${accountId}::uuid`;
  return sql`
    WITH made AS (
      INSERT INTO workspace (id, name, made_by, created_at)
      SELECT ${id}::uuid, ${name}::text, account.id, ${now}::timestamptz
        FROM account WHERE account.id = ${maker}
         AND (SELECT count(*) FROM workspace WHERE made_by = ${maker}) < ${max}::int
      RETURNING id),
    joined AS (
      INSERT INTO membership (workspace_id, account_id, role)
      SELECT id, ${maker}, 'admin' FROM made)
    ${entry}`;
}
