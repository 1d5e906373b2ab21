// What the database says of the sender of a credential: an access token, a browser's cookie or a
// personal API token. An isolate keeps an answer for a minute, so that what ends a credential takes
// effect within it.

import { type SQL, sql } from "drizzle-orm";
import { DAY, HOUR } from "../../../shared/time.ts";
import type { Role } from "../../../shared/wire/vision.ts";
import { epochMs } from "../../http/database.ts";
import type { Parts } from "../base/parts.ts";
import { instant } from "../base/sql.ts";
import { cookieHash, IDLE_MS } from "./browser-cookie.ts";
import { sha256 } from "./digest.ts";
import type { AccessClaims } from "./tokens.ts";

/** First characters of every API token. */
export const API_TOKEN_PREFIX = "vt_";

/** Milliseconds for which a state is kept. */
const STATE_KEPT_MS = 60_000;
const STATES_MAX = 10_000;
/** Milliseconds between two notes of a token's use. */
const USE_NOTED_MS = HOUR;
/** Milliseconds between two moves of the end of a browser's session. */
const EXTENDED_MS = DAY;

interface CallerState {
  /** When it was read, epoch milliseconds. */
  at: number;
  accountId: string;
  email: string;
  memberships: ReadonlyMap<string, Role>;
  /** Whether the credential has the rights of an admin of the default workspace. */
  operator: boolean;
}

interface SessionState extends CallerState {
  sessionVersion: number;
  sessionEnded: boolean;
}

interface CookieState extends CallerState {
  session: string;
  /** Epoch milliseconds. */
  expiresAt: number;
}

interface ApiTokenState extends CallerState {
  tokenId: string;
  /** The ceiling of its roles; `memberships` are its owner's. */
  role: Role;
  workspaceId: string | null;
  /** Epoch milliseconds. */
  expiresAt: number;
}

interface StateCache {
  /** By account and session. */
  sessions: Map<string, SessionState>;
  /** By the hash of the cookie. */
  cookies: Map<string, CookieState>;
  /** By the hash of the token. */
  apiTokens: Map<string, ApiTokenState>;
}

const caches = new WeakMap<Parts["tokenSecret"], StateCache>();

function cacheOf({ tokenSecret }: Pick<Parts, "tokenSecret">): StateCache {
  const known = caches.get(tokenSecret) ?? {
    sessions: new Map(),
    cookies: new Map(),
    apiTokens: new Map(),
  };
  caches.set(tokenSecret, known);
  return known;
}

function keepState<State>(states: Map<string, State>, key: string, state: State): State {
  // Oldest first: the map keeps the order in which entries were set.
  states.delete(key);
  states.set(key, state);
  for (const oldest of states.keys()) {
    if (states.size <= STATES_MAX) break;
    states.delete(oldest);
  }
  return state;
}

/** Roles of the account `a` by workspace, and whether it is an operator; `scope` limits `m`. */
const standingOf = (scope: SQL): SQL => sql`
  coalesce((SELECT jsonb_object_agg(m.workspace_id, m.role) FROM membership m
    WHERE m.account_id = a.id AND ${scope}), '{}') AS memberships,
  EXISTS (SELECT FROM membership m JOIN workspace w ON w.id = m.workspace_id
    WHERE m.account_id = a.id AND m.role = 'admin' AND w.is_default AND ${scope}) AS operator`;

type AccountRow = { email: string; memberships: Record<string, Role>; operator: boolean };

/** The state of an access token's account and session; null where the account is gone. */
export async function sessionState(
  parts: Parts,
  claims: AccessClaims,
): Promise<SessionState | null> {
  const { sessions } = cacheOf(parts);
  const key = `${claims.accountId} ${claims.session}`;
  const cached = sessions.get(key);
  const now = parts.clock();
  // A token newer than what is known was signed after a change that is not known here yet.
  if (cached && now - cached.at < STATE_KEPT_MS && cached.sessionVersion >= claims.sessionVersion) {
    return cached;
  }
  const { rows } = await parts.database.execute<
    AccountRow & { session_version: number; ended: boolean }
  >(sql`
    SELECT a.email, a.session_version,
      coalesce((SELECT bool_or(revoked_at IS NOT NULL) FROM refresh_token
        WHERE family = ${claims.session}::uuid), true) AS ended,
      ${standingOf(sql`true`)}
      FROM account a WHERE a.id = ${claims.accountId}::uuid`);
  const row = rows[0];
  if (!row) return null;
  return keepState(sessions, key, {
    at: now,
    accountId: claims.accountId,
    email: row.email,
    sessionVersion: row.session_version,
    sessionEnded: row.ended,
    memberships: new Map(Object.entries(row.memberships)),
    operator: row.operator,
  });
}

/**
 * The state of a browser's cookie; null where its session is unknown, ended or expired. A use moves
 * the session's end, by one write a day: `extended` says that this one did.
 */
export async function cookieState(
  parts: Parts,
  value: string,
): Promise<(CookieState & { extended: boolean }) | null> {
  const { cookies } = cacheOf(parts);
  const hash = await cookieHash(value);
  const cached = cookies.get(hash);
  const now = parts.clock();
  if (cached && now - cached.at < STATE_KEPT_MS) {
    return cached.expiresAt > now ? { ...cached, extended: false } : null;
  }
  const living = sql`r.hash = decode(${hash}, 'hex') AND r.revoked_at IS NULL
    AND r.expires_at > ${instant(now)}`;
  const { rows } = await parts.database.execute<
    AccountRow & {
      account_id: string;
      session: string;
      expires_at: number;
      extended_to: number | null;
    }
  >(sql`
    WITH extended AS (
      UPDATE refresh_token r SET expires_at = ${instant(now + IDLE_MS)}
       WHERE ${living} AND r.expires_at <= ${instant(now + IDLE_MS - EXTENDED_MS)}
      RETURNING r.expires_at)
    SELECT a.id::text AS account_id, a.email, r.family::text AS session,
      ${epochMs(sql`r.expires_at`)} AS expires_at,
      (SELECT ${epochMs(sql`expires_at`)} FROM extended) AS extended_to,
      ${standingOf(sql`true`)}
      FROM refresh_token r JOIN account a ON a.id = r.account_id WHERE ${living}`);
  const row = rows[0];
  if (!row) return null;
  const state = keepState(cookies, hash, {
    at: now,
    accountId: row.account_id,
    email: row.email,
    memberships: new Map(Object.entries(row.memberships)),
    operator: row.operator,
    session: row.session,
    expiresAt: row.extended_to ?? row.expires_at,
  });
  return { ...state, extended: row.extended_to !== null };
}

/** The state of an API token; null where it is unknown, revoked or expired. */
export async function apiTokenState(parts: Parts, token: string): Promise<ApiTokenState | null> {
  const { apiTokens } = cacheOf(parts);
  const hash = await sha256(token);
  const cached = apiTokens.get(hash);
  const now = parts.clock();
  if (cached && now - cached.at < STATE_KEPT_MS) return cached.expiresAt > now ? cached : null;
  const unused = sql`(t.last_used_at IS NULL OR t.last_used_at <= ${instant(now - USE_NOTED_MS)})`;
  const { rows } = await parts.database.execute<
    AccountRow & {
      account_id: string;
      token_id: string;
      role: Role;
      workspace_id: string | null;
      expires_at: number;
      unused: boolean;
    }
  >(sql`
    SELECT a.id::text AS account_id, a.email, t.id::text AS token_id, t.role,
      t.workspace_id::text AS workspace_id, ${epochMs(sql`t.expires_at`)} AS expires_at,
      ${unused} AS unused,
      ${standingOf(sql`(t.workspace_id IS NULL OR t.workspace_id = m.workspace_id)`)}
      FROM api_token t JOIN account a ON a.id = t.account_id
     WHERE t.hash = decode(${hash}, 'hex') AND t.expires_at > ${instant(now)}`);
  const row = rows[0];
  if (!row) return null;
  if (row.unused) {
    await parts.database.execute(sql`
      UPDATE api_token t SET last_used_at = ${instant(now)}
       WHERE t.id = ${row.token_id}::uuid AND ${unused}`);
  }
  return keepState(apiTokens, hash, {
    at: now,
    accountId: row.account_id,
    email: row.email,
    memberships: new Map(Object.entries(row.memberships)),
    operator: row.operator && row.role === "admin",
    tokenId: row.token_id,
    role: row.role,
    workspaceId: row.workspace_id,
    expiresAt: row.expires_at,
  });
}

/** Forgets what this isolate knows of an account, so that a change of it takes effect at once. */
export function forgetSessions(parts: Parts, accountId: string): void {
  const { sessions, cookies, apiTokens } = cacheOf(parts);
  for (const states of [sessions, cookies, apiTokens]) {
    for (const [key, state] of states) if (state.accountId === accountId) states.delete(key);
  }
}
