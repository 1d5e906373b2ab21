// The cookie of a browser's session. Its value is a secret that pages cannot read, and that opens
// nothing elsewhere: it is hashed otherwise than refresh tokens, and is no access token. What
// changes something also needs the session's form token, which no page of another site can read.

import type { Context } from "hono";
import { getCookie, setCookie } from "hono/cookie";
import { Failure } from "../../../shared/errors.ts";
import { Secret } from "../../../shared/secret.ts";
import { DAY } from "../../../shared/time.ts";
import { isFromOwnSite, isReading } from "../../http/browser-request.ts";
import { sameSecret } from "../../http/keys.ts";
import type { Parts } from "../base/parts.ts";
import { sha256, toBase64url } from "./digest.ts";
import { keyedHash } from "./tokens.ts";

/** Browsers take a cookie of this prefix only from its own host, over a secure connection. */
export const SESSION_COOKIE = "__Host-vantage";
/** The header that carries a session's form token. */
export const FORM_HEADER = "X-Form-Token";
/** Milliseconds without a use after which a session ends. */
export const IDLE_MS = 30 * DAY;

/** 32 bytes in base64url. */
const VALUE = /^[\w-]{43}$/;

/** What is stored of a cookie's value: never the hash of a refresh token. */
export const cookieHash = (value: string): Promise<string> => sha256(`cookie ${value}`);

/** The value of a request's cookie; null where it has none, or one that is not ours. */
export function cookieOf(context: Context): string | null {
  const value = getCookie(context, SESSION_COOKIE) ?? "";
  return VALUE.test(value) ? value : null;
}

/** Has the browser keep a session's cookie until 30 days from now. */
export const sendCookie = (context: Context, value: string): void =>
  writeCookie(context, value, IDLE_MS / 1_000);

/** Has the browser remove the cookie. */
export const removeCookie = (context: Context): void => writeCookie(context, "", 0);

const writeCookie = (context: Context, value: string, maxAge: number): void =>
  setCookie(context, SESSION_COOKIE, value, {
    path: "/",
    secure: true,
    httpOnly: true,
    sameSite: "Strict",
    maxAge,
  });

/** The form token of a session: the same for all tabs of the browser. */
export const formTokenOf = async (
  { tokenSecret }: Pick<Parts, "tokenSecret">,
  session: string,
): Promise<string> => toBase64url(await keyedHash(tokenSecret, "form", session));

/** Fails with `form_refused` for a request by a page of another site. */
export function requireOwnSite(context: Context): void {
  if (isFromOwnSite(context)) return;
  throw new Failure("form_refused", "this request came from a page of another site");
}

/**
 * Fails with `form_refused` where a request by a session's cookie changes something and carries no
 * form token of that session.
 */
export async function requireForm(
  context: Context,
  parts: Pick<Parts, "tokenSecret">,
  session: string,
): Promise<void> {
  if (isReading(context)) return;
  const expected = new Secret(await formTokenOf(parts, session));
  if (await sameSecret(context.req.header(FORM_HEADER) ?? "", expected)) return;
  const detail =
    `${FORM_HEADER}: send the form_token that GET /auth/me answers; each new session has ` +
    "another";
  throw new Failure("form_refused", detail);
}
