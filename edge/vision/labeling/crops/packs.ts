// Crop packs on their way from a node into the store: checked, copied once to the key that they are
// read by, noted in a row. A pack can be made again at any time, so losing one loses no work.

import { sql } from "drizzle-orm";
import { CROP_PACK_BYTES_MAX, type CropEntry, cropEntries } from "../../../../shared/crop-pack.ts";
import type { CropsResult } from "../../../../shared/tasks/crops-task.ts";
import type { TaskPayload } from "../../../../shared/tasks/tasks.ts";
import { discardObjects } from "../../base/discard.ts";
import type { Parts } from "../../base/parts.ts";
import { breaksReference } from "../../base/sql.ts";
import { attemptKey, target } from "../../tasks/objects.ts";
import type { Task } from "../../tasks/queue/queue.ts";
import { existingJob, type JobRow } from "../jobs/jobs.ts";

const PACK_TYPE = "application/octet-stream";
const JPEG_HEAD = [0xff, 0xd8, 0xff];
/** Packs that are taken at once. */
const TAKEN_AT_ONCE = 4;

type JobOf = Pick<JobRow, "id" | "workspaceId">;

/** The folder of a job's packs, which go with the job. */
const folderOf = ({ id, workspaceId }: JobOf) => `ws/${workspaceId}/job/${id}/crops/`;

/** Where a pack of a job's crops goes; `name` is unique among the job's packs of the video. */
export const packTarget = (job: JobOf, videoId: string, name: string) =>
  target(`${folderOf(job)}${videoId}/${name}.crops`, PACK_TYPE);

/** What the tasks that cut a job's crops are part of. */
export const subjectOf = (jobId: string) => `crops:${jobId}`;

/** Has a job's packs deleted, after the job was. */
export const discardPacks = (parts: Parts, job: JobOf): Promise<void> =>
  discardObjects(parts, [folderOf(job)]);

/** A pack that an attempt was to write: where it is read, and which frames it may be of. */
interface ExpectedPack {
  key: string;
  videoId: string;
  frames: readonly number[];
}

/** Takes the pack of what a label task detected, where its node wrote one. */
export async function takeLabelCrops(parts: Parts, job: JobOf, task: Task): Promise<void> {
  const { crops, video_id: videoId, frames } = task.payload as TaskPayload<"label">;
  if (!crops) return;
  try {
    const problem = await takePack(parts, { job, task }, { key: crops.key, videoId, frames });
    // An older node writes none, and one without detections neither.
    if (problem) parts.log.info("crop_pack_not_taken", { task_id: task.taskId, problem });
  } catch (error) {
    // The labels are worth more than their crops, which are cut when somebody asks.
    parts.log.warning("crop_pack_not_taken", { task_id: task.taskId, error });
  }
}

/** Checks what a node says of crops and takes their packs; see `TaskHandlers.seal`. */
export async function sealCrops(
  parts: Parts,
  task: Task,
  { result }: { result: unknown },
): Promise<string | null> {
  const { videos } = task.payload as TaskPayload<"crops">;
  const { packed } = result as CropsResult;
  const job = await existingJob(parts.database, task.workspaceId, jobIdOf(task));
  // `cropsEnded` has what the node wrote deleted.
  if (!job) return null;
  const asked = new Map(videos.map((one) => [one.video_id, one]));
  const foreign = packed.find((id) => !asked.has(id));
  if (foreign !== undefined) return "a pack of a video that was not asked for";
  const expected = packed.flatMap((videoId): ExpectedPack[] => {
    const { pack, boxes } = asked.get(videoId) ?? {};
    if (!pack || !boxes) return [];
    return [{ key: pack.key, videoId, frames: boxes.map(({ frame_index }) => frame_index) }];
  });
  for (let from = 0; from < expected.length; from += TAKEN_AT_ONCE) {
    const some = expected.slice(from, from + TAKEN_AT_ONCE);
    const problems = await Promise.all(some.map((one) => takePack(parts, { job, task }, one)));
    const problem = problems.find((one) => one !== null);
    if (problem) return problem;
  }
  return null;
}

const jobIdOf = ({ subject }: Pick<Task, "subject">) => subject.slice(subjectOf("").length);

/** A task that cut crops ended: what it wrote for a job that was deleted meanwhile goes. */
export async function cropsEnded(parts: Parts, task: Task): Promise<void> {
  const id = jobIdOf(task);
  const job = await existingJob(parts.database, task.workspaceId, id);
  if (!job) await discardPacks(parts, { id, workspaceId: task.workspaceId });
}

/**
 * Copies the pack that an attempt wrote and notes it; says why it cannot be taken, or null. A pack
 * that was taken before stays as it is.
 */
async function takePack(
  parts: Parts,
  { job, task }: { job: JobOf; task: Task },
  expected: ExpectedPack,
): Promise<string | null> {
  const { database, bucket } = parts;
  const { key, videoId, frames } = expected;
  const written = attemptKey(key, task);
  const taken = await bucket.get(key);
  const found = taken ?? (await bucket.get(written));
  if (!found) return "the pack of crops is not in the store";
  if (found.size > CROP_PACK_BYTES_MAX) {
    await found.body.cancel();
    return `the pack of crops has ${found.size} bytes`;
  }
  const bytes = new Uint8Array(await found.arrayBuffer());
  const entries = cropEntries(bytes, bytes.length);
  const problem = entries ? entriesProblem(bytes, entries, frames) : "it is no pack";
  if (problem || !entries) return `the pack of crops is refused: ${problem}`;
  if (!taken) {
    const options = {
      httpMetadata: { contentType: PACK_TYPE },
      onlyIf: { etagDoesNotMatch: "*" },
    };
    const stored = await bucket.put(key, bytes, options);
    // Another report of the same outcome was quicker: what it stored is what counts.
    if (!stored) return takePack(parts, { job, task }, expected);
    await bucket.delete(written);
  }
  const { rows } = await database
    .execute(sql`
      WITH j AS (SELECT id FROM job WHERE id = ${job.id}::uuid),
      noted AS (
        INSERT INTO crop_pack (id, workspace_id, job_id, video_id, key, frames, entries, bytes)
        SELECT ${crypto.randomUUID()}::uuid, ${job.workspaceId}::uuid, j.id, ${videoId}::uuid,
          ${key}, ${framesOf(entries)}::int[], ${entries.length}::int, ${bytes.length}::int FROM j
        ON CONFLICT (key) DO NOTHING)
      SELECT id FROM j`)
    .catch((thrown: unknown) => {
      if (breaksReference(thrown)) return { rows: [] };
      throw thrown;
    });
  // The job was deleted meanwhile, with its folder.
  if (rows.length === 0) await bucket.delete(key);
  return null;
}

/** The frames of a pack's crops, each once, as Postgres reads an array. */
const framesOf = (entries: readonly CropEntry[]): string =>
  `{${[...new Set(entries.map(({ frame }) => frame))].join(",")}}`;

/** What is wrong with a pack's crops, or null. */
function entriesProblem(
  bytes: Uint8Array,
  entries: readonly CropEntry[],
  frames: readonly number[],
): string | null {
  if (entries.length === 0) return "it has no crops";
  const asked = new Set(frames);
  const foreign = entries.find(({ frame }) => !asked.has(frame));
  if (foreign) return `frame ${foreign.frame} was not asked for`;
  const broken = entries.find(({ offset }) =>
    JPEG_HEAD.some((byte, at) => bytes[offset + at] !== byte),
  );
  return broken ? `a crop of frame ${broken.frame} is no JPEG` : null;
}
