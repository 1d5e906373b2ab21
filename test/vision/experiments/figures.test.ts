// What samples come to, without a service: values, effects, verdicts, guard rails, plans, and the
// worth of detections on a frame. Goal: each number is what a person would count by hand.

import { describe, expect, it } from "vitest";
import { mayMove } from "../../../edge/vision/auth/logged-moves.ts";
import { endOf } from "../../../edge/vision/experiments/campaigns/end.ts";
import type { ExperimentRow } from "../../../edge/vision/experiments/campaigns/experiments.ts";
import { type Question, resultsOf } from "../../../edge/vision/experiments/campaigns/figures.ts";
import { planOf } from "../../../edge/vision/experiments/campaigns/plan.ts";
import {
  EXPERIMENT_STATES,
  ExperimentResults,
  type ExperimentRules,
} from "../../../edge/vision/experiments/campaigns/records.ts";
import { frameScore } from "../../../edge/vision/experiments/campaigns/scores.ts";
import { MOVES } from "../../../edge/vision/experiments/campaigns/states.ts";
import {
  addSample,
  answeredSample,
  emptyTrial,
  FAILED_SAMPLE,
  sumTrials,
  type Trial,
  trialSince,
} from "../../../edge/vision/serving/endpoints/trials.ts";
import type { Prediction } from "../../../shared/tasks/tasks.ts";
import { DAY, iso } from "../../../shared/time.ts";

const [BASELINE, CANDIDATE] = [crypto.randomUUID(), crypto.randomUUID()];
const RULES: ExperimentRules = {
  direction: "lower",
  minimum_effect: 0.1,
  alpha: 0.05,
  power: 0.8,
  recall: null,
  confidence: null,
  budget: { samples: null, days: 14 },
  guard_rails: { error_rate: null, p95_ms: null, action: "stop" },
  stop_when_decided: true,
  include_reviewed: false,
};
const question = (more: Partial<Question> = {}): Question => ({
  source: "split",
  metric: "latency",
  rules: RULES,
  plan: { samples: 1_000, spread: 0.5 },
  baselineModelId: BASELINE,
  candidateModelId: CANDIDATE,
  ...more,
});
const disc = (confidence: number, x = 0): Prediction => ({
  class: "disc",
  confidence,
  bbox: [x, 0, x + 10, 10],
});
const answer = (ms: number, told = [disc(0.5)]) => ({ told, ms, cold: false });

/** A trial of these answers and so many failures. */
function trialOf(latencies: readonly number[], failures = 0): Trial {
  const trial = emptyTrial();
  for (const ms of latencies) addSample(trial, answeredSample(answer(ms)));
  for (let failure = 0; failure < failures; failure++) addSample(trial, FAILED_SAMPLE);
  return trial;
}
/** So many latencies about a number of milliseconds. */
const about = (ms: number, count: number) =>
  Array.from({ length: count }, (_, index) => ms * (1 + (index % 5) / 50));

describe("a trial", () => {
  it("is, between two readings, what came between them", () => {
    const before = trialOf([10, 20], 1);
    const between = trialOf([40, 80], 2);
    const since = trialSince(sumTrials(before, between), before);
    expect(since).toMatchObject({ requests: 4, failures: 2, histogram: between.histogram });
    expect(since.latency.count).toBe(2);
    expect(since.latency.sum).toBeCloseTo(between.latency.sum, 12);
    expect(trialSince(before, before)).toEqual(emptyTrial());
  });

  it("holds a shadow against the live model image by image, and times no cold or masked one", () => {
    const pair = emptyTrial();
    addSample(pair, answeredSample(answer(20, [disc(0.8)]), answer(10, [disc(0.4), disc(0.6)])));
    addSample(pair, answeredSample({ ...answer(500, []), cold: true }, answer(10)));
    addSample(pair, answeredSample(answer(20, []), { ...answer(900), cold: true }));
    addSample(pair, answeredSample(answer(20), { ...answer(900), masked: true }));
    expect(pair.latency).toMatchObject({ count: 1 });
    expect(pair.latency.sum).toBeCloseTo(Math.log(2), 12);
    expect(pair.confidence.count).toBe(4);
    expect(pair.confidence.sum).toBeCloseTo(0.8 - 0.5 - 0.5 - 0.5, 12);
    expect(Object.values(pair.histogram)).toEqual([3]);
  });
});

describe("results", () => {
  it("of a split's latency are ratios of geometric means", () => {
    const traffic = { baseline: trialOf(about(100, 400)), candidate: trialOf(about(50, 400)) };
    const results = ExperimentResults.parse(resultsOf(question(), { traffic }));
    expect(results).toMatchObject({ samples: 800, verdict: "candidate_better" });
    expect(results.effect).toBeCloseTo(-0.5, 9);
    expect(results.baseline.value).toBeCloseTo(103.95, 1);
    expect(results.low).toBeLessThan(-0.5);
    expect(results.high).toBeGreaterThan(-0.5);
    expect(results.p_value).toBeLessThan(1e-9);
    expect(results.method).toBe("normal_mixture");
  });

  it("of a shadow's latency are of pairs, and the slower is worse", () => {
    const pair = emptyTrial();
    for (const [index, ms] of about(10, 300).entries()) {
      addSample(pair, answeredSample(answer(ms * (index % 2 ? 2 : 1.9)), answer(ms)));
    }
    const traffic = { baseline: emptyTrial(), candidate: pair };
    const results = resultsOf(question({ source: "shadow" }), { traffic });
    expect(results.verdict).toBe("baseline_better");
    expect(results.effect).toBeCloseTo(Math.sqrt(2 * 1.9) - 1, 9);
    expect((results.candidate.value ?? 0) / (results.baseline.value ?? 1)).toBeCloseTo(1.949, 3);
  });

  it("of latencies alike are no difference, once there are enough", () => {
    const of = (count: number) => {
      const traffic = {
        baseline: trialOf(about(100, count)),
        candidate: trialOf(about(100, count)),
      };
      return resultsOf(question(), { traffic });
    };
    expect(of(40)).toMatchObject({ verdict: "undecided", effect: null, low: null, high: null });
    expect(of(40)).toMatchObject({ e_value: 1, p_value: 1 });
    expect(of(2_000)).toMatchObject({ verdict: "no_difference" });
  });

  it("of error rates are shares, told by either side", () => {
    const rates = question({ metric: "error_rate" });
    const [good, bad] = [trialOf(about(10, 500), 1), trialOf(about(10, 400), 100)];
    const of = (baseline: Trial, candidate: Trial) =>
      resultsOf(rates, { traffic: { baseline, candidate } });
    expect(of(good, bad)).toMatchObject({
      verdict: "baseline_better",
      samples: 1_001,
      candidate: { value: 0.2, failures: 100, samples: 500 },
      method: "beta_binomial",
    });
    expect(of(bad, good).verdict).toBe("candidate_better");
  });

  it("of confidence follow the direction that is wanted", () => {
    const of = (direction: "higher" | "lower") => {
      const [baseline, candidate] = [emptyTrial(), emptyTrial()];
      for (let index = 0; index < 500; index++) {
        addSample(baseline, answeredSample(answer(10, [disc(0.4 + (index % 3) / 20)])));
        addSample(candidate, answeredSample(answer(10, [disc(0.8 + (index % 3) / 20)])));
      }
      const rules = { ...RULES, direction };
      const asked = question({ metric: "confidence", rules, plan: { samples: 500, spread: 0.1 } });
      return resultsOf(asked, { traffic: { baseline, candidate } });
    };
    expect(of("higher")).toMatchObject({ verdict: "candidate_better" });
    expect(of("higher").effect).toBeCloseTo(0.4, 6);
    expect(of("lower")).toMatchObject({ verdict: "baseline_better" });
  });

  it("of frames are means of their scores, in their order", () => {
    const rules: ExperimentRules = { ...RULES, direction: "higher", confidence: 0.25 };
    const asked = question({ source: "reviewed", metric: "ap50_95", rules });
    const scores = Array.from({ length: 60 }, (_, index) => ({
      baseline: 0.2 + (index % 3) / 10,
      candidate: 0.8 - (index % 2) / 10,
    }));
    const reviewed = { scores, baselineFailures: 1, candidateFailures: 2 };
    const results = resultsOf(asked, { reviewed });
    expect(results).toMatchObject({
      samples: 60,
      verdict: "candidate_better",
      baseline: { failures: 1 },
      candidate: { failures: 2 },
      method: "betting",
    });
    expect(results.effect).toBeCloseTo(0.45, 9);
  });
});

describe("a guard rail", () => {
  it("over frames is of those that were shown, failed ones among them", () => {
    const guard_rails = { ...RULES.guard_rails, error_rate: 0.3 };
    const asked = question({
      source: "reviewed",
      metric: "ap50_95",
      rules: { ...RULES, guard_rails },
    });
    const scores = Array.from({ length: 40 }, (_, index) => ({
      baseline: 0.5,
      candidate: index < 10 ? 0 : 0.9,
    }));
    const reviewed = { scores, baselineFailures: 0, candidateFailures: 10 };
    expect(resultsOf(asked, { reviewed }).guard_rails).toMatchObject([{ value: 0.25 }]);
  });

  const railed = (guard_rails: Partial<ExperimentRules["guard_rails"]>) =>
    question({ rules: { ...RULES, guard_rails: { ...RULES.guard_rails, ...guard_rails } } });
  const broken = (asked: Question, candidate: Trial) =>
    resultsOf(asked, { traffic: { baseline: emptyTrial(), candidate } }).guard_rails;

  it("of errors breaks when they are surely too many, not at the first", () => {
    const rail = railed({ error_rate: 0.05 });
    expect(broken(rail, trialOf([10], 1))).toMatchObject([{ value: 0.5, broken: false }]);
    expect(broken(rail, trialOf(about(10, 60), 20))).toMatchObject([
      { guard_rail: "error_rate", max: 0.05, value: 0.25, broken: true },
    ]);
  });

  it("of the p95 breaks when surely more than one in twenty is slower", () => {
    const rail = railed({ p95_ms: 100 });
    const slow = (share: number) => trialOf([...about(50, 1_000 - share), ...about(200, share)]);
    expect(broken(rail, slow(20))).toMatchObject([{ broken: false }]);
    expect(broken(rail, slow(120))).toMatchObject([{ guard_rail: "p95_ms", broken: true }]);
    expect(broken(rail, slow(120))[0]?.value).toBeGreaterThan(190);
    expect(broken(rail, emptyTrial())).toMatchObject([{ value: null, broken: false }]);
  });
});

describe("an end", () => {
  const row = (rules: Partial<ExperimentRules> = {}, jobId: string | null = null) =>
    // What an end depends on; the rest of a row has no part in it.
    ({ rules: { ...RULES, ...rules }, jobId, createdAt: iso(0) }) as unknown as ExperimentRow;
  const results = (more: Partial<ExperimentResults> = {}) => ({
    ...resultsOf(question(), { traffic: { baseline: emptyTrial(), candidate: emptyTrial() } }),
    ...more,
  });
  const rail = { guard_rail: "error_rate", max: 0.1, value: 0.5, broken: true } as const;

  it("comes by a guard rail, a decision, the samples or the days; else none", () => {
    expect(endOf(row(), results(), DAY)).toBeNull();
    const guarded = results({ guard_rails: [rail], verdict: "candidate_better" });
    expect(endOf(row(), guarded, DAY)).toEqual({ move: "stop", reason: "guard_rail" });
    const flagged = row({ guard_rails: { ...RULES.guard_rails, action: "flag" } });
    expect(endOf(flagged, guarded, DAY)).toEqual({ move: "complete", reason: "decided" });
    const patient = row({ stop_when_decided: false });
    expect(endOf(patient, results({ verdict: "no_difference" }), DAY)).toBeNull();
    const spent = row({ budget: { samples: 100, days: 14 } });
    expect(endOf(spent, results({ samples: 100 }), DAY)?.reason).toBe("budget");
    expect(endOf(spent, results({ samples: 99 }), DAY)).toBeNull();
    expect(endOf(row(), results(), 14 * DAY)?.reason).toBe("budget");
    // Frames are kept one by one, so they end by themselves.
    expect(endOf(row({}, "job"), results({ samples: 10_000 }), DAY)?.reason).toBe("budget");
  });
});

describe("a plan", () => {
  it("is by what the endpoint was like, where it says something", () => {
    const split = { source: "split", metric: "latency", rules: RULES } as const;
    const history = { trial: emptyTrial(), candidateShare: 0.5, samplesPerDay: 0 };
    const guessed = planOf(split, history);
    expect(guessed).toMatchObject({
      from: "assumption",
      spread: 0.5,
      unit: "requests",
      days: null,
    });
    const known = planOf(split, {
      ...history,
      trial: trialOf(about(100, 200)),
      samplesPerDay: 500,
    });
    expect(known).toMatchObject({ from: "history" });
    expect(known.samples).toBeLessThan(guessed.samples ?? 0);
    expect(known.days).toBeCloseTo((known.samples ?? 0) / 500, 0);
    // A candidate that sees little takes longer.
    const rare = planOf(split, { ...history, candidateShare: 0.05 });
    expect(rare.samples).toBeGreaterThan((guessed.samples ?? 0) * 3);
    const rules = { ...RULES, direction: "higher" as const };
    expect(planOf({ source: "reviewed", metric: "ap50_95", rules }, null).unit).toBe("frames");
  });
});

describe("the worth of a frame", () => {
  const truth = [
    { class: "disc", bbox: [0, 0, 10, 10] as [number, number, number, number] },
    { class: "star", bbox: [20, 0, 30, 10] as [number, number, number, number] },
  ];
  const star = (confidence: number, x = 20): Prediction => ({
    class: "star",
    confidence,
    bbox: [x, 0, x + 10, 10],
  });
  const of = (
    metric: "ap50_95" | "precision_at_recall" | "acceptance",
    found: readonly Prediction[],
    boxes = truth,
  ) => frameScore({ metric, rules: { ...RULES, confidence: 0.25, recall: 0.5 } }, boxes, found);

  it("is all of it for what is right, in every metric", () => {
    for (const metric of ["ap50_95", "precision_at_recall", "acceptance"] as const) {
      expect([metric, of(metric, [disc(0.9), star(0.8)])]).toEqual([metric, 1]);
      expect([metric, of(metric, [])]).toEqual([metric, 0]);
      expect([metric, of(metric, [], [])]).toEqual([metric, 1]);
      expect([metric, of(metric, [disc(0.9)], [])]).toEqual([metric, 0]);
      // What is not told disturbs no empty frame.
      expect([metric, of(metric, [disc(0.1)], [])]).toEqual([metric, 1]);
    }
  });

  it("counts a box of another class as wrong, wherever it lies", () => {
    expect(of("acceptance", [disc(0.9), { ...disc(0.8, 20) }])).toBe(0.5);
    // One of two is found, first: COCO's 51 of 101 recalls.
    expect(of("ap50_95", [disc(0.9), { ...disc(0.8, 20) }])).toBeCloseTo(51 / 101, 12);
    expect(of("precision_at_recall", [{ ...disc(0.9, 50) }, disc(0.8)])).toBe(0.5);
    expect(of("precision_at_recall", [disc(0.9), { ...disc(0.8, 50) }])).toBe(1);
  });

  it("takes boxes that hardly fit at few of COCO's thresholds", () => {
    // Overlap 8 of 12: an IoU of two thirds, which is enough at 0.5, 0.55, 0.6 and 0.65.
    const near: Prediction = { ...disc(0.9), bbox: [2, 0, 12, 10] };
    expect(of("ap50_95", [near], truth.slice(0, 1))).toBeCloseTo(0.4, 12);
    expect(of("acceptance", [near], truth.slice(0, 1))).toBe(1);
  });
});

describe("states", () => {
  it("that are an end lead nowhere, and each move leads from where it may begin", () => {
    const allowed = Object.entries(MOVES).flatMap(([move, { to }]) =>
      EXPERIMENT_STATES.filter((state) => mayMove(MOVES[move as keyof typeof MOVES], state)).map(
        (state) => `${state} ${move} ${to}`,
      ),
    );
    expect(allowed).toEqual([
      "running pause paused",
      "paused resume running",
      "running complete completed",
      "paused complete completed",
      "running stop stopped",
      "paused stop stopped",
    ]);
  });
});
