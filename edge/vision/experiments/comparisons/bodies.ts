// Bodies of requests about comparisons: a configuration, and a run of one on an input.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { decimal, mapOf, whole } from "../../../../shared/scalars.ts";
import {
  type ClassMaps,
  COMPARISON_FRAMES_DEFAULT,
  COMPARISON_FRAMES_MAX,
  COMPARISON_SPLITS,
  OVERLAYS_MAX,
} from "../../../../shared/tasks/comparison-task.ts";
import { IMAGE_SIZE_MAX, IMAGE_SIZE_MIN } from "../../../../shared/wire/endpoints.ts";
import { CONFIDENCE_DEFAULT } from "../../../../shared/wire/serving.ts";
import { MODEL_NAMES } from "../../../../shared/wire/training.ts";
import { name, title } from "../../../http/texts.ts";
import { FORM_FIELD_BYTES_MAX } from "../../media/uploads/form.ts";
import type { ComparisonSettings, ComparisonSide } from "./records.ts";

const CLASSES_MAX = 1_000;
const IOU_DEFAULT = 0.5;
const OVERLAYS_DEFAULT = 8;

const Side = z.strictObject({
  model_id: z.uuid().nullable().optional().meta({ description: "this model; or give `alias`" }),
  alias: z
    .enum(MODEL_NAMES)
    .nullable()
    .optional()
    .meta({ description: "whichever model has it at a run, `active` too; or give `model_id`" }),
  export_id: z
    .uuid()
    .nullable()
    .optional()
    .meta({
      description:
        "with `model_id`: an export of it that is run in place of its weights; ONNX, end to end, " +
        "of a batch of 1 or any number",
    }),
  confidence: z.number().min(0).max(1).default(CONFIDENCE_DEFAULT).meta({
    description: "objects of at least this confidence are compared",
  }),
});

const className = () => name().max(200);
const names = mapOf(className(), className().nullable(), CLASSES_MAX)
  .default({})
  .meta({
    description:
      "by the class's name that under which it is compared; null leaves it out, and what is not " +
      "listed keeps its own",
  });

const settings = {
  model_a: Side.meta({ description: "the first model" }),
  model_b: Side.meta({ description: "the second model" }),
  image_size: z
    .int()
    .min(IMAGE_SIZE_MIN)
    .max(IMAGE_SIZE_MAX)
    .multipleOf(32)
    .nullable()
    .default(null)
    .meta({
      description: "side of the square input in pixels, a multiple of 32; null is each model's own",
      multipleOf: 32,
    }),
  iou: z.number().positive().max(1).default(IOU_DEFAULT).meta({
    description: "boxes that overlap by at least this are of one object; above 0 to 1",
  }),
  classes: z
    .strictObject({ a: names, b: names, truth: names })
    .default({ a: {}, b: {}, truth: {} })
    .meta({
      description: "under which names classes are compared, of either model and of the truth",
    }),
};

/** A configuration that comes with a run. */
const Configuration = z.strictObject(settings);

/** A new comparison. */
export const ComparisonBody = z.strictObject({
  name: title(),
  workspace_id: z.uuid().optional().meta({
    description: "whose; required where you are an engineer of several workspaces",
  }),
  ...settings,
});

/** Values of a form are texts: one that holds JSON is read as that. */
const read = (given: unknown): unknown => {
  if (typeof given !== "string") return given;
  try {
    return JSON.parse(given);
  } catch {
    return given;
  }
};

/** A run: a comparison or a configuration, and the one thing that both models look at. */
export const RunBody = z.strictObject({
  comparison_id: z.uuid().optional().meta({ description: "a stored comparison" }),
  configuration: z
    .preprocess(read, Configuration)
    .optional()
    .meta({ description: "in place of `comparison_id`: how to compare; JSON where it is a form" }),
  workspace_id: z.uuid().optional().meta({
    description: "with `configuration`: whose; required where several of yours are possible",
  }),
  video_id: z.uuid().optional().meta({ description: "a video or image of a project" }),
  job_id: z.uuid().optional().meta({
    description: "a job, whose reviewed frames are the truth",
  }),
  export_id: z.uuid().optional().meta({
    description: "a dataset that was exported, whose annotations are the truth",
  }),
  split: z.enum(COMPARISON_SPLITS).optional().meta({
    description: "of a dataset: which of its frames; `val` when omitted",
  }),
  fps: decimal((number) => number.positive().max(1_000))
    .optional()
    .meta({ description: "of a video: frames a second to look at; every frame when omitted" }),
  frames_max: whole(1, COMPARISON_FRAMES_MAX).default(COMPARISON_FRAMES_DEFAULT).meta({
    description: "frames to look at, at most; of more, as many are taken, evenly spread",
  }),
  overlays: whole(0, OVERLAYS_MAX).default(OVERLAYS_DEFAULT).meta({
    description: "frames, of those that differ most, of which an overlay is drawn",
  }),
});
export type RunBody = z.output<typeof RunBody>;

const nullable = () => ({ type: "string" as const, format: "uuid" });
const number = (more: object) => ({ type: "number" as const, ...more });

/** The form of a run; read by hand, since a zod schema would have a video taken into memory. */
export const runForm = {
  type: "object" as const,
  properties: {
    comparison_id: { ...nullable(), description: "a stored comparison; before `file`" },
    configuration: {
      type: "string" as const,
      contentMediaType: "application/json",
      maxLength: FORM_FIELD_BYTES_MAX,
      description: "in place of it: how to compare, as JSON; before `file`",
    },
    workspace_id: { ...nullable(), description: "with `configuration`: whose; before `file`" },
    file: { type: "string" as const, format: "binary" },
    video_id: { ...nullable(), description: "in place of `file`, as in the JSON body" },
    job_id: { ...nullable(), description: "likewise" },
    export_id: { ...nullable(), description: "likewise" },
    split: { type: "string" as const, enum: [...COMPARISON_SPLITS], description: "of a dataset" },
    fps: number({ exclusiveMinimum: 0, maximum: 1_000, description: "of a video" }),
    frames_max: { type: "integer" as const, minimum: 1, maximum: COMPARISON_FRAMES_MAX },
    overlays: {
      type: "integer" as const,
      minimum: 0,
      maximum: OVERLAYS_MAX,
      description: "frames, of those that differ most, of which an overlay is drawn",
    },
  },
};

function sideOf(given: z.output<typeof Side>, field: string): ComparisonSide {
  const { model_id = null, alias = null, export_id = null, confidence } = given;
  if ((model_id === null) === (alias === null)) {
    throw new Failure("invalid_request", `${field}: give either model_id or alias`);
  }
  if (export_id !== null && model_id === null) {
    throw new Failure("invalid_request", `${field}: export_id goes with a model_id`);
  }
  return { model_id, alias, export_id, confidence };
}

/** The settings of a body. Fails with `invalid_request` for what cannot be meant. */
export function settingsOf(body: z.output<typeof Configuration>): ComparisonSettings {
  const classes: ClassMaps = body.classes;
  return {
    model_a: sideOf(body.model_a, "model_a"),
    model_b: sideOf(body.model_b, "model_b"),
    image_size: body.image_size,
    iou: body.iou,
    classes,
  };
}
