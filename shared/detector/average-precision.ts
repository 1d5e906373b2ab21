// Precision, recall and average precision of detections by COCO's rules, as pycocotools computes
// them for boxes: in order of confidence each detection takes the free truth that it overlaps most,
// anew at each threshold; precision is read at 101 recalls. There are no crowds and no areas here:
// an import leaves crowds out, and what is to be ignored. Pure.

import type { Bbox } from "../shapes.ts";
import { iou } from "./tracks.ts";

/** A box that was found, and how sure whoever found it is. */
export interface ScoredBox {
  bbox: Bbox;
  confidence: number;
}

/** What an image has of one class. */
export interface ClassImage {
  truths: readonly Bbox[];
  detections: readonly ScoredBox[];
}

/** How well one class was found. */
export interface ClassFigures {
  truths: number;
  /** Detections at or above the confidence that was asked for. */
  detections: number;
  /** Those of them that found a truth at the IoU that was asked for. */
  truePositives: number;
  /** Average precision over all detections, at an IoU of 0.5; null without a truth. */
  ap50: number | null;
  /** The mean at IoUs from 0.5 to 0.95; null without a truth. */
  ap50To95: number | null;
}

/** Detections of a class that COCO counts on an image, the surest. */
export const DETECTIONS_MAX = 100;
/** As numpy's `linspace(0.5, 0.95, 10)` and `linspace(0, 1, 101)`, to the last digit. */
const THRESHOLDS = Array.from({ length: 10 }, (_, at) =>
  at === 9 ? 0.95 : 0.5 + at * ((0.95 - 0.5) / 9),
);
const RECALLS = Array.from({ length: 101 }, (_, at) => (at === 100 ? 1 : at * 0.01));

/**
 * The figures of a class over images; confidences that are equal count in the images' order.
 * `confidenceMin` and `iouMin` are those at which detections are counted.
 */
export function classFigures(
  images: readonly ClassImage[],
  confidenceMin: number,
  iouMin = 0.5,
): ClassFigures {
  const truths = images.reduce((sum, image) => sum + image.truths.length, 0);
  let [detections, truePositives] = [0, 0];
  const ranked = images.map((image) => rank(image, truths));
  for (const image of ranked) {
    const sure = image.confidences.filter((confidence) => confidence >= confidenceMin).length;
    detections += sure;
    truePositives += hits(image, sure, iouMin).filter(Boolean).length;
  }
  const aps =
    truths === 0 ? [] : THRESHOLDS.map((threshold) => averagePrecision(ranked, threshold));
  const mean = aps.reduce((sum, ap) => sum + ap, 0) / aps.length;
  return {
    truths,
    detections,
    truePositives,
    ap50: aps[0] ?? null,
    ap50To95: aps.length > 0 ? mean : null,
  };
}

/** A detection, and whether it found a truth at an IoU of 0.5. */
export interface DetectionOutcome {
  confidence: number;
  hit: boolean;
}

/** What became of each detection of a class; those less sure change nothing for the surer ones. */
export const outcomesOf = (images: readonly ClassImage[]): DetectionOutcome[] =>
  images.flatMap((image) => {
    const ranked = rank(image, image.truths.length);
    const found = hits(ranked, ranked.confidences.length, 0.5);
    return found.map((hit, at) => ({ hit, confidence: ranked.confidences[at] as number }));
  });

interface RankedImage {
  /** Falling. */
  confidences: number[];
  /** By detection, then by truth. */
  overlaps: Float64Array;
  truths: number;
  /** Truths of the class in all images. */
  truthsInAll: number;
}

function rank({ truths, detections }: ClassImage, truthsInAll: number): RankedImage {
  const order = detections.toSorted((one, other) => other.confidence - one.confidence);
  const overlaps = new Float64Array(order.length * truths.length);
  for (const [at, { bbox }] of order.entries()) {
    for (const [index, truth] of truths.entries()) {
      overlaps[at * truths.length + index] = iou(bbox, truth);
    }
  }
  const confidences = order.map(({ confidence }) => confidence);
  return { confidences, overlaps, truths: truths.length, truthsInAll };
}

/** Which of an image's surest detections find a truth; of truths alike the last one is taken. */
function hits({ overlaps, truths }: RankedImage, count: number, iouMin: number): boolean[] {
  const taken = new Uint8Array(truths);
  return Array.from({ length: count }, (_, at) => {
    let [best, chosen] = [Math.min(iouMin, 1 - 1e-10), -1];
    for (let index = 0; index < truths; index++) {
      const overlap = overlaps[at * truths + index] as number;
      if (taken[index] || overlap < best) continue;
      [best, chosen] = [overlap, index];
    }
    if (chosen >= 0) taken[chosen] = 1;
    return chosen >= 0;
  });
}

/** Falling confidences' recalls, and the best precision from each on. */
interface Curve {
  recalls: number[];
  precisions: number[];
}

function curveOf(images: readonly RankedImage[], iouMin: number): Curve {
  const all = images
    .flatMap((image) => {
      const found = hits(image, Math.min(image.confidences.length, DETECTIONS_MAX), iouMin);
      return found.map((hit, at) => ({ hit, confidence: image.confidences[at] as number }));
    })
    .sort((one, other) => other.confidence - one.confidence);
  const truths = images[0]?.truthsInAll ?? 0;
  let found = 0;
  const recalls: number[] = [];
  const precisions: number[] = [];
  for (const [at, { hit }] of all.entries()) {
    found += Number(hit);
    recalls.push(found / truths);
    precisions.push(found / (at + 1));
  }
  for (let at = precisions.length - 1; at > 0; at--) {
    precisions[at - 1] = Math.max(precisions[at - 1] as number, precisions[at] as number);
  }
  return { recalls, precisions };
}

function averagePrecision(images: readonly RankedImage[], iouMin: number): number {
  const { recalls, precisions } = curveOf(images, iouMin);
  let position = 0;
  let sum = 0;
  for (const recall of RECALLS) {
    while (position < recalls.length && (recalls[position] as number) < recall) position += 1;
    sum += precisions[position] ?? 0;
  }
  return sum / RECALLS.length;
}

/**
 * The best precision of a class over images at which at least so much of its truth is found, at an
 * IoU of 0.5; 0 where it never is, null without a truth.
 */
export function precisionAtRecall(images: readonly ClassImage[], recall: number): number | null {
  const truths = images.reduce((sum, image) => sum + image.truths.length, 0);
  if (truths === 0) return null;
  const ranked = images.map((image) => rank(image, truths));
  const { recalls, precisions } = curveOf(ranked, 0.5);
  const position = recalls.findIndex((reached) => reached >= recall);
  return position < 0 ? 0 : (precisions[position] as number);
}
