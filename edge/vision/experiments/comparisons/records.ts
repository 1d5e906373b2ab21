// Wire shapes of comparisons: two models side by side, and what came of holding them against each
// other. Boxes are corners in pixels of the frame.

import { z } from "zod";
import {
  ClassMaps,
  COMPARISON_SPLITS,
  ComparedFrame,
  ComparisonSummary,
} from "../../../../shared/tasks/comparison-task.ts";
import { MODEL_NAMES } from "../../../../shared/wire/training.ts";

const instant = () => z.iso.datetime();

/** One of the two models of a comparison, as it is stored. */
export const ComparisonSide = z
  .object({
    model_id: z.uuid().nullable().meta({
      description: "this model; null where it follows `alias`",
    }),
    alias: z.enum(MODEL_NAMES).nullable().meta({
      description: "whichever model has it at a run; null where it is one model by its id",
    }),
    export_id: z.uuid().nullable().meta({
      description: "the file of the model that is run in place of its weights; null is none",
    }),
    confidence: z.number().min(0).max(1).meta({
      description: "objects of at least this confidence are compared",
    }),
  })
  .meta({ id: "ComparisonSide" });
export type ComparisonSide = z.infer<typeof ComparisonSide>;

/** How two models are compared. */
export const ComparisonSettings = z
  .object({
    model_a: ComparisonSide,
    model_b: ComparisonSide,
    image_size: z.number().int().nullable().meta({
      description: "side of the square input in pixels; null is each model's own",
    }),
    iou: z.number().min(0).max(1).meta({
      description: "boxes that overlap by at least this are of one object",
    }),
    classes: ClassMaps,
  })
  .meta({ id: "ComparisonSettings" });
export type ComparisonSettings = z.infer<typeof ComparisonSettings>;

/** A stored configuration. */
export const Comparison = z
  .object({
    comparison_id: z.uuid(),
    workspace_id: z.uuid(),
    name: z.string(),
    settings: ComparisonSettings,
    created_at: instant(),
  })
  .meta({ id: "Comparison" });
export type Comparison = z.infer<typeof Comparison>;

/** A model as a session compared it. */
export const SessionModel = z
  .object({
    model_id: z.uuid(),
    name: z.string(),
    version: z.number().int().meta({ description: "counts up within a name" }),
    export_id: ComparisonSide.shape.export_id,
    confidence: ComparisonSide.shape.confidence,
    image_size: z
      .tuple([z.number().int(), z.number().int()])
      .meta({ description: "height and width of the input, pixels" }),
  })
  .meta({ id: "SessionModel" });
export type SessionModel = z.infer<typeof SessionModel>;

export const INPUT_KINDS = ["image", "video", "job", "export"] as const;

/** What a session's models looked at. */
export const SessionInput = z
  .object({
    kind: z.enum(INPUT_KINDS).meta({ description: "what was given" }),
    filename: z.string().nullable().meta({ description: "of an image or video" }),
    video_id: z.uuid().nullable().meta({ description: "null where it is no project's video" }),
    job_id: z.uuid().nullable().meta({ description: "the job whose reviewed frames they were" }),
    export_id: z.uuid().nullable().meta({ description: "the dataset whose frames they were" }),
    split: z.enum(COMPARISON_SPLITS).nullable().meta({ description: "which of the dataset's" }),
  })
  .meta({ id: "SessionInput" });
export type SessionInput = z.infer<typeof SessionInput>;

/** A frame of a result. */
export const SessionFrame = ComparedFrame.extend({
  overlay_url: z
    .string()
    .nullable()
    .meta({
      description:
        "a JPEG with A's objects in solid orange, B's in dashed blue and the truth in dotted green, " +
        "signed for 15 minutes; null but for the first frames",
    }),
}).meta({ id: "ComparedFrame" });

const untilCompleted = "null until completed";

/** How a session stands, and its result. */
export const ComparisonResult = z
  .object({
    session_id: z.uuid(),
    comparison_id: z.uuid().nullable().meta({
      description: "null where the configuration came with the request",
    }),
    workspace_id: z.uuid(),
    status: z.enum(["queued", "running", "completed", "failed"]),
    failure: z.string().nullable().meta({ description: "why it is `failed`" }),
    progress: z
      .object({
        done: z.number().meta({ description: "frames that were compared" }),
        total: z.number().meta({ description: "frames that there are to compare" }),
      })
      .nullable()
      .meta({ description: "null while it is not being made" }),
    model_a: SessionModel,
    model_b: SessionModel,
    iou: ComparisonSettings.shape.iou,
    classes: ComparisonSettings.shape.classes,
    input: SessionInput,
    summary: ComparisonSummary.nullable().meta({
      description: `what it came to; ${untilCompleted}`,
    }),
    frames: z
      .array(SessionFrame)
      .nullable()
      .meta({ description: `the page, frames that differ most first; ${untilCompleted}` }),
    total: z
      .number()
      .int()
      .nullable()
      .meta({ description: `frames of all; ${untilCompleted}` }),
    offset: z.number().int(),
    limit: z.number().int(),
    created_at: instant(),
    ended_at: instant().nullable(),
  })
  .meta({ id: "ComparisonResult" });
export type ComparisonResult = z.infer<typeof ComparisonResult>;
