// Confidences of detections, counted in bins of one width from 0 to 1: of a model's validation, and
// of what it finds in use. The training engine counts in the same bins (`native/src/metrics.h`).

import { z } from "zod";

export const CONFIDENCE_BINS = 20;

/** How many detections there are in each bin, the least confident first. */
export const ConfidenceBins = z
  .array(z.number().int().min(0).max(Number.MAX_SAFE_INTEGER))
  .length(CONFIDENCE_BINS);
export type ConfidenceBins = z.infer<typeof ConfidenceBins>;

const binOf = (confidence: number): number =>
  Math.min(CONFIDENCE_BINS - 1, Math.max(0, Math.floor(confidence * CONFIDENCE_BINS + 1e-9)));

/** Confidences by bin. */
export function confidenceBins(confidences: readonly number[]): ConfidenceBins {
  const bins = new Array<number>(CONFIDENCE_BINS).fill(0);
  for (const confidence of confidences)
    bins[binOf(confidence)] = (bins[binOf(confidence)] ?? 0) + 1;
  return bins;
}
