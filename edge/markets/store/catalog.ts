// The store's SQL. One statement answers a read's plan, one commits a vintage, one swaps compacted
// objects in: over HTTP there is no interactive transaction, so whatever must be atomic is a single
// statement.

import { type SQL, sql } from "drizzle-orm";
import { iso } from "../../../shared/time.ts";
import { type Database, epochMs } from "../../http/database.ts";
import type { Changes, Range } from "./rows.ts";
import type { Inline, SegmentIndex } from "./segment.ts";

/** The first instant that Postgres and ISO 8601 both can write; earlier ones are clamped to it. */
export const EARLIEST = Date.parse("0001-01-01T00:00:00Z");
/** The last such instant; later ones are clamped to it. */
export const LATEST = Date.parse("9999-12-31T23:59:59.999Z");
/** An instant, epoch milliseconds, as SQL. */
export const at = (instant: number): SQL =>
  sql`${iso(Math.min(Math.max(instant, EARLIEST), LATEST))}::timestamptz`;
/** Texts as rows, for `IN`. */
export const jsonTexts = (texts: readonly string[]): SQL =>
  sql`(SELECT jsonb_array_elements_text(${JSON.stringify(texts)}::jsonb))`;

const overlaps = (table: SQL, range: Range) =>
  sql`${table}.valid_max >= ${at(range.from)} AND ${table}.valid_min < ${at(range.to)}`;

/** The index of an object `g`, with the row groups that reach into a range only. */
const indexWithin = ({ from, to }: Range): SQL =>
  from === -Infinity && to === Infinity
    ? sql`g.index`
    : sql`jsonb_set(g.index, '{groups}', jsonb_path_query_array(g.index,
        '$.groups[*] ? (@.validMax >= $from && @.validMin < $to)',
        ${JSON.stringify({ from: Math.max(from, EARLIEST), to: Math.min(to, LATEST + 1) })}::jsonb))`;

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
  /** Without row groups outside the range. */
  index: SegmentIndex;
}

/** A symbol's state at a knowledge time, and what a read of a range must merge. */
export interface Plan {
  seriesId: number;
  /** The database's clock, epoch milliseconds. */
  now: number;
  valueColumns: string[];
  sandbox: boolean;
  headSeq: number;
  headAsOf: number;
  generation: number;
  /** Level-0 objects not compacted yet. */
  pendingObjects: number;
  /** The vintage that answers; 0 before the first, or when it is archived. */
  seq: number;
  asOf: number | null;
  /** Rows of a full read at this vintage. */
  liveRows: number;
  /** Rows of a full history up to this vintage; counted for histories only. */
  versions: number | null;
  /** Vintages up to this one are archived. */
  archivedSeq: number;
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
  /** The vintage that answers, where it is known: an archived one. */
  vintage?: Pick<Plan, "seq" | "liveRows" | "versions"> & { asOf: number };
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
      unchanged: memo ? lastSeen({ ...memo, payload: bytea(memo.payloadSha256) }, range) : NEVER,
    }),
  );
  return rows[0] ? inOrder(rows[0].plan) : null;
}

const NEVER = sql`false`;

/** A plan with its parts in their order: sorted in the database they would take longer to plan. */
function inOrder(plan: Plan): Plan {
  plan.inline.sort((left, right) => left.seq - right.seq);
  plan.segments.sort(
    (left, right) =>
      right.level - left.level ||
      (left.level === 1 ? left.validMin - right.validMin : 0) ||
      left.seq - right.seq,
  );
  return plan;
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
  const plans = new Map(rows.map(({ index, plan }) => [index, inOrder(plan)]));
  return series.map((_, index) => plans.get(index) ?? null);
}

/** May be true of an archived object that only lies around the range: then rows are compared. */
const touchedAfter = (seq: SQL, range: Range) =>
  sql`(EXISTS (SELECT FROM vintage d WHERE d.series_id = s.id AND d.seq > ${seq}
        AND ${overlaps(sql`d`, range)})
    OR EXISTS (SELECT FROM vintage_archive a WHERE a.series_id = s.id AND a.seq_max > ${seq}
        AND ${overlaps(sql`a`, range)}))`;

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
  query: Pick<PlanQuery, "asOf" | "range" | "rowsMax" | "history" | "vintage">,
  { index, from, where, changed, unchanged }: PlanningParts,
): SQL {
  const { asOf, range, vintage, rowsMax } = query;
  const versions = vintage
    ? sql`${vintage.versions}::bigint`
    : query.history
      ? sql`(SELECT sum(inserted + revised) FROM vintage WHERE series_id = s.id AND seq <= v.seq)
          + (SELECT coalesce(sum(versions), 0) FROM vintage_archive WHERE series_id = s.id)`
      : sql`NULL::bigint`;
  const answering = vintage
    ? sql`SELECT ${vintage.seq}::bigint AS seq, ${at(vintage.asOf)} AS as_of,
        ${vintage.liveRows}::bigint AS live_rows`
    : sql`SELECT seq, as_of, live_rows FROM vintage
       WHERE series_id = s.id AND as_of <= ${at(asOf)} ORDER BY as_of DESC LIMIT 1`;
  const fits = sql`coalesce(c.versions, v.live_rows) <= ${rowsMax ?? 0}::bigint`;
  /** A list that is fetched only where rows are read. */
  const listed = (list: SQL) =>
    rowsMax === undefined && unchanged === NEVER
      ? sql`ARRAY(${list})`
      : sql`CASE WHEN ${rowsMax === undefined ? sql`true` : fits} AND NOT c.unchanged
          THEN ARRAY(${list}) ELSE '{}' END`;
  return sql`
    SELECT ${index} AS index, json_build_object(
      'seriesId', s.id, 'now', ${epochMs(sql`clock_timestamp()`)}, 'valueColumns', s.value_columns, 'sandbox', s.sandbox,
      'headSeq', s.head_seq, 'headAsOf', ${epochMs(sql`s.head_as_of`)},
      'generation', s.generation, 'pendingObjects', s.pending_objects,
      'seq', coalesce(v.seq, 0), 'asOf', ${epochMs(sql`v.as_of`)},
      'liveRows', coalesce(v.live_rows, 0), 'versions', c.versions,
      'archivedSeq', s.archived_seq,
      'changed', ${changed}, 'unchanged', c.unchanged,
      'inline', ${listed(sql`
        SELECT json_build_object('seq', d.seq, 'asOf', ${epochMs(sql`d.as_of`)},
            'reconstructed', d.reconstructed, 'rows', d.inline)
          FROM vintage d
         WHERE d.series_id = s.id AND d.seq <= v.seq AND d.inline IS NOT NULL
           AND ${overlaps(sql`d`, range)}`)},
      'segments', ${listed(sql`
        SELECT json_build_object('objectKey', g.object_key, 'level', g.level,
            'seq', g.seq_min, 'asOf', ${epochMs(sql`d.as_of`)}, 'reconstructed', d.reconstructed,
            'validMin', ${epochMs(sql`g.valid_min`)}, 'validMax', ${epochMs(sql`g.valid_max`)},
            'rows', g.rows, 'index', ${indexWithin(range)})
          FROM segment g
          LEFT JOIN vintage d ON g.level = 0 AND d.series_id = g.series_id AND d.seq = g.seq_min
         WHERE g.series_id = s.id AND g.retired_at IS NULL AND g.seq_min <= v.seq
           AND ${overlaps(sql`g`, range)}`)}
    ) AS plan
    FROM ${from}
    LEFT JOIN LATERAL (${answering}) v ON true
    CROSS JOIN LATERAL (SELECT ${versions} AS versions, ${unchanged} AS unchanged) c
    ${where}`;
}

/** The database's clock, epoch milliseconds: the one that stamps `as_of`. */
export async function databaseNow(database: Database): Promise<number> {
  const { rows } = await database.execute<{ now: number }>(
    sql`SELECT ${epochMs(sql`clock_timestamp()`)} AS now`,
  );
  return rows[0]?.now ?? 0;
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
  /** Null when the vintage holds a part of the payload only: then none is remembered. */
  payloadSha256: Uint8Array | null;
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

/** Bytes as hexadecimal digits. */
export const hex = (bytes: Uint8Array) =>
  Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
/** Bytes as SQL. */
export const bytea = (bytes: Uint8Array): SQL => sql`decode(${hex(bytes)}, 'hex')`;

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
  const memo = vintage.payloadSha256
    ? sql`, m AS (
        INSERT INTO ingest_memo (series_id, partition, payload_sha256, seq)
        SELECT id, ${vintage.partition}, ${bytea(vintage.payloadSha256)}, head_seq FROM s
        ON CONFLICT (series_id, partition) DO UPDATE
          SET payload_sha256 = excluded.payload_sha256, seq = excluded.seq)`
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
      FROM s)
    ${memo}
    ${object}
    SELECT head_seq::float8 AS seq, ${epochMs(sql`head_as_of`)} AS as_of FROM s`);
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
