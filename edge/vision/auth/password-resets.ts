// Passwords that are reset by a code. An account may have rights in several workspaces, so only an
// operator makes a code. It is stored as its hash, works once, and ends by itself, by a newer code
// for the account, or when its maker is no operator any more.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import { HOUR, iso } from "../../../shared/time.ts";
import { batch } from "../../http/database.ts";
import type { Parts } from "../base/parts.ts";
import { instant } from "../base/sql.ts";
import { type Act, type ActorKind, actorKindOf, auditEntries } from "./audit.ts";
import { forgetSessions } from "./caller-state.ts";
import { randomText, sha256 } from "./digest.ts";
import { checkPassword, hashPassword } from "./passwords.ts";

const CODE_PREFIX = "vpr_";
const CODE_BYTES = 16;
/** Hours for which a code works. */
export const RESET_HOURS = 24;

/** A code that works at an instant: a row of `password_reset` `r`. */
const opens = async (code: string, now: number): Promise<SQL> => sql`
  r.hash = decode(${await sha256(code)}, 'hex') AND r.expires_at > ${instant(now)}
  AND ${actorKindOf(sql`r.created_by`)} = 'operator'`;

/** Makes the code of an account, in place of an older one; fails with `not_found`. */
export async function createPasswordReset(
  { database, clock }: Parts,
  { accountId, act }: { accountId: string; act: Act },
): Promise<{ code: string; expires_at: string }> {
  const code = CODE_PREFIX + randomText(CODE_BYTES);
  const now = clock();
  const expiresAt = iso(now + RESET_HOURS * HOUR);
  const entries = auditEntries(act, {
    subject: sql`'account:' || made.account_id`,
    workspaceId: sql`m.workspace_id`,
    before: sql`NULL::jsonb`,
    after: sql`jsonb_build_object('expires_at', ${expiresAt}::text)`,
    from: sql`made LEFT JOIN membership m ON m.account_id = made.account_id`,
  });
  const { rows } = await database.execute(sql`
    WITH made AS (
      INSERT INTO password_reset (account_id, hash, created_by, created_at, expires_at)
      SELECT id, decode(${await sha256(code)}, 'hex'), ${act.actorId}::uuid, ${instant(now)},
        ${expiresAt}::timestamptz FROM account WHERE id = ${accountId}::uuid FOR KEY SHARE
      ON CONFLICT (account_id) DO UPDATE SET hash = excluded.hash, created_by = excluded.created_by,
        created_at = excluded.created_at, expires_at = excluded.expires_at
      RETURNING account_id),
    logged AS (${entries})
    SELECT account_id FROM made`);
  if (rows.length === 0) throw new Failure("not_found", "no account has this id");
  return { code, expires_at: expiresAt };
}

/**
 * Sets the password of a code's account, and ends all its sessions and API tokens: a reset is also
 * the remedy after a theft. Fails with `bad_credentials` for a code that is unknown, used, replaced
 * or expired, and with `invalid_request` for a password that is refused, which uses no code up.
 */
export async function resetPassword(
  parts: Parts,
  { code, password, requestId }: { code: string; password: string; requestId: string },
): Promise<void> {
  const refused = new Failure(
    "bad_credentials",
    "the code is unknown, used, replaced or expired; ask an operator for a new one",
  );
  const now = parts.clock();
  const { rows } = await parts.database.execute<{ id: string; email: string; kind: ActorKind }>(sql`
    SELECT a.id::text, a.email, ${actorKindOf(sql`a.id`)} AS kind
      FROM password_reset r JOIN account a ON a.id = r.account_id WHERE ${await opens(code, now)}`);
  const [found] = rows;
  if (!found) throw refused;
  checkPassword(password, found.email);
  const passwordHash = await hashPassword(password);
  const act: Act = {
    action: "resetPassword",
    actorId: found.id,
    actorKind: found.kind,
    requestId,
  };
  const entries = auditEntries(act, {
    subject: sql`'account:' || used.account_id`,
    workspaceId: sql`m.workspace_id`,
    before: sql`NULL::jsonb`,
    after: sql`jsonb_build_object('sessions_ended', true,
      'api_tokens_revoked', (SELECT count(*) FROM revoked))`,
    from: sql`used LEFT JOIN membership m ON m.account_id = used.account_id`,
  });
  // Locked first, so that the statement sees every session and API token that was made before.
  const lock = sql`SELECT FROM account WHERE id = ${found.id}::uuid FOR NO KEY UPDATE`;
  const [, used] = await batch(parts.database, [
    lock,
    sql`
      WITH used AS (
        DELETE FROM password_reset r WHERE ${await opens(code, now)} RETURNING account_id),
      changed AS (
        UPDATE account SET password_hash = ${passwordHash}, session_version = session_version + 1
          FROM used WHERE account.id = used.account_id),
      ended AS (
        UPDATE refresh_token SET revoked_at = ${instant(now)} FROM used
         WHERE refresh_token.account_id = used.account_id AND revoked_at IS NULL),
      revoked AS (
        DELETE FROM api_token USING used WHERE api_token.account_id = used.account_id
        RETURNING api_token.id),
      logged AS (${entries})
      SELECT account_id FROM used`,
  ]);
  if (used?.length !== 1) throw refused;
  forgetSessions(parts, found.id);
}
