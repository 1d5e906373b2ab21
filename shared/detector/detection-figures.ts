// Precision, recall and average precision as wires tell them: of one class, and of all together.
// Pure.

import type { ClassFigures } from "./average-precision.ts";

/** How well something was found; a figure without what it is a share of is null. */
export interface DetectionFigures {
  truths: number;
  /** At or above the confidence that was asked for. */
  detections: number;
  true_positives: number;
  false_positives: number;
  false_negatives: number;
  precision: number | null;
  recall: number | null;
  ap50: number | null;
  ap50_95: number | null;
}

const share = (part: number, whole: number) => (whole === 0 ? null : part / whole);

/** The figures of a class. */
export const figuresOf = ({
  truths,
  detections,
  truePositives,
  ap50,
  ap50To95,
}: ClassFigures): DetectionFigures => ({
  truths,
  detections,
  true_positives: truePositives,
  false_positives: detections - truePositives,
  false_negatives: truths - truePositives,
  precision: share(truePositives, detections),
  recall: share(truePositives, truths),
  ap50,
  ap50_95: ap50To95,
});

/** Counts of all classes together; average precision is the mean of those that have truths. */
export function overallFigures(perClass: readonly ClassFigures[]): DetectionFigures {
  const sum = (pick: (one: ClassFigures) => number) =>
    perClass.reduce((total, one) => total + pick(one), 0);
  const mean = (values: readonly (number | null)[]) => {
    const known = values.filter((value) => value !== null);
    return known.length === 0 ? null : known.reduce((a, b) => a + b, 0) / known.length;
  };
  return figuresOf({
    truths: sum(({ truths }) => truths),
    detections: sum(({ detections }) => detections),
    truePositives: sum(({ truePositives }) => truePositives),
    ap50: mean(perClass.map(({ ap50 }) => ap50)),
    ap50To95: mean(perClass.map(({ ap50To95 }) => ap50To95)),
  });
}
