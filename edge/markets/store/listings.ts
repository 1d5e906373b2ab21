// The catalog as lists: libraries, symbols, vintages, changes and snapshots. None of them reads
// series data.

import { type SQL, sql } from "drizzle-orm";
import { batch, type Database } from "../../http/database.ts";
import { at, jsonTexts, ms } from "./catalog.ts";
import type { WrittenBy } from "./columns.ts";

/** Steps from library to library through the index: some ten of them, whatever they hold. */
const distinctLibraries = sql`
  WITH RECURSIVE libraries AS (
    (SELECT library FROM series ORDER BY library LIMIT 1)
    UNION ALL
    SELECT (SELECT library FROM series WHERE library > libraries.library ORDER BY library LIMIT 1)
      FROM libraries WHERE libraries.library IS NOT NULL)`;

/** The libraries that hold a series, sorted. */
export async function listLibraries(database: Database): Promise<string[]> {
  const { rows } = await database.execute<{ library: string }>(
    sql`${distinctLibraries} SELECT library FROM libraries WHERE library IS NOT NULL`,
  );
  return rows.map((row) => row.library);
}

/**
 * The symbols of a library with their newest valid times, sorted; empty when there is no such
 * library.
 */
export async function listSymbols(
  database: Database,
  library: string,
): Promise<{ symbol: string; validMax: number }[]> {
  const { rows } = await database.execute<{ symbol: string; valid_max: number }>(sql`
    SELECT symbol, ${ms(sql`valid_max`)} AS valid_max FROM series
     WHERE library = ${library} ORDER BY symbol COLLATE "C"`);
  return rows.map((row) => ({ symbol: row.symbol, validMax: row.valid_max }));
}

/** The newest vintage of a series. */
export interface Head {
  seq: number;
  /** Newest valid time ever committed, epoch milliseconds. */
  validMax: number;
}

/** The heads of every series of some libraries, by `library symbol`. */
export async function listHeads(
  database: Database,
  libraries: readonly string[],
): Promise<Map<string, Head>> {
  const { rows } = await database.execute<Head & { name: string } & Record<string, unknown>>(sql`
    SELECT library || ' ' || symbol AS name, head_seq::float8 AS seq,
      ${ms(sql`valid_max`)} AS "validMax" FROM series
     WHERE library IN ${jsonTexts(libraries)}`);
  return new Map(rows.map(({ name, ...head }) => [name, head]));
}

/** The newest dated publication that any series of some libraries was committed from, or null. */
export async function lastPublication(
  database: Database,
  libraries: readonly string[],
): Promise<{ publishedAt: number; sourceUrl: string } | null> {
  const { rows } = await database.execute<{ publishedAt: number; sourceUrl: string }>(sql`
    SELECT ${ms(sql`source_published_at`)} AS "publishedAt", source_url AS "sourceUrl"
      FROM series CROSS JOIN LATERAL (
        SELECT source_published_at, source_url FROM vintage
         WHERE series_id = series.id AND source_published_at IS NOT NULL
         ORDER BY source_published_at DESC LIMIT 1) newest
     WHERE library IN ${jsonTexts(libraries)}
     ORDER BY source_published_at DESC LIMIT 1`);
  return rows[0] ?? null;
}

/** A vintage that an execution of ingest committed, in whichever of its attempts. */
export interface ExecutionVintage {
  library: string;
  symbol: string;
  seq: number;
  asOf: number;
  /** Rows inserted, revised and retracted. */
  rows: number;
}

/** What an execution committed, over all its attempts. */
export async function listExecutionVintages(
  database: Database,
  runId: string,
): Promise<ExecutionVintage[]> {
  const { rows } = await database.execute<ExecutionVintage & Record<string, unknown>>(sql`
    SELECT library, symbol, seq::float8 AS seq, ${ms(sql`as_of`)} AS "asOf",
      (inserted + revised + retracted)::float8 AS rows
      FROM vintage JOIN series ON series.id = series_id
     WHERE run_id = ${runId} ORDER BY library, symbol COLLATE "C", seq`);
  return rows;
}

/** Everything `/healthz` tells of the store, in one statement that reads no series data. */
export async function overview(
  database: Database,
): Promise<{ libraries: string[]; latestAsOf: number | null; sandbox: boolean }> {
  const { rows } = await database.execute<{
    libraries: string[];
    latest_as_of: number | null;
    sandbox: boolean;
  }>(sql`
    ${distinctLibraries}
    SELECT coalesce((SELECT json_agg(library ORDER BY library) FROM libraries WHERE library IS NOT NULL),
        '[]') AS libraries,
      (SELECT ${ms(sql`max(as_of)`)} FROM vintage) AS latest_as_of,
      EXISTS (SELECT FROM series WHERE sandbox) AS sandbox`);
  const row = rows[0];
  return {
    libraries: row?.libraries ?? [],
    latestAsOf: row?.latest_as_of ?? null,
    sandbox: row?.sandbox ?? false,
  };
}

/** One entry of a series' vintage index: what one commit changed, and where that came from. */
export interface VintageEntry extends WrittenBy {
  library: string;
  symbol: string;
  sandbox: boolean;
  runId: string;
  partition: string;
  sourceUrl: string;
  /** When the provider published it, where it says so. */
  sourcePublishedAt: number | null;
  coveredFrom: number;
  coveredTo: number;
  validMin: number;
  validMax: number;
  inserted: number;
  revised: number;
  retracted: number;
  /** Rows of a full read at this vintage. */
  liveRows: number;
  /** SHA-256 of the canonical text of its changes, hexadecimal. */
  contentSha256: string;
}

const entry = sql`
  v.seq::float8 AS seq, ${ms(sql`v.as_of`)} AS "asOf", v.reconstructed, s.library, s.symbol,
  s.sandbox, v.run_id AS "runId", v.partition, v.source_url AS "sourceUrl",
  ${ms(sql`v.source_published_at`)} AS "sourcePublishedAt",
  ${ms(sql`v.covered_from`)} AS "coveredFrom", ${ms(sql`v.covered_to`)} AS "coveredTo",
  ${ms(sql`v.valid_min`)} AS "validMin", ${ms(sql`v.valid_max`)} AS "validMax",
  v.inserted, v.revised, v.retracted, v.live_rows::float8 AS "liveRows",
  encode(v.content_sha256, 'hex') AS "contentSha256"`;

/** Which vintages of a series are listed; instants in epoch milliseconds. */
export interface VintageQuery {
  library: string;
  symbol: string;
  /** Only vintages after this one. */
  afterSeq?: number;
  /** Only vintages learned later than this. */
  since?: number;
  asOf?: number;
  limit: number;
}

/** A series' vintages in their order; empty too when there is no such series. */
export async function listVintages(
  database: Database,
  { library, symbol, afterSeq = 0, since = -Infinity, asOf = Infinity, limit }: VintageQuery,
): Promise<VintageEntry[]> {
  // Knowledge time rises with `seq`, and `seq` has no gaps: a page is a range of it, and no more
  // rows are touched than it has, whatever the planner believes of the table.
  const id = sql`(SELECT id FROM series WHERE library = ${library} AND symbol = ${symbol})`;
  const newest = (instant: number) => sql`coalesce((SELECT seq FROM vintage
    WHERE series_id = ${id} AND as_of <= ${at(instant)} ORDER BY as_of DESC LIMIT 1), 0)`;
  const after = sql`${afterSeq}::bigint`;
  const from = since === -Infinity ? after : sql`greatest(${after}, ${newest(since)})`;
  const upTo = asOf === Infinity ? sql`` : sql`AND v.seq <= ${newest(asOf)}`;
  const { rows } = await database.execute<VintageEntry & Record<string, unknown>>(sql`
    SELECT ${entry} FROM vintage v JOIN series s ON s.id = v.series_id
     WHERE v.series_id = ${id} AND v.seq > ${from} AND v.seq <= ${from} + ${limit}::int ${upTo}
     ORDER BY v.seq`);
  return rows;
}

/** What a row's version came from, by `seq`. */
export type Provenance = Pick<VintageEntry, "seq" | "sourceUrl" | "sourcePublishedAt" | "runId">;

/** The provenance of every vintage up to `seq` that touched a range. */
export async function listProvenance(
  database: Database,
  query: { seriesId: number; seq: number; from: number; to: number },
): Promise<Map<number, Provenance>> {
  const { rows } = await database.execute<Provenance & Record<string, unknown>>(sql`
    SELECT seq::float8 AS seq, source_url AS "sourceUrl", run_id AS "runId",
      ${ms(sql`source_published_at`)} AS "sourcePublishedAt"
      FROM vintage WHERE series_id = ${query.seriesId}::int AND seq <= ${query.seq}::bigint
       AND valid_max >= ${at(query.from)} AND valid_min < ${at(query.to)}`);
  return new Map(rows.map((row) => [row.seq, row]));
}

/** The newest valid time that any vintage up to a knowledge time touched; null for none. */
export async function newestTouched(
  database: Database,
  { library, symbol, asOf }: { library: string; symbol: string; asOf: number },
): Promise<number | null> {
  const { rows } = await database.execute<{ newest: number | null }>(sql`
    SELECT ${ms(sql`CASE WHEN head_as_of <= ${at(asOf)} THEN valid_max ELSE
        (SELECT max(v.valid_max) FROM vintage v WHERE v.series_id = s.id AND v.as_of <= ${at(asOf)})
      END`)} AS newest
      FROM series s WHERE library = ${library} AND symbol = ${symbol}`);
  return rows[0]?.newest ?? null;
}

/** A position in the change feed: everything at or before it was delivered. */
export interface FeedPosition {
  xact: string;
  seriesId: number;
  seq: number;
}

/** A page of the feed. */
export interface FeedPage {
  entries: (VintageEntry & FeedPosition)[];
  /** Where the next page begins; always a position, so that a late commit is never passed over. */
  next: FeedPosition;
}

/**
 * The transaction number below which every transaction that writes a vintage in this database has
 * ended, as a setting of the transaction. A snapshot's own minimum would do, but it is the
 * cluster's: one idle transaction in a neighbouring database would hold the feed. Who writes a
 * vintage has locked the table before it gets its number, since a commit is one statement. Numbers
 * of locks are the lower 32 bits; how far one lies below the snapshot's end is enough.
 */
const feedFloor = sql`
  WITH held AS MATERIALIZED (
    SELECT locktype, database, relation, mode, pid, transactionid FROM pg_locks),
  upper AS (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xmax),
  ages AS (
    SELECT (xmax - transactionid::text::bigint) & 4294967295 AS age FROM upper, held
     WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND pid IN (
       SELECT pid FROM held
        WHERE locktype = 'relation' AND relation = 'vintage'::regclass AND mode = 'RowExclusiveLock'
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())))
  SELECT set_config('vantage.feed_floor', (xmax - coalesce(
    (SELECT max(age) FROM ages WHERE age < 2147483648), 0))::text, true) AS floor FROM upper`;

/**
 * Vintages of all series in the order their transactions began, from a knowledge time or a position
 * on. A vintage is listed once every commit that began before its own has ended, so a reader that
 * goes on from `next` misses none.
 */
export async function listChanges(
  database: Database,
  query: { since: number | FeedPosition; library?: string | undefined; limit: number },
): Promise<FeedPage> {
  const { since } = query;
  const from: SQL =
    typeof since === "number"
      ? sql`v.as_of > ${at(since)}`
      : sql`(v.xact, v.series_id, v.seq) >
          (${since.xact}::xid8, ${since.seriesId}::int, ${since.seq}::bigint)`;
  const library = query.library === undefined ? sql`` : sql`AND s.library = ${query.library}`;
  // The floor is taken first: what ends between the two statements is seen by the second.
  const [[bound], entries] = await batch<[{ floor: string }, FeedPage["entries"][number]]>(
    database,
    [
      feedFloor,
      sql`
        SELECT ${entry}, v.xact::text AS xact, v.series_id AS "seriesId"
          FROM vintage v JOIN series s ON s.id = v.series_id
         WHERE ${from} ${library} AND v.xact < current_setting('vantage.feed_floor')::xid8
         ORDER BY v.xact, v.series_id, v.seq LIMIT ${query.limit}::int`,
    ],
  );
  const last = entries.at(-1);
  if (last && entries.length === query.limit) return { entries, next: last };
  // Everything below the floor was listed now or before.
  const floor = { xact: bound?.floor ?? "0", seriesId: 0, seq: 0 };
  const isBehind = typeof since === "object" && BigInt(since.xact) >= BigInt(floor.xact);
  return { entries, next: isBehind ? since : floor };
}

/** A named knowledge time; instants in epoch milliseconds. */
export interface Snapshot {
  name: string;
  asOf: number;
  note: string;
  createdAt: number;
}

const snapshotFields = sql`name, ${ms(sql`as_of`)} AS "asOf", note,
  ${ms(sql`created_at`)} AS "createdAt"`;

/** Every snapshot, by name. */
export async function listSnapshots(database: Database): Promise<Snapshot[]> {
  const { rows } = await database.execute<Snapshot & Record<string, unknown>>(
    sql`SELECT ${snapshotFields} FROM snapshot ORDER BY name COLLATE "C"`,
  );
  return rows;
}

/** The snapshot of a name, or null. */
export async function findSnapshot(database: Database, name: string): Promise<Snapshot | null> {
  const { rows } = await database.execute<Snapshot & Record<string, unknown>>(
    sql`SELECT ${snapshotFields} FROM snapshot WHERE name = ${name}`,
  );
  return rows[0] ?? null;
}

/** Longer than a commit's statement takes; while a snapshot waits, new commits queue behind it. */
const SNAPSHOT_WAIT_MS = 10_000;

/**
 * Names a knowledge time that is past, or the present when none is given. Commits under way are
 * waited for, so that nothing can still become known at it. Returns null when the name is taken or
 * the time is to come.
 */
export async function createSnapshot(
  database: Database,
  { name, note, asOf }: { name: string; note: string; asOf?: number | undefined },
): Promise<Snapshot | null> {
  // Another commit may still fall into this millisecond; none can fall into the last one.
  const past = sql`date_trunc('milliseconds', clock_timestamp()) - interval '1 millisecond'`;
  const knowledgeTime = asOf === undefined ? past : at(asOf);
  const [, , created] = await batch<[unknown, unknown, Snapshot]>(database, [
    sql`SET LOCAL lock_timeout = ${sql.raw(String(SNAPSHOT_WAIT_MS))}`,
    // Every commit holds this table's ROW SHARE lock (`insertVintage`), which VACUUM and dumps of
    // `vintage` do not meet.
    sql`LOCK TABLE snapshot IN EXCLUSIVE MODE`,
    sql`
      INSERT INTO snapshot (name, as_of, note, created_at)
      SELECT ${name}, ${knowledgeTime}, ${note}, clock_timestamp() WHERE ${knowledgeTime} <= ${past}
      ON CONFLICT (name) DO NOTHING RETURNING ${snapshotFields}`,
  ]);
  return created[0] ?? null;
}
