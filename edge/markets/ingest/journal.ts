// An execution's journal: what it did, step by step, kept where an operator reads it. Entries are
// written at the end of a step; a process that dies loses at most the entries of its last step.

import { type SQL, sql } from "drizzle-orm";
import * as tables from "../../../db/markets/schema.ts";
import { DAY, iso } from "../../../shared/time.ts";
import type { RunEvent } from "../../../shared/wire/markets.ts";
import type { Database } from "../../http/database.ts";
import type { Log } from "../../http/log.ts";
import { columnsOf, rowsOf, selection, typed } from "../../http/selection.ts";
import { jsonb } from "../../http/storable.ts";
import { at, type ClaimedExecution } from "./ledger.ts";
import type { Fetcher } from "./sources/upstream.ts";

type Level = RunEvent["level"];

/** The journal of one attempt. */
export interface Journal {
  /** Adds an entry, which `flush` writes. */
  note(level: Level, event: string, detail?: object): void;
  /** Writes the entries so far; where the database does not answer, they are lost and no more. */
  flush(): Promise<void>;
}

const EVENTS_DAYS = 120;
const FORGET_AT_ONCE = 5_000;

/** The journal of a claimed execution's attempt. */
export function openJournal(
  { database, clock, log }: { database: Database; clock: () => number; log: Log },
  execution: ClaimedExecution,
): Journal {
  const pending: { at: string; level: Level; event: string; detail: object }[] = [];
  return {
    note: (level, event, detail = {}) => pending.push({ at: iso(clock()), level, event, detail }),
    flush: async () => {
      const entries = pending.splice(0);
      if (entries.length === 0) return;
      await database
        .execute(sql`
          INSERT INTO run_event (run_id, attempt, at, level, event, detail)
          SELECT ${execution.run_id}::uuid, ${execution.attempt}::int, x.at, x.level, x.event, x.detail
            FROM ROWS FROM (jsonb_to_recordset(${jsonb(entries)})
              AS (at timestamptz, level text, event text, detail jsonb))
              WITH ORDINALITY AS x(at, level, event, detail, n) ORDER BY x.n`)
        .catch((error: unknown) => log.warning("journal_not_written", { ...execution, error }));
    },
  };
}

/** The same fetcher, noting every request: its host and path, never its query. */
export const notingFetcher = (
  fetcher: Fetcher,
  journal: Journal,
  clock: () => number,
): Fetcher => ({
  ...fetcher,
  fetch: async (url, init) => {
    const { host, pathname } = new URL(url);
    const started = clock();
    const note = (level: Level, detail: object) =>
      journal.note(level, "request", { host, path: pathname, ms: clock() - started, ...detail });
    try {
      const response = await fetcher.fetch(url, init);
      note(response.ok ? "info" : "warning", { status: response.status });
      return response;
    } catch (thrown) {
      note("warning", { failed: thrown instanceof Error ? thrown.name : "network error" });
      throw thrown;
    }
  },
});

const event = columnsOf(tables.runEvent, "run_event");
const EVENT: SQL<RunEvent> = selection({
  attempt: event.attempt,
  at: event.at,
  level: event.level,
  event: event.event,
  detail: typed<RunEvent["detail"]>(event.detail),
});

/** The journal of an execution, over all its attempts, oldest first. */
export async function listEvents(database: Database, runId: string): Promise<RunEvent[]> {
  return await rowsOf(database, EVENT)`
    SELECT ${EVENT} FROM run_event WHERE run_id = ${runId}::uuid ORDER BY id LIMIT 2000`;
}

/** Deletes entries older than 120 days, some at a time; `now` in epoch milliseconds. */
export async function forgetEvents(database: Database, now: number): Promise<void> {
  await database.execute(sql`
    DELETE FROM run_event WHERE id IN (
      SELECT id FROM run_event WHERE at < ${at(now - EVENTS_DAYS * DAY)}
       ORDER BY at LIMIT ${FORGET_AT_ONCE}::int)`);
}
