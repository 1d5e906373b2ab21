// Content of the artifact `curves.json` of a training run: precision, recall and F1 of each class.

import { z } from "zod";

/** Number of points of each curve of a run, at 0, 0.01, …, 1. */
const CURVE_POINTS = 101;
const curve = () => z.array(z.number()).length(CURVE_POINTS);

/** Precision, recall and F1 of detections at IoU 0.5. */
const PrecisionRecallCurves = z.object({
  precision: curve().meta({ description: "at each of `confidences`, linear between detections" }),
  recall: curve(),
  f1: curve(),
  precision_by_recall: curve().meta({
    description:
      "at each of `recalls`, as pycocotools reads it: the mean of a class's is its mAP50",
  }),
});

/** Curves of weights, measured on the validation split. */
export const WeightsCurves = z.object({
  epoch: z.number().int().meta({ description: "epoch of the weights, from 1" }),
  confidence: z.number().meta({
    description:
      "confidence of the highest mean F1, smoothed over a tenth of the confidences: where " +
      "`precision` and `recall` of the metrics are read",
  }),
  all: PrecisionRecallCurves.meta({ description: "means over the classes that have objects" }),
  classes: z.array(
    z.object({
      class: z.string(),
      objects: z.number().int().meta({ description: "objects in the validation split" }),
      curves: PrecisionRecallCurves.nullable().meta({ description: "null without an object" }),
    }),
  ),
});
export type WeightsCurves = z.infer<typeof WeightsCurves>;

/** Name of the artifact that holds a run's curves. */
export const CURVES = "curves.json";

/** Content of the artifact `curves.json`. */
export const RunCurves = z.object({
  confidences: curve(),
  recalls: curve(),
  best_epoch: WeightsCurves.nullable().meta({
    description: "of the best epoch, as epochs are measured; null where no epoch was",
  }),
  model: WeightsCurves.nullable().meta({
    description:
      "of the registered model as it is served, with suppression where the run chose it; null " +
      "where there is no model, or its validation was not finished",
  }),
});
export type RunCurves = z.infer<typeof RunCurves>;
