// One request of the outbox and its answer: what arrived, how long the server asks to wait, and
// what of the body can be used.

import type { EditRequest } from "./edit.ts";
import type { EditResult } from "./outbox-queue.ts";

/** The part of a `Response` that is read. */
export interface Reply {
  status: number;
  headers: { get(name: string): string | null };
  json(): Promise<unknown>;
}

/** What a request needs of the world. */
export interface ExchangePorts {
  /** Sends `POST /jobs/{job}/edits`; rejects where no answer came. */
  send(job: string, edits: readonly EditRequest[], signal: AbortSignal): Promise<Reply>;
  /** Milliseconds since 1970. */
  now(): number;
  /** Calls back once after milliseconds; the returned function cancels it. */
  after(milliseconds: number, call: () => void): () => void;
}

/** An answer, with the milliseconds that it asks to wait. */
export interface Exchange {
  status: number;
  wait: number;
  body: unknown;
}

/** The body of an answer of status 200. */
export interface EditsReply {
  edits_seq: number;
  results: readonly EditResult[];
}

const REQUEST_MS_MAX = 30_000;

/** Sends rows; null where no answer came in time, so that they may have arrived or not. */
export async function exchangeEdits(
  job: string,
  requests: readonly EditRequest[],
  ports: ExchangePorts,
): Promise<Exchange | null> {
  const abort = new AbortController();
  let cancel = () => {};
  const late = new Promise<null>((done) => {
    cancel = ports.after(REQUEST_MS_MAX, () => done(null));
  });
  const answer = async () => {
    const reply = await ports.send(job, requests, abort.signal);
    const wait = waitOf(reply.headers.get("Retry-After"), ports.now());
    // An answer without JSON is none of the service's.
    const body = await reply.json().catch(() => null);
    return { status: reply.status, wait, body };
  };
  try {
    return await Promise.race([answer(), late]);
  } catch {
    return null;
  } finally {
    cancel();
    abort.abort();
  }
}

/** Milliseconds that `Retry-After` asks for, as seconds or as a date. */
function waitOf(header: string | null, now: number): number {
  if (!header) return 0;
  const wait = /^\d+$/.test(header) ? Number(header) * 1_000 : Date.parse(header) - now;
  return Number.isFinite(wait) ? Math.max(0, wait) : 0;
}

/** The answers to rows; none where the body is not the route's, as a captive portal sends it. */
export function answersOf(body: unknown): EditsReply {
  const isRecord = typeof body === "object" && body !== null && "results" in body;
  // The browser has no schema; tests hold the server to it.
  if (isRecord && Array.isArray(body.results)) return body as EditsReply;
  return { edits_seq: 0, results: [] };
}

/** Code and detail of an error's body; empty where it is none of the service's. */
export function errorOf(body: unknown): { code: string; detail: string } {
  const { code, detail } = (body ?? {}) as { code?: unknown; detail?: unknown };
  return { code: String(code ?? ""), detail: String(detail ?? "") };
}

/** Whether the same request may be taken later. */
export function isTemporary({ status, body }: Exchange): boolean {
  if (status === 429 || status >= 500) return true;
  // A proxy's refusal says nothing of the edits, but for one of their size.
  const isProxys = status >= 400 && errorOf(body).code === "";
  const isOldRelease = errorOf(body).code === "route_not_found";
  return isOldRelease || (isProxys && status !== 401 && status !== 413);
}

/** Whether somebody has to sign in before anything is taken. */
export const isSignedOut = ({ status, body }: Exchange): boolean =>
  status === 401 || errorOf(body).code === "form_refused";
