// A detector as an ONNX file: the graph that is drawn once for everybody, with what the file says
// of itself.

import type { DeployedModel } from "../../shared/deployed-weights.ts";
import { STRIDE_MAX } from "../../shared/detector.ts";
import {
  type DetectorForm,
  drawDetector,
  type OnnxValue,
  OPSET,
} from "../../shared/detector-onnx.ts";
import type { ModelSource } from "../../shared/tasks.ts";
import { GraphWriter, tensorInfo } from "../onnx/model-file.ts";

export interface OnnxOptions extends DetectorForm {
  metadata: Readonly<Record<string, string>>;
}

/** What a file says of itself, so that whoever finds it can use it. */
export const describeModel = (
  model: Pick<ModelSource, "model_id" | "variant" | "task" | "classes" | "image_size">,
  more: Readonly<Record<string, string>> = {},
): Record<string, string> => ({
  names: JSON.stringify(Object.fromEntries(model.classes.entries())),
  stride: String(STRIDE_MAX),
  imgsz: JSON.stringify([model.image_size, model.image_size]),
  task: model.task,
  variant: model.variant,
  end2end: "true",
  model: model.model_id,
  ...more,
});

/** Writes a deployed model as a file's bytes; the same model and options give the same bytes. */
export function writeOnnx(model: DeployedModel, { metadata, ...form }: OnnxOptions): Uint8Array {
  const writer = new GraphWriter();
  const { name, input, outputs } = drawDetector(writer, model, form);
  const info = (value: OnnxValue) => tensorInfo(value.name, value.dims);
  return writer.encode(name, [info(input)], outputs.map(info), {
    opset: OPSET,
    metadata: { ...metadata, end2end: String(form.output === "detections") },
  });
}
