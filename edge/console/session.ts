// An operator's session in a browser: a cookie that says whose it is and how long it holds, signed
// with a key derived from that operator's token, so that a new token ends every session of theirs.
// Forms carry a token of their session; notices travel to the next page in a signed cookie. A mark
// of a device is signed alike and lets nobody in: it says that the operator was let in there once.

import type { Secret } from "../../shared/secret.ts";
import type { TokenHolder } from "../http/keys.ts";
import { MARK_MS } from "../http/throttle.ts";

/** An operator who has logged in. */
export interface Session {
  id: string;
  operator: TokenHolder;
  /** Epoch milliseconds. */
  until: number;
}

/** A browser in which an operator logged in, until when that is remembered. */
export type DeviceMark = Session;

/** What the next page tells the operator. */
export interface Notice {
  kind: "done" | "problem";
  text: string;
}

/** How long a session holds, in milliseconds. */
export const SESSION_MS = 12 * 3_600_000;

const encoder = new TextEncoder();

async function keyOf(token: Secret) {
  const use = (bytes: Parameters<typeof crypto.subtle.importKey>[1] & (ArrayBuffer | Uint8Array)) =>
    crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, [
      "sign",
      "verify",
    ]);
  const root = await use(encoder.encode(token.reveal()));
  const derived = await crypto.subtle.sign("HMAC", root, encoder.encode("console sessions, 1"));
  return use(derived);
}

const toText = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");

function toBytes(text: string): Uint8Array<ArrayBuffer> | null {
  if (!/^[\w-]*$/.test(text)) return null;
  try {
    return Uint8Array.from(
      atob(text.replaceAll("-", "+").replaceAll("_", "/")),
      (letter) => letter.codePointAt(0) ?? 0,
    );
  } catch {
    return null;
  }
}

async function sign(token: Secret, text: string): Promise<string> {
  const signature = await crypto.subtle.sign("HMAC", await keyOf(token), encoder.encode(text));
  return toText(new Uint8Array(signature));
}

/** In constant time, as the platform's own verification is. */
async function isSigned(token: Secret, text: string, signature: string): Promise<boolean> {
  const bytes = toBytes(signature);
  if (!bytes) return false;
  return crypto.subtle.verify("HMAC", await keyOf(token), bytes, encoder.encode(text));
}

/** A new session, as the value of its cookie. */
export const beginSession = (operator: TokenHolder, now: number): Promise<string> =>
  writeClaim("session", operator, now + SESSION_MS);

/** The session of a cookie, or null when it is of none of the operators or over. */
export const readSession = (
  operators: readonly TokenHolder[],
  cookie: string | undefined,
  now: number,
): Promise<Session | null> => readClaim("session", operators, { cookie, now });

/** A new mark of a device, as the value of its cookie. */
export const markDevice = (operator: TokenHolder, now: number): Promise<string> =>
  writeClaim("device", operator, now + MARK_MS);

/** The mark of a cookie, or null when it is of none of the operators or too old. */
export const readDevice = (
  operators: readonly TokenHolder[],
  cookie: string | undefined,
  now: number,
): Promise<DeviceMark | null> => readClaim("device", operators, { cookie, now });

/** What is signed for one use is nothing for the other. */
type Use = "session" | "device";

async function writeClaim(use: Use, { name, token }: TokenHolder, until: number): Promise<string> {
  const claim = `${crypto.randomUUID()}.${until}.${name}`;
  return `${claim}.${await sign(token, `${use} ${claim}`)}`;
}

async function readClaim(
  use: Use,
  operators: readonly TokenHolder[],
  { cookie, now }: { cookie: string | undefined; now: number },
): Promise<Session | null> {
  const [, claim, id, until, name, signature] =
    /^(([\w-]{36})\.(\d{1,16})\.([\w-]{1,32}))\.([\w-]+)$/.exec(cookie ?? "") ?? [];
  const operator = operators.find((one) => one.name === name);
  if (!claim || !id || !signature || !operator || Number(until) <= now) return null;
  if (!(await isSigned(operator.token, `${use} ${claim}`, signature))) return null;
  return { id, until: Number(until), operator };
}

/** What the forms of a session carry. */
export const formToken = ({ id, operator }: Session): Promise<string> =>
  sign(operator.token, `form ${id}`);

/** Whether `given` is what the forms of this session carry. */
export const isFormToken = ({ id, operator }: Session, given: string): Promise<boolean> =>
  isSigned(operator.token, `form ${id}`, given);

/** A notice as the value of its cookie. */
export async function writeNotice({ id, operator }: Session, notice: Notice) {
  const text = toText(encoder.encode(JSON.stringify(notice)));
  return `${text}.${await sign(operator.token, `notice ${id} ${text}`)}`;
}

/** The notice of a cookie, or null when this session was not given it. */
export async function readNotice(
  { id, operator }: Session,
  cookie: string | undefined,
): Promise<Notice | null> {
  const [text = "", signature = ""] = (cookie ?? "").split(".");
  const bytes = toBytes(text);
  if (!bytes || !(await isSigned(operator.token, `notice ${id} ${text}`, signature))) return null;
  return JSON.parse(new TextDecoder().decode(bytes)) as Notice;
}
