// What exported files find on an image file, by the programs of `runners/` wherever they run here:
// Node's for ONNX and for the ONNX file in a TensorRT bundle, the page in Chromium for TensorFlow
// Lite. What Apple's runtime would open, our reader of Core ML packages does.

import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import sharp from "sharp";
import { openCoremlRunner } from "../../gpu-node/export/coreml-runner.ts";
import type { FileForm, FileRunner } from "../../gpu-node/export/file-runner.ts";
import { openTfliteRunner } from "../../gpu-node/export/tflite-runner.ts";
import { rowsOfHeads } from "../../gpu-node/export/verification.ts";
import { readStill } from "../../gpu-node/media/stills.ts";
import { letterbox, type SquareImage } from "../../gpu-node/serving/letterbox.ts";
import { predictionsOf } from "../../shared/detector/letterbox.ts";
import type { Prediction } from "../../shared/tasks/tasks.ts";
import type { ModelExport } from "../../shared/wire/exports.ts";
import { hasChromium } from "./browser.ts";
import { type DetectedObject, objectsPrinted, openRunnerPage } from "./runner-page.ts";
import { zipFiles } from "./zip-files.ts";

const NODE_RUNNER = resolve(import.meta.dirname, "../../runners/javascript/node.mjs");

/** A downloaded file, and the image that it is run on. */
export interface ExportedRun {
  made: Pick<ModelExport, "format" | "output" | "image_size">;
  bytes: Buffer;
  classes: readonly string[];
  imagePath: string;
  /** Of what is written meanwhile. */
  folder: string;
  confidence: number;
}

/** The objects that a file finds, surest first, in pixels of the image. */
export async function exportedObjects(wanted: ExportedRun): Promise<Prediction[]> {
  const { made, bytes } = wanted;
  if (made.format === "onnx") return byNode(bytes, wanted);
  if (made.format === "tensorrt") {
    return byNode((await zipFiles(bytes)).get("model.onnx") ?? Buffer.alloc(0), wanted);
  }
  const [height, width] = made.image_size;
  const laid = await letterbox(await readStill(wanted.imagePath), { width, height });
  return made.format === "tflite" && hasChromium ? byPage(laid, wanted) : byReader(laid, wanted);
}

/** By the program that users copy. */
async function byNode(file: Uint8Array, { made, ...wanted }: ExportedRun): Promise<Prediction[]> {
  const path = join(wanted.folder, `${made.format}.onnx`);
  writeFileSync(path, file);
  const args = [NODE_RUNNER, path, wanted.imagePath, String(wanted.confidence)];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  return objectsPrinted(stdout).map(({ class: index, score, box }) => {
    const [x1 = 0, y1 = 0, x2 = 0, y2 = 0] = box;
    return { class: wanted.classes[index] ?? "", confidence: score, bbox: [x1, y1, x2, y2] };
  });
}

/** By the page, on the image as it is laid: browsers scale otherwise than the node. */
async function byPage(
  { pixels, placement }: SquareImage,
  { made, bytes, classes, folder, confidence }: ExportedRun,
): Promise<Prediction[]> {
  const [height, width] = made.image_size;
  const cells = height * width;
  const data = Uint8Array.from({ length: 3 * cells }, (_, at) =>
    Math.round(255 * (pixels[(at % 3) * cells + Math.floor(at / 3)] ?? 0)),
  );
  const path = join(folder, "laid.png");
  await sharp(data, { raw: { width, height, channels: 3 } }).toFile(path);
  const { detect } = await openRunnerPage(confidence);
  const found = await detect("model.tflite", bytes, path);
  const values = Float32Array.from(found.flatMap(rowOf));
  return predictionsOf({ values, width: 6 }, { classes: [...classes], confidence, placement });
}

const rowOf = ({ box, score, class: index }: DetectedObject) => [...box, score, index];

/** By what a node verifies the file with. */
async function byReader(
  { pixels, placement }: SquareImage,
  { made, bytes, classes, folder, confidence }: ExportedRun,
): Promise<Prediction[]> {
  const path = join(folder, `model-${made.format}`);
  writeFileSync(path, bytes);
  const [height, width] = made.image_size;
  const form: FileForm = {
    size: [height, width],
    classes: classes.length,
    output: made.output === "raw" ? "raw" : "joined",
    cpuThreads: 1,
    signal: new AbortController().signal,
  };
  const open = made.format === "tflite" ? openTfliteRunner : openCoremlRunner;
  const runner: FileRunner = await open(path, form);
  try {
    const rows = rowsOfHeads(await runner.look(pixels), classes.length);
    return predictionsOf(rows, { classes: [...classes], confidence, placement });
  } finally {
    await runner.close();
  }
}
