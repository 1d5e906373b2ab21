// How large a detector's files are beside its ONNX file in single precision, at 640 pixels, where
// the constants of 8,400 anchors are in them. Goal: half precision takes half of the bytes and int8
// three tenths, in every format, of every variant and of segmentation models too. Sizes depend on
// nothing but the graph, so weights and ranges are made up.

import { describe, expect, it } from "vitest";
import { deployedModel } from "../../../gpu-node/export/deployed-model.ts";
import { describeModel } from "../../../gpu-node/export/detector-onnx.ts";
import { type FileWish, writeDetector } from "../../../gpu-node/export/format-writers.ts";
import { type MapRanges, measuredMaps } from "../../../gpu-node/export/ranges.ts";
import { readTensors } from "../../../gpu-node/export/weights-file.ts";
import {
  type DetectorTask,
  detectorGraph,
  type Variant,
} from "../../../shared/detector/detector.ts";
import { randomWeights, tensorFile } from "../../support/weights.ts";

const CLASSES = ["RBC", "WBC", "Platelets"];
const SIDE = 640;
const MB = 1e6;

type Form = Pick<FileWish, "format" | "precision" | "output">;

/** The most of ONNX's bytes in single precision; `mbMax` of a det26n that detects, in MB. */
const FILES: readonly (Form & { shareMax: number; mbMax: number })[] = [
  { format: "onnx", precision: "fp32", output: "end_to_end", shareMax: 1, mbMax: 9.8 },
  { format: "onnx", precision: "fp16", output: "end_to_end", shareMax: 0.53, mbMax: 5 },
  { format: "onnx", precision: "int8", output: "end_to_end", shareMax: 0.31, mbMax: 3 },
  { format: "tensorrt", precision: "int8", output: "end_to_end", shareMax: 0.31, mbMax: 2.8 },
  { format: "coreml", precision: "fp16", output: "raw", shareMax: 0.53, mbMax: 5.2 },
  { format: "tflite", precision: "fp32", output: "joined", shareMax: 1.02, mbMax: 9.9 },
  { format: "tflite", precision: "fp16", output: "joined", shareMax: 0.53, mbMax: 5.2 },
  { format: "tflite", precision: "int8", output: "joined", shareMax: 0.31, mbMax: 3.1 },
];

const VARIANTS: readonly Variant[] = process.env.LARGE
  ? ["det26n", "det26s", "det26m", "det26l", "det26x"]
  : ["det26n", "det26s"];
const MODELS = VARIANTS.flatMap((variant) =>
  (["detection", "segmentation"] as const).map((task): [Variant, DetectorTask] => [variant, task]),
);

describe.each(MODELS)("files of %s for %s", (variant, task) => {
  const graph = detectorGraph(variant, CLASSES.length, task);
  const kind = { variant, classes: CLASSES, task };
  const model = deployedModel(kind, readTensors(tensorFile(randomWeights(graph))));
  const ranges: MapRanges = new Map(measuredMaps(model.graph).map(({ name }) => [name, [-1, 1]]));
  const metadata = describeModel({ ...kind, model_id: "m", image_size: SIDE });
  const bytesOf = (form: Form) => {
    const size = [SIDE, SIDE] as const;
    const wish = { ...form, size, batch: 1, classes: CLASSES, metadata, ranges };
    return writeDetector(model, wish).length;
  };

  it("take what their precision takes", () => {
    const single = bytesOf({ format: "onnx", precision: "fp32", output: "end_to_end" });
    for (const { shareMax, mbMax, ...form } of FILES) {
      const bytes = bytesOf(form);
      const name = `${form.format} in ${form.precision}`;
      expect(bytes / single, name).toBeLessThanOrEqual(shareMax);
      if (variant === "det26n" && task === "detection") {
        expect(bytes / MB, name).toBeLessThanOrEqual(mbMax);
      }
    }
  });
});
