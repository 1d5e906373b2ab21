// Frames of a job as reviewers go through them: those that it labels, and those that people added
// by drawing on them or by reviewing them.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import { iso } from "../../../../shared/time.ts";
import type { FrameStage, JobFrame } from "../../../../shared/wire/labeling.ts";
import { frameId, parseFrameId } from "../../../../shared/wire/vision.ts";
import { type Database, epochMs } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";
import { allOf } from "../../base/sql.ts";
import { frameImagePath, readPtsRange } from "../../media/videos/frames.ts";
import { findVideos, type VideoRow } from "../../media/videos/videos.ts";
import { addedFrames, inJob, inRange, type JobRow } from "../jobs/jobs.ts";
import { framesTagged, tagsOf } from "../search/tags.ts";

/** Which frames of a job are meant. */
export interface FrameFilter {
  videoId?: string | undefined;
  /** Indexes, half-open. */
  fromIndex?: number | undefined;
  toIndex?: number | undefined;
  reviewed?: boolean | undefined;
  /** Which have annotations that are shown, or have none. */
  annotated?: boolean | undefined;
  stage?: FrameStage | undefined;
  /**
   * Account that labels or reviews them, in stage `label` or `review` that does so in this stage;
   * null: nobody does.
   */
  assigneeId?: string | null | undefined;
  /** Keys of tags, all of which they have. */
  tagKeys?: readonly string[] | undefined;
  /** Rows of `video_id` and `frame`: only these. */
  among?: SQL | undefined;
}

/** Frames that have a mark, as rows of `video_id` and `frame_index`, and whether it is wanted. */
interface Mark {
  rows: SQL;
  wanted: boolean;
}

/** The marks that a filter asks for. */
function marksOf(job: JobRow, { reviewed, annotated, among, ...filter }: FrameFilter): Mark[] {
  const { stage, assigneeId, tagKeys } = filter;
  const frames = (table: SQL, which: SQL = sql`true`) => sql`
    SELECT video_id, frame_index FROM ${table} WHERE job_id = ${job.id}::uuid AND ${which}`;
  const assigned = (which: SQL) => frames(sql`frame_assignment`, which);
  const roles = [
    stage !== "review" && sql`labeler_id`,
    stage !== "label" && sql`reviewer_id`,
  ].filter((role) => role !== false);
  const isHeld = sql.join(
    roles.map((role) =>
      assigneeId === null ? sql`${role} IS NOT NULL` : sql`${role} = ${assigneeId}::uuid`,
    ),
    sql` OR `,
  );
  const marks = [
    reviewed !== undefined && { rows: frames(sql`frame_review`), wanted: reviewed },
    annotated !== undefined && {
      rows: frames(sql`frame_count`, sql`pending + accepted + rejected > 0`),
      wanted: annotated,
    },
    stage && { rows: reviewedFrames(job), wanted: stage === "done" },
    stage &&
      stage !== "done" && {
        rows: assigned(sql`stage = 'review'`),
        wanted: stage === "review",
      },
    assigneeId !== undefined && { rows: assigned(sql`(${isHeld})`), wanted: assigneeId !== null },
    tagKeys && { rows: framesTagged(job.workspaceId, tagKeys), wanted: true },
    among && { rows: sql`SELECT video_id, frame FROM (${among}) m`, wanted: true },
  ];
  return marks.filter((mark) => mark !== false && mark !== undefined);
}

/** A job's frames by a filter: rows of the video's `position`, `video_id`, `frame`, `sampled`. */
export function matchingFrames(job: JobRow, filter: FrameFilter): SQL {
  const { videoId, fromIndex, toIndex } = filter;
  const named = allOf([
    videoId && sql`video_id = ${videoId}::uuid`,
    fromIndex !== undefined && sql`frame >= ${fromIndex}::int`,
    toIndex !== undefined && sql`frame < ${toIndex}::int`,
  ]);
  // Marks are put beside the frames and grouped with them. Nothing tells Postgres how many frames a
  // job has, and a join would look up each mark by itself.
  const marks = marksOf(job, filter);
  const frames = sql.join(
    [
      sql`SELECT video_id, unnest(frames) AS frame, true AS sampled, NULL::int AS mark
            FROM job_video WHERE job_id = ${job.id}::uuid`,
      sql`SELECT video_id, frame, false, NULL FROM (${addedFrames(job)}) x`,
      ...marks.map(
        ({ rows }, mark) => sql`SELECT m.*, NULL::boolean, ${mark}::int FROM (${rows}) m`,
      ),
    ],
    sql` UNION ALL `,
  );
  const marked = allOf([
    sql`bool_or(sampled) IS NOT NULL`,
    ...marks.map(
      ({ wanted }, mark) => sql`coalesce(bool_or(mark = ${mark}::int), false) = ${wanted}::boolean`,
    ),
  ]);
  const isMarked = marks.length > 0;
  return sql`
    SELECT j.position, f.video_id, f.frame, f.sampled FROM (
        SELECT video_id, frame, ${isMarked ? sql`bool_or(sampled) AS sampled` : sql`sampled`}
          FROM (${frames}) f WHERE ${named}
          ${isMarked ? sql`GROUP BY video_id, frame HAVING ${marked}` : sql``}) f
      JOIN job_video j ON j.job_id = ${job.id}::uuid AND j.video_id = f.video_id`;
}

/**
 * Each annotation of a frame that is shown was judged, and there is one. A duplicate needs no
 * judgement.
 */
const JUDGED = sql`(accepted + rejected > 0 AND pending = repeated)`;

/**
 * The frames of a job that people are done with, as rows of `video_id` and `frame_index`: those
 * that somebody marked, and those whose annotations were judged.
 */
export const reviewedFrames = ({ id }: { id: string | SQL }): SQL => sql`
  SELECT video_id, frame_index FROM frame_review WHERE job_id = ${id}::uuid
  UNION SELECT video_id, frame_index FROM frame_count WHERE job_id = ${id}::uuid AND ${JUDGED}`;

interface FrameRow {
  video_id: string;
  frame: number;
  sampled: boolean;
  pending: number;
  accepted: number;
  rejected: number;
  reviewed_ms: number | null;
  reviewed_by: string | null;
  labeler_id: string | null;
  reviewer_id: string | null;
  stage: FrameStage;
  tags: string[];
}

/** A page of a job's frames, video by video in the job's order, and how many there are. */
export async function listFrames(
  parts: Pick<Parts, "database" | "bucket">,
  job: JobRow,
  { offset, limit, ...filter }: FrameFilter & { offset: number; limit: number },
): Promise<{ items: JobFrame[]; total: number }> {
  const { rows } = await parts.database.execute<{ total: number; items: FrameRow[] }>(sql`
    WITH wanted AS MATERIALIZED (${matchingFrames(job, filter)}),
    page AS (
      SELECT * FROM wanted ORDER BY position, frame LIMIT ${limit}::int OFFSET ${offset}::int)
    SELECT (SELECT count(*) FROM wanted)::int AS total, (
      SELECT coalesce(json_agg(json_build_object('video_id', p.video_id, 'frame', p.frame,
          'sampled', p.sampled, 'pending', coalesce(n.pending, 0),
          'accepted', coalesce(n.accepted, 0), 'rejected', coalesce(n.rejected, 0),
          'reviewed_by', r.reviewed_by, 'labeler_id', s.labeler_id,
          'reviewer_id', s.reviewer_id, 'tags', ${tagsOf(sql`p.video_id`, sql`p.frame`)},
          'stage', CASE WHEN r.job_id IS NOT NULL OR ${JUDGED} THEN 'done'
            ELSE coalesce(s.stage, 'label') END,
          'reviewed_ms', ${epochMs(sql`r.reviewed_at`)})
          ORDER BY p.position, p.frame), '[]')
        FROM page p LEFT JOIN frame_count n ON n.job_id = ${job.id}::uuid
         AND n.video_id = p.video_id AND n.frame_index = p.frame
        LEFT JOIN frame_review r ON r.job_id = ${job.id}::uuid AND r.video_id = p.video_id
         AND r.frame_index = p.frame
        LEFT JOIN frame_assignment s ON s.job_id = ${job.id}::uuid AND s.video_id = p.video_id
         AND s.frame_index = p.frame) AS items`);
  const { items = [], total = 0 } = rows[0] ?? {};
  const seconds = await secondsOf(parts, job, items);
  return { items: items.map((row, index) => frameRecord(row, seconds[index] ?? 0)), total };
}

const frameRecord = (row: FrameRow, seconds: number): JobFrame => ({
  frame_id: frameId(row.video_id, row.frame),
  video_id: row.video_id,
  index: row.frame,
  pts_seconds: seconds,
  image_url: frameImagePath(row.video_id, row.frame),
  sampled: row.sampled,
  annotations: {
    total: row.pending + row.accepted + row.rejected,
    pending: row.pending,
    accepted: row.accepted,
    rejected: row.rejected,
  },
  reviewed_at: row.reviewed_ms === null ? null : iso(row.reviewed_ms),
  reviewed_by: row.reviewed_by,
  labeler_id: row.labeler_id,
  reviewer_id: row.reviewer_id,
  stage: row.stage,
  tags: row.tags,
});

/** The true times of a page's frames, seconds; one read of the store for each video. */
async function secondsOf(
  parts: Pick<Parts, "database" | "bucket">,
  { workspaceId }: JobRow,
  rows: readonly FrameRow[],
): Promise<number[]> {
  const byVideo = Map.groupBy(rows, ({ video_id }) => video_id);
  const videos = await findVideos(parts.database, [workspaceId], [...byVideo.keys()]);
  const clocks = await Promise.all(
    videos.map(async (video) => [video.videoId, await clockOf(parts, video, byVideo)] as const),
  );
  const clockByVideo = new Map(clocks);
  return rows.map(({ video_id, frame }) => clockByVideo.get(video_id)?.(frame) ?? 0);
}

/** What tells the seconds of the frames of a video that are on a page. */
async function clockOf(
  parts: Pick<Parts, "bucket">,
  video: VideoRow,
  byVideo: ReadonlyMap<string, readonly FrameRow[]>,
): Promise<(frame: number) => number> {
  const frames = byVideo.get(video.videoId)?.map(({ frame }) => frame) ?? [];
  // A still begins with its only frame.
  if (video.frameCount === 1) return () => 0;
  const [first = 0, last = 0] = [frames[0], frames.at(-1)];
  const pts = await readPtsRange(parts, video, { offset: first, limit: last - first + 1 });
  const [numerator = 1, denominator = 1] = video.timeBase ?? [];
  return (frame) => ((pts[frame - first] ?? 0) * numerator) / denominator;
}

/** Marks the frames that a filter names as reviewed, or as not; tells how many that changed. */
export function markMatching(
  database: Database,
  job: JobRow,
  { filter, reviewed, actorId }: { filter: FrameFilter; reviewed: boolean; actorId: string },
): Promise<number> {
  const frames = sql`SELECT video_id, frame FROM (${matchingFrames(job, filter)}) w`;
  return mark(database, job, { frames, reviewed, actorId });
}

/**
 * Frames that a body's filter names by their ids, as rows of `video_id` and `frame`; fails with
 * `invalid_request` for an id that is none.
 */
export function framesOfIds(ids: readonly string[]): SQL {
  const given = ids.map((id) => {
    const frame = parseFrameId(id);
    if (!frame) throw new Failure("invalid_request", "filter.frame_ids: one of them is none");
    return { video_id: frame.videoId, frame: frame.index };
  });
  return sql`SELECT DISTINCT video_id, frame FROM jsonb_to_recordset(
    ${JSON.stringify(given)}::jsonb) g(video_id uuid, frame int)`;
}

/**
 * Marks frames of a job's range as reviewed, or as not; one that the job does not label becomes a
 * frame of it by that. Tells how many that changed; fails with `not_found` for a frame that is not
 * in the range, and with `invalid_request` for an id that is none.
 */
export async function markFrames(
  database: Database,
  job: JobRow,
  { ids, reviewed, actorId }: { ids: readonly string[]; reviewed: boolean; actorId: string },
): Promise<number> {
  const frames = framesOfIds(ids);
  const { rows } = await database.execute<{ video_id: string; frame: number }>(sql`
    SELECT g.video_id, g.frame FROM (${frames}) g WHERE NOT EXISTS (
      SELECT FROM job_video jv JOIN job j ON j.id = jv.job_id JOIN video v ON v.id = jv.video_id
       WHERE jv.job_id = ${job.id}::uuid AND jv.video_id = g.video_id
         AND ${inRange(sql`g.frame`)}) LIMIT 1`);
  const [absent] = rows;
  if (absent) {
    const id = frameId(absent.video_id, absent.frame);
    throw new Failure("not_found", `the job has no frame ${id} in its range`);
  }
  return mark(database, job, { frames, reviewed, actorId });
}

async function mark(
  database: Database,
  { id: jobId }: JobRow,
  { frames, reviewed, actorId }: { frames: SQL; reviewed: boolean; actorId: string },
): Promise<number> {
  const marked = reviewed
    ? sql`
      INSERT INTO frame_review (job_id, video_id, frame_index, reviewed_by)
      SELECT job.id, f.video_id, f.frame, ${actorId}::uuid FROM job, (${frames}) f
       WHERE job.id = ${jobId}::uuid ON CONFLICT DO NOTHING RETURNING job_id`
    : sql`
      DELETE FROM frame_review r USING (${frames}) f WHERE r.job_id = ${jobId}::uuid
         AND r.video_id = f.video_id AND r.frame_index = f.frame RETURNING r.job_id`;
  const [row] = await inJob<{ changed: number }>(
    database,
    jobId,
    sql`WITH marked AS (${marked}) SELECT count(*)::int AS changed FROM marked`,
  );
  return row?.changed ?? 0;
}
