// How a scripted node exports a model: a small file and figures that hold.

import { createHash } from "node:crypto";
import { boxTolerance } from "../../shared/detector/export-formats.ts";
import type { ClaimedTask } from "../../shared/tasks/node-protocol.ts";
import { TASK_KINDS, type TaskPayload, type TaskResult } from "../../shared/tasks/tasks.ts";
import type { ScriptedNode } from "./scripted-node.ts";

type Payload = TaskPayload<"device_export">;
type Result = TaskResult<"device_export">;

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
    box_difference_p99: 0.0001,
    score_difference_max: 0.000001,
    score_tolerance: 0.00001,
    confidence_ratio: 1,
    accuracy: null,
    masks: null,
    engine: null,
  },
  recommended_confidence: 0.25,
  calibration: null,
  not_verified: [],
  seconds: 1.5,
});

/** What a node that was asked for int8 reports beside it, by new ranges or by given ones. */
function calibrated({ calibration, calibration_images, size }: Payload): Partial<Result> {
  const { verification } = exportedFile(new Uint8Array(1));
  const accuracy = {
    images: 12,
    truths: 140,
    map50: 0.82,
    map50_95: 0.51,
    model_map50: 0.8225,
    model_map50_95: 0.5096,
    drop_max: 0.01,
  };
  const figures = {
    box_difference_max: 0.8,
    box_tolerance: boxTolerance("int8", size),
    box_difference_p99: 0.4,
    score_difference_max: 0.04,
    score_tolerance: 1,
    confidence_ratio: 0.99,
    dataset_images: 12,
    accuracy,
  };
  return {
    verification: verification && Object.assign(verification, figures),
    recommended_confidence: 0.24,
    calibration: calibration ?? {
      images: calibration_images,
      ranges: { images: [0, 1], "layers.0": [-0.28125, 6.5] },
    },
  };
}

/** Writes a file for the task, and answers as a node does. */
export async function exportedBy(
  task: ClaimedTask,
  node: ScriptedNode,
  bytes: Uint8Array = new TextEncoder().encode(`a model of ${task.task_id}`),
): Promise<Result> {
  const payload = TASK_KINDS.device_export.payload.parse(task.payload);
  await node.write(task, { key: payload.file.key }, bytes);
  const result = exportedFile(bytes);
  if (payload.artifact === "engine" && result.verification) {
    result.verification.engine = { gpu: "NVIDIA T4", tensorrt: "10.8.0" };
  }
  return payload.precision === "int8" ? Object.assign(result, calibrated(payload)) : result;
}
