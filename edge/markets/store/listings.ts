// The catalog as lists: libraries, symbols, vintages, changes and snapshots. None of them reads
// series data. What was archived of vintages and changes comes from its objects.

import { type SQL, sql } from "drizzle-orm";
import * as tables from "../../../db/markets/schema.ts";
import { assert } from "../../../shared/errors.ts";
import { batch, type Database, epochMs } from "../../http/database.ts";
import { columnsOf, rowsOf, selection } from "../../http/selection.ts";
import { at } from "./catalog.ts";
import {
  entryFields,
  type FeedEntry,
  type FeedPosition,
  fetchEntries,
  type VintageEntry,
} from "./entries.ts";
import type { StoreParts } from "./objects.ts";

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
    SELECT symbol, ${epochMs(sql`valid_max`)} AS valid_max FROM series
     WHERE library = ${library} ORDER BY symbol COLLATE "C"`);
  return rows.map((row) => ({ symbol: row.symbol, validMax: row.valid_max }));
}

/** Libraries one by one: the planner knows how few series each holds, but nothing of a list's. */
const named = (libraries: readonly string[]): SQL =>
  sql.join(
    libraries.map((library) => sql`${library}`),
    sql`, `,
  );

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
      ${epochMs(sql`valid_max`)} AS "validMax" FROM series
     WHERE library IN (${named(libraries)})`);
  return new Map(rows.map(({ name, ...head }) => [name, head]));
}

/** The newest dated publication that any series of some libraries was committed from, or null. */
export async function lastPublication(
  database: Database,
  libraries: readonly string[],
): Promise<{ publishedAt: number; sourceUrl: string } | null> {
  const { rows } = await database.execute<{ publishedAt: number; sourceUrl: string }>(sql`
    SELECT ${epochMs(sql`source_published_at`)} AS "publishedAt", source_url AS "sourceUrl"
      FROM series CROSS JOIN LATERAL (
        (SELECT source_published_at, source_url FROM vintage
          WHERE series_id = series.id AND source_published_at IS NOT NULL
          ORDER BY source_published_at DESC LIMIT 1)
        UNION ALL
        (SELECT published_at, published_url FROM vintage_archive
          WHERE series_id = series.id AND published_at IS NOT NULL
          ORDER BY published_at DESC LIMIT 1)) newest
     WHERE library IN (${named(libraries)})
     ORDER BY source_published_at DESC LIMIT 1`);
  return rows[0] ?? null;
}

/** A vintage that an execution of ingest committed, in whichever of its attempts. */
export interface ExecutionVintage {
  library: string;
  symbol: string;
  seq: number;
  asOf: number;
  reconstructed: boolean;
  /** Rows inserted, revised and retracted. */
  rows: number;
}

/** What an execution committed, over all its attempts. */
export async function listExecutionVintages(
  database: Database,
  runId: string,
): Promise<ExecutionVintage[]> {
  const { rows } = await database.execute<ExecutionVintage & Record<string, unknown>>(sql`
    SELECT library, symbol, seq::float8 AS seq, ${epochMs(sql`as_of`)} AS "asOf", reconstructed,
      (inserted + revised + retracted)::float8 AS rows
      FROM vintage JOIN series ON series.id = series_id
     WHERE run_id = ${runId} ORDER BY library, symbol COLLATE "C", seq`);
  return rows;
}

/**
 * Everything `/healthz` tells of the store, in one statement that reads no series data. Whether any
 * is sandbox is asked by the least id of those, which their index has at its end: of `EXISTS` the
 * planner hopes to meet one soon, and reads every series where there is none.
 */
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
      (SELECT ${epochMs(sql`max(as_of)`)} FROM vintage) AS latest_as_of,
      (SELECT min(id) FROM series WHERE sandbox) IS NOT NULL AS sandbox`);
  const row = rows[0];
  return {
    libraries: row?.libraries ?? [],
    latestAsOf: row?.latest_as_of ?? null,
    sandbox: row?.sandbox ?? false,
  };
}

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
  { database, bucket }: StoreParts,
  { library, symbol, afterSeq = 0, since = -Infinity, asOf = Infinity, limit }: VintageQuery,
): Promise<VintageEntry[]> {
  // Knowledge time rises with `seq`, and `seq` has no gaps: a page is a range of it, and no more
  // rows are touched than it has, whatever the planner believes of the table.
  const id = sql`(SELECT id FROM series WHERE library = ${library} AND symbol = ${symbol})`;
  const newest = (instant: number) => sql`coalesce((SELECT seq FROM vintage
    WHERE series_id = ${id} AND as_of <= ${at(instant)} ORDER BY as_of DESC LIMIT 1), 0)`;
  const archivedSeq = sql`(SELECT archived_seq FROM series WHERE id = ${id})`;
  const after = sql`greatest(${afterSeq}::bigint, ${archivedSeq})`;
  const from = since === -Infinity ? after : sql`greatest(${after}, ${newest(since)})`;
  const upTo = asOf === Infinity ? sql`` : sql`AND v.seq <= ${newest(asOf)}`;
  const { rows: young } = await database.execute<FeedEntry & Record<string, unknown>>(sql`
    SELECT ${entryFields} FROM vintage v JOIN series s ON s.id = v.series_id
     WHERE v.series_id = ${id} AND v.seq > ${from} AND v.seq <= ${from} + ${limit}::int ${upTo}
     ORDER BY v.seq`);
  if (young[0]?.seq === afterSeq + 1) return young;
  // Asked after the rows: what is archived between the two is listed twice, never left out.
  const { rows: archives } = await database.execute<{ key: string }>(sql`
    SELECT object_key AS key FROM vintage_archive
     WHERE series_id = ${id} AND seq_max > ${afterSeq}::bigint AND as_of_max > ${at(since)}
       AND as_of_min <= ${at(asOf)} ORDER BY seq_max`);
  const old: VintageEntry[] = [];
  for (const { key } of archives) {
    if (old.length >= limit) break;
    const entries = await fetchEntries(bucket, key);
    const isAsked = (entry: VintageEntry) =>
      entry.seq > afterSeq && entry.asOf > since && entry.asOf <= asOf;
    old.push(...entries.filter(isAsked));
  }
  const archivedUpTo = old.at(-1)?.seq ?? 0;
  return [...old, ...young.filter(({ seq }) => seq > archivedUpTo)].slice(0, limit);
}

/** An archived vintage, and the rows of a full history up to it. */
export type ArchivedVintage = Pick<VintageEntry, "seq" | "asOf" | "liveRows"> & {
  versions: number;
};

const COUNTS = ["seq", "asOf", "liveRows", "inserted", "revised"] as const;

/** The archived vintage that answers at a knowledge time; null before the first. */
export async function archivedVintage(
  { database, bucket }: StoreParts,
  seriesId: number,
  asOf: number,
): Promise<ArchivedVintage | null> {
  const { rows } = await database.execute<{ key: string; before: number }>(sql`
    SELECT object_key AS key, (SELECT coalesce(sum(b.versions), 0)::float8 FROM vintage_archive b
        WHERE b.series_id = a.series_id AND b.seq_max < a.seq_min) AS before
      FROM vintage_archive a WHERE series_id = ${seriesId}::int AND as_of_min <= ${at(asOf)}
     ORDER BY seq_max DESC LIMIT 1`);
  const [object] = rows;
  if (!object) return null;
  const known = (await fetchEntries(bucket, object.key, COUNTS)).filter(
    (entry) => entry.asOf <= asOf,
  );
  const newest = known.at(-1);
  assert(newest, "an archived object holds the vintages that the catalog says");
  const versions = known.reduce((sum, entry) => sum + entry.inserted + entry.revised, 0);
  const { seq, liveRows } = newest;
  return { seq, asOf: newest.asOf, liveRows, versions: object.before + versions };
}

/** What a row's version came from, by `seq`. */
export type Provenance = Pick<VintageEntry, "seq" | "sourceUrl" | "sourcePublishedAt" | "runId">;

const TOUCHES = ["seq", "sourceUrl", "sourcePublishedAt", "runId", "validMin", "validMax"] as const;
const OBJECTS_AT_ONCE = 6;

/** The provenance of every vintage up to `seq` that touched a range. */
export async function listProvenance(
  { database, bucket }: StoreParts,
  query: { seriesId: number; seq: number; from: number; to: number },
): Promise<Map<number, Provenance>> {
  const touching = sql`series_id = ${query.seriesId}::int
    AND valid_max >= ${at(query.from)} AND valid_min < ${at(query.to)}`;
  const { rows } = await database.execute<Provenance & Record<string, unknown>>(sql`
    SELECT seq::float8 AS seq, source_url AS "sourceUrl", run_id AS "runId",
      ${epochMs(sql`source_published_at`)} AS "sourcePublishedAt"
      FROM vintage WHERE ${touching} AND seq <= ${query.seq}::bigint`);
  // Asked after the rows: what is archived between the two is listed twice, never left out.
  const { rows: archives } = await database.execute<{ key: string }>(sql`
    SELECT object_key AS key FROM vintage_archive
     WHERE ${touching} AND seq_min <= ${query.seq}::bigint`);
  const provenance = new Map(rows.map((row) => [row.seq, row as Provenance]));
  for (let from = 0; from < archives.length; from += OBJECTS_AT_ONCE) {
    const keys = archives.slice(from, from + OBJECTS_AT_ONCE);
    const entries = await Promise.all(keys.map(({ key }) => fetchEntries(bucket, key, TOUCHES)));
    for (const { validMin, validMax, ...entry } of entries.flat()) {
      if (entry.seq > query.seq || validMax < query.from || validMin >= query.to) continue;
      provenance.set(entry.seq, entry);
    }
  }
  return provenance;
}

/** The newest valid time that any vintage up to a knowledge time touched; null for none. */
export async function newestTouched(
  { database, bucket }: StoreParts,
  { library, symbol, asOf }: { library: string; symbol: string; asOf: number },
): Promise<number | null> {
  const archived = sql`FROM vintage_archive a WHERE a.series_id = s.id`;
  const { rows } = await database.execute<{ newest: number | null; cut: string | null }>(sql`
    SELECT ${epochMs(sql`CASE WHEN head_as_of <= ${at(asOf)} THEN valid_max ELSE greatest(
        (SELECT max(v.valid_max) FROM vintage v WHERE v.series_id = s.id AND v.as_of <= ${at(asOf)}),
        (SELECT max(a.valid_max) ${archived} AND a.as_of_max <= ${at(asOf)}))
      END`)} AS newest,
      (SELECT a.object_key ${archived} AND a.as_of_min <= ${at(asOf)} AND a.as_of_max > ${at(asOf)})
        AS cut
      FROM series s WHERE library = ${library} AND symbol = ${symbol}`);
  const newest = rows[0]?.newest ?? null;
  const cut = rows[0]?.cut ?? null;
  if (cut === null) return newest;
  const known = (await fetchEntries(bucket, cut, ["asOf", "validMax"])).filter(
    (entry) => entry.asOf <= asOf,
  );
  return known.reduce((max, entry) => Math.max(max, entry.validMax), newest ?? -Infinity);
}

/** A page of the feed. */
export interface FeedPage {
  entries: FeedEntry[];
  /** Where the next page begins; always a position, so that a late commit is never passed over. */
  next: FeedPosition;
  /** True when the next page may have entries now. */
  more: boolean;
}

/**
 * The transaction number below which every transaction that writes a vintage in this database has
 * ended, as a setting of the transaction. A snapshot's own minimum would do, but it is the
 * cluster's: one idle transaction in a neighbouring database would hold the feed. Who writes a
 * vintage has locked the table before it gets its number, since a commit is one statement. Numbers
 * of locks are the lower 32 bits; how far one lies below the snapshot's end is enough.
 */
export const feedFloor = sql`
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

/** Which page of the feed is asked for. */
export interface FeedQuery {
  /** A knowledge time, epoch milliseconds, or the `next` of a page. */
  since: number | FeedPosition;
  library?: string | undefined;
  limit: number;
}

/** An object of the feed's archive. */
interface FeedObject {
  id: number;
  key: string;
}

/** Archived objects that a page looks up at once. */
const FEED_OBJECTS = 8;
const isInArchive = ({ xact, seriesId }: FeedPosition) => xact === "0" && seriesId > 0;

/** A position in the feed as SQL. */
export const positionOf = ({ xact, seriesId, seq }: FeedPosition): SQL =>
  sql`(${xact}::xid8, ${seriesId}::int, ${seq}::bigint)`;

/** The next archived objects that may hold what is asked for. */
function nextObjects({ since, library }: FeedQuery): SQL {
  const beyond =
    typeof since === "number"
      ? sql`a.as_of_max > ${at(since)}`
      : isInArchive(since)
        ? sql`(a.id, a.rows) > (${since.seriesId}::int, ${since.seq}::bigint)`
        : sql`(a.xact, a.series_id, a.seq) > ${positionOf(since)}`;
  const withLibrary = library === undefined ? sql`` : sql`AND ${library} = ANY (a.libraries)`;
  return sql`
    SELECT a.id, a.object_key AS key FROM feed_archive a
     WHERE ${beyond} ${withLibrary} ORDER BY a.id LIMIT ${FEED_OBJECTS}::int`;
}

/**
 * Vintages of all series in the order their transactions began, from a knowledge time or a position
 * on. A vintage is listed once every commit that began before its own has ended, so a reader that
 * goes on from `next` misses none.
 */
export async function listChanges(parts: StoreParts, query: FeedQuery): Promise<FeedPage> {
  const { database } = parts;
  const { since, library, limit } = query;
  if (typeof since === "object" && isInArchive(since)) {
    const { rows: objects } = await database.execute<FeedObject & Record<string, unknown>>(
      nextObjects(query),
    );
    if (objects.length > 0) return archivedChanges(parts, objects, query);
    const { rows: ends } = await database.execute<FeedPosition & Record<string, unknown>>(sql`
      SELECT xact::text AS xact, series_id AS "seriesId", seq::float8 AS seq FROM feed_archive
       WHERE id = ${since.seriesId}::int`);
    return listChanges(parts, { ...query, since: ends[0] ?? { xact: "0", seriesId: 0, seq: 0 } });
  }
  const from =
    typeof since === "number"
      ? sql`v.as_of > ${at(since)}`
      : sql`(v.xact, v.series_id, v.seq) > ${positionOf(since)}`;
  const ofLibrary = library === undefined ? sql`` : sql`AND s.library = ${library}`;
  // The floor is taken first: what ends between the statements is seen by the next. The archive is
  // asked last: a row that was archived and deleted before the second is in an object of the third.
  const [[bound], entries, objects] = await batch<[{ floor: string }, FeedEntry, FeedObject]>(
    database,
    [
      feedFloor,
      sql`
        SELECT ${entryFields} FROM vintage v JOIN series s ON s.id = v.series_id
         WHERE ${from} ${ofLibrary} AND v.xact < current_setting('vantage.feed_floor')::xid8
         ORDER BY v.xact, v.series_id, v.seq LIMIT ${limit}::int`,
      nextObjects(query),
    ],
  );
  if (objects.length > 0) return archivedChanges(parts, objects, query);
  const last = entries.at(-1);
  if (last && entries.length === limit) return { entries, next: last, more: true };
  // Everything below the floor was listed now or before.
  const floor = { xact: bound?.floor ?? "0", seriesId: 0, seq: 0 };
  const isBehind = typeof since === "object" && BigInt(since.xact) >= BigInt(floor.xact);
  return { entries, next: isBehind ? since : floor, more: false };
}

/** The page that some archived objects give, which all lie behind the position asked for. */
async function archivedChanges(
  parts: StoreParts,
  objects: readonly FeedObject[],
  query: FeedQuery,
): Promise<FeedPage> {
  const { since, library, limit } = query;
  const page: FeedEntry[] = [];
  let next: FeedPosition = { xact: "0", seriesId: 0, seq: 0 };
  const isNew = (entry: FeedEntry, id: number, index: number) =>
    typeof since === "number"
      ? entry.asOf > since
      : isInArchive(since)
        ? id > since.seriesId || index >= since.seq
        : isAfter(entry, since);
  for (const { id, key } of objects) {
    for (const [index, entry] of (await fetchEntries(parts.bucket, key)).entries()) {
      next = { xact: "0", seriesId: id, seq: index + 1 };
      if (!isNew(entry, id, index)) continue;
      if (library !== undefined && entry.library !== library) continue;
      page.push(entry);
      if (page.length === limit) return { entries: page, next, more: true };
    }
  }
  // None of them had what is asked for: whoever follows must not take that for the end.
  if (page.length === 0) return listChanges(parts, { ...query, since: next });
  return { entries: page, next, more: true };
}

function isAfter(entry: FeedPosition, position: FeedPosition): boolean {
  const [left, right] = [BigInt(entry.xact), BigInt(position.xact)];
  if (left !== right) return left > right;
  if (entry.seriesId !== position.seriesId) return entry.seriesId > position.seriesId;
  return entry.seq > position.seq;
}

/** A named knowledge time; instants in epoch milliseconds. */
export interface Snapshot {
  name: string;
  asOf: number;
  note: string;
  createdAt: number;
}

const snapshot = columnsOf(tables.snapshot, "snapshot");
const SNAPSHOT: SQL<Snapshot> = selection({
  name: snapshot.name,
  asOf: epochMs(sql`as_of`),
  note: snapshot.note,
  createdAt: epochMs(sql`created_at`),
});

/** Every snapshot, by name. */
export async function listSnapshots(database: Database): Promise<Snapshot[]> {
  return await rowsOf(database, SNAPSHOT)`
    SELECT ${SNAPSHOT} FROM snapshot ORDER BY snapshot.name COLLATE "C"`;
}

/** The snapshot of a name, or null. */
export async function findSnapshot(database: Database, name: string): Promise<Snapshot | null> {
  const [found] = await rowsOf(database, SNAPSHOT)`
    SELECT ${SNAPSHOT} FROM snapshot WHERE name = ${name}`;
  return found ?? null;
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
      ON CONFLICT (name) DO NOTHING RETURNING ${SNAPSHOT}`,
  ]);
  return created[0] ?? null;
}
