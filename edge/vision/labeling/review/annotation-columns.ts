// All stored annotations of a job as columns of bytes, or what changed of them since a number:
// the layout is that of `shared/columns`. Postgres makes one text of the rows of a page; JSON with
// a row each would take several times as long.

import { type SQL, sql } from "drizzle-orm";
import {
  BLOCK_ROWS_MAX,
  COLUMNS_VERSION,
  type ColumnsHeader,
  confidenceCode,
  FLAGS,
  ID_BYTES,
  idText,
  NO_CONFIDENCE,
  type RowColumns,
  SOURCES,
  STATES,
} from "../../../../shared/columns/column-layout.ts";
import { deletedBlock, endBlock, newRowsBlock } from "../../../../shared/columns/column-writer.ts";
import { assert, Failure } from "../../../../shared/errors.ts";
import { batch, type Database } from "../../../http/database.ts";
import { editsSeq } from "../jobs/jobs.ts";
import { BY_INDEX } from "./annotation-pages.ts";
import { repeated } from "./annotations.ts";

/**
 * What the columns of a job begin with; fails with `not_found` where the job is gone. Its number is
 * read before any row: what changes while rows are read has a greater one, and comes again with the
 * next difference.
 */
export async function columnsHeader(
  database: Database,
  jobId: string,
  afterSeq: number | null,
): Promise<ColumnsHeader> {
  const rows =
    afterSeq === null
      ? sql`(SELECT coalesce(sum(annotations), 0) FROM annotation_count n WHERE n.job_id = j.id)`
      : sql`(SELECT count(*) FROM annotation a WHERE a.job_id = j.id
          AND ${isAfter(afterSeq)})`;
  const { rows: found } = await database.execute<Omit<ColumnsHeader, "version" | "after_seq">>(sql`
    SELECT j.id AS job_id, ${editsSeq(sql`j.id`)} AS edits_seq, j.threshold,
      (SELECT coalesce(json_agg(json_build_object('number', c.number, 'name', c.name)
          ORDER BY c.number), '[]') FROM job_class c WHERE c.job_id = j.id) AS classes,
      (SELECT coalesce(json_agg(json_build_object('video_id', v.id, 'filename', v.filename,
          'width', v.width, 'height', v.height, 'frame_count', v.frame_count) ORDER BY v.id), '[]')
        FROM job_video jv JOIN video v ON v.id = jv.video_id WHERE jv.job_id = j.id) AS videos,
      ${rows}::int AS rows
      FROM job j WHERE j.id = ${jobId}::uuid`);
  const [row] = found;
  if (!row) throw new Failure("not_found", "the job was deleted meanwhile");
  const { job_id, edits_seq, threshold, classes, videos } = row;
  const of = { job_id, edits_seq, after_seq: afterSeq, threshold, classes, videos };
  return { version: COLUMNS_VERSION, ...of, rows: row.rows };
}

/**
 * The blocks that follow a header. The next page is read while its reader takes the one before, so
 * that no more than two are in memory.
 */
export async function* columnBlocks(
  database: Database,
  header: ColumnsHeader,
): AsyncGenerator<Uint8Array> {
  let sent = 0;
  const { after_seq: afterSeq } = header;
  const pages =
    afterSeq === null ? wholeJob(database, header) : changes(database, header, afterSeq);
  for await (const page of ahead(pages)) {
    const block = rowsBlock(page, header);
    if (!block) continue;
    sent += block.rows;
    yield block.bytes;
  }
  if (afterSeq !== null) yield* deletions(database, header, afterSeq);
  yield endBlock(sent);
}

/** The same entries, each asked for as soon as the one before came. */
async function* ahead<Entry>(entries: AsyncIterator<Entry>): AsyncGenerator<Entry> {
  let next = entries.next();
  for (;;) {
    const { done, value } = await next;
    if (done) return;
    next = entries.next();
    // Where nobody reads on, nobody hears of its failure either.
    next.catch(() => {});
    yield value;
  }
}

/** Rows of one video: records of `RECORD_BYTES` each, and the greatest of their numbers. */
interface VideoRecords {
  videoId: string;
  records: Uint8Array<ArrayBuffer>;
  seq: number;
}

const RECORD_BYTES = 56;
/** Positions in a record, whose numbers are big-endian. */
const FRAME = 16;
const CLASS = 20;
const TRACK = 24;
const REVISION = 28;
const BOX = 32;
const CONFIDENCE = 48;
const BITS = 52;
/** Factors by which source and flags stand above the state in one number of a record. */
const SOURCE_BIT = 4;
const FLAGS_BIT = 16;

const numeral = (value: number): SQL => sql.raw(String(value));

/** The index of a text in a list, as a number of SQL. */
const indexIn = (column: SQL, values: readonly string[]): SQL =>
  sql`CASE ${column} ${sql.join(
    values.map((value, index) => sql`WHEN ${sql.raw(`'${value}'`)} THEN ${numeral(index)}`),
    sql` `,
  )} END`;

/** A flag where a condition holds. */
const flagIf = (condition: SQL, flag: number): SQL =>
  sql`CASE WHEN ${condition} THEN ${numeral(flag)} ELSE 0 END`;

/** An annotation `a` as a record. */
const recordOf = (threshold: number): SQL => sql`
  uuid_send(a.id) || int4send(a.frame_index) || int4send(a.class_number)
    || int4send(coalesce(a.track_id, 0)) || int4send(a.revision)
    || float4send(a.x1) || float4send(a.y1) || float4send(a.x2) || float4send(a.y2)
    || float4send(coalesce(a.confidence, 'NaN'))
    || int4send(${indexIn(sql`a.review`, STATES)}
      + ${numeral(SOURCE_BIT)} * ${indexIn(sql`a.source`, SOURCES)}
      + ${numeral(FLAGS_BIT)} * (${flagIf(repeated(threshold), FLAGS.duplicate)}
        + ${flagIf(sql`a.keyframe`, FLAGS.keyframe)}
        + ${flagIf(sql`a.polygon IS NOT NULL`, FLAGS.polygon)}))`;

/** The annotations of a SELECT, of which at most a page follows. */
async function recordsOf(
  database: Database,
  { threshold }: ColumnsHeader,
  page: SQL,
): Promise<VideoRecords[]> {
  const [, rows] = await batch<[unknown, { videoId: string; records: string; seq: number }]>(
    database,
    [
      BY_INDEX,
      sql`
    SELECT a.video_id::text AS "videoId", max(a.seq)::float8 AS seq, encode(string_agg(
        ${recordOf(threshold)}, ''::bytea ORDER BY a.frame_index, a.id), 'base64') AS records
      FROM (${page} LIMIT ${BLOCK_ROWS_MAX}::int) a GROUP BY a.video_id ORDER BY a.video_id`,
    ],
  );
  return rows.map(({ videoId, records, seq }) => ({ videoId, seq, records: bytesOf(records) }));
}

function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = text.charCodeAt(at);
  return bytes;
}

const sizeOf = (page: readonly VideoRecords[]): number =>
  page.reduce((sum, { records }) => sum + records.length / RECORD_BYTES, 0);

/** All rows of a job, page by page in the order of videos, frames and ids. */
async function* wholeJob(
  database: Database,
  header: ColumnsHeader,
): AsyncGenerator<VideoRecords[]> {
  let after = sql`true`;
  for (;;) {
    const page = await recordsOf(
      database,
      header,
      sql`SELECT * FROM annotation a WHERE a.job_id = ${header.job_id}::uuid AND ${after}
           ORDER BY a.video_id, a.frame_index, a.id`,
    );
    yield page;
    const last = page.at(-1);
    if (!last || sizeOf(page) < BLOCK_ROWS_MAX) return;
    const { records, videoId } = last;
    const record = records.subarray(-RECORD_BYTES);
    const frame = new DataView(record.buffer, record.byteOffset).getInt32(FRAME);
    const id = idText(record, 0);
    after = sql`(a.video_id, a.frame_index, a.id) > (${videoId}::uuid, ${frame}::int, ${id}::uuid)`;
  }
}

/** The condition on an annotation `a` that its number is above another. */
const isAfter = (seq: number): SQL =>
  // The index lacks those without a number, which the planner is to see.
  sql`a.seq > 0 AND a.seq > ${seq}::bigint`;

/** Rows of a job whose numbers lie between two, page by page in their order. */
async function* changes(
  database: Database,
  header: ColumnsHeader,
  afterSeq: number,
): AsyncGenerator<VideoRecords[]> {
  for (let after = afterSeq; ; ) {
    const page = await recordsOf(
      database,
      header,
      sql`SELECT * FROM annotation a WHERE a.job_id = ${header.job_id}::uuid
             AND ${isAfter(after)} AND a.seq <= ${header.edits_seq}::bigint ORDER BY a.seq`,
    );
    yield page;
    if (sizeOf(page) < BLOCK_ROWS_MAX) return;
    after = Math.max(...page.map(({ seq }) => seq));
  }
}

/** Blocks of the ids of what was deleted between two numbers and is not there again. */
async function* deletions(
  database: Database,
  header: ColumnsHeader,
  afterSeq: number,
): AsyncGenerator<Uint8Array> {
  for (let after: number | null = afterSeq; after !== null; ) {
    const page: DeletionPage = await deletionPage(database, header, after);
    if (page.ids !== null) yield deletedBlock(bytesOf(page.ids));
    after = page.last;
  }
}

interface DeletionPage extends Record<string, unknown> {
  /** Sixteen bytes each, as base64; null where none is gone for good. */
  ids: string | null;
  /** Number of the last deletion; null where none is left. */
  last: number | null;
}

async function deletionPage(
  database: Database,
  { job_id: jobId, edits_seq: editsSeq }: ColumnsHeader,
  after: number,
): Promise<DeletionPage> {
  const { rows } = await database.execute<DeletionPage>(sql`
    SELECT encode(string_agg(uuid_send(d.annotation_id), ''::bytea ORDER BY d.seq)
        FILTER (WHERE a.id IS NULL), 'base64') AS ids, max(d.seq)::float8 AS last
      FROM (SELECT * FROM annotation_deletion d WHERE d.job_id = ${jobId}::uuid
         AND d.seq > ${after}::bigint AND d.seq <= ${editsSeq}::bigint
       ORDER BY d.seq LIMIT ${BLOCK_ROWS_MAX}::int) d
      LEFT JOIN annotation a ON a.id = d.annotation_id`);
  const [page] = rows;
  assert(page, "an aggregate answers one row");
  return page;
}

/**
 * A page as a block. Rows of a video that came to the job after its header was read are left out:
 * their numbers are greater, and the next difference has them. Null where no row is left.
 */
function rowsBlock(
  page: readonly VideoRecords[],
  { videos }: ColumnsHeader,
): { bytes: Uint8Array; rows: number } | null {
  const indexes = new Map(videos.map(({ video_id }, index) => [video_id, index]));
  const known = page.filter(({ videoId }) => indexes.has(videoId));
  const rows = sizeOf(known);
  if (rows === 0) return null;
  const { bytes, columns } = newRowsBlock(rows);
  let row = 0;
  for (const { videoId, records } of known) {
    columns.video.fill(indexes.get(videoId) ?? 0, row, row + records.length / RECORD_BYTES);
    for (let at = 0; at < records.length; at += RECORD_BYTES) fill(columns, row++, records, at);
  }
  return { bytes, rows };
}

function fill(columns: RowColumns, row: number, records: Uint8Array<ArrayBuffer>, at: number) {
  const view = new DataView(records.buffer, at, RECORD_BYTES);
  const bits = view.getInt32(BITS);
  const confidence = view.getFloat32(CONFIDENCE);
  const classNumber = view.getInt32(CLASS);
  assert(classNumber < 65_536, "a job has had fewer classes than a column can number");
  columns.id.set(records.subarray(at, at + ID_BYTES), row * ID_BYTES);
  columns.frame[row] = view.getInt32(FRAME);
  columns.revision[row] = view.getInt32(REVISION);
  columns.track[row] = view.getInt32(TRACK);
  for (let corner = 0; corner < 4; corner++) {
    columns.box[4 * row + corner] = view.getFloat32(BOX + 4 * corner);
  }
  columns.class[row] = classNumber;
  columns.confidence[row] = Number.isNaN(confidence) ? NO_CONFIDENCE : confidenceCode(confidence);
  columns.state[row] = bits % SOURCE_BIT;
  columns.source[row] = Math.floor(bits / SOURCE_BIT) % SOURCE_BIT;
  columns.flags[row] = Math.floor(bits / FLAGS_BIT);
}
