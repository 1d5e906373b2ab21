// What may be asked of an export, with its defaults, and what its file will take.

import { deployed } from "../../../../shared/detector/deployed-detector.ts";
import {
  detectorGraph,
  LEVEL_STRIDES,
  parameterCount,
} from "../../../../shared/detector/detector.ts";
import {
  EXPORT_FORMATS_TABLE,
  type ExportArtifact,
  type ExportPrecision,
  type ModelExportFormat,
  type ModelExportOutput,
} from "../../../../shared/detector/export-formats.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { TaskKind } from "../../../../shared/tasks/tasks.ts";
import {
  CALIBRATION_IMAGES,
  EXPORT_PIXELS_MAX,
  type ModelExportRequest,
} from "../../../../shared/wire/exports.ts";
import type { ModelRow } from "../../models/registry.ts";

/** Bytes of a file beyond its numbers: the graph, and names of classes are counted twice. */
const ENVELOPE_BYTES = 512 * 1024;
/** Bytes a number takes; int8 has scales beside it, and its heads and attention stay single. */
const NUMBER_BYTES: Readonly<Record<ExportPrecision, number>> = { fp32: 4, fp16: 2.2, int8: 1.6 };
/** An engine holds what its builder found best: kernels, and weights in several layouts. */
const ENGINE_FACTOR = 4;
const ENGINE_BYTES = 64 * 1024 * 1024;
/** Bytes a pixel of a bundle's example: three planes of an image, and rows. */
const EXAMPLE_BYTES_PER_PIXEL = 12;

/** What makes a file another one: a request with its defaults filled in. */
export interface ExportOptions {
  format: ModelExportFormat;
  artifact: ExportArtifact;
  precision: ExportPrecision;
  output: ModelExportOutput;
  /** Height and width of the input, pixels. */
  size: readonly [number, number];
  /** Images of one run; null is any number. */
  batch: number | null;
  /** Images that int8 is calibrated on; null for other precisions. */
  calibrationImages: number | null;
}

const refused = (detail: string, data: Record<string, unknown> = {}) =>
  new Failure("invalid_request", detail, { data });

/** The options of a request for this model. Fails with `invalid_request` for what is not made. */
export function optionsOf(
  request: ModelExportRequest,
  { imageSize }: Pick<ModelRow, "imageSize">,
): ExportOptions {
  const { format, image_size, batch: images, calibration } = request;
  const { precisions, outputs, artifacts, batches } = EXPORT_FORMATS_TABLE[format];
  const precision = oneOf("precision", request, precisions);
  const output = oneOf("output", request, outputs);
  const artifact = oneOf("artifact", request, artifacts);
  if (!batches && images !== 1) throw refused(`batch: files of ${format} take one image a run`);
  if (calibration && precision !== "int8") {
    throw refused("calibration: only int8 is calibrated");
  }
  const given = image_size ?? imageSize;
  const size: [number, number] = typeof given === "number" ? [given, given] : given;
  const fits = Math.floor(EXPORT_PIXELS_MAX / (size[0] * size[1]));
  if (typeof images === "number" && images > fits) {
    const bound = `${size.join(" × ")} pixels take a batch of at most ${fits}`;
    throw refused(`batch: ${bound}; dynamic takes any`, { batch_max: fits });
  }
  const calibrated = calibration?.images ?? CALIBRATION_IMAGES.default;
  const calibrationImages = precision === "int8" ? calibrated : null;
  const batch = images === "dynamic" ? null : images;
  return { format, artifact, precision, output, size, batch, calibrationImages };
}

/** What is asked for under a key, or the first of what the format has. */
function oneOf<Value extends string>(
  key: "precision" | "output" | "artifact",
  request: ModelExportRequest,
  made: readonly [Value, ...Value[]],
): Value {
  const asked = request[key];
  if (asked === undefined) return made[0];
  const found = made.find((one) => one === asked);
  if (found) return found;
  throw refused(`${key}: ${request.format} is made with ${made.join(", ")}`, { made });
}

/** The options in words: the same words are the same file. */
export function fingerprintOf(options: ExportOptions): string {
  const { format, artifact, precision, output, size, batch: images } = options;
  const { calibrationImages } = options;
  const ranges = calibrationImages === null ? [] : [`of ${calibrationImages}`];
  const form = [format, artifact, precision, ...ranges, output, size.join("x")].join(" ");
  return `${form} batch ${images ?? "dynamic"}`;
}

/** The kind of task that makes a file: what is made at once waits for no longer build. */
export function kindOf({ format, artifact, precision }: Omit<ExportOptions, "size">): ExportKind {
  if (artifact === "engine") return "engine_export";
  return format === "onnx" && precision === "fp32" ? "model_export" : "device_export";
}
export type ExportKind = Extract<TaskKind, "model_export" | "device_export" | "engine_export">;
export const EXPORT_KINDS = ["model_export", "device_export", "engine_export"] as const;

/** What decides how many bytes a file takes. */
type SizedOptions = Pick<ExportOptions, "size" | "format" | "artifact" | "precision">;

/** Bytes that a file will have, within some per cent: its weights, anchors, names and graph. */
export function expectedBytes(
  { variant, task, classes }: Pick<ModelRow, "variant" | "task" | "classes">,
  { size: [height, width], format, artifact, precision }: SizedOptions,
): number {
  const graph = deployed(detectorGraph(variant, classes.length, task));
  const cells = LEVEL_STRIDES.map((stride) => (height / stride) * (width / stride));
  const anchors = cells.reduce((sum, count) => sum + count, 0);
  const numbers = NUMBER_BYTES[precision] * parameterCount(graph) + 4 * 4 * anchors;
  const names = new TextEncoder().encode(JSON.stringify(classes)).length;
  const file = Math.ceil(numbers) + 2 * names + ENVELOPE_BYTES;
  if (artifact === "engine") return ENGINE_FACTOR * file + ENGINE_BYTES;
  return format === "tensorrt" ? file + EXAMPLE_BYTES_PER_PIXEL * height * width : file;
}
