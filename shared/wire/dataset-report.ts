// Wire shapes of a job's dataset: its counts, as the quality report, an export's summary and a run
// carry them under the same names, and the quality report itself.

import { z } from "zod";
import { AUGMENTATIONS } from "../detector/augmentation.ts";
import { VARIANT_NAMES } from "../detector/detector.ts";

const count = (description: string) => z.number().int().meta({ description });

/** Which annotations a job's dataset has. */
export const DatasetInclude = z
  .enum(["not_rejected", "accepted"])
  .default("not_rejected")
  .meta({
    description:
      "which annotations: all that nobody rejected, or the accepted ones alone. With `accepted` " +
      "a frame with a pending annotation is left out, since its objects are not all known",
  });
export type DatasetInclude = z.infer<typeof DatasetInclude>;

/**
 * Counts of a job's dataset. By default its annotations are those at or above the job's threshold,
 * without rejected ones and without duplicates.
 */
export const DatasetCounts = z.object({
  total_frames: count("frames of the dataset, with background and with those that are left out"),
  annotated_frames: count(
    "frames with an annotation that is shown, not rejected and no duplicate; with those left out",
  ),
  total_annotations: count(
    "annotations that are shown, not rejected and no duplicates, on all frames of the dataset",
  ),
  left_out_frames: count(
    "frames of the dataset that the split leaves out: training frames of a single video within " +
      "the gap of a validation frame",
  ),
  left_out_annotated_frames: count("annotated frames that the split leaves out"),
  pending_frames: count(
    "frames that are no part of the dataset as they have a pending annotation: with " +
      "`include: accepted` alone",
  ),
});

const WARNING_CODES = [
  "no_annotations",
  "left_out_frames",
  "pending_frames",
  "few_frames",
  "class_imbalance",
  "small_objects",
  "rare_class",
  "empty_class",
  "similar_classes",
  "similar_images",
  "two_classes",
  "tiny_boxes",
] as const;

/** How good a job's annotations are to train on. */
export const DatasetReport = z
  .object({
    job_id: z.uuid(),
    ...DatasetCounts.shape,
    class_count: z.number().int(),
    imbalance_ratio: z
      .number()
      .nullable()
      .meta({
        description:
          "annotations of the most frequent class by those of the rarest that has any; null where " +
          "none has",
      }),
    small_object_share: z.number().min(0).max(1).meta({
      description: "share of the annotations smaller than 1 % of their frame, 0 to 1",
    }),
    class_balance: z
      .array(
        z.object({
          class: z.string(),
          count: z.number().int().meta({ description: "annotations of the class" }),
          percentage: z.number().min(0).max(100).meta({
            description: "percentage share: annotations of the class, in percent of all",
          }),
          annotated_frames: z
            .number()
            .int()
            .meta({ description: "frames with an annotation of the class" }),
        }),
      )
      .meta({ description: "most frequent first" }),
    warnings: z.array(
      z.object({
        code: z.enum(WARNING_CODES),
        severity: z.enum(["advice", "warning", "severe"]),
        message: z.string(),
        data: z.record(z.string(), z.unknown()),
      }),
    ),
    recommended: z
      .object({
        job_id: z.uuid(),
        variant: z.enum(VARIANT_NAMES),
        epochs: z.number().int(),
        batch_size: z
          .number()
          .int()
          .meta({
            description:
              "images a step: what a GPU of 24 GB holds (at 640 px 32 of det26n, 16 of det26s, 8 of " +
              "det26m; at 1280 px a quarter), at most a sixteenth of the training frames, and a " +
              "power of two",
          }),
        image_size: z.number().int(),
        augmentation: z.enum(AUGMENTATIONS),
        include: DatasetInclude,
      })
      .meta({ description: "a body of `POST /train` as it stands" }),
    not_trainable: z.string().nullable().meta({
      description: "why `POST /train` would refuse the job as it is; null where it would not",
    }),
  })
  .meta({ id: "DatasetReport" });
export type DatasetReport = z.infer<typeof DatasetReport>;
