// What a dataset is made of, written down for the node that makes it: frames with their sides and
// annotations. A job may have more annotations than fit into memory, so they are read in pages and
// written as they come.

import { createHash, type Hash } from "node:crypto";
import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { ExportManifest } from "../../../../shared/tasks/export-manifest.ts";
import type { ObjectSource } from "../../../../shared/tasks/tasks.ts";
import type { DatasetInclude } from "../../../../shared/wire/dataset-report.ts";
import type { Database } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";
import { writeObject } from "../../media/uploads/object-writer.ts";
import { assertReady, readPts } from "../../media/videos/frames.ts";
import { findVideos } from "../../media/videos/videos.ts";
import { source } from "../../tasks/objects.ts";
import { addedFrames, type JobRow, knownFrames } from "../jobs/jobs.ts";
import { repeated, shown } from "../review/annotations.ts";
import { fixedSides, importedSides } from "./imported-sides.ts";
import { groupByVideo, type HashedVideo, type LookAlikes, lookAlikes } from "./look-alikes.ts";
import {
  borderOf,
  countNearOtherSide,
  type Side,
  type SideSpan,
  type SplitFrames,
  sidesOf,
  splitFrames,
} from "./split.ts";

export interface ManifestOptions {
  valShare: number;
  seed: number;
  /**
   * Which annotations: all that are shown but for the rejected, or the accepted alone; then frames
   * with a pending one are no part of it.
   */
  include: DatasetInclude;
  /** Frames without annotations are background examples. */
  background: boolean;
  /** With annotations that repeat a better one of the same object. */
  duplicates: boolean;
  /** Leaves out the training frames at the border of a single video's split. */
  splitGap: boolean;
}

/** Annotations read at once; with their masks some megabytes. */
export const ANNOTATIONS_PER_PAGE = 4_000;
/** Bytes of a manifest that a node takes. */
const MANIFEST_BYTES_MAX = 512 * 1024 * 1024;

export interface ManifestVideo extends HashedVideo {
  filename: string;
  still: boolean;
  storage_key: string;
  bytes: number;
  width: number;
  height: number;
  /** First and last frame that the job is over, whatever is labeled. */
  first: number;
  last: number;
  frames: number[];
  /** Frames with annotations of the dataset, and how many. */
  counts: Map<number, number>;
  /** Frames that are no part of the dataset, as an annotation on them is pending. */
  pending: number;
}

/** The same as it is read: the frames that have annotations beside how many. */
interface ManifestVideoRow
  extends Omit<ManifestVideo, "counts" | "pending">,
    Record<string, unknown> {
  annotated: number[];
  annotations: number[];
  pending: number[];
}

/** Counts of a job's dataset, with what the gap of its split leaves out. */
export interface PlanCounts {
  totalFrames: number;
  annotatedFrames: number;
  annotations: number;
  leftOutFrames: number;
  leftOutAnnotatedFrames: number;
  pendingFrames: number;
}

/** What a job's dataset consists of, before it is written down. */
export interface DatasetPlan {
  name: string;
  counts: PlanCounts;
  /** In index order. */
  classes: string[];
  splits: readonly VideoSplit[];
  /** The condition on an annotation `a` to be part of it. */
  wanted: SQL;
  numbers: number[];
  alike: LookAlikes;
}

const WITHOUT_FRAMES: SplitFrames = { sides: new Map(), border: new Set() };

/** A job's classes, in the order of their numbers. */
export async function classesOf(
  database: Database,
  { id }: Pick<JobRow, "id">,
): Promise<{ number: number; name: string }[]> {
  const { rows } = await database.execute<{ number: number; name: string }>(sql`
    SELECT number, name FROM job_class WHERE job_id = ${id}::uuid ORDER BY number`);
  return rows;
}

/** The condition on an annotation `a` to be part of a job's dataset, and of one of the classes. */
export const wantedOf = (
  job: JobRow,
  numbers: readonly number[],
  options: Pick<ManifestOptions, "include" | "duplicates">,
): SQL => sql`a.job_id = ${job.id}::uuid AND ${shown(job.threshold)} AND ${
  options.include === "accepted" ? sql`a.review = 'accepted'` : sql`a.review <> 'rejected'`
} AND ${options.duplicates ? sql`true` : sql`NOT ${repeated(job.threshold)}`}
    AND a.class_number IN (SELECT n::int FROM jsonb_array_elements_text(
    ${JSON.stringify(numbers)}::jsonb) n)`;

/** Looks up what a job's dataset consists of, and puts its frames on their sides. */
export async function planDataset(
  database: Database,
  job: JobRow,
  options: ManifestOptions,
): Promise<DatasetPlan> {
  const classes = await classesOf(database, job);
  const numbers = classes.map(({ number }) => number);
  const wanted = wantedOf(job, numbers, options);
  const videos = await listVideos(database, job, options);
  const alike = lookAlikes(videos.filter(({ frames }) => frames.length > 0));
  const groupOf = groupByVideo(alike);
  const units = videos.map(({ id, frames }) => ({ videoId: id, frames, group: groupOf.get(id) }));
  const held = fixedSides(units, await importedSides(database, [job.id]));
  const split = splitFrames(
    units.filter(({ videoId }) => !held.spans.has(videoId)),
    // An import that brought validation frames along leaves nothing to draw.
    held.hasVal ? { ...options, valShare: 0 } : options,
  );
  const splits = videos.map((video): VideoSplit => {
    const own = held.spans.get(video.id);
    const { sides, border } = own
      ? bySpans(video.frames, own)
      : (split.get(video.id) ?? WITHOUT_FRAMES);
    const kept = options.splitGap ? [...sides].filter(([frame]) => !border.has(frame)) : sides;
    return { video, sides: new Map(kept) };
  });
  const names = classes.map(({ name }) => name);
  const counts = countsOf(splits);
  return { name: job.name, counts, classes: names, splits, wanted, numbers, alike };
}

/** The frames of a video whose sides are known by spans. */
function bySpans(frames: readonly number[], spans: readonly SideSpan[]): SplitFrames {
  const sides = sidesOf(frames, spans);
  return { sides, border: borderOf(sides) };
}

/** Counts frames and annotations of videos with their sides. */
export function countsOf(splits: readonly VideoSplit[]): PlanCounts {
  const sum = (count: (one: VideoSplit) => number) =>
    splits.reduce((total, one) => total + count(one), 0);
  return {
    totalFrames: sum(({ video }) => video.frames.length),
    annotatedFrames: sum(({ video }) => video.counts.size),
    annotations: sum(({ video }) =>
      video.counts.values().reduce((total, count) => total + count, 0),
    ),
    leftOutFrames: sum(({ video, sides }) => video.frames.length - sides.size),
    leftOutAnnotatedFrames: sum(
      ({ video, sides }) => [...video.counts.keys()].filter((frame) => !sides.has(frame)).length,
    ),
    pendingFrames: sum(({ video }) => video.pending),
  };
}

export interface WrittenManifest {
  manifest: ObjectSource;
  /** SHA-256 of the manifest's bytes, in hex. */
  sha256: string;
  /** The objects that it names. */
  videos: ObjectSource[];
}

/**
 * Writes the manifest of a job's dataset under a key; returns it with the dataset's counts, and
 * that of its frames within a second of a frame on the other side of the split.
 */
export async function writeManifest(
  parts: Pick<Parts, "database" | "bucket">,
  job: JobRow,
  { key, options }: { key: string; options: ManifestOptions },
): Promise<WrittenManifest & { counts: PlanCounts; borderFrames: number }> {
  const plan = await planDataset(parts.database, job, options);
  if (plan.classes.length === 0) {
    throw new Failure("state_conflict", "the job has no classes to export");
  }
  if (plan.splits.every(({ video }) => video.frames.length === 0)) {
    const why =
      plan.counts.pendingFrames > 0
        ? "each frame has an annotation that is neither accepted nor rejected"
        : "no frame has an annotation";
    throw new Failure("state_conflict", `there is nothing to export: ${why}`);
  }
  const borderFrames = await countBorder(parts, job, plan.splits);
  return { ...(await writePlan(parts, plan, key)), counts: plan.counts, borderFrames };
}

/** Frames within a second of a frame of the same video on the other side, by their true times. */
async function countBorder(
  parts: Pick<Parts, "database" | "bucket">,
  { workspaceId }: JobRow,
  splits: readonly VideoSplit[],
): Promise<number> {
  const onBoth = splits.filter(({ sides }) => new Set(sides.values()).size > 1);
  if (onBoth.length === 0) return 0;
  const ids = onBoth.map(({ video }) => video.id);
  const videos = await findVideos(parts.database, [workspaceId], ids);
  let frames = 0;
  for (const { video, sides } of onBoth) {
    const row = videos.find(({ videoId }) => videoId === video.id);
    if (!row) continue;
    assertReady(row);
    const [numerator, denominator] = row.timeBase;
    frames += countNearOtherSide(sides, await readPts(parts, row), denominator / numerator);
  }
  return frames;
}

/** Writes a plan down, with the annotations as they are now. */
export function writePlan(
  parts: Pick<Parts, "database" | "bucket">,
  { name, classes, counts, splits, numbers, wanted }: DatasetPlan,
  key: string,
): Promise<WrittenManifest> {
  const indexed = numbers.map((number, index) => ({ number, index }));
  const annotations = annotationsOf(parts.database, splits, { classes: indexed, wanted });
  const head = { name, classes, left_out_frames: counts.leftOutFrames };
  return writeSplits(parts, { head, splits, annotations }, key);
}

/** Writes the manifest of frames on their sides, with the annotations that are read for each. */
export async function writeSplits(
  { bucket }: Pick<Parts, "bucket">,
  { head, splits, annotations }: SplitText,
  key: string,
): Promise<WrittenManifest> {
  const hash = createHash("sha256");
  const chunks = hashed(manifestText(head, splits, annotations), hash);
  const { bytes } = await writeObject(bucket, chunks, {
    key,
    bytesMax: MANIFEST_BYTES_MAX,
    headBytes: 1,
    typeOf: () => "application/json",
  });
  const sources = new Map(
    splits.map(({ video }) => [video.storage_key, source(video.storage_key, video.bytes)]),
  );
  return {
    manifest: source(key, bytes),
    sha256: hash.digest("hex"),
    videos: [...sources.values()],
  };
}

/** The chunks as they come, each added to the hash. */
async function* hashed(chunks: AsyncIterable<Uint8Array>, hash: Hash) {
  for await (const chunk of chunks) {
    hash.update(chunk);
    yield chunk;
  }
}

/**
 * The condition on a row of `frame_count`: somebody has still to judge an annotation. One that only
 * repeats a better one is none of them.
 */
export const IS_PENDING = sql`pending > repeated`;

/** The job's videos with the frames that are part of its dataset. */
export async function listVideos(
  database: Database,
  job: JobRow,
  {
    include,
    duplicates,
    background,
  }: Pick<ManifestOptions, "include" | "duplicates" | "background">,
): Promise<ManifestVideo[]> {
  const isAccepted = include === "accepted";
  const repeats = isAccepted || duplicates ? sql`` : sql`- repeated`;
  const count = isAccepted ? sql`accepted` : sql`pending + accepted`;
  // A frame that nobody looked at is not known to be background.
  const frames =
    job.state === "completed"
      ? sql`${knownFrames(job)} UNION ALL (${addedFrames(job)})`
      : knownFrames(job);
  // Two lists of numbers for a video: a pair for each frame takes twice as long to be made.
  const { rows } = await database.execute<ManifestVideoRow>(sql`
    WITH labeled AS (
      SELECT video_id, array_to_json(array_agg(frame ORDER BY frame)) AS frames
        FROM (${frames}) f GROUP BY video_id)
    SELECT v.id, v.filename, v.content_type LIKE 'image/%' AS still, v.frame_count, v.probe->>'pixels_sha256' AS pixels,
      v.probe->>'dhash' AS look, v.storage_key, v.bytes::float8 AS bytes, v.width, v.height,
      coalesce(j.frames[1], 0) AS first, coalesce(j.frames[cardinality(j.frames)], 0) AS last,
      coalesce((SELECT l.frames FROM labeled l WHERE l.video_id = v.id), '[]') AS frames,
      coalesce(array_to_json(c.annotated), '[]') AS annotated,
      coalesce(array_to_json(c.annotations), '[]') AS annotations,
      coalesce((SELECT json_agg(frame_index) FROM frame_count
        WHERE ${isAccepted} AND job_id = ${job.id}::uuid AND video_id = v.id
          AND ${IS_PENDING}), '[]') AS pending
      FROM job_video j JOIN video v ON v.id = j.video_id
      CROSS JOIN LATERAL (
        SELECT array_agg(frame_index) AS annotated, array_agg(n) AS annotations
          FROM (SELECT frame_index, ${count} ${repeats} AS n FROM frame_count
                 WHERE job_id = ${job.id}::uuid AND video_id = v.id ORDER BY frame_index) f
         WHERE n > 0) c
     WHERE j.job_id = ${job.id}::uuid ORDER BY j.position`);
  return rows.map(({ annotated, annotations, pending, ...video }) => {
    const undecided = new Set(pending);
    const pairs = annotated.map((frame, index) => [frame, annotations[index] ?? 0] as const);
    const counts = new Map(pairs.filter(([frame]) => !undecided.has(frame)));
    const decided = video.frames.filter((frame) => !undecided.has(frame));
    return {
      ...video,
      frames: background ? decided : decided.filter((frame) => counts.has(frame)),
      counts,
      pending: video.frames.length - decided.length,
    };
  });
}

/** A video with the side of each of its frames that the dataset holds. */
export interface VideoSplit {
  video: ManifestVideo;
  sides: ReadonlyMap<number, Side>;
}

/** What a manifest says, but for the annotations, which are read as it is written. */
export interface SplitText {
  head: Omit<ExportManifest, "videos">;
  splits: readonly VideoSplit[];
  annotations: AnnotationsOf;
}

/** The annotations of a frame as a JSON list of the manifest. */
export type AnnotationsOf = (videoId: string, frame: number) => Promise<string>;

/** The manifest, an `ExportManifest` as JSON: each frame, and the head of each video, a line. */
async function* manifestText(
  head: Omit<ExportManifest, "videos">,
  splits: readonly VideoSplit[],
  annotations: AnnotationsOf,
): AsyncGenerator<Uint8Array> {
  const encoder = new TextEncoder();
  const opened = (fields: object) => JSON.stringify(fields).slice(0, -1);
  yield encoder.encode(`${opened(head)},"videos":[`);
  for (const [videoIndex, { video, sides }] of splits.entries()) {
    const { id: video_id, filename, still, storage_key: key, width, height } = video;
    const fields = { video_id, filename, still, key, width, height };
    yield encoder.encode(`\n${videoIndex === 0 ? "" : ","}${opened(fields)},"frames":[`);
    let comma = "";
    for (const [index, split] of sides) {
      const list = await annotations(video_id, index);
      yield encoder.encode(`\n${comma}${opened({ index, split })},"annotations":${list}}`);
      comma = ",";
    }
    yield encoder.encode("\n]}");
  }
  yield encoder.encode("\n]}");
}

interface Page {
  annotations: number;
  spans: { video: string; low: number; high: number }[];
}

/** Which annotations `a` are read, with the index in the manifest of each class's number. */
export interface WantedAnnotations {
  classes: readonly { number: number; index: number }[];
  wanted: SQL;
  /** Annotations that are read at once. */
  perPage?: number;
}

/** Reads the annotations of frames as JSON lists; frames are asked for in the order of `splits`. */
export function annotationsOf(
  database: Database,
  splits: readonly VideoSplit[],
  asked: WantedAnnotations,
): AnnotationsOf {
  const { perPage = ANNOTATIONS_PER_PAGE } = asked;
  const pages: Page[] = [];
  const pageOf = new Map<string, number>();
  for (const { video, sides } of splits) {
    for (const [frame, count] of video.counts) {
      if (!sides.has(frame)) continue;
      let page = pages.at(-1);
      if (!page || page.annotations + count > perPage) {
        page = { annotations: 0, spans: [] };
        pages.push(page);
      }
      page.annotations += count;
      const span = page.spans.at(-1);
      if (span?.video === video.id) span.high = frame;
      else page.spans.push({ video: video.id, low: frame, high: frame });
      pageOf.set(`${video.id}.${frame}`, pages.length - 1);
    }
  }
  let held: { page: number; lists: Map<string, string> } | null = null;
  return async (videoId, frame) => {
    const frameKey = `${videoId}.${frame}`;
    const page = pageOf.get(frameKey);
    if (page === undefined) return "[]";
    if (held?.page !== page) {
      held = null;
      const { spans } = pages[page] as Page;
      held = { page, lists: await readPage(database, spans, asked) };
    }
    return held.lists.get(frameKey) ?? "[]";
  };
}

async function readPage(
  database: Database,
  spans: Page["spans"],
  { classes, wanted }: WantedAnnotations,
): Promise<Map<string, string>> {
  const { rows } = await database.execute<{ frame_key: string; list: string }>(sql`
    WITH class AS (
      SELECT * FROM jsonb_to_recordset(${JSON.stringify(classes)}::jsonb) x(number int, index int))
    SELECT a.video_id || '.' || a.frame_index AS frame_key, json_agg(json_build_object('id', a.id,
        'class_index', k.index, 'bbox', json_build_array(a.x1, a.y1, a.x2, a.y2),
        'polygon', a.polygon, 'track_id', a.track_id) ORDER BY a.id)::text AS list
      FROM jsonb_to_recordset(${JSON.stringify(spans)}::jsonb) s(video uuid, low int, high int)
      JOIN annotation a ON a.video_id = s.video AND a.frame_index BETWEEN s.low AND s.high
      JOIN class k ON k.number = a.class_number
     WHERE ${wanted} GROUP BY a.video_id, a.frame_index`);
  return new Map(rows.map(({ frame_key, list }) => [frame_key, list]));
}
