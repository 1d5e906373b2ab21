// Wire shapes of labeling and review. Field names are the contract's; boxes are corners in pixels.

import { z } from "zod";
import { TaskIntervention } from "../tasks/task-intervention.ts";
import { Bbox, EXPORT_FORMATS } from "../tasks/tasks.ts";
import { DatasetCounts } from "./dataset-report.ts";
import { Frame, RefusedFile } from "./vision.ts";

const instant = () => z.iso.datetime();
const count = (description: string) => z.number().int().meta({ description });

/** Stored is every detection at or above this; shown are those at or above the job's threshold. */
export const STORED_CONFIDENCE_MIN = 0.05;
export const THRESHOLD_DEFAULT = 0.5;

export const Job = z
  .object({
    job_id: z.uuid(),
    project_id: z.uuid(),
    name: z.string(),
    description: z.string(),
    kind: z.enum(["text", "exemplar", "import", "manual"]),
    status: z.enum(["queued", "running", "completed", "failed", "stopped"]),
    failure: z.string().nullable(),
    threshold: z.number(),
    resolution: z.number().int().nullable(),
    fps: z.number().nullable(),
    prompts: z.array(z.string()),
    model_id: z.uuid().nullable().meta({
      description: "beyond the contract: the model that labels; null where a segmenter does",
    }),
    warnings: z.array(z.string()).meta({
      description: "where a prompt finds more than it names, or was read in part",
    }),
    video_ids: z.array(z.uuid()),
    created_at: instant(),
    started_at: instant().nullable(),
    ended_at: instant().nullable(),
    edits_seq: count(
      "beyond the contract: rises whenever annotations of the job, or its log of changes, change; 0 " +
        "where nothing has been stored yet",
    ),
  })
  .meta({ id: "Job" });
export type Job = z.infer<typeof Job>;

export const JobProgress = z
  .object({
    job_id: z.uuid(),
    status: Job.shape.status,
    failure: z.string().nullable(),
    frames_done: count(
      "frames that the segmenter labeled for all that the current round looks for",
    ),
    frames_total: count("frames that the job labels, without those that people added"),
    progress: z.number().min(0).max(1),
    stored_annotations: count(
      "annotations stored so far, whatever the threshold, with rejected ones and duplicates",
    ),
    frames_per_second: z.number().nullable(),
    eta_seconds: z.number().nullable(),
    tasks: z.object({
      queued: z.number().int(),
      running: z.number().int(),
      finished: z.number().int(),
      failed: z.number().int(),
    }),
    waiting_for: z
      .string()
      .nullable()
      .meta({ description: "what keeps a job from going on, such as no node being there" }),
    intervention: z.union([TaskIntervention, z.null()]).meta({
      description: "newest intervention in a task of the current round; null where there is none",
    }),
    topic: z.string(),
  })
  .meta({ id: "JobProgress" });
export type JobProgress = z.infer<typeof JobProgress>;

export const Annotation = z
  .object({
    annotation_id: z.uuid(),
    job_id: z.uuid(),
    frame_id: z.string(),
    class: z.string(),
    bbox: Bbox,
    accepted: z.boolean().nullable().meta({ description: "null until somebody reviewed it" }),
    confidence: z.number().nullable().meta({ description: "null for what a person drew" }),
    source: z.enum(["model", "person", "import", "interpolated"]),
    found_by: z
      .string()
      .nullable()
      .meta({
        description:
          "beyond the contract: name of the segmenter, or id of the model, that detected it; null for " +
          "other sources, and where it was detected before this was recorded",
      }),
    keyframe: z.boolean().meta({
      description: "a person drew the box or set it: what lies between two can be interpolated",
    }),
    track_id: z.number().int().nullable(),
    duplicate_of: z.uuid().nullable(),
    polygon: z.array(z.number()).nullable(),
    revision: z.number().int(),
    updated_at: instant(),
  })
  .meta({ id: "Annotation" });
export type Annotation = z.infer<typeof Annotation>;

export const AnnotationPage = z
  .object({
    items: z.array(Annotation),
    total: z.number().int(),
    offset: z.number().int(),
    limit: z.number().int(),
    next: z
      .string()
      .nullable()
      .meta({ description: "`cursor` of the page that follows; null: there is none" }),
  })
  .meta({ id: "AnnotationPage" });

/** Annotations that are shown, by what was said of them. */
export const AnnotationCounts = z.object({
  total: z.number().int(),
  pending: z.number().int(),
  accepted: z.number().int(),
  rejected: z.number().int(),
});

/** A job of a list, with how far people are with it. */
export const JobSummary = Job.extend({
  annotations: AnnotationCounts.nullable().meta({
    description:
      "annotations that are shown, by judgement; without duplicates, which need no judgement; null " +
      "unless the request asks for counts",
  }),
  frames: z
    .object({
      total: count("frames that the job labels, and those that people added by their work"),
      done: count(
        "of them, those marked as reviewed, and those with annotations of which each that is shown " +
          "was accepted or rejected",
      ),
    })
    .nullable()
    .meta({ description: "frames of the job; null unless the request asks for counts" }),
}).meta({ id: "JobSummary" });
export type JobSummary = z.infer<typeof JobSummary>;

/** Where a frame is on its way through a team. */
export const FrameStage = z.enum(["label", "review", "done"]);
export type FrameStage = z.infer<typeof FrameStage>;

export const JobFrame = Frame.extend({
  sampled: z.boolean().meta({
    description: "the job labels it; false: somebody drew on it, or reviewed it, all the same",
  }),
  annotations: AnnotationCounts,
  reviewed_at: instant().nullable().meta({
    description: "when somebody marked the frame as reviewed; null: nobody did",
  }),
  reviewed_by: z.uuid().nullable(),
  labeler_id: z.uuid().nullable(),
  reviewer_id: z.uuid().nullable(),
  stage: FrameStage,
  tags: z.array(z.string()),
}).meta({ id: "JobFrame" });
export type JobFrame = z.infer<typeof JobFrame>;

export const JobFramePage = z
  .object({
    items: z.array(JobFrame),
    total: z.number().int(),
    offset: z.number().int(),
    limit: z.number().int(),
  })
  .meta({ id: "JobFramePage" });

export const JobClass = z
  .object({
    class: z.string(),
    index: z.number().int().meta({ description: "place in exports" }),
    prompt: z.string().nullable(),
    annotations: count(
      "annotations of the class that are shown, with rejected ones; without duplicates, unless the " +
        "request asks for them",
    ),
  })
  .meta({ id: "JobClass" });
export type JobClass = z.infer<typeof JobClass>;

const ANNOTATION_COUNT =
  "annotations that are shown (at or above the job's threshold), with rejected ones, without " +
  "duplicates";

export const Overview = z
  .object({
    frame_count: z.number().int().meta({
      description: "frames that the job labels, and those that people added by their work",
    }),
    annotated_frames: DatasetCounts.shape.annotated_frames.meta({
      description: "frames with an annotation that is shown, not rejected and no duplicate",
    }),
    reviewed_frames: count("frames marked as reviewed"),
    annotation_count: count(ANNOTATION_COUNT),
    per_class: z.array(
      z.object({
        class: z.string(),
        count: count("of `annotation_count`, those of the class"),
      }),
    ),
    completion_percentage: z
      .number()
      .min(0)
      .max(100)
      .meta({
        description:
          "frames of the job that are done, in percent of `frame_count`: those marked as reviewed, " +
          "and those with annotations of which each that is shown was accepted or rejected",
      }),
    labeled_percentage: z.number().min(0).max(100).meta({
      description: "frames that the segmenter labeled, in percent of those that the job labels",
    }),
    stages: z
      .object({ label: z.number().int(), review: z.number().int(), done: z.number().int() })
      .meta({ description: "frames of the job by stage, `frame_count` together" }),
    people: z
      .array(
        z.object({
          account_id: z.uuid(),
          labeling: count("frames that they are to label, in stage `label`"),
          labeled: count("frames assigned to them as labeler that are in review or done"),
          reviewing: count("frames that they are to review and that are not done"),
          reviewed: count("frames assigned to them as reviewer that are done"),
        }),
      )
      .meta({ description: "who has frames assigned to them, also former members" }),
  })
  .meta({ id: "Overview" });
export type Overview = z.infer<typeof Overview>;

const Bin = z.object({ from: z.number(), to: z.number(), count: z.number().int() });
/** Bins of confidence, with one of its own for annotations that have none. */
const ConfidenceBins = z
  .array(
    z.object({
      from: z.number().nullable().meta({ description: "lower bound, inclusive" }),
      to: z.number().nullable().meta({ description: "upper bound; inclusive of 1" }),
      count: z.number().int(),
    }),
  )
  .meta({
    description:
      "annotations by confidence; in the last bin, whose bounds are null, those without a " +
      "confidence, such as what people drew",
  });

export const Stats = z
  .object({
    annotation_count: count(`${ANNOTATION_COUNT} unless the request asks for them`),
    reviewed: z.object({
      accepted: z.number().int(),
      rejected: z.number().int(),
      pending: z.number().int(),
    }),
    per_class: z.array(
      z.object({
        class: z.string(),
        count: count("of `annotation_count`, those of the class"),
        share: z.number().min(0).max(1).meta({
          description: "share of `annotation_count` that is of the class, 0 to 1",
        }),
        accepted: z.number().int(),
        rejected: z.number().int(),
        precision: z
          .number()
          .nullable()
          .meta({
            description:
              "accepted of accepted and rejected model annotations; null before a review. Reviews " +
              "are the ground truth: nothing is known of objects that were missed",
          }),
        confidence_histogram: ConfidenceBins,
      }),
    ),
    confidence_histogram: ConfidenceBins,
    box_area_histogram: z
      .array(Bin)
      .meta({ description: "share of the frame, 0 to 1, in tenths of a decade" }),
    annotations_per_frame: z.array(
      z.object({ annotations: z.number().int(), frames: z.number().int() }),
    ),
    duplicates: count(
      "annotations that are shown and repeat a better one, whether or not the request asks for them",
    ),
  })
  .meta({ id: "Stats" });
export type Stats = z.infer<typeof Stats>;

export const ImportRecord = z
  .object({
    job: Job,
    stored_annotations: count("annotations stored with the job, whatever its threshold"),
    unmatched: z.array(z.string()).meta({
      description: "images that the project does not have, by their name in the labels",
    }),
    unmatched_annotations: z.number().int().meta({ description: "labels of those images" }),
    left_out: z
      .number()
      .int()
      .meta({
        description:
          "other labels that were not stored: without an area in their frame, crowds, points and " +
          "other shapes",
      }),
    sides: z
      .object({
        train: count("frames that the archive tells for training"),
        val: count("frames that it tells for validation"),
        test: count("frames that it tells for test"),
      })
      .meta({
        description:
          "frames whose side of the split came with the labels and is kept; 0 where all are on one side",
      }),
    notes: z.array(z.string()).meta({ description: "what was not taken as it stood, for people" }),
  })
  .meta({ id: "ImportRecord" });
export type ImportRecord = z.infer<typeof ImportRecord>;

export const ArchiveImport = z
  .object({
    import_id: z.uuid().meta({
      description: "of the job, too, once it is completed; an uploaded archive's `upload_id`",
    }),
    project_id: z.uuid(),
    name: z.string(),
    status: z.enum(["running", "completed", "failed"]),
    failure: z.string().nullable(),
    images: z
      .object({
        total: count("images of the archive, without frames that the project has"),
        stored: count("images that became videos of the project"),
        existing: count("images that the project had, by path and content"),
        failed: count("images that are not taken"),
        pending: count("images that are not stored or not decoded yet"),
      })
      .meta({ description: "what became of the archive's images by now" }),
    failed_images: z.array(RefusedFile).meta({
      description: "images that are not taken, and why; the first 100",
    }),
    result: z.union([ImportRecord, z.null()]).meta({
      description: "the job and what was not stored; null until then, and after its deletion",
    }),
    created_at: instant(),
    ended_at: instant().nullable(),
  })
  .meta({ id: "ArchiveImport" });
export type ArchiveImport = z.infer<typeof ArchiveImport>;

export const ComparisonFigures = z.object({
  truths: z.number().int(),
  detections: z.number().int().meta({ description: "at or above the job's threshold" }),
  true_positives: z.number().int().meta({ description: "at an IoU of 0.5" }),
  false_positives: z.number().int(),
  false_negatives: z.number().int(),
  precision: z.number().nullable().meta({ description: "null without a detection" }),
  recall: z.number().nullable().meta({ description: "null without a truth" }),
  ap50: z.number().nullable().meta({
    description: "at an IoU of 0.5; null without a truth; overall, the mean of the classes",
  }),
  ap50_95: z.number().nullable().meta({ description: "the mean at IoUs from 0.5 to 0.95" }),
});

export const JobComparison = z
  .object({
    job_id: z.uuid(),
    truth_job_id: z.uuid(),
    threshold: z.number(),
    frames: z.number().int().meta({ description: "labeled by both: those that are compared" }),
    frames_only_in_job: z.number().int(),
    frames_only_in_truth: z.number().int(),
    overall: ComparisonFigures,
    per_class: z
      .array(ComparisonFigures.extend({ class: z.string() }))
      .meta({ description: "classes with an annotation on either side, most truths first" }),
  })
  .meta({ id: "JobComparison" });
export type JobComparison = z.infer<typeof JobComparison>;

export const Change = z
  .object({
    change_id: z.uuid(),
    job_id: z.uuid(),
    kind: z.string(),
    actor_id: z.uuid().nullable(),
    at: instant(),
    undone_at: instant().nullable(),
    annotations: z.number().int(),
    summary: z.record(z.string(), z.unknown()),
  })
  .meta({ id: "Change" });
export type Change = z.infer<typeof Change>;

const SplitSummary = z.object({
  images: count("images of the archive on this side of the split"),
  background_images: count("of those, images without an annotation"),
  annotations: count("annotations of the archive on this side of the split"),
  per_class: z.array(
    z.object({ class: z.string(), count: count("of `annotations`, those of the class") }),
  ),
});

/**
 * Counts of an export. Those of the dataset have the names of the quality report, and with the
 * default options its numbers; those of the archive are there once it is made.
 */
export const ExportSummary = DatasetCounts.extend({
  border_frames: count(
    "frames of the archive within a second, in their video, of a frame on the other side of the " +
      "split; 0 where every video is on one side",
  ),
  train: SplitSummary.meta({ description: "counts of the archive's training side" }),
  val: SplitSummary.meta({ description: "counts of the archive's validation side" }),
  test: SplitSummary.meta({
    description: "counts of the archive's test side; only where the dataset has one",
  }),
  annotations_outside_picture: count("annotations outside of their image, which are in no file"),
  original_images: count("images that are the files as they were uploaded"),
})
  .partial()
  .meta({ id: "ExportSummary" });
export type ExportSummary = z.infer<typeof ExportSummary>;

export const DatasetExport = z
  .object({
    export_id: z.uuid(),
    job_id: z.uuid().nullable().meta({ description: "null for a version of a dataset" }),
    dataset: z
      .object({ dataset_id: z.uuid(), version: z.number().int() })
      .nullable()
      .meta({ description: "the version that was exported; null for a job" }),
    format: z.enum(EXPORT_FORMATS),
    status: z.enum(["queued", "completed", "failed"]),
    failure: z.string().nullable(),
    bytes: z.number().int().nullable(),
    summary: z.union([ExportSummary, z.null()]),
    download_url: z.string().meta({
      description: "signed for 15 minutes once completed; before that it answers 409",
    }),
    created_at: instant(),
    ended_at: instant().nullable(),
  })
  .meta({ id: "DatasetExport" });
export type DatasetExport = z.infer<typeof DatasetExport>;

/** Extensions of images and videos, which alone are cut from names: others are a part of one. */
const MEDIA =
  /\.(jpe?g|jpe|jfif|mpo|a?png|webp|bmp|tiff?|gif|avif|hei[cf]|mp4|m4v|mov|avi|mkv|webm|mpe?g|wmv|ts)$/i;

/** A file's name without folders and the extension of an image or video. */
export const withoutExtension = (filename: string): string =>
  (filename.split(/[\\/]/).at(-1) ?? "").replace(MEDIA, "");

const STEM_LENGTH_MAX = 100;

/**
 * What exports call a video's frames, before `_<six digits>`: safe in any archive reader. Where
 * several videos of one export are called alike, all of them carry `exportSuffix` too.
 */
export const exportStem = (filename: string): string =>
  withoutExtension(filename)
    .normalize("NFC")
    .replace(/[^\p{L}\p{N}._-]+/gu, "_")
    .replace(/^\.+/, "")
    .slice(0, STEM_LENGTH_MAX) || "video";

/** What tells videos of one name apart in exports. */
export const exportSuffix = (videoId: string): string => `-${videoId.slice(0, 8)}`;
