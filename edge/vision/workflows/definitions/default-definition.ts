// The workflow of an image that is sent without naming one: what the active model detects, drawn.

import type { WorkflowDefinition } from "../../../../shared/workflow/definition.ts";

const detections = "$steps.detect.detections";

/** Runs where `POST /workflows/run/image` names no saved workflow. */
export const DEFAULT_DEFINITION: WorkflowDefinition = {
  version: "1.0",
  inputs: [{ name: "image", kind: "image" }],
  steps: [
    {
      id: "detect",
      type: "detector@1",
      parameters: { image: "$inputs.image", model: "active" },
    },
    {
      id: "boxes",
      type: "draw_boxes@1",
      parameters: { image: "$inputs.image", detections },
    },
    {
      id: "labels",
      type: "draw_labels@1",
      parameters: { image: "$steps.boxes.image", detections },
    },
  ],
  outputs: [
    { name: "predictions", value: detections },
    { name: "image", value: "$steps.labels.image" },
  ],
};
