// Deletion of accounts. The row goes, and with it the email, the name, the password, memberships,
// sessions, API tokens and codes. What the person made stays under the account's id, a pseudonym
// that leads to nobody. A workspace never loses its last admin.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import { batch } from "../../http/database.ts";
import type { Parts } from "../base/parts.ts";
import { instant } from "../base/sql.ts";
import { membershipLock } from "./accounts.ts";
import { type Act, auditEntries } from "./audit.ts";
import { forgetSessions } from "./caller-state.ts";

interface Deletion {
  accountId: string;
  act: Act;
  /** The hash of the password that was verified; undefined for an operator. */
  passwordHash?: string;
}

interface DeletionOutcome {
  /** Whether there was such an account. */
  known: boolean;
  deleted: boolean;
  /** Workspaces that would lose their last admin. */
  orphaned: { workspace_id: string; name: string }[];
}

/**
 * Deletes an account. Fails with `not_found`, and with `state_conflict` where it is the last admin
 * of a workspace, or its password was changed since it was verified. Of two last admins who delete
 * themselves at once, one stays.
 */
export async function deleteAccount(
  parts: Parts,
  { accountId, act, passwordHash }: Deletion,
): Promise<void> {
  const id = sql`${accountId}::uuid`;
  const verified = passwordHash === undefined ? sql`true` : sql`password_hash = ${passwordHash}`;
  const ruled = sql`workspace_id IN (
    SELECT workspace_id FROM membership WHERE account_id = ${id} AND role = 'admin')`;
  const admins = membershipLock(sql`role = 'admin' AND ${ruled}`);
  const entries = auditEntries(act, {
    subject: sql`'account:' || gone.id`,
    workspaceId: sql`held.workspace_id`,
    before: sql`jsonb_build_object('role', held.role)`,
    after: sql`NULL::jsonb`,
    from: sql`gone LEFT JOIN held ON true`,
  });
  const lock = sql`SELECT id FROM account WHERE id = ${id}`;
  const results = await batch(parts.database, [
    membershipLock(sql`account_id = ${id} OR role = 'admin' AND ${ruled}`),
    sql`${lock} FOR NO KEY UPDATE`,
    // A rotation holds its token while it waits for the account: the tokens come before it.
    sql`SELECT hash FROM refresh_token WHERE account_id = ${id} ORDER BY hash FOR UPDATE`,
    // From here on nobody gives the account a role, opens a session or makes a token for it.
    sql`${lock} FOR UPDATE`,
    // The admins' rows are locked again, since the account may have joined a workspace meanwhile;
    // those demoted or gone since then drop out.
    sql`
      WITH admins AS (${admins}),
      held AS (SELECT workspace_id, role FROM membership WHERE account_id = ${id}),
      orphaned AS (
        SELECT w.id AS workspace_id, w.name FROM held JOIN workspace w ON w.id = held.workspace_id
         WHERE held.role = 'admin' AND NOT EXISTS (SELECT FROM admins
           WHERE admins.workspace_id = w.id AND admins.account_id <> ${id})),
      gone AS (
        DELETE FROM account WHERE id = ${id} AND ${verified} AND NOT EXISTS (SELECT FROM orphaned)
        RETURNING id, email),
      uncoded AS (
        DELETE FROM node_code USING gone WHERE created_by = gone.id AND used_at IS NULL),
      unenrolled AS (
        DELETE FROM device_code USING gone WHERE created_by = gone.id AND used_at IS NULL),
      uninvited AS (${invitationsEnd(sql`${instant(parts.clock())}`)}),
      unthrottled AS (
        DELETE FROM throttle USING gone WHERE position(' ' || gone.email || ' ' IN key || ' ') > 0),
      logged AS (${entries})
      SELECT EXISTS (SELECT FROM account WHERE id = ${id}) AS known,
        EXISTS (SELECT FROM gone) AS deleted,
        coalesce((SELECT jsonb_agg(o ORDER BY o.name, o.workspace_id) FROM orphaned o), '[]')
          AS orphaned`,
  ]);
  // What the last statement selects.
  const [outcome] = (results.at(-1) ?? []) as unknown as DeletionOutcome[];
  if (!outcome?.known) throw new Failure("not_found", "no account has this id");
  const { deleted, orphaned } = outcome;
  if (deleted) {
    forgetSessions(parts, accountId);
    return;
  }
  if (orphaned.length === 0) {
    throw new Failure("state_conflict", "the password was changed by another request");
  }
  const names = orphaned.map(({ name }) => JSON.stringify(name)).join(", ");
  const detail = `the account is the last admin of ${names}: give somebody else that role first`;
  throw new Failure("state_conflict", detail, { data: { workspaces: orphaned } });
}

/** Ends the invitations for the email of the account that a part `gone` deleted, and erases it. */
const invitationsEnd = (now: SQL): SQL => sql`
  UPDATE invitation SET email = NULL,
    revoked_at = CASE WHEN used_at IS NULL THEN coalesce(revoked_at, ${now}) ELSE revoked_at END
    FROM gone WHERE invitation.email = gone.email`;
