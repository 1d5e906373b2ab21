// The task of looking at frames to rank them or to find ones like them: a segmenter's encoder gives
// a vector for each, and a model how unsure it is of what it finds.

import { z } from "zod";
import { ModelSource, ObjectSource } from "./task-objects.ts";

const frames = () => z.array(z.number().int());

export const EmbedTask = z.object({
  segmenter: z.string(),
  /** Whose uncertainty is wanted; null where no frame is scored. */
  model: ModelSource.nullable(),
  videos: z
    .array(
      z.object({
        video_id: z.string(),
        video: ObjectSource,
        /** Frames whose embedding is wanted. */
        embed: frames(),
        /** Frames on which the model's uncertainty is wanted. */
        score: frames(),
      }),
    )
    .min(1),
});
export type EmbedTask = z.infer<typeof EmbedTask>;

/** What was made of one frame; null is what was not asked for. */
export const FrameLook = z.object({
  video_id: z.string(),
  frame_index: z.number().int(),
  /** Base64 of a signed byte for each dimension. */
  vector: z.base64().max(16_384).nullable(),
  /** Bits of uncertainty by class of the model: those of classes that it found nothing of lack. */
  entropies: z.record(z.string(), z.number().min(0)).nullable(),
});
export type FrameLook = z.infer<typeof FrameLook>;

export const EmbedResult = z.object({
  frames: z.array(FrameLook),
  /** Videos that cannot be read, such as those that were deleted meanwhile, with the reason. */
  unreadable: z.array(z.object({ video_id: z.string(), detail: z.string().max(2_000) })),
});
export type EmbedResult = z.infer<typeof EmbedResult>;
