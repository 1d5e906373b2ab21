// Changes that were refused for the rows they would withdraw, as rows: what an operator looks at
// and accepts once. What was accepted are those rows and no others, so that an answer which lacks
// more is refused again. A series has one open refusal of forward vintages, and one a partition of
// reconstructions: a later one of its kind takes its place.

import { type SQL, sql } from "drizzle-orm";
import * as tables from "../../../db/markets/schema.ts";
import { Failure } from "../../../shared/errors.ts";
import { DAY, iso } from "../../../shared/time.ts";
import type { Refusal, RefusedChange } from "../../../shared/wire/refusals.ts";
import type { Database } from "../../http/database.ts";
import { columnsOf, extended, rowsOf, selection, typed } from "../../http/selection.ts";
import type { RefusedChange as RefusedRows } from "../store/commit.ts";
import { keyOf } from "../store/rows.ts";
import { at, type ClaimedExecution } from "./ledger.ts";

/** A series whose commit was refused, and what the commit would have changed. */
export interface RefusedSeries {
  library: string;
  symbol: string;
  change: RefusedRows;
}

/** A row as it is kept: valid time, instrument, values stored, values sent. */
type KeptRow = [number, string, (number | null)[] | null, (number | null)[] | null];

/** What was refused and nobody accepted is kept as long as journals are; the rest for good. */
const KEPT_DAYS = 120;
const FORGET_AT_ONCE = 1_000;

const r = columnsOf(tables.refusal, "r");
const REFUSAL: SQL<Refusal> = selection({
  refusal_id: r.id,
  job: r.job,
  library: columnsOf(tables.series, "s").library,
  symbol: columnsOf(tables.series, "s").symbol,
  run_id: r.runId,
  partition: r.partition,
  vintage_reconstructed: r.reconstructed,
  state: typed<Refusal["state"]>(sql`
    CASE WHEN r.ended_at IS NOT NULL THEN 'ended' WHEN r.accepted_at IS NULL THEN 'open'
      ELSE 'accepted' END`),
  stored: r.stored,
  withdrawn: r.withdrawn,
  revised: r.revised,
  inserted: r.inserted,
  refused_at: r.refusedAt,
  accepted_at: r.acceptedAt,
  accepted_by: r.acceptedBy,
  ended_at: r.endedAt,
});
const WHOLE = extended(REFUSAL, {
  value_columns: columnsOf(tables.series, "s").valueColumns,
  changes: typed<KeptRow[]>(r.changes),
});

/** The refusals that have not ended and an execution may decide on. */
const isOfExecution = ({ job, reconstructed, partition }: ClaimedExecution): SQL => sql`
  r.ended_at IS NULL AND r.job = ${job} AND r.reconstructed = ${reconstructed}::boolean
  AND (NOT r.reconstructed OR r.partition = ${partition}::date)`;

/**
 * The series of which an execution may end a refusal, by `library symbol`, each with the rows that
 * may be withdrawn since an operator accepted it, by `keyOf`.
 */
export async function acceptedRows(
  database: Database,
  execution: ClaimedExecution,
): Promise<Map<string, Set<string>>> {
  const { rows } = await database.execute<{ name: string; changes: KeptRow[] | null }>(sql`
    SELECT s.library || ' ' || s.symbol AS name,
      CASE WHEN r.accepted_at IS NOT NULL THEN r.changes END AS changes
      FROM refusal r JOIN series s ON s.id = r.series_id WHERE ${isOfExecution(execution)}`);
  return new Map(rows.map(({ name, changes }) => [name, keysOf(changes ?? [])]));
}

/** Keys of the rows that are withdrawn: not sent, or without a value. */
const keysOf = (changes: readonly KeptRow[]): Set<string> =>
  new Set(
    changes
      .filter(([, , before, after]) => before !== null && !after?.some((value) => value !== null))
      .map(([datetime, instrumentId]) => keyOf({ datetime, instrumentId, values: [] })),
  );

const kept = (values: readonly number[] | null) =>
  values?.map((value) => (Number.isNaN(value) ? null : value)) ?? null;

/** Records what an execution was refused; of each series in the place of what it was before. */
export async function recordRefusals(
  database: Database,
  execution: ClaimedExecution,
  refused: readonly RefusedSeries[],
  now: number,
): Promise<void> {
  if (refused.length === 0) return;
  const given = refused.map(({ library, symbol, change: { rows, ...counts } }) => ({
    ...counts,
    id: crypto.randomUUID(),
    library,
    symbol,
    changes: rows.map(
      ({ datetime, instrumentId, before, after }): KeptRow => [
        datetime,
        instrumentId,
        kept(before),
        kept(after),
      ],
    ),
  }));
  const { run_id: runId, job, partition, reconstructed } = execution;
  await database.execute(sql`
    WITH given AS (
      SELECT s.id AS series_id, x.* FROM jsonb_to_recordset(${JSON.stringify(given)}::jsonb)
          AS x(id uuid, library text, symbol text, stored int, inserted int, revised int,
            withdrawn int, changes jsonb)
        JOIN series s ON s.library = x.library AND s.symbol = x.symbol),
    other AS (
      UPDATE refusal r SET ended_at = ${at(now)} FROM given
       WHERE r.series_id = given.series_id AND ${isOfExecution(execution)}
         AND r.accepted_at IS NOT NULL),
    again AS (
      UPDATE refusal r SET run_id = ${runId}::uuid, partition = ${partition}::date,
        refused_at = ${at(now)}, stored = given.stored, inserted = given.inserted,
        revised = given.revised, withdrawn = given.withdrawn, changes = given.changes
        FROM given WHERE r.series_id = given.series_id AND ${isOfExecution(execution)}
         AND r.accepted_at IS NULL RETURNING r.series_id)
    INSERT INTO refusal (id, series_id, job, run_id, partition, reconstructed, stored, inserted,
      revised, withdrawn, changes, refused_at)
    SELECT id, series_id, ${job}, ${runId}::uuid, ${partition}::date, ${reconstructed}::boolean,
      stored, inserted, revised, withdrawn, changes, ${at(now)}
      FROM given WHERE series_id NOT IN (SELECT series_id FROM again)`);
}

/** Ends the refusals of series that an execution committed, or found to be as they are stored. */
export async function endRefusals(
  database: Database,
  execution: ClaimedExecution,
  series: readonly Pick<RefusedSeries, "library" | "symbol">[],
  now: number,
): Promise<void> {
  if (series.length === 0) return;
  const names = series.map(({ library, symbol }) => ({ library, symbol }));
  await database.execute(sql`
    UPDATE refusal r SET ended_at = ${at(now)}
      FROM series s JOIN jsonb_to_recordset(${JSON.stringify(names)}::jsonb)
          AS x(library text, symbol text) ON s.library = x.library AND s.symbol = x.symbol
     WHERE s.id = r.series_id AND ${isOfExecution(execution)}`);
}

/** Which refusals are listed; a field left out filters nothing. */
export interface RefusalFilter {
  limit: number;
  job?: string | undefined;
  state?: Refusal["state"] | undefined;
  runId?: string | undefined;
}

const IN_STATE: Readonly<Record<Refusal["state"], SQL>> = {
  open: sql`r.ended_at IS NULL AND r.accepted_at IS NULL`,
  accepted: sql`r.ended_at IS NULL AND r.accepted_at IS NOT NULL`,
  ended: sql`r.ended_at IS NOT NULL`,
};

/** Refusals without their rows, the newest first. */
export async function listRefusals(
  database: Database,
  { limit, job, state, runId }: RefusalFilter,
): Promise<Refusal[]> {
  const conditions = [
    ...(job ? [sql`r.job = ${job}`] : []),
    ...(state ? [IN_STATE[state]] : []),
    ...(runId ? [sql`r.run_id = ${runId}::uuid`] : []),
  ];
  const where = conditions.length > 0 ? sql`WHERE ${sql.join(conditions, sql` AND `)}` : sql``;
  return await rowsOf(database, REFUSAL)`
    SELECT ${REFUSAL} FROM refusal r JOIN series s ON s.id = r.series_id ${where}
     ORDER BY r.refused_at DESC, s.library, s.symbol LIMIT ${limit}::int`;
}

/** A refusal with its rows; fails with `unknown_refusal`. */
export async function requireRefusal(database: Database, id: string): Promise<RefusedChange> {
  const [found] = await rowsOf(database, WHOLE)`
    SELECT ${WHOLE} FROM refusal r JOIN series s ON s.id = r.series_id WHERE r.id = ${id}::uuid`;
  if (!found) throw new Failure("unknown_refusal", "no such refusal");
  const changes = found.changes.map(([datetime, instrument_id, before, after]) => ({
    Datetime: iso(datetime),
    instrument_id,
    before,
    after,
  }));
  return { ...found, changes };
}

/**
 * Accepts what a run was refused, of all series or of one: the next run that withdraws none but
 * those rows commits. Accepting twice changes nothing. The run's journal says who did it.
 */
export async function acceptRefusals(
  database: Database,
  { runId, refusalId = null }: { runId: string; refusalId?: string | null },
  { by, now }: { by: string; now: number },
): Promise<void> {
  await database.execute(sql`
    WITH accepted AS (
      UPDATE refusal r SET accepted_at = ${at(now)}, accepted_by = ${by} FROM series s
       WHERE s.id = r.series_id AND r.run_id = ${runId}::uuid AND r.accepted_at IS NULL
         AND r.ended_at IS NULL AND r.id = coalesce(${refusalId}::uuid, r.id)
       RETURNING s.library || '.' || s.symbol AS name)
    INSERT INTO run_event (run_id, attempt, at, level, event, detail)
    SELECT run.id, run.attempt, ${at(now)}, 'warning', 'retraction_accepted',
      jsonb_build_object('by', ${by}::text, 'series', (SELECT jsonb_agg(name) FROM accepted))
      FROM run WHERE run.id = ${runId}::uuid AND EXISTS (SELECT FROM accepted)`);
}

/** How many refusals of each job are open. */
export async function countOpenRefusals(database: Database): Promise<Map<string, number>> {
  const { rows } = await database.execute<{ job: string; count: number }>(sql`
    SELECT job, count(*)::int AS count FROM refusal r WHERE ${IN_STATE.open} GROUP BY job`);
  return new Map(rows.map(({ job, count }) => [job, count]));
}

/** Deletes refusals that ended long ago and nobody accepted; `now` in epoch milliseconds. */
export async function forgetRefusals(database: Database, now: number): Promise<void> {
  await database.execute(sql`
    DELETE FROM refusal WHERE id IN (
      SELECT id FROM refusal
       WHERE refused_at < ${at(now - KEPT_DAYS * DAY)} AND ended_at IS NOT NULL
         AND accepted_at IS NULL ORDER BY refused_at LIMIT ${FORGET_AT_ONCE}::int)`);
}
