// What an experiment's samples say: values, effect, interval, verdict, guard rails. Pure.

import { latencyBucket, percentile } from "../../serving/endpoints/rollups.ts";
import type { Trial, TrialMoments } from "../../serving/endpoints/trials.ts";
import type {
  ExperimentMetric,
  ExperimentPlan,
  ExperimentResults,
  ExperimentRules,
  ExperimentSource,
} from "./records.ts";
import {
  boundedDifference,
  compareMeans,
  compareShares,
  type Evidence,
  type MixturePlan,
  meanDifference,
  type ShareCounts,
  shareLow,
  verdictOf,
} from "./sequential-test.ts";

/** What is asked of the samples. */
export interface Question {
  source: ExperimentSource;
  metric: ExperimentMetric;
  rules: ExperimentRules;
  plan: Pick<ExperimentPlan, "samples" | "spread">;
  baselineModelId: string;
  candidateModelId: string;
}

/** What both models' requests came to; of a shadow the pairs are the candidate's. */
export interface TrafficCounts {
  baseline: Trial;
  candidate: Trial;
}

/** A reading from which an experiment counts on. */
export interface Mark extends TrafficCounts {
  /** The newest moves of the endpoint and of its aliases before it. */
  moves: string;
  /** A move came shortly before it: requests that began under other terms may end after it. */
  isUnsettled?: boolean;
}

/** What both models' detections are worth on one frame, 0 to 1. */
export interface FrameScore {
  baseline: number;
  candidate: number;
}

/** The frames that both models were shown, in the order in which they were scored. */
export interface ReviewedScores {
  scores: readonly FrameScore[];
  /** Frames among these on which a model failed: their score is 0. */
  baselineFailures: number;
  candidateFailures: number;
}

export type Samples = { traffic: TrafficCounts } | { reviewed: ReviewedScores };

/** Where neither a plan nor a budget says how long it will take. */
const SAMPLES_GUESS = 10_000;
/** JSON knows no infinity. */
const LOG_E_MAX = 700;
/** Requests beyond a p95 that is kept. */
const BEYOND_P95 = 0.05;

interface Measures {
  evidence: Evidence;
  samples: number;
  baseline: { samples: number; value: number | null; failures: number };
  candidate: { samples: number; value: number | null; failures: number };
  method: ExperimentResults["method"];
}

/** How an experiment stands by its samples. */
export function resultsOf(question: Question, samples: Samples): ExperimentResults {
  const { metric, rules } = question;
  const { evidence, method, ...measures } =
    "traffic" in samples
      ? trafficMeasures(question, samples.traffic)
      : reviewedMeasures(rules, samples.reviewed);
  const isRatio = metric === "latency";
  const told = (value: number | null) => {
    if (value === null || !Number.isFinite(value)) return null;
    return isRatio ? Math.expm1(value) : value;
  };
  return {
    samples: measures.samples,
    baseline: { model_id: question.baselineModelId, ...measures.baseline },
    candidate: { model_id: question.candidateModelId, ...measures.candidate },
    effect: told(evidence.estimate),
    low: told(evidence.low),
    high: told(evidence.high),
    e_value: Math.exp(Math.min(evidence.logE, LOG_E_MAX)),
    p_value: Math.exp(-Math.max(0, evidence.logE)),
    verdict: verdictOf(advantage(evidence, rules), boundsOf(metric, rules)),
    guard_rails: guardFigures(rules, samples),
    method,
  };
}

/** The interval of what the candidate is ahead by: above 0 is better, whatever the metric. */
const advantage = ({ low, high }: Evidence, { direction }: ExperimentRules) =>
  direction === "higher" ? { low, high } : { low: -high, high: -low };

/** The advantages that do not matter lie between. */
function boundsOf(metric: ExperimentMetric, { minimum_effect }: ExperimentRules) {
  const bound = metric === "latency" ? Math.log1p(minimum_effect) : minimum_effect;
  return { worse: -bound, better: bound };
}

function trafficMeasures(question: Question, { baseline, candidate }: TrafficCounts): Measures {
  const { source, metric, rules } = question;
  const plan = mixtureOf(question);
  if (metric === "error_rate") {
    return {
      evidence: compareShares(failureCounts(baseline), failureCounts(candidate), rules.alpha),
      samples: baseline.requests + candidate.requests,
      baseline: ofShare(baseline),
      candidate: ofShare(candidate),
      method: "beta_binomial",
    };
  }
  const name = metric === "confidence" ? "confidence" : "latency";
  const shown = (mean: number) => (metric === "latency" ? Math.exp(mean) : mean);
  const ofMean = (moments: TrialMoments, sum: number, failures: number) => ({
    samples: moments.count,
    value: moments.count === 0 ? null : shown(sum / moments.count),
    failures,
  });
  const own = candidate[name];
  if (source === "shadow") {
    return {
      evidence: meanDifference(own, plan),
      samples: own.count,
      // A live model's failures have no shadow.
      baseline: ofMean(own, own.live, 0),
      candidate: ofMean(own, own.live + own.sum, candidate.failures),
      method: "normal_mixture",
    };
  }
  const other = baseline[name];
  return {
    evidence: compareMeans(other, own, plan),
    samples: other.count + own.count,
    baseline: ofMean(other, other.sum, baseline.failures),
    candidate: ofMean(own, own.sum, candidate.failures),
    method: "normal_mixture",
  };
}

const mixtureOf = ({ rules, plan }: Question): MixturePlan => ({
  alpha: rules.alpha,
  tunedTo: plan.samples ?? rules.budget.samples ?? SAMPLES_GUESS,
  deviation: plan.spread,
});

const failureCounts = ({ requests, failures }: Trial): ShareCounts => ({
  yes: failures,
  no: requests - failures,
});

const ofShare = ({ requests, failures }: Trial) => ({
  samples: requests,
  value: requests === 0 ? null : failures / requests,
  failures,
});

function reviewedMeasures(rules: ExperimentRules, reviewed: ReviewedScores): Measures {
  const { scores } = reviewed;
  const differences = scores.map(({ baseline, candidate }) => candidate - baseline);
  const mean = (pick: (score: FrameScore) => number) =>
    scores.length === 0 ? null : scores.reduce((sum, one) => sum + pick(one), 0) / scores.length;
  const samples = scores.length;
  return {
    evidence: boundedDifference(differences, rules.alpha),
    samples,
    baseline: {
      samples,
      value: mean(({ baseline }) => baseline),
      failures: reviewed.baselineFailures,
    },
    candidate: {
      samples,
      value: mean(({ candidate }) => candidate),
      failures: reviewed.candidateFailures,
    },
    method: "betting",
  };
}

/** The candidate's guard rails, each broken only when it surely is. */
function guardFigures({ guard_rails, alpha }: ExperimentRules, samples: Samples) {
  const figures: ExperimentResults["guard_rails"] = [];
  const { error_rate, p95_ms } = guard_rails;
  if (error_rate !== null) {
    const counts =
      "traffic" in samples
        ? failureCounts(samples.traffic.candidate)
        : shownCounts(samples.reviewed);
    const total = counts.yes + counts.no;
    figures.push({
      guard_rail: "error_rate",
      max: error_rate,
      value: total === 0 ? null : counts.yes / total,
      broken: shareLow(counts, alpha) > error_rate,
    });
  }
  if (p95_ms !== null && "traffic" in samples) {
    const { histogram } = samples.traffic.candidate;
    figures.push({
      guard_rail: "p95_ms",
      max: p95_ms,
      value: percentile(histogram, 1 - BEYOND_P95),
      // A p95 is too long when surely more than one request in twenty takes longer.
      broken: shareLow(slowerThan(histogram, p95_ms), alpha) > BEYOND_P95,
    });
  }
  return figures;
}

/** Counts of the frames that were shown: a failed one has its score, too. */
const shownCounts = ({ scores, candidateFailures }: ReviewedScores): ShareCounts => ({
  yes: candidateFailures,
  no: scores.length - candidateFailures,
});

/** How many took longer than so many milliseconds; within their bucket's width, who did not. */
function slowerThan(histogram: Trial["histogram"], ms: number): ShareCounts {
  const limit = latencyBucket(ms);
  const counts: ShareCounts = { yes: 0, no: 0 };
  for (const [bucket, count] of Object.entries(histogram)) {
    counts[Number(bucket) > limit ? "yes" : "no"] += count;
  }
  return counts;
}
