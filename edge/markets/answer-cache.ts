// Bodies of answers in the cache at the edge, written once however many ask for their ranges.

import type { Cache } from "@cloudflare/workers-types";
import { systemClock } from "../../shared/time.ts";
import type { Log } from "../http/log.ts";

// `caches.default` is Cloudflare's own: the DOM's CacheStorage, which this file sees, lacks it.
const edgeCache = () => (caches as unknown as { default: Cache }).default;

/**
 * The body that the cache holds under a key, or a range of it as a 206 or 416. A cache that fails
 * counts as one that holds nothing.
 */
export async function findBody(
  log: Log,
  key: string,
  range: string | null,
): Promise<Response | null> {
  const headers: Record<string, string> = range === null ? {} : { Range: range };
  try {
    // The types of Workers declare a Request and a Response beside the global ones.
    const found = await edgeCache().match(new Request(key, { headers }) as never);
    // As above.
    return (found as unknown as Response | undefined) ?? null;
  } catch (error) {
    log.warning("cache_match", { error });
    return null;
  }
}

/** Puts a whole body into the cache; one that fails keeps nothing. */
export async function storeBody(log: Log, key: string, body: ArrayBuffer): Promise<void> {
  // Only our own cache sees these headers, behind the check of the API key.
  const headers = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "Content-Length": String(body.byteLength),
  };
  try {
    // As in `findBody`.
    await edgeCache().put(key, new Response(body, { headers }) as never);
  } catch (error) {
    log.warning("cache_put", { error });
  }
}

/** The last thousand or two of the texts that were added. */
export class RecentTexts {
  #now = new Set<string>();
  #before = new Set<string>();

  has(text: string): boolean {
    return this.#now.has(text) || this.#before.has(text);
  }

  add(text: string) {
    if (this.#now.size === RECENT_MAX) [this.#before, this.#now] = [this.#now, new Set()];
    this.#now.add(text);
  }
}

const RECENT_MAX = 1_000;

/** How long a request waits for another that writes the same body, and has for writing it. */
const TURN_MS = 15_000;
const POLL_MS = 25;

/** A request's time to write a body. */
interface Turn {
  until: number;
}

/** Bodies that requests of this isolate write now, by key. */
const turns = new Map<string, Turn>();

/**
 * As `findBody`, but waits while another request of this isolate writes the body. Where there is
 * none, it is this request's turn to write it, until `endTurn`. Each waiter polls by its own timer:
 * in a Worker one request must not wake another. The cache is asked again only when a turn is over,
 * since a request may not ask it often.
 */
export async function findBodyInTurn(
  log: Log,
  key: string,
  range: string | null,
): Promise<{ found: Response | null; endTurn: () => void }> {
  const patience = systemClock() + TURN_MS;
  for (;;) {
    const found = await findBody(log, key, range);
    if (found) return { found, endTurn: () => {} };
    const now = systemClock();
    // Nothing ends the turn of a request that was cut off.
    for (const [one, { until }] of turns) if (until <= now) turns.delete(one);
    if (!turns.has(key) || now > patience) {
      const turn = { until: now + TURN_MS };
      turns.set(key, turn);
      return { found: null, endTurn: () => turns.get(key) === turn && turns.delete(key) };
    }
    while ((turns.get(key)?.until ?? 0) > systemClock() && systemClock() <= patience) {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }
}
