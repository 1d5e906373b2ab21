// Changes that were refused for the rows they would withdraw, as rows: what an operator looks at
// and accepts once. What was accepted are those rows and no others, so that an answer which lacks
// more is refused again.

import { type SQL, sql } from "drizzle-orm";
import * as tables from "../../../db/markets/schema.ts";
import { Failure } from "../../../shared/errors.ts";
import { DAY, iso } from "../../../shared/time.ts";
import type { Refusal, RefusedChange } from "../../../shared/wire/refusals.ts";
import type { Database } from "../../http/database.ts";
import { columnsOf, extended, rowsOf, selection, typed } from "../../http/selection.ts";
import { jsonTexts } from "../store/catalog.ts";
import type { RefusedChange as RefusedRows } from "../store/commit.ts";
import { keyOf } from "../store/rows.ts";
import { at, type ClaimedExecution, isHeld } from "./ledger.ts";

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

/** What of a series was refused and has not ended, as later commits meet it. */
export interface OpenRefusal {
  id: string;
  isAccepted: boolean;
  /** Keys of the rows that would be withdrawn. */
  withdrawn: ReadonlySet<string>;
  /** Keys of the rows that would be new, by valid time. */
  inserted: ReadonlyMap<string, number>;
  /** Newest valid time of a row that would be withdrawn, epoch milliseconds. */
  newest: number;
}

/** The refusals of a job's series that have not ended, by `library symbol`. */
export async function openRefusals(
  database: Database,
  job: string,
): Promise<Map<string, OpenRefusal[]>> {
  const { rows } = await database.execute<StoredRefusal>(sql`
    SELECT r.id::text, s.library || ' ' || s.symbol AS series,
      r.accepted_at IS NOT NULL AS accepted, r.changes
      FROM refusal r JOIN series s ON s.id = r.series_id
     WHERE r.ended_at IS NULL AND r.job = ${job} ORDER BY r.refused_at`);
  const all = rows.map((row) => [row.series, refusalOf(row)] as const);
  return new Map(
    [...Map.groupBy(all, ([series]) => series)].map(([series, those]) => [
      series,
      those.map(([, one]) => one),
    ]),
  );
}

interface StoredRefusal {
  [column: string]: unknown;
  id: string;
  series: string;
  accepted: boolean;
  changes: KeptRow[];
}

const keyAt = ([datetime, instrumentId]: KeptRow): string =>
  keyOf({ datetime, instrumentId, values: [] });

/** Whether a row would be withdrawn: it is not sent, or without any value. */
const isWithdrawn = ([, , before, after]: KeptRow): boolean =>
  before !== null && !after?.some((value) => value !== null);

function refusalOf({
  id,
  accepted,
  changes,
}: Pick<StoredRefusal, "id" | "accepted" | "changes">): OpenRefusal {
  const gone = changes.filter(isWithdrawn);
  const come = changes.filter(([, , before]) => before === null);
  return {
    id,
    isAccepted: accepted,
    withdrawn: new Set(gone.map(keyAt)),
    inserted: new Map(come.map((row) => [keyAt(row), row[0]])),
    newest: gone.reduce((newest, [datetime]) => Math.max(newest, datetime), -Infinity),
  };
}

const kept = (values: readonly number[] | null) =>
  values?.map((value) => (Number.isNaN(value) ? null : value)) ?? null;

/** The execution still holds its lease: what a late process says changes nothing. */
const holds = (execution: ClaimedExecution): SQL =>
  sql`EXISTS (SELECT FROM run WHERE ${isHeld(execution)})`;

/**
 * Records what an execution was refused. A refusal of which it would withdraw no other rows is this
 * one again; one of which it would withdraw some rows, and others besides, has ended. So an id
 * never stands for more rows than when it was looked at.
 */
export async function recordRefusals(
  database: Database,
  execution: ClaimedExecution,
  refused: readonly RefusedSeries[],
  now: number,
): Promise<void> {
  if (refused.length === 0) return;
  const known = await openRefusals(database, execution.job);
  const [given, over]: [object[], string[]] = [[], []];
  for (const { library, symbol, change } of refused) {
    const { rows, ...counts } = change;
    const changes = rows.map(
      ({ datetime, instrumentId, before, after }): KeptRow => [
        datetime,
        instrumentId,
        kept(before),
        kept(after),
      ],
    );
    const { withdrawn } = refusalOf({ id: "", accepted: false, changes });
    const touched = (known.get(`${library} ${symbol}`) ?? []).filter((one) =>
      [...withdrawn].some((key) => one.withdrawn.has(key)),
    );
    const same = touched.find((one) => [...withdrawn].every((key) => one.withdrawn.has(key)));
    // Accepted while this execution was at work: the next one commits it.
    if (!same?.isAccepted) {
      given.push({ ...counts, id: crypto.randomUUID(), again: same?.id, library, symbol, changes });
    }
    over.push(...touched.filter((one) => one !== same).map(({ id }) => id));
  }
  await endRefusals(database, execution, over, now);
  const { run_id: runId, job, partition, reconstructed } = execution;
  await database.execute(sql`
    WITH given AS (
      SELECT s.id AS series_id, x.* FROM jsonb_to_recordset(${JSON.stringify(given)}::jsonb)
          AS x(id uuid, again uuid, library text, symbol text, stored int, inserted int, revised int,
            withdrawn int, changes jsonb)
        JOIN series s ON s.library = x.library AND s.symbol = x.symbol WHERE ${holds(execution)}),
    renewed AS (
      UPDATE refusal r SET run_id = ${runId}::uuid, partition = ${partition}::date,
        reconstructed = ${reconstructed}::boolean, refused_at = ${at(now)}, stored = given.stored,
        inserted = given.inserted, revised = given.revised, withdrawn = given.withdrawn,
        changes = given.changes
        FROM given WHERE r.id = given.again AND r.accepted_at IS NULL AND r.ended_at IS NULL)
    INSERT INTO refusal (id, series_id, job, run_id, partition, reconstructed, stored, inserted,
      revised, withdrawn, changes, refused_at)
    SELECT id, series_id, ${job}, ${runId}::uuid, ${partition}::date, ${reconstructed}::boolean,
      stored, inserted, revised, withdrawn, changes, ${at(now)} FROM given WHERE again IS NULL`);
}

/** Ends refusals: a commit made or settled what they are about. */
export async function endRefusals(
  database: Database,
  execution: ClaimedExecution,
  ids: readonly string[],
  now: number,
): Promise<void> {
  if (ids.length === 0) return;
  await database.execute(sql`
    UPDATE refusal SET ended_at = ${at(now)}
     WHERE id IN (SELECT x::uuid FROM ${jsonTexts(ids)} AS t(x)) AND ended_at IS NULL
       AND ${holds(execution)}`);
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
 * Accepts refusals, each for the rows that it would withdraw: the next run that withdraws no others
 * commits. Accepting again changes nothing. The journals of the runs that were refused say who did
 * it. Fails with `unknown_refusal`, and with `state_conflict` where one has ended, and then accepts
 * none.
 */
export async function acceptRefusals(
  database: Database,
  ids: readonly string[],
  { by, now }: { by: string; now: number },
): Promise<Refusal[]> {
  const wanted = sql`r.id IN (SELECT x::uuid FROM ${jsonTexts(ids)} AS t(x))`;
  const list = () => rowsOf(database, REFUSAL)`
    SELECT ${REFUSAL} FROM refusal r JOIN series s ON s.id = r.series_id WHERE ${wanted}
     ORDER BY s.library, s.symbol, r.partition`;
  requireOpen(await list(), ids);
  await database.execute(sql`
    WITH accepted AS (
      UPDATE refusal r SET accepted_at = ${at(now)}, accepted_by = ${by} FROM series s
       WHERE s.id = r.series_id AND ${wanted} AND r.accepted_at IS NULL AND r.ended_at IS NULL
         AND NOT EXISTS (SELECT FROM refusal r WHERE ${wanted} AND r.ended_at IS NOT NULL)
       RETURNING r.run_id, s.library || '.' || s.symbol AS name)
    INSERT INTO run_event (run_id, attempt, at, level, event, detail)
    SELECT run.id, run.attempt, ${at(now)}, 'warning', 'retraction_accepted',
      jsonb_build_object('by', ${by}::text, 'series', jsonb_agg(accepted.name))
      FROM accepted JOIN run ON run.id = accepted.run_id GROUP BY run.id, run.attempt`);
  const accepted = await list();
  requireOpen(accepted, ids);
  return accepted;
}

function requireOpen(found: readonly Refusal[], ids: readonly string[]) {
  const missing = ids.find((id) => !found.some(({ refusal_id }) => refusal_id === id));
  if (missing) throw new Failure("unknown_refusal", `no refusal has the id ${missing}`);
  const ended = found.find(({ state }) => state === "ended");
  if (!ended) return;
  const detail = `${ended.refusal_id} has ended: the series was committed, or was refused other rows`;
  throw new Failure("state_conflict", detail);
}

/** How many refusals of each job are open. */
export async function countOpenRefusals(database: Database): Promise<Map<string, number>> {
  const { rows } = await database.execute<{ job: string; count: number }>(sql`
    SELECT job, count(*)::int AS count FROM refusal r WHERE ${IN_STATE.open} GROUP BY job`);
  return new Map(rows.map(({ job, count }) => [job, count]));
}

/** Deletes refusals of long ago that nobody accepted; `now` in epoch milliseconds. */
export async function forgetRefusals(database: Database, now: number): Promise<void> {
  await database.execute(sql`
    DELETE FROM refusal WHERE id IN (
      SELECT id FROM refusal
       WHERE refused_at < ${at(now - KEPT_DAYS * DAY)} AND accepted_at IS NULL ORDER BY refused_at LIMIT ${FORGET_AT_ONCE}::int)`);
}
