// Slows the guessing of the operator token down: so many wrong ones a minute from one address.
// Right ones count nothing, and nobody's own address is slowed by what others try.

import { sql } from "drizzle-orm";
import { iso } from "../../shared/time.ts";
import type { Database } from "../http/database.ts";
import { type AttemptTable, countAttempts, tooManyAttempts } from "../http/throttle.ts";

const WRONG_MAX = 10;
const BUCKETS = 4_096;
const WRONG_TOKENS: AttemptTable = { name: "wrong_token", key: "bucket", type: "int" };

async function bucketOf(address: string): Promise<number> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(address));
  return new DataView(digest).getUint32(0) % BUCKETS;
}

/** Fails with `too_many_attempts` while an address has used its wrong tokens up. */
export async function refuseGuessing(database: Database, address: string, now: number) {
  const { rows } = await database.execute<{ ends: number }>(sql`
    SELECT (extract(epoch FROM window_ends_at) * 1000)::float8 AS ends FROM wrong_token
     WHERE bucket = ${await bucketOf(address)}::int AND attempts >= ${WRONG_MAX}::int
       AND window_ends_at > ${iso(now)}::timestamptz`);
  const ends = rows[0]?.ends;
  if (ends !== undefined) throw tooManyAttempts("wrong tokens", ends, now);
}

/** Counts a wrong token of an address. */
export async function countWrong(database: Database, address: string, now: number) {
  await countAttempts(database, WRONG_TOKENS, [String(await bucketOf(address))], now);
}
