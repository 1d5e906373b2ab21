// Who is calling and what they may do. Every room filters its rows by the caller's workspaces, so
// what belongs to another tenant is the same 404 as what does not exist.

import { type SQL, sql } from "drizzle-orm";
import type { Context, MiddlewareHandler } from "hono";
import { assert, Failure } from "../../../shared/errors.ts";
import { ROLES, type Role } from "../../../shared/wire/vision.ts";
import { isFromOwnSite, isReading } from "../../http/browser-request.ts";
import type { Parts } from "../base/parts.ts";
import { idList } from "../base/sql.ts";
import { cookieOf, requireForm, requireOwnSite, sendCookie } from "./browser-cookie.ts";
import { API_TOKEN_PREFIX, apiTokenState, cookieState, sessionState } from "./caller-state.ts";
import { verifyAccess } from "./tokens.ts";

/** Who sent a request. */
export interface Caller {
  accountId: string;
  email: string;
  /** Role by workspace id. */
  memberships: ReadonlyMap<string, Role>;
  /** Admin of the default workspace: runs the installation. */
  operator: boolean;
  /** Family of the session's refresh tokens or cookie; the id of an API token. */
  session: string;
  /** Whether the session's cookie sent the request, and no token. */
  byCookie: boolean;
  /** The API token that sent the request, and the only workspace that it sees; null: a session. */
  apiToken: { tokenId: string; workspaceId: string | null } | null;
}

/**
 * Lets a request pass only with a valid access or API token, or where no `Authorization` is sent
 * with the cookie of a session, and sets what `callerOf` reads.
 */
export const authenticate: MiddlewareHandler = async (context, next) => {
  const parts = context.get("service") as Parts;
  const given = context.req.header("Authorization");
  if (given === undefined) return byCookie(context, parts, next);
  const token = /^Bearer ([\w.~+/=-]+)$/i.exec(given)?.[1];
  const caller = token ? await resolveCaller(parts, token) : null;
  if (!caller) throw noCredential(context);
  context.set("caller", caller);
  await next();
};

const TOKEN_WANTED = "send a valid access token as Authorization: Bearer";
const SESSION_OVER =
  "the cookie is of no session that lasts, or a page of another site sent it; log in with " +
  "POST /auth/session";

function noCredential(context: Context, detail = TOKEN_WANTED): Failure {
  context.header("WWW-Authenticate", 'Bearer realm="vantage"');
  return new Failure("unauthorized", detail);
}

/**
 * Lets a request pass with the cookie of a session. Pages of other sites read nothing by it, as if
 * it were not sent, and change nothing: `form_refused`.
 */
async function byCookie(context: Context, parts: Parts, next: () => Promise<void>): Promise<void> {
  const value = cookieOf(context);
  if (value === null) throw noCredential(context);
  if (!isReading(context)) requireOwnSite(context);
  const known = isFromOwnSite(context) ? await cookieState(parts, value) : null;
  if (!known) throw noCredential(context, SESSION_OVER);
  await requireForm(context, parts, known.session);
  const caller: Caller = {
    accountId: known.accountId,
    email: known.email,
    memberships: known.memberships,
    operator: known.operator,
    session: known.session,
    byCookie: true,
    apiToken: null,
  };
  context.set("caller", caller);
  await next();
  // Sent after the answer is made: handlers make some answers without the context's headers.
  if (known.extended) sendCookie(context, value);
}

/** Who called a route that `authenticate` guards: its `context.var.caller`, with its type. */
export function callerOf(context: Pick<Context, "get">): Caller {
  const caller = context.get("caller") as Caller | undefined;
  assert(caller, "a route that asks for its caller is guarded by authenticate");
  return caller;
}

/** The caller behind a token, or null when the token or its session is no more. */
async function resolveCaller(parts: Parts, token: string): Promise<Caller | null> {
  if (token.startsWith(API_TOKEN_PREFIX)) return apiTokenCaller(parts, token);
  const claims = await verifyAccess(parts, token);
  if (!claims) return null;
  const known = await sessionState(parts, claims);
  if (!known || known.sessionEnded || known.sessionVersion !== claims.sessionVersion) return null;
  return {
    accountId: claims.accountId,
    email: known.email,
    memberships: known.memberships,
    operator: known.operator,
    session: claims.session,
    byCookie: false,
    apiToken: null,
  };
}

/** The caller behind an API token: in each workspace with the lower role of it and its owner. */
async function apiTokenCaller(parts: Parts, token: string): Promise<Caller | null> {
  const known = await apiTokenState(parts, token);
  if (!known) return null;
  const { accountId, email, memberships, operator, tokenId, workspaceId, role } = known;
  const lower = (held: Role): Role => (covers(role, held) ? held : role);
  return {
    accountId,
    email,
    memberships: new Map([...memberships].map(([id, held]) => [id, lower(held)])),
    operator,
    session: tokenId,
    byCookie: false,
    apiToken: { tokenId, workspaceId },
  };
}

const covers = (role: Role, needed: Role) => ROLES.indexOf(role) >= ROLES.indexOf(needed);

/**
 * Passes when the caller has at least this role in the workspace. A stranger to the workspace gets
 * `not_found`; a member whose role is too small gets `forbidden`.
 */
export function allow(caller: Caller, workspaceId: string, role: Role): void {
  const held = caller.memberships.get(workspaceId);
  if (!held) throw new Failure("not_found", "nothing by this id in your workspaces");
  if (covers(held, role)) return;
  throw new Failure("forbidden", `this needs the role ${role} in the workspace; yours is ${held}`, {
    data: { role_needed: role, role: held, workspace_id: workspaceId },
  });
}

/** What an admin rules: the installation, as its operator, or the workspaces of these ids. */
export type Realm = "installation" | readonly string[];

/**
 * What the caller of an admin route rules. Fails with `forbidden` for who is admin of no workspace.
 */
export function realmOf(caller: Caller): Realm {
  if (caller.operator) return "installation";
  const workspaces = workspacesOf(caller, "admin");
  if (workspaces.length > 0) return workspaces;
  throw new Failure("forbidden", "this needs the role admin in at least one workspace", {
    data: { role_needed: "admin" },
  });
}

/** Whether a row's workspace is of a realm; one that is of no workspace is the operators'. */
export const within = (realm: Realm, workspaceId: SQL): SQL =>
  realm === "installation" ? sql`true` : sql`${workspaceId} IN ${idList(realm)}`;

/** Ids of the workspaces in which the caller has at least this role; the filter of every read. */
export const workspacesOf = (caller: Caller, role: Role = "viewer"): string[] =>
  [...caller.memberships].filter(([, held]) => covers(held, role)).map(([id]) => id);

/**
 * The workspaces of a request that names no thing of one: the named one, or all in which the caller
 * has the role. Fails with `forbidden` where there is none; with `not_found` for who reads.
 */
export function workspacesFor(caller: Caller, named: string | undefined, role: Role): string[] {
  if (named !== undefined) {
    allow(caller, named, role);
    return [named];
  }
  const workspaces = workspacesOf(caller, role);
  if (workspaces.length > 0) return workspaces;
  if (role === "viewer") throw new Failure("not_found", "you are in no workspace");
  throw new Failure("forbidden", `this needs the role ${role}`, { data: { role_needed: role } });
}

/** The one workspace of such a request; fails with `invalid_request` where several are possible. */
export function workspaceFor(caller: Caller, named: string | undefined, role: Role): string {
  const [only = "", ...others] = workspacesFor(caller, named, role);
  if (others.length === 0) return only;
  throw new Failure("invalid_request", "workspace_id: required, since several are possible");
}
