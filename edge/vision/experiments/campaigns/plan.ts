// How long an experiment will take, told before it begins. Pure.

import type { Trial, TrialMoments } from "../../serving/endpoints/trials.ts";
import type {
  ExperimentMetric,
  ExperimentPlan,
  ExperimentRules,
  ExperimentSource,
} from "./records.ts";
import {
  samplesForBounded,
  samplesForMean,
  samplesForShares,
  splitDeviation,
} from "./sequential-plan.ts";
import { MEAN_SAMPLES_MIN } from "./sequential-test.ts";

/** What an endpoint's requests were like before the experiment. */
export interface TrafficHistory {
  /** Samples of the baseline by itself; over a shadow, those of the pairs. */
  trial: Trial;
  /** The candidate's share of the split, above 0 and below 1. */
  candidateShare: number;
  /** Samples of a day at the pace of the last one. */
  samplesPerDay: number;
}

/** Samples from which a history says something. */
const HISTORY_MIN = 100;
/** Deviations that were met in the field, for who has no history yet. */
const SPREADS: Readonly<Record<ExperimentMetric, number>> = {
  latency: 0.5,
  error_rate: 0.01,
  confidence: 0.25,
  ap50_95: 0.3,
  precision_at_recall: 0.4,
  acceptance: 0.35,
};
/** Histories in which nothing varied say little of what comes. */
const SPREAD_MIN = 0.02;

/** The plan of an experiment; `history` is null over reviewed frames. */
export function planOf(
  {
    source,
    metric,
    rules,
  }: { source: ExperimentSource; metric: ExperimentMetric; rules: ExperimentRules },
  history: TrafficHistory | null,
): ExperimentPlan {
  const { alpha, power, minimum_effect } = rules;
  const known = history && spreadIn(history.trial, metric);
  const spread = known ?? SPREADS[metric];
  const effect = metric === "latency" ? Math.log1p(minimum_effect) : minimum_effect;
  const wanted = { effect, alpha, power };
  const candidateShare = history?.candidateShare ?? 0.5;
  const samples = {
    split: () =>
      metric === "error_rate"
        ? samplesForShares(wanted, { share: spread, candidateShare })
        : raisedTo(
            MEAN_SAMPLES_MIN / Math.min(candidateShare, 1 - candidateShare),
            samplesForMean(wanted, splitDeviation(spread, candidateShare)),
          ),
    shadow: () => raisedTo(MEAN_SAMPLES_MIN, samplesForMean(wanted, spread)),
    reviewed: () => samplesForBounded(wanted, spread),
  }[source]();
  const pace = history?.samplesPerDay ?? 0;
  return {
    samples,
    unit: ({ split: "requests", shadow: "images", reviewed: "frames" } as const)[source],
    from: known === null ? "assumption" : "history",
    spread,
    days: samples !== null && pace > 0 ? Math.ceil((samples / pace) * 10) / 10 : null,
  };
}

const raisedTo = (min: number, samples: number | null) =>
  samples === null ? null : Math.max(Math.ceil(min), samples);

/** The spread that a trial shows; null where it is too short to. */
function spreadIn(trial: Trial, metric: ExperimentMetric): number | null {
  if (metric === "error_rate") {
    return trial.requests < HISTORY_MIN ? null : trial.failures / trial.requests;
  }
  const moments = metric === "latency" ? trial.latency : trial.confidence;
  return moments.count < HISTORY_MIN ? null : Math.max(SPREAD_MIN, deviationOf(moments));
}

const deviationOf = ({ count, sum, squares }: TrialMoments) =>
  Math.sqrt(Math.max(0, squares / count - (sum / count) ** 2));
