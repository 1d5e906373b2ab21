// Sessions: families of refresh tokens, or of the one secret in a browser's cookie, which has a row
// like theirs under a hash of another kind. A refresh token is valid until it expires, its session
// ends or a rotation replaces it. A replaced token that is sent again was copied, by its first
// sender or by its second, so its whole family ends.

import { type SQL, sql } from "drizzle-orm";
import {
  apiToken,
  idempotentAnswer,
  invitation,
  passwordReset,
  refreshToken,
  throttle,
} from "../../../db/vision/schema.ts";
import { Failure } from "../../../shared/errors.ts";
import { DAY, iso } from "../../../shared/time.ts";
import type { TokenPair } from "../../../shared/wire/vision.ts";
import { batch, epochMs } from "../../http/database.ts";
import type { Parts } from "../base/parts.ts";
import { keep } from "../base/retention.ts";
import type { Account } from "./accounts.ts";
import { cookieHash, IDLE_MS } from "./browser-cookie.ts";
import { forgetSessions } from "./caller-state.ts";
import { randomText, sha256, toBase64url } from "./digest.ts";
import { LISTED_DAYS } from "./invitations.ts";
import { keyedHash, signAccess } from "./tokens.ts";

const REFRESH_TOKEN_MS = 30 * DAY;
/** Milliseconds within which a rotation may be repeated, for a client that lost the answer. */
const GRACE_MS = 10_000;

const at = (instant: number) => sql`${iso(instant)}::timestamptz`;

/**
 * The token that follows another. It is a function of it, so that a repeated request is answered
 * alike; without the key it is 256 bits that nobody can tell.
 */
async function successor(parts: Parts, token: string): Promise<string> {
  return toBase64url(await keyedHash(parts.tokenSecret, "refresh", token));
}

interface Holder {
  accountId: string;
  email: string;
  sessionVersion: number;
}

async function pair(
  parts: Parts,
  { session, refreshToken, ...holder }: Holder & { session: string; refreshToken: string },
): Promise<TokenPair> {
  return {
    access_token: await signAccess(parts, { ...holder, session }),
    refresh_token: refreshToken,
    token_type: "bearer",
  };
}

/**
 * Begins a session. Fails with `unauthorized` when the account's sessions were ended since the
 * holder was read: what let him in may hold no longer.
 */
export async function openSession(parts: Parts, holder: Holder): Promise<TokenPair> {
  const refreshToken = randomText(32);
  const session = await beginFamily(parts, holder, {
    hash: await sha256(refreshToken),
    lastsMs: REFRESH_TOKEN_MS,
  });
  return pair(parts, { ...holder, session, refreshToken });
}

/** Begins a browser's session under the same condition; returns the value of its cookie. */
export async function openBrowserSession(
  parts: Parts,
  holder: Holder,
): Promise<{ session: string; cookie: string }> {
  const cookie = randomText(32);
  const hash = await cookieHash(cookie);
  return { cookie, session: await beginFamily(parts, holder, { hash, lastsMs: IDLE_MS }) };
}

/** Begins a session by its first secret, of this hash; returns its family. */
async function beginFamily(
  parts: Parts,
  holder: Holder,
  { hash, lastsMs }: { hash: string; lastsMs: number },
): Promise<string> {
  const session = crypto.randomUUID();
  const now = parts.clock();
  // The lock lets whoever ends all sessions see this one, or this one see that they ended.
  const { rows } = await parts.database.execute(sql`
    INSERT INTO refresh_token (hash, family, account_id, created_at, expires_at)
    SELECT decode(${hash}, 'hex'), ${session}::uuid, id, ${at(now)}, ${at(now + lastsMs)}
      FROM account
     WHERE id = ${holder.accountId}::uuid AND session_version = ${holder.sessionVersion}::int
       FOR SHARE RETURNING family`);
  if (rows.length === 0) {
    throw new Failure("unauthorized", "the account was changed meanwhile; log in again");
  }
  return session;
}

/**
 * One ended token ends all of its family: the statement that ended them sees none that was being
 * made at that moment.
 */
const FAMILY_ENDED = sql`EXISTS (SELECT FROM refresh_token one
  WHERE one.family = refresh_token.family AND one.revoked_at IS NOT NULL)`;

/** A request for a fresh access token. */
interface Refresh {
  refreshToken: string;
  /** Whether a new refresh token replaces the one sent. */
  rotate: boolean;
}

/**
 * Answers a fresh access token with the same refresh token, or with its replacement. Fails with
 * `unauthorized` for a token that is unknown, expired or of an ended session, and for a token that
 * was replaced before, which ends its session.
 */
export async function refreshSession(
  parts: Parts,
  { refreshToken, rotate }: Refresh,
): Promise<TokenPair> {
  const refused = new Failure("unauthorized", "the refresh token is not valid; log in again");
  const next = await successor(parts, refreshToken);
  const now = parts.clock();
  const { rows } = await parts.database.execute<{
    account_id: string;
    family: string;
    email: string;
    session_version: number;
    used_now: boolean;
    used_at: number | null;
    usable: boolean;
  }>(sql`
    WITH used AS (
      UPDATE refresh_token SET used_at = ${at(now)}
       WHERE ${rotate}::boolean AND hash = decode(${await sha256(refreshToken)}, 'hex') AND used_at IS NULL
         AND expires_at > ${at(now)} AND NOT ${FAMILY_ENDED}
      RETURNING hash, family, account_id),
    next AS (
      INSERT INTO refresh_token (hash, family, account_id, created_at, expires_at)
      SELECT decode(${await sha256(next)}, 'hex'), family, account_id, ${at(now)},
        ${at(now + REFRESH_TOKEN_MS)} FROM used)
    SELECT refresh_token.account_id::text, refresh_token.family::text, a.email, a.session_version,
        EXISTS (SELECT FROM used) AS used_now,
        ${epochMs(sql`refresh_token.used_at`)} AS used_at,
        refresh_token.expires_at > ${at(now)} AND NOT ${FAMILY_ENDED} AS usable
      FROM refresh_token JOIN account a ON a.id = refresh_token.account_id
     WHERE refresh_token.hash = decode(${await sha256(refreshToken)}, 'hex')`);
  const row = rows[0];
  if (!row?.usable) throw refused;
  // A rotation that neither used the token nor saw it as used: another rotated it just now.
  const usedAt = row.used_now ? now : (row.used_at ?? now);
  if (now - usedAt > GRACE_MS) {
    parts.log.warning("refresh_token_reused", { account_id: row.account_id });
    await endSession(parts, row.account_id, row.family);
    throw refused;
  }
  return pair(parts, {
    accountId: row.account_id,
    email: row.email,
    sessionVersion: row.session_version,
    session: row.family,
    refreshToken: rotate || row.used_at !== null ? next : refreshToken,
  });
}

/** Ends one session: its refresh tokens at once, access tokens and cookies within a minute. */
export async function endSession(parts: Parts, accountId: string, session: string): Promise<void> {
  await parts.database.execute(sql`
    UPDATE refresh_token SET revoked_at = ${at(parts.clock())}
     WHERE family = ${session}::uuid AND account_id = ${accountId}::uuid AND revoked_at IS NULL`);
  forgetSessions(parts, accountId);
}

/** Ends every session of an account. */
export async function endAllSessions(parts: Parts, accountId: string): Promise<void> {
  await endAll(parts, accountId, sql`true`, sql``);
}

/**
 * Changes an account's password and ends every session; returns the session version that new ones
 * are of, or null when the password was changed since the account was read.
 */
export function changePassword(
  parts: Parts,
  account: Pick<Account, "accountId" | "passwordHash">,
  passwordHash: string,
): Promise<number | null> {
  const unchanged = sql`password_hash = ${account.passwordHash}`;
  return endAll(parts, account.accountId, unchanged, sql`, password_hash = ${passwordHash}`);
}

/**
 * In one transaction: the account first, so that the second statement sees every session. A code to
 * reset the password ends, too: who sent it may have been overheard.
 */
async function endAll(
  parts: Parts,
  accountId: string,
  condition: SQL,
  change: SQL,
): Promise<number | null> {
  const { database, clock } = parts;
  const [rows] = await batch<[{ session_version: number }, unknown, unknown]>(database, [
    sql`
      UPDATE account SET session_version = session_version + 1${change}
       WHERE id = ${accountId}::uuid AND ${condition} RETURNING session_version`,
    // Only when the first one changed the row, in this transaction; so do the others.
    sql`
      UPDATE refresh_token SET revoked_at = ${at(clock())} FROM account
       WHERE account.id = ${accountId}::uuid AND account.xmin = pg_current_xact_id()::xid
         AND refresh_token.account_id = account.id AND revoked_at IS NULL`,
    sql`
      DELETE FROM password_reset USING account
       WHERE account.id = ${accountId}::uuid AND account.xmin = pg_current_xact_id()::xid
         AND password_reset.account_id = account.id`,
  ]);
  forgetSessions(parts, accountId);
  return rows[0]?.session_version ?? null;
}

/** What no longer means anything: expired tokens, ended windows of throttles, old answers. */
export const KEPT_FOR_LOGIN = [
  keep(refreshToken, "expiresAt", { days: 1 }),
  keep(apiToken, "expiresAt", { days: 1 }),
  keep(passwordReset, "expiresAt", { days: 1 }),
  keep(throttle, "windowEndsAt", { days: 0 }),
  keep(idempotentAnswer, "createdAt", { days: 1 }),
  keep(invitation, "expiresAt", { days: LISTED_DAYS }),
];
