// What two models side by side come to, as a node tells it: the frames with what each model found
// there, the figures of both, and how long they took. The frames lie in an object of the store, one
// a line, those that differ most first. What a task carries beside is `tasks.ts`'s.

import { z } from "zod";
import { Bbox, Prediction } from "../shapes.ts";

const count = () => z.number().int().min(0).max(2_147_483_647);
const share = () => z.number().min(0).max(1);

/** Frames of one comparison, spread over what it looks at, unless it says otherwise. */
export const COMPARISON_FRAMES_DEFAULT = 300;
/** Frames of one comparison; the longest video that is predicted on has as many. */
export const COMPARISON_FRAMES_MAX = 3_000;
/** Frames of which overlays are drawn. */
export const OVERLAYS_MAX = 20;
/** Objects of one comparison, of both models: more are no answer that anybody reads. */
export const COMPARED_OBJECTS_MAX = 100_000;
/** Frames between two offsets of a report: a page of it is read without the rest. */
export const REPORT_BLOCK_FRAMES = 20;

/** Names under which classes are compared, by the names that they have; null leaves one out. */
const ClassNames = z.record(z.string(), z.string().nullable());

/** Under which names classes are compared; those that are not listed keep their own. */
export const ClassMaps = z
  .object({
    a: ClassNames.meta({ description: "of model A's classes" }),
    b: ClassNames.meta({ description: "of model B's classes" }),
    truth: ClassNames.meta({ description: "of the reviewed classes" }),
  })
  .meta({ id: "ComparisonClasses" });
export type ClassMaps = z.infer<typeof ClassMaps>;

/** The name under which a class is compared; null: it is left out. */
export function comparedName(names: ClassMaps["a"], name: string): string | null {
  const mapped = Object.hasOwn(names, name) ? names[name] : name;
  return mapped === undefined ? name : mapped;
}

/** Sides of a dataset. */
export const COMPARISON_SPLITS = ["train", "val", "all"] as const;

/** What a comparison's task says of how to compare, and on what. */
export const ComparisonRules = z.object({
  session_id: z.string(),
  /** Boxes of one object overlap by at least this, those of a model and of the truth too. */
  iou: share(),
  classes: ClassMaps,
  /** A video without a dataset: its id where it is a project's, and its name for people. */
  video_id: z.string().nullable(),
  filename: z.string(),
  /** Frames a second of a video to look at; null is every frame. */
  fps: z.number().positive().nullable(),
  frames_max: count().min(1),
  /** Which frames of a dataset. */
  split: z.enum(COMPARISON_SPLITS),
});

/** One side of a comparison, beside the model. */
export const ComparedFile = z.object({
  /** Objects of at least this confidence are compared. */
  confidence: share(),
  /** Height and width of the input, pixels. */
  size: z.tuple([count(), count()]),
  /** Digest of the file that is run in place of the weights; null where there is none. */
  file_sha256: z.string().nullable(),
});

/** How two objects match. */
export const MATCHES = ["both", "other_class", "only_a", "only_b"] as const;
export type Match = (typeof MATCHES)[number];

// `.nullable()` would have descriptions name the shape with its null.
const predictionOrNull = () => z.union([Prediction, z.null()]);

/** An object that a model found on a frame, or both did. */
export const ComparedObject = z
  .object({
    match: z.enum(MATCHES).meta({
      description:
        "`both`: found by both under one class; `other_class`: by both, under two; or by one of them",
    }),
    iou: share().nullable().meta({
      description: "by how much the two boxes overlap; null where there is one",
    }),
    a: predictionOrNull().meta({ description: "as model A found it" }),
    b: predictionOrNull().meta({ description: "as model B found it" }),
  })
  .meta({ id: "ComparedObject" });
export type ComparedObject = z.infer<typeof ComparedObject>;

/** An object of the reviewed truth. */
export const TruthObject = z
  .object({ class: z.string(), bbox: Bbox })
  .meta({ id: "TruthObject", description: "an object as people see it" });
export type TruthObject = z.infer<typeof TruthObject>;

const matchCounts = {
  both: count().meta({ description: "objects that both found, under one class" }),
  other_class: count().meta({ description: "objects that both found, under two classes" }),
  only_a: count().meta({ description: "objects that only model A found" }),
  only_b: count().meta({ description: "objects that only model B found" }),
};

/** A frame with what both models found there. */
export const ComparedFrame = z.object({
  video_id: z.string().nullable().meta({ description: "null of a file that the request brought" }),
  filename: z.string().meta({ description: "of its video or image" }),
  frame_index: count().meta({ description: "position in display order, from 0" }),
  time: z.number().min(0).meta({ description: "seconds from the first frame, as decoded" }),
  width: count().min(1).meta({ description: "of the frame, pixels" }),
  height: count().min(1).meta({ description: "of the frame, pixels" }),
  difference: z
    .number()
    .min(0)
    .meta({
      description:
        "how much the models differ, in objects: those of one of them or of two classes, and for " +
        "each of both what its IoU lacks of 1",
    }),
  ...matchCounts,
  objects: z.array(ComparedObject).meta({
    description: "of both first, by falling IoU, then those of one, surest first",
  }),
  truth: z
    .array(TruthObject)
    .nullable()
    .meta({ description: "what people see there; null where nobody reviewed it" }),
});
export type ComparedFrame = z.infer<typeof ComparedFrame>;

/** How well a model found the truth, of one class or of all. */
export const ComparedFigures = z
  .object({
    truths: count().meta({ description: "objects of the truth" }),
    detections: count().meta({ description: "at or above the model's confidence" }),
    true_positives: count().meta({ description: "at the comparison's IoU" }),
    false_positives: count().meta({ description: "detections without a truth" }),
    false_negatives: count().meta({ description: "truths without a detection" }),
    precision: share().nullable().meta({ description: "null without a detection" }),
    recall: share().nullable().meta({ description: "null without a truth" }),
    ap50: share()
      .nullable()
      .meta({
        description:
          "COCO's average precision at an IoU of 0.5, of all detections from 0.001; null without a " +
          "truth; overall, the mean of the classes",
      }),
    ap50_95: share().nullable().meta({ description: "the mean at IoUs from 0.5 to 0.95" }),
  })
  .meta({ id: "DetectionFigures" });

/** The same of both models. */
const sides = <Schema extends z.ZodType>(schema: Schema) => ({ a: schema, b: schema });

const Latency = z
  .object({
    p50_ms: z.number().min(0).meta({ description: "half of the frames took at most so long" }),
    p95_ms: z.number().min(0).meta({ description: "of 20 frames, 19 took at most so long" }),
  })
  .meta({ id: "ModelLatency" });

/** What a comparison came to, without its frames. */
export const ComparisonSummary = z.object({
  frames_compared: count().meta({ description: "frames that both models looked at" }),
  left_out: count().meta({
    description: "frames beyond `frames_max`, which were not looked at; evenly spread",
  }),
  agreement: z
    .object({
      ...matchCounts,
      iou: share().nullable().meta({
        description: "mean overlap of what both found under one class; null without any",
      }),
    })
    .meta({ description: "over all frames" }),
  figures: z
    .object({
      overall: z.object(sides(ComparedFigures)).meta({ description: "all classes together" }),
      per_class: z
        .array(z.object({ class: z.string(), ...sides(ComparedFigures) }))
        .meta({ description: "classes that a model found or the truth has, most truths first" }),
    })
    .nullable()
    .meta({ description: "by the reviewed truth; null where there is none" }),
  latency: z
    .object({
      ...sides(Latency),
      device: z.enum(["cpu", "cuda"]).meta({ description: "what they were measured on" }),
    })
    .meta({ description: "on the node that compared, one frame at a time, without decoding" }),
  seconds: z.number().min(0).meta({ description: "that the node worked on it" }),
});

/** What a node says of a comparison. */
export const ComparisonOutcome = ComparisonSummary.extend({
  /** The frames, a line each, in an object of its own. */
  report: z.object({
    bytes: z.number().int().min(0),
    sha256: z.string().regex(/^[0-9a-f]{64}$/),
    /** Offsets in bytes of every `REPORT_BLOCK_FRAMES`th line, the first one's 0. */
    blocks: z.array(z.number().int().min(0)).max(COMPARISON_FRAMES_MAX),
  }),
  /** Bytes of the overlays of the first frames. */
  overlays: z.array(z.number().int().min(1)).max(OVERLAYS_MAX),
});
export type ComparisonOutcome = z.infer<typeof ComparisonOutcome>;
