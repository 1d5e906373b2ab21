// Whether a run's model is served with suppression of overlapping boxes, and above which IoU:
// chosen on the run's own validation split, by its best weights, as the best epoch is. A head that
// was trained to give one box an object still gives some twice, most of all where training was
// short.
//
// The rule: suppression is taken where it gains more mAP50 than three times the gain's standard
// error, and at least GAIN_MIN, and mAP50-95 is no lower. The error is the jackknife's over ten
// parts of the images. Of the IoUs that which has the highest sum of both figures is held to the
// rule.

import * as fs from "node:fs/promises";
import type { Detections, Engine, Evaluation } from "../../native/index.d.ts";
import type { Native } from "../../native/load.ts";
import type { DetectorGraph } from "../../shared/detector.ts";
import { layPixels, placementOf } from "../../shared/letterbox.ts";
import { suppress, withSuppression } from "../../shared/suppression.ts";
import type { Entry, SplitData } from "./dataset.ts";
import type { Hardware } from "./start.ts";

/** What is tried. Below it neighbours in a crowd are lost, above it hardly a box is suppressed. */
export const NMS_IOUS = [0.5, 0.6, 0.7, 0.8] as const;
const PARTS = 10;
/** With fewer images no error can be told. */
const IMAGES_MIN = 2 * PARTS;
const ERRORS_MIN = 3;
const GAIN_MIN = 0.002;
/** As in the engine's evaluation. */
const CONFIDENCE_MIN = 0.001;
const ROW = 6;

/** An image of the validation split: six numbers a detection, five a truth. */
export interface LookedAt {
  detections: Detections;
  truths: Float32Array;
}

/** Average precision of detections; the engine's. */
export type Evaluate = (images: readonly LookedAt[]) => Evaluation;

/** A choice, and what it measures on all images. */
export interface SuppressionChoice {
  nmsIou: number;
  evaluation: Evaluation;
  /** What suppression adds to mAP50. */
  gain: number;
  /** The standard error of the gain. */
  error: number;
}

/** The suppression that gains more than noise, or null. */
export function chooseSuppression(
  images: readonly LookedAt[],
  evaluate: Evaluate,
): SuppressionChoice | null {
  if (images.length < IMAGES_MIN) return null;
  const without = evaluate(images);
  const [best] = NMS_IOUS.map((nmsIou) => {
    const suppressed = images.map(({ detections, truths }) => ({
      detections: suppressedDetections(detections, nmsIou),
      truths,
    }));
    return { nmsIou, suppressed, evaluation: evaluate(suppressed) };
  }).sort((one, other) => sumOf(other.evaluation) - sumOf(one.evaluation));
  if (!best) return null;
  const { nmsIou, suppressed, evaluation } = best;
  const gain = evaluation.mAP50 - without.mAP50;
  if (gain < GAIN_MIN || evaluation.mAP50_95 < without.mAP50_95) return null;
  const left = Array.from({ length: PARTS }, (_, part) => {
    const rest = (all: readonly LookedAt[]) => all.filter((_, index) => index % PARTS !== part);
    return evaluate(rest(suppressed)).mAP50 - evaluate(rest(images)).mAP50;
  });
  const error = jackknifeError(left);
  return gain > ERRORS_MIN * error ? { nmsIou, evaluation, gain, error } : null;
}

const sumOf = ({ mAP50, mAP50_95 }: Evaluation) => mAP50 + mAP50_95;

/** The detections of an image that stay. */
export function suppressedDetections(detections: Detections, nmsIou: number): Detections {
  const { values } = suppress({ values: detections, width: ROW }, nmsIou);
  // What is suppressed lies behind what stays, with a score of 0.
  let end = 0;
  while (end < values.length && (values[end + 4] as number) > 0) end += ROW;
  return values.subarray(0, end);
}

/** The standard error of a figure of all parts, by what it is without each. */
export function jackknifeError(left: readonly number[]): number {
  const mean = left.reduce((sum, one) => sum + one, 0) / left.length;
  const squares = left.reduce((sum, one) => sum + (one - mean) ** 2, 0);
  return Math.sqrt((squares * (left.length - 1)) / left.length);
}

export interface ChoiceParts {
  native: Native;
  graph: DetectorGraph;
  hardware: Pick<Hardware, "device" | "threads">;
  val: SplitData;
  imageSize: number;
  /** Images that are looked at together. */
  batch: number;
  stop: AbortSignal;
  /** Between two batches. */
  onBatch(): void;
}

/**
 * Chooses for weights, and writes the choice into the metadata of their file. Null, and a file that
 * says nothing of suppression, where it gains nothing, or where the run was stopped meanwhile.
 */
export async function writeSuppression(
  path: string,
  parts: ChoiceParts,
): Promise<SuppressionChoice | null> {
  const { native, graph, hardware, val, stop } = parts;
  if (val.images.length < IMAGES_MIN) return null;
  const { device, threads } = hardware;
  const engine = new native.Engine({ graph, device, threads, seed: 0 });
  const interrupt = () => engine.interrupt();
  stop.addEventListener("abort", interrupt);
  try {
    const { metadata } = await engine.load(path);
    // An earlier attempt may have chosen, and not have handed in what it chose.
    const isChosen = metadata.nms_iou !== undefined;
    if (isChosen) await engine.save(path, withSuppression(metadata, null));
    if (stop.aborted) return null;
    const images = await lookAt(engine, parts);
    if (!images) return null;
    const choice = chooseSuppression(images, (of) =>
      native.evaluateDetections({
        classes: graph.classes,
        detections: of.map(({ detections }) => detections),
        truths: of.map(({ truths }) => truths),
      }),
    );
    if (choice) await engine.save(path, withSuppression(metadata, choice.nmsIou));
    return choice;
  } finally {
    stop.removeEventListener("abort", interrupt);
    await engine.close();
  }
}

/** What loaded weights find on a validation split; null where the run was stopped. */
export async function lookAt(
  engine: Pick<Engine, "predict">,
  {
    val,
    imageSize,
    batch,
    stop,
    onBatch,
  }: Pick<ChoiceParts, "val" | "imageSize" | "batch" | "stop" | "onBatch">,
): Promise<LookedAt[] | null> {
  const looked: LookedAt[] = [];
  const file = await fs.open(val.path);
  try {
    for (let first = 0; first < val.images.length; first += batch) {
      if (stop.aborted) return null;
      const group = val.images.slice(first, first + batch);
      const pixels = new Float32Array(group.length * 3 * imageSize ** 2);
      const truths: Float32Array[] = [];
      for (const [index, image] of group.entries()) {
        const laid = await layEntry(file, image, imageSize);
        pixels.set(laid.pixels, index * 3 * imageSize ** 2);
        truths.push(laid.truths);
      }
      const size = { count: group.length, height: imageSize, width: imageSize };
      const found = await engine.predict({ images: pixels, ...size }, CONFIDENCE_MIN);
      for (const [index, detections] of found.entries()) {
        looked.push({ detections, truths: truths[index] ?? new Float32Array() });
      }
      onBatch();
    }
    return looked;
  } finally {
    await file.close();
  }
}

/** An image of a split in its square, and its truths there. */
async function layEntry(
  file: fs.FileHandle,
  { offset, width, height, boxes }: Entry,
  side: number,
): Promise<{ pixels: Float32Array; truths: Float32Array }> {
  const rgb = new Uint8Array(width * height * 3);
  await file.read(rgb, 0, rgb.length, offset);
  const square = { width: side, height: side };
  // Its longer side is the square's: it is moved, and not scaled.
  const placement = placementOf({ width, height }, square);
  const { left, top } = placement;
  const truths = Float32Array.from(boxes, (value, at) =>
    at % 5 === 0 ? value : value + (at % 5 === 1 || at % 5 === 3 ? left : top),
  );
  return { pixels: layPixels(rgb, placement, square), truths };
}
