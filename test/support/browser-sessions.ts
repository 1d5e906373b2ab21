// Browsers at the vision service: each keeps the cookie that it was sent, and sends it with what it
// asks.

import { randomBytes } from "node:crypto";
import { expect } from "vitest";
import { SignedInUser } from "../../shared/wire/vision.ts";
import { ask, freshAddress, PASSWORD, type Reply } from "./vision.ts";

const NAME = "__Host-vantage";

/** The header `Cookie` of a session that there never was. */
export const someCookie = () => `${NAME}=${randomBytes(32).toString("base64url")}`;

/** The value and the attributes of the cookie that an answer sets, in order; null: it sets none. */
export function cookieIn({ headers }: Reply): { value: string; attributes: string[] } | null {
  const [pair = "", ...attributes] = (headers.get("Set-Cookie") ?? "").split("; ");
  const value = pair.split(`${NAME}=`)[1];
  return value === undefined ? null : { value, attributes: attributes.toSorted() };
}

export interface Browser {
  /** Value of the cookie. */
  secret: string;
  formToken: string;
  /** Asks by the cookie, and with the form token unless told otherwise. */
  ask(
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<Reply>;
}

/** A tab of a browser that has this cookie. */
export const browserAt = (url: string, secret: string, formToken: string): Browser => ({
  secret,
  formToken,
  ask: (method, path, body, headers = { "X-Form-Token": formToken }) =>
    ask(url, method, path, { body, headers: { Cookie: `${NAME}=${secret}`, ...headers } }),
});

/** Asks for a browser's session. */
export const askToSignIn = (
  url: string,
  { email, password = PASSWORD }: { email: string; password?: string },
  headers: Record<string, string> = { "CF-Connecting-IP": freshAddress() },
) => ask(url, "POST", "/auth/session", { body: { email, password }, headers });

/** Signs in with a browser. */
export async function signIn(
  url: string,
  person: { email: string; password?: string },
): Promise<Browser> {
  const reply = await askToSignIn(url, person);
  expect(reply.status).toBe(201);
  const { form_token } = SignedInUser.parse(reply.body);
  return browserAt(url, cookieIn(reply)?.value ?? "", form_token ?? "");
}
