// The file that the edge writes for its runtime. Goal: it is, byte for byte, the one that a node
// writes of the same model, so that what is proven of one holds for the other.

import { expect, it } from "vitest";
import { OnnxFile } from "../../edge/infer/onnx-file.ts";
import { GraphWriter, tensorInfo } from "../../gpu-node/onnx/model-file.ts";
import { foldWeights } from "../../shared/detector/deployed-weights.ts";
import { type DetectorTask, detectorGraph } from "../../shared/detector/detector.ts";
import {
  type DetectorForm,
  drawDetector,
  type OnnxValue,
  OPSET,
} from "../../shared/detector/detector-onnx.ts";
import { parseTensors } from "../../shared/detector/safetensors.ts";
import { randomWeights, tensorFile } from "../support/weights.ts";

const info = ({ name, dims }: OnnxValue) => tensorInfo(name, dims);

it.each([
  ["detection", { output: "detections", size: [320, 320], batch: 1 }],
  ["detection", { output: "raw", size: null, batch: null }],
  ["segmentation", { output: "detections", size: [96, 64], batch: 2 }],
  ["detection", { output: "detections", size: [320, 320], batch: 1 }, { nms_iou: "0.6" }],
] as [DetectorTask, DetectorForm, Record<string, string>?][])(
  "is the node's: %s, %o, %o",
  (task, form, metadata) => {
    const classes = ["disc", "Käfer", "star"];
    const tensors = randomWeights(detectorGraph("det26n", classes.length, task));
    const weights = tensorFile(tensors, metadata);
    const model = foldWeights({ variant: "det26n", classes, task }, parseTensors(weights));
    const file = new OnnxFile();
    const bytes = file.encode(drawDetector(file, model, form));
    const writer = new GraphWriter();
    const { name, input, outputs } = drawDetector(writer, model, form);
    const expected = writer.encode(name, [info(input)], outputs.map(info), { opset: OPSET });
    expect(Buffer.compare(bytes, expected)).toBe(0);
  },
);
