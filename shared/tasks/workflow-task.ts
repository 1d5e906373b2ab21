// What goes to a GPU node for the run of a workflow, and what comes back: by the direct line and by
// the queue in the same words, so that the service checks both alike. A node is told no secret: it
// tells what is to be done, and the service, which knows them, does it.

import { z } from "zod";
import { InlinedDefinition, Json } from "../workflow/definition.ts";
import { Uncut } from "./predict-task.ts";
import { ModelSource, ObjectSource, ObjectTarget, StoredObject } from "./task-objects.ts";

/** Bytes of all images of a run's answer, as they stand in it: below what the line takes. */
export const ANSWER_IMAGE_BYTES_MAX = 3 * 1024 * 1024;
/** The same of all frames of a video: below what the result of a task may have. */
export const VIDEO_BYTES_MAX = 10 * 1024 * 1024;
/** Bytes of what the steps of a video remember at its end, of which nobody has need yet. */
export const VIDEO_STATE_BYTES_MAX = 128 * 1024;
/** Effects that a run may ask for. */
export const EFFECTS_MAX = 10_000;
/** Effects of a video's run that are told; the others are counted. */
export const VIDEO_EFFECTS_MAX = 100;

const int32 = () => z.number().int().min(0).max(2_147_483_647);
const Name = z.string().min(1).max(80);
const SIDE_MAX = 65_535;

/** A model of the registry that a name of a run stands for. */
export const ResolvedModel = z.object({
  model_id: z.string(),
  name: z.string(),
  version: z.number().int().min(0),
  source: ModelSource,
  /** What the endpoint tells that the name means; null of a name that means no endpoint. */
  told: z.object({ confidence: z.number(), classes: z.array(z.string()).nullable() }).nullable(),
});
export type ResolvedModel = z.infer<typeof ResolvedModel>;

const run = {
  /** With its sub-workflows in it. */
  definition: InlinedDefinition,
  /** Values by input, but for the images. */
  inputs: z.record(z.string(), Json),
  /** By what the definition and the inputs call them. */
  models: z.record(z.string(), ResolvedModel),
  /** By step, as the last run of the stream left it. */
  state: z.record(z.string(), Json),
  /** Whose run it is, as a node can tell it from others: it shares results with none of them. */
  workspace: z.string().min(1).max(100),
};

/** A run as the direct line asks for it; the files of its images follow in their order. */
export const WorkflowAsk = z.object({
  ...run,
  /** Inputs, and how long the file of each one is. */
  images: z.array(z.object({ name: Name, bytes: int32() })).max(50),
  /** Milliseconds since 1970. */
  now: z.number(),
});
export type WorkflowAsk = z.infer<typeof WorkflowAsk>;

/** The same as a task of the queue, its images in the store. */
export const WorkflowTask = z.object({
  ...run,
  images: z.array(z.object({ name: Name, file: ObjectSource })).max(50),
  now: z.number(),
});
export type WorkflowTask = z.infer<typeof WorkflowTask>;

/** Whose a video's run is: what the service needs once its node is done. No node reads it. */
export const WorkflowOrigin = z.object({
  /** The account that asked. */
  actor_id: z.string().nullable(),
  /** Whether what it has done outside is only told. */
  dry_run: z.boolean(),
  /** The deployed version; null of a definition that came along. */
  deployed: z
    .object({
      workflow_id: z.string(),
      version_id: z.string(),
      slug: z.string(),
      version: z.number().int().min(1),
    })
    .nullable(),
});
export type WorkflowOrigin = z.infer<typeof WorkflowOrigin>;

/** A run over the frames of a video, one after another; its time is that of the frames. */
export const WorkflowVideoTask = z.object({
  ...run,
  images: z.array(z.object({ name: Name, file: ObjectSource })).max(50),
  /** The input that takes the frames. */
  frames_input: Name,
  video: ObjectSource,
  /** Frames a second to look at; null is every frame. */
  fps: z.number().positive().nullable(),
  frames_max: z.number().int().positive(),
  uncut: Uncut,
  origin: WorkflowOrigin.nullable(),
  /** The output whose images become a clip, and where that goes; absent: none is made. */
  annotated_output: Name.optional(),
  annotated: ObjectTarget.optional(),
});
export type WorkflowVideoTask = z.infer<typeof WorkflowVideoTask>;

/** Sentences for people. */
const Warnings = z.array(z.string().max(2_000)).max(200);

/** What a step did; in a video, on all frames together. */
export const WorkflowStepReport = z.object({
  step: z.string(),
  type: z.string(),
  /** Elements that it worked on, and those that it was not to work on. */
  elements: int32(),
  masked: int32(),
  cache_hits: int32(),
  ms: z.number().min(0),
  models: z
    .array(
      z.object({
        asked: z.string(),
        model_id: z.string(),
        name: z.string(),
        version: z.number().int().min(0),
      }),
    )
    .max(100),
  warnings: Warnings,
});
export type WorkflowStepReport = z.infer<typeof WorkflowStepReport>;

/** What is to be done outside, as a step of the run told it. */
export const WorkflowEffect = z.object({
  step: z.string(),
  /** Indexes of the element in its batches, outermost first. */
  element: z.array(int32()).max(8),
  kind: z.enum(["webhook", "dataset_upload"]),
  request: Json,
  /** Base64 JPEG. */
  image: z.string().nullable(),
});
export type WorkflowEffect = z.infer<typeof WorkflowEffect>;

/** Why a run ended without outputs. */
export const WorkflowFailureReport = z.object({
  code: z.enum(["step_failed", "limit", "canceled", "bad_input"]),
  /** Null where it is about no single one. */
  step: z.string().nullable(),
  element: z.array(int32()).max(8).nullable(),
  detail: z.string(),
});
export type WorkflowFailureReport = z.infer<typeof WorkflowFailureReport>;

/** What a run came to. One that failed did nothing outside: its effects and state are not told. */
export const WorkflowAnswer = z.union([
  z.object({
    failure: z.null(),
    /** Images as data addresses; lists in lists by depth, null for what was masked. */
    outputs: z.record(z.string(), Json),
    steps: z.array(WorkflowStepReport).max(2_000),
    effects: z.array(WorkflowEffect).max(EFFECTS_MAX),
    state: z.record(z.string(), Json),
    /** That the node worked on it. */
    seconds: z.number().min(0),
  }),
  z.object({ failure: WorkflowFailureReport }),
]);
export type WorkflowAnswer = z.infer<typeof WorkflowAnswer>;

/** What a run over a video came to; where it failed at a frame, with the frames before that. */
export const WorkflowVideoAnswer = z.object({
  failure: WorkflowFailureReport.nullable(),
  width: z.number().int().min(1).max(SIDE_MAX),
  height: z.number().int().min(1).max(SIDE_MAX),
  frames: z.array(
    z.object({
      frame_index: int32(),
      /** Seconds from the first frame. */
      time: z.number().min(0).max(1e9),
      /** Without images: they are null. */
      outputs: z.record(z.string(), Json),
    }),
  ),
  steps: z.array(WorkflowStepReport).max(2_000),
  effects: z.array(WorkflowEffect.extend({ frame_index: int32() })).max(VIDEO_EFFECTS_MAX),
  state: z.record(z.string(), Json),
  /** Frames beyond `frames_max`, effects beyond their bound, images of outputs. */
  left_out: z.object({ frames: int32(), effects: int32(), images: int32() }),
  warnings: Warnings,
  /**
   * The clip of an output's images on the frames that are answered. Only where it was asked for,
   * by nodes that make such, and not of a canceled run, nor of one without frames.
   */
  annotated: StoredObject.extend({
    /** Frames on which the output was null: the clip has the frame as it came. */
    frames_without_output: int32(),
  }).optional(),
  seconds: z.number().min(0),
});
export type WorkflowVideoAnswer = z.infer<typeof WorkflowVideoAnswer>;
