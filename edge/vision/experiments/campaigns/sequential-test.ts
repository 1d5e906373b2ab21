// Tests that may be looked at at any time: however often somebody looks, and whenever he stops, the
// interval holds the truth with probability 1 - alpha. Each is a test supermartingale (Ville's
// inequality), of the kind that its data ask for:
//
// - Shares of yes and no (`compareShares`, `shareLow`): exact, by a mixture of binomial likelihoods
//   over a beta prior (Robbins, Ann. Math. Stat. 41(5), 1970; Howard, Ramdas, McAuliffe and Sekhon,
//   Ann. Stat. 49(2), 2021).
// - Means of bounded numbers in the order in which they came (`boundedDifference`): exact, by
//   betting against each mean (Waudby-Smith and Ramdas, JRSS-B 86(1), 2024, the hedged capital with
//   predictable plug-in bets).
// - Means of which only sums are kept (`compareMeans`, `meanDifference`): by the normal mixture,
//   asymptotically, as the central limit theorem is (Waudby-Smith, Arbour, Sinha, Kennedy and
//   Ramdas, Ann. Stat. 52(6), 2024; the mSPRT of Johari, Koomen, Pekelis and Walsh, 2017).
//
// An e-value is what a stake of 1 against "there is no difference" has become; it is at least
// 1 / alpha with probability alpha at most. Pure.

/** What the data say of a difference, however often they were looked at. */
export interface Evidence {
  /** The difference as it was measured; null before there are enough samples. */
  estimate: number | null;
  /** The interval that holds the difference at all times with probability 1 - alpha. */
  low: number;
  high: number;
  /** The logarithm of the e-value against "no difference". */
  logE: number;
}

/** Answers of yes or no, counted. */
export interface ShareCounts {
  yes: number;
  no: number;
}

/** Numbers, as the sums that their mean and variance need. */
export interface Moments {
  count: number;
  sum: number;
  /** Sum of the squares. */
  squares: number;
}

const BISECTIONS = 60;
/** Jeffreys' prior: its mixture is tight for shares near 0 and 1, too. */
const PRIOR = 0.5;

/** The logarithm of the gamma function for positive numbers (Lanczos, g = 7). */
export function logGamma(x: number): number {
  let series = LANCZOS[0] as number;
  for (let index = 1; index < LANCZOS.length; index++) {
    series += (LANCZOS[index] as number) / (x - 1 + index);
  }
  const shifted = x + 6.5;
  return HALF_LOG_2PI + (x - 0.5) * Math.log(shifted) - shifted + Math.log(series);
}

const HALF_LOG_2PI = 0.9189385332046728;
const LANCZOS = [
  0.9999999999998099, 676.5203681218851, -1259.1392167224028, 771.3234287776531, -176.6150291621406,
  12.507343278686905, -0.13857109526572012, 9.984369578019572e-6, 1.5056327351493116e-7,
] as const;

/** The logarithm of the beta function. */
const logBeta = (a: number, b: number) => logGamma(a) + logGamma(b) - logGamma(a + b);

/** The mixture's logarithm, which a share's likelihood is held against. */
const logMixture = ({ yes, no }: ShareCounts): number =>
  logBeta(PRIOR + yes, PRIOR + no) - logBeta(PRIOR, PRIOR);

/** `count * log(share)`, which is 0 where nothing was counted. */
const weighted = (count: number, share: number) => (count === 0 ? 0 : count * Math.log(share));

/** The logarithm of the likelihood of counts at a share. */
const logLikelihood = ({ yes, no }: ShareCounts, share: number): number =>
  weighted(yes, share) + weighted(no, 1 - share);

/** The logarithm of the e-value against a share; convex in the share. */
const againstShare = (counts: ShareCounts, share: number): number =>
  logMixture(counts) - logLikelihood(counts, share);

/** Where a condition that holds at `inside` ends on the way to `outside`. */
function edgeBetween(inside: number, outside: number, holds: (at: number) => boolean): number {
  if (holds(outside)) return outside;
  let [within, beyond] = [inside, outside];
  for (let step = 0; step < BISECTIONS; step++) {
    const middle = (within + beyond) / 2;
    if (holds(middle)) within = middle;
    else beyond = middle;
  }
  return within;
}

/** What a share is at least, at all times with probability 1 - alpha. */
export function shareLow(counts: ShareCounts, alpha: number): number {
  const total = counts.yes + counts.no;
  if (total === 0) return 0;
  const bound = Math.log(1 / alpha);
  return edgeBetween(counts.yes / total, 0, (share) => againstShare(counts, share) < bound);
}

/** The smallest value that a convex function has between two numbers (golden section). */
function minimum(low: number, high: number, of: (at: number) => number): number {
  const ratio = (Math.sqrt(5) - 1) / 2;
  let [left, right] = [low, high];
  let [one, other] = [right - ratio * (right - left), left + ratio * (right - left)];
  let [ofOne, ofOther] = [of(one), of(other)];
  for (let step = 0; step < BISECTIONS; step++) {
    if (ofOne <= ofOther) {
      [right, other, ofOther] = [other, one, ofOne];
      one = right - ratio * (right - left);
      ofOne = of(one);
    } else {
      [left, one, ofOne] = [one, other, ofOther];
      other = left + ratio * (right - left);
      ofOther = of(other);
    }
  }
  return Math.min(ofOne, ofOther);
}

/**
 * The logarithm of the e-value against a difference of two shares, the candidate's less the
 * baseline's: the product of both e-values at the pair of shares that speaks for it best.
 */
export function sharesLogE(
  baseline: ShareCounts,
  candidate: ShareCounts,
  difference: number,
): number {
  const atBest = minimum(
    Math.max(0, -difference),
    Math.min(1, 1 - difference),
    (share) =>
      -logLikelihood(baseline, share) -
      logLikelihood(candidate, Math.min(1, Math.max(0, share + difference))),
  );
  return logMixture(baseline) + logMixture(candidate) + atBest;
}

/** The difference of two shares, the candidate's less the baseline's. */
export function compareShares(
  baseline: ShareCounts,
  candidate: ShareCounts,
  alpha: number,
): Evidence {
  const [ofBaseline, ofCandidate] = [baseline.yes + baseline.no, candidate.yes + candidate.no];
  if (ofBaseline === 0 || ofCandidate === 0) return nothingKnown(-1, 1);
  const estimate = candidate.yes / ofCandidate - baseline.yes / ofBaseline;
  const isPossible = (difference: number) =>
    sharesLogE(baseline, candidate, difference) < Math.log(1 / alpha);
  return {
    estimate,
    low: edgeBetween(estimate, -1, isPossible),
    high: edgeBetween(estimate, 1, isPossible),
    logE: sharesLogE(baseline, candidate, 0),
  };
}

const nothingKnown = (low: number, high: number): Evidence => ({
  estimate: null,
  low,
  high,
  logE: 0,
});

/** Samples of each model before the mean of sums says anything. */
export const MEAN_SAMPLES_MIN = 50;

/** How a normal mixture is made before the first sample. */
export interface MixturePlan {
  alpha: number;
  /** The number of samples at which the interval is to be narrowest. */
  tunedTo: number;
  /** What the standard deviation is taken for: it counts as much as one sample. */
  deviation: number;
}

/** The mixture's variance that makes the interval narrow at a number of samples (2024, eq. 10). */
function mixtureVariance({ alpha, tunedTo }: MixturePlan): number {
  const twice = -2 * Math.log(alpha);
  return (twice + Math.log(twice + 1)) / Math.max(1, tunedTo);
}

/** The half width of the interval of a mean of `count` samples of a variance (2024, eq. 8). */
export function mixtureHalfWidth(count: number, variance: number, plan: MixturePlan): number {
  const squared = mixtureVariance(plan);
  const scale = count * squared + 1;
  const log = Math.log(scale) / 2 - Math.log(plan.alpha);
  return Math.sqrt(((2 * scale) / (count * count * squared)) * variance * log);
}

/** What an estimate says, as the mean of so many samples of such a variance. */
function mixtureEvidence(
  estimate: number,
  { count, variance }: { count: number; variance: number },
  plan: MixturePlan,
): Evidence {
  const half = mixtureHalfWidth(count, variance, plan);
  const squared = mixtureVariance(plan);
  const scale = count * squared + 1;
  const logE =
    (estimate * estimate * count * count * squared) / (2 * variance * scale) - Math.log(scale) / 2;
  return { estimate, low: estimate - half, high: estimate + half, logE };
}

/** The variance of samples, in which the plan's own stands for one sample more. */
function varianceOf({ count, sum, squares }: Moments, { deviation }: MixturePlan): number {
  const spread = Math.max(0, squares - (sum * sum) / count);
  return (spread + deviation * deviation) / count;
}

/** The mean of differences that were taken sample by sample. */
export function meanDifference(differences: Moments, plan: MixturePlan): Evidence {
  const { count, sum } = differences;
  if (count < MEAN_SAMPLES_MIN) return nothingKnown(-Infinity, Infinity);
  return mixtureEvidence(sum / count, { count, variance: varianceOf(differences, plan) }, plan);
}

/**
 * The difference of two means, the candidate's less the baseline's, of requests that chance gave to
 * one or the other: the mean of the estimate's influence function over all of them.
 */
export function compareMeans(baseline: Moments, candidate: Moments, plan: MixturePlan): Evidence {
  if (Math.min(baseline.count, candidate.count) < MEAN_SAMPLES_MIN) {
    return nothingKnown(-Infinity, Infinity);
  }
  const count = baseline.count + candidate.count;
  const of = (one: Moments) => varianceOf(one, plan) / one.count;
  const estimate = candidate.sum / candidate.count - baseline.sum / baseline.count;
  const variance = count * (of(baseline) + of(candidate));
  return mixtureEvidence(estimate, { count, variance }, plan);
}

/** The largest share of what it has that a bet stakes. */
const STAKE_MAX = 0.5;

/** The bets on numbers from 0 to 1, each made before its number is known. */
function betsOn(samples: readonly number[], alpha: number): Float64Array {
  const bets = new Float64Array(samples.length);
  let [sum, spread] = [0.5, 0.25];
  for (const [index, sample] of samples.entries()) {
    const order = index + 1;
    bets[index] = Math.sqrt((2 * Math.log(2 / alpha)) / (spread * Math.log(1 + order)));
    sum += sample;
    spread += (sample - sum / (order + 1)) ** 2;
  }
  return bets;
}

/** The logarithms of the capital of who bets that the mean is above, and below, a number. */
function capital(samples: readonly number[], bets: Float64Array, mean: number) {
  let [above, below] = [0, 0];
  const [aboveMax, belowMax] = [STAKE_MAX / mean, STAKE_MAX / (1 - mean)];
  for (let index = 0; index < samples.length; index++) {
    const bet = bets[index] as number;
    const beyond = (samples[index] as number) - mean;
    above += Math.log1p(Math.min(bet, aboveMax) * beyond);
    below += Math.log1p(-Math.min(bet, belowMax) * beyond);
  }
  return { above, below };
}

const HALF = Math.log(0.5);

/** The logarithm of the e-value against "no difference", of differences from -1 to 1. */
export function boundedLogE(differences: readonly number[], alpha: number): number {
  const samples = differences.map((difference) => (difference + 1) / 2);
  const { above, below } = capital(samples, betsOn(samples, alpha), 0.5);
  return HALF + Math.max(above, below);
}

/** The mean of differences from -1 to 1, in the order in which they came. */
export function boundedDifference(differences: readonly number[], alpha: number): Evidence {
  if (differences.length === 0) return nothingKnown(-1, 1);
  const samples = differences.map((difference) => (difference + 1) / 2);
  const bets = betsOn(samples, alpha);
  const mean = samples.reduce((sum, sample) => sum + sample, 0) / samples.length;
  const bound = Math.log(2 / alpha);
  // The one capital falls with the mean, the other rises: what is possible lies between.
  const low = edgeBetween(1, 0, (at) => capital(samples, bets, at).above < bound);
  const high = edgeBetween(0, 1, (at) => capital(samples, bets, at).below < bound);
  // Where no mean is possible they have none in common: nothing is said then.
  const isStable = low <= high;
  const { above, below } = capital(samples, bets, 0.5);
  return {
    estimate: 2 * mean - 1,
    low: isStable ? 2 * low - 1 : -1,
    high: isStable ? 2 * high - 1 : 1,
    logE: HALF + Math.max(above, below),
  };
}

/** Which of two is better, as far as an interval says. */
export const VERDICTS = [
  "candidate_better",
  "baseline_better",
  "no_difference",
  "undecided",
] as const;
export type Verdict = (typeof VERDICTS)[number];

/**
 * What an interval of the candidate's advantage says. Within the smallest advantage that matters it
 * is no difference, also where it is none of chance.
 */
export function verdictOf(
  { low, high }: Pick<Evidence, "low" | "high">,
  { worse, better }: { worse: number; better: number },
): Verdict {
  if (low > worse && high < better) return "no_difference";
  if (low > 0) return "candidate_better";
  if (high < 0) return "baseline_better";
  return "undecided";
}
