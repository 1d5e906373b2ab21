// A model as a folder that Roboflow's `inference` takes as it is: the end-to-end ONNX file, its
// classes, and how an image is laid into it. Names and values are those of its model packages
// (inference_models: models/common/roboflow/model_packages.py), the family's name among them.

import type { DetectorTask } from "../../shared/detector/detector.ts";
import { DETECTIONS_MAX, type OnnxSize } from "../../shared/detector/detector-onnx.ts";
import { zipBytes } from "../objects/zip-writer.ts";
import { classLines } from "./class-lines.ts";

export interface RoboflowBundleOptions {
  /** An end-to-end file, rows of six for each image. */
  onnx: Uint8Array;
  size: OnnxSize;
  /** In the order of their indices. */
  classes: readonly string[];
  task: DetectorTask;
}

const TASKS: Readonly<Record<DetectorTask, string>> = {
  detection: "object-detection",
  segmentation: "instance-segmentation",
};
/** The letterbox's grey, and what pixels are divided by. */
const [PADDING, PIXEL_MAX] = [114, 255];
/** Images of one run of a file that takes any number. */
const BATCH_MAX = 16;

/** The folder as a zip; the same file and options give the same bytes. */
export function writeRoboflowBundle({
  onnx,
  size: [height, width],
  classes,
  task,
}: RoboflowBundleOptions): Uint8Array {
  const about = { model_architecture: "yolo26", task_type: TASKS[task], backend_type: "onnx" };
  const configuration = {
    image_pre_processing: {},
    network_input: {
      training_input_size: { height, width },
      dynamic_spatial_size_supported: false,
      color_mode: "rgb",
      resize_mode: "letterbox",
      padding_value: PADDING,
      input_channels: 3,
      scaling_factor: PIXEL_MAX,
      normalization: null,
    },
    // A file's own batch goes before.
    forward_pass: { static_batch_size: null, max_dynamic_batch_size: BATCH_MAX },
    post_processing: {
      type: "nms",
      fused: true,
      // The file has no suppression in it and needs none: only the count and the kind are read.
      nms_parameters: {
        max_detections: DETECTIONS_MAX,
        confidence_threshold: 0,
        iou_threshold: 1,
        class_agnostic: 0,
      },
    },
  };
  return zipBytes([
    ["weights.onnx", onnx],
    ["class_names.txt", classLines(classes)],
    ["inference_config.json", `${JSON.stringify(configuration, null, 2)}\n`],
    ["model_config.json", `${JSON.stringify(about, null, 2)}\n`],
  ]);
}
