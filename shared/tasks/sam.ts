// What a segmenter is asked about an image or clip that somebody uploads, and what it answers: by
// the direct line and by the queue in the same words, so that the service checks both alike.

import { z } from "zod";
import { Bbox, Point, Rle } from "../shapes.ts";

/** How a mask is told; `none` asks for boxes only, which cost a segmenter far less. */
export const MASK_FORMS = ["rle", "polygon", "none"] as const;
export type MaskForm = (typeof MASK_FORMS)[number];

/** How much is told of one request: more objects are left out, and more masks, and counted. */
export interface SamBounds {
  objects: number;
  /** Numbers of all its masks: run lengths, or coordinates. */
  maskNumbers: number;
  /** Steps that finding its rings may take, where masks are told as such: a million is a second. */
  ringSteps: number;
}
/** Bounds of an image: as JSON it stays below what the direct line takes, 9 characters a number. */
export const IMAGE_BOUNDS: SamBounds = {
  objects: 1_000,
  maskNumbers: 300_000,
  ringSteps: 4_000_000,
};
/** Bounds of all frames of a clip: below what the result of a task may have. */
export const CLIP_BOUNDS: SamBounds = {
  objects: 20_000,
  maskNumbers: 1_200_000,
  ringSteps: 60_000_000,
};

/** Numbers of one ring: more are no shape that anybody draws. */
export const RING_NUMBERS_MAX = 200_000;

const int32 = () => z.number().int().min(0).max(2_147_483_647);

/** Something to look for. `class_name` is the class of what it finds. */
export const SamPrompt = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("text"), class_name: z.string(), text: z.string() }),
  z.object({
    kind: z.literal("exemplar"),
    class_name: z.string(),
    /** Boxes on frames of the file itself, 0 of an image; or crops as base64 images. */
    exemplars: z.array(
      z.union([z.object({ frame_index: int32(), bbox: Bbox }), z.object({ crop: z.string() })]),
    ),
  }),
  /** The one object under the clicks and, where given, in the box. */
  z.object({
    kind: z.literal("points"),
    class_name: z.string(),
    points: z.array(Point),
    bbox: Bbox.nullable(),
  }),
  /** The one object in the box. */
  z.object({ kind: z.literal("box"), class_name: z.string(), bbox: Bbox }),
]);
export type SamPrompt = z.infer<typeof SamPrompt>;

/** What is wanted of every image or frame. */
export const SamRequest = z.object({
  prompts: z.array(SamPrompt).min(1),
  /** The lowest confidence of what texts and examples find; what was pointed at is always told. */
  threshold: z.number().min(0).max(1),
  mask: z.enum(MASK_FORMS),
  /** Null is the node's default. */
  segmenter: z.string().nullable(),
});
export type SamRequest = z.infer<typeof SamRequest>;

/** A mask in the form that was asked for. */
export const SamMask = z.union([
  z.object({ rle: Rle }),
  z.object({
    polygon: z.array(z.number()).meta({
      description:
        "the mask's one ring along the borders of its pixels, x and y in turn; further pieces, and " +
        "holes, hang on it by bridges of no width, so that filled it is the mask to the pixel",
    }),
  }),
]);
export type SamMask = z.infer<typeof SamMask>;

/** One object, as a node tells it. */
export const SamFinding = z.object({
  /** Index of the prompt that it answers. */
  prompt: int32(),
  confidence: z.number().min(0).max(1),
  bbox: Bbox,
  /** Null where none was asked for, the segmenter made none, or it is one too many. */
  mask: SamMask.nullable(),
});
export type SamFinding = z.infer<typeof SamFinding>;

const SIDE_MAX = 65_535;

/** What a segmenter found; an image is one frame. */
export const SamResult = z.object({
  segmenter: z.string().min(1).max(200),
  /** What people are to know of what the prompts find. */
  warnings: z.array(z.string().max(2_000)).max(200),
  width: z.number().int().min(1).max(SIDE_MAX),
  height: z.number().int().min(1).max(SIDE_MAX),
  frames: z.array(
    z.object({
      frame_index: int32(),
      /** Seconds from the first frame. */
      time: z.number().min(0).max(1e9),
      findings: z.array(SamFinding),
    }),
  ),
  /** Frames beyond `frames_max`; objects and masks beyond their bounds. */
  left_out: z.object({ frames: int32(), objects: int32(), masks: int32() }),
  /** That the node worked on it. */
  seconds: z.number(),
});
export type SamResult = z.infer<typeof SamResult>;
