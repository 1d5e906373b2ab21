// Keys and tokens at the door: constant-time comparison and the 401 that says what to send.

import type { MiddlewareHandler } from "hono";
import { Failure } from "../../shared/errors.ts";
import type { Secret } from "../../shared/secret.ts";

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
  expected: (context: Parameters<MiddlewareHandler>[0]) => Secret | undefined,
) {
  return requireSecret(expected, (context) => context.req.header("X-API-Key"), {
    advice: "send a valid key in the X-API-Key header",
    scheme: 'ApiKey header="X-API-Key"',
  });
}

/** Lets a request pass only with `Authorization: Bearer <token>`. */
export function requireBearer(expected: (context: Parameters<MiddlewareHandler>[0]) => Secret) {
  return requireSecret(
    expected,
    (context) => /^Bearer (.+)$/i.exec(context.req.header("Authorization") ?? "")?.[1],
    { advice: "send a valid token as Authorization: Bearer", scheme: "Bearer" },
  );
}

type Context = Parameters<MiddlewareHandler>[0];

function requireSecret(
  expected: (context: Context) => Secret | undefined,
  given: (context: Context) => string | undefined,
  { advice, scheme }: { advice: string; scheme: string },
): MiddlewareHandler {
  return async (context, next) => {
    const secret = expected(context);
    if (secret && !(await sameSecret(given(context) ?? "", secret))) {
      context.header("WWW-Authenticate", scheme);
      throw new Failure("unauthorized", advice);
    }
    await next();
  };
}
