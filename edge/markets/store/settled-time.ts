// The newest knowledge time at which nothing can become known any more. A commit is stamped inside
// its one statement and seen at the statement's end, so that of two series the one that was stamped
// first may be seen last. Whoever stamps holds a lock on the table of snapshots until then.

import { sql } from "drizzle-orm";
import { MINUTE, systemClock } from "../../../shared/time.ts";
import { type Database, epochMs } from "../../http/database.ts";
import { at } from "./catalog.ts";

/**
 * A knowledge time that lies so far behind the database's clock is settled, milliseconds: the
 * database ends a commit's statement long before.
 */
export const SETTLED_AFTER_MS = 2 * MINUTE;

/** Far more than a commit takes, and how often it is asked whether those under way have ended. */
const PATIENCE_MS = 3_000;
const POLL_MS = 25;

/** Commits that are under way, and the clock before it was looked. */
interface Look {
  now: number;
  underWay: string[];
}

/**
 * The newest knowledge time, not after `asOf`, that is settled: a read as of it gives the same rows
 * for ever. Epoch milliseconds. Without `asOf` it is that of the newest vintage; null where there
 * is none.
 */
export async function settledTime(
  database: Database,
  {
    asOf,
    settledAfterMs = SETTLED_AFTER_MS,
  }: { asOf?: number | undefined; settledAfterMs?: number },
): Promise<number | null> {
  // Two machines' clocks may differ, but not by so much.
  if (asOf !== undefined && asOf < systemClock() - 5 * settledAfterMs) return asOf;
  const first = await lookAtCommits(database);
  let left = first.underWay;
  for (const until = systemClock() + PATIENCE_MS; left.length > 0 && systemClock() < until; ) {
    await new Promise((resume) => setTimeout(resume, POLL_MS));
    const { underWay } = await lookAtCommits(database);
    left = left.filter((one) => underWay.includes(one));
  }
  // A stamp of this very millisecond may still come.
  const settled = left.length > 0 ? first.now - settledAfterMs : Math.floor(first.now) - 1;
  if (asOf !== undefined) return Math.min(asOf, settled);
  const { rows } = await database.execute<{ newest: number | null }>(sql`
    SELECT ${epochMs(sql`max(as_of)`)} AS newest FROM vintage WHERE as_of <= ${at(settled)}`);
  return rows[0]?.newest ?? null;
}

/** Transactions that hold the lock which each commit takes before it is stamped. */
async function lookAtCommits(database: Database): Promise<Look> {
  // The clock of the statement's start, before it looks.
  const { rows } = await database.execute<Look & Record<string, unknown>>(sql`
    SELECT ${epochMs(sql`statement_timestamp()`)} AS now, coalesce(
      (SELECT json_agg(virtualtransaction) FROM pg_locks
        WHERE locktype = 'relation' AND relation = 'snapshot'::regclass
          AND mode = 'RowShareLock' AND granted
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())),
      '[]') AS "underWay"`);
  return rows[0] ?? { now: 0, underWay: [] };
}
