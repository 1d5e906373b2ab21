// Detectors with generated weights, as writers of formats take them, and what their fp32 ONNX file
// gives, anchor by anchor: what every other file is held against.

import { deployedModel } from "../../gpu-node/export/deployed-model.ts";
import { writeOnnx } from "../../gpu-node/export/detector-onnx.ts";
import type { RawHeads } from "../../gpu-node/export/verification.ts";
import { readTensors } from "../../gpu-node/export/weights-file.ts";
import { float, floats, openSession, run } from "../../gpu-node/onnx/runtime.ts";
import type { DeployedModel } from "../../shared/detector/deployed-weights.ts";
import { type DetectorTask, detectorGraph, type Variant } from "../../shared/detector/detector.ts";
import type { OnnxSize } from "../../shared/detector/detector-onnx.ts";
import { randomWeights, seeded, tensorFile } from "./weights.ts";

export const CLASSES = ["disc", "square", "star"];

export interface DetectorKind {
  variant?: Variant;
  classes?: readonly string[];
  task?: DetectorTask;
}

const generated = new Map<string, DeployedModel>();

/** A deployed detector of generated weights, made once a kind. */
export function generatedDetector({
  variant = "det26n",
  classes = CLASSES,
  task = "detection",
}: DetectorKind = {}): DeployedModel {
  const key = JSON.stringify([variant, classes, task]);
  const made = generated.get(key) ?? deployedOf({ variant, classes: [...classes], task });
  generated.set(key, made);
  return made;
}

function deployedOf(kind: Parameters<typeof deployedModel>[0]): DeployedModel {
  const { variant, classes, task } = kind;
  const file = tensorFile(randomWeights(detectorGraph(variant, classes.length, task)));
  return deployedModel(kind, readTensors(file));
}

/** An image as a model takes it: planes [3, height, width], RGB in 0 to 1; smooth, then noise. */
export function generatedPixels([height, width]: OnnxSize, seed = 1): Float32Array<ArrayBuffer> {
  const random = seeded(seed);
  return Float32Array.from({ length: 3 * height * width }, (_, at) => {
    const [row, column] = [Math.floor(at / width) % height, at % width];
    const slope = 0.5 + 0.4 * Math.sin((row * seed) / 17 + column / 23);
    return Math.min(1, Math.max(0, slope + 0.2 * (random() - 0.5)));
  });
}

/** What the fp32 ONNX file of a model gives for an image, before top-k. */
export async function onnxHeads(
  model: DeployedModel,
  size: OnnxSize,
  pixels: Float32Array,
): Promise<RawHeads> {
  const file = writeOnnx(model, { output: "raw", size, batch: 1, metadata: {} });
  return headsOfOnnx(file, size, pixels);
}

/** What a raw ONNX file gives for an image, in onnxruntime. */
export async function headsOfOnnx(
  file: Uint8Array,
  size: OnnxSize,
  pixels: Float32Array,
): Promise<RawHeads> {
  const session = await openSession(file, { cpuThreads: 1, device: "cpu" });
  try {
    const outputs = await run(session, { images: float(pixels, [1, 3, ...size]) });
    const heads = { boxes: floats(outputs, "boxes"), scores: floats(outputs, "scores") };
    if (!outputs.masks) return heads;
    return { ...heads, masks: floats(outputs, "masks"), prototypes: floats(outputs, "output1") };
  } finally {
    await session.release();
  }
}

/** The greatest difference of two lists of numbers, which has to be of one length or none. */
export function greatestDifference(
  one: Float32Array = new Float32Array(),
  other: Float32Array = new Float32Array(),
): number {
  if (one.length !== other.length) return Number.NaN;
  return one.reduce((max, value, at) => Math.max(max, Math.abs(value - (other[at] ?? 0))), 0);
}

/** The same of the boxes of anchors whose best score is above a cut, in pixels. */
export function sureBoxDifference(found: RawHeads, wanted: RawHeads, cut = 0.25): number {
  const anchors = wanted.boxes.length / 4;
  const classes = wanted.scores.length / anchors;
  let max = 0;
  for (let anchor = 0; anchor < anchors; anchor++) {
    const scores = wanted.scores.subarray(anchor * classes, (anchor + 1) * classes);
    if (!scores.some((score) => score > cut)) continue;
    const box = (heads: RawHeads) => heads.boxes.subarray(4 * anchor, 4 * anchor + 4);
    max = Math.max(max, greatestDifference(box(found), box(wanted)));
  }
  return max;
}
