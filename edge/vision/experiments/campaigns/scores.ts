// What a model's detections on one reviewed frame are worth, 0 to 1. A frame's detections of all
// classes are ranked together, and each finds truth of its own class only. Pure.

import {
  type ClassImage,
  classFigures,
  precisionAtRecall,
} from "../../../../shared/detector/average-precision.ts";
import type { Bbox, Prediction } from "../../../../shared/tasks/tasks.ts";
import type { ExperimentMetric, ExperimentRules } from "./records.ts";

/** An object that a reviewer left on a frame. */
export interface TruthBox {
  class: string;
  bbox: Bbox;
}

/** Pixels that classes are moved apart by: boxes of two classes have nothing in common. */
const APART = 1_000_000;

/**
 * The worth of detections. Of a frame without truth it is 1 where nothing is told, else 0; where
 * nothing is told and there is truth, 0.
 */
export function frameScore(
  { metric, rules }: { metric: ExperimentMetric; rules: ExperimentRules },
  truth: readonly TruthBox[],
  detections: readonly Prediction[],
): number {
  const confidence = rules.confidence ?? 0;
  const told = detections.filter((one) => one.confidence >= confidence);
  if (truth.length === 0) return told.length === 0 ? 1 : 0;
  const image = imageOf(truth, detections);
  if (metric === "precision_at_recall") return precisionAtRecall([image], rules.recall ?? 0) ?? 0;
  const { truePositives, detections: count, ap50To95 } = classFigures([image], confidence);
  if (metric === "ap50_95") return ap50To95 ?? 0;
  // Acceptance: of what is told, what a reviewer left or drew himself.
  return count === 0 ? 0 : truePositives / count;
}

function imageOf(truth: readonly TruthBox[], detections: readonly Prediction[]): ClassImage {
  const names = [...new Set([...truth, ...detections].map(({ class: name }) => name))];
  const moved = ({ class: name, bbox: [x1, y1, x2, y2] }: TruthBox): Bbox => {
    const by = names.indexOf(name) * APART;
    return [x1 + by, y1, x2 + by, y2];
  };
  return {
    truths: truth.map(moved),
    detections: detections.map((one) => ({ bbox: moved(one), confidence: one.confidence })),
  };
}
