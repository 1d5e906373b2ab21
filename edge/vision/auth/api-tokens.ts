// Personal API tokens: long-lived credentials of programs that act for a person. Only the hash of a
// token is stored. It ends when it expires, when it is revoked, and with its owner's account.

import { type SQL, sql } from "drizzle-orm";
import { apiToken } from "../../../db/vision/schema.ts";
import { Failure } from "../../../shared/errors.ts";
import { DAY } from "../../../shared/time.ts";
import type { Role } from "../../../shared/wire/vision.ts";
import { batch } from "../../http/database.ts";
import { columnsOf, type RowOf, rowsOf, selection } from "../../http/selection.ts";
import type { Parts } from "../base/parts.ts";
import { instant } from "../base/sql.ts";
import { type Act, auditEntries } from "./audit.ts";
import { API_TOKEN_PREFIX, forgetSessions } from "./caller-state.ts";
import { randomText, sha256 } from "./digest.ts";
import { sessionStands } from "./guests.ts";
import type { Caller } from "./scope.ts";

const TOKEN_BYTES = 32;
/** Characters that are shown: the prefix and six more, which tell nothing of the rest. */
const SHOWN_CHARACTERS = API_TOKEN_PREFIX.length + 6;
/** Tokens of an account that have not expired. */
export const API_TOKENS_MAX = 50;

const t = columnsOf(apiToken, "t");
const TOKEN = selection({
  token_id: t.id,
  name: t.name,
  prefix: t.prefix,
  role: t.role,
  workspace_id: t.workspaceId,
  created_at: t.createdAt,
  expires_at: t.expiresAt,
  last_used_at: t.lastUsedAt,
});
/** An API token as the wire has it. */
export type ApiToken = RowOf<typeof TOKEN>;

/**
 * The entries of a token `t` that a statement made or revoked: one in each workspace where it has
 * the role engineer or admin. The token's name is left out, as it is the words of a person.
 */
const tokenEntries = (act: Act, { before, after }: { before: SQL; after: SQL }): SQL =>
  auditEntries(act, {
    subject: sql`'account:' || t.account_id`,
    workspaceId: sql`m.workspace_id`,
    before,
    after,
    from: sql`t JOIN membership m ON m.account_id = t.account_id
        AND (t.workspace_id IS NULL OR t.workspace_id = m.workspace_id)
        AND m.role IN ('engineer', 'admin') AND t.role IN ('engineer', 'admin')`,
  });

/** The fields of a token in the log; its role is the one that it has in that workspace. */
const LOGGED_TOKEN = sql`jsonb_build_object('token_id', t.id,
  'role', CASE WHEN m.role = 'admin' THEN t.role ELSE m.role END)`;

/** An API token that is to be made. */
interface NewApiToken {
  caller: Caller;
  name: string;
  role: Role;
  /** The only workspace that it sees; null: all of its owner's. */
  workspaceId: string | null;
  days: number;
  act: Act;
}

/**
 * Makes an API token, whose text is answered only here. Fails with `quota_exceeded` where the
 * account has as many as it may have, and with `unauthorized` where the caller's session has ended:
 * an access token that is accepted for a minute longer must not become one of a year.
 */
export async function createApiToken(
  parts: Parts,
  { caller, name, role, workspaceId, days, act }: NewApiToken,
): Promise<ApiToken & { token: string }> {
  const token = API_TOKEN_PREFIX + randomText(TOKEN_BYTES);
  const now = parts.clock();
  const owner = sql`${caller.accountId}::uuid`;
  const living = sql`SELECT count(*)::int AS count FROM api_token
    WHERE account_id = ${owner} AND expires_at > ${instant(now)}`;
  const entries = tokenEntries(act, {
    before: sql`NULL::jsonb`,
    after: sql`${LOGGED_TOKEN} || jsonb_build_object('expires_at', ${t.expiresAt})`,
  });
  const statement = sql`
    WITH t AS (
      INSERT INTO api_token
        (id, hash, account_id, workspace_id, name, prefix, role, created_at, expires_at)
      SELECT ${crypto.randomUUID()}::uuid, decode(${await sha256(token)}, 'hex'), account.id,
        ${workspaceId}::uuid, ${name}::text, ${token.slice(0, SHOWN_CHARACTERS)}, ${role},
        ${instant(now)}, ${instant(now + days * DAY)} FROM account
       WHERE account.id = ${owner} AND (${living}) < ${API_TOKENS_MAX}::int
         AND ${sessionStands(sql`${caller.session}::uuid`, owner)}
      RETURNING *),
    logged AS (${entries})
    SELECT ${TOKEN} FROM t`;
  // Where two make the last one at once, the second counts the first's. Whatever ends all sessions
  // holds the same lock, and is seen.
  const lock = sql`SELECT FROM account WHERE id = ${owner} FOR NO KEY UPDATE`;
  const [, [made]] = await batch<[unknown, ApiToken]>(parts.database, [lock, statement]);
  if (made) return { ...made, token };
  const { rows } = await parts.database.execute<{ count: number }>(living);
  if ((rows[0]?.count ?? 0) < API_TOKENS_MAX) {
    throw new Failure("unauthorized", "the session has ended; log in again");
  }
  const detail = `you have ${API_TOKENS_MAX} API tokens, the most that an account has: revoke one`;
  throw new Failure("quota_exceeded", detail, { data: { tokens_max: API_TOKENS_MAX } });
}

/** An account's API tokens that have not expired, the newest first. */
export async function listApiTokens(parts: Parts, accountId: string): Promise<ApiToken[]> {
  return await rowsOf(parts.database, TOKEN)`
    SELECT ${TOKEN} FROM api_token t
     WHERE t.account_id = ${accountId}::uuid AND t.expires_at > ${instant(parts.clock())}
     ORDER BY t.created_at DESC, t.id`;
}

/** Revokes an API token of an account; fails with `not_found` where it has none of that id. */
export async function revokeApiToken(
  parts: Parts,
  { accountId, tokenId, act }: { accountId: string; tokenId: string; act: Act },
): Promise<void> {
  const entries = tokenEntries(act, { before: LOGGED_TOKEN, after: sql`NULL::jsonb` });
  const { rows } = await parts.database.execute(sql`
    WITH t AS (
      DELETE FROM api_token WHERE id = ${tokenId}::uuid AND account_id = ${accountId}::uuid
      RETURNING *),
    logged AS (${entries})
    SELECT t.id FROM t`);
  forgetSessions(parts, accountId);
  if (rows.length === 0) throw new Failure("not_found", "you have no API token of this id");
}
