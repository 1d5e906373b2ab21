// Slows guessing down: so many attempts a minute for each pair of email and address, and for each
// address, are answered at all. What others try elsewhere never locks a victim out: for an account,
// attempts beyond so many a minute are only held up for seconds.

import {
  type AttemptTable,
  countAttempts,
  forgiveAttempts,
  tooManyAttempts,
} from "../../http/throttle.ts";
import type { Parts } from "../base/parts.ts";

/** How many attempts a minute one thing allows. */
export interface Limit {
  /** What is being throttled, such as `login 192.0.2.1`. */
  key: string;
  /** Attempts in a window of a minute. */
  attemptsMax: number;
}

const ATTEMPTS: AttemptTable = { name: "throttle", key: "key", type: "text" };

/**
 * Counts an attempt against every limit, in one statement; fails with `too_many_attempts` when one
 * is passed. The failure names the seconds until the window ends.
 */
export async function countAttempt(
  { database, clock }: Parts,
  limits: readonly Limit[],
): Promise<void> {
  const now = clock();
  const maxByKey = new Map(limits.map(({ key, attemptsMax }) => [key, attemptsMax]));
  const counts = await countAttempts(database, ATTEMPTS, [...maxByKey.keys()], now);
  const passed = counts.filter(({ key, attempts }) => attempts > (maxByKey.get(key) ?? 0));
  if (passed.length === 0) return;
  throw tooManyAttempts("attempts", Math.max(...passed.map(({ ends }) => ends)), now);
}

/** Attempts a minute for one account, from wherever they come, that are not slowed. */
const SWIFT_MAX = 10;
const DELAY_MS = 250;
const DELAY_MS_MAX = 4_000;

/**
 * Counts an attempt against an account and holds it up, the longer the more there were this minute.
 * Whoever guesses from many addresses waits at each of them; the owner is never locked out.
 */
export async function slowDown({ database, clock }: Parts, key: string): Promise<void> {
  const [count] = await countAttempts(database, ATTEMPTS, [key], clock());
  const beyond = (count?.attempts ?? 0) - SWIFT_MAX;
  if (beyond <= 0) return;
  const delay = Math.min(DELAY_MS_MAX, DELAY_MS * 2 ** Math.min(beyond - 1, 10));
  await new Promise<void>((done) => setTimeout(done, delay));
}

/** Takes an attempt back: it was no guess, for it succeeded. */
export const forgiveAttempt = ({ database }: Parts, keys: readonly string[]): Promise<void> =>
  forgiveAttempts(database, ATTEMPTS, keys);
