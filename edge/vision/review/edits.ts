// Edits of a job's annotations by people: drawn, changed, judged, deleted; each is one change that
// can be undone.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import type { Annotation } from "../../../shared/labeling.ts";
import type { Bbox } from "../../../shared/tasks.ts";
import { parseFrameId } from "../../../shared/vision.ts";
import type { Database } from "../../http/database.ts";
import { type FrameSize, insideFrame } from "../labeling/boxes.ts";
import { inJob, type JobRow } from "../labeling/jobs.ts";
import { type AnnotationFilter, findAnnotation, matching, reviewOf } from "./annotations.ts";
import { deleteAnnotations, type EditCount, insertChange, updateAnnotations } from "./changes.ts";
import { classNamed } from "./classes.ts";

/** An annotation with the size of its frame, as an edit of it needs it. */
export interface EditableAnnotation {
  record: Annotation;
  size: FrameSize;
}

/** What is changed of an annotation. */
export interface AnnotationEdit {
  bbox?: Bbox | undefined;
  class?: string | undefined;
  accepted?: boolean | null | undefined;
  /** The revision that the editor saw; the newest when omitted. */
  revision?: number | undefined;
}

/**
 * Changes an annotation; returns it as it is then. Fails with `revision_conflict` when somebody was
 * faster, and with `not_found` when it is gone.
 */
export async function editAnnotation(
  database: Database,
  { record, size }: EditableAnnotation,
  edit: AnnotationEdit & { actorId: string },
): Promise<Annotation> {
  const where = sql`a.id = ${record.annotation_id}::uuid
    AND a.revision = ${edit.revision ?? record.revision}::int`;
  const change = { jobId: record.job_id, actorId: edit.actorId, kind: "edit" };
  const columns = columnsOf(record.job_id, size, edit);
  const { changed } = await updateAnnotations(database, change, { where, ...columns });
  const now = await findAnnotation(database, record.annotation_id);
  if (!now) throw new Failure("not_found", "the annotation was deleted meanwhile");
  if (changed === 0) {
    const newer = `somebody edited the annotation; it is at revision ${now.record.revision}`;
    throw new Failure("revision_conflict", newer, { data: { revision: now.record.revision } });
  }
  return now.record;
}

/** Deletes an annotation. */
export function deleteAnnotation(
  database: Database,
  { job_id: jobId, annotation_id: id }: Annotation,
  actorId: string,
): Promise<EditCount> {
  const where = sql`a.id = ${id}::uuid`;
  return deleteAnnotations(database, { jobId, actorId, kind: "delete" }, { where });
}

/** Accepts, rejects or un-reviews all annotations of a job that a filter names, as one edit. */
export function reviewAnnotations(
  database: Database,
  filter: AnnotationFilter,
  review: { accepted: boolean | null; actorId: string; summary: Record<string, unknown> },
): Promise<EditCount> {
  const { accepted, actorId, summary } = review;
  const state = reviewOf(accepted);
  const edit = { jobId: filter.jobId, actorId, kind: "review", summary };
  const where = sql`${matching(filter)} AND a.review <> ${state}`;
  return updateAnnotations(database, edit, { where, set: sql`review = ${state}` });
}

/** The columns that an edit sets, and what that needs in the same statement. */
function columnsOf(jobId: string, size: FrameSize, edit: AnnotationEdit): { set: SQL; also: SQL } {
  const sets = [];
  let also = sql``;
  if (edit.bbox) {
    const [x1, y1, x2, y2] = cutBox(edit.bbox, size);
    // A box that was moved by hand is no more that of the mask.
    sets.push(sql`x1 = ${x1}::real, y1 = ${y1}::real, x2 = ${x2}::real, y2 = ${y2}::real,
      polygon = NULL`);
  }
  if (edit.class !== undefined) {
    also = sql`, ${classNamed(jobId, edit.class, sql`EXISTS (SELECT FROM target)`)}`;
    sets.push(sql`class_number = (SELECT number FROM named)`);
  }
  if (edit.accepted !== undefined) sets.push(sql`review = ${reviewOf(edit.accepted)}`);
  if (sets.length === 0) throw new Failure("invalid_request", "bbox, class or accepted: required");
  return { set: sql.join(sets, sql`, `), also };
}

/** A box cut to its frame; fails with `invalid_request` when it lies outside. */
function cutBox(bbox: Bbox, size: FrameSize): Bbox {
  const inside = insideFrame(bbox, size);
  if (inside) return inside;
  const frame = `${size.width} × ${size.height} pixels`;
  throw new Failure("invalid_request", `bbox: lies outside of the frame, which is ${frame}`);
}

/** An annotation as somebody draws it. */
export interface DrawnAnnotation {
  frame_id: string;
  class: string;
  bbox: Bbox;
  /** x and y in turn, pixels. */
  polygon?: number[] | undefined;
  actorId: string;
}

/** Adds an annotation to a job; a class that the job lacks is added to it. */
export async function drawAnnotation(
  database: Database,
  job: JobRow,
  drawn: DrawnAnnotation,
): Promise<Annotation> {
  const frame = parseFrameId(drawn.frame_id);
  if (!frame) throw new Failure("invalid_request", "frame_id: is none");
  const { rows: sizes } = await database.execute<FrameSize & Record<string, unknown>>(sql`
    SELECT v.width, v.height FROM job_video j JOIN video v ON v.id = j.video_id
     WHERE j.job_id = ${job.id}::uuid AND v.id = ${frame.videoId}::uuid
       AND ${frame.index}::int = ANY(j.frames)`);
  if (!sizes[0]) throw new Failure("not_found", "the job has no such frame");
  const [x1, y1, x2, y2] = cutBox(drawn.bbox, sizes[0]);
  const id = crypto.randomUUID();
  const change = { jobId: job.id, actorId: drawn.actorId, kind: "draw" };
  const live = sql`EXISTS (SELECT FROM job WHERE id = ${job.id}::uuid)`;
  await inJob(
    database,
    job.id,
    sql`
    WITH ${classNamed(job.id, drawn.class, live)},
    a AS (
      INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number,
        x1, y1, x2, y2, source, review, polygon, updated_by)
      SELECT ${id}::uuid, ${job.workspaceId}::uuid, ${job.id}::uuid, ${frame.videoId}::uuid,
        ${frame.index}::int, named.number, ${x1}::real, ${y1}::real, ${x2}::real, ${y2}::real,
        'person', 'accepted', ${drawn.polygon ? JSON.stringify(drawn.polygon) : null}::jsonb,
        ${drawn.actorId}::uuid FROM named RETURNING id
    ), c AS (${insertChange(change, sql`EXISTS (SELECT FROM a)`)})
    INSERT INTO change_item (change_id, annotation_id, before, after)
    SELECT c.id, a.id, NULL, '{}'::jsonb FROM c, a`,
  );
  const found = await findAnnotation(database, id);
  if (!found) throw new Failure("not_found", "the annotation was deleted meanwhile");
  return found.record;
}
