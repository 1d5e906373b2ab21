// Wire shapes of what to label next, and of images like one.

import { z } from "zod";

const count = (description: string) => z.number().int().meta({ description });

/** How many frames of a project have embeddings. */
export const Embeddings = z
  .object({
    segmenter: z.string().meta({ description: "whose encoder makes them" }),
    frames: count("images, frames that jobs label or have added, and frames with tags"),
    embedded: count("of those, frames that have an embedding"),
    running: z.boolean().meta({ description: "whether nodes are making some" }),
  })
  .meta({ id: "Embeddings" });
export type Embeddings = z.infer<typeof Embeddings>;

const frame = {
  frame_id: z.string(),
  video_id: z.uuid(),
  filename: z.string().meta({ description: "of the video or image" }),
  index: count("of the frame in its video, 0 of an image"),
  image_url: z.string(),
};

/** Frames like one. */
export const SimilarFrames = z
  .object({
    segmenter: z.string().meta({ description: "whose embeddings were compared" }),
    compared: count("frames of the project that have an embedding"),
    frames: z.array(
      z.object({
        ...frame,
        similarity: z.number().meta({
          description:
            "cosine of both embeddings less the mean of the project's: 1 for the same image, about 0 " +
            "for any other, down to -1",
        }),
      }),
    ),
  })
  .meta({ id: "SimilarFrames" });
export type SimilarFrames = z.infer<typeof SimilarFrames>;

/** Frames to label next. */
export const Suggestion = z
  .object({
    suggestion_id: z.uuid(),
    project_id: z.uuid(),
    status: z.enum(["running", "completed", "failed"]),
    failure: z.string().nullable(),
    budget: count("frames that were asked for"),
    model_id: z.uuid().nullable().meta({
      description: "whose uncertainty counts; null: only how frames differ",
    }),
    segmenter: z.string().meta({ description: "whose embeddings tell how frames differ" }),
    unlabeled_frames: count("unlabeled frames when it began"),
    candidates: count("of those, frames that are ranked: at most 10,000, drawn at random"),
    labeled_frames: count("labeled frames from which they are to differ, at most 500 of them"),
    frames_total: count("frames that nodes look at"),
    frames_done: count("of those, frames that are done"),
    unreadable_frames: count("frames that no node could look at: they are not ranked"),
    frames: z
      .array(
        z.object({
          ...frame,
          uncertainty: z.number().nullable().meta({
            description: "how unsure the model is on it, 1 is the mean of the candidates",
          }),
          distance: z
            .number()
            .nullable()
            .meta({
              description:
                "cosine distance, 0 to 2, to the nearest frame that is labeled or stands before it; " +
                "null of the first one where nothing is labeled",
            }),
        }),
      )
      .meta({ description: "best first; empty until the end" }),
    created_at: z.iso.datetime(),
    ended_at: z.iso.datetime().nullable(),
  })
  .meta({ id: "Suggestion" });
export type Suggestion = z.infer<typeof Suggestion>;
