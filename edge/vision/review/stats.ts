// Numbers about a job's annotations: overview and statistics, each in one statement.

import { type SQL, sql } from "drizzle-orm";
import type { JobClass, Overview, Stats } from "../../../shared/labeling.ts";
import type { Database } from "../../http/database.ts";
import { addedFrames, type JobRow } from "../labeling/jobs.ts";
import { repeated, shown } from "./annotations.ts";
import { reviewedFrames } from "./frames.ts";

const CONFIDENCE_BINS = 20;
/** Shares of the frame from 10⁻⁵ to 1, ten bins a decade. */
const AREA_DECADES = 5;
const AREA_BINS = AREA_DECADES * 10;

/** Whether duplicates are among the annotations that are looked at. */
interface Scope {
  duplicates: boolean;
}

/** The condition on annotations `a` that are shown, duplicates among them or not. */
const counted = (job: JobRow, { duplicates }: Scope): SQL => {
  const own = sql`a.job_id = ${job.id}::uuid AND ${shown(job.threshold)}`;
  return duplicates ? own : sql`${own} AND NOT ${repeated(job.threshold)}`;
};

/** A job's classes with their indexes in exports and how many annotations each shows. */
export async function listClasses(
  database: Database,
  job: JobRow,
  scope: Scope,
): Promise<JobClass[]> {
  const { rows } = await database.execute<JobClass & Record<string, unknown>>(sql`
    SELECT c.name AS class, (row_number() OVER (ORDER BY c.number) - 1)::int AS index, c.prompt,
      coalesce(n.annotations, 0)::int AS annotations
      FROM job_class c LEFT JOIN (
        SELECT a.class_number, count(*) AS annotations FROM annotation a
         WHERE ${counted(job, scope)} GROUP BY a.class_number) n ON n.class_number = c.number
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
  const own = counted(job, { duplicates: false });
  const [classes, { rows }] = await Promise.all([
    listClasses(database, job, { duplicates: false }),
    database.execute<OverviewCounts>(sql`
      SELECT count(*)::int AS annotations,
        (count(DISTINCT (video_id, frame_index)) FILTER (WHERE review <> 'rejected'))::int
          AS "annotatedFrames",
        (SELECT count(*) FROM (${addedFrames(job)}) f)::int AS added,
        (SELECT count(*) FROM frame_review WHERE job_id = ${job.id}::uuid)::int AS "markedFrames",
        (SELECT count(*) FROM (${reviewedFrames(job)}) f)::int AS "reviewedFrames"
        FROM annotation a WHERE ${own}`),
  ]);
  const counts = rows[0] as OverviewCounts;
  const framesTotal = job.framesTotal + counts.added;
  const percentage = (part: number, whole: number) => (whole === 0 ? 100 : (100 * part) / whole);
  return {
    frame_count: framesTotal,
    annotated_frames: counts.annotatedFrames,
    reviewed_frames: counts.markedFrames,
    annotation_count: counts.annotations,
    per_class: classes.map((one) => ({ class: one.class, count: one.annotations })),
    completion_percentage: percentage(counts.reviewedFrames, framesTotal),
    labeled_percentage: percentage(framesDone, job.framesTotal),
  };
}

interface OverviewCounts extends Record<string, unknown> {
  annotations: number;
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

/** Distributions of a job's shown annotations. Reviews are the ground truth of precision. */
export async function statsOf(database: Database, job: JobRow, scope: Scope): Promise<Stats> {
  const own = counted(job, scope);
  const { rows } = await database.execute<AnnotationCounts>(sql`
    WITH own AS (
      SELECT a.class_number, a.review, a.source, a.video_id, a.frame_index,
        -- As a decimal: 0.7 as it is stored is a little less. The bin after the last is of
        -- annotations without a confidence; least() would leave their NULL out.
        CASE WHEN a.confidence IS NULL THEN ${CONFIDENCE_BINS}::int
          ELSE least(floor(a.confidence::numeric * ${CONFIDENCE_BINS}::int),
            ${CONFIDENCE_BINS - 1}::int)::int END AS bin,
        greatest(0, least(${AREA_BINS - 1}::int, floor(10 * (${AREA_DECADES}::int + log10(greatest(
          1e-9, (a.x2 - a.x1)::float8 * (a.y2 - a.y1) / (v.width::float8 * v.height)))))))::int AS area
        FROM annotation a JOIN video v ON v.id = a.video_id WHERE ${own}
    ), bins AS (
      SELECT class_number, jsonb_object_agg(bin, n) AS bins FROM (
        SELECT class_number, bin, count(*)::int AS n FROM own GROUP BY class_number, bin) b
       GROUP BY class_number
    )
    SELECT
      (SELECT coalesce(json_agg(k ORDER BY k.number), '[]') FROM (
        SELECT c.number, c.name AS class, count(o.class_number)::int AS count,
          (count(*) FILTER (WHERE o.review = 'accepted'))::int AS accepted,
          (count(*) FILTER (WHERE o.review = 'rejected'))::int AS rejected,
          (count(*) FILTER (WHERE o.review = 'accepted' AND o.source = 'model'))::int AS accepted_model,
          (count(*) FILTER (WHERE o.review = 'rejected' AND o.source = 'model'))::int AS rejected_model,
          (SELECT bins FROM bins WHERE bins.class_number = c.number) AS bins
          FROM job_class c LEFT JOIN own o ON o.class_number = c.number
         WHERE c.job_id = ${job.id}::uuid GROUP BY c.number, c.name) k) AS classes,
      (SELECT jsonb_object_agg(area, n) FROM (
        SELECT area, count(*)::int AS n FROM own GROUP BY area) x) AS areas,
      (SELECT json_agg(json_build_array(n, frames) ORDER BY n) FROM (
        SELECT n, count(*)::int AS frames FROM (
          SELECT count(*)::int AS n FROM own GROUP BY video_id, frame_index) f GROUP BY n) g) AS frames,
      (SELECT count(*) FROM annotation a WHERE ${counted(job, { duplicates: true })}
        AND ${repeated(job.threshold)})::int AS duplicates,
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
