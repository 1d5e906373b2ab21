// Bodies of requests about experiments, and the rules that they come to.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { CONFIDENCE_DEFAULT } from "../../../../shared/wire/serving.ts";
import { ALIASES, MODEL_NAMES } from "../../../../shared/wire/training.ts";
import { text, title } from "../../../http/texts.ts";
import { Slug } from "../../serving/endpoints/bodies.ts";
import { FRAMES_MAX } from "./end.ts";
import {
  DIRECTIONS,
  type ExperimentMetric,
  type ExperimentRules,
  GUARD_ACTIONS,
  METRICS,
} from "./records.ts";

const DAYS_MAX = 90;
const DAYS_DEFAULT = 14;
const EFFECT_MIN = 0.0001;
const EFFECT_MAX = 10;
const P95_MS_MAX = 600_000;
const RECALL_DEFAULT = 0.5;

const target = (what: string) =>
  z
    .strictObject({
      model_id: z.uuid().nullable().optional().meta({
        description: "this model; or give `alias`",
      }),
      alias: z.enum(MODEL_NAMES).nullable().optional().meta({
        description: "whichever model has it when the experiment begins, `active` too",
      }),
    })
    .meta({ description: what });

/** A new experiment. */
export const ExperimentBody = z.strictObject({
  name: title(),
  hypothesis: text().max(2_000).default("").meta({ description: "what is expected, in words" }),
  workspace_id: z.uuid().optional().meta({
    description: "whose endpoint; required where several of yours have one of this slug",
  }),
  endpoint: Slug.optional().meta({
    description:
      "a named endpoint that splits its traffic between both models, or has the candidate as the " +
      "baseline's shadow; or give `job_id`",
  }),
  job_id: z.uuid().optional().meta({
    description: "a labeling job, whose reviewed frames both models look at; or give `endpoint`",
  }),
  baseline: target("the model that is there"),
  candidate: target("the model that may be better"),
  metric: z.enum(METRICS).meta({
    description:
      "over a split `latency`, `error_rate`, `confidence`; over a shadow `latency`, `confidence`; " +
      "over reviewed frames `ap50_95`, `precision_at_recall`, `acceptance`",
  }),
  direction: z
    .enum(DIRECTIONS)
    .nullable()
    .default(null)
    .meta({
      description:
        "which values are better; null is the metric's own: lower for latency and error_rate. Only of " +
        "`confidence` it may be another",
    }),
  minimum_effect: z
    .number()
    .min(EFFECT_MIN)
    .max(EFFECT_MAX)
    .meta({
      description:
        "smaller differences do not matter; of latency a share, such as 0.1 for 10 %, of all others " +
        "below 1",
    }),
  alpha: z.number().min(0.0001).max(0.5).default(0.05).meta({
    description: "the probability of telling a difference where none is, however often one looks",
  }),
  power: z.number().min(0.5).max(0.99).default(0.8).meta({
    description: "the probability of telling `minimum_effect`, for the plan",
  }),
  recall: z
    .number()
    .min(0.01)
    .max(1)
    .nullable()
    .default(null)
    .meta({
      description: `at which \`precision_at_recall\` is read; null is ${RECALL_DEFAULT}`,
    }),
  confidence: z
    .number()
    .min(0)
    .max(1)
    .nullable()
    .default(null)
    .meta({
      description:
        `over reviewed frames detections of at least this count; null is ${CONFIDENCE_DEFAULT}. An ` +
        "endpoint has its own",
    }),
  budget: z
    .strictObject({
      samples: z.int().min(1).max(1_000_000_000).nullable().default(null).meta({
        description: "requests, images or frames after which it ends; null is no bound",
      }),
      days: z.number().min(0.01).max(DAYS_MAX).default(DAYS_DEFAULT).meta({
        description: "after which it ends, pauses included",
      }),
    })
    .prefault({})
    .meta({ description: "what it may take" }),
  guard_rails: z
    .strictObject({
      error_rate: z.number().min(0).max(1).nullable().default(null).meta({
        description: "the largest share of the candidate's images that may fail; null is none",
      }),
      p95_ms: z.number().min(1).max(P95_MS_MAX).nullable().default(null).meta({
        description: "the longest p95 of the candidate in milliseconds; null is none",
      }),
      action: z.enum(GUARD_ACTIONS).default("stop").meta({
        description: "`stop` ends the experiment, `flag` only says so",
      }),
    })
    .prefault({})
    .meta({ description: "what the candidate may not do" }),
  stop_when_decided: z.boolean().default(true).meta({
    description: "whether it ends as soon as the verdict is not `undecided`",
  }),
  include_reviewed: z.boolean().default(false).meta({
    description: "whether frames that were reviewed before it began count, too",
  }),
});
export type ExperimentBody = z.output<typeof ExperimentBody>;

/** What becomes of an experiment's winner. */
export const CompleteBody = z.strictObject({
  promote: z.boolean().default(false).meta({
    description: "whether the winner is moved to where the baseline is",
  }),
  alias: z.enum(ALIASES).nullable().default(null).meta({
    description: "the alias that the winner gets; null: see the route. Only with `promote`",
  }),
});

const LOWER: readonly ExperimentMetric[] = ["latency", "error_rate"];

/** The rules that a body comes to. Fails with `invalid_request` for those that say nothing. */
export function rulesOf(body: ExperimentBody): ExperimentRules {
  const { metric, minimum_effect, job_id } = body;
  const own = LOWER.includes(metric) ? "lower" : "higher";
  const direction = body.direction ?? own;
  const refuse = (detail: string) => {
    throw new Failure("invalid_request", detail);
  };
  if (direction !== own && metric !== "confidence") {
    refuse(`direction: of ${metric} ${own} is better`);
  }
  if (metric !== "latency" && minimum_effect >= 1) {
    refuse(`minimum_effect: of ${metric} it is below 1`);
  }
  if (metric !== "precision_at_recall" && body.recall !== null) {
    refuse("recall: only with precision_at_recall");
  }
  const isReviewed = job_id !== undefined;
  if (isReviewed && body.guard_rails.p95_ms !== null) {
    refuse("guard_rails.p95_ms: over an endpoint only: frames wait in the queue");
  }
  if (isReviewed && (body.budget.samples ?? 0) > FRAMES_MAX) {
    refuse(`budget.samples: at most ${FRAMES_MAX} frames`);
  }
  if (!isReviewed && (body.confidence !== null || body.include_reviewed)) {
    refuse("confidence, include_reviewed: over reviewed frames only");
  }
  return {
    direction,
    minimum_effect,
    alpha: body.alpha,
    power: body.power,
    recall: metric === "precision_at_recall" ? (body.recall ?? RECALL_DEFAULT) : null,
    confidence: isReviewed ? (body.confidence ?? CONFIDENCE_DEFAULT) : null,
    budget: body.budget,
    guard_rails: body.guard_rails,
    stop_when_decided: body.stop_when_decided,
    include_reviewed: body.include_reviewed,
  };
}
