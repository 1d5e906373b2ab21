// What slows the guessing of operator tokens down. Rows are never deleted here, so keys are few:
// an address is one of so many buckets.

import { type AttemptTable, checkGuess, type Guess } from "../http/throttle.ts";
import type { IngestParts } from "../markets/ingest/parts.ts";

const WRONG_MAX = 10;
const BUCKETS = 4_096;
const WRONG_TOKENS: AttemptTable = { name: "wrong_token", key: "bucket", type: "int" };
/** What is counted of an address, each in a range of buckets of its own. */
const KINDS = ["attempts", "mark", "line"] as const;
/** Of all addresses: the line of those who are not known. */
const LINE = String(KINDS.length * BUCKETS);

async function bucketOf(kind: (typeof KINDS)[number], address: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(address));
  const bucket = new DataView(digest).getUint32(0) % BUCKETS;
  return String(KINDS.indexOf(kind) * BUCKETS + bucket);
}

/** Looks whether a token is right, by `check`; null where it is wrong. */
export async function checkedToken<Match>(
  parts: Pick<IngestParts, "database" | "clock">,
  address: string | null,
  check: () => Promise<Match | null>,
): Promise<Match | null> {
  const guess: Guess = { limits: [], line: LINE, known: null };
  if (address !== null) {
    guess.limits = [{ key: await bucketOf("attempts", address), attemptsMax: WRONG_MAX }];
    const [mark, line] = [await bucketOf("mark", address), await bucketOf("line", address)];
    guess.known = { mark, line };
  }
  return checkGuess(parts, WRONG_TOKENS, guess, check);
}
