// Trains a detector on a dataset.

import type { TaskPayload, TaskResult } from "../../shared/tasks.ts";
import { TaskFailure } from "../failure.ts";
import type { TaskContext } from "./context.ts";

export async function run(
  _payload: TaskPayload<"train">,
  _context: TaskContext,
): Promise<TaskResult<"train">> {
  throw new TaskFailure("invalid_request", "this node does not train");
}
