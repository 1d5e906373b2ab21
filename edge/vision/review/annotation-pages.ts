// Pages of a job's annotations. Of a million of them no page reads more than a few thousand: the
// counts of the job tell how many a filter names, a page goes on where the one before it ended, and
// where few are named they are looked up by class, review and source.

import { type SQL, sql } from "drizzle-orm";
import { z } from "zod";
import { Failure } from "../../../shared/errors.ts";
import type { Annotation } from "../../../shared/labeling.ts";
import { parseFrameId } from "../../../shared/vision.ts";
import { batch, type Database } from "../../http/database.ts";
import { allOf } from "../base/sql.ts";
import {
  type AnnotationFilter,
  annotationRecord,
  columns,
  matching,
  reviewOf,
} from "./annotations.ts";

/**
 * What annotations may be sorted by. To the confidences, that of what people drew is above all.
 * Each is the order of an index, equals by their ids.
 */
export const ORDERS = {
  frame: sql`a.video_id, a.frame_index, a.id`,
  confidence: sql`a.confidence, a.id`,
  "-confidence": sql`a.confidence DESC, a.id DESC`,
} as const;

type Order = keyof typeof ORDERS;

/** Bins of confidence that are counted; the one after the last is of annotations without any. */
export const CONFIDENCE_STEPS = 100;
/** Up to so many annotations are looked up and sorted; more are read in their order. */
const LOOKED_UP_MAX = 5_000;

/** Where a page ended: the order with what it sorts the last annotation by. */
const Cursor = z.union([
  z.tuple([z.literal("frame"), z.guid(), z.int().min(0).max(2_147_483_647), z.guid()]),
  z.tuple([
    z.enum(["confidence", "-confidence"]),
    // As precise as it is stored: Postgres refuses what is too small for that.
    z.number().min(0).max(1).transform(Math.fround).nullable(),
    z.guid(),
  ]),
]);

type CursorValue = z.output<typeof Cursor>;

const written = (cursor: CursorValue): string => btoa(JSON.stringify(cursor)).replaceAll("=", "");

function readCursor(text: string, sort: Order): CursorValue {
  try {
    const cursor = Cursor.parse(JSON.parse(atob(text)));
    if (cursor[0] === sort) return cursor;
  } catch {
    // Refused below, as one of another order is.
  }
  throw new Failure("invalid_request", "cursor: is not the `next` of a page in this order");
}

function cursorAfter(sort: Order, { frame_id, confidence, annotation_id: id }: Annotation): string {
  if (sort !== "frame") return written([sort, confidence, id]);
  const frame = parseFrameId(frame_id);
  return written([sort, frame?.videoId ?? "", frame?.index ?? 0, id]);
}

/**
 * The conditions on what follows a cursor in an order, each a stretch of the order's index.
 * Postgres sorts what has no confidence above all.
 */
function stretchesAfter(cursor: CursorValue | null, sort: Order, threshold: number): SQL[] {
  if (sort === "frame") {
    if (cursor?.[0] !== "frame") return [sql`true`];
    const [, video, frame, id] = cursor;
    return [sql`(a.video_id, a.frame_index, a.id) > (${video}::uuid, ${frame}::int, ${id}::uuid)`];
  }
  const unsure = sql`a.confidence IS NULL`;
  // Not what is hidden: it may be most of what there is.
  const sure = sql`a.confidence >= ${Math.fround(threshold)}::real`;
  if (!cursor || cursor[0] === "frame") return [sure, unsure];
  const [, confidence, id] = cursor;
  const isRising = sort === "confidence";
  const beyond = isRising ? sql`>` : sql`<`;
  if (confidence === null) {
    const rest = sql`${unsure} AND a.id ${beyond} ${id}::uuid`;
    return isRising ? [rest] : [rest, sure];
  }
  const rest = sql`${sure} AND (a.confidence, a.id) ${beyond} (${confidence}::real, ${id}::uuid)`;
  return isRising ? [rest, unsure] : [rest];
}

/**
 * Makes the transaction read by indexes and in their order. Statistics know nothing of a job that
 * was stored just now; by them Postgres would read and sort all of it for each page.
 */
const BY_INDEX = sql`SELECT set_config('enable_sort', 'off', true),
  set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true)`;

/** What a page is asked for by. */
interface PageRequest {
  sort: Order;
  /** `next` of the page before. */
  cursor?: string | undefined;
  offset: number;
  limit: number;
}

/** A page of a job's annotations in an order, and how many there are. */
export async function listAnnotations(
  database: Database,
  filter: AnnotationFilter,
  { sort, cursor, offset, limit }: PageRequest,
): Promise<{ items: Annotation[]; total: number; next: string | null }> {
  const where = sql`a.job_id = ${filter.jobId}::uuid AND ${matching(filter)}`;
  const after = cursor === undefined ? null : readCursor(cursor, sort);
  const stretches = stretchesAfter(after, sort, filter.threshold);
  const inOrder = (which: SQL): SQL =>
    sql.join(
      stretches.map(
        (stretch) => sql`(
          SELECT * FROM annotation a WHERE ${which} AND ${stretch}
           ORDER BY ${ORDERS[sort]} LIMIT ${offset + limit}::int)`,
      ),
      sql` UNION ALL `,
    );
  const few = lookedUp(filter, where, { sort, stretches });
  const found = few
    ? sql`${inOrder(sql`${where} AND (SELECT is_large FROM size)`)} UNION ALL ${few.rows}`
    : inOrder(where);
  const [, [counted], rows] = await batch<[unknown, { total: number }, Record<string, unknown>]>(
    database,
    [
      BY_INDEX,
      sql`SELECT (${totalOf(filter) ?? sql`SELECT count(*) FROM annotation a WHERE ${where}`})::int
      AS total`,
      sql`${few ? sql`WITH size AS MATERIALIZED (SELECT ${few.isLarge} AS is_large)` : sql``}
      SELECT ${columns} FROM (
        SELECT * FROM (${found}) a ORDER BY ${ORDERS[sort]}
         LIMIT ${limit}::int OFFSET ${offset}::int) a
        JOIN job_class c ON c.job_id = a.job_id AND c.number = a.class_number
       ORDER BY ${ORDERS[sort]}`,
    ],
  );
  const items = rows.map(annotationRecord);
  const last = items.at(-1);
  const next = last && items.length === limit ? cursorAfter(sort, last) : null;
  return { items, total: counted?.total ?? 0, next };
}

/** Whether a filter names frames, or some of a video. */
const isOfFrames = ({ frame, videoId, fromIndex, toIndex }: AnnotationFilter) =>
  Boolean(frame || videoId) || fromIndex !== undefined || toIndex !== undefined;

/** What a filter says of class, review and source, as a condition on counts `n`. */
function groupsOf({ jobId, className, accepted, source }: AnnotationFilter): SQL {
  const conditions = [
    sql`n.job_id = ${jobId}::uuid`,
    className !== undefined &&
      sql`n.class_number = (SELECT number FROM job_class
        WHERE job_id = ${jobId}::uuid AND name = ${className})`,
    accepted !== undefined && sql`n.review = ${reviewOf(accepted)}`,
    source && sql`n.source = ${source}`,
  ];
  return allOf(conditions);
}

/**
 * What a filter names where that may be few among many and stands together in an index: whether it
 * is too much to be looked up, and else the annotations. Null for what an order finds soon enough.
 */
function lookedUp(
  filter: AnnotationFilter,
  where: SQL,
  { sort, stretches }: { sort: Order; stretches: readonly SQL[] },
): { isLarge: SQL; rows: SQL } | null {
  const { className, accepted, source, confidenceMax } = filter;
  const following = sql`(${sql.join([...stretches], sql` OR `)})`;
  const rows = sql`
      SELECT * FROM (
        SELECT * FROM annotation a WHERE ${where} AND ${following}
           AND NOT (SELECT is_large FROM size) OFFSET 0) a`;
  if (filter.frame || filter.trackId !== undefined) return { isLarge: sql`false`, rows };
  if (isOfFrames(filter)) {
    // Their own order finds them; for another one there may be too many others between.
    return sort === "frame"
      ? null
      : { isLarge: sql`${storedOf(filter)} > ${LOOKED_UP_MAX}::int`, rows };
  }
  if (className !== undefined || accepted !== undefined || source) {
    const groups = sql`annotation_count n WHERE ${groupsOf(filter)}`;
    return {
      isLarge: sql`(SELECT coalesce(sum(annotations), 0) FROM ${groups}) > ${LOOKED_UP_MAX}::int`,
      rows: sql`
        SELECT a.* FROM (
            SELECT DISTINCT class_number, review, source FROM ${groups}
               AND annotations > 0 AND NOT (SELECT is_large FROM size)) n
          CROSS JOIN LATERAL (
            -- By its index, whatever statistics say: the table may have been filled just now.
            SELECT * FROM annotation a WHERE ${where} AND a.class_number = n.class_number
               AND a.review = n.review AND a.source = n.source AND ${following} OFFSET 0) a`,
    };
  }
  if (confidenceMax === undefined) return null;
  return {
    isLarge: sql`(SELECT count(*) FROM (
      SELECT FROM annotation a WHERE ${where} LIMIT ${LOOKED_UP_MAX + 1}::int) f)
      > ${LOOKED_UP_MAX}::int`,
    rows,
  };
}

/** How many annotations there are on the frames of a video, or of a stretch, that are named. */
function storedOf({ jobId, videoId, fromIndex, toIndex }: AnnotationFilter): SQL {
  const conditions = [
    sql`job_id = ${jobId}::uuid`,
    videoId && sql`video_id = ${videoId}::uuid`,
    fromIndex !== undefined && sql`frame_index >= ${fromIndex}::int`,
    toIndex !== undefined && sql`frame_index < ${toIndex}::int`,
  ];
  return sql`(SELECT coalesce(sum(stored), 0) FROM frame_count WHERE ${allOf(conditions)})`;
}

/** How many annotations a filter names, for a SELECT; null where no counts tell it. */
function totalOf(filter: AnnotationFilter): SQL | null {
  const { threshold, shownFrom, duplicates, confidenceMax } = filter;
  const isOwn = threshold === shownFrom;
  const bin = Math.round(threshold * CONFIDENCE_STEPS);
  const isBetweenBins =
    !isOwn && (bin / CONFIDENCE_STEPS !== threshold || bin === CONFIDENCE_STEPS);
  // Counted as repeated are those alone that the job's threshold shows.
  const isBelow = duplicates !== undefined && threshold < shownFrom;
  if (isOfFrames(filter) || confidenceMax !== undefined || isBetweenBins || isBelow) return null;
  const seen = isOwn ? sql`n.shown` : sql`n.bin >= ${bin}::int`;
  const which = duplicates === undefined ? sql`` : sql`AND n.repeated = ${duplicates}::boolean`;
  return sql`SELECT coalesce(sum(annotations), 0) FROM annotation_count n
    WHERE ${groupsOf(filter)} AND ${seen} ${which}`;
}
