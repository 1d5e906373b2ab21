// Search of a project's frames, across its jobs, newest video first. Searched are the frames that
// jobs label or people added to them, frames with tags, and images. Where a filter names few frames
// they are looked up; otherwise the videos are read in order until a page is full.

import { type SQL, sql } from "drizzle-orm";
import { z } from "zod";
import { Failure } from "../../../../shared/errors.ts";
import type { FoundFrame } from "../../../../shared/wire/frame-search.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import { batch, type Database, epochMs } from "../../../http/database.ts";
import { cursorText, readCursor } from "../../base/cursors.ts";
import { folded } from "../../base/lists.ts";
import { allOf, instant } from "../../base/sql.ts";
import { frameImagePath } from "../../media/videos/frames.ts";
import type { JobRow } from "../jobs/jobs.ts";
import { reviewOf } from "../review/annotations.ts";
import { matchingFrames } from "../review/frames.ts";
import { framesTagged, tagsOf } from "./tags.ts";

/** Which frames of a project are meant. */
export interface FrameSearch {
  projectId: string;
  workspaceId: string;
  /** Only frames, and annotations, of this job. */
  job?: JobRow | undefined;
  /** Class, review and confidence hold for one annotation that its job's threshold shows. */
  className?: string | undefined;
  accepted?: boolean | null | undefined;
  confidenceMin?: number | undefined;
  confidenceMax?: number | undefined;
  /** Whether any annotation is shown. */
  annotated?: boolean | undefined;
  /** Keys of tags, all of which the frame has. */
  tagKeys?: readonly string[] | undefined;
  /** Part of the file's name, in letters of either case. */
  name?: string | undefined;
}

/** Up to this number of annotations that a search names they are looked up. */
const NAMED_MAX = 5_000;
/** The largest number of annotations that a lookup reads. */
const READ_MAX = 100_000;
/** The end of the year 9999, epoch milliseconds: a later one has another form as text. */
const INSTANT_MAX = 253_402_300_799_999;

/** Where a page ended: when its last video was made, epoch milliseconds; the video; the frame. */
const Cursor = z.tuple([
  z.int().min(0).max(INSTANT_MAX),
  z.guid(),
  z.int().min(0).max(2_147_483_647),
]);
type Position = z.output<typeof Cursor>;

function positionOf(cursor: string | undefined): Position | undefined {
  if (cursor === undefined) return undefined;
  const position = readCursor(Cursor, cursor);
  if (position) return position;
  throw new Failure("invalid_request", "cursor: is not the `next` of a page of this search");
}

/** The jobs of a video `v`, all of them its project's, or the one that is named: an array. */
const jobsOf = (job?: JobRow): SQL => sql`ARRAY(
  SELECT x.job_id FROM job_video x
   WHERE ${allOf([sql`x.video_id = v.id`, job && sql`x.job_id = ${job.id}::uuid`])})`;

/** Videos `v` that the search may find frames of, from the cursor's video on. */
function videosOf({ projectId, name, job }: FrameSearch, after: Position | undefined): SQL {
  const conditions = [
    sql`v.project_id = ${projectId}::uuid`,
    name !== undefined &&
      sql`strpos(${folded(sql`v.filename`)}, ${folded(sql`${name}::text`)}) > 0`,
    job && sql`v.id IN (SELECT video_id FROM job_video WHERE job_id = ${job.id}::uuid)`,
    after && sql`(v.created_at, v.id) <= (${instant(after[0])}, ${after[1]}::uuid)`,
  ];
  return allOf(conditions);
}

/** The condition on a frame of `v` that it comes after the cursor. */
const isAfter = (frame: SQL, after: Position | undefined): SQL =>
  after ? sql`(v.id <> ${after[1]}::uuid OR ${frame} > ${after[2]}::int)` : sql`true`;

const seeksAnnotation = ({ className, accepted, confidenceMin, confidenceMax }: FrameSearch) =>
  [className, accepted, confidenceMin, confidenceMax].some((one) => one !== undefined);

/** Jobs with their threshold and, where the search names a class, its number: `c`, for a WITH. */
function classesOf({ projectId, job, className }: FrameSearch): SQL {
  const which = allOf([
    sql`j.project_id = ${projectId}::uuid`,
    job && sql`j.id = ${job.id}::uuid`,
    className !== undefined && sql`${folded(sql`k.name`)} = ${folded(sql`${className}::text`)}`,
  ]);
  return className === undefined
    ? sql`c AS MATERIALIZED (
        SELECT j.id AS job_id, j.threshold, NULL::int AS number FROM job j WHERE ${which})`
    : sql`c AS MATERIALIZED (
        SELECT j.id AS job_id, j.threshold, k.number
          FROM job j JOIN job_class k ON k.job_id = j.id WHERE ${which})`;
}

/** The condition on an annotation `a` of a job `c`. */
function annotationIs({ className, accepted, ...search }: FrameSearch): SQL {
  const { confidenceMin = 0, confidenceMax } = search;
  const low = sql`greatest(c.threshold, ${Math.fround(confidenceMin)}::real)`;
  return allOf([
    // As elsewhere, nothing without a confidence is meant beside an upper bound.
    confidenceMax === undefined
      ? sql`(a.confidence IS NULL OR a.confidence >= ${low})`
      : sql`a.confidence BETWEEN ${low} AND ${Math.fround(confidenceMax)}::real`,
    className !== undefined && sql`a.class_number = c.number`,
    accepted !== undefined && sql`a.review = ${reviewOf(accepted)}`,
  ]);
}

/** The condition on counts `n` of annotations that they are of the class and review. */
const groupIs = ({ className, accepted }: FrameSearch): SQL =>
  allOf([
    className !== undefined && sql`n.class_number = c.number`,
    accepted !== undefined && sql`n.review = ${reviewOf(accepted)}`,
  ]);

/** The condition on counts `n` that they are of the confidences, and of what is shown. */
const binIs = ({ confidenceMin = 0, confidenceMax }: FrameSearch): SQL => {
  const from = sql`confidence_bin(${Math.fround(confidenceMin)}::real)`;
  return confidenceMax === undefined
    ? sql`n.shown AND n.bin >= ${from}`
    : sql`n.shown AND n.bin BETWEEN ${from} AND confidence_bin(${Math.fround(confidenceMax)}::real)`;
};

/** Annotations `a` of a job `c` by its index of classes and reviews. */
const byGroup = (search: FrameSearch): SQL => sql`
  SELECT a.* FROM (
      SELECT DISTINCT n.class_number, n.review, n.source FROM annotation_count n
       WHERE n.job_id = c.job_id AND n.annotations > 0 AND ${groupIs(search)}) n
    CROSS JOIN LATERAL (
      SELECT * FROM annotation WHERE job_id = c.job_id AND class_number = n.class_number
         AND review = n.review AND source = n.source OFFSET 0) a`;

/** The same by its index of confidences. */
const byConfidence = ({ confidenceMin = 0, confidenceMax }: FrameSearch): SQL => {
  const stretch = (which: SQL) => sql`(
    SELECT * FROM annotation WHERE job_id = c.job_id AND ${which} ORDER BY confidence, id OFFSET 0)`;
  const low = sql`greatest(c.threshold, ${Math.fround(confidenceMin)}::real)`;
  const sure = stretch(sql`confidence BETWEEN ${low} AND ${Math.fround(confidenceMax ?? 1)}::real`);
  return confidenceMax === undefined
    ? sql`${sure} UNION ALL ${stretch(sql`confidence IS NULL`)}`
    : sure;
};

/** Frames with an annotation that a search names: rows of `video_id`, `frame_index`. */
const annotatedFrames = (search: FrameSearch, annotations: SQL): SQL => sql`
  SELECT DISTINCT a.video_id, a.frame_index FROM c CROSS JOIN LATERAL (${annotations}) a
   WHERE ${annotationIs(search)}`;

/** What rows of frames meet already. */
type Met = "annotation" | "tags";

/** The other conditions on a frame `f.frame` of `v`, whose jobs are the array `v.jobs`. */
function frameIs(search: FrameSearch, met?: Met): SQL {
  const { annotated } = search;
  return allOf([
    met !== "annotation" &&
      seeksAnnotation(search) &&
      // By the index of frames, whatever statistics say: a class may have many annotations.
      sql`EXISTS (SELECT FROM c CROSS JOIN LATERAL (
          SELECT * FROM annotation WHERE job_id = c.job_id AND video_id = v.id
             AND frame_index = f.frame ORDER BY video_id, frame_index, id OFFSET 0) a
        WHERE c.job_id = ANY (v.jobs) AND ${annotationIs(search)} OFFSET 0)`,
    annotated !== undefined &&
      sql`EXISTS (SELECT FROM frame_count n WHERE n.job_id = ANY (v.jobs) AND n.video_id = v.id
          AND n.frame_index = f.frame AND n.pending + n.accepted + n.rejected > 0 OFFSET 0)
        = ${annotated}::boolean`,
  ]);
}

/** Frames that jobs in an array label, or that people added to them: `job_id`, `frame`. */
const framesOfJobs = (videoId: SQL, jobs: SQL): SQL => {
  const own = sql`video_id = ${videoId} AND job_id = ANY (${jobs})`;
  return sql`
    SELECT job_id, unnest(frames) AS frame FROM job_video WHERE ${own}
    UNION SELECT job_id, frame_index FROM frame_count WHERE ${own} AND stored > 0
    UNION SELECT job_id, frame_index FROM frame_review WHERE ${own}`;
};

/** Frames of `v` that are searched, as far as they may match: rows of `frame`. */
function searchedFrames(search: FrameSearch): SQL {
  const own = sql`video_id = v.id AND job_id = ANY (v.jobs)`;
  // A job of a million frames may have annotations on a few.
  if (search.annotated || seeksAnnotation(search)) {
    return sql`SELECT DISTINCT frame_index AS frame FROM frame_count
      WHERE ${own} AND pending + accepted + rejected > 0`;
  }
  const frames = sql`SELECT frame FROM (${framesOfJobs(sql`v.id`, sql`v.jobs`)}) o`;
  return search.job
    ? frames
    : sql`${frames}
      UNION SELECT frame_index FROM frame_tag WHERE video_id = v.id
      UNION SELECT 0 WHERE v.frame_count = 1`;
}

const VIDEO = sql`v.id, v.filename, v.created_at, v.frame_count`;
const ORDER = sql`v.created_at DESC, v.id DESC`;

/** Frames that are looked up: `rows` of `video_id` and `frame_index`, all of which meet `met`. */
interface FrameLookup {
  rows: SQL;
  met: Met;
}

/** A page of the frames `found`, a table of what is looked up. */
const lookedUp = (search: FrameSearch, { met }: FrameLookup, page: PageRequest): SQL => sql`
  SELECT v.id AS video_id, v.filename, v.created_at, f.frame
    FROM (SELECT video_id, frame_index AS frame FROM found) f
    CROSS JOIN LATERAL (
      SELECT ${VIDEO}, ${jobsOf(search.job)} AS jobs FROM video v
       WHERE v.id = f.video_id AND ${videosOf(search, page.after)} OFFSET 0) v
   WHERE ${isAfter(sql`f.frame`, page.after)} AND ${frameIs(search, met)}
   ORDER BY ${ORDER}, f.frame LIMIT ${page.limit + 1}::int`;

/** A page of frames for which the videos are read in order. */
const readInOrder = (search: FrameSearch, page: PageRequest): SQL => sql`
  SELECT v.id AS video_id, v.filename, v.created_at, f.frame
    FROM (SELECT ${VIDEO}, ${jobsOf(search.job)} AS jobs FROM video v
           WHERE ${videosOf(search, page.after)} ORDER BY ${ORDER} OFFSET 0) v
    CROSS JOIN LATERAL (
      SELECT f.frame FROM (${searchedFrames(search)}) f
       WHERE ${isAfter(sql`f.frame`, page.after)} AND ${frameIs(search)}
       ORDER BY f.frame LIMIT ${page.limit + 1}::int) f
   ORDER BY ${ORDER}, f.frame LIMIT ${page.limit + 1}::int`;

/**
 * Has the transaction read by indexes and in their order, whatever statistics say: a table may have
 * been filled just now.
 */
const BY_INDEX = sql`SELECT set_config('enable_sort', 'off', true),
  set_config('enable_seqscan', 'off', true)`;

interface PageRequest {
  after: Position | undefined;
  limit: number;
}

interface FrameRow {
  video_id: string;
  filename: string;
  created_ms: number;
  frame: number;
  tags: string[];
  job_ids: string[];
  pending: number;
  accepted: number;
  rejected: number;
}

/** How to look up what a search names; null where the videos are better read in order. */
async function lookupOf(database: Database, search: FrameSearch): Promise<FrameLookup | null> {
  const { tagKeys, job, workspaceId } = search;
  if (tagKeys) {
    const rows = job
      ? sql`SELECT video_id, frame AS frame_index FROM (${matchingFrames(job, { tagKeys })}) m`
      : framesTagged(workspaceId, tagKeys);
    return { rows, met: "tags" };
  }
  if (!seeksAnnotation(search)) return null;
  const sum = (which: SQL) => sql`coalesce(sum(n.annotations) FILTER (WHERE ${which}), 0)::float8`;
  type Sizes = { named: number; ofGroups: number; ofConfidences: number };
  const { rows } = await database.execute<Sizes>(sql`
    WITH ${classesOf(search)}
    SELECT ${sum(sql`${groupIs(search)} AND ${binIs(search)}`)} AS named,
      ${sum(groupIs(search))} AS "ofGroups", ${sum(binIs(search))} AS "ofConfidences"
      FROM c JOIN annotation_count n ON n.job_id = c.job_id`);
  const { named = 0, ofGroups = 0, ofConfidences = 0 } = rows[0] ?? {};
  if (named > NAMED_MAX || Math.min(ofGroups, ofConfidences) > READ_MAX) return null;
  const annotations = ofGroups < ofConfidences ? byGroup(search) : byConfidence(search);
  return { rows: annotatedFrames(search, annotations), met: "annotation" };
}

/** A page of a project's frames, newest video first, then by frame index. */
export async function searchFrames(
  database: Database,
  search: FrameSearch,
  { cursor, limit }: { cursor?: string | undefined; limit: number },
): Promise<{ items: FoundFrame[]; next: string | null }> {
  const page = { after: positionOf(cursor), limit };
  const lookup = await lookupOf(database, search);
  const frames = lookup ? lookedUp(search, lookup, page) : readInOrder(search, page);
  const [, rows] = await batch<[unknown, FrameRow]>(database, [
    BY_INDEX,
    sql`
    WITH ${classesOf(search)},
    found AS MATERIALIZED (${lookup?.rows ?? sql`SELECT`}),
    page AS MATERIALIZED (${frames}),
    w AS MATERIALIZED (
      SELECT v.id, ${jobsOf()} AS jobs FROM (SELECT DISTINCT video_id AS id FROM page) v),
    own AS MATERIALIZED (
      SELECT w.id AS video_id, o.job_id, o.frame
        FROM w CROSS JOIN LATERAL (${framesOfJobs(sql`w.id`, sql`w.jobs`)}) o
       WHERE (w.id, o.frame) IN (SELECT video_id, frame FROM page))
    SELECT p.video_id::text, p.filename, ${epochMs(sql`p.created_at`)} AS created_ms, p.frame,
      ${tagsOf(sql`p.video_id`, sql`p.frame`)} AS tags,
      (SELECT coalesce(json_agg(j.id ORDER BY j.created_at, j.id), '[]')
         FROM own o JOIN job j ON j.id = o.job_id
        WHERE o.video_id = p.video_id AND o.frame = p.frame) AS job_ids,
      n.pending, n.accepted, n.rejected
      FROM page p JOIN w ON w.id = p.video_id
      CROSS JOIN LATERAL (
        SELECT coalesce(sum(pending), 0)::int AS pending,
          coalesce(sum(accepted), 0)::int AS accepted, coalesce(sum(rejected), 0)::int AS rejected
          FROM frame_count WHERE job_id = ANY (w.jobs) AND video_id = p.video_id
           AND frame_index = p.frame) n
     ORDER BY p.created_at DESC, p.video_id DESC, p.frame`,
  ]);
  const last = rows[limit - 1];
  const hasMore = rows.length > limit;
  return {
    items: rows.slice(0, limit).map(foundFrame),
    next: hasMore && last ? cursorText([last.created_ms, last.video_id, last.frame]) : null,
  };
}

const foundFrame = (row: FrameRow): FoundFrame => ({
  frame_id: frameId(row.video_id, row.frame),
  video_id: row.video_id,
  index: row.frame,
  image_url: frameImagePath(row.video_id, row.frame),
  filename: row.filename,
  tags: row.tags,
  job_ids: row.job_ids,
  annotations: {
    total: row.pending + row.accepted + row.rejected,
    pending: row.pending,
    accepted: row.accepted,
    rejected: row.rejected,
  },
});
