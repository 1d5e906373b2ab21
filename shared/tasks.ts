// What crosses between the vision service and GPU nodes: claims, leases, and the payload and result
// of each kind of task. A node acts only on what a claim handed it, and each of its writes carries
// the claim's fence.

import { z } from "zod";
import { VARIANT_NAMES } from "./detector.ts";
import {
  ArtifactObject,
  EPOCHS_MAX,
  MetricMap,
  ResolvedSettings,
  RunEpoch,
  TrainSettings,
} from "./training.ts";

/** A lease lasts this long without a heartbeat; nodes renew at a third of it. */
export const LEASE_SECONDS = 60;
export const HEARTBEAT_SECONDS = 20;

/** Corners in pixels of the source frame: x1, y1, x2, y2. */
export const Bbox = z
  .tuple([z.number(), z.number(), z.number(), z.number()])
  .refine(
    // As precise as a box is stored: what is thinner than that is no box there.
    ([x1, y1, x2, y2]) => Math.fround(x2) > Math.fround(x1) && Math.fround(y2) > Math.fround(y1),
    "must be [x1, y1, x2, y2] with x2 > x1, y2 > y1",
  )
  .meta({ description: "[x1, y1, x2, y2], pixels of the source frame" });
export type Bbox = z.infer<typeof Bbox>;

/** An object of the store, by the short-lived address at which a node may read it. */
export const ObjectSource = z.object({
  url: z.url(),
  bytes: z.number().int(),
  /** Names the bytes for the node's cache: an object's key never changes meaning. */
  key: z.string(),
});
export type ObjectSource = z.infer<typeof ObjectSource>;

/** Where a node puts an object. */
export const ObjectTarget = z.object({ url: z.url(), key: z.string(), content_type: z.string() });
export type ObjectTarget = z.infer<typeof ObjectTarget>;

/** A click: 1 is on the object, 0 is off it. */
export const Point = z.object({
  x: z.number(),
  y: z.number(),
  label: z.union([z.literal(0), z.literal(1)]),
});
export type Point = z.infer<typeof Point>;

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

/** One found object. */
export const Detection = z.object({
  class_name: z.string(),
  bbox: Bbox,
  confidence: z.number().min(0).max(1),
  /** Outer ring of the mask, x and y in turn, pixels of the source frame; null without a mask. */
  polygon: z.array(z.number()).nullable(),
  /** Place in the frame's list of another class's detection of the same object. */
  duplicate_of: z.number().int().nullable(),
});
export type Detection = z.infer<typeof Detection>;

export const FrameDetections = z.object({
  frame_index: z.number().int(),
  detections: z.array(Detection),
});
export type FrameDetections = z.infer<typeof FrameDetections>;

/** A mask in the three forms that users ask for. */
export const Mask = z
  .object({
    png: z.string().meta({ description: "base64 PNG, one channel, 255 on the object" }),
    rle: z
      .object({
        size: z.tuple([z.number().int(), z.number().int()]),
        counts: z.array(z.number().int()),
      })
      .meta({ description: "COCO's uncompressed RLE: column by column, zeros first" }),
    polygon: z.array(z.number()),
    bbox: Bbox,
    score: z.number(),
  })
  .meta({ id: "Mask" });
export type Mask = z.infer<typeof Mask>;

const videoSource = { video: ObjectSource, video_id: z.string() };

/** A model of the registry, as a node opens it: its weights and what they are of. */
export const ModelSource = z.object({
  model_id: z.string(),
  variant: z.enum(VARIANT_NAMES),
  task: z.enum(["detection", "segmentation"]),
  /** In index order. */
  classes: z.array(z.string()),
  image_size: z.number().int(),
  sha256: z.string(),
  weights: ObjectSource,
});
export type ModelSource = z.infer<typeof ModelSource>;

/** One object that a detector found, in pixels of the picture. */
export const Prediction = z
  .object({ class: z.string(), confidence: z.number().min(0).max(1), bbox: Bbox })
  .meta({ id: "Prediction" });
export type Prediction = z.infer<typeof Prediction>;

/** An object that a node wrote under a key that it asked for. */
export const StoredObject = z.object({ key: z.string(), bytes: z.number().int().min(0) });

/** A number as the database holds it. */
const int32 = () => z.number().int().min(0).max(2_147_483_647);

/** Everything from which a run goes on. */
export const Checkpoint = StoredObject.extend({
  /** Epochs done, and batches of the one under way. */
  epoch: z.number().int().min(0).max(EPOCHS_MAX),
  batch: int32(),
});
export type Checkpoint = z.infer<typeof Checkpoint>;

/** A model as the registry takes it in. */
export const TrainedModel = z.object({
  weights: StoredObject.extend({ sha256: z.string().regex(/^[0-9a-f]{64}$/) }),
  parameters: z.number().int().min(0),
  epoch: RunEpoch.shape.epoch,
  metrics: MetricMap,
});

/** What a train task reports beside `done` and `total`, which are batches. */
export const TrainDetail = z.object({
  epoch: z.number().int().min(0).max(EPOCHS_MAX),
  batch: int32(),
  batches: int32(),
  losses: RunEpoch.shape.losses.nullable(),
  learning_rate: z.number().nullable(),
  images_per_second: z.number().nullable(),
  memory_bytes: z.number().nullable(),
  eta_seconds: z.number().nullable(),
  resolved: ResolvedSettings.nullable(),
  /** The newest epochs, oldest first; the same one may come many times. */
  recent: z.array(RunEpoch).max(20),
  /** The newest lines, numbered from 1 through all attempts; the same one may come many times. */
  log: z.array(z.object({ n: int32(), line: z.string() })).max(50),
  checkpoint: Checkpoint.nullable(),
});
export type TrainDetail = z.infer<typeof TrainDetail>;

/** The payload and result of each kind of task. */
export const TASK_KINDS = {
  /** What a file is: decoded once, its frames' pts stored, a thumbnail made. */
  probe: {
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
        content_type: z.string(),
        width: z.number().int(),
        height: z.number().int(),
        fps: z.number(),
        duration_seconds: z.number(),
        frame_count: z.number().int(),
        time_base: z.tuple([z.number().int(), z.number().int()]),
        probe: z.record(z.string(), z.unknown()),
      }),
      /** The file is no video that we take; the reason is for its owner. */
      z.object({ broken: z.string() }),
    ]),
  },
  /** Labels some frames of one video. */
  label: {
    payload: z.object({
      ...videoSource,
      job_id: z.string(),
      prompts: z.array(Prompt).min(1),
      frames: z.array(z.number().int()).min(1),
      /** Longest side at which frames are looked at; null is the segmenter's own. */
      resolution: z.number().int().nullable(),
      /** JPEGs of the frames, by place in `frames`; those that the store lacks. */
      images: z.array(ObjectTarget.nullable()),
      segmenter: z.string().nullable(),
    }),
    result: z.object({
      frames: z.array(FrameDetections),
      segmenter: z.string(),
      seconds: z.number(),
    }),
  },
  /** Labels a few frames and draws what it found. */
  preview: {
    payload: z.object({
      ...videoSource,
      prompts: z.array(Prompt).min(1),
      frames: z.array(z.number().int()).min(1),
      resolution: z.number().int().nullable(),
      threshold: z.number(),
      segmenter: z.string().nullable(),
    }),
    result: z.object({
      frames: z.array(FrameDetections.extend({ image: z.string() })),
      segmenter: z.string(),
      warnings: z.array(z.string()),
    }),
  },
  /** A mask from clicks and, where given, a box on one frame; alternatives best first. */
  segment: {
    payload: z.object({
      ...videoSource,
      frame_index: z.number().int(),
      points: z.array(Point),
      box: Bbox.nullable(),
      segmenter: z.string().nullable(),
    }),
    result: z.object({ masks: z.array(Mask), segmenter: z.string() }),
  },
  /** JPEGs of single frames. */
  frames: {
    payload: z.object({
      ...videoSource,
      frames: z.array(z.number().int()).min(1),
      images: z.array(ObjectTarget),
    }),
    result: z.object({}),
  },
  /** A dataset as a zip. The annotations come as one JSON object of the store. */
  export: {
    payload: z.object({
      export_id: z.string(),
      format: z.enum(["yolo", "coco"]),
      manifest: ObjectSource,
      /** The manifest's videos, by key: only a payload's references are given addresses. */
      videos: z.array(ObjectSource),
      archive: ObjectTarget,
    }),
    result: z.object({ bytes: z.number().int(), summary: z.record(z.string(), z.unknown()) }),
  },
  /** Trains a detector on a dataset. A cancelled one gives the same result, with what it has. */
  train: {
    payload: z.object({
      run_id: z.string(),
      name: z.string(),
      settings: TrainSettings,
      /** An ExportManifest, and its videos by key. */
      manifest: ObjectSource,
      videos: z.array(ObjectSource),
      /** Of the first weights, by the file's format. */
      pretrained: z
        .object({ weights: ObjectSource, format: z.enum(["safetensors", "onnx"]) })
        .nullable(),
      /** Where an earlier attempt got to. */
      resume: z.object({ checkpoint: ObjectSource, at: Checkpoint }).nullable(),
    }),
    result: z.object({
      stopped: z.boolean(),
      history: z.array(RunEpoch),
      resolved: ResolvedSettings.nullable(),
      /** Null where no epoch was evaluated yet. */
      model: TrainedModel.nullable(),
      checkpoint: Checkpoint.nullable(),
      artifacts: z.array(ArtifactObject),
    }),
  },
  /** Opens a model and looks at a picture once, so that the next prediction is a fast one. */
  warm: {
    payload: z.object({ model: ModelSource }),
    result: z.object({ seconds: z.number() }),
  },
  /** Predicts on frames of a video or image of the store. */
  predict: {
    payload: z.object({
      model: ModelSource,
      video: ObjectSource,
      /** Frames a second to look at; null is every one. */
      fps: z.number().positive().nullable(),
      frames_max: z.number().int().positive(),
      confidence: z.number().min(0).max(1),
    }),
    result: z.object({
      width: z.number().int(),
      height: z.number().int(),
      frames: z.array(
        z.object({
          frame_index: z.number().int(),
          /** Seconds from the first frame. */
          time: z.number(),
          predictions: z.array(Prediction),
        }),
      ),
      /** Frames beyond `frames_max` that were left out. */
      left_out: z.number().int(),
      seconds: z.number(),
    }),
  },
} as const satisfies Record<string, { payload: z.ZodType; result: z.ZodType }>;

export type TaskKind = keyof typeof TASK_KINDS;
export type TaskPayload<Kind extends TaskKind> = z.infer<(typeof TASK_KINDS)[Kind]["payload"]>;
export type TaskResult<Kind extends TaskKind> = z.infer<(typeof TASK_KINDS)[Kind]["result"]>;

/** The dataset that an export task writes: the object behind its payload's `manifest`. */
export const ExportManifest = z.object({
  name: z.string(),
  /** In index order. */
  classes: z.array(z.string()),
  videos: z.array(
    z.object({
      video_id: z.string(),
      filename: z.string(),
      key: z.string(),
      width: z.number().int(),
      height: z.number().int(),
      frames: z.array(
        z.object({
          index: z.number().int(),
          split: z.enum(["train", "val"]),
          /** Class index, corners in pixels, and the mask's ring. */
          annotations: z.array(
            z.object({
              id: z.string(),
              class_index: z.number().int(),
              bbox: Bbox,
              polygon: z.array(z.number()).nullable(),
            }),
          ),
        }),
      ),
    }),
  ),
});
export type ExportManifest = z.infer<typeof ExportManifest>;

/** What a node says it is and can do. */
export const Capabilities = z
  .object({
    version: z.string(),
    kinds: z.array(z.string()),
    device: z.object({ kind: z.enum(["cpu", "cuda"]), name: z.string(), count: z.number().int() }),
    memory_bytes: z.number().int(),
    cores: z.number().int(),
    ffmpeg: z.string().nullable(),
    /** Installed segmenters, the default first. */
    segmenters: z.array(
      z.object({
        name: z.string(),
        title: z.string(),
        text: z.enum(["none", "closed", "open"]),
        /** The words a closed one knows; empty for the others. */
        vocabulary: z.array(z.string()),
        exemplar: z.enum(["none", "same_image", "any_image"]),
        licence: z.string(),
      }),
    ),
    /** Models that are open on it, as its newest heartbeat said. */
    loaded: z.array(z.string()).optional(),
    /** Tasks it works on at once. */
    slots: z.number().int(),
    /** What it cannot do and what to install, one sentence each. */
    missing: z.array(z.string()),
  })
  .meta({ id: "Capabilities" });
export type Capabilities = z.infer<typeof Capabilities>;

export const RegisterNode = z.object({
  code: z.string(),
  name: z.string().min(1).max(100),
  capabilities: Capabilities,
});
export const RegisteredNode = z.object({ node_id: z.uuid(), node_token: z.string() });

export const ClaimRequest = z.object({
  kinds: z.array(z.string()).min(1),
  /** How long an empty queue is waited on; 0 answers at once. */
  wait_seconds: z.number().int().min(0).max(30).default(0),
});
export const ClaimedTask = z
  .object({
    task_id: z.uuid(),
    kind: z.string(),
    fence: z.number().int(),
    attempt: z.number().int(),
    lease_until: z.iso.datetime(),
    payload: z.record(z.string(), z.unknown()),
  })
  .meta({ id: "ClaimedTask" });
export type ClaimedTask = z.infer<typeof ClaimedTask>;

export const HeartbeatRequest = z.object({
  tasks: z.array(z.object({ task_id: z.uuid(), fence: z.number().int() })),
  draining: z.boolean().default(false),
  /** Models that are open on the node: the next prediction with one of them is a fast one. */
  loaded: z.array(z.string().max(100)).max(64).optional(),
  capabilities: Capabilities.optional(),
});
/**
 * `cancel`: finish soon and keep what is done. `revoke`: end the process now, then report its
 * exit. `lost`: the lease is another's; end the process and report nothing.
 */
export const Verdict = z.enum(["go_on", "cancel", "revoke", "lost"]);
export type Verdict = z.infer<typeof Verdict>;
export const HeartbeatReply = z.object({
  tasks: z.array(z.object({ task_id: z.uuid(), verdict: Verdict })),
});

/** How far a task is. */
export const TaskProgress = z.object({
  done: z.number().min(0),
  total: z.number().min(0),
  /** What the task's subject shows beside it, such as annotations found so far. */
  detail: z.record(z.string(), z.unknown()).default({}),
});
export type TaskProgress = z.infer<typeof TaskProgress>;

export const ProgressReport = TaskProgress.extend({ fence: z.number().int() });

/** How a task's attempt ended. `exited` says that its process was seen to be gone. */
export const Outcome = z.discriminatedUnion("outcome", [
  z.object({ outcome: z.literal("finished"), result: z.record(z.string(), z.unknown()) }),
  z.object({
    outcome: z.literal("failed"),
    code: z.string(),
    detail: z.string(),
    retryable: z.boolean(),
  }),
  /** After `cancel`, with what was done until then. */
  z.object({
    outcome: z.literal("cancelled"),
    result: z.record(z.string(), z.unknown()).nullable(),
  }),
  /** After `revoke`. */
  z.object({ outcome: z.literal("revoked"), exited: z.literal(true) }),
  /** Not now: the node drains, or lacks what the task needs. */
  z.object({ outcome: z.literal("snoozed"), seconds: z.number().int().min(0).max(3600) }),
]);
export type Outcome = z.infer<typeof Outcome>;
export const FinishRequest = z.object({ fence: z.number().int(), outcome: Outcome });

/** What a node may write beside its payload's targets: nothing that a browser would run. */
export const TARGET_TYPES = [
  "application/octet-stream",
  "application/json",
  "text/plain",
  "text/csv",
  "image/png",
  "image/jpeg",
] as const;
export type TargetType = (typeof TARGET_TYPES)[number];

/** Asks for a place for an object, of which there is a new one each time. */
export const TargetRequest = z.object({
  fence: z.number().int(),
  name: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/, "must be a plain file name"),
  content_type: z.enum(TARGET_TYPES),
});

/** Asks for another address of an object that the payload names: the first one may have run out. */
export const SourceRequest = z.object({ fence: z.number().int(), key: z.string() });
