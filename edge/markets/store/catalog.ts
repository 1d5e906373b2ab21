// The store's SQL. One statement answers a read's plan, one commits a vintage: over HTTP there is
// no interactive transaction, so whatever must be atomic is a single statement.

import { type SQL, sql } from "drizzle-orm";
import { iso } from "../../../shared/time.ts";
import type { Database } from "../../http/database.ts";
import type { Changes, Range } from "./plan.ts";
import type { Inline } from "./segment.ts";

/** Bounds that Postgres and ISO 8601 both can write; wider instants are clamped to them. */
const EARLIEST = Date.parse("0001-01-01T00:00:00Z");
const LATEST = Date.parse("9999-12-31T23:59:59.999Z");
const at = (instant: number): SQL =>
  sql`${iso(Math.min(Math.max(instant, EARLIEST), LATEST))}::timestamptz`;
const ms = (column: SQL): SQL => sql`(extract(epoch FROM ${column}) * 1000)::float8`;

/** Where a symbol stands at a knowledge time, and what a read of a range must merge. */
export interface Plan {
  seriesId: number;
  valueColumns: string[];
  sandbox: boolean;
  headSeq: number;
  headAsOf: number;
  /** The vintage that answers; 0 before the first. */
  seq: number;
  asOf: number | null;
  /** Rows of a full read at this vintage. */
  liveRows: number;
  inline: { seq: number; asOf: number; reconstructed: boolean; rows: Inline }[];
  segments: { objectKey: string; seq: number; asOf: number; reconstructed: boolean }[];
}

interface PlanQuery {
  library: string;
  symbol: string;
  /** Knowledge time; Infinity for the latest. */
  asOf: number;
  range: Range;
  /** Above this many live rows nothing but the count is fetched. */
  rowsMax?: number;
}

/** The plan of a read, or null when the library has no such symbol. */
export async function planRead(database: Database, query: PlanQuery): Promise<Plan | null> {
  const { library, symbol, asOf, range, rowsMax = Number.MAX_SAFE_INTEGER } = query;
  const overlaps = (table: SQL) =>
    sql`${table}.valid_max >= ${at(range.from)} AND ${table}.valid_min < ${at(range.to)}`;
  const { rows } = await database.execute<{ plan: Plan }>(sql`
    SELECT json_build_object(
      'seriesId', s.id, 'valueColumns', s.value_columns, 'sandbox', s.sandbox,
      'headSeq', s.head_seq, 'headAsOf', ${ms(sql`s.head_as_of`)}, 'seq', coalesce(v.seq, 0), 'asOf', ${ms(sql`v.as_of`)},
      'liveRows', coalesce(v.live_rows, 0),
      'inline', CASE WHEN v.live_rows <= ${rowsMax}::bigint THEN (
        SELECT coalesce(json_agg(json_build_object('seq', d.seq, 'asOf', ${ms(sql`d.as_of`)},
            'reconstructed', d.reconstructed, 'rows', d.inline) ORDER BY d.seq), '[]')
          FROM vintage d
         WHERE d.series_id = s.id AND d.seq <= v.seq AND d.inline IS NOT NULL
           AND ${overlaps(sql`d`)}) ELSE '[]' END,
      'segments', CASE WHEN v.live_rows <= ${rowsMax}::bigint THEN (
        SELECT coalesce(json_agg(json_build_object('objectKey', g.object_key, 'seq', d.seq,
            'asOf', ${ms(sql`d.as_of`)}, 'reconstructed', d.reconstructed) ORDER BY d.seq), '[]')
          FROM segment g JOIN vintage d ON d.series_id = g.series_id AND d.seq = g.seq_min
         WHERE g.series_id = s.id AND g.retired_at IS NULL AND g.seq_min <= v.seq
           AND ${overlaps(sql`g`)}) ELSE '[]' END
    ) AS plan
    FROM series s
    LEFT JOIN LATERAL (
      SELECT seq, as_of, live_rows FROM vintage
       WHERE series_id = s.id AND as_of <= ${at(asOf)} ORDER BY as_of DESC LIMIT 1
    ) v ON true
    WHERE s.library = ${library} AND s.symbol = ${symbol}`);
  return rows[0]?.plan ?? null;
}

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
  inline: Inline | null;
  segment: { objectKey: string; bytes: number; sha256: Uint8Array } | null;
}

const hex = (bytes: Uint8Array) =>
  Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
const bytea = (bytes: Uint8Array): SQL => sql`decode(${hex(bytes)}, 'hex')`;

/**
 * Commits one vintage by compare-and-set on the head. The database clock stamps `as_of`: strictly
 * later than the last one, never in the past. Returns null when another commit came first.
 */
export async function insertVintage(
  database: Database,
  vintage: VintageInsert,
): Promise<{ seq: number; asOf: number } | null> {
  const { changes, covered, inline, segment } = vintage;
  const first = changes.rows[0]?.datetime ?? covered.from;
  const last = changes.rows.at(-1)?.datetime ?? covered.from;
  const now = sql`date_trunc('milliseconds', clock_timestamp())`;
  const head =
    vintage.seenSeq === 0
      ? sql`INSERT INTO series (library, symbol, value_columns, sandbox, head_seq, head_as_of, valid_max)
          SELECT ${vintage.library}, ${vintage.symbol},
            (SELECT array_agg(value) FROM jsonb_array_elements_text(${JSON.stringify(vintage.valueColumns)}::jsonb)),
            ${vintage.sandbox}::boolean, 1, ${now}, ${at(last)}
          ON CONFLICT (library, symbol) DO NOTHING
          RETURNING id, head_seq, head_as_of`
      : sql`UPDATE series SET head_seq = head_seq + 1, valid_max = greatest(valid_max, ${at(last)}),
            head_as_of = greatest(${now}, head_as_of + interval '1 millisecond')
          WHERE library = ${vintage.library} AND symbol = ${vintage.symbol}
            AND head_seq = ${vintage.seenSeq}::bigint
          RETURNING id, head_seq, head_as_of`;
  const object = segment
    ? sql`, g AS (
        INSERT INTO segment (object_key, series_id, level, seq_min, seq_max, valid_min, valid_max,
          rows, bytes, sha256)
        SELECT ${segment.objectKey}, id, 0, head_seq, head_seq, ${at(first)}, ${at(last)},
          ${changes.rows.length}::int, ${segment.bytes}::int, ${bytea(segment.sha256)} FROM s)`
    : sql``;
  const { rows } = await database.execute<{ seq: number; as_of: number }>(sql`
    WITH s AS (${head}),
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
    ${object}
    SELECT head_seq::float8 AS seq, ${ms(sql`head_as_of`)} AS as_of FROM s`);
  const row = rows[0];
  return row ? { seq: row.seq, asOf: row.as_of } : null;
}

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

/** Where a series stands. */
export interface Head {
  seq: number;
  /** Newest valid time ever committed. */
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
     WHERE library IN (SELECT jsonb_array_elements_text(${JSON.stringify(libraries)}::jsonb))`);
  return new Map(rows.map(({ name, ...head }) => [name, head]));
}

/** What one run committed, over all its attempts. */
export interface RunVintage {
  library: string;
  symbol: string;
  seq: number;
  asOf: number;
  /** Rows inserted, revised and retracted. */
  rows: number;
}

export async function listRunVintages(database: Database, runId: string): Promise<RunVintage[]> {
  const { rows } = await database.execute<RunVintage & Record<string, unknown>>(sql`
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
