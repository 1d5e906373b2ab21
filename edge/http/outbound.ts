// Requests to addresses that users name. Every address is judged before it is asked, those that
// redirects lead to as well; an answer is read up to a bound, within a time. What goes wrong is
// told in words that hold neither the address nor a secret.

import { type Resolve, targetProblem, urlProblem } from "./public-address.ts";

/** Who may be asked. */
export interface Outbound {
  /**
   * Hosts of the operator's, `host` or `host:port`, that are asked whatever their addresses, over
   * plain http too.
   */
  hosts: readonly string[];
  resolve: Resolve;
}

/** A request, and the bounds of its answer. */
export interface OutboundRequest {
  method: "GET" | "POST";
  url: string;
  /** They go to the first address and to redirects within its origin. */
  headers: Readonly<Record<string, string>>;
  body?: Uint8Array<ArrayBuffer> | string;
  timeoutMs: number;
  bytesMax: number;
}

/** An answer that came whole. */
export interface OutboundAnswer {
  status: number;
  body: Uint8Array;
}

const REDIRECTS_MAX = 3;

/** Whether an operator allowed an address by its host. */
export function isAllowedHost({ hosts }: Pick<Outbound, "hosts">, address: string): boolean {
  const url = URL.parse(address);
  return url !== null && (hosts.includes(url.host) || hosts.includes(url.hostname));
}

/** What is wrong with an address before its name is looked up; null: nothing. */
export const addressProblem = (outbound: Pick<Outbound, "hosts">, url: string): string | null =>
  urlProblem(url, { allowPrivate: isAllowedHost(outbound, url) });

const reachProblem = (outbound: Outbound, url: string): string | null | Promise<string | null> =>
  isAllowedHost(outbound, url)
    ? urlProblem(url, { allowPrivate: true })
    : targetProblem(url, outbound.resolve);

/** Sends a request. Returns the answer, or why there is none, as a clause about the server. */
export async function askOutside(
  outbound: Outbound,
  request: OutboundRequest,
): Promise<OutboundAnswer | string> {
  const signal = AbortSignal.timeout(request.timeoutMs);
  const { origin } = new URL(request.url);
  let url = request.url;
  try {
    for (let redirects = 0; redirects <= REDIRECTS_MAX; redirects++) {
      const problem = await reachProblem(outbound, url);
      if (problem) return `was not asked: its address ${problem}`;
      const isHome = new URL(url).origin === origin;
      // Whoever a server sends us to gets neither the image nor what opens the server.
      if (!isHome && request.method !== "GET") return "redirects to another server";
      const response = await fetch(url, {
        method: request.method,
        headers: { "User-Agent": "vantage/1", ...(isHome ? request.headers : {}) },
        redirect: "manual",
        signal,
        ...(request.body === undefined ? {} : { body: request.body }),
      });
      if (!isRedirect(response)) return await wholeAnswer(response, request.bytesMax);
      await response.body?.cancel().catch(() => {});
      const next = URL.parse(response.headers.get("Location") ?? "", url);
      if (!next) return "redirects nowhere";
      url = next.href;
    }
    return `redirects more than ${REDIRECTS_MAX} times`;
  } catch (thrown) {
    const isLate = signal.aborted || (thrown instanceof Error && thrown.name === "TimeoutError");
    return isLate ? `did not answer within ${request.timeoutMs / 1_000} s` : "could not be reached";
  }
}

/** Whether an answer sends its client to another address. */
export const isRedirect = ({ status }: Response): boolean =>
  [301, 302, 303, 307, 308].includes(status);

async function wholeAnswer(response: Response, bytesMax: number): Promise<OutboundAnswer | string> {
  const body = await boundedBody(response, bytesMax);
  return body ? { status: response.status, body } : `answered with more than ${bytesMax} bytes`;
}

/** The body of an answer, or null, with the rest canceled, where it has more bytes than a bound. */
export async function boundedBody(
  response: Response,
  bytesMax: number,
): Promise<Uint8Array<ArrayBuffer> | null> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  const reader = response.body?.getReader();
  for (;;) {
    const { done = true, value } = (await reader?.read()) ?? {};
    if (done || !value) break;
    bytes += value.length;
    if (bytes > bytesMax) {
      await reader?.cancel().catch(() => {});
      return null;
    }
    chunks.push(value);
  }
  const body = new Uint8Array(bytes);
  let end = 0;
  for (const chunk of chunks) {
    body.set(chunk, end);
    end += chunk.length;
  }
  return body;
}
