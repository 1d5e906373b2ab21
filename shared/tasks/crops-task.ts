// The task of cutting crops of annotations that no label task has cut: of images and imports, of
// boxes that people drew or moved.

import { z } from "zod";
import { Bbox } from "../shapes.ts";
import { int32, ObjectSource, ObjectTarget } from "./task-objects.ts";

export const CropsTask = z.object({
  videos: z
    .array(
      z.object({
        video_id: z.string(),
        video: ObjectSource,
        boxes: z.array(z.object({ frame_index: int32(), bbox: Bbox })).min(1),
        /** Where the video's crop pack goes. */
        pack: ObjectTarget,
      }),
    )
    .min(1),
});
export type CropsTask = z.infer<typeof CropsTask>;

export const CropsResult = z.object({
  /** Videos whose pack was written. */
  packed: z.array(z.string()),
  /** Boxes without a crop: their video cannot be read, or the pack was full. */
  left_out: int32(),
});
export type CropsResult = z.infer<typeof CropsResult>;
