// What becomes of a job when one of its tasks ended: its annotations are stored in the statement
// that notes the task's outcome as taken, so a result that is delivered twice changes nothing.

import { sql } from "drizzle-orm";
import {
  type FrameDetections,
  TASK_KINDS,
  type TaskPayload,
  type TaskResult,
} from "../../../shared/tasks.ts";
import type { Parts } from "../base/parts.ts";
import { sealImages } from "../projects/frame-images.ts";
import { findVideos } from "../projects/videos.ts";
import { framesProblem } from "../tasks/detections.ts";
import type { Task } from "../tasks/queue.ts";
import { insertAnnotations, type NewAnnotation } from "./annotation-rows.ts";
import { sizeOf } from "./frame-references.ts";
import { type JobRow, jobOfTask } from "./jobs.ts";
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

/** A label task ended, however it did. May be called again for the same task. */
export async function labelEnded(parts: Parts, task: Task): Promise<void> {
  const job = await jobOfTask(parts.database, task);
  if (!job) return takeWithoutJob(parts, task);
  // The result of a finished task was checked when it was reported; that of a canceled one may be
  // of any shape.
  const parsed = TASK_KINDS.label.result.safeParse(task.result);
  const reported = task.state === "finished" || task.state === "cancelled";
  const result = reported && parsed.success ? parsed.data : null;
  await store(parts, { job, task, result });
  await beginJob(parts, job, parts.clock());
  await advanceJob(parts, job.id, job.workspaceId);
}

/** Notes the outcome of a task as taken whose job was deleted. */
async function takeWithoutJob({ database }: Parts, task: Task) {
  await database.execute(sql`
    UPDATE task SET settled_at = now() WHERE id = ${task.taskId}::uuid AND settled_at IS NULL`);
}

interface EndedTask {
  job: JobRow;
  task: Task;
  result: TaskResult<"label"> | null;
}

/** Stores what a task detected and notes its outcome as taken, in one statement. */
async function store({ database }: Parts, { job, task, result }: EndedTask): Promise<void> {
  const { pass, video_id: videoId } = task.payload as { pass: number; video_id: string };
  const rows = await annotationRows(job, { pass, videoId }, result?.frames ?? []);
  const done = result?.frames.map(({ frame_index }) => frame_index) ?? [];
  const rest = { done, segmenter: result?.segmenter ?? null, seconds: result?.seconds ?? null };
  await database.execute(sql`
    WITH t AS (
      UPDATE task SET settled_at = now(), result = ${JSON.stringify(rest)}::jsonb
       WHERE id = ${task.taskId}::uuid AND settled_at IS NULL RETURNING id)
    ${insertAnnotations(job, sql`FROM t,`, rows)}`);
}

/** Ids follow from what an annotation is of, so that a frame labeled twice is stored once. */
async function annotationRows(
  job: JobRow,
  { pass, videoId }: { pass: number; videoId: string },
  frames: readonly FrameDetections[],
): Promise<NewAnnotation[]> {
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
  return rows;
}
