// Access tokens: JWTs of 24 hours, signed with a key derived for this use alone. What a token says
// is believed only as far as the account's session version and the token's session still stand.

import { jwtVerify, SignJWT } from "jose";
import type { Secret } from "../../../shared/secret.ts";
import { DAY } from "../../../shared/time.ts";
import { MARK_MS } from "../../http/throttle.ts";
import type { Parts } from "../base/parts.ts";
import { toHex } from "./digest.ts";

const ACCESS_TOKEN_MS = DAY;

const ALGORITHM = "HS256";
const TYPE = "at+jwt";
const ISSUER = "vantage-vision";
const AUDIENCE = "vantage-vision-api";

export interface AccessClaims {
  accountId: string;
  email: string;
  /** The account's session version when it was signed; a later one ends the token. */
  sessionVersion: number;
  /** Family of the refresh token that it came with. */
  session: string;
}

interface Key {
  id: string;
  bytes: Uint8Array<ArrayBuffer>;
}

// Keys, not promises of them: a promise of one request must not be awaited by another.
const keys = new WeakMap<Secret, Map<string, Key>>();

/**
 * The 256-bit key for one purpose, such as `access`: a token signed for one is nothing for another.
 */
export async function keyFor(secret: Secret, purpose: string): Promise<Key> {
  const known = keys.get(secret) ?? new Map<string, Key>();
  keys.set(secret, known);
  const found = known.get(purpose);
  if (found) return found;
  const text = new TextEncoder();
  const name = { name: "HMAC", hash: "SHA-256" };
  const raw = text.encode(secret.reveal());
  const master = await crypto.subtle.importKey("raw", raw, name, false, ["sign"]);
  const signed = await crypto.subtle.sign("HMAC", master, text.encode(`vantage ${purpose} v1`));
  const bytes = new Uint8Array(signed);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const key = { id: toHex(digest.subarray(0, 6)), bytes };
  known.set(purpose, key);
  return key;
}

/** HMAC-SHA-256 of a text with the key of one purpose: without the secret nobody can tell it. */
export async function keyedHash(
  secret: Secret,
  purpose: string,
  text: string,
): Promise<Uint8Array> {
  const { bytes } = await keyFor(secret, purpose);
  const name = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", bytes, name, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(text)));
}

/** A new access token. */
export async function signAccess(
  { tokenSecret, clock }: Pick<Parts, "tokenSecret" | "clock">,
  claims: AccessClaims,
): Promise<string> {
  const key = await keyFor(tokenSecret, "access");
  const seconds = Math.floor(clock() / 1000);
  return new SignJWT({ email: claims.email, sv: claims.sessionVersion, sid: claims.session })
    .setProtectedHeader({ alg: ALGORITHM, typ: TYPE, kid: key.id })
    .setSubject(claims.accountId)
    .setJti(crypto.randomUUID())
    .setIssuer(ISSUER)
    .setAudience(AUDIENCE)
    .setIssuedAt(seconds)
    .setExpirationTime(seconds + ACCESS_TOKEN_MS / 1000)
    .sign(key.bytes);
}

/**
 * What a token of ours claims, or null for any other: expired (longer ago than `lateMsMax`),
 * forged, of another kind or key.
 */
export async function verifyAccess(
  { tokenSecret, clock }: Pick<Parts, "tokenSecret" | "clock">,
  token: string,
  lateMsMax = 0,
): Promise<AccessClaims | null> {
  const key = await keyFor(tokenSecret, "access");
  const verified = await jwtVerify(token, key.bytes, {
    algorithms: [ALGORITHM],
    typ: TYPE,
    issuer: ISSUER,
    audience: AUDIENCE,
    requiredClaims: ["sub", "jti", "iat", "exp", "sv", "sid"],
    currentDate: new Date(clock()),
    clockTolerance: lateMsMax / 1000,
  }).catch(() => null);
  if (!verified || verified.protectedHeader.kid !== key.id) return null;
  const { sub, email, sv, sid } = verified.payload;
  if (typeof sub !== "string" || typeof email !== "string") return null;
  if (typeof sv !== "number" || typeof sid !== "string") return null;
  return { accountId: sub, email, sessionVersion: sv, session: sid };
}

/**
 * What a token for an email claims, expired or ended though its session may be; null for any other
 * text. It lets nobody in: it says that its sender was let in once, to the account of its id. The
 * email may be another account's since, where that one was deleted.
 */
export async function formerClaims(
  parts: Pick<Parts, "tokenSecret" | "clock">,
  { email, token }: { email: string; token: string | undefined },
): Promise<AccessClaims | null> {
  const claims = token === undefined ? null : await verifyAccess(parts, token, MARK_MS);
  return claims?.email === email ? claims : null;
}
