// What runs of workflows are asked with, and what they answer.

import { z } from "@hono/zod-openapi";
import { mapOf, whole } from "../../../../shared/scalars.ts";
import {
  WorkflowEffect,
  WorkflowFailureReport,
  WorkflowStepReport,
  WorkflowVideoAnswer,
} from "../../../../shared/tasks/workflow-task.ts";
import {
  PREDICT_FRAMES_MAX,
  PREDICT_WAIT_SECONDS_MAX,
  VideoPrediction,
} from "../../../../shared/wire/serving.ts";
import {
  DEFINITION_LIMITS,
  Json,
  WorkflowDefinition,
} from "../../../../shared/workflow/definition.ts";
import { framesQuery } from "../../serving/predict/clip-frames.ts";

/** Bytes of a run's JSON body; images in it are longer by a third than their files. */
export const RUN_BODY_BYTES_MAX = 9 * 1024 * 1024;

/** Images that come as files of a run's form. */
export const RUN_IMAGES_MAX = 16;

const INPUT_FORM = /^[a-z][a-z0-9_]{0,63}$/;
const STREAM_FORM = /^[\w.:-]{1,100}$/;

const inputs = mapOf(z.string().max(64), Json, DEFINITION_LIMITS.inputs).default({}).meta({
  description:
    "values by input; an image is a data address, `data:image/jpeg;base64,…` (PNG, WebP)",
});

/** A run of a definition that comes along. */
export const RunBody = z.strictObject({
  // Where a form comes in the place of JSON, nothing stands here.
  definition: WorkflowDefinition.optional().meta({ description: "required" }),
  inputs,
});
export type RunBody = z.infer<typeof RunBody>;

/** A run of a deployed workflow. */
export const ServeBody = z.strictObject({ inputs });
export type ServeBody = z.infer<typeof ServeBody>;

export const dryRunQuery = {
  dry_run: z.enum(["true", "false"]).default("false").meta({
    description: "true: nothing is sent or stored outside; the answer says what would be",
  }),
};
export const workspaceQuery = {
  workspace_id: z.uuid().optional().meta({
    description: "whose models, secrets and nodes; required where several are possible",
  }),
};
export const streamQuery = {
  stream: z
    .string()
    .regex(STREAM_FORM)
    .optional()
    .meta({
      description:
        "such as the name of a camera: trackers, counters and kept values go on from the last run of " +
        "the same stream; without it every run begins anew",
    }),
};
export const clipQuery = {
  ...framesQuery(PREDICT_FRAMES_MAX),
  frames_input: z.string().regex(INPUT_FORM).max(64).optional().meta({
    description: "the input that takes the frames; its only required image when omitted",
  }),
  annotated_output: z
    .string()
    .regex(INPUT_FORM)
    .max(64)
    .optional()
    .meta({
      description:
        "an output whose value is one image, such as that of `draw_boxes@1`: the run also gives " +
        "these images as a clip, `annotated_video_url`",
    }),
  wait_seconds: whole(0, PREDICT_WAIT_SECONDS_MAX).default(60).meta({
    description: "the answer is waited for as long, then it is 202 and comes under its id",
  }),
};

const EFFECT_STATUSES = ["queued", "stored", "dry_run", "refused"] as const;

/** What became of an effect. */
export const EffectReport = z
  .object({
    step: z.string().meta({ description: "the sink's step" }),
    element: z.array(z.number().int()).meta({
      description: "index of its element at each level; of a video, the frame comes first",
    }),
    kind: WorkflowEffect.shape.kind,
    status: z.enum(EFFECT_STATUSES).meta({
      description:
        "`queued`: is sent in a moment, and again where that fails, see `GET /workflows/deliveries`; " +
        "`stored`: is in the project; `dry_run`: would be done; `refused`: could not be done",
    }),
    detail: z.string().nullable().meta({
      description: "why it was refused, or what else is to be known; no secret",
    }),
    request: Json.nullable().meta({
      description: "of a dry run: what would be asked for, secrets by their names; else null",
    }),
  })
  .meta({ id: "WorkflowEffect" });
export type EffectReport = z.infer<typeof EffectReport>;

const StepReport = WorkflowStepReport.meta({ id: "WorkflowStepReport" });

/** What a run came to. */
export const RunAnswer = z
  .object({
    run_id: z.uuid().meta({ description: "names the run in deliveries and the log" }),
    version: z.number().int().nullable().meta({
      description: "of the deployed or saved workflow; null of a definition that came along",
    }),
    outputs: z.record(z.string(), Json).meta({
      description:
        "values by output; lists in lists where steps deepened it, null where masked; an image is a " +
        "data address",
    }),
    steps: z.array(StepReport).meta({ description: "in the order in which they were planned" }),
    effects: z.array(EffectReport).meta({ description: "what the run had done outside" }),
    seconds: z.number().meta({ description: "that whoever ran it worked on it" }),
    served_by: z.string().meta({
      description: "`worker`, `node/` and the node's name, or `node` by the queue",
    }),
  })
  .meta({ id: "WorkflowRun" });
export type RunAnswer = z.infer<typeof RunAnswer>;

/** A run over a video. */
export const VideoRun = z
  .object({
    run_id: z.uuid().meta({ description: "names the run" }),
    slug: z.string().nullable().meta({ description: "null of a definition that came along" }),
    version: z.number().int().nullable().meta({ description: "of the deployed workflow" }),
    status: z.enum(["queued", "running", "completed", "failed", "canceled"]),
    failure: VideoPrediction.shape.failure,
    problem: WorkflowFailureReport.nullable().meta({
      description: "where the run failed: at which step; `frames` are those before",
    }),
    frames_done: VideoPrediction.shape.frames_done,
    frames_total: VideoPrediction.shape.frames_total,
    width: VideoPrediction.shape.width,
    height: VideoPrediction.shape.height,
    frames: WorkflowVideoAnswer.shape.frames.nullable().meta({
      description: "outputs by frame; images of outputs are null; null until it ended",
    }),
    steps: z.array(StepReport).meta({ description: "of all frames together" }),
    effects: z.array(EffectReport).nullable().meta({
      description: "what was done outside; null until it ended",
    }),
    left_out: WorkflowVideoAnswer.shape.left_out.nullable().meta({
      description: "frames beyond `frames_max`, effects beyond 100, images of outputs",
    }),
    warnings: WorkflowVideoAnswer.shape.warnings,
    annotated_video_url: z
      .url()
      .nullable()
      .optional()
      .meta({
        description:
          "only where `annotated_output` is given: its images on the frames of `frames` as MP4 " +
          "(H.264); signed for 15 minutes, null until the run ended, of a canceled run, of one " +
          "without frames, and where the node's release makes none, which `warnings` says",
      }),
    frames_without_output: z
      .number()
      .int()
      .nullable()
      .optional()
      .meta({
        description:
          "only where `annotated_output` is given: frames on which it is null, which the clip shows " +
          "as they came; null where there is no clip",
      }),
    seconds: VideoPrediction.shape.seconds,
    created_at: VideoPrediction.shape.created_at,
  })
  .meta({ id: "WorkflowVideoRun" });
export type VideoRun = z.infer<typeof VideoRun>;

const file = { type: "string" as const, format: "binary" };
const jsonText = (description: string) => ({ type: "object" as const, description });
const definitionField = jsonText("the definition, as JSON");
const inputsField = jsonText("values of the other inputs by name, as JSON");

/** Described by hand: a zod schema would have the body taken into memory whole. */
const form = <Properties extends object>(
  properties: Properties,
  { required, images = true }: { required: string[]; images?: boolean },
) => ({
  type: "object" as const,
  properties,
  required,
  // Every image is a file named as the input that takes it.
  ...(images
    ? {
        additionalProperties: file,
        maxProperties: RUN_IMAGES_MAX + Object.keys(properties).length,
      }
    : {}),
});

/** The forms in which runs may come, by route. */
export const FORMS = {
  run: form({ definition: definitionField, inputs: inputsField }, { required: ["definition"] }),
  serve: form({ inputs: inputsField }, { required: [] }),
  runVideo: form(
    { definition: definitionField, inputs: inputsField, file },
    { required: ["definition", "file"], images: false },
  ),
  serveVideo: form({ inputs: inputsField, file }, { required: ["file"], images: false }),
};
