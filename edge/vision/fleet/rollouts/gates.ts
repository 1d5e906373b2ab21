// Whether a rollout goes on, waits or goes back: a pure judgment of what its devices reported.
//
// How far scores have moved is told by the population stability index against the former model on
// the same device, as `endpoints/drift.ts` does it for models over time; each device's former
// scores count by its part in the new ones, so that a device which sees more is no shift.

import { SCORE_BINS } from "../../../../shared/wire/fleet.ts";
import type { RolloutFigures, RolloutGates } from "../../../../shared/wire/rollouts.ts";
import { sharesOf, stabilityIndex } from "../../serving/endpoints/drift.ts";

/** Fewer detections than this, of either model, tell nothing of a shift. */
const DETECTIONS_MIN = 200;
/** Fewer inferences than this tell nothing of how many fail. */
const INFERENCES_MIN = 100;
/** A smaller share of the devices that a stage brought tells nothing of the others. */
const HEARD_MIN = 0.1;
/** What a χ² of 9 degrees of freedom, one less than there are bins, exceeds once in twenty. */
const CHI_SQUARE_95 = 16.919;

/** What all devices of a rollout made of it. */
export interface FleetCounts {
  taken: number;
  /** Those that told of it, or beat lately and will: one that is away keeps nobody waiting. */
  heard: number;
  confirmed: number;
  failed: number;
  crashLoops: number;
  /** Inferences, of each device no more than the median one has, so that none decides for all. */
  inferences: number;
  inferenceFailures: number;
}

/** What one device measured of a rollout, beside what it measured of the model before. */
export interface DeviceSample {
  latencyMs: number | null;
  formerLatencyMs: number | null;
  scores: readonly number[] | null;
  formerScores: readonly number[] | null;
}

/** Where a rollout's stage stands in time and place. */
export interface StageProgress {
  /** Minutes that the stage has lasted. */
  minutes: number;
  isLast: boolean;
  gates: RolloutGates;
  /** Devices that it was given to since the stage began: what earlier ones said is old. */
  brought: Pick<FleetCounts, "taken" | "heard" | "confirmed" | "failed">;
}

export type Judgment =
  | { verdict: "advance" | "complete"; reason: string }
  | { verdict: "wait"; reason: string }
  | { verdict: "roll_back"; reason: string };

const totalOf = (bins: readonly number[]) => bins.reduce((sum, count) => sum + count, 0);
const percent = (share: number) => `${Math.round(share * 1_000) / 10} %`;

function median(values: readonly number[]): number | null {
  if (values.length === 0) return null;
  const sorted = [...values].sort((one, other) => one - other);
  const middle = Math.floor(sorted.length / 2);
  const [low = 0, high = 0] = [sorted[Math.ceil(sorted.length / 2) - 1], sorted[middle]];
  return (low + high) / 2;
}

/** The middle one of values, of two the larger; 0 of none. */
const upperMedian = (values: readonly number[]) =>
  [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)] ?? 0;

/** Bins of the same shares that have at most so many in all. */
function shrunk(bins: readonly number[], max: number): readonly number[] {
  const total = totalOf(bins);
  return total > max ? bins.map((count) => (count / total) * max) : bins;
}

/** The shift of scores over all devices that have some of both models. */
function scoreShift(devices: readonly DeviceSample[]): { psi: number; byChance: number } | null {
  const known = devices.flatMap(({ scores, formerScores }) =>
    scores && formerScores && totalOf(formerScores) > 0 ? [{ scores, formerScores }] : [],
  );
  const countMax = upperMedian(known.map(({ scores }) => totalOf(scores)));
  const formerMax = upperMedian(known.map(({ formerScores }) => totalOf(formerScores)));
  const samples = known.map(({ scores, formerScores }) => ({
    scores: shrunk(scores, countMax),
    formerScores: shrunk(formerScores, formerMax),
  }));
  const count = samples.reduce((sum, { scores }) => sum + totalOf(scores), 0);
  const formerCount = samples.reduce((sum, { formerScores }) => sum + totalOf(formerScores), 0);
  if (count < DETECTIONS_MIN || formerCount < DETECTIONS_MIN) return null;
  const now = new Array<number>(SCORE_BINS).fill(0);
  const former = new Array<number>(SCORE_BINS).fill(0);
  for (const one of samples) {
    const part = totalOf(one.scores);
    for (let bin = 0; bin < SCORE_BINS; bin++) {
      now[bin] = (now[bin] ?? 0) + (one.scores[bin] ?? 0);
      const share = (one.formerScores[bin] ?? 0) / totalOf(one.formerScores);
      former[bin] = (former[bin] ?? 0) + part * share;
    }
  }
  return {
    psi: stabilityIndex(sharesOf(now), sharesOf(former)),
    byChance: CHI_SQUARE_95 * (1 / count + 1 / formerCount),
  };
}

/** The figures that the gates look at; `samples` are of devices that told of the rollout. */
export function figuresOf(counts: FleetCounts, samples: readonly DeviceSample[]): RolloutFigures {
  const ratios = samples.flatMap(({ latencyMs, formerLatencyMs }) =>
    latencyMs !== null && formerLatencyMs !== null && formerLatencyMs > 0
      ? [latencyMs / formerLatencyMs]
      : [],
  );
  const shift = scoreShift(samples);
  const { crashLoops, inferences, inferenceFailures, ...devices } = counts;
  return {
    ...devices,
    crash_loops: crashLoops,
    inferences,
    inference_failures: inferenceFailures,
    latency_ratio: median(ratios),
    score_shift: shift?.psi ?? null,
    score_shift_by_chance: shift?.byChance ?? null,
  };
}

/** Why devices that failed forbid the rollout; null where they do not. */
function failureOf(
  { heard, failed }: Pick<FleetCounts, "heard" | "failed">,
  { failed_max: max }: RolloutGates,
): string | null {
  if (failed === 0 || failed / heard <= max) return null;
  return `${failed} of ${heard} devices rolled back or failed; at most ${percent(max)} may`;
}

/** Why a gate forbids the rollout; null where none does. */
function problemOf(figures: RolloutFigures, gates: RolloutGates): string | null {
  const { crash_loops: loops, inferences, inference_failures: wrong } = figures;
  if (loops > gates.crash_loops_max) {
    return `${loops} devices gave up on it for its crashes; ${gates.crash_loops_max} may`;
  }
  const failure = failureOf(figures, gates);
  if (failure !== null) return failure;
  const looks = inferences + wrong;
  if (looks >= INFERENCES_MIN && wrong / looks > gates.inference_failures_max) {
    return `${wrong} of ${looks} inferences failed; at most ${percent(gates.inference_failures_max)} may`;
  }
  const { latency_ratio: ratio, score_shift: shift, score_shift_by_chance: chance } = figures;
  if (gates.latency_ratio_max !== null && ratio !== null && ratio > gates.latency_ratio_max) {
    const times = ratio.toFixed(2);
    return `it takes ${times} times as long as the former model; ${gates.latency_ratio_max} is allowed`;
  }
  const { score_shift_max: shiftMax } = gates;
  if (shiftMax !== null && shift !== null && shift > Math.max(shiftMax, chance ?? 0)) {
    return `its scores have moved by a stability index of ${shift.toFixed(3)}; ${shiftMax} is allowed`;
  }
  return null;
}

/**
 * What is to become of a rollout in its stage. It goes on by what the stage's own devices say;
 * where a stage brought it to none, by what all say.
 */
export function judge(
  figures: RolloutFigures,
  { minutes, isLast, gates, brought }: StageProgress,
): Judgment {
  const problem = problemOf(figures, gates) ?? failureOf(brought, gates);
  if (problem !== null) return { verdict: "roll_back", reason: problem };
  const { taken, heard, confirmed } = brought.taken > 0 ? brought : figures;
  if (taken === 0) return { verdict: "wait", reason: "no device that it is for is there yet" };
  if (heard === 0) return { verdict: "wait", reason: `none of ${taken} devices is there` };
  if (heard / taken < HEARD_MIN) {
    const reason = `${heard} of ${taken} devices are there; ${percent(HEARD_MIN)} are asked`;
    return { verdict: "wait", reason };
  }
  if (confirmed === 0 || confirmed / heard < gates.confirmed_min) {
    const asked = percent(gates.confirmed_min);
    return {
      verdict: "wait",
      reason: `${confirmed} of ${heard} devices confirmed; ${asked} are asked`,
    };
  }
  const left = gates.stage_minutes - minutes;
  if (left > 0)
    return { verdict: "wait", reason: `the stage lasts ${Math.ceil(left)} more minutes` };
  const reason = `${confirmed} of ${heard} devices confirmed`;
  return { verdict: isLast ? "complete" : "advance", reason };
}
