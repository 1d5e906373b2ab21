// How a scripted node exports a model: a small file and figures that hold.

import { createHash } from "node:crypto";
import type { ClaimedTask } from "../../shared/node-protocol.ts";
import { TASK_KINDS, type TaskResult } from "../../shared/tasks.ts";
import type { ScriptedNode } from "./scripted-node.ts";

type Result = TaskResult<"model_export">;

/** What a node reports of these bytes. */
export const exportedFile = (bytes: Uint8Array): Result => ({
  bytes: bytes.length,
  sha256: createHash("sha256").update(bytes).digest("hex"),
  opset: 17,
  verification: {
    runtime: "onnxruntime-node 1.30.0",
    device: "cpu",
    images: 4,
    dataset_images: 0,
    batches: [1],
    rows: 1_200,
    objects: 31,
    box_difference_max: 0.0001,
    box_tolerance: 0.001,
    score_difference_max: 0.000001,
    score_tolerance: 0.00001,
  },
  seconds: 1.5,
});

/** Writes a file for the task, and answers as a node does. */
export async function exportedBy(
  task: ClaimedTask,
  node: ScriptedNode,
  bytes: Uint8Array = new TextEncoder().encode(`a model of ${task.task_id}`),
): Promise<Result> {
  const { file } = TASK_KINDS.model_export.payload.parse(task.payload);
  await node.write(task, { key: file.key }, bytes);
  return exportedFile(bytes);
}
