// The kinds of task that the vision service gives to GPU nodes: what each carries and comes to, and
// what queue and node know of it: an entry of `TASK_KINDS` each, and a runner in `gpu-node/tasks`.

import { z } from "zod";
import { Bbox, Point, Prediction, Rle } from "../shapes.ts";
import { ExportedFile, ExportWish } from "../wire/exports.ts";
import { ResolvedSettings, RunEpoch, TrainSettings } from "../wire/training.ts";
import { ComparedFile, ComparisonOutcome, ComparisonRules } from "./comparison-task.ts";
import { CropsResult, CropsTask } from "./crops-task.ts";
import { EmbedResult, EmbedTask } from "./embed-task.ts";
import { MaskedPrediction, PredictAsk } from "./predict-task.ts";
import { SamResult } from "./sam.ts";
import { SamTask } from "./sam-task.ts";
import { int32, ModelSource, ObjectSource, ObjectTarget, StoredObject } from "./task-objects.ts";
import { Checkpoint, RunArtifact, TrainedModel } from "./train-task.ts";
import {
  WorkflowAnswer,
  WorkflowTask,
  WorkflowVideoAnswer,
  WorkflowVideoTask,
} from "./workflow-task.ts";

// Everybody knows boxes, clicks, predictions and what the store has from here.
export { Bbox, ModelSource, ObjectSource, ObjectTarget, Point, Prediction, StoredObject };

/** Layouts of an exported dataset, with what each holds. */
export const EXPORT_CONTENTS = {
  yolo: "boxes",
  "yolo-seg": "masks as polygons",
  coco: "instances with both",
  voc: "Pascal VOC, masks as its objects' `polygon`",
  cvat: "CVAT for images 1.1",
  "cvat-video":
    "CVAT for video 1.1, a folder for each video; a track is `outside` from the first frame of the " +
    "dataset that lacks it, and an annotation without a track is a track of one frame",
  mot:
    "MOT 1.1 as CVAT has it, boxes with coordinates from 0, a folder for each video, whose frames " +
    "in the dataset are numbered from 1; annotations without a track get ids of their own",
} as const;
export type ExportFormat = keyof typeof EXPORT_CONTENTS;
export const EXPORT_FORMATS = Object.keys(EXPORT_CONTENTS) as ExportFormat[];

/** What an export calls its images: stills as frames of videos are called, or as they came. */
export const EXPORT_NAMES = ["frames", "original"] as const;
export type ExportNames = (typeof EXPORT_NAMES)[number];

/** What to look for. Text is grounded in the segmenter's vocabulary, or refused. */
export const Prompt = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("text"), class_name: z.string(), text: z.string() }),
  z.object({
    kind: z.literal("exemplar"),
    class_name: z.string(),
    /** Boxes on frames of the store, or crops as base64 images. */
    exemplars: z.array(
      z.union([
        z.object({ video: ObjectSource, frame_index: z.number().int(), bbox: Bbox }),
        z.object({ crop: z.string() }),
      ]),
    ),
  }),
]);
export type Prompt = z.infer<typeof Prompt>;

/** One object that a segmenter detected on a frame. */
export const Detection = z.object({
  class_name: z.string(),
  bbox: Bbox,
  confidence: z.number().min(0).max(1),
  /** Outer ring of the mask, x and y in turn, pixels of the source frame; null without a mask. */
  polygon: z.array(z.number()).nullable(),
  /** Index in the frame's list of another class's detection of the same object. */
  duplicate_of: z.number().int().nullable(),
});
export type Detection = z.infer<typeof Detection>;

/** Sentences for people. */
const Warnings = z.array(z.string().max(2_000)).max(200);

export const FrameDetections = z.object({
  frame_index: z.number().int(),
  detections: z.array(Detection),
});
export type FrameDetections = z.infer<typeof FrameDetections>;

/** A mask in the three forms that users ask for. */
export const Mask = z.object({
  png: z.string().meta({ description: "base64 PNG, one channel, 255 on the object" }),
  rle: Rle,
  polygon: z.array(z.number()),
  bbox: Bbox,
  score: z.number().min(0).max(1),
});
export type Mask = z.infer<typeof Mask>;

const videoSource = { video: ObjectSource, video_id: z.string() };

/** Who looks for objects, and for which. */
const search = {
  /** With a model, each names one of its classes as text. */
  prompts: z.array(Prompt).min(1),
  /** Pixels of a frame's longest side for whoever looks; null is its own. */
  resolution: z.number().int().nullable(),
  /** Null is a node's default. */
  segmenter: z.string().nullable(),
  /** A model of the registry that looks in a segmenter's place. */
  model: ModelSource.nullable(),
};

/** Pixels of an image's longest side, frames a second and seconds: beyond them is no video. */
const SIDE_MAX = 65_535;
const FPS_MAX = 1e6;
const DURATION_SECONDS_MAX = 1e9;

/**
 * Where a node has room for a task: `interactive` work is answered in seconds, `short` work in
 * minutes, and somebody waits for both, so neither stands behind `batch` work; `build` and
 * `training` have processes of their own, for up to an hour and for days.
 */
export const TASK_LANES = ["interactive", "short", "batch", "build", "training"] as const;
export type TaskLane = (typeof TASK_LANES)[number];

/**
 * What a node must have to do a task: `engine` is the training engine, with its torch; `trtexec` is
 * TensorRT's builder, with a GPU.
 */
export type TaskNeed = "ffmpeg" | "segmenter" | "engine" | "trtexec";

const PRIORITY_DEFAULT = 0;
/** Claimed before all that nobody waits for. */
const PRIORITY_SHORT = 50;
/** Claimed before all else. */
const PRIORITY_INTERACTIVE = 100;

/** A model of the registry, and the file that is wanted of it. */
const modelExportPayload = ExportWish.extend({
  model: ModelSource,
  /** Frames of the model's dataset, to verify on; one that is gone by then is left out. */
  images: z.array(ObjectSource),
  /** What the model learned from: an ExportManifest, and its videos by key. */
  dataset: z.object({ manifest: ObjectSource, videos: z.array(ObjectSource) }).nullable(),
  file: ObjectTarget,
});

/** What all kinds of task that make a model's file share. */
const modelExportKind = (lane: TaskLane, needs: readonly TaskNeed[]) =>
  ({
    lane,
    priority: PRIORITY_SHORT,
    needs: ["ffmpeg", ...needs],
    shared: false,
    payload: modelExportPayload,
    result: ExportedFile,
  }) as const;

/** A model, or a file of it that is run in its place. */
const comparedModel = ComparedFile.extend({
  model: ModelSource,
  file: ObjectSource.nullable(),
});

/** What a kind of task is to the queue and to a node. */
interface TaskKindEntry {
  payload: z.ZodType;
  result: z.ZodType;
  lane: TaskLane;
  /** Higher is claimed first; an enqueued task may have its own. */
  priority: number;
  needs: readonly TaskNeed[];
  /** Whether tasks of the kind run beside each other in one process, such as in one batch. */
  shared: boolean;
}

/** Every kind of task: all that the service and the nodes know of kinds derives from here. */
export const TASK_KINDS = {
  /** What a file is: decoded once, its frames' pts stored, a thumbnail made. */
  probe: {
    lane: "short",
    priority: PRIORITY_SHORT,
    needs: ["ffmpeg"],
    shared: false,
    payload: z.object({
      ...videoSource,
      filename: z.string(),
      still: z.boolean(),
      pts: ObjectTarget,
      thumbnail: ObjectTarget,
    }),
    result: z.union([
      z.object({
        broken: z.null(),
        content_type: z.string().regex(/^(video|image)\/[a-z0-9.+-]{1,60}$/),
        width: z.number().int().min(1).max(SIDE_MAX),
        height: z.number().int().min(1).max(SIDE_MAX),
        fps: z.number().positive().max(FPS_MAX),
        duration_seconds: z.number().min(0).max(DURATION_SECONDS_MAX),
        frame_count: int32().min(1),
        time_base: z.tuple([int32().min(1), int32().min(1)]),
        probe: z.record(z.string(), z.unknown()),
      }),
      /** The file is no video that we take; the reason is for its owner. */
      z.object({ broken: z.string() }),
    ]),
  },
  /** Labels some frames of one video. */
  label: {
    lane: "batch",
    priority: PRIORITY_DEFAULT,
    needs: ["ffmpeg", "segmenter"],
    shared: false,
    payload: z.object({
      ...videoSource,
      ...search,
      job_id: z.string(),
      frames: z.array(z.number().int()).min(1),
      /** Where the JPEG of each of `frames` goes, in their order; null where the store has it. */
      images: z.array(ObjectTarget.nullable()),
      /** Where a crop pack of what is detected goes; none is wanted when left out. */
      crops: ObjectTarget.optional(),
    }),
    result: z.object({
      frames: z.array(FrameDetections),
      /** Who looked: a segmenter's name, or a model's id. */
      segmenter: z.string(),
      seconds: z.number(),
      /** What people are to know of what the prompts find. */
      warnings: Warnings,
    }),
  },
  /** Labels a few frames and draws the detections. */
  preview: {
    lane: "interactive",
    priority: PRIORITY_INTERACTIVE,
    needs: ["ffmpeg", "segmenter"],
    shared: false,
    payload: z.object({
      ...videoSource,
      ...search,
      frames: z.array(z.number().int()).min(1),
      threshold: z.number(),
    }),
    result: z.object({
      frames: z.array(FrameDetections.extend({ image: z.string() })),
      segmenter: z.string(),
      warnings: Warnings,
    }),
  },
  /** A mask from clicks and, where given, a box on one frame; alternatives best first. */
  segment: {
    lane: "interactive",
    priority: PRIORITY_INTERACTIVE,
    needs: ["ffmpeg", "segmenter"],
    shared: false,
    payload: z.object({
      ...videoSource,
      frame_index: z.number().int(),
      points: z.array(Point),
      box: Bbox.nullable(),
      segmenter: z.string().nullable(),
    }),
    result: z.object({ masks: z.array(Mask), segmenter: z.string() }),
  },
  /** Embeddings of frames, and how unsure a model is on them. */
  embed: {
    lane: "batch",
    priority: PRIORITY_SHORT,
    needs: ["ffmpeg", "segmenter"],
    shared: false,
    payload: EmbedTask,
    result: EmbedResult,
  },
  /** Crops of boxes, in a pack for each video. */
  crops: {
    lane: "short",
    priority: PRIORITY_SHORT,
    needs: ["ffmpeg"],
    shared: false,
    payload: CropsTask,
    result: CropsResult,
  },
  /** JPEGs of single frames. */
  frames: {
    lane: "interactive",
    priority: PRIORITY_INTERACTIVE,
    needs: ["ffmpeg"],
    shared: false,
    payload: z.object({
      ...videoSource,
      frames: z.array(z.number().int()).min(1),
      images: z.array(ObjectTarget),
      /** Pixels of the images' width, fewer than the frames have; the frames' own when left out. */
      width: z.number().int().min(1).optional(),
    }),
    result: z.object({}),
  },
  /** A dataset as a zip. The annotations come as one JSON object of the store. */
  export: {
    lane: "short",
    priority: PRIORITY_SHORT,
    needs: ["ffmpeg"],
    shared: false,
    payload: z.object({
      export_id: z.string(),
      format: z.enum(EXPORT_FORMATS),
      /** Whether a box without a mask gets its rectangle as polygon, in `coco` and `yolo-seg`. */
      rectangles: z.boolean(),
      names: z.enum(EXPORT_NAMES).default("frames"),
      manifest: ObjectSource,
      /** The manifest's videos, by key: only a payload's references are given addresses. */
      videos: z.array(ObjectSource),
      archive: ObjectTarget,
    }),
    result: z.object({ bytes: z.number().int(), summary: z.record(z.string(), z.unknown()) }),
  },
  /**
   * A model as an ONNX file in single precision, which is made at once, so that it waits for no
   * longer build. Offered once it gives what the model's predictor gives. `export` is a dataset's.
   */
  model_export: modelExportKind("short", []),
  /** A model as a file of any other format or precision. */
  device_export: modelExportKind("build", []),
  /** A model as what TensorRT builds of it for the GPU of one node. */
  engine_export: modelExportKind("build", ["trtexec"]),
  /**
   * Trains a detector on a dataset. A canceled one gives the same result: its model has the weights
   * as they were when it stopped, and better weights before are an artifact.
   */
  train: {
    lane: "training",
    priority: PRIORITY_DEFAULT,
    needs: ["ffmpeg", "engine"],
    shared: false,
    payload: z.object({
      run_id: z.string(),
      name: z.string(),
      settings: TrainSettings,
      /** An ExportManifest, and its videos by key. */
      manifest: ObjectSource,
      videos: z.array(ObjectSource),
      /** The weights to begin with, and their file's format; null trains from scratch. */
      pretrained: z
        .union([
          z.object({ weights: ObjectSource, format: z.enum(["safetensors", "onnx"]) }),
          // Those of the node: one that lacks them leaves the task to others.
          z.object({ dataset: z.string() }),
        ])
        .nullable(),
      /** How far an earlier attempt got; null for the first. */
      resume: z.object({ checkpoint: ObjectSource, at: Checkpoint }).nullable(),
    }),
    result: z.object({
      stopped: z.boolean(),
      history: z.array(RunEpoch),
      resolved: ResolvedSettings.nullable(),
      /** Null where no step was taken yet. */
      model: TrainedModel.nullable(),
      checkpoint: Checkpoint.nullable(),
      artifacts: z.array(RunArtifact),
    }),
  },
  /** Opens a model and predicts once, so that the next prediction is a fast one. */
  warm: {
    lane: "interactive",
    priority: PRIORITY_INTERACTIVE,
    needs: ["ffmpeg"],
    shared: true,
    payload: z.object({ model: ModelSource }),
    result: z.object({ seconds: z.number() }),
  },
  /** Predicts on frames of a video or image of the store. */
  predict: {
    lane: "interactive",
    priority: PRIORITY_INTERACTIVE,
    needs: ["ffmpeg"],
    shared: true,
    payload: PredictAsk,
    result: z.object({
      width: z.number().int().min(1).max(SIDE_MAX),
      height: z.number().int().min(1).max(SIDE_MAX),
      frames: z.array(
        z.object({
          frame_index: int32(),
          /** Seconds from the first frame. */
          time: z.number().min(0).max(DURATION_SECONDS_MAX),
          predictions: z.array(MaskedPrediction),
        }),
      ),
      /** How many frames beyond `frames_max` were left out. */
      left_out: int32(),
      /** Masks of objects that are told, beyond the bounds; only where masks were asked for. */
      masks_left_out: int32().optional(),
      /** The clip with its boxes drawn; only where it was asked for. */
      annotated: StoredObject.optional(),
      seconds: z.number(),
    }),
  },
  /** Holds two models against each other on the same decoded frames. */
  comparison: {
    lane: "interactive",
    priority: PRIORITY_INTERACTIVE,
    needs: ["ffmpeg"],
    shared: true,
    payload: ComparisonRules.extend({
      models: z.tuple([comparedModel, comparedModel]),
      /** An image or video; null where it is the frames of `dataset`, an ExportManifest. */
      video: ObjectSource.nullable(),
      dataset: z.object({ manifest: ObjectSource, videos: z.array(ObjectSource) }).nullable(),
      report: ObjectTarget,
      overlays: z.array(ObjectTarget),
    }),
    result: ComparisonOutcome,
  },
  /** Looks for what prompts mean on an uploaded image. */
  sam: {
    lane: "interactive",
    priority: PRIORITY_INTERACTIVE,
    needs: ["ffmpeg", "segmenter"],
    shared: false,
    payload: SamTask,
    result: SamResult,
  },
  /** The same on frames of an uploaded clip: minutes of work, as long as labeling them is. */
  sam_video: {
    lane: "batch",
    priority: PRIORITY_SHORT,
    needs: ["ffmpeg", "segmenter"],
    shared: false,
    payload: SamTask,
    result: SamResult,
  },
  /** Runs a workflow on its inputs; a run that failed is a result, too. */
  workflow: {
    lane: "interactive",
    priority: PRIORITY_INTERACTIVE,
    needs: ["ffmpeg"],
    shared: false,
    payload: WorkflowTask,
    result: WorkflowAnswer,
  },
  /** Runs a workflow on the frames of an uploaded clip. A canceled one gives those done. */
  workflow_video: {
    lane: "batch",
    priority: PRIORITY_SHORT,
    needs: ["ffmpeg"],
    shared: false,
    payload: WorkflowVideoTask,
    result: WorkflowVideoAnswer,
  },
} as const satisfies Record<string, TaskKindEntry>;

export type TaskKind = keyof typeof TASK_KINDS;
/** In the table's order. */
export const TASK_KIND_NAMES = Object.keys(TASK_KINDS) as TaskKind[];

/** Whether a kind is one that this build knows. */
export const isTaskKind = (kind: string): kind is TaskKind => Object.hasOwn(TASK_KINDS, kind);

/** What the table says of a kind by its name; null of one that this build does not know. */
export const taskKind = (kind: string): TaskKindEntry | null =>
  isTaskKind(kind) ? TASK_KINDS[kind] : null;

export type TaskPayload<Kind extends TaskKind> = z.infer<(typeof TASK_KINDS)[Kind]["payload"]>;
export type TaskResult<Kind extends TaskKind> = z.infer<(typeof TASK_KINDS)[Kind]["result"]>;
