// Segmentation models larger than det26n as files, in every format and precision, each opened by
// what runs it here. Goal: boxes, scores, weights of masks and prototypes are those of the ONNX
// file in single precision, within the steps of the file's numbers. LARGE=1 for all variants.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { measureRanges } from "../../../gpu-node/export/calibration.ts";
import { openCoremlRunner } from "../../../gpu-node/export/coreml-runner.ts";
import { type FileWish, writeDetector } from "../../../gpu-node/export/format-writers.ts";
import type { MapRanges } from "../../../gpu-node/export/ranges.ts";
import { openTfliteRunner } from "../../../gpu-node/export/tflite-runner.ts";
import type { RawHeads } from "../../../gpu-node/export/verification.ts";
import type { Variant } from "../../../shared/detector/detector.ts";
import {
  CLASSES,
  generatedDetector,
  generatedPixels,
  greatestDifference,
  headsOfOnnx,
  onnxHeads,
  sureBoxDifference,
} from "../../support/written-detectors.ts";

const SIZE = [64, 96] as const;
const VARIANTS: readonly Variant[] = process.env.LARGE
  ? ["det26s", "det26m", "det26l", "det26x"]
  : ["det26s"];

type Form = Pick<FileWish, "format" | "precision">;
const FORMS: readonly Form[] = [
  { format: "tflite", precision: "fp32" },
  { format: "coreml", precision: "fp32" },
  { format: "onnx", precision: "fp16" },
  { format: "tflite", precision: "fp16" },
  { format: "coreml", precision: "fp16" },
  { format: "onnx", precision: "int8" },
  { format: "tensorrt", precision: "int8" },
  { format: "tflite", precision: "int8" },
];
/** Four times the worst that was seen of a det26s. A fault, such as other channels, is off by 1. */
const ERROR_MAX = { fp32: 4e-6, fp16: 2e-3, int8: 0.1 } as const;
const HEADS = ["boxes", "scores", "masks", "prototypes"] as const;

const dir = mkdtempSync(join(tmpdir(), "vantage-segmentation-variants-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

/** What a file gives for an image, by what runs its format here. */
async function headsBy({ format }: Form, file: Uint8Array, pixels: Float32Array) {
  if (format !== "tflite" && format !== "coreml") return headsOfOnnx(file, SIZE, pixels);
  const path = join(dir, crypto.randomUUID());
  writeFileSync(path, file);
  const { signal } = new AbortController();
  const classes = CLASSES.length;
  const form = { size: SIZE, classes, output: "raw", cpuThreads: 1, signal } as const;
  const open = format === "tflite" ? openTfliteRunner : openCoremlRunner;
  const runner = await open(path, form);
  try {
    return await runner.look(pixels);
  } finally {
    await runner.close();
  }
}

/** Root mean square of the differences, as a share of what is wanted. */
function error(found: Float32Array = new Float32Array(), wanted: Float32Array): number {
  if (found.length !== wanted.length) return Number.NaN;
  const squares = wanted.reduce((sum, value) => sum + value ** 2, 0);
  const off = wanted.reduce((sum, value, at) => sum + ((found[at] ?? 0) - value) ** 2, 0);
  return Math.sqrt(off / squares);
}

describe.each(VARIANTS)("a segmentation model %s", (variant) => {
  const model = generatedDetector({ variant, task: "segmentation" });
  const images = [1, 2, 3].map((seed) => generatedPixels(SIZE, seed));
  const pixels = generatedPixels(SIZE);
  let ranges: MapRanges;
  let wanted: RawHeads;
  beforeAll(async () => {
    ranges = await measureRanges(model, () => images, { size: SIZE, cpuThreads: 1 });
    wanted = await onnxHeads(model, SIZE, pixels);
  });

  it.each(FORMS)("gives the same as $format in $precision", async (form) => {
    const wish = { ...form, output: "raw", size: SIZE, batch: 1, classes: CLASSES } as const;
    const file = writeDetector(model, { ...wish, metadata: {}, ranges });
    const found = await headsBy(form, file, pixels);
    const errors = HEADS.map((name) => error(found[name], wanted[name] ?? new Float32Array()));
    if (form.precision === "fp32") {
      expect(greatestDifference(found.boxes, wanted.boxes)).toBeLessThanOrEqual(1e-3);
      expect(greatestDifference(found.scores, wanted.scores)).toBeLessThanOrEqual(1e-5);
    }
    if (form.precision === "fp16") {
      expect(sureBoxDifference(found, wanted)).toBeLessThanOrEqual(0.1);
      expect(greatestDifference(found.scores, wanted.scores)).toBeLessThanOrEqual(1e-2);
    }
    for (const [at, name] of HEADS.entries()) {
      expect(errors[at], name).toBeLessThanOrEqual(ERROR_MAX[form.precision]);
    }
  });
});
