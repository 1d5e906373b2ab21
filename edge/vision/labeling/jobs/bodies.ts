// What a request may say to a segmenter: the bodies of the routes that ask one.

import { z } from "@hono/zod-openapi";
import { Bbox, Point } from "../../../../shared/tasks/tasks.ts";
import { THRESHOLD_DEFAULT } from "../../../../shared/wire/labeling.ts";
import { MODEL_NAMES } from "../../../../shared/wire/training.ts";
import { FrameId } from "../../../../shared/wire/vision.ts";
import { name, text } from "../../../http/texts.ts";
import { ClassName } from "../classes.ts";

/** Videos of one job: each may cost a read of the store, and a request has a thousand of those. */
const VIDEOS_MAX = 900;
export const PROMPTS_MAX = 50;
export const EXEMPLARS_MAX = 10;
/** Classes that a job may have. */
export const CLASSES_MAX = 1_000;
/** Frames that one request names. */
const FRAMES_NAMED_MAX = 5_000;
/** Frames of one preview. */
export const PREVIEW_FRAMES_MAX = 8;
/** Seconds of a video: thirty years. */
const SECONDS_MAX = 1_000_000_000;
/** Characters of a crop in base64: enough for a megapixel. */
export const CROP_CHARACTERS_MAX = 1024 * 1024;
/** Bytes of a body with as many crops as it may have. */
export const EXEMPLARS_BYTES_MAX = (EXEMPLARS_MAX + 1) * CROP_CHARACTERS_MAX;

const threshold = z.number().min(0).max(1).default(THRESHOLD_DEFAULT).meta({
  description: "shown are annotations of at least this confidence; lower favours tiny objects",
});
const resolution = z.number().int().min(64).max(8_192).optional().meta({
  description: "longest side at which frames are looked at; the segmenter's own when omitted",
});
/** What people say of a job, when they begin it and later. */
const Words = z.object({ description: text().max(10_000) }).partial();
export type JobWords = z.output<typeof Words>;
export const videoIds = z.array(z.uuid()).min(1).max(VIDEOS_MAX);
/** Which frames of its videos a job is over. */
export const stretch = {
  fps: z.number().positive().max(1_000).optional().meta({
    description: "frames a second to label, by the frames' true times; every frame when omitted",
  }),
  from_seconds: z
    .number()
    .min(0)
    .max(SECONDS_MAX)
    .default(0)
    .meta({ description: "beyond the contract: frames of each video from here on, by true times" }),
  to_seconds: z
    .number()
    .positive()
    .max(SECONDS_MAX)
    .optional()
    .meta({ description: "beyond the contract: and before here; to the end when omitted" }),
};
export type Stretch = Pick<z.output<z.ZodObject<typeof stretch>>, keyof typeof stretch>;
/** What a job by text and one by exemplar have in common. */
const label = {
  project_id: z.uuid(),
  video_ids: videoIds,
  threshold,
  resolution,
  ...stretch,
  name: name().max(200).optional(),
  ...Words.shape,
  description: Words.shape.description.default(""),
  segmenter: name()
    .max(200)
    .optional()
    .meta({ description: "of those a node offers; its default when omitted" }),
};
/** A model of the registry that looks in a segmenter's place. */
export const modelInPlace = z
  .union([z.uuid(), z.enum(MODEL_NAMES)])
  .optional()
  .meta({
    description:
      "beyond the contract: a model of the registry that looks in a segmenter's place, by its id or " +
      "a name; prompts are then among its classes",
  });
const prompts = z.array(ClassName).min(1).max(PROMPTS_MAX).meta({ description: "each is a class" });
/** A job by text. */
export const LabelBody = z.strictObject({
  ...label,
  prompts: prompts.optional().meta({
    description:
      "required without a model: each is a class; with one, all of its classes when omitted",
  }),
  model: modelInPlace,
});
const crop = z
  .base64()
  .max(CROP_CHARACTERS_MAX)
  .meta({ contentEncoding: "base64", pattern: z.regexes.base64.source });
/** Examples of a class: boxes on frames, or crops. */
export const exemplars = z
  .array(z.union([z.strictObject({ frame_id: FrameId, bbox: Bbox }), z.strictObject({ crop })]))
  .min(1)
  .max(EXEMPLARS_MAX)
  .meta({ description: "boxes on frames, or crops as base64 images; two or three are best" });
/** A job by examples of one class. */
export const ExemplarBody = z.strictObject({
  ...label,
  exemplars,
  class: ClassName.default("object"),
});
/** Videos, or frames of videos, for a job. */
const chosen = {
  video_ids: videoIds.optional(),
  frame_ids: z.array(FrameId).min(1).max(FRAMES_NAMED_MAX).optional().meta({
    description: "frames by their ids, in place of `video_ids`",
  }),
  ...stretch,
};
export type FrameChoice = z.output<z.ZodObject<typeof chosen>>;
/** Refuses videos and frames beside each other, and a sampling of frames that are named. */
const assertChosen = ({ video_ids, frame_ids, fps, from_seconds, to_seconds }: FrameChoice) =>
  frame_ids
    ? !video_ids && fps === undefined && from_seconds === 0 && to_seconds === undefined
    : video_ids !== undefined;
const CHOSEN =
  "video_ids: give either video_ids, with fps, from_seconds and to_seconds where wanted, or frame_ids";
/** A job without a segmenter, for people to draw in. */
export const ManualBody = z
  .strictObject({
    project_id: z.uuid(),
    ...chosen,
    classes: z.array(ClassName).max(CLASSES_MAX).default([]).meta({
      description: "classes in the order of their index; drawing adds others",
    }),
    name: name().max(200).default("manual"),
    ...Words.shape,
    description: Words.shape.description.default(""),
  })
  .refine(assertChosen, CHOSEN);
/** Videos or frames that a job gets in addition. */
export const AddedVideosBody = z.strictObject(chosen).refine(assertChosen, CHOSEN);
/** A few frames on which a segmenter is tried. */
export const PreviewBody = z.strictObject({
  frame_ids: z.array(FrameId).min(1).max(PREVIEW_FRAMES_MAX),
  prompts: prompts.optional(),
  exemplars: exemplars.optional(),
  threshold,
  resolution,
  segmenter: label.segmenter,
  model: modelInPlace,
});
/** Clicks on a frame, or a box, for a mask. */
export const SegmentBody = z.strictObject({
  frame_id: FrameId,
  points: z.array(Point.strict()).max(100).default([]),
  bbox: Bbox.optional(),
  segmenter: label.segmenter,
});

/** What of a job people change: what is left out stays. */
export const JobEdit = z.strictObject({
  name: name().max(200).optional(),
  ...Words.shape,
  threshold: z.number().min(0).max(1).optional(),
});
export type JobEdit = z.output<typeof JobEdit>;
