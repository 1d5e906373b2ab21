// A detector as an ONNX file: the graph that is drawn once for everybody, with what the file says
// of itself.

import type { DeployedModel } from "../../shared/detector/deployed-weights.ts";
import { type DetectorTask, STRIDE_MAX } from "../../shared/detector/detector.ts";
import {
  type DetectorForm,
  drawDetector,
  type OnnxValue,
  OPSET,
} from "../../shared/detector/detector-onnx.ts";
import type { ModelSource } from "../../shared/tasks/tasks.ts";
import { GraphWriter, tensorInfo } from "../onnx/model-file.ts";

export interface OnnxOptions extends DetectorForm {
  metadata: Readonly<Record<string, string>>;
}

/** The field's words for what a model does. */
const TASK_WORDS: Readonly<Record<DetectorTask, string>> = {
  detection: "detect",
  segmentation: "segment",
};

/**
 * What a file says of its model, in the words by which the field's own readers know it; what
 * depends on the file is added by `writeOnnx`. Readers take numbers, lists, names and booleans for
 * literals of Python, which JSON's are but for `true` and `false`.
 */
export const describeModel = (
  model: Pick<ModelSource, "model_id" | "variant" | "task" | "classes" | "image_size">,
  more: Readonly<Record<string, string>> = {},
): Record<string, string> => ({
  names: JSON.stringify(Object.fromEntries(model.classes.entries())),
  stride: String(STRIDE_MAX),
  imgsz: JSON.stringify([model.image_size, model.image_size]),
  channels: "3",
  task: TASK_WORDS[model.task],
  variant: model.variant,
  model: model.model_id,
  ...more,
});

/**
 * What a file says of its inputs and outputs: height and width where they are fixed, and a batch of
 * 1 where any will do.
 */
export const describeFile = ({ size, batch, output }: DetectorForm): Record<string, string> => ({
  ...(size ? { imgsz: JSON.stringify(size) } : {}),
  batch: String(batch ?? 1),
  end2end: output === "detections" ? "True" : "False",
});

/** Writes a deployed model as a file's bytes; the same model and options give the same bytes. */
export function writeOnnx(model: DeployedModel, { metadata, ...form }: OnnxOptions): Uint8Array {
  const writer = new GraphWriter();
  const { name, input, outputs } = drawDetector(writer, model, form);
  const info = (value: OnnxValue) => tensorInfo(value.name, value.dims);
  return writer.encode(name, [info(input)], outputs.map(info), {
    opset: OPSET,
    metadata: { ...metadata, ...describeFile(form) },
  });
}
