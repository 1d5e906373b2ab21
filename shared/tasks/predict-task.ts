// What a node is asked of a model about images and videos, and how it tells what was found: by the
// direct line and by the queue in the same words.

import { z } from "zod";
import { Prediction } from "../shapes.ts";
import { MASK_FORMS, type SamBounds, SamMask } from "./sam.ts";
import { ModelSource, ObjectSource, ObjectTarget } from "./task-objects.ts";

/** How much is told of the masks of one image: as JSON it stays below what the line takes. */
export type MaskBounds = Pick<SamBounds, "maskNumbers" | "ringSteps">;

/** Objects of one result with masks: beside those it stays below what a result may have. */
export const MASKED_OBJECTS_MAX = 50_000;

/** One object that a model found, with its mask where masks were asked for. */
export const MaskedPrediction = Prediction.extend({
  mask: SamMask.nullable()
    .optional()
    .meta({
      description:
        "only where masks are asked for, in that form; null where no pixel of the box is on the " +
        "object, or the mask is left out",
    }),
}).meta({ id: "MaskedPrediction" });
export type MaskedPrediction = z.infer<typeof MaskedPrediction>;

/** How masks are told; absent is `none`. */
export const MaskWish = z.enum(MASK_FORMS).optional();

/**
 * Whether a clip of more frames than `frames_max` fails with `too_many_frames`; absent: only its
 * first frames are looked at.
 */
export const Uncut = z.boolean().optional();

/** The payload of a `predict` task. */
export const PredictAsk = z.object({
  model: ModelSource,
  video: ObjectSource,
  /** Frames a second to predict on; null is every frame. */
  fps: z.number().positive().nullable(),
  frames_max: z.number().int().positive(),
  uncut: Uncut,
  confidence: z.number().min(0).max(1),
  mask: MaskWish,
  /** Where the clip with its boxes drawn goes; absent: none is made. */
  annotated: ObjectTarget.optional(),
});
