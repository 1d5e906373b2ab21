// Trains a detector on a dataset.

import type { TaskPayload, TaskResult } from "../../shared/tasks.ts";
import { train } from "../training/session.ts";
import type { TaskContext } from "./context.ts";

export const run = (
  payload: TaskPayload<"train">,
  context: TaskContext,
): Promise<TaskResult<"train">> => train(payload, context);
