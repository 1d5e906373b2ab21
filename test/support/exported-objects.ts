// What exported files find on an image file, each by the runner of its format: Node's for ONNX,
// LiteRT in its child process, our reader of Core ML packages, and onnxruntime for what lies in a
// TensorRT bundle.

import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { openCoremlRunner } from "../../gpu-node/export/coreml-runner.ts";
import type { FileForm, FileRunner } from "../../gpu-node/export/file-runner.ts";
import { openTfliteRunner } from "../../gpu-node/export/tflite-runner.ts";
import { rowsOfHeads } from "../../gpu-node/export/verification.ts";
import { readStill } from "../../gpu-node/media/stills.ts";
import { ZipReader } from "../../gpu-node/objects/zip-reader.ts";
import { float, floats, openSession, run } from "../../gpu-node/onnx/runtime.ts";
import { letterbox } from "../../gpu-node/serving/letterbox.ts";
import type { ModelExport } from "../../shared/exports.ts";
import { type DetectionRows, predictionsOf } from "../../shared/letterbox.ts";
import type { Prediction } from "../../shared/tasks.ts";

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
  const { made, bytes, classes, folder, confidence } = wanted;
  const path = join(folder, `model-${made.format}`);
  writeFileSync(path, bytes);
  if (made.format === "onnx") return byNode(path, wanted);
  const [height, width] = made.image_size;
  const image = await readStill(wanted.imagePath);
  const { pixels, placement } = await letterbox(image, { width, height });
  const rows = await rowsBy(path, pixels, wanted);
  return predictionsOf(rows, { classes: [...classes], confidence, placement });
}

/** By the program that users copy. */
async function byNode(
  path: string,
  { imagePath, classes, confidence }: ExportedRun,
): Promise<Prediction[]> {
  const args = [NODE_RUNNER, path, imagePath, String(confidence)];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  const lines = stdout.split("\n").filter(Boolean);
  return lines.map((line) => {
    const { class: index, score, box } = JSON.parse(line);
    return { class: classes[index] ?? "", confidence: score, bbox: box };
  });
}

async function rowsBy(
  path: string,
  pixels: Float32Array,
  { made, classes }: ExportedRun,
): Promise<DetectionRows> {
  const [height, width] = made.image_size;
  if (made.format === "tensorrt") return rowsOfBundle(path, pixels, made.image_size);
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
    return rowsOfHeads(await runner.look(pixels), classes.length);
  } finally {
    await runner.close();
  }
}

async function rowsOfBundle(
  path: string,
  pixels: Float32Array,
  [height, width]: readonly [number, number],
): Promise<DetectionRows> {
  const zip = await ZipReader.open(path);
  const chunks: Uint8Array[] = [];
  for await (const chunk of await zip.stream("model.onnx")) chunks.push(chunk);
  zip.close();
  const session = await openSession(Buffer.concat(chunks), { cpuThreads: 1, device: "cpu" });
  try {
    const outputs = await run(session, { images: float(pixels, [1, 3, height, width]) });
    return { values: floats(outputs, "output0").slice(), width: 6 };
  } finally {
    await session.release();
  }
}
