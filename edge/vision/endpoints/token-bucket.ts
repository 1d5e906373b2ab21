// How many requests a key opens: so many at once, and as many a minute in the long run.

import { MINUTE } from "../../../shared/time.ts";

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
 * Takes one request out of a bucket. Returns the bucket as it is then, and the milliseconds until
 * it holds one again: 0 where the request was let in. A clock that goes back fills nothing.
 */
export function take(
  bucket: TokenBucket,
  { requestsPerMinute, burst }: RateLimit,
  at: number,
): { bucket: TokenBucket; waitMs: number } {
  const perMs = requestsPerMinute / MINUTE;
  const passed = Math.max(0, at - bucket.at);
  const tokens = Math.min(burst, bucket.tokens + passed * perMs);
  if (tokens >= 1) return { bucket: { tokens: tokens - 1, at }, waitMs: 0 };
  return { bucket: { tokens, at }, waitMs: (1 - tokens) / perMs };
}
