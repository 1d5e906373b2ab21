// The store's SQL. One statement answers a read's plan, one commits a vintage, one swaps compacted
// objects in: over HTTP there is no interactive transaction, so whatever must be atomic is a single
// statement.

import { type SQL, sql } from "drizzle-orm";
import { iso } from "../../../shared/time.ts";
import type { Database } from "../../http/database.ts";
import type { Changes, Range } from "./plan.ts";
import type { Inline, SegmentIndex } from "./segment.ts";

/** The first instant that Postgres and ISO 8601 both can write; earlier ones are clamped to it. */
export const EARLIEST = Date.parse("0001-01-01T00:00:00Z");
/** The last such instant; later ones are clamped to it. */
export const LATEST = Date.parse("9999-12-31T23:59:59.999Z");
/** An instant, epoch milliseconds, as SQL. */
export const at = (instant: number): SQL =>
  sql`${iso(Math.min(Math.max(instant, EARLIEST), LATEST))}::timestamptz`;
/** A timestamp column in epoch milliseconds. */
export const ms = (column: SQL): SQL => sql`(extract(epoch FROM ${column}) * 1000)::float8`;
/** Texts as rows, for `IN`. */
export const jsonTexts = (texts: readonly string[]): SQL =>
  sql`(SELECT jsonb_array_elements_text(${JSON.stringify(texts)}::jsonb))`;

const overlaps = (table: SQL, range: Range) =>
  sql`${table}.valid_max >= ${at(range.from)} AND ${table}.valid_min < ${at(range.to)}`;

/** An object that a read opens; valid times in epoch milliseconds, both inclusive. */
export interface PlannedSegment {
  objectKey: string;
  level: number;
  /** The vintage of a level-0 object; of a level-1 object its oldest, and its rows name theirs. */
  seq: number;
  asOf: number | null;
  reconstructed: boolean | null;
  validMin: number;
  validMax: number;
  /** Versions it holds. */
  rows: number;
  /** Null for objects of releases that kept none. */
  index: SegmentIndex | null;
}

/** A symbol's state at a knowledge time, and what a read of a range must merge. */
export interface Plan {
  seriesId: number;
  valueColumns: string[];
  sandbox: boolean;
  headSeq: number;
  headAsOf: number;
  generation: number;
  /** Level-0 objects not compacted yet. */
  pendingObjects: number;
  /** The vintage that answers; 0 before the first. */
  seq: number;
  asOf: number | null;
  /** Rows of a full read at this vintage. */
  liveRows: number;
  /** Rows of a full history up to this vintage; counted for histories only. */
  versions: number | null;
  /** True when a vintage after `changedSince` touched the range. */
  changed: boolean;
  /** True when the payload is the one last seen, and nothing touched its range since. */
  unchanged: boolean;
  inline: { seq: number; asOf: number; reconstructed: boolean; rows: Inline }[];
  /** Level 1 by valid time, then level 0 by vintage. */
  segments: PlannedSegment[];
}

/** Which read is planned. */
export interface PlanQuery {
  library: string;
  symbol: string;
  /** Knowledge time; Infinity for the latest. */
  asOf: number;
  range: Range;
  /** Above this many rows nothing but the count is fetched. */
  rowsMax?: number;
  /** The rows are those of a full history. */
  history?: boolean;
  /** Ask whether a vintage after this one touched the range. */
  changedSince?: number;
  /** Ask whether this payload was the last one of its partition; nothing else is fetched then. */
  memo?: { partition: string; payloadSha256: Uint8Array };
}

/** The plan of a read, or null when the library has no such symbol. */
export async function planRead(database: Database, query: PlanQuery): Promise<Plan | null> {
  const { library, symbol, range, memo, changedSince } = query;
  const { rows } = await database.execute<{ plan: Plan }>(
    planning(query, {
      index: sql`0`,
      from: sql`series s`,
      where: sql`WHERE s.library = ${library} AND s.symbol = ${symbol}`,
      changed:
        changedSince === undefined ? sql`false` : touchedAfter(sql`${changedSince}::bigint`, range),
      unchanged: memo
        ? lastSeen({ ...memo, payload: bytea(memo.payloadSha256) }, range)
        : sql`false`,
    }),
  );
  return rows[0]?.plan ?? null;
}

/** A series among several whose reads are planned together. */
export interface PlannedSeries {
  library: string;
  symbol: string;
  /** As in `PlanQuery`. */
  changedSince?: number | undefined;
  payloadSha256?: Uint8Array;
}

/** Which reads are planned together. */
export interface PlansQuery extends Pick<PlanQuery, "asOf" | "range"> {
  series: readonly PlannedSeries[];
  /** Whose payloads are compared, where they are given. */
  partition?: string;
}

/** The plans of reads that differ in their series only, in one statement and in their order. */
export async function planReads(database: Database, query: PlansQuery): Promise<(Plan | null)[]> {
  const { series, range, partition = "" } = query;
  const entries = series.map(({ library, symbol, changedSince, payloadSha256 }, index) => ({
    index,
    library,
    symbol,
    since: changedSince ?? null,
    payload: payloadSha256 ? hex(payloadSha256) : null,
  }));
  const { rows } = await database.execute<{ index: number; plan: Plan }>(
    planning(query, {
      index: sql`x.index`,
      from: sql`jsonb_to_recordset(${JSON.stringify(entries)}::jsonb)
        AS x(index int, library text, symbol text, since bigint, payload text)
        JOIN series s ON s.library = x.library AND s.symbol = x.symbol`,
      where: sql``,
      changed: sql`(x.since IS NOT NULL AND ${touchedAfter(sql`x.since`, range)})`,
      unchanged: lastSeen({ partition, payload: sql`decode(x.payload, 'hex')` }, range),
    }),
  );
  const plans = new Map(rows.map(({ index, plan }) => [index, plan]));
  return series.map((_, index) => plans.get(index) ?? null);
}

const touchedAfter = (seq: SQL, range: Range) =>
  sql`EXISTS (SELECT FROM vintage d WHERE d.series_id = s.id AND d.seq > ${seq}
        AND ${overlaps(sql`d`, range)})`;

/** Whether a payload is the last one of its partition, and nothing touched its range since. */
const lastSeen = ({ partition, payload }: { partition: string; payload: SQL }, range: Range) =>
  sql`EXISTS (SELECT FROM ingest_memo m WHERE m.series_id = s.id
        AND m.partition = ${partition} AND m.payload_sha256 = ${payload}
        AND NOT ${touchedAfter(sql`m.seq`, range)})`;

interface PlanningParts {
  /** Position, among the series of the query, of the one that a row is about. */
  index: SQL;
  /** The series of the query, each as `s`. */
  from: SQL;
  where: SQL;
  changed: SQL;
  unchanged: SQL;
}

/** The statement that plans reads: one row a series, with everything its read must merge. */
function planning(
  query: Pick<PlanQuery, "asOf" | "range" | "rowsMax" | "history">,
  { index, from, where, changed, unchanged }: PlanningParts,
): SQL {
  const { asOf, range, rowsMax = Number.MAX_SAFE_INTEGER } = query;
  const versions = query.history
    ? sql`(SELECT sum(inserted + revised) FROM vintage WHERE series_id = s.id AND seq <= v.seq)`
    : sql`NULL::bigint`;
  const mustRead = sql`coalesce(c.versions, v.live_rows) <= ${rowsMax}::bigint AND NOT c.unchanged`;
  return sql`
    SELECT ${index} AS index, json_build_object(
      'seriesId', s.id, 'valueColumns', s.value_columns, 'sandbox', s.sandbox,
      'headSeq', s.head_seq, 'headAsOf', ${ms(sql`s.head_as_of`)},
      'generation', s.generation, 'pendingObjects', s.pending_objects,
      'seq', coalesce(v.seq, 0), 'asOf', ${ms(sql`v.as_of`)},
      'liveRows', coalesce(v.live_rows, 0), 'versions', c.versions,
      'changed', ${changed}, 'unchanged', c.unchanged,
      'inline', CASE WHEN ${mustRead} THEN (
        SELECT coalesce(json_agg(json_build_object('seq', d.seq, 'asOf', ${ms(sql`d.as_of`)},
            'reconstructed', d.reconstructed, 'rows', d.inline) ORDER BY d.seq), '[]')
          FROM vintage d
         WHERE d.series_id = s.id AND d.seq <= v.seq AND d.inline IS NOT NULL
           AND ${overlaps(sql`d`, range)}) ELSE '[]' END,
      'segments', CASE WHEN ${mustRead} THEN (
        SELECT coalesce(json_agg(json_build_object('objectKey', g.object_key, 'level', g.level,
            'seq', g.seq_min, 'asOf', ${ms(sql`d.as_of`)}, 'reconstructed', d.reconstructed,
            'validMin', ${ms(sql`g.valid_min`)}, 'validMax', ${ms(sql`g.valid_max`)},
            'rows', g.rows, 'index', g.index)
            ORDER BY g.level DESC, CASE WHEN g.level = 1 THEN g.valid_min END, g.seq_min), '[]')
          FROM segment g
          LEFT JOIN vintage d ON g.level = 0 AND d.series_id = g.series_id AND d.seq = g.seq_min
         WHERE g.series_id = s.id AND g.retired_at IS NULL AND g.seq_min <= v.seq
           AND ${overlaps(sql`g`, range)}) ELSE '[]' END
    ) AS plan
    FROM ${from}
    LEFT JOIN LATERAL (
      SELECT seq, as_of, live_rows FROM vintage
       WHERE series_id = s.id AND as_of <= ${at(asOf)} ORDER BY as_of DESC LIMIT 1
    ) v ON true
    CROSS JOIN LATERAL (SELECT ${versions} AS versions, ${unchanged} AS unchanged) c
    ${where}`;
}

/** A vintage that is to be committed. */
export interface VintageInsert {
  library: string;
  symbol: string;
  valueColumns: readonly string[];
  sandbox: boolean;
  /** The `head_seq` this commit was planned against; 0 for a symbol not seen yet. */
  seenSeq: number;
  reconstructed: boolean;
  runId: string;
  partition: string;
  sourceUrl: string;
  sourcePublishedAt: number | null;
  covered: Range;
  changes: Changes;
  liveRows: number;
  contentSha256: Uint8Array;
  payloadSha256: Uint8Array;
  inline: Inline | null;
  segment: NewObject | null;
}

/** An object in the bucket that the catalog does not name yet. */
export interface NewObject {
  objectKey: string;
  bytes: number;
  sha256: Uint8Array;
  index: SegmentIndex;
}

const hex = (bytes: Uint8Array) =>
  Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
const bytea = (bytes: Uint8Array): SQL => sql`decode(${hex(bytes)}, 'hex')`;

/**
 * Commits one vintage by compare-and-set on the head. The database clock stamps `as_of`: strictly
 * later than the series' last one and than every snapshot, also where the clock was set back.
 * Returns null when another commit came first.
 */
export async function insertVintage(
  database: Database,
  vintage: VintageInsert,
): Promise<{ seq: number; asOf: number } | null> {
  const { changes, covered, inline, segment } = vintage;
  const first = changes.rows[0]?.datetime ?? covered.from;
  const last = changes.rows.at(-1)?.datetime ?? covered.from;
  const changedRows = changes.rows.length;
  const objects = segment ? 1 : 0;
  const now = sql`greatest(date_trunc('milliseconds', clock_timestamp()),
    (SELECT max(as_of) FROM snapshot) + interval '1 millisecond')`;
  const head =
    vintage.seenSeq === 0
      ? sql`INSERT INTO series (library, symbol, value_columns, sandbox, head_seq, head_as_of,
            valid_max, pending_vintages, pending_rows, pending_objects)
          SELECT ${vintage.library}, ${vintage.symbol},
            (SELECT array_agg(value) FROM jsonb_array_elements_text(${JSON.stringify(vintage.valueColumns)}::jsonb)),
            ${vintage.sandbox}::boolean, 1, ${now}, ${at(last)},
            1, ${changedRows}::bigint, ${objects}::int
          ON CONFLICT (library, symbol) DO NOTHING
          RETURNING id, head_seq, head_as_of`
      : sql`UPDATE series SET head_seq = head_seq + 1, valid_max = greatest(valid_max, ${at(last)}),
            head_as_of = greatest(${now}, head_as_of + interval '1 millisecond'),
            pending_vintages = pending_vintages + 1,
            pending_rows = pending_rows + ${changedRows}::bigint,
            pending_objects = pending_objects + ${objects}::int
          WHERE library = ${vintage.library} AND symbol = ${vintage.symbol}
            AND head_seq = ${vintage.seenSeq}::bigint
          RETURNING id, head_seq, head_as_of`;
  const object = segment
    ? sql`, g AS (
        INSERT INTO segment (object_key, series_id, level, seq_min, seq_max, valid_min, valid_max,
          rows, bytes, sha256, index)
        SELECT ${segment.objectKey}, id, 0, head_seq, head_seq, ${at(first)}, ${at(last)},
          ${changedRows}::int, ${segment.bytes}::int, ${bytea(segment.sha256)},
          ${JSON.stringify(segment.index)}::jsonb FROM s)`
    : sql``;
  const { rows } = await database.execute<{ seq: number; as_of: number }>(sql`
    WITH s AS (${head}),
    -- Takes the table's ROW SHARE lock and no row's: \`createSnapshot\` waits for those who hold it.
    unfrozen AS (SELECT FROM snapshot WHERE false FOR KEY SHARE),
    v AS (
      INSERT INTO vintage (series_id, seq, as_of, reconstructed, run_id, partition, source_url,
        source_published_at, covered_from, covered_to, valid_min, valid_max,
        inserted, revised, retracted, live_rows, content_sha256, inline)
      SELECT id, head_seq, head_as_of, ${vintage.reconstructed}::boolean, ${vintage.runId},
        ${vintage.partition}, ${vintage.sourceUrl},
        ${vintage.sourcePublishedAt === null ? sql`NULL::timestamptz` : at(vintage.sourcePublishedAt)},
        ${at(covered.from)}, ${at(covered.to)}, ${at(first)}, ${at(last)},
        ${changes.inserted}::int, ${changes.revised}::int, ${changes.retracted}::int,
        ${vintage.liveRows}::bigint, ${bytea(vintage.contentSha256)},
        ${inline && JSON.stringify(inline)}::jsonb
      FROM s),
    m AS (
      INSERT INTO ingest_memo (series_id, partition, payload_sha256, seq)
      SELECT id, ${vintage.partition}, ${bytea(vintage.payloadSha256)}, head_seq FROM s
      ON CONFLICT (series_id, partition) DO UPDATE
        SET payload_sha256 = excluded.payload_sha256, seq = excluded.seq)
    ${object}
    SELECT head_seq::float8 AS seq, ${ms(sql`head_as_of`)} AS as_of FROM s`);
  const row = rows[0];
  return row ? { seq: row.seq, asOf: row.as_of } : null;
}

/** Remembers that a partition's payload and the store agreed at `seq`. */
export async function remember(
  database: Database,
  memo: { seriesId: number; partition: string; payloadSha256: Uint8Array; seq: number },
) {
  await database.execute(sql`
    INSERT INTO ingest_memo (series_id, partition, payload_sha256, seq)
    VALUES (${memo.seriesId}::int, ${memo.partition}, ${bytea(memo.payloadSha256)}, ${memo.seq}::bigint)
    ON CONFLICT (series_id, partition) DO UPDATE
      SET payload_sha256 = excluded.payload_sha256, seq = excluded.seq`);
}

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

/** The keys among these that the catalog names, live or retired. */
export async function listNamedObjects(
  database: Database,
  keys: readonly string[],
): Promise<Set<string>> {
  const { rows } = await database.execute<{ object_key: string }>(sql`
    SELECT object_key FROM segment WHERE object_key IN ${jsonTexts(keys)}`);
  return new Set(rows.map((row) => row.object_key));
}

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
