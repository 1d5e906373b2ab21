// What becomes of a prediction's file when its task ended.

import { CLIP_BOUNDS } from "../../../../shared/tasks/sam.ts";
import type { TaskPayload, TaskResult } from "../../../../shared/tasks/tasks.ts";
import type { Parts } from "../../base/parts.ts";
import { boxProblem } from "../../tasks/nodes/detections.ts";
import { attemptKey } from "../../tasks/objects.ts";
import type { Task } from "../../tasks/queue/queue.ts";
import { cutProblem } from "./clip-frames.ts";
import { masksProblem } from "./masks.ts";
import { folderOf } from "./predictions.ts";

/** Payload of any task on the file of a request. */
type PredictPayload = Pick<TaskPayload<"predict">, "video" | "annotated">;

/** Checks what a model is said to have found; see `TaskHandlers.seal`. */
export async function sealPredict(
  parts: Parts,
  task: Task,
  { result }: { result: unknown },
): Promise<string | null> {
  const payload = task.payload as TaskPayload<"predict">;
  const { frames_max, model, mask: form = "none" } = payload;
  const { frames, width, height, left_out, annotated } = result as TaskResult<"predict">;
  const cut = cutProblem(payload, left_out);
  if (cut) return cut;
  const unwritten = await annotatedProblem(parts, task, annotated);
  if (unwritten) return unwritten;
  if (frames.length > frames_max) return `over ${frames_max} frames are answered`;
  let before = -1;
  for (const { frame_index, predictions } of frames) {
    if (frame_index <= before) return `frame ${frame_index} is not in its order`;
    before = frame_index;
    for (const { class: name, bbox } of predictions) {
      if (!model.classes.includes(name)) return `frame ${frame_index}: no class of the model`;
      const problem = boxProblem(bbox, { width, height });
      if (problem) return `frame ${frame_index}: ${problem}`;
    }
  }
  const all = frames.flatMap(({ predictions }) => predictions);
  const numbersMax = CLIP_BOUNDS.maskNumbers;
  return masksProblem(all, { form, size: { width, height }, numbersMax });
}

/** What is wrong with the clip with drawn boxes that a node left, or null. */
async function annotatedProblem(
  { bucket }: Pick<Parts, "bucket">,
  task: Task,
  annotated: TaskResult<"predict">["annotated"],
): Promise<string | null> {
  const { annotated: asked } = task.payload as TaskPayload<"predict">;
  if (!asked) return annotated ? "an annotated video was not asked for" : null;
  if (!annotated) return "the node's release makes no annotated videos";
  const key = attemptKey(asked.key, task);
  if (annotated.key !== key) return "the annotated video is under another key";
  const object = await bucket.head(key);
  if (object && object.size > 0 && object.size === annotated.bytes) return null;
  return `the annotated video of ${annotated.bytes} bytes is not in the store`;
}

/**
 * A task on the file of a request ended: the file is of no use any more, and neither is what a
 * failed one drew. May be called again for the same task.
 */
export async function predictEnded({ bucket }: Parts, task: Task): Promise<void> {
  const { video, annotated } = task.payload as PredictPayload;
  const drawn = annotated && task.state !== "finished" ? [attemptKey(annotated.key, task)] : [];
  // Never what is somebody's, should a prediction on it be asked for.
  const own = [video.key, ...drawn].filter((key) => key.startsWith(folderOf(task.workspaceId)));
  if (own.length > 0) await bucket.delete(own);
}
