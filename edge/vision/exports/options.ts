// What may be asked of an export, with its defaults, and what its file will take.

import { deployed } from "../../../shared/deployed-detector.ts";
import { detectorGraph, LEVEL_STRIDES, parameterCount } from "../../../shared/detector.ts";
import { Failure } from "../../../shared/errors.ts";
import { EXPORT_PIXELS_MAX, type ModelExportRequest } from "../../../shared/exports.ts";
import type { ModelRow } from "../registry/models.ts";

/** Bytes of a file beyond its numbers: the graph, and names of classes are counted twice. */
const ENVELOPE_BYTES = 512 * 1024;

/** What makes a file another one: a request with its defaults filled in. */
export interface ExportOptions {
  format: ModelExportRequest["format"];
  output: ModelExportRequest["output"];
  /** Height and width of the input, pixels. */
  size: readonly [number, number];
  /** Images of one run; null is any number. */
  batch: number | null;
}

/** The options of a request for this model. Fails with `invalid_request` for what is too large. */
export function optionsOf(
  { format, output, image_size, batch: images }: ModelExportRequest,
  { imageSize }: Pick<ModelRow, "imageSize">,
): ExportOptions {
  const given = image_size ?? imageSize;
  const size: [number, number] = typeof given === "number" ? [given, given] : given;
  const fits = Math.floor(EXPORT_PIXELS_MAX / (size[0] * size[1]));
  if (typeof images === "number" && images > fits) {
    const bound = `${size.join(" × ")} pixels take a batch of at most ${fits}`;
    throw new Failure("invalid_request", `batch: ${bound}; dynamic takes any`, {
      data: { batch_max: fits },
    });
  }
  return { format, output, size, batch: images === "dynamic" ? null : images };
}

/** The options in words: the same words are the same file. */
export const fingerprintOf = ({ format, output, size, batch: images }: ExportOptions) =>
  `${format} ${output} ${size.join("x")} batch ${images ?? "dynamic"}`;

/** Bytes that a file will have, within some per cent: its weights, anchors, names and graph. */
export function expectedBytes(
  { variant, task, classes }: Pick<ModelRow, "variant" | "task" | "classes">,
  { size: [height, width] }: Pick<ExportOptions, "size">,
): number {
  const graph = deployed(detectorGraph(variant, classes.length, task));
  const cells = LEVEL_STRIDES.map((stride) => (height / stride) * (width / stride));
  const anchors = cells.reduce((sum, count) => sum + count, 0);
  const numbers = parameterCount(graph) + 4 * anchors;
  const names = new TextEncoder().encode(JSON.stringify(classes)).length;
  return 4 * numbers + 2 * names + ENVELOPE_BYTES;
}
