// What a run learns from: a job's annotations as they are when it starts, written down once. Later
// edits of the job, and its end, change nothing of it.

import { sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { ObjectSource } from "../../../../shared/tasks/tasks.ts";
import type { DatasetReport } from "../../../../shared/wire/dataset-report.ts";
import type { TrainSettings } from "../../../../shared/wire/training.ts";
import type { Database } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";
import {
  type DatasetPlan,
  IS_PENDING,
  planDataset,
  writePlan,
} from "../../labeling/datasets/manifest.ts";
import { qualityReport, SMALL_AREA } from "../../labeling/datasets/quality.ts";
import { isLive, type JobRow } from "../../labeling/jobs/jobs.ts";
import type { DatasetRow } from "../../labeling/versions/dataset-rows.ts";
import {
  findVersion,
  makeVersion,
  presentObjects,
  type VersionRow,
} from "../../labeling/versions/versions.ts";

/** A dataset as its run's row keeps it. */
export interface RunDataset {
  manifest: Pick<ObjectSource, "key" | "bytes">;
  sha256: string;
  /** The objects that it is made of, and the videos whose they are. */
  sources: Pick<ObjectSource, "key" | "bytes">[];
  videos: string[];
  train: number;
  val: number;
  /** Frames that the gap of the split left out. */
  leftOut: { frames: number; annotatedFrames: number };
}

type Split = Pick<TrainSettings, "seed" | "val_share" | "include">;

const planOf = (database: Database, job: JobRow, { val_share: valShare, ...split }: Split) =>
  planDataset(database, job, {
    seed: split.seed,
    valShare,
    include: split.include,
    background: true,
    duplicates: false,
    splitGap: true,
  });

/** Why no run may learn from a job in its state, in a sentence for its owner; null when one may. */
export function unfinishedReason(job: Pick<JobRow, "state">): string | null {
  if (job.state === "completed") return null;
  const next = isLive(job)
    ? "wait for its end"
    : "resume it, or duplicate it: the copy is a finished job of what was labeled";
  return `the job is ${job.state}; only a finished one is trained on: ${next}`;
}

/** Why a job cannot be trained on as it stands, in a sentence for its owner; null when it can. */
function refusalOf(plan: DatasetPlan): string | null {
  const annotated = { train: 0, val: 0, test: 0 };
  for (const { video, sides } of plan.splits) {
    for (const [frame, side] of sides) if (video.counts.has(frame)) annotated[side]++;
  }
  if (plan.splits.every(({ video }) => video.counts.size === 0)) {
    return "the job has no annotation to learn from: label frames, or lower its threshold";
  }
  const bare = (["train", "val"] as const).find((side) => annotated[side] === 0);
  if (!bare) return null;
  const purpose = bare === "train" ? "learn from" : "measure on";
  return (
    `the split leaves no annotated frame to ${purpose}: ` +
    "annotate more frames, or give another seed or val_share; sides that came with an import " +
    "are changed in a dataset"
  );
}

const noMasks = () =>
  new Failure(
    "invalid_request",
    "task: no frame to train on has a mask; label with masks, or train a detection",
  );

/** Whether an image to train on has a mask: without one no run can learn masks. */
async function hasMasks(database: Database, plan: DatasetPlan): Promise<boolean> {
  const { rows } = await database.execute<{ video: string; frames: number[] }>(sql`
    SELECT a.video_id::text AS video, array_agg(DISTINCT a.frame_index) AS frames
      FROM annotation a WHERE ${plan.wanted} AND a.polygon IS NOT NULL GROUP BY a.video_id`);
  const sides = new Map(plan.splits.map((split) => [split.video.id, split.sides]));
  return rows.some(({ video, frames }) =>
    frames.some((frame) => sides.get(video)?.get(frame) === "train"),
  );
}

/** What a run learns from: a finished job, or a version of a dataset. */
export type RunData =
  | { job: JobRow; projectId: string; workspaceId: string }
  | { version: VersionRow; projectId: string; workspaceId: string };

/** A job to learn from; fails with `state_conflict` for one that is not finished. */
export function jobData(job: JobRow): RunData {
  const unfinished = unfinishedReason(job);
  if (unfinished) throw new Failure("state_conflict", unfinished);
  return { job, projectId: job.projectId, workspaceId: job.workspaceId };
}

/** The version of a dataset to learn from; what the dataset holds now where none is named. */
export async function versionFor(
  parts: Parts,
  dataset: DatasetRow,
  { number, createdBy }: { number: number | undefined; createdBy: string },
): Promise<RunData> {
  const version =
    number === undefined
      ? (await makeVersion(parts, dataset, { note: "for a training run", createdBy })).version
      : await findVersion(parts.database, dataset, number);
  return { version, projectId: dataset.projectId, workspaceId: dataset.workspaceId };
}

/**
 * Copies the manifest of a version under a key. Fails with `invalid_request` when there is nothing
 * to learn from, or nothing to measure on, and with `state_conflict` when videos were deleted.
 */
export async function copyVersion(
  { database, bucket }: Pick<Parts, "database" | "bucket">,
  version: VersionRow,
  { key, task }: { key: string } & Pick<TrainSettings, "task">,
): Promise<{ dataset: RunDataset; classes: string[] }> {
  const { counts, sha256, classes } = version;
  const bare = (["train", "val"] as const).find((side) => counts[side].annotated_frames === 0);
  if (bare) {
    const detail = `the version has no annotated frame on the side ${bare}`;
    throw new Failure("invalid_request", `dataset_id: ${detail}; set the side of some videos`);
  }
  if (task === "segmentation" && counts.train.masks === 0) throw noMasks();
  const { sources, videos } = await presentObjects(database, version);
  const held = await bucket.get(version.storageKey);
  if (!held) throw new Failure("state_conflict", "the dataset was deleted meanwhile");
  await bucket.put(key, held.body, { httpMetadata: { contentType: "application/json" } });
  const dataset = {
    manifest: { key, bytes: version.bytes },
    sha256,
    sources,
    videos,
    train: counts.train.frames,
    val: counts.val.frames,
    leftOut: {
      frames: counts.left_out_frames,
      annotatedFrames: counts.left_out_annotated_frames,
    },
  };
  return { dataset, classes };
}

/**
 * Writes a job's dataset down under a key. Fails with `invalid_request` when there is nothing to
 * learn from, or nothing to measure on.
 */
export async function writeDataset(
  parts: Pick<Parts, "database" | "bucket">,
  job: JobRow,
  { key, split }: { key: string; split: Split & Pick<TrainSettings, "task"> },
): Promise<{ dataset: RunDataset; classes: string[] }> {
  const plan = await planOf(parts.database, job, split);
  const refusal = refusalOf(plan);
  if (refusal) throw new Failure("invalid_request", `job_id: ${refusal}`);
  if (split.task === "segmentation" && !(await hasMasks(parts.database, plan))) {
    throw noMasks();
  }
  // A video none of whose frames is used is not fetched either.
  const splits = plan.splits.filter(({ sides }) => sides.size > 0);
  const { manifest, sha256, videos } = await writePlan(parts, { ...plan, splits }, key);
  const withoutAddress = ({ key: objectKey, bytes }: ObjectSource) => ({ key: objectKey, bytes });
  const sides = splits.flatMap((one) => [...one.sides.values()]);
  const train = sides.filter((side) => side === "train").length;
  const dataset = {
    manifest: withoutAddress(manifest),
    sha256,
    sources: videos.map(withoutAddress),
    videos: splits.map(({ video }) => video.id),
    train,
    val: sides.filter((side) => side === "val").length,
    leftOut: {
      frames: plan.counts.leftOutFrames,
      annotatedFrames: plan.counts.leftOutAnnotatedFrames,
    },
  };
  return { dataset, classes: plan.classes };
}

interface CountedRow extends Record<string, unknown> {
  small: number;
  classes: { number: number; count: number; frames: number }[];
}

/**
 * The quality report of a job's dataset. It counts every frame of the dataset; frames that the
 * split of a run leaves out are counted apart.
 */
export async function reportOf(
  database: Database,
  job: JobRow,
  split: Split,
): Promise<DatasetReport> {
  const plan = await planOf(database, job, split);
  const [counted, doubtful] = await Promise.all([
    split.include === "accepted"
      ? countAccepted(database, job, plan)
      : countNotRejected(database, job),
    countDoubtful(database, job, plan, split),
  ]);
  const byNumber = new Map(counted.classes.map((one) => [one.number, one]));
  const classes = plan.classes.map((name, index) => {
    const { count = 0, frames = 0 } = byNumber.get(plan.numbers[index] as number) ?? {};
    return { class: name, count, frames };
  });
  const refusal = unfinishedReason(job) ?? refusalOf(plan);
  const dataset = { jobId: job.id, include: split.include };
  const names = new Map(plan.splits.map(({ video }) => [video.id, video.filename]));
  const alike = plan.alike.groups.map((ids) => ids.map((id) => names.get(id) ?? id));
  const images = { alike, unsplit: plan.alike.unsplit };
  const counts = { ...plan.counts, ...doubtful, images, small: counted.small, classes };
  return qualityReport(dataset, counts, refusal);
}

/** Annotations that are looked at for likely mistakes; all of a million would take seconds. */
const DOUBTED_MAX = 100_000;

/** Boxes that are likely mistakes: of a pixel's width or height, and the same in two classes. */
async function countDoubtful(
  database: Database,
  job: JobRow,
  { wanted }: DatasetPlan,
  { include }: Pick<Split, "include">,
): Promise<{ tiny: number; inTwoClasses: number }> {
  const decided = include === "accepted" ? sql`AND ${isDecided(job)}` : sql``;
  const { rows } = await database.execute<{ tiny: number; inTwoClasses: number }>(sql`
    SELECT coalesce(sum(tiny), 0)::int AS tiny,
      (count(*) FILTER (WHERE first <> last))::int AS "inTwoClasses" FROM (
        SELECT count(*) FILTER (WHERE least(x2 - x1, y2 - y1) <= 1) AS tiny,
          min(class_number) AS first, max(class_number) AS last
          FROM (SELECT a.* FROM annotation a WHERE ${wanted} ${decided}
                 LIMIT ${DOUBTED_MAX}::int) a
         GROUP BY video_id, frame_index, round(x1), round(y1), round(x2), round(y2)) box`);
  return rows[0] ?? { tiny: 0, inTwoClasses: 0 };
}

/** The condition on an annotation `a` that nothing on its frame is still to be judged. */
const isDecided = (job: JobRow) => sql`NOT EXISTS (
  SELECT FROM frame_count f WHERE f.job_id = ${job.id}::uuid AND f.video_id = a.video_id
     AND f.frame_index = a.frame_index AND ${IS_PENDING})`;

/** What a job has of each class, by the counts that are kept. */
async function countNotRejected(database: Database, job: JobRow): Promise<CountedRow> {
  const own = sql`job_id = ${job.id}::uuid AND review <> 'rejected' AND NOT repeated`;
  const { rows } = await database.execute<CountedRow>(sql`
    SELECT (SELECT coalesce(sum(annotations), 0) FROM area_count
        WHERE ${own} AND bin < area_bin(${SMALL_AREA}::float8))::int AS small,
      (SELECT coalesce(json_agg(json_build_object('number', number, 'count', n,
          'frames', coalesce(frames, 0))), '[]') FROM (
          SELECT class_number AS number, sum(annotations)::int AS n FROM annotation_count
           WHERE ${own} AND shown GROUP BY class_number) k
        LEFT JOIN (
          -- Many frames have the same classes.
          SELECT number, sum(frames)::int AS frames FROM (
              SELECT classes, count(*) AS frames FROM frame_count
               WHERE job_id = ${job.id}::uuid GROUP BY classes) k, unnest(classes) number
           GROUP BY number) f USING (number)) AS classes`);
  return rows[0] as CountedRow;
}

/** What a job's dataset of accepted annotations has of each class, by the annotations. */
async function countAccepted(
  database: Database,
  job: JobRow,
  { wanted }: DatasetPlan,
): Promise<CountedRow> {
  const { rows } = await database.execute<CountedRow>(sql`
    WITH own AS (
      SELECT a.class_number AS number, count(*)::int AS n,
        count(DISTINCT (a.video_id, a.frame_index))::int AS frames,
        count(*) FILTER (WHERE area_bin(
            (a.x2 - a.x1)::float8 * (a.y2 - a.y1) / (v.width::float8 * v.height))
          < area_bin(${SMALL_AREA}::float8))::int AS small
        FROM annotation a JOIN video v ON v.id = a.video_id
       WHERE ${wanted} AND ${isDecided(job)} GROUP BY 1)
    SELECT coalesce(sum(small), 0)::int AS small, coalesce(json_agg(json_build_object(
        'number', number, 'count', n, 'frames', frames)), '[]') AS classes FROM own`);
  return rows[0] as CountedRow;
}
