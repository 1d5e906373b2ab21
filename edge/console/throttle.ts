// Slows the guessing of the operator token down: so many wrong ones a minute from one address.
// Right ones count nothing, and nobody's own address is slowed by what others try.

import { sql } from "drizzle-orm";
import { Failure } from "../../shared/errors.ts";
import { iso, MINUTE } from "../../shared/time.ts";
import type { Database } from "../http/database.ts";

const WRONG_MAX = 10;
const BUCKETS = 4_096;

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
  if (ends === undefined) return;
  const seconds = Math.max(1, Math.ceil((ends - now) / 1_000));
  throw new Failure("too_many_attempts", `too many wrong tokens; try again in ${seconds} s`, {
    data: { retry_after_seconds: seconds },
  });
}

/** Counts a wrong token of an address. */
export async function countWrong(database: Database, address: string, now: number) {
  await database.execute(sql`
    INSERT INTO wrong_token AS w (bucket, attempts, window_ends_at)
    VALUES (${await bucketOf(address)}::int, 1, ${iso(now + MINUTE)}::timestamptz)
    ON CONFLICT (bucket) DO UPDATE SET
      attempts = CASE WHEN w.window_ends_at <= ${iso(now)}::timestamptz THEN 1
        ELSE w.attempts + 1 END,
      window_ends_at = CASE WHEN w.window_ends_at <= ${iso(now)}::timestamptz
        THEN excluded.window_ends_at ELSE w.window_ends_at END`);
}
