// A job compared with another whose annotations are taken as the truth, over the frames that both
// have looked at.

import { type SQL, sql } from "drizzle-orm";
import { type ClassImage, classFigures } from "../../../../shared/detector/average-precision.ts";
import { figuresOf, overallFigures } from "../../../../shared/detector/detection-figures.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";
import type { JobComparison } from "../../../../shared/wire/labeling.ts";
import type { Database } from "../../../http/database.ts";
import { type JobRow, knownFrames } from "../jobs/jobs.ts";
import { repeated, shown } from "../review/annotations.ts";

/** Annotations of both jobs together, which are all in memory. */
const ANNOTATIONS_MAX = 100_000;
/** Pairs of a box and a truth of its class on one frame, each of which is looked at ten times. */
const PAIRS_MAX = 5_000_000;

/**
 * Annotations that count: all that are stored of the job, or those that are shown of the truth, but
 * for what a reviewer rejected and for second boxes of one object.
 */
const counts = (job: JobRow, threshold: number): SQL => sql`a.job_id = ${job.id}::uuid
  AND a.review <> 'rejected' AND ${shown(threshold)} AND NOT ${repeated(threshold)}`;

/**
 * The figures of a job by the annotations of another. Fails with `invalid_request` where the jobs
 * are of two projects, have no frame in common, or are too large to compare at once.
 */
export async function compareJobs(
  database: Database,
  job: JobRow,
  truth: JobRow,
): Promise<JobComparison> {
  if (job.projectId !== truth.projectId) {
    throw new Failure("invalid_request", "truth_job_id: is a job of another project");
  }
  const found = counts(job, 0);
  const known = counts(truth, truth.threshold);
  const size = await sizeOf(database, { job, truth, found, known });
  if (size.both === 0) {
    throw new Failure("invalid_request", "truth_job_id: the jobs have no labeled frame in common");
  }
  if (size.annotations > ANNOTATIONS_MAX) throw tooMany(`${ANNOTATIONS_MAX} annotations`);
  const images = await imagesOf(database, { job, truth, found, known });
  const pairs = [...images.values()]
    .flat()
    .reduce((sum, { truths, detections }) => sum + truths.length * detections.length, 0);
  if (pairs > PAIRS_MAX) throw tooMany(`${PAIRS_MAX} pairs of a box and a truth on one frame`);
  const perClass = [...images]
    .map(([name, own]) => ({ name, ...classFigures(own, job.threshold) }))
    .sort((one, other) => other.truths - one.truths || (one.name < other.name ? -1 : 1));
  return {
    job_id: job.id,
    truth_job_id: truth.id,
    threshold: job.threshold,
    frames: size.both,
    frames_only_in_job: size.job - size.both,
    frames_only_in_truth: size.truth - size.both,
    overall: overallFigures(perClass),
    per_class: perClass.map((one) => ({ class: one.name, ...figuresOf(one) })),
  };
}

const tooMany = (most: string) =>
  new Failure("invalid_request", `the jobs are too large to compare at once: over ${most}`);

/** Frames that both jobs have labeled, as rows of `video_id` and `frame`. */
const bothFrames = (job: JobRow, truth: JobRow): SQL => sql`
  SELECT video_id, frame FROM (${knownFrames(job)}) j
  INTERSECT SELECT video_id, frame FROM (${knownFrames(truth)}) t`;

interface Size extends Record<string, unknown> {
  both: number;
  job: number;
  truth: number;
  annotations: number;
}

async function sizeOf(
  database: Database,
  { job, truth, found, known }: { job: JobRow; truth: JobRow; found: SQL; known: SQL },
): Promise<Size> {
  const count = (condition: SQL) => sql`
    (SELECT count(*)::int FROM annotation a
       JOIN both_frames b ON b.video_id = a.video_id AND b.frame = a.frame_index
      WHERE ${condition})`;
  const { rows } = await database.execute<Size>(sql`
    WITH both_frames AS (${bothFrames(job, truth)})
    SELECT (SELECT count(*)::int FROM both_frames) AS both,
      (SELECT count(*)::int FROM (${knownFrames(job)}) j) AS job,
      (SELECT count(*)::int FROM (${knownFrames(truth)}) t) AS truth,
      ${count(found)} + ${count(known)} AS annotations`);
  return rows[0] as Size;
}

/** Class, then the box, then the confidence, of a frame. */
type BoxRow = [className: string, x1: number, y1: number, x2: number, y2: number, sure: number];

/** What the frames hold, by class; frames in the order of the job's videos. */
async function imagesOf(
  database: Database,
  { job, truth, found, known }: { job: JobRow; truth: JobRow; found: SQL; known: SQL },
): Promise<Map<string, ClassImage[]>> {
  const listed = (condition: SQL) => sql`
    SELECT a.video_id, a.frame_index, json_agg(json_build_array(
        c.name, a.x1, a.y1, a.x2, a.y2, coalesce(a.confidence, 1)) ORDER BY a.id) AS list
      FROM annotation a JOIN job_class c ON c.job_id = a.job_id AND c.number = a.class_number
     WHERE ${condition} GROUP BY 1, 2`;
  const { rows } = await database.execute<{ found: BoxRow[]; known: BoxRow[] }>(sql`
    WITH f AS (${listed(found)}), k AS (${listed(known)})
    SELECT coalesce(f.list, '[]') AS found, coalesce(k.list, '[]') AS known
      FROM (${bothFrames(job, truth)}) b
      LEFT JOIN f ON f.video_id = b.video_id AND f.frame_index = b.frame
      LEFT JOIN k ON k.video_id = b.video_id AND k.frame_index = b.frame
      JOIN job_video v ON v.job_id = ${job.id}::uuid AND v.video_id = b.video_id
     WHERE f.list IS NOT NULL OR k.list IS NOT NULL
     ORDER BY v.position, b.frame`);
  const images = new Map<string, ClassImage[]>();
  for (const row of rows) {
    const own = new Map<
      string,
      { truths: Bbox[]; detections: ClassImage["detections"][number][] }
    >();
    const of = (name: string) => {
      const known = own.get(name) ?? { truths: [], detections: [] };
      own.set(name, known);
      return known;
    };
    for (const [name, x1, y1, x2, y2] of row.known) of(name).truths.push([x1, y1, x2, y2]);
    for (const [name, x1, y1, x2, y2, confidence] of row.found) {
      of(name).detections.push({ bbox: [x1, y1, x2, y2], confidence });
    }
    for (const [name, image] of own) {
      const all = images.get(name);
      if (all) all.push(image);
      else images.set(name, [image]);
    }
  }
  return images;
}
