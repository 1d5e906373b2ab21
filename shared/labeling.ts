// Wire shapes of labeling and review. Field names are the contract's; boxes are corners in pixels.

import { z } from "zod";
import { Bbox, EXPORT_FORMATS } from "./tasks.ts";
import { Frame } from "./vision.ts";

const instant = () => z.iso.datetime();

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
    warnings: z.array(z.string()).meta({
      description: "where a prompt finds more than it names, or was read in part",
    }),
    video_ids: z.array(z.uuid()),
    created_at: instant(),
    started_at: instant().nullable(),
    ended_at: instant().nullable(),
  })
  .meta({ id: "Job" });
export type Job = z.infer<typeof Job>;

export const JobProgress = z
  .object({
    job_id: z.uuid(),
    status: Job.shape.status,
    failure: z.string().nullable(),
    frames_done: z.number().int(),
    frames_total: z.number().int(),
    progress: z.number().min(0).max(1),
    annotations: z.number().int().meta({ description: "stored so far, whatever the threshold" }),
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
  })
  .meta({ id: "AnnotationPage" });

/** Annotations of one frame that are shown, by what was said of them. */
const AnnotationCounts = z.object({
  total: z.number().int(),
  pending: z.number().int(),
  accepted: z.number().int(),
  rejected: z.number().int(),
});

export const JobFrame = Frame.extend({
  sampled: z.boolean().meta({
    description: "the job labels it; false: somebody drew on it, or reviewed it, all the same",
  }),
  annotations: AnnotationCounts,
  reviewed_at: instant().nullable().meta({
    description: "when somebody marked the frame as reviewed; null: nobody did",
  }),
  reviewed_by: z.uuid().nullable(),
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
    annotations: z.number().int(),
  })
  .meta({ id: "JobClass" });
export type JobClass = z.infer<typeof JobClass>;

export const Overview = z
  .object({
    frame_count: z.number().int().meta({
      description: "frames that the job labels, and those that people added by their work",
    }),
    annotated_frames: z.number().int(),
    reviewed_frames: z.number().int().meta({ description: "frames marked as reviewed" }),
    annotation_count: z.number().int(),
    per_class: z.array(z.object({ class: z.string(), count: z.number().int() })),
    completion_percentage: z.number().meta({
      description:
        "what was judged of what there is to judge: annotations shown, of which one counts when " +
        "it was accepted or rejected, and frames without any, of which one counts when it was " +
        "marked as reviewed",
    }),
    labeled_percentage: z.number().meta({ description: "frames labeled, of all of the job" }),
  })
  .meta({ id: "Overview" });
export type Overview = z.infer<typeof Overview>;

const Bin = z.object({ from: z.number(), to: z.number(), count: z.number().int() });

export const Stats = z
  .object({
    annotation_count: z.number().int(),
    reviewed: z.object({
      accepted: z.number().int(),
      rejected: z.number().int(),
      pending: z.number().int(),
    }),
    per_class: z.array(
      z.object({
        class: z.string(),
        count: z.number().int(),
        share: z.number(),
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
        confidence_histogram: z.array(Bin),
      }),
    ),
    confidence_histogram: z.array(Bin),
    box_area_histogram: z
      .array(Bin)
      .meta({ description: "share of the frame, in tenths of a decade" }),
    annotations_per_frame: z.array(
      z.object({ annotations: z.number().int(), frames: z.number().int() }),
    ),
    duplicates: z.number().int(),
  })
  .meta({ id: "Stats" });
export type Stats = z.infer<typeof Stats>;

export const ImportRecord = z
  .object({
    job: Job,
    annotations: z.number().int().meta({ description: "stored with the job" }),
    unmatched: z.array(z.string()).meta({
      description: "images that the project does not have, by their name in the labels",
    }),
    unmatched_annotations: z.number().int().meta({ description: "labels of those images" }),
    left_out: z.number().int().meta({
      description:
        "other labels that were not stored: boxes outside of their frame, crowds, points",
    }),
    notes: z.array(z.string()).meta({ description: "what was not taken as it stood, for people" }),
  })
  .meta({ id: "ImportRecord" });
export type ImportRecord = z.infer<typeof ImportRecord>;

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

export const DatasetExport = z
  .object({
    export_id: z.uuid(),
    job_id: z.uuid(),
    format: z.enum(EXPORT_FORMATS),
    status: z.enum(["queued", "completed", "failed"]),
    failure: z.string().nullable(),
    bytes: z.number().int().nullable(),
    summary: z.record(z.string(), z.unknown()).nullable(),
    download_url: z.string().meta({
      description: "signed for 15 minutes once completed; before that it answers 409",
    }),
    created_at: instant(),
    ended_at: instant().nullable(),
  })
  .meta({ id: "DatasetExport" });
export type DatasetExport = z.infer<typeof DatasetExport>;

/** A file's name without folders and what follows its last dot. */
export const withoutExtension = (filename: string): string =>
  (filename.split(/[\\/]/).at(-1) ?? "").replace(/\.[^.]*$/, "");

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
