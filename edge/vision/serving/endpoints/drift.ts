// How far the confidences of a model's detections have moved: from those of its validation, or
// of models that were registered without these, from those of its first predictions. It is told
// by the population stability index, PSI = Σ (p - q) · ln(p / q) over bins, p the shares now and
// q those of the reference. Its bounds 0.1 and 0.25 are the field's rule of thumb (Siddiqi,
// "Credit Risk Scorecards", 2006). Samples of one distribution give (1/n + 1/m) times a χ² of
// bins - 1 degrees of freedom (Yurdakul, "Statistical Properties of Population Stability Index",
// Western Michigan University, 2018), which tells what chance does.

import type { Drift } from "../../../../shared/wire/endpoints.ts";
import type { ModelRow } from "../../models/registry.ts";
import { DRIFT_BINS, driftPart } from "./rollups.ts";

/** Detections of a model's first predictions that are its reference. */
export const REFERENCE_DETECTIONS = 1_000;
/** Fewer detections than this tell nothing, be they of the validation or in use. */
const DETECTIONS_MIN = 200;
const MODERATE = 0.1;
const LARGE = 0.25;
/** Added to each bin, so that an empty one is no infinity: Jeffreys' prior. */
const PRIOR = 0.5;
/**
 * What a χ² of 14 degrees of freedom, one less than there are bins, exceeds once in twenty times.
 */
const CHI_SQUARE_95 = 23.685;

const totalOf = (bins: readonly number[]) => bins.reduce((sum, count) => sum + count, 0);

/** The shares of bins, none of them 0. */
export function sharesOf(bins: readonly number[]): number[] {
  const total = totalOf(bins) + PRIOR * bins.length;
  return bins.map((count) => (count + PRIOR) / total);
}

/** The population stability index of two shares of the same bins; 0 where they are alike. */
export function stabilityIndex(now: readonly number[], reference: readonly number[]): number {
  return now.reduce((sum, share, bin) => {
    const other = reference[bin] ?? 0;
    return sum + (share - other) * Math.log(share / other);
  }, 0);
}

/** What a model's detections are held against, where the registry has it; else null. */
export function validationReference({
  confidenceBins,
}: Pick<ModelRow, "confidenceBins">): number[] | null {
  const bins = driftPart(confidenceBins ?? []);
  // A small validation split tells less than the first predictions do.
  return totalOf(bins) >= DETECTIONS_MIN ? bins : null;
}

/** Detections of one meter: those of the model's first predictions there, and those since. */
export interface DriftSample {
  reference: readonly number[];
  now: readonly number[];
}

/**
 * The drift of a model over several meters. Without a validation each one's reference counts by
 * its part in what came since: that traffic moved from one endpoint to another is no drift of
 * the model.
 */
export function driftOf(
  modelId: string,
  samples: readonly DriftSample[],
  validation: readonly number[] | null,
): Drift {
  const whole = validation
    ? samples.map(({ now }) => ({ reference: validation, now }))
    : samples.filter(({ reference }) => totalOf(reference) >= REFERENCE_DETECTIONS);
  const count = whole.reduce((sum, { now }) => sum + totalOf(now), 0);
  const referenceCount = validation
    ? totalOf(validation)
    : whole.reduce((sum, { reference }) => sum + totalOf(reference), 0);
  const common = {
    model_id: modelId,
    reference: validation ? ("validation" as const) : ("first_predictions" as const),
    reference_count: referenceCount,
    count,
  };
  if (count < DETECTIONS_MIN) {
    return { ...common, psi: null, psi_by_chance: null, verdict: "unknown" };
  }
  const now = new Array<number>(DRIFT_BINS).fill(0);
  const expected = new Array<number>(DRIFT_BINS).fill(0);
  for (const sample of whole) {
    const part = totalOf(sample.now) / count;
    for (const [bin, share] of sharesOf(sample.reference).entries()) {
      expected[bin] = (expected[bin] ?? 0) + part * share;
      now[bin] = (now[bin] ?? 0) + (sample.now[bin] ?? 0);
    }
  }
  const psi = stabilityIndex(sharesOf(now), expected);
  const byChance = CHI_SQUARE_95 * (1 / count + 1 / referenceCount);
  return { ...common, psi, psi_by_chance: byChance, verdict: verdictOf(psi, byChance) };
}

function verdictOf(psi: number, byChance: number): Drift["verdict"] {
  if (psi < MODERATE || psi <= byChance) return "stable";
  return psi < LARGE ? "moderate" : "large";
}
