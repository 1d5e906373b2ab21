// How well a file of lower precision finds what people labeled, beside its model in single
// precision, and from which score on it is as precise as that. Pure.

import {
  type ClassImage,
  classFigures,
  type DetectionOutcome,
  outcomesOf,
} from "../../shared/detector/average-precision.ts";
import { accuracyDropMax, type ExportPrecision } from "../../shared/detector/export-formats.ts";
import type { Bbox, Prediction } from "../../shared/tasks/tasks.ts";
import type { ExportAccuracy } from "../../shared/wire/exports.ts";
import { OBJECT_SCORE } from "./verification.ts";

/** An image with what is on it, and what the file and the model found there, in its pixels. */
export interface JudgedImage {
  truths: readonly { className: string; bbox: Bbox }[];
  file: readonly Prediction[];
  model: readonly Prediction[];
}

/** Scores that are recommended, in hundredths. */
const [HUNDREDTH_MIN, HUNDREDTH_MAX] = [5, 95];
/** Precisions that are so near are the same: one object among two hundred. */
const PRECISION_NEAR = 0.005;

/** Null where people labeled nothing on the images. */
export function accuracyOf(
  images: readonly JudgedImage[],
  { classes, precision }: { classes: readonly string[]; precision: ExportPrecision },
): ExportAccuracy | null {
  const truths = images.reduce((sum, image) => sum + image.truths.length, 0);
  if (truths === 0) return null;
  const [file, model] = [meansOf(images, classes, "file"), meansOf(images, classes, "model")];
  return {
    images: images.length,
    truths,
    map50: file.map50,
    map50_95: file.map50To95,
    model_map50: model.map50,
    model_map50_95: model.map50To95,
    drop_max: accuracyDropMax(precision, "map50_95", truths),
  };
}

/** Means over the classes that people labeled. */
function meansOf(
  images: readonly JudgedImage[],
  classes: readonly string[],
  of: "file" | "model",
): { map50: number; map50To95: number } {
  const figures = classes
    .map((name) => classFigures(imagesOf(images, name, of), OBJECT_SCORE))
    .filter(({ truths }) => truths > 0);
  const mean = (values: readonly (number | null)[]) =>
    values.reduce<number>((sum, value) => sum + (value ?? 0), 0) / values.length;
  return {
    map50: mean(figures.map(({ ap50 }) => ap50)),
    map50To95: mean(figures.map(({ ap50To95 }) => ap50To95)),
  };
}

const imagesOf = (
  images: readonly JudgedImage[],
  className: string,
  of: "file" | "model",
): ClassImage[] =>
  images.map((image) => ({
    truths: image.truths.filter((one) => one.className === className).map(({ bbox }) => bbox),
    detections: image[of].filter((one) => one.class === className),
  }));

/**
 * The score from which on the file is as precise as the model from 0.25 on: of those that are, the
 * one nearest to 0.25. Null where the model finds nothing, or nothing that people labeled.
 */
export function recommendedConfidence(
  images: readonly JudgedImage[],
  classes: readonly string[],
): number | null {
  const outcomes = (of: "file" | "model") =>
    classes.flatMap((name) => outcomesOf(imagesOf(images, name, of)));
  const wanted = precisionAt(outcomes("model"), OBJECT_SCORE);
  if (!wanted) return null;
  const file = outcomes("file");
  let best: { score: number; off: number } | null = null;
  for (let hundredths = HUNDREDTH_MIN; hundredths <= HUNDREDTH_MAX; hundredths++) {
    const score = hundredths / 100;
    const precision = precisionAt(file, score);
    if (precision === null) break;
    const off = Math.max(PRECISION_NEAR, Math.abs(precision - wanted));
    const nearer = best && Math.abs(score - OBJECT_SCORE) < Math.abs(best.score - OBJECT_SCORE);
    if (!best || off < best.off || (off === best.off && nearer)) best = { score, off };
  }
  return best?.score ?? null;
}

/** The share of detections from a score on that found a truth; null without any. */
function precisionAt(outcomes: readonly DetectionOutcome[], scoreMin: number): number | null {
  const sure = outcomes.filter(({ confidence }) => confidence >= scoreMin);
  return sure.length === 0 ? null : sure.filter(({ hit }) => hit).length / sure.length;
}
