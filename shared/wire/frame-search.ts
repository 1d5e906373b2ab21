// Wire shapes of the search of frames and of their tags.

import { z } from "zod";
import { AnnotationCounts } from "./labeling.ts";
import { Frame, Video } from "./vision.ts";

/** A frame of a project as a search shows it, with what all jobs of the project say of it. */
export const FoundFrame = Frame.omit({ pts_seconds: true })
  .extend({
    filename: Video.shape.filename,
    tags: z.array(z.string()),
    job_ids: z.array(z.uuid()).meta({
      description:
        "the project's jobs that label the frame, or to which people added it; oldest first",
    }),
    annotations: AnnotationCounts.meta({
      description: "annotations of all these jobs that are at or above the job's threshold",
    }),
  })
  .meta({ id: "FoundFrame" });
export type FoundFrame = z.infer<typeof FoundFrame>;

export const FoundFramePage = z
  .object({
    items: z.array(FoundFrame),
    next: z
      .string()
      .nullable()
      .meta({ description: "`cursor` of the page that follows; null: there is none" }),
  })
  .meta({ id: "FoundFramePage" });
export type FoundFramePage = z.infer<typeof FoundFramePage>;

export const ProjectTagPage = z
  .object({
    items: z.array(
      z.object({
        tag: z.string(),
        frames: z.number().int().meta({ description: "frames of the project that have the tag" }),
      }),
    ),
    total: z.number().int(),
    offset: z.number().int(),
    limit: z.number().int(),
  })
  .meta({ id: "ProjectTagPage" });
export type ProjectTagPage = z.infer<typeof ProjectTagPage>;
