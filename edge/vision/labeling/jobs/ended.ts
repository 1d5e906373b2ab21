// What becomes of a job when frames of one of its tasks are labeled, and when the task ended. A
// frame's annotations are stored in the statement that notes the frame as done, or the task's
// outcome as taken: whichever attempt says it first, what is said again changes nothing, and
// nothing that a person did to them meanwhile is undone.

import { type SQL, sql } from "drizzle-orm";
import {
  type FrameDetections,
  TASK_KINDS,
  type TaskPayload,
  type TaskResult,
} from "../../../../shared/tasks/tasks.ts";
import type { Parts } from "../../base/parts.ts";
import { sealImages } from "../../media/videos/frame-images.ts";
import { findVideos } from "../../media/videos/videos.ts";
import { framesProblem } from "../../tasks/nodes/detections.ts";
import type { Task } from "../../tasks/queue/queue.ts";
import { discardPacks, takeLabelCrops } from "../crops/packs.ts";
import { insertAnnotations, type NewAnnotation } from "./annotation-rows.ts";
import { sizeOf } from "./frame-references.ts";
import { addWarnings, inJob, jobIdOf, jobOfTask } from "./jobs.ts";
import { derivedId } from "./plan.ts";
import { advanceJob, beginJob } from "./rounds.ts";

/** Checks what a label task detected and takes its images; see `TaskHandlers.seal`. */
export async function sealLabel(
  parts: Parts,
  task: Task,
  { result, partial }: { result: unknown; partial: boolean },
): Promise<string | null> {
  const { frames, images, prompts, video_id } = task.payload as TaskPayload<"label">;
  const [video] = await findVideos(parts.database, [task.workspaceId], [video_id]);
  // Its job is gone too, and nobody takes the result.
  if (!video) return null;
  const answered = (result as TaskResult<"label">).frames;
  const classes = prompts.map(({ class_name }) => class_name);
  const problem = framesProblem(answered, { frames, classes, size: sizeOf(video), partial });
  if (problem) return problem;
  const written = answered.flatMap(({ frame_index: frame }) => {
    const key = images[frames.indexOf(frame)]?.key;
    return key === undefined ? [] : [{ frame, key }];
  });
  // A frame without its image is decoded again for whoever looks at it.
  return sealImages(parts, task, written, { required: false });
}

/** Some frames of a running label task are labeled; see `TaskHandlers.partDone`. */
export async function labelPartDone(
  { database }: Parts,
  task: Task,
  part: Record<string, unknown>,
): Promise<void> {
  const result = part as TaskResult<"label">;
  const fresh = freshFrames(task, result);
  if (fresh.length === 0) return;
  const done = [...task.framesDone, ...fresh.map(({ frame_index }) => frame_index)];
  // Where another report, a later attempt or the task's end was quicker, that one stands.
  const statement = sql`
    WITH t AS (
      UPDATE task SET frames_done = ${JSON.stringify(done)}::jsonb
       WHERE id = ${task.taskId}::uuid AND state = 'running' AND fence = ${task.fence}::bigint
         AND frames_done = ${JSON.stringify(task.framesDone)}::jsonb RETURNING id)
    ${await insertDetections(task, fresh, result.segmenter)}`;
  await inJob(database, jobIdOf(task), statement);
}

/** What a result says of frames that no attempt has stored yet. */
const freshFrames = ({ framesDone }: Task, { frames }: Pick<TaskResult<"label">, "frames">) =>
  frames.filter(({ frame_index }) => !framesDone.includes(frame_index));

/** A label task ended, however it did. May be called again for the same task. */
export async function labelEnded(parts: Parts, task: Task): Promise<void> {
  const job = await jobOfTask(parts.database, task);
  if (!job) return takeWithoutJob(parts, task);
  // The result of a finished task was checked when it was reported; that of a canceled one may be
  // of any shape.
  const parsed = TASK_KINDS.label.result.safeParse(task.result);
  const reported = task.state === "finished" || task.state === "cancelled";
  const result = reported && parsed.success ? parsed.data : null;
  await store(parts, task, result);
  await addWarnings(parts.database, job, result?.warnings ?? []);
  await beginJob(parts, job, parts.clock());
  await advanceJob(parts, job.id, job.workspaceId);
  // Last: nothing waits for crops, which are cut again when somebody asks for them.
  await takeLabelCrops(parts, job, task);
}

/** Notes the outcome of a task as taken whose job was deleted, with the crops that it wrote. */
async function takeWithoutJob(parts: Parts, task: Task) {
  await discardPacks(parts, { id: jobIdOf(task), workspaceId: task.workspaceId });
  await parts.database.execute(sql`
    UPDATE task SET settled_at = now() WHERE id = ${task.taskId}::uuid AND settled_at IS NULL`);
}

/** Stores what a task detected and notes its outcome as taken, in one statement. */
async function store(
  { database }: Parts,
  task: Task,
  result: TaskResult<"label"> | null,
): Promise<void> {
  const fresh = result ? freshFrames(task, result) : [];
  const done = [...task.framesDone, ...fresh.map(({ frame_index }) => frame_index)];
  const rest = { done, segmenter: result?.segmenter ?? null, seconds: result?.seconds ?? null };
  const statement = sql`
    WITH t AS (
      UPDATE task SET settled_at = now(), result = ${JSON.stringify(rest)}::jsonb
       WHERE id = ${task.taskId}::uuid AND settled_at IS NULL RETURNING id)
    ${await insertDetections(task, fresh, rest.segmenter)}`;
  await inJob(database, jobIdOf(task), statement);
}

/**
 * Stores the detections of a task's frames where a row `t` says so. Ids follow from what an
 * annotation is of, so that a frame labeled twice is stored once.
 */
async function insertDetections(
  task: Task,
  frames: readonly FrameDetections[],
  segmenter: string | null,
): Promise<SQL> {
  const job = { id: jobIdOf(task), workspaceId: task.workspaceId };
  // Checked when it was enqueued; a task from before models labeled has no `model`.
  const payload = task.payload as Partial<TaskPayload<"label">> & {
    pass: number;
    video_id: string;
  };
  const { pass, video_id: videoId, model } = payload;
  const foundBy = model?.model_id ?? segmenter;
  const rows: NewAnnotation[] = [];
  for (const { frame_index: frame, detections } of frames) {
    const ids = await Promise.all(
      detections.map((_, index) => derivedId(job.id, pass, videoId, frame, index)),
    );
    for (const [index, detection] of detections.entries()) {
      rows.push({
        id: ids[index] as string,
        video: videoId,
        frame,
        class: detection.class_name,
        // As precise as they are stored: Postgres refuses what is too small for that.
        bbox: detection.bbox.map(Math.fround),
        confidence: Math.fround(detection.confidence),
        track: null,
        polygon: detection.polygon,
        duplicate: detection.duplicate_of === null ? null : (ids[detection.duplicate_of] ?? null),
      });
    }
  }
  return insertAnnotations(job, sql`FROM t,`, rows, { source: "model", foundBy });
}
