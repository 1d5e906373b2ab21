// The file of a model in the format, precision and output that are wanted. Bytes are a function of
// weights, options and, for int8, ranges.

import { createHash } from "node:crypto";
import type { DeployedModel } from "../../shared/detector/deployed-weights.ts";
import type { OnnxSize } from "../../shared/detector/detector-onnx.ts";
import type {
  ExportPrecision,
  ModelExportFormat,
  ModelExportOutput,
} from "../../shared/detector/export-formats.ts";
import { writeCoreml } from "./coreml.ts";
import { writeOnnx } from "./detector-onnx.ts";
import { halveOnnx } from "./half.ts";
import { type QuantizationManner, quantizeOnnx } from "./quantization.ts";
import type { MapRanges } from "./ranges.ts";
import { writeTflite } from "./tflite.ts";

/** What is wanted of a model. */
export interface FileWish {
  format: ModelExportFormat;
  precision: ExportPrecision;
  output: ModelExportOutput;
  size: OnnxSize;
  /** Images of one run; null is any number. */
  batch: number | null;
  /** In index order. */
  classes: readonly string[];
  /** What the file says of its model, as `describeModel` gives it. */
  metadata: Readonly<Record<string, string>>;
  /** Ranges of all maps, for int8 alone. */
  ranges?: MapRanges;
}

/** Writes what a runtime opens; of a bundle, the file within. */
export function writeDetector(model: DeployedModel, wish: FileWish): Uint8Array {
  const { format, precision, output, size, classes, metadata, ranges } = wish;
  if (format === "coreml") {
    const identifiers = identifiersOf(wish);
    return writeCoreml(model, { size, precision: singleOrHalf(precision), metadata, identifiers });
  }
  if (format !== "tflite") return writeOnnxIn(model, wish);
  const heads = output === "raw" ? "raw" : "joined";
  const options = { size, output: heads, precision, classes, metadata } as const;
  return writeTflite(model, ranges ? { ...options, ranges } : options);
}

function writeOnnxIn(model: DeployedModel, wish: FileWish): Uint8Array {
  const { precision, output, size, batch, metadata, ranges } = wish;
  const file = writeOnnx(model, {
    output: output === "raw" ? "raw" : "detections",
    size,
    batch,
    metadata,
  });
  if (precision === "fp32") return file;
  if (precision === "fp16") return halveOnnx(file, model.graph);
  if (!ranges) throw new Error("int8 is written by ranges");
  return quantizeOnnx(file, model, { ranges, manner: mannerOf(wish) });
}

const mannerOf = ({ format }: Pick<FileWish, "format">): QuantizationManner =>
  format === "tensorrt" ? "tensorrt" : "cpu";

function singleOrHalf(precision: ExportPrecision): "fp16" | "fp32" {
  if (precision === "int8") throw new Error("Core ML packages are written in fp16 and fp32");
  return precision;
}

/** Names of a package's two parts, in the form of UUIDs: the same ones for the same options. */
function identifiersOf({ metadata, size }: FileWish): [model: string, weights: string] {
  const uuid = (part: string) => {
    const hash = createHash("sha256")
      .update(JSON.stringify([part, size, metadata]))
      .digest("hex");
    const parts = [hash.slice(0, 8), hash.slice(8, 12), `5${hash.slice(13, 16)}`];
    return [...parts, `8${hash.slice(17, 20)}`, hash.slice(20, 32)].join("-").toUpperCase();
  };
  return [uuid("model"), uuid("weights")];
}
