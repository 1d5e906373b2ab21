// Slows the guessing of the operator token down: so many wrong ones a minute from one address. Each
// is counted before it is looked at, so that many at once are no more; a right one is taken back.

import type { Database } from "../http/database.ts";
import {
  type AttemptTable,
  countAttempts,
  forgiveAttempts,
  tooManyAttempts,
} from "../http/throttle.ts";

const WRONG_MAX = 10;
const BUCKETS = 4_096;
const WRONG_TOKENS: AttemptTable = { name: "wrong_token", key: "bucket", type: "int" };

async function bucketOf(address: string): Promise<number> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(address));
  return new DataView(digest).getUint32(0) % BUCKETS;
}

/** Counts a token of an address; fails with `too_many_attempts` beyond so many a minute. */
export async function countGuess(database: Database, address: string, now: number) {
  const bucket = String(await bucketOf(address));
  const [counted] = await countAttempts(database, WRONG_TOKENS, [bucket], now);
  if (counted && counted.attempts > WRONG_MAX) {
    throw tooManyAttempts("wrong tokens", counted.ends, now);
  }
}

/** Takes a guess back: it was the operator's own token. */
export async function forgiveGuess(database: Database, address: string) {
  await forgiveAttempts(database, WRONG_TOKENS, [String(await bucketOf(address))]);
}
