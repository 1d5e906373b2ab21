// A run's curves by class: the content of its artifact `curves.json`.

import type { RunCurves, WeightsCurves } from "../../shared/wire/run-curves.ts";
import type { Scores } from "./run-charts.ts";

type Curves = WeightsCurves["all"];

const POINTS = Array.from({ length: 101 }, (_, index) => index / 100);
const digits = (value: number) => Number(value.toFixed(4));

/** Values at each point of the given curves, averaged; zeros without a curve. */
const meanOf = (curves: readonly (readonly number[])[]): number[] =>
  POINTS.map((_, index) => {
    const sum = curves.reduce((total, curve) => total + (curve[index] ?? 0), 0);
    return digits(sum / Math.max(1, curves.length));
  });

/** Curves of weights; null where their scores were kept by a release without curves. */
export function curvesOf(
  scores: Scores,
  { classes, epoch }: { classes: readonly string[]; epoch: number },
): WeightsCurves | null {
  if (scores.perClass.some((own) => own && !own.curves)) return null;
  const all = classes.map((name, index) => {
    const own = scores.perClass[index];
    if (!own?.curves) return { class: name, objects: own?.truths ?? 0, curves: null };
    const { precisionByRecall, ...byConfidence } = own.curves;
    const curves: Curves = { ...byConfidence, precision_by_recall: precisionByRecall };
    return { class: name, objects: own.truths, curves };
  });
  const counted = all.flatMap(({ curves }) => (curves ? [curves] : []));
  const mean = (of: keyof Curves) => meanOf(counted.map((curves) => curves[of]));
  return {
    epoch,
    confidence: digits(scores.confidence),
    all: {
      precision: mean("precision"),
      recall: mean("recall"),
      f1: mean("f1"),
      precision_by_recall: mean("precision_by_recall"),
    },
    classes: all,
  };
}

/** The artifact's content; null where nothing was measured. */
export function curvesFile(of: Pick<RunCurves, "best_epoch" | "model">): string | null {
  if (!of.best_epoch && !of.model) return null;
  const curves: RunCurves = { confidences: POINTS, recalls: POINTS, ...of };
  return `${JSON.stringify(curves)}\n`;
}
