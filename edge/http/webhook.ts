// Webhooks, signed by the Standard Webhooks specification: a receiver knows who sent a message and
// when, and drops one that comes twice by its id. One attempt stands here; when there is another,
// and what is told, is the service's.

import type { Secret } from "../../shared/secret.ts";
import { type Resolve, targetProblem, urlProblem } from "./public-address.ts";

/** Where messages go. */
export interface WebhookTarget {
  /** Some receivers' addresses are secrets themselves. */
  url: Secret;
  /** `whsec_` and base64, or any text of 24 characters or more; null signs nothing. */
  secret: Secret | null;
  /** Further headers, such as what opens the receiver; none of them replaces one of ours. */
  headers?: Readonly<Record<string, Secret>>;
  /** True: addresses of private networks and plain HTTP are allowed, for a stack on one machine. */
  allowPrivate: boolean;
  resolve: Resolve;
}

/** A message; its id stays the same in every attempt. */
export interface WebhookMessage {
  id: string;
  body: string;
}

const SECRET_CHARACTERS_MIN = 24;
const SECRET_BYTES_MIN = 24;
const TIMEOUT_MS = 5_000;
const PREFIX = "whsec_";

const encoder = new TextEncoder();

/** The bytes of a secret, or null where it is none: too short, or not base64 after its prefix. */
function keyOf(secret: string): Uint8Array<ArrayBuffer> | null {
  if (!secret.startsWith(PREFIX)) {
    const bytes = Uint8Array.from(encoder.encode(secret));
    return secret.length < SECRET_CHARACTERS_MIN ? null : bytes;
  }
  try {
    const bytes = atob(secret.slice(PREFIX.length));
    if (bytes.length < SECRET_BYTES_MIN) return null;
    return Uint8Array.from(bytes, (letter) => letter.charCodeAt(0));
  } catch {
    return null;
  }
}

/** Whether a text may sign webhooks. */
export const isWebhookSecret = (secret: string): boolean => keyOf(secret) !== null;

/** The headers that sign a message sent at `now`, epoch milliseconds. */
export async function signedHeaders(
  { id, body }: WebhookMessage,
  secret: Secret,
  now: number,
): Promise<Record<string, string>> {
  const bytes = keyOf(secret.reveal());
  if (!bytes) throw new Error("the webhook's secret is none");
  const timestamp = String(Math.floor(now / 1_000));
  const use = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", bytes, use, false, ["sign"]);
  const signed = encoder.encode(`${id}.${timestamp}.${body}`);
  const signature = new Uint8Array(await crypto.subtle.sign("HMAC", key, signed));
  return {
    "webhook-id": id,
    "webhook-timestamp": timestamp,
    "webhook-signature": `v1,${btoa(String.fromCharCode(...signature))}`,
  };
}

/**
 * Sends a message once, at `now`. Null: the receiver took it, by a status of 2xx. Else why not, in
 * words that hold neither address nor secret. No redirect is followed and no answer's body is read.
 */
export async function sendWebhook(
  message: WebhookMessage,
  { url, secret, headers = {}, allowPrivate, resolve }: WebhookTarget,
  now: number,
): Promise<string | null> {
  const address = url.reveal();
  const problem = allowPrivate
    ? urlProblem(address, { allowPrivate })
    : await targetProblem(address, resolve);
  if (problem) return `not sent: the address ${problem}`;
  const signature = secret
    ? await signedHeaders(message, secret, now)
    : { "webhook-id": message.id };
  const own = { "content-type": "application/json", "user-agent": "vantage-webhook/1" };
  try {
    const response = await fetch(address, {
      method: "POST",
      headers: {
        ...Object.fromEntries(
          Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value.reveal()]),
        ),
        ...own,
        ...signature,
      },
      body: message.body,
      redirect: "manual",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    await response.body?.cancel().catch(() => {});
    if (response.ok) return null;
    const isRedirect = response.status >= 300 && response.status < 400;
    return `the receiver answered ${response.status}${isRedirect ? ", and redirects are not followed" : ""}`;
  } catch (thrown) {
    const isLate = thrown instanceof Error && thrown.name === "TimeoutError";
    return isLate
      ? `the receiver did not answer within ${TIMEOUT_MS / 1_000} s`
      : "the receiver could not be reached";
  }
}
