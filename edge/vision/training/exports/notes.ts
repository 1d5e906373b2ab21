// What no node has looked at of a file, and how whoever has the file looks at it: one command each.

import {
  type ModelExportFormat,
  ultralyticsNote,
} from "../../../../shared/detector/export-formats.ts";
import type { ModelRow } from "../../models/registry.ts";
import type { ExportRow } from "./rows.ts";

type File = Pick<
  ExportRow,
  "format" | "artifact" | "precision" | "output" | "verification" | "notVerified"
>;

const ONNX_CHECK =
  "python -c \"import onnx; onnx.checker.check_model('model.onnx', full_check=True)\"";
const NOT_ON_OTHERS = "int8 for TensorRT is not for OpenVINO, which reads it wrongly, or OpenCV";

const OF_FORMAT: Readonly<Record<ModelExportFormat, readonly string[]>> = {
  onnx: [
    "graphics cards, and TensorRT and other providers: trtexec --onnx=model.onnx, then the same " +
      "images through both",
    `other readers of ONNX than onnxruntime: ${ONNX_CHECK}`,
  ],
  coreml: [
    "Apple's runtime: the package was read back and run here by onnxruntime; on a Mac: python -c " +
      "\"import coremltools; print(coremltools.models.MLModel('model.mlpackage'))\", then the same " +
      "images through both",
    "half-precision maps: they were computed here in single precision, so what their rounding " +
      "costs, and numbers beyond 65,504, show in that comparison alone",
  ],
  tflite: [
    "phones, and their delegates: adb push model.tflite /data/local/tmp, then benchmark_model " +
      "--graph=/data/local/tmp/model.tflite --use_gpu=true",
  ],
  tensorrt: ["TensorRT: unzip it where the GPU is, and run the script that its README names"],
  roboflow: ["Roboflow's server: start inference with the unzipped folder as its model"],
};

/** Sentences for people. */
export function notVerified(file: File, { task }: Pick<ModelRow, "task">): string[] {
  const { format, artifact, precision, output, verification } = file;
  const sentences = [...file.notVerified, ...OF_FORMAT[format]];
  if (artifact === "engine") {
    sentences.splice(-1, 1, "the engine's own answers: trtexec --loadEngine=model.engine");
  }
  if (format === "tensorrt" && precision === "int8") sentences.push(NOT_ON_OTHERS);
  if (task === "segmentation" && !verification?.masks) {
    sentences.push("the prototypes of masks: draw the masks of an image that you know");
  }
  if (output === "raw") {
    sentences.push(ultralyticsNote(format));
  }
  return sentences;
}
