// Which executions worked in a stretch of time, for the timeline.

import { sql } from "drizzle-orm";
import { DAY } from "../../../shared/time.ts";
import type { RunState } from "../../../shared/wire/markets.ts";
import { type Database, epochMs } from "../../http/database.ts";
import type { Range } from "../store/rows.ts";
import { at, STATE } from "./ledger.ts";

/** An execution that has begun; instants in epoch milliseconds. */
export interface TimelineEntry extends Record<string, unknown> {
  run_id: string;
  job: string;
  partition: string;
  state: RunState;
  attempt: number;
  started: number;
  /** Null: it has not ended. */
  finished: number | null;
}

/**
 * What worked in a stretch ended at most so long after it: longer than any release is waited for.
 * The bound of the index's range.
 */
const LONGEST_MS = 21 * DAY;

/** Executions that worked in a stretch, the oldest start first; those of the newest `limit`. */
export async function listWorking(
  database: Database,
  { from, to }: Range,
  limit: number,
): Promise<TimelineEntry[]> {
  const entry = sql`id::text AS run_id, job, partition::text, ${STATE} AS state, attempt,
    ${epochMs(sql`started_at`)} AS started,
    ${epochMs(sql`finished_at`)} AS finished`;
  const { rows } = await database.execute<TimelineEntry>(sql`
    SELECT ${entry} FROM run
     WHERE finished_at >= ${at(from)} AND finished_at < ${at(to + LONGEST_MS)}
       AND started_at < ${at(to)}
    UNION ALL
    SELECT ${entry} FROM run
     WHERE state IN ('queued', 'running') AND started_at < ${at(to)}
     ORDER BY started DESC, run_id LIMIT ${limit}::int`);
  return rows.toReversed();
}
