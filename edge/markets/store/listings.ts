// The catalog as lists: libraries, symbols, vintages, changes and snapshots. None of them reads
// series data.

import { type SQL, sql } from "drizzle-orm";
import { batch, type Database } from "../../http/database.ts";
import { at, jsonTexts, ms } from "./catalog.ts";
import type { WrittenBy } from "./columns.ts";

/** The libraries that hold a series, sorted. */
export async function listLibraries(database: Database): Promise<string[]> {
  const { rows } = await database.execute<{ library: string }>(
    sql`SELECT DISTINCT library FROM series ORDER BY library`,
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
      FROM vintage JOIN series ON series.id = series_id
     WHERE library IN ${jsonTexts(libraries)} AND source_published_at IS NOT NULL
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
    SELECT coalesce((SELECT json_agg(library ORDER BY library) FROM (SELECT DISTINCT library FROM series) l),
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
  const { rows } = await database.execute<VintageEntry & Record<string, unknown>>(sql`
    SELECT ${entry} FROM vintage v JOIN series s ON s.id = v.series_id
     WHERE s.library = ${library} AND s.symbol = ${symbol} AND v.seq > ${afterSeq}::bigint
       AND v.as_of > ${at(since)} AND v.as_of <= ${at(asOf)}
     ORDER BY v.seq LIMIT ${limit}::int`);
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
    SELECT ${ms(sql`max(v.valid_max)`)} AS newest
      FROM vintage v JOIN series s ON s.id = v.series_id
     WHERE s.library = ${library} AND s.symbol = ${symbol} AND v.as_of <= ${at(asOf)}`);
  return rows[0]?.newest ?? null;
}

/** A position in the change feed: everything at or before it was delivered. */
export interface FeedPosition {
  xact: string;
  seriesId: number;
  seq: number;
}

/**
 * Vintages of all series in the order their transactions began, from a knowledge time or a position
 * on. A vintage is listed once every transaction that began before its own has ended, so a reader
 * that goes on from the last position misses none.
 */
export async function listChanges(
  database: Database,
  query: { since: number | FeedPosition; library?: string | undefined; limit: number },
): Promise<(VintageEntry & { xact: string; seriesId: number })[]> {
  const { since } = query;
  const from: SQL =
    typeof since === "number"
      ? sql`v.as_of > ${at(since)}`
      : sql`(v.xact, v.series_id, v.seq) >
          (${since.xact}::xid8, ${since.seriesId}::int, ${since.seq}::bigint)`;
  const library = query.library === undefined ? sql`` : sql`AND s.library = ${query.library}`;
  const { rows } = await database.execute<
    VintageEntry & { xact: string; seriesId: number } & Record<string, unknown>
  >(sql`
    SELECT ${entry}, v.xact::text AS xact, v.series_id AS "seriesId"
      FROM vintage v JOIN series s ON s.id = v.series_id
     WHERE ${from} ${library} AND v.xact < pg_snapshot_xmin(pg_current_snapshot())
     ORDER BY v.xact, v.series_id, v.seq LIMIT ${query.limit}::int`);
  return rows;
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
  const [, created] = await batch<[unknown, Snapshot]>(database, [
    sql`LOCK TABLE vintage IN SHARE MODE`,
    sql`
      INSERT INTO snapshot (name, as_of, note, created_at)
      SELECT ${name}, ${knowledgeTime}, ${note}, clock_timestamp() WHERE ${knowledgeTime} <= ${past}
      ON CONFLICT (name) DO NOTHING RETURNING ${snapshotFields}`,
  ]);
  return created[0] ?? null;
}
