// Trains a detector on a dataset.

import type { TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import { train } from "../training/train-attempt.ts";
import type { RunnerContext } from "./runner-context.ts";

export const run = (
  payload: TaskPayload<"train">,
  context: RunnerContext,
): Promise<TaskResult<"train">> => train(payload, context);
