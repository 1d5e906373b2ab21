// Pages of a job's annotations. Of a million of them no page reads more than a few thousand: the
// counts of the job tell how many a filter names, a page goes on where the one before it ended, and
// where few are named they are looked up by class, review and source.

import { type SQL, sql } from "drizzle-orm";
import { z } from "zod";
import { Failure } from "../../../../shared/errors.ts";
import type { Annotation } from "../../../../shared/wire/labeling.ts";
import { parseFrameId } from "../../../../shared/wire/vision.ts";
import { batch, type Database } from "../../../http/database.ts";
import { cursorText, readCursor } from "../../base/cursors.ts";
import { allOf } from "../../base/sql.ts";
import {
  ANNOTATION,
  type AnnotationFilter,
  type AnnotationRow,
  annotationRecord,
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
/** Up to so many annotations that stand together by their place are read and sorted. */
const SORTED_MAX = 100_000;

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

function positionOf(text: string, sort: Order): CursorValue {
  const cursor = readCursor(Cursor, text);
  if (cursor?.[0] === sort) return cursor;
  throw new Failure("invalid_request", "cursor: is not the `next` of a page in this order");
}

function cursorAfter(sort: Order, { frame_id, confidence, annotation_id: id }: Annotation): string {
  if (sort !== "frame") return cursorText([sort, confidence, id]);
  const frame = parseFrameId(frame_id);
  return cursorText([sort, frame?.videoId ?? "", frame?.index ?? 0, id]);
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
export const BY_INDEX = sql`SELECT set_config('enable_sort', 'off', true),
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
  const after = cursor === undefined ? null : positionOf(cursor, sort);
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
  const lookups = lookupsOf(filter, where, { sort, stretches });
  const found = sql.join(
    [
      inOrder(sql`${where} AND (SELECT way FROM lookup) IS NULL`),
      ...lookups.map(({ rows }, way) => rows(sql`(SELECT way FROM lookup) = ${way}::int`)),
    ],
    sql` UNION ALL `,
  );
  const ways = lookups.map(
    ({ size, sizeMax }, way) => sql` WHEN ${size} <= ${sizeMax}::int THEN ${way}::int`,
  );
  const way = ways.length === 0 ? sql`NULL::int` : sql`CASE${sql.join(ways)} END`;
  const [, [counted], rows] = await batch<[unknown, { total: number }, AnnotationRow]>(database, [
    BY_INDEX,
    sql`SELECT (${totalOf(filter) ?? countOf(filter, where)})::int
      AS total`,
    sql`WITH lookup AS MATERIALIZED (SELECT ${way} AS way)
      SELECT ${ANNOTATION} FROM (
        SELECT * FROM (${found}) a ORDER BY ${ORDERS[sort]}
         LIMIT ${limit}::int OFFSET ${offset}::int) a
        JOIN job_class c ON c.job_id = a.job_id AND c.number = a.class_number
       ORDER BY ${ORDERS[sort]}`,
  ]);
  const items = rows.map(annotationRecord);
  const last = items.at(-1);
  const next = last && items.length === limit ? cursorAfter(sort, last) : null;
  return { items, total: counted?.total ?? 0, next };
}

/** Whether a filter names frames, or some of a video. */
const isOfFrames = ({ frame, videoId, fromIndex, toIndex }: AnnotationFilter) =>
  Boolean(frame || videoId) || fromIndex !== undefined || toIndex !== undefined;

/** What a filter says of frames, as a condition on annotations or on counts of frames. */
function placeOf({ jobId, frame, videoId, fromIndex, toIndex }: AnnotationFilter): SQL {
  return allOf([
    sql`job_id = ${jobId}::uuid`,
    frame && sql`video_id = ${frame.videoId}::uuid AND frame_index = ${frame.index}::int`,
    videoId && sql`video_id = ${videoId}::uuid`,
    fromIndex !== undefined && sql`frame_index >= ${fromIndex}::int`,
    toIndex !== undefined && sql`frame_index < ${toIndex}::int`,
  ]);
}

/**
 * The annotations among which a filter's are, for a FROM: those of its frames are read by their
 * place, whatever else it names, where a class may have many times as many.
 */
function stored(filter: AnnotationFilter, when = sql`true`): SQL {
  const { trackId } = filter;
  if (!isOfFrames(filter)) return sql`annotation`;
  // The order has their index read, whatever statistics say; a track has one of its own.
  const which =
    trackId === undefined
      ? sql`${when} ORDER BY video_id, frame_index, id`
      : sql`${when} AND track_id = ${trackId}::int`;
  return sql`(SELECT * FROM annotation WHERE ${placeOf(filter)} AND ${which} OFFSET 0)`;
}

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

/** Whether a filter names a class, a review or a source. */
const isOfGroups = ({ className, accepted, source }: AnnotationFilter) =>
  className !== undefined || accepted !== undefined || Boolean(source);

/** How many annotations have the class, review and source of a filter, for a SELECT. */
const groupsSize = (filter: AnnotationFilter): SQL => sql`(
  SELECT coalesce(sum(annotations), 0) FROM annotation_count n WHERE ${groupsOf(filter)})`;

/** Those of them that meet a condition on `a`, as a SELECT; none where `isWanted` is false. */
const groupRows = (filter: AnnotationFilter, where: SQL, isWanted = sql`true`): SQL => sql`
  SELECT a.* FROM (
      SELECT DISTINCT class_number, review, source FROM annotation_count n
       WHERE ${groupsOf(filter)} AND annotations > 0 AND ${isWanted}) n
    CROSS JOIN LATERAL (
      -- By its index, whatever statistics say: the table may have been filled just now.
      SELECT * FROM annotation a WHERE ${where} AND a.class_number = n.class_number
         AND a.review = n.review AND a.source = n.source OFFSET 0) a`;

/** A way to find the annotations that a filter names without reading all in their order. */
interface Lookup {
  /** How many it would read, for a SELECT. */
  size: SQL;
  /** Above this it takes too long. */
  sizeMax: number;
  /** The annotations; none where `isWanted` is false. */
  rows: (isWanted: SQL) => SQL;
}

/** Ways to find what a filter names, the first that is short enough before reading in order. */
function lookupsOf(
  filter: AnnotationFilter,
  where: SQL,
  { sort, stretches }: { sort: Order; stretches: readonly SQL[] },
): Lookup[] {
  const { confidenceMax, frame, trackId } = filter;
  const following = sql`(${sql.join([...stretches], sql` OR `)})`;
  const byPlace = (isWanted: SQL) => sql`
    SELECT a.* FROM ${stored(filter, isWanted)} a WHERE ${where} AND ${following}`;
  if (frame || trackId !== undefined) return [{ size: sql`0`, sizeMax: 0, rows: byPlace }];
  const lookups: Lookup[] = [];
  if (isOfGroups(filter)) {
    lookups.push({
      size: groupsSize(filter),
      sizeMax: LOOKED_UP_MAX,
      rows: (isWanted) => groupRows(filter, sql`${where} AND ${following}`, isWanted),
    });
  }
  // In the order of frames those of a video stand together as it is.
  if (isOfFrames(filter) && sort !== "frame") {
    lookups.push({
      size: sql`(SELECT coalesce(sum(stored), 0) FROM frame_count WHERE ${placeOf(filter)})`,
      sizeMax: SORTED_MAX,
      rows: byPlace,
    });
  }
  if (confidenceMax !== undefined && lookups.length === 0 && !isOfFrames(filter)) {
    lookups.push({
      size: sql`(SELECT count(*) FROM (
        SELECT FROM annotation a WHERE ${where} LIMIT ${LOOKED_UP_MAX + 1}::int) f)`,
      sizeMax: LOOKED_UP_MAX,
      rows: (isWanted) => sql`
        SELECT a.* FROM (
          SELECT * FROM annotation a WHERE ${where} AND ${following} AND ${isWanted} OFFSET 0) a`,
    });
  }
  return lookups;
}

/** How many annotations a filter names where no counts tell it, for a SELECT: they are read. */
function countOf(filter: AnnotationFilter, where: SQL): SQL {
  const count = (from: SQL) => sql`SELECT count(*) FROM ${from} a WHERE ${where}`;
  const byPlace = count(stored(filter));
  if (!isOfFrames(filter) || !isOfGroups(filter)) return byPlace;
  return sql`SELECT CASE WHEN ${groupsSize(filter)} <= ${LOOKED_UP_MAX}::int
    THEN (${count(sql`(${groupRows(filter, where)})`)}) ELSE (${byPlace}) END`;
}

/** How many annotations a filter of frames alone names, for a SELECT. */
function totalOfFrames(filter: AnnotationFilter): SQL {
  const { accepted, duplicates } = filter;
  const reviews =
    accepted === undefined ? (["pending", "accepted", "rejected"] as const) : [reviewOf(accepted)];
  const all = sql.join(
    reviews.map((review) => sql.identifier(review)),
    sql` + `,
  );
  // What was judged is no duplicate.
  const repeated = reviews.includes("pending") ? sql`repeated` : sql`0`;
  const unrepeated = duplicates === false ? sql`${all} - ${repeated}` : all;
  return sql`SELECT coalesce(sum(${duplicates ? repeated : unrepeated}), 0) FROM frame_count
    WHERE ${placeOf(filter)}`;
}

/** How many annotations a filter names, for a SELECT; null where no counts tell it. */
function totalOf(filter: AnnotationFilter): SQL | null {
  const { threshold, shownFrom, duplicates, confidenceMax } = filter;
  const isOwn = threshold === shownFrom;
  if (isOfFrames(filter)) {
    const { className, source, trackId } = filter;
    const isMore = className !== undefined || source || trackId !== undefined;
    return isOwn && !isMore && confidenceMax === undefined ? totalOfFrames(filter) : null;
  }
  const bin = Math.round(threshold * CONFIDENCE_STEPS);
  const isBetweenBins =
    !isOwn && (bin / CONFIDENCE_STEPS !== threshold || bin === CONFIDENCE_STEPS);
  // Counted as repeated are those alone that the job's threshold shows.
  const isBelow = duplicates !== undefined && threshold < shownFrom;
  if (confidenceMax !== undefined || isBetweenBins || isBelow) return null;
  const seen = isOwn ? sql`n.shown` : sql`n.bin >= ${bin}::int`;
  const which = duplicates === undefined ? sql`` : sql`AND n.repeated = ${duplicates}::boolean`;
  return sql`SELECT coalesce(sum(annotations), 0) FROM annotation_count n
    WHERE ${groupsOf(filter)} AND ${seen} ${which}`;
}
