// Numbers about a job's annotations: overview and statistics, from the counts that the database
// keeps in step with them.

import { type SQL, sql } from "drizzle-orm";
import type { JobClass, Overview, Stats } from "../../../../shared/wire/labeling.ts";
import type { Database } from "../../../http/database.ts";
import { assignedFrames } from "../collaboration/assignments.ts";
import { addedFrames, type JobRow } from "../jobs/jobs.ts";
import { CONFIDENCE_STEPS } from "./annotation-pages.ts";
import { reviewedFrames } from "./frames.ts";

const CONFIDENCE_BINS = 20;
/** Shares of the frame from 10⁻⁵ to 1, ten bins a decade. */
const AREA_DECADES = 5;
const AREA_BINS = AREA_DECADES * 10;

/** Whether duplicates are among the annotations that are looked at. */
interface Scope {
  duplicates: boolean;
}

/** The condition on counts `n` of a job, of annotations or of areas, to be in a scope. */
const counted = (job: JobRow, { duplicates }: Scope): SQL => {
  const own = sql`n.job_id = ${job.id}::uuid`;
  return duplicates ? own : sql`${own} AND NOT n.repeated`;
};

/** A job's classes with their indexes in exports and how many annotations each shows. */
export async function listClasses(
  database: Database,
  job: JobRow,
  scope: Scope,
): Promise<JobClass[]> {
  const { rows } = await database.execute<JobClass & Record<string, unknown>>(sql`
    SELECT c.name AS class, (row_number() OVER (ORDER BY c.number) - 1)::int AS index, c.prompt,
      coalesce(k.annotations, 0)::int AS annotations
      FROM job_class c LEFT JOIN (
        SELECT n.class_number, sum(n.annotations) AS annotations FROM annotation_count n
         WHERE ${counted(job, scope)} AND n.shown GROUP BY n.class_number) k
        ON k.class_number = c.number
     WHERE c.job_id = ${job.id}::uuid ORDER BY c.number`);
  return rows.map(({ class: name, index, prompt, annotations }) => ({
    class: name,
    index,
    prompt,
    annotations,
  }));
}

/** The overview of a job of which so many frames are labeled. */
export async function overviewOf(
  database: Database,
  job: JobRow,
  framesDone: number,
): Promise<Overview> {
  const [classes, { inReview, people }, { rows }] = await Promise.all([
    listClasses(database, job, { duplicates: false }),
    assignedFrames(database, job),
    database.execute<OverviewCounts>(sql`
      SELECT (SELECT count(*) FROM frame_count
          WHERE job_id = ${job.id}::uuid AND pending + accepted > repeated)::int
          AS "annotatedFrames",
        (SELECT count(*) FROM (${addedFrames(job)}) f)::int AS added,
        (SELECT count(*) FROM frame_review WHERE job_id = ${job.id}::uuid)::int AS "markedFrames",
        (SELECT count(*) FROM (${reviewedFrames(job)}) f)::int AS "reviewedFrames"`),
  ]);
  const counts = rows[0] as OverviewCounts;
  const framesTotal = job.framesTotal + counts.added;
  const percentage = (part: number, whole: number) => (whole === 0 ? 100 : (100 * part) / whole);
  return {
    frame_count: framesTotal,
    annotated_frames: counts.annotatedFrames,
    reviewed_frames: counts.markedFrames,
    annotation_count: classes.reduce((sum, one) => sum + one.annotations, 0),
    per_class: classes.map((one) => ({ class: one.class, count: one.annotations })),
    completion_percentage: percentage(counts.reviewedFrames, framesTotal),
    labeled_percentage: percentage(framesDone, job.framesTotal),
    stages: {
      label: Math.max(framesTotal - inReview - counts.reviewedFrames, 0),
      review: inReview,
      done: counts.reviewedFrames,
    },
    people,
  };
}

interface OverviewCounts extends Record<string, unknown> {
  /** Frames with an annotation that nobody rejected. */
  annotatedFrames: number;
  added: number;
  /** Frames that somebody marked as reviewed. */
  markedFrames: number;
  reviewedFrames: number;
}

interface AnnotationCounts extends Record<string, unknown> {
  classes: {
    class: string;
    count: number;
    accepted: number;
    rejected: number;
    accepted_model: number;
    rejected_model: number;
    bins: Record<string, number> | null;
  }[];
  areas: Record<string, number> | null;
  frames: [number, number][] | null;
  duplicates: number;
  added: number;
}

/** How many annotations the counts `o` are of, of those that a condition names. */
const total = (which: SQL = sql`true`): SQL =>
  sql`coalesce(sum(o.annotations) FILTER (WHERE ${which}), 0)::int`;

/** Distributions of a job's shown annotations. Reviews are the ground truth of precision. */
export async function statsOf(database: Database, job: JobRow, scope: Scope): Promise<Stats> {
  const seen = scope.duplicates ? sql`` : sql`- repeated`;
  const { rows } = await database.execute<AnnotationCounts>(sql`
    WITH own AS (
      SELECT * FROM annotation_count n WHERE ${counted(job, scope)} AND n.shown
    ), bins AS (
      SELECT class_number, jsonb_object_agg(bin, annotations) AS bins FROM (
        SELECT class_number, bin / ${CONFIDENCE_STEPS / CONFIDENCE_BINS}::int AS bin,
          sum(annotations)::int AS annotations FROM own GROUP BY 1, 2) b
       GROUP BY class_number
    )
    SELECT
      (SELECT coalesce(json_agg(k ORDER BY k.number), '[]') FROM (
        SELECT c.number, c.name AS class, ${total()} AS count,
          ${total(sql`o.review = 'accepted'`)} AS accepted,
          ${total(sql`o.review = 'rejected'`)} AS rejected,
          ${total(sql`o.review = 'accepted' AND o.source = 'model'`)} AS accepted_model,
          ${total(sql`o.review = 'rejected' AND o.source = 'model'`)} AS rejected_model,
          (SELECT bins FROM bins WHERE bins.class_number = c.number) AS bins
          FROM job_class c LEFT JOIN own o ON o.class_number = c.number
         WHERE c.job_id = ${job.id}::uuid GROUP BY c.number, c.name) k) AS classes,
      (SELECT jsonb_object_agg(bin, annotations) FROM (
        SELECT n.bin, sum(n.annotations)::int AS annotations FROM area_count n
         WHERE ${counted(job, scope)} GROUP BY n.bin) x) AS areas,
      (SELECT json_agg(json_build_array(n, frames) ORDER BY n) FROM (
        SELECT n, count(*)::int AS frames FROM (
          SELECT pending + accepted + rejected ${seen} AS n FROM frame_count
           WHERE job_id = ${job.id}::uuid) f WHERE n > 0 GROUP BY n) g) AS frames,
      (SELECT coalesce(sum(annotations), 0) FROM annotation_count
        WHERE job_id = ${job.id}::uuid AND repeated)::int AS duplicates,
      (SELECT count(*) FROM (${addedFrames(job)}) f)::int AS added`);
  return statsFrom(rows[0] as AnnotationCounts, job.framesTotal);
}

function statsFrom(
  { classes, areas, frames, duplicates, added }: AnnotationCounts,
  framesTotal: number,
): Stats {
  const sum = (pick: (one: AnnotationCounts["classes"][number]) => number) =>
    classes.reduce((total, one) => total + pick(one), 0);
  const total = sum(({ count }) => count);
  const accepted = sum((one) => one.accepted);
  const rejected = sum((one) => one.rejected);
  const annotated = (frames ?? []).reduce((all, [, count]) => all + count, 0);
  const empty = Math.max(framesTotal + added - annotated, 0);
  return {
    annotation_count: total,
    reviewed: { accepted, rejected, pending: total - accepted - rejected },
    per_class: classes.map((one) => ({
      class: one.class,
      count: one.count,
      share: total === 0 ? 0 : one.count / total,
      accepted: one.accepted,
      rejected: one.rejected,
      precision: precision(one.accepted_model, one.rejected_model),
      confidence_histogram: confidenceBins((bin) => one.bins?.[bin] ?? 0),
    })),
    confidence_histogram: confidenceBins((bin) => sum(({ bins }) => bins?.[bin] ?? 0)),
    box_area_histogram: Array.from({ length: AREA_BINS }, (_, bin) => ({
      from: bin === 0 ? 0 : 10 ** (bin / 10 - AREA_DECADES),
      to: 10 ** ((bin + 1) / 10 - AREA_DECADES),
      count: areas?.[bin] ?? 0,
    })),
    annotations_per_frame: [
      ...(empty > 0 ? [{ annotations: 0, frames: empty }] : []),
      ...(frames ?? []).map(([annotations, count]) => ({ annotations, frames: count })),
    ],
    duplicates,
  };
}

const precision = (accepted: number, rejected: number) =>
  accepted + rejected === 0 ? null : accepted / (accepted + rejected);

const confidenceBins = (count: (bin: number) => number) => [
  ...Array.from({ length: CONFIDENCE_BINS }, (_, bin) => ({
    from: bin / CONFIDENCE_BINS,
    to: (bin + 1) / CONFIDENCE_BINS,
    count: count(bin),
  })),
  { from: null, to: null, count: count(CONFIDENCE_BINS) },
];
