// Wire shapes of datasets: jobs that are trained on together, and the versions of what they hold.

import { z } from "zod";
import { DatasetInclude } from "./dataset-report.ts";

const count = (description: string) => z.number().int().meta({ description });
const instant = () => z.iso.datetime();

/** Sides of a dataset's split. */
export const SIDES = ["train", "val", "test"] as const;
export const DatasetSide = z.enum(SIDES).meta({
  description: "nothing is trained or chosen on `test`",
});

const shares = {
  val_share: z.number().min(0).max(0.9).meta({
    description: "share of the frames that is drawn for validation",
  }),
  test_share: z.number().min(0).max(0.9).meta({
    description: "share of the frames that is drawn for test",
  }),
};

/** Jobs that are trained on together, with one list of classes and one split. */
export const Dataset = z
  .object({
    dataset_id: z.uuid(),
    project_id: z.uuid(),
    name: z.string(),
    description: z.string(),
    classes: z.array(z.string()).meta({
      description: "in index order, which never changes; a version appends new ones",
    }),
    jobs: z
      .array(
        z.object({
          job_id: z.uuid(),
          name: z.string(),
          classes: z.record(z.string(), z.string()).meta({
            description: "class of the dataset by class of the job, where they differ",
          }),
          without: z
            .array(z.string())
            .meta({ description: "classes of the job that are left out" }),
        }),
      )
      .meta({ description: "in the order in which they came in" }),
    include: DatasetInclude,
    ...shares,
    newest_version: z.number().int().nullable().meta({ description: "null before the first" }),
    created_at: instant(),
  })
  .meta({ id: "Dataset" });
export type Dataset = z.infer<typeof Dataset>;

/** The side of a video, or of a stretch of its frames. */
export const VideoSide = z
  .object({
    video_id: z.uuid(),
    filename: z.string().nullable().meta({ description: "null once the video was deleted" }),
    from_index: count("first frame of the stretch, which lasts to the next one of the video"),
    side: DatasetSide,
    origin: z.enum(["person", "import", "drawn"]).meta({
      description: "who set the side: a person, the import that brought it along, or the draw",
    }),
  })
  .meta({ id: "VideoSide" });
export type VideoSide = z.infer<typeof VideoSide>;

const SideCounts = z.object({
  frames: count("frames on this side, with background"),
  annotated_frames: count("of those, frames with an annotation"),
  annotations: count("annotations on this side"),
  masks: count("of those, annotations with a polygon"),
});

/** What a version holds. */
export const VersionCounts = z.object({
  train: SideCounts.meta({ description: "frames for training" }),
  val: SideCounts.meta({ description: "frames for the choice of epochs and thresholds" }),
  test: SideCounts.meta({ description: "frames that only measure the finished model" }),
  per_class: z.array(
    z.object({
      class: z.string(),
      train: count("annotations of the class for training"),
      val: count("annotations of the class for validation"),
      test: count("annotations of the class for test"),
    }),
  ),
  left_out_frames: count("training frames within the gap of a frame of another side"),
  left_out_annotated_frames: count("of those, frames with an annotation"),
});
export type VersionCounts = z.infer<typeof VersionCounts>;

const ChangeCounts = z.object({
  added: count("not in the parent"),
  changed: count("in the parent, otherwise"),
  removed: count("in the parent alone"),
});

/** How a version differs from the one before. */
export const VersionChanges = z.object({
  frames: ChangeCounts.meta({ description: "changed: in their side or in an annotation" }),
  annotations: ChangeCounts.meta({ description: "changed: in class, box or polygon" }),
});
export type VersionChanges = z.infer<typeof VersionChanges>;

/** What a dataset was at an instant. It never changes. */
export const DatasetVersion = z
  .object({
    dataset_id: z.uuid(),
    version: count("the version's number: 1, 2, 3 …"),
    parent: z.number().int().nullable().meta({ description: "version before; null of the first" }),
    note: z.string().meta({ description: "what people say of it" }),
    classes: z.array(z.string()),
    include: DatasetInclude,
    counts: VersionCounts,
    changes: VersionChanges.meta({ description: "since the parent; of the first, all is added" }),
    sha256: z.string().meta({ description: "of its manifest" }),
    created_by: z.uuid().nullable().meta({ description: "null once the account is gone" }),
    created_at: instant(),
  })
  .meta({ id: "DatasetVersion" });
export type DatasetVersion = z.infer<typeof DatasetVersion>;
