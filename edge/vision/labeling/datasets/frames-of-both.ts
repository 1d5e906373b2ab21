// Frames that two jobs have both labeled, with the annotations of either that count: what jobs are
// compared over.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { Database } from "../../../http/database.ts";
import { type JobRow, knownFrames } from "../jobs/jobs.ts";
import { repeated, shown } from "../review/annotations.ts";

/** Annotations of both jobs together, which are all in memory. */
const ANNOTATIONS_MAX = 100_000;

/** Class, then the box, then the confidence, of a frame. */
export type BoxRow = [
  className: string,
  x1: number,
  y1: number,
  x2: number,
  y2: number,
  sure: number,
];

/** A frame that both jobs have labeled, with boxes of at least one of them. */
export interface BothFrame extends Record<string, unknown> {
  videoId: string;
  index: number;
  /** Boxes of the job. */
  own: BoxRow[];
  /** Boxes of the other job. */
  others: BoxRow[];
}

/** Two jobs of a project. */
interface Jobs {
  job: JobRow;
  other: JobRow;
  /** Confidences from which annotations count, of the job and of the other one. */
  thresholds: readonly [own: number, others: number];
  /** Parameter of the request that names the other job. */
  parameter: string;
}

/** How many frames the jobs have labeled: both, the job, the other one. */
interface FrameCounts {
  both: number;
  job: number;
  other: number;
}

interface Size extends FrameCounts, Record<string, unknown> {
  annotations: number;
}

/** The failure of jobs that have more than fits into the memory of a request. */
export const tooMany = (bound: string) =>
  new Failure("invalid_request", `the jobs are too large to compare at once: over ${bound}`);

/**
 * How many frames the jobs have labeled, and those of both with their annotations, in the order of
 * the job's videos. Fails with `invalid_request` where the jobs are of two projects, have no frame
 * in common, or are too large to compare at once.
 */
export async function annotationsOnBoth(
  database: Database,
  { job, other, thresholds, parameter }: Jobs,
): Promise<FrameCounts & { frames: BothFrame[] }> {
  if (job.projectId !== other.projectId) {
    throw new Failure("invalid_request", `${parameter}: is a job of another project`);
  }
  const both = bothFrames(job, other);
  const counted = [counts(job, thresholds[0]), counts(other, thresholds[1])] as const;
  const size = await sizeOf(database, { job, other, both, counted });
  if (size.both === 0) {
    const detail = `${parameter}: the jobs have no labeled frame in common`;
    throw new Failure("invalid_request", detail);
  }
  if (size.annotations > ANNOTATIONS_MAX) throw tooMany(`${ANNOTATIONS_MAX} annotations`);
  return { ...size, frames: await framesOf(database, { job, both, counted }) };
}

/**
 * Annotations of a job that count: those at or above a confidence, but for what a reviewer rejected
 * and for second boxes of one object.
 */
const counts = (job: JobRow, threshold: number): SQL => sql`a.job_id = ${job.id}::uuid
  AND a.review <> 'rejected' AND ${shown(threshold)} AND NOT ${repeated(threshold)}`;

/** Frames that both jobs have labeled, as rows of `video_id` and `frame`. */
const bothFrames = (job: JobRow, other: JobRow): SQL => sql`
  SELECT video_id, frame FROM (${knownFrames(job)}) j
  INTERSECT SELECT video_id, frame FROM (${knownFrames(other)}) t`;

/** The frames of both, and the conditions on annotations `a` of either that count. */
interface Parts {
  both: SQL;
  counted: readonly [own: SQL, others: SQL];
}

async function sizeOf(
  database: Database,
  { job, other, both, counted }: Parts & Pick<Jobs, "job" | "other">,
): Promise<Size> {
  const count = (condition: SQL) => sql`
    (SELECT count(*)::int FROM annotation a
       JOIN both_frames b ON b.video_id = a.video_id AND b.frame = a.frame_index
      WHERE ${condition})`;
  const { rows } = await database.execute<Size>(sql`
    WITH both_frames AS (${both})
    SELECT (SELECT count(*)::int FROM both_frames) AS both,
      (SELECT count(*)::int FROM (${knownFrames(job)}) j) AS job,
      (SELECT count(*)::int FROM (${knownFrames(other)}) t) AS other,
      ${count(counted[0])} + ${count(counted[1])} AS annotations`);
  return rows[0] as Size;
}

async function framesOf(
  database: Database,
  { job, both, counted }: Parts & Pick<Jobs, "job">,
): Promise<BothFrame[]> {
  const listed = (condition: SQL) => sql`
    SELECT a.video_id, a.frame_index, json_agg(json_build_array(
        c.name, a.x1, a.y1, a.x2, a.y2, coalesce(a.confidence, 1)) ORDER BY a.id) AS list
      FROM annotation a JOIN job_class c ON c.job_id = a.job_id AND c.number = a.class_number
     WHERE ${condition} GROUP BY 1, 2`;
  const { rows } = await database.execute<BothFrame>(sql`
    WITH f AS (${listed(counted[0])}), k AS (${listed(counted[1])})
    SELECT b.video_id AS "videoId", b.frame AS index,
      coalesce(f.list, '[]') AS own, coalesce(k.list, '[]') AS others
      FROM (${both}) b
      LEFT JOIN f ON f.video_id = b.video_id AND f.frame_index = b.frame
      LEFT JOIN k ON k.video_id = b.video_id AND k.frame_index = b.frame
      JOIN job_video v ON v.job_id = ${job.id}::uuid AND v.video_id = b.video_id
     WHERE f.list IS NOT NULL OR k.list IS NOT NULL
     ORDER BY v.position, b.frame`);
  return rows;
}
