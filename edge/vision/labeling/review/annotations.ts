// Annotations as they are listed and sent.

import { type SQL, sql } from "drizzle-orm";
import { annotation } from "../../../../db/vision/labeling.ts";
import { video } from "../../../../db/vision/schema.ts";
import { assert } from "../../../../shared/errors.ts";
import type { Annotation } from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import type { Database } from "../../../http/database.ts";
import {
  columnsOf,
  extended,
  type RowOf,
  rowsOf,
  selection,
  typed,
} from "../../../http/selection.ts";
import { allOf, idList } from "../../base/sql.ts";
import type { FrameSize } from "../jobs/boxes.ts";

/** Shown are annotations at or above the job's threshold, and all that people made. */
export const shown = (threshold: number, alias: SQL = sql`a`): SQL =>
  sql`(${alias}.confidence IS NULL OR ${alias}.confidence >= ${Math.fround(threshold)}::real)`;

const PENDING = sql`a.review = 'pending'`;
const UNACCEPTED = sql`a.review <> 'accepted'`;

/**
 * Annotations that nobody judged and that repeat a better one of the same object, which is shown
 * too. Stats and datasets leave them out: of one object a detector is to learn one box. Where the
 * better one was rejected, deleted or hidden, the other stands for the object.
 */
export const repeated = (threshold: number, judged: SQL = PENDING): SQL =>
  sql`(${judged} AND coalesce(a.repeats_to >= ${Math.fround(threshold)}::real, false))`;

/** Which of a job's annotations are meant. */
export interface AnnotationFilter {
  jobId: string;
  /** Confidence from which annotations are meant. */
  threshold: number;
  /** That from which the job shows them, and so their better ones: whether they are duplicates. */
  shownFrom: number;
  frame?: { videoId: string; index: number } | undefined;
  videoId?: string | undefined;
  /** A track of the one video that is named. */
  trackId?: number | undefined;
  /** Indexes of frames, half-open. */
  fromIndex?: number | undefined;
  toIndex?: number | undefined;
  className?: string | undefined;
  accepted?: boolean | null | undefined;
  /** Which were judged, or were not. */
  reviewed?: boolean | undefined;
  source?: Annotation["source"] | undefined;
  confidenceMax?: number | undefined;
  duplicates?: boolean | undefined;
  /** Only the better box of one object, also where somebody rejected the other. */
  unrepeated?: boolean | undefined;
  annotations?: readonly SeenAnnotation[] | undefined;
}

/** An annotation by its id, with the revision that somebody saw, if it matters. */
export interface SeenAnnotation {
  annotation_id: string;
  revision?: number | undefined;
}

/** Annotations that somebody saw as rows of `id` and `revision`. */
const seenRows = (seen: readonly SeenAnnotation[]): SQL => sql`(
  SELECT annotation_id AS id, revision FROM jsonb_to_recordset(${JSON.stringify(seen)}::jsonb)
    s(annotation_id uuid, revision int))`;

/** Those of them, of a job, that were edited since, as rows of `id` and `revision`. */
export const editedSince = (jobId: string, seen: readonly SeenAnnotation[]): SQL => sql`
  SELECT now.id, now.revision FROM ${seenRows(seen)} s JOIN annotation now ON now.id = s.id
   WHERE now.job_id = ${jobId}::uuid AND now.revision <> s.revision`;

/** The condition on `a` that a filter stands for; `job_id` is the caller's. */
export function matching(filter: AnnotationFilter): SQL {
  const { frame, className, accepted, source, confidenceMax, duplicates, annotations } = filter;
  const { videoId, trackId, fromIndex, toIndex, reviewed } = filter;
  const conditions = [
    // Beside an upper bound, nothing without a confidence is meant, and an index has both.
    confidenceMax === undefined
      ? shown(filter.threshold)
      : sql`a.confidence BETWEEN ${Math.fround(filter.threshold)}::real
          AND ${Math.fround(confidenceMax)}::real`,
    frame && sql`a.video_id = ${frame.videoId}::uuid AND a.frame_index = ${frame.index}::int`,
    videoId && sql`a.video_id = ${videoId}::uuid`,
    trackId !== undefined && sql`a.track_id = ${trackId}::int`,
    fromIndex !== undefined && sql`a.frame_index >= ${fromIndex}::int`,
    toIndex !== undefined && sql`a.frame_index < ${toIndex}::int`,
    className !== undefined &&
      sql`a.class_number = (SELECT number FROM job_class
            WHERE job_id = ${filter.jobId}::uuid AND name = ${className})`,
    accepted !== undefined && sql`a.review = ${reviewOf(accepted)}`,
    reviewed !== undefined && sql`(a.review <> 'pending') = ${reviewed}::boolean`,
    source && sql`a.source = ${source}`,
    duplicates === true && repeated(filter.shownFrom),
    duplicates === false && sql`NOT ${repeated(filter.shownFrom)}`,
    filter.unrepeated && sql`NOT ${repeated(filter.shownFrom, UNACCEPTED)}`,
    annotations && sql`a.id IN (SELECT id FROM ${seenRows(annotations)} s)`,
  ];
  return allOf(conditions);
}

const a = columnsOf(annotation, "a");
/** An annotation `a` and its class `c`. */
export const ANNOTATION = selection({
  id: a.id,
  jobId: a.jobId,
  videoId: a.videoId,
  frameIndex: a.frameIndex,
  class: sql<string>`c.name`,
  x1: a.x1,
  y1: a.y1,
  x2: a.x2,
  y2: a.y2,
  review: a.review,
  confidence: a.confidence,
  source: a.source,
  foundBy: a.foundBy,
  keyframe: a.keyframe,
  trackId: a.trackId,
  duplicateOf: a.duplicateOf,
  polygon: typed<number[] | null>(a.polygon),
  revision: a.revision,
  updatedAt: a.updatedAt,
});
/** An annotation with its class. */
export type AnnotationRow = RowOf<typeof ANNOTATION>;

const v = columnsOf(video, "v");
const PLACED = extended(ANNOTATION, {
  workspaceId: a.workspaceId,
  width: v.width,
  height: v.height,
});

/** One annotation with its workspace and the size of its frame, or null. */
export async function findAnnotation(
  database: Database,
  id: string,
): Promise<{ record: Annotation; workspaceId: string; size: FrameSize } | null> {
  const [row] = await rowsOf(database, PLACED)`
    SELECT ${PLACED} FROM annotation a
      JOIN job_class c ON c.job_id = a.job_id AND c.number = a.class_number
      JOIN video v ON v.id = a.video_id
     WHERE a.id = ${id}::uuid`;
  if (!row) return null;
  assert(row.width !== null && row.height !== null, "a video with annotations was probed");
  const size = { width: row.width, height: row.height };
  return { record: annotationRecord(row), workspaceId: row.workspaceId, size };
}

/** Annotations of a job by their ids; those that are gone are left out. */
export async function listedAnnotations(
  database: Database,
  jobId: string,
  ids: readonly string[],
): Promise<Annotation[]> {
  if (ids.length === 0) return [];
  const rows = await rowsOf(database, ANNOTATION)`
    SELECT ${ANNOTATION} FROM annotation a
      JOIN job_class c ON c.job_id = a.job_id AND c.number = a.class_number
     WHERE a.id IN ${idList(ids)} AND a.job_id = ${jobId}::uuid`;
  return rows.map(annotationRecord);
}

/** How `accepted` of the wire is stored. */
export type Review = "pending" | "accepted" | "rejected";

/** The same, of a value. */
export const reviewOf = (accepted: boolean | null): Review =>
  accepted === null ? "pending" : accepted ? "accepted" : "rejected";

const ACCEPTED = { pending: null, accepted: true, rejected: false } as const;

/** An annotation as the wire shows it. */
export const annotationRecord = (row: AnnotationRow): Annotation => ({
  annotation_id: row.id,
  job_id: row.jobId,
  frame_id: frameId(row.videoId, row.frameIndex),
  class: row.class,
  bbox: [row.x1, row.y1, row.x2, row.y2],
  accepted: ACCEPTED[row.review],
  confidence: row.confidence,
  source: row.source,
  found_by: row.foundBy,
  keyframe: row.keyframe,
  track_id: row.trackId,
  duplicate_of: row.duplicateOf,
  polygon: row.polygon,
  revision: row.revision,
  updated_at: row.updatedAt,
});
