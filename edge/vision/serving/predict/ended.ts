// What becomes of a prediction's file when its task ended.

import { CLIP_BOUNDS } from "../../../../shared/tasks/sam.ts";
import type { TaskPayload, TaskResult } from "../../../../shared/tasks/tasks.ts";
import type { Parts } from "../../base/parts.ts";
import { boxProblem } from "../../tasks/nodes/detections.ts";
import type { Task } from "../../tasks/queue/queue.ts";
import { cutProblem } from "./clip-frames.ts";
import { masksProblem } from "./masks.ts";
import { annotatedProblem, deleteTaskFiles } from "./task-files.ts";

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
  if (payload.annotated && !annotated) return "the node's release makes no annotated videos";
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

/**
 * A task on the file of a request ended: the file is of no use any more, and neither is what a
 * failed one drew. May be called again for the same task.
 */
export const predictEnded = (parts: Parts, task: Task): Promise<void> =>
  deleteTaskFiles(parts, task, [(task.payload as Pick<TaskPayload<"predict">, "video">).video.key]);
