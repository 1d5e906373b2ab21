// Edits of a job's annotations by people: drawn, changed, judged, deleted; each is one change that
// can be undone.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";
import type { Annotation } from "../../../../shared/wire/labeling.ts";
import { parseFrameId } from "../../../../shared/wire/vision.ts";
import type { Database } from "../../../http/database.ts";
import { classExists, classNamed } from "../classes.ts";
import { type BoxedPolygon, type FrameSize, insideFrame, polygonInside } from "../jobs/boxes.ts";
import { inJob, inRange, type JobRow } from "../jobs/jobs.ts";
import {
  type AnnotationFilter,
  editedSince,
  findAnnotation,
  matching,
  reviewOf,
} from "./annotations.ts";
import {
  deleteAnnotations,
  type Edit,
  type EditCount,
  fieldsOf,
  insertChange,
  updateAnnotations,
} from "./changes.ts";

/** An annotation with the size of its frame, as an edit of it needs it. */
export interface EditableAnnotation {
  record: Annotation;
  size: FrameSize;
}

/** What is changed of an annotation. */
export interface AnnotationEdit {
  bbox?: Bbox | undefined;
  /** x and y in turn, pixels; null takes it away. */
  polygon?: number[] | null | undefined;
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
  const set = columnsOf(size, edit);
  const { changed } = await updateAnnotations(database, change, {
    where,
    set,
    className: edit.class,
  });
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
  return deleteAnnotations(database, { jobId, actorId, kind: "delete" }, where);
}

/** An edit of all annotations that a filter names, with what people are told of it. */
export interface FilterEdit {
  filter: AnnotationFilter;
  actorId: string;
  summary: Record<string, unknown>;
}

/** Accepts, rejects or un-reviews all annotations of a job that a filter names, as one edit. */
export function reviewAnnotations(
  database: Database,
  { filter, actorId, summary }: FilterEdit,
  accepted: boolean | null,
): Promise<EditCount> {
  const state = reviewOf(accepted);
  const edit = { jobId: filter.jobId, actorId, kind: "review", summary };
  return unlessEdited(database, filter, (named) =>
    updateAnnotations(database, edit, {
      where: sql`${named} AND a.review <> ${state}`,
      set: [sql`review = ${state}`],
    }),
  );
}

/** Makes all annotations that a filter names those of a class, as one edit. */
export function relabelAnnotations(
  database: Database,
  { filter, actorId, summary }: FilterEdit,
  className: string,
): Promise<EditCount> {
  const edit = { jobId: filter.jobId, actorId, kind: "relabel", summary };
  // Those that are of the class already stay as they are.
  const other = sql`a.class_number IS DISTINCT FROM (SELECT number FROM job_class
    WHERE job_id = ${filter.jobId}::uuid AND name = ${className})`;
  return unlessEdited(database, filter, (named) =>
    updateAnnotations(database, edit, { where: sql`${named} AND ${other}`, set: [], className }),
  );
}

/** Deletes all annotations that a filter names, as one edit. */
export function deleteMatching(
  database: Database,
  { filter, actorId, summary }: FilterEdit,
): Promise<EditCount> {
  const edit: Edit = { jobId: filter.jobId, actorId, kind: "delete", summary };
  return unlessEdited(database, filter, (named) => deleteAnnotations(database, edit, named));
}

/**
 * Runs an edit of what a filter names, all of it or nothing: fails with `revision_conflict` where
 * somebody edited one of its annotations since the revision that the filter says.
 */
async function unlessEdited(
  database: Database,
  filter: AnnotationFilter,
  edit: (named: SQL) => Promise<EditCount>,
): Promise<EditCount> {
  const seen = filter.annotations?.filter(({ revision }) => revision !== undefined) ?? [];
  if (seen.length === 0) return edit(matching(filter));
  const since = editedSince(filter.jobId, seen);
  const count = await edit(sql`${matching(filter)} AND NOT EXISTS (${since})`);
  if (count.changed > 0) return count;
  const { rows } = await database.execute<{ id: string; revision: number }>(since);
  if (rows.length === 0) return count;
  const newer = `somebody edited ${rows.length} of the annotations; nothing was changed`;
  const edited = rows.map(({ id, revision }) => ({ annotation_id: id, revision }));
  throw new Failure("revision_conflict", newer, { data: { edited } });
}

/** The columns that an edit sets, but for the class. */
function columnsOf(size: FrameSize, edit: AnnotationEdit): SQL[] {
  const sets: SQL[] = [];
  if (edit.polygon || edit.bbox) {
    const { polygon, bbox } = shapeInside(edit, size);
    const [x1, y1, x2, y2] = bbox;
    // A box that was moved by hand is no more that of the mask.
    sets.push(sql`x1 = ${x1}::real, y1 = ${y1}::real, x2 = ${x2}::real, y2 = ${y2}::real,
      polygon = ${polygon && JSON.stringify(polygon)}::jsonb, keyframe = true`);
  } else if (edit.polygon === null) sets.push(sql`polygon = NULL`);
  if (edit.accepted !== undefined) sets.push(sql`review = ${reviewOf(edit.accepted)}`);
  if (sets.length === 0 && edit.class === undefined) {
    throw new Failure("invalid_request", "bbox, polygon, class or accepted: required");
  }
  return sets;
}

/** Pixels by which a box may differ from that of the polygon beside it. */
const BOX_DIFFERENCE_MAX = 1;

/**
 * A box or a polygon cut to its frame; the box of a polygon is the one around it. Fails with
 * `invalid_request` when nothing lies inside, when there is neither, and for a box that is not its
 * polygon's.
 */
export function shapeInside(
  { bbox, polygon }: Pick<AnnotationEdit, "bbox" | "polygon">,
  size: FrameSize,
): Omit<BoxedPolygon, "polygon"> & { polygon: number[] | null } {
  if (!polygon) {
    if (!bbox) throw new Failure("invalid_request", "bbox: required, or a polygon");
    return { bbox: insideOr(insideFrame(bbox, size), "bbox", size), polygon: null };
  }
  const shape = insideOr(polygonInside(polygon, size), "polygon", size);
  const cut = bbox && insideOr(insideFrame(bbox, size), "bbox", size);
  const differs = cut?.some(
    (value, corner) => Math.abs(value - (shape.bbox[corner] as number)) > BOX_DIFFERENCE_MAX,
  );
  if (differs) {
    const around = JSON.stringify(shape.bbox);
    throw new Failure("invalid_request", `bbox: is not the polygon's, which is ${around}`);
  }
  return shape;
}

function insideOr<Shape>(shape: Shape | null, what: string, size: FrameSize): Shape {
  if (shape) return shape;
  const frame = `${size.width} × ${size.height} pixels`;
  throw new Failure("invalid_request", `${what}: lies outside of the frame, which is ${frame}`);
}

/** An annotation as somebody draws it. */
export interface DrawnAnnotation {
  frame_id: string;
  class: string;
  /** The one around the polygon when omitted. */
  bbox?: Bbox | undefined;
  /** x and y in turn, pixels. */
  polygon?: number[] | undefined;
  /** The track that it continues, or begins. */
  track_id?: number | undefined;
  actorId: string;
}

/**
 * Adds an annotation to a job, on any frame of its range; a class that the job lacks is added to
 * it. Fails with `class_exists` where that is nearly called like another, and with
 * `state_conflict` where the track has a box on the frame, or is of another class.
 */
export async function drawAnnotation(
  database: Database,
  job: JobRow,
  drawn: DrawnAnnotation,
): Promise<Annotation> {
  const frame = parseFrameId(drawn.frame_id);
  if (!frame) throw new Failure("invalid_request", "frame_id: is none");
  const { rows: sizes } = await database.execute<FrameSize & Record<string, unknown>>(sql`
    SELECT v.width, v.height FROM job_video jv JOIN job j ON j.id = jv.job_id
      JOIN video v ON v.id = jv.video_id
     WHERE jv.job_id = ${job.id}::uuid AND v.id = ${frame.videoId}::uuid
       AND ${inRange(sql`${frame.index}::int`)}`);
  if (!sizes[0]) throw new Failure("not_found", "the job has no such frame in its range");
  const { bbox, polygon } = shapeInside(drawn, sizes[0]);
  const [x1, y1, x2, y2] = bbox;
  const id = crypto.randomUUID();
  const track = drawn.track_id ?? null;
  const change = { jobId: job.id, actorId: drawn.actorId, kind: "draw" };
  const ofTrack = sql`SELECT FROM annotation t WHERE t.job_id = ${job.id}::uuid
    AND t.video_id = ${frame.videoId}::uuid AND t.track_id = ${track}::int`;
  const mayAdd = sql`EXISTS (SELECT FROM job WHERE id = ${job.id}::uuid)
    AND NOT EXISTS (${ofTrack})`;
  const [outcome] = await inJob<{ taken: string | null; drawn: boolean }>(
    database,
    job.id,
    sql`
    WITH ${classNamed(job.id, drawn.class, mayAdd)},
    a AS (
      INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number,
        x1, y1, x2, y2, source, review, polygon, track_id, keyframe, updated_by)
      SELECT ${id}::uuid, ${job.workspaceId}::uuid, ${job.id}::uuid, ${frame.videoId}::uuid,
        ${frame.index}::int, named.number, ${x1}::real, ${y1}::real, ${x2}::real, ${y2}::real,
        'person', 'accepted', ${polygon && JSON.stringify(polygon)}::jsonb, ${track}::int, true,
        ${drawn.actorId}::uuid FROM named WHERE NOT EXISTS (${ofTrack}
           AND (t.frame_index = ${frame.index}::int OR t.class_number <> named.number)) RETURNING *
    ), c AS (${insertChange(change, sql`EXISTS (SELECT FROM a)`, { addsClass: true })}),
    items AS (
      INSERT INTO change_item (change_id, annotation_id, before, after)
      SELECT c.id, a.id, NULL, ${fieldsOf(sql`a`)} FROM c, a)
    SELECT (SELECT name FROM taken) AS taken, EXISTS (SELECT FROM a) AS drawn`,
    { actorId: drawn.actorId },
  );
  if (outcome?.taken) throw classExists(outcome.taken);
  if (!outcome?.drawn && track !== null) {
    const detail = `track ${track} has a box on this frame, or is of another class`;
    throw new Failure("state_conflict", detail);
  }
  const found = await findAnnotation(database, id);
  if (!found) throw new Failure("not_found", "the annotation was deleted meanwhile");
  return found.record;
}
