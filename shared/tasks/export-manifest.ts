// A dataset written down: the frames of its videos, the side of the split that each is on, and
// their annotations. What an export lays out and a training learns from.

import { z } from "zod";
import { Bbox } from "../shapes.ts";

/** The dataset that an export task writes: the object behind its payload's `manifest`. */
export const ExportManifest = z.object({
  name: z.string(),
  /** In index order. */
  classes: z.array(z.string()),
  /** Frames that the gap of the split leaves out. */
  left_out_frames: z.number().int(),
  videos: z.array(
    z.object({
      video_id: z.string(),
      filename: z.string(),
      /** Whether it is a still image; manifests of earlier releases do not say. */
      still: z.boolean().optional(),
      key: z.string(),
      width: z.number().int(),
      height: z.number().int(),
      frames: z.array(
        z.object({
          index: z.number().int(),
          /** Nothing is trained or chosen on `test`. */
          split: z.enum(["train", "val", "test"]),
          /** Class index, corners in pixels, and the mask's ring. */
          annotations: z.array(
            z.object({
              id: z.string(),
              class_index: z.number().int(),
              bbox: Bbox,
              polygon: z.array(z.number()).nullable(),
              /** Manifests of earlier releases have no tracks. */
              track_id: z.number().int().nullable().optional(),
            }),
          ),
        }),
      ),
    }),
  ),
});
export type ExportManifest = z.infer<typeof ExportManifest>;
