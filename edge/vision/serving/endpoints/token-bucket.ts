// How many requests a key opens: so many at once, and as many a minute in the long run.

import { MINUTE } from "../../../../shared/time.ts";

/** What a key allows. */
export interface RateLimit {
  requestsPerMinute: number;
  /** Requests at once after a pause. */
  burst: number;
}

/** What is left of it, and as of when. */
export interface TokenBucket {
  tokens: number;
  /** Epoch milliseconds. */
  at: number;
}

export const fullBucket = ({ burst }: RateLimit, at: number): TokenBucket => ({
  tokens: burst,
  at,
});

/**
 * Takes as many requests out of a bucket as it holds, at most so many. Returns the bucket as it is
 * then, and the milliseconds until it holds one again where it held none. A clock that goes back
 * fills nothing.
 */
export function take(
  bucket: TokenBucket,
  { requestsPerMinute, burst }: RateLimit,
  { at, wanted }: { at: number; wanted: number },
): { bucket: TokenBucket; count: number; waitMs: number } {
  const perMs = requestsPerMinute / MINUTE;
  const passed = Math.max(0, at - bucket.at);
  const tokens = Math.min(burst, bucket.tokens + passed * perMs);
  const count = Math.min(wanted, Math.floor(tokens));
  const waitMs = count > 0 ? 0 : (1 - tokens) / perMs;
  return { bucket: { tokens: tokens - count, at }, count, waitMs };
}
