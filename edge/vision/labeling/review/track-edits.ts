// Edits of tracks by people: split where two objects were taken for one, merged where one was taken
// for two, and filled between the boxes that somebody set. Each is one change that can be undone.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { Database } from "../../../http/database.ts";
import { inJob, type JobRow } from "../jobs/jobs.ts";
import {
  type Edit,
  type EditCount,
  fieldsOf,
  insertChange,
  STEP_MAX,
  updateAnnotations,
} from "./changes.ts";

/** A track of a job: each video has tracks of its own. */
export interface TrackName {
  videoId: string;
  trackId: number;
}

interface TrackEdit extends TrackName {
  actorId: string;
}

interface TrackStretch extends TrackEdit {
  /** Indexes of frames, half-open. */
  fromIndex?: number | undefined;
  toIndex?: number | undefined;
}

/** Fails for a job whose tracks may be made anew: what people did to them would be lost. */
function assertTracked({ state }: JobRow): void {
  if (state === "completed") return;
  const detail = `the job is ${state}: tracks are edited when it is completed, or in a copy of it`;
  throw new Failure("state_conflict", detail);
}

const editOf = (job: JobRow, kind: string, { videoId, trackId, actorId }: TrackEdit): Edit => ({
  jobId: job.id,
  actorId,
  kind,
  summary: { video_id: videoId, track_id: trackId },
});

/** The annotations of a track, for FROM and WHERE. */
const ofTrack = (job: JobRow, { videoId, trackId }: TrackName): SQL => sql`annotation
  WHERE job_id = ${job.id}::uuid AND video_id = ${videoId}::uuid AND track_id = ${trackId}::int`;

const noTrack = ({ trackId }: TrackName) =>
  new Failure("not_found", `the video has no track ${trackId} in this job`);

/**
 * Makes the part of a track from a frame on a track of its own, and returns its id. Fails with
 * `not_found`, and with `invalid_request` where the frame leaves one side empty.
 */
export async function splitTrack(
  database: Database,
  job: JobRow,
  { index, ...edit }: TrackEdit & { index: number },
): Promise<EditCount & { trackId: number }> {
  assertTracked(job);
  const { summary, ...rest } = editOf(job, "split-track", edit);
  const part = sql`${ofTrack(job, edit)} AND frame_index >= ${index}::int`;
  const { rows: sizes } = await database.execute<{ fits: boolean }>(sql`
    SELECT count(*) <= ${STEP_MAX}::int AS fits FROM ${part}`);
  // In more steps than one each would be a track of its own.
  if (!sizes[0]?.fits) {
    const detail = `index: over ${STEP_MAX} boxes from there on; split the track further on first`;
    throw new Failure("invalid_request", detail);
  }
  const count = await updateAnnotations(
    database,
    { ...rest, summary: { ...summary, index } },
    {
      where: sql`a.video_id = ${edit.videoId}::uuid AND a.track_id = ${edit.trackId}::int
        AND a.frame_index >= ${index}::int AND (SELECT count(*) FROM ${part}) <= ${STEP_MAX}::int
        AND EXISTS (SELECT FROM ${ofTrack(job, edit)} AND frame_index < ${index}::int)`,
      set: [
        sql`track_id = (SELECT 1 + max(track_id) FROM annotation
          WHERE job_id = ${job.id}::uuid AND video_id = ${edit.videoId}::uuid)`,
      ],
    },
  );
  if (count.changeId === null) {
    const { rows } = await database.execute(sql`SELECT FROM ${ofTrack(job, edit)} LIMIT 1`);
    if (rows.length === 0) throw noTrack(edit);
    throw new Failure("invalid_request", "index: the track has frames on one side of it only");
  }
  const { rows } = await database.execute<{ track: number }>(sql`
    SELECT (after->>'track_id')::int AS track FROM change_item
     WHERE change_id = ${count.changeId}::uuid LIMIT 1`);
  return { ...count, trackId: rows[0]?.track ?? 0 };
}

/**
 * Makes one track of two, under the id `into`. Fails with `not_found`, and with `state_conflict`
 * where they are of different classes or both have a box on one frame.
 */
export async function mergeTracks(
  database: Database,
  job: JobRow,
  { into, ...edit }: TrackEdit & { into: number },
): Promise<EditCount> {
  assertTracked(job);
  if (into === edit.trackId) throw new Failure("invalid_request", "into: is the same track");
  const [from, to] = [ofTrack(job, edit), ofTrack(job, { ...edit, trackId: into })];
  const { summary, ...rest } = editOf(job, "merge-tracks", edit);
  const shared = sql`SELECT frame_index FROM ${from} INTERSECT SELECT frame_index FROM ${to}`;
  const classes = sql`SELECT class_number FROM ${from} UNION SELECT class_number FROM ${to}`;
  const count = await updateAnnotations(
    database,
    { ...rest, summary: { ...summary, into } },
    {
      where: sql`a.video_id = ${edit.videoId}::uuid AND a.track_id = ${edit.trackId}::int
        AND EXISTS (SELECT FROM ${to}) AND NOT EXISTS (${shared})
        AND (SELECT count(*) FROM (${classes}) k) = 1`,
      set: [sql`track_id = ${into}::int`],
    },
  );
  if (count.changeId !== null) return count;
  const { rows } = await database.execute<{ from: boolean; to: boolean; shared: number[] }>(sql`
    SELECT EXISTS (SELECT FROM ${from}) AS from, EXISTS (SELECT FROM ${to}) AS to,
      (SELECT coalesce(json_agg(frame_index), '[]') FROM (${shared} ORDER BY 1 LIMIT 100) s)
        AS shared`);
  const [found] = rows;
  if (!found?.from) throw noTrack(edit);
  if (!found.to) throw noTrack({ ...edit, trackId: into });
  if (found.shared.length > 0) {
    throw new Failure("state_conflict", `both tracks have a box on frame ${found.shared[0]}`, {
      data: { indexes: found.shared },
    });
  }
  throw new Failure("state_conflict", "the tracks are of different classes; relabel one of them");
}

/**
 * Fills the job's frames between the boxes of a track that people set, drew or accepted, on a
 * straight line by frame index, within a range of indexes (half-open). A box that is there already
 * and that nobody judged or set moves onto the line, and its mask goes; what somebody judged stays.
 * Fails with `not_found`, and with `invalid_request` where there are no two such boxes.
 */
export async function interpolateTrack(
  database: Database,
  job: JobRow,
  { fromIndex = 0, toIndex, ...edit }: TrackStretch,
): Promise<EditCount> {
  assertTracked(job);
  const corners = ["x1", "y1", "x2", "y2"].map((name) => sql.raw(name));
  const each = (make: (corner: SQL) => SQL) => sql.join(corners.map(make), sql`, `);
  const before = toIndex === undefined ? sql`` : sql`AND f.frame < ${toIndex}::int`;
  const [row] = await inJob<EditCount & { fits: boolean; keyframes: number; known: boolean }>(
    database,
    job.id,
    sql`
    WITH own AS (
      SELECT * FROM ${ofTrack(job, edit)}
    ), keys AS (
      SELECT frame_index, class_number, ${each((corner) => sql`${corner}`)},
        lead(frame_index) OVER w AS next_index,
        ${each((corner) => sql`lead(${corner}) OVER w AS next_${corner}`)}
        FROM own WHERE (keyframe OR review = 'accepted') AND review <> 'rejected'
      WINDOW w AS (ORDER BY frame_index, id)
    ), line AS (
      SELECT f.frame, k.class_number,
        ${each((corner) => sql`(k.${corner} + (k.next_${corner} - k.${corner}) * s.share)::real AS ${corner}`)}
        FROM keys k JOIN (SELECT unnest(frames) AS frame FROM job_video
            WHERE job_id = ${job.id}::uuid AND video_id = ${edit.videoId}::uuid) f
          ON f.frame > k.frame_index AND f.frame < k.next_index
        CROSS JOIN LATERAL (SELECT (f.frame - k.frame_index)::float8
            / (k.next_index - k.frame_index) AS share) s
       WHERE f.frame >= ${fromIndex}::int ${before}
    ), size AS (
      SELECT count(*) <= ${STEP_MAX}::int AS fits FROM line
    ), moved AS (
      UPDATE annotation a SET ${each((corner) => sql`${corner} = l.${corner}`)}, polygon = NULL,
        source = 'interpolated', confidence = NULL, revision = a.revision + 1,
        updated_at = clock_timestamp(), updated_by = ${edit.actorId}::uuid
        FROM own o JOIN line l ON l.frame = o.frame_index, size
       WHERE a.id = o.id AND size.fits AND o.review = 'pending' AND NOT o.keyframe
         AND (${each((corner) => sql`o.${corner}`)}, o.source)
           IS DISTINCT FROM (${each((corner) => sql`l.${corner}`)}, 'interpolated')
      RETURNING a.id, ${fieldsOf(sql`o`)} AS before, ${fieldsOf(sql`a`)} AS after
    ), made AS (
      INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number,
        x1, y1, x2, y2, source, track_id, updated_by)
      SELECT gen_random_uuid(), ${job.workspaceId}::uuid, ${job.id}::uuid, ${edit.videoId}::uuid,
        l.frame, l.class_number, l.x1, l.y1, l.x2, l.y2, 'interpolated', ${edit.trackId}::int,
        ${edit.actorId}::uuid
        FROM line l, size WHERE size.fits
         AND NOT EXISTS (SELECT FROM own o WHERE o.frame_index = l.frame) RETURNING *
    ), c AS (${insertChange(
      editOf(job, "interpolate-track", edit),
      sql`EXISTS (SELECT FROM moved) OR EXISTS (SELECT FROM made)`,
    )}),
    items AS (
      INSERT INTO change_item (change_id, annotation_id, before, after)
      SELECT c.id, m.id, m.before, m.after FROM c, moved m
      UNION ALL SELECT c.id, m.id, NULL, ${fieldsOf(sql`m`)} FROM c, made m
      RETURNING annotation_id)
    SELECT (SELECT id FROM c) AS "changeId", (SELECT count(*) FROM items)::int AS changed,
      (SELECT fits FROM size) AS fits, (SELECT count(*) FROM keys)::int AS keyframes,
      EXISTS (SELECT FROM own) AS known`,
    { actorId: edit.actorId },
  );
  if (!row?.known) throw noTrack(edit);
  if (row.keyframes < 2) {
    const detail = "track_id: draw, set or accept two of its boxes; the line goes between them";
    throw new Failure("invalid_request", detail);
  }
  if (!row.fits) {
    const detail = `over ${STEP_MAX} boxes; name a range by from_index and to_index`;
    throw new Failure("invalid_request", detail);
  }
  return { changeId: row.changeId, changed: row.changed };
}
