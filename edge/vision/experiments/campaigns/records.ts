// Wire shapes of experiments: two models over a campaign, what they are judged by, and how it
// stands. Effects are the candidate's value less the baseline's, of latencies in proportion to it.

import { z } from "zod";
import { MODEL_NAMES } from "../../../../shared/wire/training.ts";
import { VERDICTS } from "./sequential-test.ts";

const instant = () => z.iso.datetime();
const count = () => z.number().int().min(0);

/** Where an experiment's samples come from. */
export const EXPERIMENT_SOURCES = ["split", "shadow", "reviewed"] as const;
export type ExperimentSource = (typeof EXPERIMENT_SOURCES)[number];

export const METRICS = [
  "latency",
  "error_rate",
  "confidence",
  "ap50_95",
  "precision_at_recall",
  "acceptance",
] as const;
export type ExperimentMetric = (typeof METRICS)[number];

/** What can be measured where. */
export const METRICS_OF: Readonly<Record<ExperimentSource, readonly ExperimentMetric[]>> = {
  split: ["latency", "error_rate", "confidence"],
  shadow: ["latency", "confidence"],
  reviewed: ["ap50_95", "precision_at_recall", "acceptance"],
};

export const DIRECTIONS = ["higher", "lower"] as const;

export const EXPERIMENT_STATES = ["running", "paused", "completed", "stopped"] as const;
export type ExperimentState = (typeof EXPERIMENT_STATES)[number];

/** Why an experiment is not running. */
export const EXPERIMENT_REASONS = [
  "by_person",
  "decided",
  "budget",
  "guard_rail",
  "endpoint_moved",
  "endpoint_deleted",
  "job_deleted",
  "model_deleted",
] as const;
export type ExperimentReason = (typeof EXPERIMENT_REASONS)[number];

export const GUARD_ACTIONS = ["stop", "flag"] as const;

/** What an experiment is judged by. */
export const ExperimentRules = z
  .object({
    direction: z.enum(DIRECTIONS).meta({ description: "which values of the metric are better" }),
    minimum_effect: z.number().meta({
      description: "smaller effects do not matter; of latency a share, such as 0.1 for 10 %",
    }),
    alpha: z.number().meta({
      description: "the probability of telling a difference where none is, however often one looks",
    }),
    power: z.number().meta({
      description: "the probability of telling a difference of `minimum_effect` that is there",
    }),
    recall: z.number().nullable().meta({
      description: "at which precision is read; null for another metric",
    }),
    confidence: z.number().nullable().meta({
      description: "detections of at least this confidence count; null over an endpoint",
    }),
    budget: z
      .object({
        samples: count().nullable().meta({ description: "after which it ends; null is no bound" }),
        days: z.number().meta({ description: "after which it ends, pauses included" }),
      })
      .meta({ description: "what it may take" }),
    guard_rails: z
      .object({
        error_rate: z.number().nullable().meta({
          description: "the largest share of the candidate's images that may fail; null is none",
        }),
        p95_ms: z.number().nullable().meta({
          description: "the longest p95 of the candidate, milliseconds; null is none",
        }),
        action: z.enum(GUARD_ACTIONS).meta({ description: "what a broken one brings" }),
      })
      .meta({ description: "what the candidate may not do" }),
    stop_when_decided: z.boolean().meta({
      description: "whether it ends as soon as the verdict is not `undecided`",
    }),
    include_reviewed: z.boolean().meta({
      description: "whether frames that were reviewed before it began count, too",
    }),
  })
  .meta({ id: "ExperimentRules" });
export type ExperimentRules = z.infer<typeof ExperimentRules>;

export const UNITS = ["requests", "images", "frames"] as const;

export const ExperimentPlan = z
  .object({
    samples: count()
      .nullable()
      .meta({
        description:
          "after so many an effect of `minimum_effect` is told with the probability `power`; null: " +
          "more than any experiment gets",
      }),
    unit: z.enum(UNITS).meta({
      description:
        "what one sample is: a request of either model, an image that both saw, a frame that both saw",
    }),
    from: z.enum(["history", "assumption"]).meta({
      description:
        "where `spread` comes from: the endpoint's requests so far, or the field's habit",
    }),
    spread: z.number().meta({
      description:
        "the standard deviation of a sample that was counted with; of `error_rate` the baseline's rate",
    }),
    days: z.number().nullable().meta({
      description:
        "that so many samples take at the endpoint's pace so far; null where it has none",
    }),
  })
  .meta({ id: "ExperimentPlan" });
export type ExperimentPlan = z.infer<typeof ExperimentPlan>;

const Arm = z.object({
  model_id: z.uuid(),
  samples: count().meta({ description: "that the metric was measured on" }),
  value: z.number().nullable().meta({
    description: "its metric: of latency the geometric mean in milliseconds; null without samples",
  }),
  failures: count().meta({ description: "images that it gave no answer to" }),
});

export const GUARDS = ["error_rate", "p95_ms"] as const;

const GuardFigures = z
  .object({
    guard_rail: z.enum(GUARDS).meta({ description: "which one" }),
    max: z.number().meta({ description: "what the candidate may have at most" }),
    value: z.number().nullable().meta({ description: "what it has; null without samples" }),
    broken: z.boolean().meta({
      description: "whether it is surely more: chance says so falsely with probability `alpha`",
    }),
  })
  .meta({ id: "GuardRailFigures" });

export const ExperimentResults = z
  .object({
    samples: count().meta({ description: "in the plan's `unit`" }),
    baseline: Arm.meta({ description: "what the baseline came to" }),
    candidate: Arm.meta({ description: "what the candidate came to" }),
    effect: z
      .number()
      .nullable()
      .meta({
        description:
          "the candidate's value less the baseline's; of latency in proportion: -0.1 is 10 % faster. " +
          "Null before there are enough samples",
      }),
    low: z.number().nullable().meta({
      description: "the effect is at least this; null before there are enough samples",
    }),
    high: z.number().nullable().meta({
      description: "the effect is at most this; null before there are enough samples",
    }),
    e_value: z.number().meta({
      description: "what a stake of 1 against `no difference` has become; 1 / alpha refutes it",
    }),
    p_value: z.number().meta({ description: "at all times valid: 1 / `e_value`, at most 1" }),
    verdict: z.enum(VERDICTS).meta({
      description:
        "`no_difference` where the whole interval lies within `minimum_effect` of 0; else whichever " +
        "the whole interval favours; else `undecided`",
    }),
    guard_rails: z.array(GuardFigures).meta({ description: "those that are set" }),
    method: z.enum(["beta_binomial", "normal_mixture", "betting"]).meta({
      description: "of the sequential test: see edge/vision/experiments/README.md",
    }),
  })
  .meta({ id: "ExperimentResults" });
export type ExperimentResults = z.infer<typeof ExperimentResults>;

export const ExperimentPromotion = z
  .object({
    winner_model_id: z.uuid().meta({ description: "the model that was promoted" }),
    kind: z.enum(["alias", "endpoint"]).meta({
      description: "what was moved: a model's name, or what the endpoint serves",
    }),
    alias: z.enum(MODEL_NAMES).nullable().meta({ description: "null where an endpoint moved" }),
    slug: z.string().nullable().meta({ description: "null where a name moved" }),
    from_model_id: z.uuid().nullable().meta({
      description: "the model that had the name; null where none had, or an endpoint moved",
    }),
    move_id: count().nullable().meta({
      description: "the move in the log of models or of the endpoint; null: it was so already",
    }),
    at: instant().meta({ description: "when it was moved" }),
    rolled_back_at: instant().nullable().meta({ description: "null while it stands" }),
  })
  .meta({ id: "ExperimentPromotion" });
export type ExperimentPromotion = z.infer<typeof ExperimentPromotion>;

export const Experiment = z
  .object({
    experiment_id: z.uuid().meta({ description: "the experiment's id" }),
    workspace_id: z.uuid(),
    name: z.string(),
    hypothesis: z.string().meta({ description: "what is expected, in words" }),
    source: z.enum(EXPERIMENT_SOURCES).meta({
      description:
        "where samples come from: an endpoint's `split` traffic, its `shadow`, a job's `reviewed` " +
        "frames",
    }),
    endpoint_id: z.uuid().nullable().meta({ description: "null over reviewed frames" }),
    slug: z.string().nullable().meta({ description: "the endpoint's; null over reviewed frames" }),
    job_id: z.uuid().nullable().meta({ description: "null over an endpoint" }),
    baseline_model_id: z.uuid().meta({ description: "the model that was there" }),
    candidate_model_id: z.uuid().meta({ description: "the model that may be better" }),
    metric: z.enum(METRICS).meta({
      description:
        "`latency`: from the image's last byte to the answer; `error_rate`: images without an answer; " +
        "`confidence`: mean of an image's detections; of a frame `ap50_95`, `precision_at_recall`, " +
        "and `acceptance`: the share of its detections that a reviewer left",
    }),
    rules: ExperimentRules,
    plan: ExperimentPlan,
    status: z.enum(EXPERIMENT_STATES),
    reason: z.enum(EXPERIMENT_REASONS).nullable().meta({
      description: "why it is not running; null while it is",
    }),
    results: ExperimentResults,
    promotion: z
      .union([ExperimentPromotion, z.null()])
      .meta({ description: "what was moved to the winner; null where nothing was" }),
    created_at: instant(),
    looked_at: instant().meta({ description: "when `results` was made: within a minute" }),
    ended_at: instant().nullable().meta({ description: "null before its end" }),
  })
  .meta({ id: "Experiment" });
export type Experiment = z.infer<typeof Experiment>;
