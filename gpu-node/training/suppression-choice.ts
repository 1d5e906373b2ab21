// Whether a run's model is served with suppression of overlapping boxes, above which IoU, and by
// which head: chosen on the run's own validation split, by its best weights, as the best epoch is.
// The head that was trained to give one box an object still gives some twice, most of all where
// training was short; the one that learned from many anchors an object may see more of them.
//
// The rule: a way of serving is taken instead of the one before where the mean of mAP50 and
// mAP50-95 gains more than three times the gain's standard error, and at least GAIN_MIN, and
// neither is lower. In turn: the one-to-one head as it is, with suppression, the one-to-many head
// with suppression. The error is the jackknife's over ten parts of the images. Only that IoU of a
// head which has the highest mean is held to the rule.

import * as fs from "node:fs/promises";
import { setImmediate as turn } from "node:timers/promises";
import type { Detections, Engine, Evaluation } from "../../native/index.d.ts";
import type { Native } from "../../native/load.ts";
import { byHead } from "../../shared/detector/deployed-detector.ts";
import { type DetectorGraph, HEADS, type Head } from "../../shared/detector/detector.ts";
import { layPixels, type Placement, placementOf } from "../../shared/detector/letterbox.ts";
import { type Suppression, suppress, withSuppression } from "../../shared/detector/suppression.ts";
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
  /** As the network gives them: suppression comes first, and then the cut at the image's edge. */
  detections: Detections;
  truths: Float32Array;
  /** Where the image lies in its square; what is not given is not cut. */
  placement?: ImagePlacement;
}

type ImagePlacement = Pick<Placement, "left" | "top" | "laid">;

/** Average precision of detections; the engine's. */
export type Evaluate = (images: readonly LookedAt[]) => Evaluation;

/** What each head finds on the images. */
export type HeadImages = Readonly<Record<Head, readonly LookedAt[]>>;

/** A choice, and what it measures on all images. */
export interface SuppressionChoice extends Suppression {
  evaluation: Evaluation;
  /** What it adds to the mean of mAP50 and mAP50-95 over the way of serving that it replaced. */
  gain: number;
  /** The standard error of the gain. */
  error: number;
}

/** A way of serving: what stays of the detections, and what that measures. */
interface Serving {
  images: readonly LookedAt[];
  evaluation: Evaluation;
}

/** Thrown between two measurements of a run that was stopped. */
class StopSignal extends Error {
  override readonly name = "StopSignal";
}

/**
 * The suppression that gains more than noise, or null; null too once `stop` is aborted. One
 * measurement of thousands of crowded images takes seconds, so a stop is heard between any two.
 */
export async function chooseSuppression(
  looked: HeadImages,
  evaluate: Evaluate,
  stop?: AbortSignal,
): Promise<SuppressionChoice | null> {
  if (looked.one_to_one.length < IMAGES_MIN) return null;
  const measure = async (images: readonly LookedAt[]) => {
    await turn();
    if (stop?.aborted) throw new StopSignal();
    return evaluate(images);
  };
  try {
    const images = looked.one_to_one;
    let served: Serving = { images, evaluation: await measure(images) };
    let choice: SuppressionChoice | null = null;
    for (const head of HEADS) {
      const { nmsIou, ...tried } = await bestSuppressed(looked[head], measure);
      const gained = await gainOver(served, tried, measure);
      if (!gained) continue;
      served = tried;
      choice = { head, nmsIou, evaluation: tried.evaluation, ...gained };
    }
    return choice;
  } catch (thrown) {
    if (thrown instanceof StopSignal) return null;
    throw thrown;
  }
}

type Measure = (images: readonly LookedAt[]) => Promise<Evaluation>;

/** The suppression of a head that measures best. */
async function bestSuppressed(looked: readonly LookedAt[], measure: Measure) {
  const tried: (Serving & { nmsIou: number })[] = [];
  for (const nmsIou of NMS_IOUS) {
    const images = suppressedLooks(looked, nmsIou);
    tried.push({ nmsIou, images, evaluation: await measure(images) });
  }
  return tried.reduce((best, one) =>
    meanOf(one.evaluation) > meanOf(best.evaluation) ? one : best,
  );
}

/** What one way of serving gains over another; null where that is noise or costs overlap. */
async function gainOver(
  before: Serving,
  after: Serving,
  measure: Measure,
): Promise<Pick<SuppressionChoice, "gain" | "error"> | null> {
  const [old, own] = [before.evaluation, after.evaluation];
  const gain = meanOf(own) - meanOf(old);
  if (gain < GAIN_MIN || own.mAP50 < old.mAP50 || own.mAP50_95 < old.mAP50_95) return null;
  const left: number[] = [];
  for (let part = 0; part < PARTS; part++) {
    const rest = ({ images }: Serving) => images.filter((_, index) => index % PARTS !== part);
    left.push(meanOf(await measure(rest(after))) - meanOf(await measure(rest(before))));
  }
  const error = jackknifeError(left);
  return gain > ERRORS_MIN * error ? { gain, error } : null;
}

const meanOf = ({ mAP50, mAP50_95 }: Evaluation) => (mAP50 + mAP50_95) / 2;

/** Images with those of their detections that stay. */
export const suppressedLooks = (looked: readonly LookedAt[], nmsIou: number): LookedAt[] =>
  looked.map((image) => ({
    ...image,
    detections: suppressedDetections(image.detections, nmsIou),
  }));

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
  /** Works with the weights as a head of theirs predicts; a stop interrupts it. */
  const opened = async <Result>(head: Head, work: (engine: Engine) => Promise<Result>) => {
    const engine = new native.Engine({ graph: byHead(graph, head), device, threads, seed: 0 });
    const interrupt = () => engine.interrupt();
    stop.addEventListener("abort", interrupt);
    try {
      return await work(engine);
    } finally {
      stop.removeEventListener("abort", interrupt);
      await engine.close();
    }
  };
  return opened("one_to_one", async (engine) => {
    const { metadata } = await engine.load(path);
    // An earlier attempt may have chosen, and not have handed in what it chose.
    const isChosen = metadata.nms_iou !== undefined;
    if (isChosen) await engine.save(path, withSuppression(metadata, null));
    const one = await lookAt(engine, parts);
    const many = await opened("one_to_many", async (other) => {
      if (stop.aborted) return null;
      await other.load(path);
      return lookAt(other, parts);
    });
    if (!one || !many) return null;
    const evaluate: Evaluate = (of) => evaluateLooks({ native, graph }, of);
    const choice = await chooseSuppression({ one_to_one: one, one_to_many: many }, evaluate, stop);
    if (choice) await engine.save(path, withSuppression(metadata, choice));
    return choice;
  });
}

/** Average precision of detections, each cut at its image. */
export const evaluateLooks = (
  { native, graph }: Pick<ChoiceParts, "native" | "graph">,
  looked: readonly LookedAt[],
): Evaluation =>
  native.evaluateDetections({
    classes: graph.classes,
    detections: looked.map(({ detections, placement }) =>
      placement ? cutDetections(detections, placement) : detections,
    ),
    truths: looked.map(({ truths }) => truths),
  });

/** What loaded weights find on a split; null where the run was stopped. */
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
      const laid: LaidEntry[] = [];
      for (const [index, image] of group.entries()) {
        const entry = await layEntry(file, image, imageSize);
        pixels.set(entry.pixels, index * 3 * imageSize ** 2);
        laid.push(entry);
      }
      const size = { count: group.length, height: imageSize, width: imageSize };
      const found = await engine.predict({ images: pixels, ...size }, CONFIDENCE_MIN);
      for (const [index, { truths, placement }] of laid.entries()) {
        looked.push({ detections: found[index] ?? new Float32Array(), truths, placement });
      }
      onBatch();
    }
    return looked;
  } finally {
    await file.close();
  }
}

/** Detections cut at the image in its square, as the engine's evaluation and the predictor do. */
function cutDetections(detections: Detections, { left, top, laid }: ImagePlacement): Detections {
  const inside = (value: number, from: number, length: number) =>
    Math.min(from + length, Math.max(from, value));
  const cut: number[] = [];
  for (let at = 0; at < detections.length; at += ROW) {
    const [x1 = 0, y1 = 0, x2 = 0, y2 = 0, ...rest] = detections.subarray(at, at + ROW);
    const [x, right] = [inside(x1, left, laid.width), inside(x2, left, laid.width)];
    const [y, bottom] = [inside(y1, top, laid.height), inside(y2, top, laid.height)];
    if (right > x && bottom > y) cut.push(x, y, right, bottom, ...rest);
  }
  return Float32Array.from(cut);
}

interface LaidEntry {
  pixels: Float32Array;
  truths: Float32Array;
  placement: Placement;
}

/** An image of a split in its square, and its truths there. */
async function layEntry(
  file: fs.FileHandle,
  { offset, width, height, boxes }: Entry,
  side: number,
): Promise<LaidEntry> {
  const rgb = new Uint8Array(width * height * 3);
  await file.read(rgb, 0, rgb.length, offset);
  const square = { width: side, height: side };
  // Its longer side is the square's: it is moved, and not scaled.
  const placement = placementOf({ width, height }, square);
  const { left, top } = placement;
  const truths = Float32Array.from(boxes, (value, at) =>
    at % 5 === 0 ? value : value + (at % 5 === 1 || at % 5 === 3 ? left : top),
  );
  return { pixels: layPixels(rgb, placement, square), truths, placement };
}
