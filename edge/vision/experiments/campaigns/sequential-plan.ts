// How many samples a sequential test will need: the fewest at which one look alone finds an effect
// of the given size with the given probability. Looking earlier, too, finds it more often. Pure.

import {
  boundedLogE,
  type MixturePlan,
  mixtureHalfWidth,
  type ShareCounts,
  sharesLogE,
} from "./sequential-test.ts";

/** What is to be found, and how surely. */
export interface EffectPlan {
  /** The size of the effect, above 0, in the units of the samples. */
  effect: number;
  /** The probability of finding one where there is none. */
  alpha: number;
  /** The probability of finding it. */
  power: number;
}

/** More samples than any experiment will get. */
export const SAMPLES_MAX = 100_000_000;
/** Samples that are kept one by one, at most. */
export const ORDERED_SAMPLES_MAX = 50_000;

/** The number of samples from which on a condition holds, between 1 and `max`; else null. */
function fewest(max: number, holds: (count: number) => boolean): number | null {
  let beyond = 2;
  while (!holds(beyond)) {
    if (beyond >= max) return null;
    beyond = Math.min(max, beyond * 2);
  }
  let short = Math.max(1, Math.floor(beyond / 2));
  // Within one in a hundred: it is an estimate.
  while (beyond - short > Math.max(1, beyond / 100)) {
    const middle = Math.floor((short + beyond) / 2);
    if (holds(middle)) beyond = middle;
    else short = middle;
  }
  return beyond;
}

const A = [
  -3.969683028665376e1, 2.209460984245205e2, -2.759285104469687e2, 1.38357751867269e2,
  -3.066479806614716e1, 2.506628277459239,
] as const;
const B = [
  -5.447609879822406e1, 1.615858368580409e2, -1.556989798598866e2, 6.680131188771972e1,
  -1.328068155288572e1, 1,
] as const;
const C = [
  -7.784894002430293e-3, -3.223964580411365e-1, -2.400758277161838, -2.549732539343734,
  4.374664141464968, 2.938163982698783,
] as const;
const D = [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1];
const TAIL = 0.02425;

const polynomial = (coefficients: readonly number[], at: number) =>
  coefficients.reduce((sum, one) => sum * at + one, 0);

/** The quantile of the normal distribution, within 1e-8 (Acklam's rational approximation). */
export function normalQuantile(probability: number): number {
  if (probability > 1 - TAIL) return -normalQuantile(1 - probability);
  if (probability < TAIL) {
    const root = Math.sqrt(-2 * Math.log(probability));
    return polynomial(C, root) / polynomial(D, root);
  }
  const centred = probability - 0.5;
  const squared = centred * centred;
  return (centred * polynomial(A, squared)) / polynomial(B, squared);
}

/**
 * Samples for a mean. `deviation` is that of one sample; of two models, that of the estimate's
 * influence function: see `splitDeviation`.
 */
export function samplesForMean(
  { effect, alpha, power }: EffectPlan,
  deviation: number,
): number | null {
  const z = normalQuantile(power);
  const variance = deviation * deviation;
  return fewest(SAMPLES_MAX, (count) => {
    const plan: MixturePlan = { alpha, tunedTo: count, deviation };
    return mixtureHalfWidth(count, variance, plan) + (z * deviation) / Math.sqrt(count) <= effect;
  });
}

/** The deviation of a difference's influence function, where a share of requests is one model's. */
export const splitDeviation = (deviation: number, candidateShare: number): number =>
  deviation / Math.sqrt(candidateShare * (1 - candidateShare));

/** Requests of both models together for a difference of shares; `share` is the baseline's. */
export function samplesForShares(
  { effect, alpha, power }: EffectPlan,
  { share, candidateShare }: { share: number; candidateShare: number },
): number | null {
  const other = share + effect <= 1 ? share + effect : share - effect;
  if (other < 0) return null;
  const z = normalQuantile(power);
  return fewest(SAMPLES_MAX, (count) => {
    const [ofCandidate, ofBaseline] = [count * candidateShare, count * (1 - candidateShare)];
    const variance = (share * (1 - share)) / ofBaseline + (other * (1 - other)) / ofCandidate;
    const found = effect - z * Math.sqrt(variance);
    if (found <= 0) return false;
    // Counts need not be whole for the likelihoods to say what they would.
    const at = share + Math.sign(other - share) * found;
    const counts = [countsOf(ofBaseline, share), countsOf(ofCandidate, at)] as const;
    return sharesLogE(...counts, 0) >= Math.log(1 / alpha);
  });
}

const countsOf = (count: number, share: number): ShareCounts => ({
  yes: count * share,
  no: count * (1 - share),
});

/** Samples for a mean of differences from -1 to 1 that are kept in their order. */
export function samplesForBounded(
  { effect, alpha, power }: EffectPlan,
  deviation: number,
): number | null {
  const z = normalQuantile(power);
  return fewest(ORDERED_SAMPLES_MAX, (count) => {
    const mean = effect - (z * deviation) / Math.sqrt(count);
    if (mean <= 0) return false;
    // Samples of this mean and deviation, the same each time.
    const samples = Array.from({ length: count }, (_, index) =>
      Math.max(-1, Math.min(1, mean + (index % 2 === 0 ? deviation : -deviation))),
    );
    return boundedLogE(samples, alpha) >= Math.log(1 / alpha);
  });
}
