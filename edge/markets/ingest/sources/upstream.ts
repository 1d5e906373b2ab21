// Talking to a provider over HTTP: timeouts, bounded answers, redirects within the provider's
// hosts, polite retries, and failures that never carry a key.

import { Failure } from "../../../../shared/errors.ts";
import { boundedBody, isRedirect } from "../../../http/outbound.ts";

/** How a provider is reached; nothing here comes from the environment. */
export interface Fetcher {
  fetch: (url: string, init: FetchInit) => Promise<Response>;
  pause: (milliseconds: number) => Promise<void>;
}

/** The part of `RequestInit` that sources use. */
export interface FetchInit {
  method?: "GET" | "POST";
  headers?: Record<string, string>;
  body?: string;
  /** Redirects are followed here, where it is known which hosts are the provider's. */
  redirect: "manual";
  signal: AbortSignal;
}

/** Whom a request asks. */
export interface Provider {
  /** As failures name it. */
  name: string;
  /** Bytes that one answer may have: some times as many as the largest that is expected. */
  bytesMax: number;
}

/** A provider's answer as text. */
export interface Answer {
  status: number;
  text: string;
}

/** What a request sends beside its URL. */
export type RequestParts = Omit<FetchInit, "signal" | "redirect">;

const TIMEOUT_MS = 30_000;
const ATTEMPTS_MAX = 4;
const BACKOFF_MS = 1_000;
const WAIT_MS_MAX = 30_000;
const REDIRECTS_MAX = 3;

const transient = (status: number) => status === 408 || status === 429 || status >= 500;

/** GETs a URL as text, as `request` does. */
export async function get(
  fetcher: Fetcher,
  provider: Provider,
  url: string,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const { status, bytes } = await request(fetcher, provider, url, { headers });
  return { status, text: new TextDecoder().decode(bytes) };
}

/**
 * Asks a provider, retrying 408, 429, 5xx, timeouts and dropped connections with exponential
 * backoff, no sooner than `Retry-After` asks. Fails with `upstream_unavailable` when the last
 * attempt failed too; every other status is the caller's. Fails with `upstream_rejected` for an
 * answer of more bytes than the provider's and for a redirect to a host of somebody else's, which
 * would get the key.
 */
export async function request(
  fetcher: Fetcher,
  provider: Provider,
  url: string,
  parts: RequestParts = {},
): Promise<{ status: number; bytes: Uint8Array }> {
  for (let attempt = 1; ; attempt++) {
    const { answer, reason, retryAfterMs } = await tryOnce(fetcher, provider, url, parts);
    if (answer && !transient(answer.status)) return answer;
    // A long wait is the queue's: the execution is put back until the provider allows it.
    if (attempt === ATTEMPTS_MAX || retryAfterMs > WAIT_MS_MAX) {
      const detail = `${provider.name} failed ${attempt} times, last with ${reason}`;
      const data = retryAfterMs > 0 ? { retry_after_s: Math.ceil(retryAfterMs / 1_000) } : {};
      throw new Failure("upstream_unavailable", detail, { data });
    }
    await fetcher.pause(Math.max(BACKOFF_MS * 2 ** (attempt - 1), retryAfterMs));
  }
}

/**
 * The same fetcher, which begins no request to a host sooner than its interval after the last one:
 * the providers' rate limits, kept before they are met. A host without a name here, as one that a
 * provider redirects to, has the longest interval of all.
 */
export function politely(
  fetcher: Fetcher,
  intervalsMs: ReadonlyMap<string, number>,
  clock: () => number,
): Fetcher {
  const free = new Map<string, number>();
  const longest = Math.max(0, ...intervalsMs.values());
  return {
    ...fetcher,
    fetch: async (url, init) => {
      const { host } = new URL(url);
      const begins = Math.max(clock(), free.get(host) ?? 0);
      free.set(host, begins + (intervalsMs.get(host) ?? longest));
      if (begins > clock()) await fetcher.pause(begins - clock());
      return fetcher.fetch(url, init);
    },
  };
}

/** `Retry-After` in seconds, within a day; 0 when there is none or it is a date. */
const retryAfterSeconds = (response: Response): number => {
  const seconds = Number(response.headers.get("Retry-After"));
  return Number.isFinite(seconds) ? Math.min(Math.max(seconds, 0), 86_400) : 0;
};

interface AttemptOutcome {
  answer: { status: number; bytes: Uint8Array } | null;
  reason: string;
  retryAfterMs: number;
}

async function tryOnce(
  fetcher: Fetcher,
  provider: Provider,
  url: string,
  parts: RequestParts,
): Promise<AttemptOutcome> {
  try {
    const response = await followed(fetcher, provider, url, parts);
    const retryAfterMs = retryAfterSeconds(response) * 1_000;
    const bytes = await boundedBody(response, provider.bytesMax);
    if (!bytes) {
      const detail = `${provider.name} answered with more than ${provider.bytesMax} bytes`;
      throw new Failure("upstream_rejected", detail);
    }
    const answer = { status: response.status, bytes };
    return { answer, reason: `HTTP ${answer.status}`, retryAfterMs };
  } catch (thrown) {
    if (thrown instanceof Failure) throw thrown;
    // The message of a network error may quote the URL, and with it a key: only its name is kept.
    const reason = thrown instanceof Error ? thrown.name : "a network error";
    return { answer: null, reason, retryAfterMs: 0 };
  }
}

/** The answer after the redirects within the provider's hosts, all within one time limit. */
async function followed(
  fetcher: Fetcher,
  { name }: Provider,
  first: string,
  parts: RequestParts,
): Promise<Response> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  let url = first;
  for (let redirects = 0; redirects <= REDIRECTS_MAX; redirects++) {
    const response = await fetcher.fetch(url, { ...parts, redirect: "manual", signal });
    if (!isRedirect(response)) return response;
    await response.body?.cancel().catch(() => {});
    const next = URL.parse(response.headers.get("Location") ?? "", url);
    if (!next || parts.method === "POST") break;
    if (!isSameProvider(new URL(first), next))
      throw new Failure("upstream_rejected", `${name} redirects to another host, ${next.host}`);
    url = next.href;
  }
  throw new Failure("upstream_rejected", `${name} answered with a redirect that is not followed`);
}

/**
 * Whether an address is of the provider that another one is of: the same host and port, or another
 * host below the same domain (`*.ercot.com`, the last two labels) by https.
 */
function isSameProvider(one: URL, other: URL): boolean {
  if (one.origin === other.origin) return true;
  const domainOf = ({ hostname }: URL) => /[^.]+\.[a-z]+$/.exec(hostname)?.[0];
  const domain = domainOf(one);
  const isSecure = one.protocol === "https:" && other.protocol === "https:";
  return isSecure && domain !== undefined && domain === domainOf(other);
}
