// A search over the journals of all executions. It goes back along the index of time and stops when
// a page is full; how far it goes is bounded by the stretch asked for, and by a time limit.

import { sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import type { RunEvent } from "../../../shared/wire/markets.ts";
import { batch, type Database, wireTime } from "../../http/database.ts";
import type { Range } from "../store/rows.ts";
import { at } from "./ledger.ts";

/** An entry of a journal, with the execution it is of. */
export interface EventMatch extends RunEvent {
  id: number;
  run_id: string;
  job: string;
  partition: string;
}

/** What is looked for; a field left out filters nothing. */
export interface EventQuery {
  /** A part of the event's name or of its detail, in letters of either case. */
  text?: string | undefined;
  level?: RunEvent["level"] | undefined;
  job?: string | undefined;
  range: Range;
  /** The last entry of the page before. */
  after?: number | undefined;
  limit: number;
}

const TIMEOUT_MS = 4_000;
/** Postgres ended the statement for its time limit. */
const QUERY_CANCELED = "57014";

/**
 * The newest matches first. Fails with `invalid_request` when it took too long: the stretch has to
 * be shorter.
 */
export async function searchEvents(database: Database, query: EventQuery): Promise<EventMatch[]> {
  const { text, level, job, range, after, limit } = query;
  const conditions = [
    sql`e.at >= ${at(range.from)} AND e.at < ${at(range.to)}`,
    ...(level ? [sql`e.level = ${level}`] : []),
    ...(job ? [sql`run.job = ${job}`] : []),
    ...(text ? [sql`position(lower(${text}) IN lower(e.event || ' ' || e.detail::text)) > 0`] : []),
    ...(after === undefined
      ? []
      : [
          sql`(e.at, e.id) <
            (SELECT last.at, last.id FROM run_event last WHERE last.id = ${after}::bigint)`,
        ]),
  ];
  try {
    const [, matches] = await batch<[unknown, EventMatch]>(database, [
      sql`SELECT set_config('statement_timeout', ${String(TIMEOUT_MS)}, true)`,
      sql`SELECT e.id::float8 AS id, e.run_id::text, run.job, run.partition::text, e.attempt,
            ${wireTime(sql`e.at`)} AS at, e.level, e.event, e.detail
            FROM run_event e JOIN run ON run.id = e.run_id
           WHERE ${sql.join(conditions, sql` AND `)}
           ORDER BY e.at DESC, e.id DESC LIMIT ${limit}::int`,
    ]);
    return matches;
  } catch (thrown) {
    if (!isCanceled(thrown)) throw thrown;
    const detail = "the search took too long: choose a shorter stretch of time";
    throw new Failure("invalid_request", detail, { cause: thrown });
  }
}

function isCanceled(thrown: unknown): boolean {
  for (let error = thrown; error instanceof Error; error = error.cause) {
    if ("code" in error && error.code === QUERY_CANCELED) return true;
  }
  return false;
}
