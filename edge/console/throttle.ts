// What slows the guessing of operator tokens down. Rows are never deleted here, so keys are few:
// an address is one of so many buckets.

import { type AttemptTable, checkGuess, type Guess } from "../http/throttle.ts";
import type { IngestParts } from "../markets/ingest/parts.ts";
import type { DeviceMark } from "./session.ts";

const WRONG_MAX = 10;
const BUCKETS = 4_096;
const WRONG_TOKENS: AttemptTable = { name: "wrong_token", key: "bucket", type: "int" };
/** What is counted of an address or a device, each in a range of buckets of its own. */
const KINDS = ["attempts", "mark", "line", "device attempts", "device line"] as const;
/** The line of those of whom neither address nor device is known. */
const LINE = String(KINDS.length * BUCKETS);

async function bucketOf(kind: (typeof KINDS)[number], subject: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(subject));
  const bucket = new DataView(digest).getUint32(0) % BUCKETS;
  return String(KINDS.indexOf(kind) * BUCKETS + bucket);
}

/** Who sends a token: an address, null where it is not known, and the mark of a device or null. */
export interface Sender {
  address: string | null;
  device: DeviceMark | null;
}

/**
 * Looks whether a token is right, by `check`; null where it is wrong. A device is limited, and
 * waits, by its mark and no address: strangers cannot fill its line, and a thief of the mark has
 * what they would have at an address that is known.
 */
export async function checkedToken<Match>(
  parts: Pick<IngestParts, "database" | "clock">,
  { address, device }: Sender,
  check: () => Promise<Match | null>,
): Promise<Match | null> {
  const guess: Guess = { limits: [], line: LINE, known: null };
  if (address !== null) {
    guess.limits = [{ key: await bucketOf("attempts", address), attemptsMax: WRONG_MAX }];
    const [mark, line] = [await bucketOf("mark", address), await bucketOf("line", address)];
    guess.known = { mark, line };
  }
  if (device !== null) {
    guess.limits = [{ key: await bucketOf("device attempts", device.id), attemptsMax: WRONG_MAX }];
    guess.line = await bucketOf("device line", device.id);
    if (guess.known) guess.known.line = guess.line;
  }
  return checkGuess(parts, WRONG_TOKENS, guess, check);
}
