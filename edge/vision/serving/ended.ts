// What becomes of a prediction's file when its task ended.

import type { TaskPayload } from "../../../shared/tasks.ts";
import type { Parts } from "../base/parts.ts";
import type { Task } from "../tasks/queue.ts";
import { folderOf } from "./predictions.ts";

/** A predict task ended: its file is of no use any more. May be called again for the same task. */
export async function predictEnded({ bucket }: Parts, task: Task): Promise<void> {
  const { key } = (task.payload as TaskPayload<"predict">).video;
  // Never what is somebody's, should a prediction on it be asked for.
  if (key.startsWith(folderOf(task.workspaceId))) await bucket.delete(key);
}
