// Files of predictions and of runs of workflows in the store: what a request brings, which is there
// only while a node needs it, and the annotated clip that a node makes, which stays as long as the
// task's row.

import type { TaskPayload, TaskResult } from "../../../../shared/tasks/tasks.ts";
import type { Parts } from "../../base/parts.ts";
import { attemptKey, presignGet, type SigningParts, target } from "../../tasks/objects.ts";
import type { Task } from "../../tasks/queue/queue.ts";

/** Folder of a workspace's files. */
export const folderOf = (workspaceId: string) => `ws/${workspaceId}/predictions/`;

/** Where a node puts an annotated clip. */
export const annotatedTarget = (workspaceId: string) =>
  target(`${folderOf(workspaceId)}${crypto.randomUUID()}.mp4`, "video/mp4");

type ClipObject = TaskResult<"predict">["annotated"];
type AnnotatedPayload = Pick<TaskPayload<"predict">, "annotated">;

/** The address of an annotated clip for its reader; null where there is none. */
export const annotatedUrl = async (
  parts: SigningParts,
  annotated: ClipObject,
): Promise<string | null> => (annotated ? presignGet(parts, annotated.key) : null);

/** What is wrong with the annotated clip that a node says it wrote, or null; none is fine. */
export async function annotatedProblem(
  { bucket }: Pick<Parts, "bucket">,
  task: Task,
  annotated: ClipObject,
): Promise<string | null> {
  const { annotated: asked } = task.payload as AnnotatedPayload;
  if (!annotated) return null;
  if (!asked) return "an annotated video was not asked for";
  const key = attemptKey(asked.key, task);
  if (annotated.key !== key) return "the annotated video is under another key";
  const object = await bucket.head(key);
  if (object && object.size > 0 && object.size === annotated.bytes) return null;
  return `the annotated video of ${annotated.bytes} bytes is not in the store`;
}

/**
 * Deletes files of a task that ended: those that its request brought, and the annotated clip unless
 * the task finished.
 */
export async function deleteTaskFiles(
  { bucket }: Pick<Parts, "bucket">,
  task: Task,
  given: readonly string[],
): Promise<void> {
  const { annotated } = task.payload as AnnotatedPayload;
  const drawn = annotated && task.state !== "finished" ? [attemptKey(annotated.key, task)] : [];
  // Never what is somebody's, should a prediction on it be asked for.
  const own = [...given, ...drawn].filter((key) => key.startsWith(folderOf(task.workspaceId)));
  if (own.length > 0) await bucket.delete(own);
}
