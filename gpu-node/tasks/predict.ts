// Predicts with a model of the registry.

import type { TaskPayload, TaskResult } from "../../shared/tasks.ts";
import { TaskFailure } from "../failure.ts";
import type { TaskContext } from "./context.ts";

export async function run(
  _payload: TaskPayload<"predict">,
  _context: TaskContext,
): Promise<TaskResult<"predict">> {
  throw new TaskFailure("invalid_request", "this node does not predict");
}

export async function warm(
  _payload: TaskPayload<"warm">,
  _context: TaskContext,
): Promise<TaskResult<"warm">> {
  throw new TaskFailure("invalid_request", "this node does not predict");
}
