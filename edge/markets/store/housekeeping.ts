// The SQL of keeping house: what compaction swaps in, what archiving moves out, what collection
// deletes, and whose turn it is.

import { sql } from "drizzle-orm";
import { iso } from "../../../shared/time.ts";
import { batch, type Database } from "../../http/database.ts";
import { at, bytea, hex, jsonTexts, type NewObject } from "./catalog.ts";
import { entryFields, type FeedEntry, type FeedPosition } from "./entries.ts";
import { feedFloor, positionOf } from "./listings.ts";
import type { Inline } from "./segment.ts";

/** A compacted object, with what it holds. */
export interface CompactedObject extends NewObject {
  seqMin: number;
  seqMax: number;
  validMin: number;
  validMax: number;
  rows: number;
}

/** What a step of compaction replaces, and by what. */
export interface Swap {
  seriesId: number;
  generation: number;
  /** Objects whose rows it took, all of them. */
  retired: readonly string[];
  /** Level-0 objects of which it took so many rows, those before `validMin`. */
  trimmed: readonly { objectKey: string; validMin: string; rows: number }[];
  /** Vintages whose inline rows it took, all of them. */
  flushed: readonly number[];
  /** Vintages of whose inline rows these are left. */
  shortened: readonly { seq: number; inline: Inline }[];
  /** Rows it took that no compaction had taken before. */
  rows: number;
  objects: readonly CompactedObject[];
}

/**
 * Replaces what compacted objects were made from by those objects, by compare-and-set on the
 * generation. Returns false when another compaction came first.
 */
export async function swapSegments(database: Database, swap: Swap): Promise<boolean> {
  const objects = swap.objects.map((object) => ({
    ...object,
    sha256: hex(object.sha256),
    validMin: iso(object.validMin),
    validMax: iso(object.validMax),
  }));
  const { rows } = await database.execute(sql`
    WITH retired AS (
      SELECT g.object_key, g.level FROM segment g
       WHERE g.object_key IN ${jsonTexts(swap.retired)}
    ), flushed AS (
      SELECT value::bigint AS seq
        FROM jsonb_array_elements_text(${JSON.stringify(swap.flushed)}::jsonb)
    ), s AS (
      UPDATE series SET generation = generation + 1, compacted_at = clock_timestamp(),
        compaction_tried_at = NULL,
        pending_vintages = pending_vintages - (SELECT count(*) FROM flushed)
          - (SELECT count(*) FROM retired WHERE level = 0),
        pending_rows = pending_rows - ${swap.rows}::bigint,
        pending_objects = pending_objects - (SELECT count(*) FROM retired WHERE level = 0)
       WHERE id = ${swap.seriesId}::int AND generation = ${swap.generation}::bigint
      RETURNING id
    ), r AS (
      UPDATE segment g SET retired_at = clock_timestamp() FROM s
       WHERE g.series_id = s.id AND g.object_key IN (SELECT object_key FROM retired)
    ), f AS (
      UPDATE vintage d SET inline = NULL FROM s
       WHERE d.series_id = s.id AND d.seq IN (SELECT seq FROM flushed)
    ), t AS (
      UPDATE segment g SET valid_min = x."validMin", rows = g.rows - x.rows
        FROM s, jsonb_to_recordset(${JSON.stringify(swap.trimmed)}::jsonb)
          AS x("objectKey" text, "validMin" timestamptz, rows int)
       WHERE g.object_key = x."objectKey"
    ), h AS (
      UPDATE vintage d SET inline = x.inline
        FROM s, jsonb_to_recordset(${JSON.stringify(swap.shortened)}::jsonb)
          AS x(seq bigint, inline jsonb)
       WHERE d.series_id = s.id AND d.seq = x.seq
    ), o AS (
      INSERT INTO segment (object_key, series_id, level, seq_min, seq_max, valid_min, valid_max,
        rows, bytes, sha256, index)
      SELECT o->>'objectKey', s.id, 1, (o->>'seqMin')::bigint, (o->>'seqMax')::bigint,
        (o->>'validMin')::timestamptz, (o->>'validMax')::timestamptz,
        (o->>'rows')::int, (o->>'bytes')::int, decode(o->>'sha256', 'hex'),
        o->'index'
        FROM s, jsonb_array_elements(${JSON.stringify(objects)}::jsonb) o)
    SELECT id FROM s`);
  return rows.length > 0;
}

/** When a series is worth compacting. */
export interface CompactionPolicy {
  vintages: number;
  rows: number;
  objects: number;
  /** Whatever waits is compacted when the last compaction is this long ago. */
  idleMs: number;
  /** How long a series rests whose compaction failed or was cut off. */
  retryMs: number;
}

/**
 * Takes the series that most needs compaction by the policy, or null when none does. A series whose
 * last compaction failed or was cut off is passed over for `retryMs`, so that it keeps no other one
 * waiting.
 */
export async function takePending(
  database: Database,
  policy: CompactionPolicy,
): Promise<{ library: string; symbol: string } | null> {
  const before = (milliseconds: number) =>
    sql`now() - ${milliseconds}::float8 * interval '1 millisecond'`;
  const { rows } = await database.execute<{ library: string; symbol: string }>(sql`
    UPDATE series SET compaction_tried_at = now() WHERE id = (
      SELECT id FROM series
       WHERE pending_vintages > 0 AND (
         pending_vintages >= ${policy.vintages}::int OR pending_rows >= ${policy.rows}::bigint
         OR pending_objects >= ${policy.objects}::int
         OR coalesce(compacted_at, head_as_of) < ${before(policy.idleMs)})
         AND (compaction_tried_at IS NULL OR compaction_tried_at < ${before(policy.retryMs)})
       ORDER BY pending_objects DESC, pending_vintages DESC LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING library, symbol`);
  return rows[0] ?? null;
}

/** Objects retired long enough ago that no read can still have planned with them. */
export async function listRetired(database: Database, graceMs: number): Promise<string[]> {
  const { rows } = await database.execute<{ object_key: string }>(sql`
    SELECT object_key FROM segment
     WHERE retired_at <= clock_timestamp() - ${graceMs}::float8 * interval '1 millisecond'
     ORDER BY retired_at LIMIT 1000`);
  return rows.map((row) => row.object_key);
}

/** Drops retired objects that were deleted from the catalog. */
export async function forgetRetired(database: Database, keys: readonly string[]) {
  await database.execute(sql`
    DELETE FROM segment WHERE retired_at IS NOT NULL AND object_key IN ${jsonTexts(keys)}`);
}

/**
 * Every object that the catalog names. Retired ones are not required: one that was deleted leaves
 * its row for a moment.
 */
export const NAMED_OBJECTS = sql`
  SELECT object_key AS key, retired_at IS NULL AS required FROM segment
  UNION ALL SELECT object_key, true FROM vintage_archive
  UNION ALL SELECT object_key, true FROM feed_archive`;

/** Takes a chore for this process if it was last done before `intervalMs` ago. */
export async function takeChore(
  database: Database,
  chore: string,
  intervalMs: number,
): Promise<boolean> {
  const { rows } = await database.execute(sql`
    INSERT INTO housekeeping (chore, last_at) VALUES (${chore}, clock_timestamp())
    ON CONFLICT (chore) DO UPDATE SET last_at = excluded.last_at
     WHERE housekeeping.last_at < excluded.last_at - ${intervalMs}::float8 * interval '1 millisecond'
    RETURNING chore`);
  return rows.length > 0;
}

/** Lets a chore that failed be taken again `retryMs` from now. */
export async function retryChore(
  database: Database,
  chore: string,
  { intervalMs, retryMs }: { intervalMs: number; retryMs: number },
) {
  await database.execute(sql`
    UPDATE housekeeping
       SET last_at = clock_timestamp() - ${intervalMs - retryMs}::float8 * interval '1 millisecond'
     WHERE chore = ${chore}`);
}

/** What is archived, and when that is worth an object. */
export interface ArchivePolicy {
  /** Vintages younger than this, by the database clock, stay. */
  ageMs: number;
  /** Old vintages of the feed that are worth an object, and how many one holds at most. */
  feedMin: number;
  feedMax: number;
  /** The same of a series. */
  seriesMin: number;
  seriesMax: number;
}

const isOld = (ageMs: number) =>
  sql`v.as_of < clock_timestamp() - ${ageMs}::float8 * interval '1 millisecond'`;

/** The feed's position of the last vintage of its archive, and its newest object's id. */
export type FeedArchiveEnd = FeedPosition & { id: number };

/** The end of the feed's archive; all zeros before its first object. */
export async function feedArchiveEnd(database: Database): Promise<FeedArchiveEnd> {
  const { rows } = await database.execute<FeedArchiveEnd & Record<string, unknown>>(sql`
    SELECT id, xact::text AS xact, series_id AS "seriesId", seq::float8 AS seq
      FROM feed_archive ORDER BY id DESC LIMIT 1`);
  return rows[0] ?? { id: 0, xact: "0", seriesId: 0, seq: 0 };
}

/** The old vintages that follow the end of the feed's archive, in the feed's order. */
export async function listArchivable(
  database: Database,
  end: FeedArchiveEnd,
  { ageMs, feedMax }: ArchivePolicy,
): Promise<FeedEntry[]> {
  const [, rows] = await batch<[unknown, FeedEntry & { old: boolean }]>(database, [
    feedFloor,
    sql`
      SELECT ${entryFields}, ${isOld(ageMs)} AS old
        FROM vintage v JOIN series s ON s.id = v.series_id
       WHERE (v.xact, v.series_id, v.seq) > ${positionOf(end)}
         AND v.xact < current_setting('vantage.feed_floor')::xid8
       ORDER BY v.xact, v.series_id, v.seq LIMIT ${feedMax}::int`,
  ]);
  const young = rows.findIndex(({ old }) => !old);
  return young < 0 ? rows : rows.slice(0, young);
}

/** Adds an object to the feed's archive; false when another one has its id already. */
export async function insertFeedArchive(
  database: Database,
  {
    id,
    entries,
    object,
  }: { id: number; entries: readonly FeedEntry[]; object: Omit<NewObject, "index"> },
): Promise<boolean> {
  const last = entries.at(-1) as FeedPosition;
  const libraries = JSON.stringify([...new Set(entries.map(({ library }) => library))]);
  const asOfMax = entries.reduce((max, { asOf }) => Math.max(max, asOf), -Infinity);
  const { rows } = await database.execute(sql`
    INSERT INTO feed_archive (id, object_key, rows, libraries, as_of_max, xact, series_id, seq,
      bytes, sha256)
    VALUES (${id}::int, ${object.objectKey}, ${entries.length}::int,
      (SELECT array_agg(value) FROM jsonb_array_elements_text(${libraries}::jsonb)),
      ${at(asOfMax)}, ${last.xact}::xid8, ${last.seriesId}::int, ${last.seq}::bigint,
      ${object.bytes}::int, ${bytea(object.sha256)})
    ON CONFLICT (id) DO NOTHING RETURNING id`);
  return rows.length > 0;
}

/** A series with vintages to archive: those after `archivedSeq`, up to `seqMax`. */
export interface ArchivableSeries {
  id: number;
  library: string;
  symbol: string;
  archivedSeq: number;
  seqMax: number;
}

/**
 * Series with enough old vintages whose rows compaction took and which the feed's archive has, in
 * the order of their ids. The newest vintage of a series always stays.
 */
export async function listArchivableSeries(
  database: Database,
  { end, afterId }: { end: FeedArchiveEnd; afterId: number },
  { ageMs, seriesMin, seriesMax }: ArchivePolicy,
): Promise<ArchivableSeries[]> {
  // Most series have no vintage that far on which is old: one lookup by key tells.
  const { rows } = await database.execute<ArchivableSeries & Record<string, unknown>>(sql`
    SELECT s.id, s.library, s.symbol, s.archived_seq::float8 AS "archivedSeq",
      c."seqMax"::float8 AS "seqMax"
      FROM series s
      JOIN vintage v ON v.series_id = s.id AND v.seq = s.archived_seq + ${seriesMin}::int
      CROSS JOIN LATERAL (SELECT least(
        -- Of the three only this one knows of age and feed: without any such vintage it is 0.
        coalesce((SELECT max(v.seq) FROM vintage v
          WHERE v.series_id = s.id AND v.seq > s.archived_seq
            AND v.seq <= s.archived_seq + ${seriesMax}::int
            AND v.seq < s.head_seq AND ${isOld(ageMs)}
            AND (v.xact, v.series_id, v.seq) <= ${positionOf(end)}), 0),
        (SELECT min(seq) - 1 FROM vintage WHERE series_id = s.id AND inline IS NOT NULL),
        (SELECT min(seq_min) - 1 FROM segment
          WHERE series_id = s.id AND level = 0 AND retired_at IS NULL)) AS "seqMax") c
     WHERE s.id > ${afterId}::int AND ${isOld(ageMs)}
       AND c."seqMax" >= s.archived_seq + ${seriesMin}::int
     ORDER BY s.id LIMIT 100`);
  return rows;
}

/** The entries of the vintages that a series would archive. */
export async function listOldVintages(
  database: Database,
  { id, archivedSeq, seqMax }: ArchivableSeries,
): Promise<FeedEntry[]> {
  const { rows } = await database.execute<FeedEntry & Record<string, unknown>>(sql`
    SELECT ${entryFields} FROM vintage v JOIN series s ON s.id = v.series_id
     WHERE v.series_id = ${id}::int AND v.seq > ${archivedSeq}::bigint
       AND v.seq <= ${seqMax}::bigint ORDER BY v.seq`);
  return rows;
}

/**
 * Replaces the rows of a series' old vintages by the object that holds them, once the feed's
 * archive has the last of them. Returns false when another process came first.
 */
export async function swapVintages(
  database: Database,
  series: ArchivableSeries,
  { entries, object }: { entries: readonly FeedEntry[]; object: Omit<NewObject, "index"> },
): Promise<boolean> {
  const bound = (pick: (entry: FeedEntry) => number, choose: typeof Math.max) =>
    at(entries.map(pick).reduce((one, other) => choose(one, other)));
  const published = entries.reduce<FeedEntry | null>(
    (newest, entry) =>
      (entry.sourcePublishedAt ?? -Infinity) > (newest?.sourcePublishedAt ?? -Infinity)
        ? entry
        : newest,
    null,
  );
  const publishedAt = published?.sourcePublishedAt ?? null;
  const versions = entries.reduce((sum, { inserted, revised }) => sum + inserted + revised, 0);
  const [swapped] = await batch(database, [
    sql`
      WITH s AS (
        UPDATE series SET archived_seq = ${series.seqMax}::bigint
         WHERE id = ${series.id}::int AND archived_seq = ${series.archivedSeq}::bigint
           AND ${positionOf(entries.at(-1) as FeedEntry)} <=
             (SELECT xact, series_id, seq FROM feed_archive ORDER BY id DESC LIMIT 1)
        RETURNING id
      ), a AS (
        INSERT INTO vintage_archive (object_key, series_id, seq_min, seq_max, as_of_min, as_of_max,
          valid_min, valid_max, versions, published_at, published_url, bytes, sha256)
        SELECT ${object.objectKey}, id, ${series.archivedSeq + 1}::bigint,
          ${series.seqMax}::bigint,
          ${bound((entry) => entry.asOf, Math.min)}, ${bound((entry) => entry.asOf, Math.max)},
          ${bound((entry) => entry.validMin, Math.min)},
          ${bound((entry) => entry.validMax, Math.max)}, ${versions}::bigint,
          ${publishedAt === null ? sql`NULL::timestamptz` : at(publishedAt)},
          ${published?.sourceUrl ?? null}, ${object.bytes}::int, ${bytea(object.sha256)} FROM s)
      SELECT id FROM s`,
    // Only what is archived, by whichever process.
    sql`
      DELETE FROM vintage USING series
       WHERE series.id = ${series.id}::int AND series_id = series.id AND seq <= archived_seq`,
  ]);
  return swapped.length > 0;
}
