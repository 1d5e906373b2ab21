// What a dataset holds now: the frames and annotations of its jobs, put together under one list of
// classes. A frame that several jobs labeled has the annotations of all of them; where two of them
// label the same class on it, boxes of one object would come twice, and the dataset is refused.

import { sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { Database } from "../../../http/database.ts";
import { foldedName } from "../../base/lists.ts";
import { groupByVideo, lookAlikes } from "../datasets/look-alikes.ts";
import {
  ANNOTATIONS_PER_PAGE,
  type AnnotationsOf,
  annotationsOf,
  classesOf,
  listVideos,
  type ManifestVideo,
  type VideoSplit,
  type WantedAnnotations,
  wantedOf,
} from "../datasets/manifest.ts";
import { findJob, type JobRow } from "../jobs/jobs.ts";
import { FRAMES_MAX } from "../jobs/new-jobs.ts";
import { repeated } from "../review/annotations.ts";
import type { DatasetRow, Member } from "./dataset-rows.ts";
import type { DrawnVideo } from "./sides.ts";

/** A job's part of a dataset. */
interface Part {
  job: JobRow;
  videos: ManifestVideo[];
  asked: WantedAnnotations;
}

/** The frames of a dataset's jobs together. */
export interface MergedDataset {
  /** The dataset's classes, with new ones at the end. */
  classes: string[];
  /** In the order of their ids, each once, with the frames and counts of all jobs. */
  videos: ManifestVideo[];
  /** The same, as they are split. */
  units: DrawnVideo[];
  /** Reads the annotations of frames, which are asked for in the order of `splits`. */
  annotations(splits: readonly VideoSplit[]): AnnotationsOf;
}

/**
 * Looks up what the jobs of a dataset hold together. Fails with `state_conflict` where there is no
 * job, where one has not ended or was not finished, and where two label a class on one frame.
 */
export async function mergeJobs(database: Database, dataset: DatasetRow): Promise<MergedDataset> {
  if (dataset.members.length === 0) throw new Failure("state_conflict", "the dataset has no job");
  const classes = [...dataset.classes];
  const parts: Part[] = [];
  for (const member of dataset.members) {
    const job = await findJob(database, [dataset.workspaceId], member.job_id);
    if (job.state !== "completed") {
      const detail = `the job ${JSON.stringify(job.name)} is ${job.state}; only a finished one counts`;
      throw new Failure("state_conflict", detail);
    }
    parts.push(await partOf(database, { dataset, member, job, classes }));
  }
  assertDisjoint(parts, classes);
  const videos = mergedVideos(parts);
  if (videos.reduce((sum, { frames }) => sum + frames.length, 0) > FRAMES_MAX) {
    throw new Failure("state_conflict", `the dataset has over ${FRAMES_MAX} frames`);
  }
  const groupOf = groupByVideo(lookAlikes(videos.filter(({ frames }) => frames.length > 0)));
  return {
    classes,
    videos,
    units: videos.map(({ id, frames, first, last }) => ({
      videoId: id,
      frames,
      group: groupOf.get(id),
      first,
      last,
    })),
    annotations: (splits) => {
      // Each reader holds a page, of all of them as many annotations as one job's.
      const perPage = Math.ceil(ANNOTATIONS_PER_PAGE / parts.length);
      const readers = parts.map((part) =>
        annotationsOf(database, ownSplits(splits, part), { ...part.asked, perPage }),
      );
      return async (videoId, frame) => {
        const lists: string[] = [];
        for (const reader of readers) lists.push(await reader(videoId, frame));
        return `[${lists
          .map((list) => list.slice(1, -1).trim())
          .filter(Boolean)
          .join(",")}]`;
      };
    },
  };
}

/** A job's videos and classes; its classes that the dataset lacks are appended to `classes`. */
async function partOf(
  database: Database,
  {
    dataset: { include },
    member,
    job,
    classes,
  }: { dataset: DatasetRow; member: Member; job: JobRow; classes: string[] },
): Promise<Part> {
  const own = await classesOf(database, job);
  const gone = [...Object.keys(member.classes), ...member.without].find(
    (name) => !own.some((one) => one.name === name),
  );
  if (gone !== undefined) {
    const detail = `the job ${JSON.stringify(job.name)} has no class ${JSON.stringify(gone)} any more`;
    throw new Failure("state_conflict", `${detail}; map its classes anew`);
  }
  const kept = own.filter(({ name }) => !member.without.includes(name));
  const indexed = kept.map(({ number, name }) => {
    const target = member.classes[name] ?? name;
    const known = classes.find((one) => foldedName(one) === foldedName(target));
    if (known === undefined) classes.push(target);
    return { number, index: classes.indexOf(known ?? target) };
  });
  const numbers = kept.map(({ number }) => number);
  const options = { include, duplicates: false, background: true };
  const isWhole = kept.length === own.length;
  // What repeats an annotation of a class that is left out repeats nothing here.
  const better = sql`EXISTS (SELECT FROM annotation b WHERE b.id = a.duplicate_of
    AND b.class_number IN (SELECT n::int FROM jsonb_array_elements_text(
      ${JSON.stringify(numbers)}::jsonb) n))`;
  const wanted = isWhole
    ? wantedOf(job, numbers, options)
    : sql`${wantedOf(job, numbers, { ...options, duplicates: true })}
      AND NOT (${repeated(job.threshold)} AND ${better})`;
  const videos = await listVideos(database, job, options);
  const asked = { classes: indexed, wanted };
  if (isWhole) return { job, videos, asked };
  // Counts are kept of all classes together, so those of some are counted.
  const { rows } = await database.execute<{ id: string; frames: number[]; counts: number[] }>(sql`
    SELECT video_id::text AS id, json_agg(frame_index ORDER BY frame_index) AS frames,
      json_agg(n ORDER BY frame_index) AS counts FROM (
        SELECT a.video_id, a.frame_index, count(*)::int AS n FROM annotation a
         WHERE ${wanted} GROUP BY 1, 2) f GROUP BY 1`);
  const byVideo = new Map(rows.map((row) => [row.id, row]));
  const counted = videos.map((video) => {
    const { frames = [], counts = [] } = byVideo.get(video.id) ?? {};
    const inside = new Set(video.frames);
    const pairs = frames.map((frame, index) => [frame, counts[index] ?? 0] as const);
    return { ...video, counts: new Map(pairs.filter(([frame]) => inside.has(frame))) };
  });
  return { job, videos: counted, asked };
}

/** Fails with `state_conflict` where two jobs label one class on a frame that both have. */
function assertDisjoint(parts: readonly Part[], classes: readonly string[]): void {
  const byVideo = Map.groupBy(
    parts.flatMap((part) => part.videos.map((video) => ({ part, video }))),
    ({ video }) => video.id,
  );
  for (const shared of byVideo.values()) {
    for (const [position, one] of shared.entries()) {
      for (const other of shared.slice(position + 1)) {
        const indexes = new Set(one.part.asked.classes.map(({ index }) => index));
        const both = other.part.asked.classes.find(({ index }) => indexes.has(index));
        const frames = new Set(one.video.frames);
        if (!both || !other.video.frames.some((frame) => frames.has(frame))) continue;
        const [name, first, second] = [classes[both.index], one.part.job.name, other.part.job.name];
        const detail =
          `${one.video.filename}: ${JSON.stringify(name)} is labeled on it in the jobs ` +
          `${JSON.stringify(first)} and ${JSON.stringify(second)}; leave the class out of one of them`;
        throw new Failure("state_conflict", detail);
      }
    }
  }
}

function mergedVideos(parts: readonly Part[]): ManifestVideo[] {
  const byId = Map.groupBy(
    parts.flatMap(({ videos }) => videos),
    ({ id }) => id,
  );
  const merged = [...byId.values()].map((same): ManifestVideo => {
    const [first] = same as [ManifestVideo];
    const counts = new Map<number, number>();
    for (const video of same) {
      for (const [frame, n] of video.counts) counts.set(frame, (counts.get(frame) ?? 0) + n);
    }
    const frames = [...new Set(same.flatMap((video) => video.frames))];
    const pending = same.reduce((sum, video) => sum + video.pending, 0);
    return {
      ...first,
      frames: frames.toSorted((one, other) => one - other),
      counts,
      pending,
      first: Math.min(...same.map((video) => video.first)),
      last: Math.max(...same.map((video) => video.last)),
    };
  });
  return merged.toSorted((one, other) => (one.id < other.id ? -1 : 1));
}

/** What of the splits a job has annotations on, in their order. */
const ownSplits = (splits: readonly VideoSplit[], { videos }: Part): VideoSplit[] => {
  const own = new Map(videos.map((video) => [video.id, video]));
  return splits.flatMap(({ video, sides }) => {
    const found = own.get(video.id);
    // The frames of a video are asked for in their order.
    const counts = found && new Map([...found.counts].sort(([one], [other]) => one - other));
    return found && counts ? [{ video: { ...found, counts }, sides }] : [];
  });
};
