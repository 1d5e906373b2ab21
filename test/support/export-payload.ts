// What a node is asked for when it exports a model as an ONNX file.

import type { ModelSource, TaskPayload } from "../../shared/tasks/tasks.ts";
import type { NodeService } from "./node-service.ts";

type Payload = TaskPayload<"model_export">;

/** An end-to-end file in fp32 of the model's own size, but for what is given. */
export const exportPayload = (
  service: NodeService,
  model: ModelSource,
  more: Partial<Payload> = {},
): Payload => ({
  export_id: "e",
  round: 1,
  model,
  format: "onnx",
  artifact: "file",
  precision: "fp32",
  output: "end_to_end",
  size: [model.image_size, model.image_size],
  batch: 1,
  metadata: { name: "cells", version: "3" },
  images: [],
  dataset: null,
  calibration_images: 32,
  calibration: null,
  file: service.target(`${crypto.randomUUID()}.onnx`),
  ...more,
});
