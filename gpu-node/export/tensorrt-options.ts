// What `trtexec` is asked for a model of ours: the same in the recipe that leaves with a file and
// in a build on a node.

import { INPUT, type OnnxSize } from "../../shared/detector/detector-onnx.ts";
import type { ExportPrecision } from "../../shared/detector/export-formats.ts";

export interface EngineOptions {
  precision: ExportPrecision;
  size: OnnxSize;
  /** Images of one run; null is any number up to `BATCHES.max`. */
  batch: number | null;
}

/** Images that an engine for any number is made and tuned for. */
export const BATCHES = { min: 1, opt: 4, max: 16 } as const;

/** int8 says by its own pairs of operators what is int8; what is not may be halves. */
const PRECISIONS: Readonly<Record<ExportPrecision, readonly string[]>> = {
  fp32: [],
  fp16: ["--fp16"],
  int8: ["--int8", "--fp16"],
};

/** The shape of the input for so many images, as the program takes it. */
export const inputShape = ([height, width]: OnnxSize, images: number): string =>
  `${INPUT}:${images}x3x${height}x${width}`;

/** Arguments that say what the engine is for; paths are the caller's. */
export function engineArguments({ precision, size, batch }: EngineOptions): string[] {
  const shapes =
    batch === null
      ? Object.entries(BATCHES).map(
          ([which, count]) => `--${which}Shapes=${inputShape(size, count)}`,
        )
      : [];
  return [...PRECISIONS[precision], ...shapes, "--skipInference"];
}
