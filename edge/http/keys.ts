// Keys and tokens at the door: constant-time comparison and the 401 that says what to send.

import type { MiddlewareHandler } from "hono";
import { Failure } from "../../shared/errors.ts";
import type { Secret } from "../../shared/secret.ts";

type Context = Parameters<MiddlewareHandler>[0];

/** Constant-time equality: both sides are hashed first, so neither length nor prefix leaks. */
export async function sameSecret(given: string, expected: Secret): Promise<boolean> {
  const digest = async (text: string) =>
    new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
  const [left, right] = await Promise.all([digest(given), digest(expected.reveal())]);
  return left.reduce((different, byte, index) => different | (byte ^ (right[index] ?? 0)), 0) === 0;
}

/**
 * Lets a request pass only with the expected `X-API-Key`; with no key configured, every request.
 */
export function requireApiKey(
  expected: (context: Context) => Secret | undefined,
): MiddlewareHandler {
  return async (context, next) => {
    const secret = expected(context);
    if (secret && !(await sameSecret(context.req.header("X-API-Key") ?? "", secret))) {
      context.header("WWW-Authenticate", 'ApiKey header="X-API-Key"');
      throw new Failure("unauthorized", "send a valid key in the X-API-Key header");
    }
    await next();
  };
}

/** A token and whose it is. */
export interface TokenHolder {
  name: string;
  token: Secret;
}

/** Who holds a token, or null. It is compared with all, so that the time says nothing. */
export async function holderOf(
  given: string,
  holders: readonly TokenHolder[],
): Promise<TokenHolder | null> {
  const matches = await Promise.all(holders.map(({ token }) => sameSecret(given, token)));
  return holders[matches.indexOf(true)] ?? null;
}

/** The token of `Authorization: Bearer <token>`; empty without one. */
export const bearerOf = (context: Context): string =>
  /^Bearer (.+)$/i.exec(context.req.header("Authorization") ?? "")?.[1] ?? "";

/** The refusal of a request without a right token. */
export function bearerRefusal(context: Context): Failure {
  context.header("WWW-Authenticate", "Bearer");
  return new Failure("unauthorized", "send a valid token as Authorization: Bearer");
}

/** Lets a request pass only with `Authorization: Bearer <token>` of one of the holders. */
export function requireBearer(
  holders: (context: Context) => readonly TokenHolder[],
): MiddlewareHandler {
  return async (context, next) => {
    if (!(await holderOf(bearerOf(context), holders(context)))) throw bearerRefusal(context);
    await next();
  };
}
