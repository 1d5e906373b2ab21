// Wire shapes of models as files that leave: what may be asked for, and what is known of a file
// that was made. Datasets that leave are `labeling.ts`'s.

import { z } from "zod";
import {
  EXPORT_ARTIFACTS,
  EXPORT_PRECISIONS,
  MODEL_EXPORT_FORMATS,
  MODEL_EXPORT_OUTPUTS,
} from "../detector/export-formats.ts";

const SIDE_MIN = 32;
const SIDE_MAX = 2048;
export const EXPORT_BATCH_MAX = 64;
/**
 * Pixels that one run of a file with a fixed batch takes in: its verification runs it as it is, and
 * the first maps of the largest variant take some 100 bytes a pixel.
 */
export const EXPORT_PIXELS_MAX = 2 ** 23;

/** Images that int8 is calibrated on: fewer miss what is rare, more change nothing. */
export const CALIBRATION_IMAGES = { min: 16, max: 64, default: 32 } as const;

const side = () =>
  z.number().int().min(SIDE_MIN).max(SIDE_MAX).multipleOf(32).meta({ multipleOf: 32 });

/** What `POST /models/{model_id}/export` takes. */
export const ModelExportRequest = z.strictObject({
  format: z
    .enum(MODEL_EXPORT_FORMATS, {
      error: `must be one that is made: ${MODEL_EXPORT_FORMATS.join(", ")}`,
    })
    .meta({
      description:
        "`onnx`: opset 17; `coreml`: an ML program for iOS 15 and macOS 12, zipped; `tflite`: for " +
        "LiteRT; `tensorrt`: ONNX with the recipe by which an engine is built where it will run; " +
        "`roboflow`: the folder that Roboflow's inference server takes, zipped",
      example: "onnx",
    }),
  precision: z
    .enum(EXPORT_PRECISIONS)
    .optional()
    .meta({
      description:
        "of weights, and of maps but in `fp16` of `tflite`; heads and outputs stay single. `onnx` " +
        "and `tflite`: `fp32` (default), " +
        "`fp16`, `int8`; `coreml`: `fp16`; `tensorrt`: `fp16` (default), `fp32`, `int8`; `roboflow`: " +
        "`fp32`. `int8` takes images of the model's own training set",
    }),
  output: z
    .enum(MODEL_EXPORT_OUTPUTS)
    .optional()
    .meta({
      description:
        "`end_to_end`: `output0` of [batch, 300, 6], rows of x1, y1, x2, y2 in pixels of the input, " +
        "score and class, surest first, with nothing left to do but a cut by score; `raw`: `boxes` " +
        "[batch, anchors, 4] and `scores` [batch, anchors, classes], for runtimes without top-k; " +
        "`joined`: both in one [batch, 4 + classes, anchors], as Ultralytics reads TFLite. `onnx` and " +
        "`tensorrt`: `end_to_end` (default) or `raw`; `tflite`: `joined` (default) or `raw`; `coreml`: " +
        "`raw`; `roboflow`: `end_to_end`",
    }),
  image_size: z
    .union([side(), z.tuple([side(), side()])])
    .optional()
    .meta({
      description:
        "pixels of the input: the side of a square, or [height, width]; multiples of 32. The model's " +
        "own when left out",
    }),
  batch: z
    .union([z.number().int().min(1).max(EXPORT_BATCH_MAX), z.literal("dynamic")])
    .default(1)
    .meta({
      description:
        "images of one run; `dynamic`: as many as come. `coreml`, `tflite` and `roboflow` take 1",
    }),
  artifact: z
    .enum(["bundle", "engine"])
    .optional()
    .meta({
      description:
        "of `tensorrt` alone: `bundle` (default), or `engine`, built by a node that has trtexec, for " +
        "its own GPU and version",
    }),
  calibration: z
    .strictObject({
      images: z
        .number()
        .int()
        .min(CALIBRATION_IMAGES.min)
        .max(CALIBRATION_IMAGES.max)
        .meta({ description: "of the training set, chosen by hash; fewer where it has fewer" }),
    })
    .optional()
    .meta({ description: `of \`int8\` alone; ${CALIBRATION_IMAGES.default} images unless given` }),
});
export type ModelExportRequest = z.infer<typeof ModelExportRequest>;

const count = () => z.number().int().min(0).max(2_147_483_647);
const share = () => z.number().min(0).max(1);

/** How well a file finds what people labeled, beside the model that it was made of. */
export const ExportAccuracy = z
  .object({
    images: count().min(1).meta({ description: "of the model's validation set" }),
    truths: count().min(1).meta({ description: "objects that people labeled on them" }),
    map50: share().meta({ description: "mean average precision of the file, at an IoU of 0.5" }),
    map50_95: share().meta({ description: "of the file, the mean at IoUs from 0.5 to 0.95" }),
    model_map50: share().meta({ description: "of the model in single precision" }),
    model_map50_95: share().meta({ description: "of the model in single precision" }),
    drop_max: share().meta({
      description:
        "by which the file's `map50_95` may be lower; its `map50` by 0.01. Of few labeled objects " +
        "both by about one of them: 1.2 / `truths` where that is more, but by 0.1 at most",
    }),
  })
  .meta({ id: "ExportAccuracy" });
export type ExportAccuracy = z.infer<typeof ExportAccuracy>;

/** A segmentation file's masks beside the model's. */
export const ExportMasks = z
  .object({
    objects: count().meta({
      description: "whose masks were drawn of both: the surest of an image",
    }),
    prototype_error: z.number().min(0).meta({
      description:
        "root mean square of the prototypes' differences, as a share of that of the model's numbers",
    }),
    prototype_tolerance: z.number().min(0).meta({ description: "a share, as the error" }),
    coefficient_error: z.number().min(0).meta({
      description: "the same of the weights that objects give to the prototypes",
    }),
    coefficient_tolerance: z.number().min(0).meta({ description: "a share, as the error" }),
    iou: share().nullable().meta({
      description: "mean overlap of both masks within the model's box; null where there are none",
    }),
    iou_min: share().meta({ description: "the least mean overlap that is allowed" }),
  })
  .meta({ id: "ExportMasks" });
export type ExportMasks = z.infer<typeof ExportMasks>;

/** What an engine of TensorRT was built for, and by. */
export const ExportEngine = z
  .object({
    gpu: z.string().max(200).meta({ description: "name of the GPU that it is for alone" }),
    tensorrt: z.string().max(40).meta({ description: "version that built it, and runs it" }),
  })
  .meta({ id: "ExportEngine" });
export type ExportEngine = z.infer<typeof ExportEngine>;

/** What a node saw when it held a file against the model's predictor. */
export const ExportVerification = z
  .object({
    runtime: z.string().max(100).meta({ description: "what opened the file, with its version" }),
    device: z.literal("cpu").meta({ description: "what it ran on" }),
    images: count().min(1).meta({ description: "that both looked at" }),
    dataset_images: count().meta({
      description: "of them, frames of the model's own dataset; the others were drawn",
    }),
    batches: z
      .array(count().min(1))
      .min(1)
      .max(16)
      .meta({ description: "numbers of images that it was run with" }),
    rows: count().meta({
      description: "rows that were compared, over all images; below `fp32` the surer ones alone",
    }),
    objects: count().meta({ description: "of them, those of a score of 0.25 or more" }),
    box_difference_max: z.number().min(0).meta({ description: "pixels of the input" }),
    box_tolerance: z.number().min(0).meta({ description: "pixels of the input" }),
    box_difference_p99: z
      .number()
      .min(0)
      .nullable()
      .meta({
        description:
          "pixels by which all objects' boxes differ at most but those of one in a hundred, or of one " +
          "where there are fewer; at most 0.1 for `fp16` (more beyond 640 pixels); null without objects",
      }),
    score_difference_max: z.number().min(0).meta({ description: "of scores in 0 to 1" }),
    score_tolerance: z.number().min(0).meta({ description: "of scores in 0 to 1; 1 is any" }),
    confidence_ratio: z.number().min(0).nullable().meta({
      description: "mean score of those objects, over the model's; null where there are none",
    }),
    accuracy: z
      .union([ExportAccuracy, z.null()])
      .meta({ description: "null for `fp32`, and where the model has no validation set any more" }),
    masks: z.union([ExportMasks, z.null()]).meta({ description: "null of a model without masks" }),
    engine: z.union([ExportEngine, z.null()]).meta({
      description:
        "what an engine was built for, once its ONNX file was verified; null of other files",
    }),
  })
  .meta({ id: "ExportVerification" });
export type ExportVerification = z.infer<typeof ExportVerification>;

/** Ranges of a detector's maps by their names, lowest and highest number. */
export const CalibrationRanges = z.record(
  z.string().max(100),
  z.tuple([z.number().max(0), z.number().min(0)]),
);
export type CalibrationRanges = z.infer<typeof CalibrationRanges>;

/** What int8 was made by. */
export const Calibration = z.object({
  images: count().min(1).meta({ description: "of the training set, that the ranges are of" }),
  /** The maps' ranges, by which the same file can be made again. */
  ranges: CalibrationRanges,
});
export type Calibration = z.infer<typeof Calibration>;

/** What a node is asked for. */
export const ExportWish = z.object({
  export_id: z.string(),
  /** Rises each time that a failed one is asked for again. */
  round: count(),
  format: z.enum(MODEL_EXPORT_FORMATS),
  artifact: z.enum(EXPORT_ARTIFACTS),
  precision: z.enum(EXPORT_PRECISIONS),
  output: z.enum(MODEL_EXPORT_OUTPUTS),
  /** Height and width of the input, pixels. */
  size: z.tuple([count(), count()]),
  /** Images of one run; null is any number. */
  batch: z.number().int().min(1).max(EXPORT_BATCH_MAX).nullable(),
  /** What the file says of its model beside what the registry's entry holds. */
  metadata: z.record(z.string(), z.string()),
  /** Images to find the ranges of int8 on. */
  calibration_images: count().min(1).max(CALIBRATION_IMAGES.max),
  /** Ranges that another file of the model was made by, in place of new ones. */
  calibration: Calibration.nullable(),
});

/** Characters of a sentence on what a node did not look at. */
export const NOT_VERIFIED_CHARACTERS_MAX = 500;

/** A file as its node made it. */
export const ExportedFile = z.object({
  bytes: z.number().int().min(1),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  /** Version of ONNX's operators; null for what holds no ONNX. */
  opset: count().min(1).nullable(),
  /** Null where the node has nothing that opens the file; `not_verified` says so. */
  verification: ExportVerification.nullable(),
  /** The score from which on the file is as precise as the model from 0.25 on. */
  recommended_confidence: share().nullable(),
  calibration: Calibration.nullable(),
  /** What the node would have looked at, and why it did not. */
  not_verified: z.array(z.string().max(NOT_VERIFIED_CHARACTERS_MAX)).max(10),
  seconds: z.number().min(0),
});
export type ExportedFile = z.infer<typeof ExportedFile>;

/** In the detail of a task's progress while trtexec builds an engine. */
export const BUILDING_STAGE = "building";

/** A model as a file, or the making of one. */
export const ModelExport = z
  .object({
    export_id: z.uuid(),
    model_id: z.uuid(),
    format: z.enum(MODEL_EXPORT_FORMATS).meta({ description: "what the file is" }),
    artifact: z.enum(EXPORT_ARTIFACTS).meta({
      description:
        "`file`: what runtimes open; `bundle`: a zip around it; `engine`: for one GPU alone",
    }),
    precision: z.enum(EXPORT_PRECISIONS).meta({
      description: "of its weights, and of its maps but in `fp16` of `tflite`",
    }),
    output: z.enum(MODEL_EXPORT_OUTPUTS).meta({ description: "what the file gives" }),
    image_size: z
      .tuple([z.number().int(), z.number().int()])
      .meta({ description: "height and width of the input in pixels" }),
    batch: z
      .union([z.number().int(), z.literal("dynamic")])
      .meta({ description: "images of one run" }),
    status: z.enum(["queued", "running", "building", "completed", "failed"]).meta({
      description:
        "`building`: verified, and trtexec makes an engine of it, for up to half an hour",
    }),
    failure: z.string().nullable().meta({
      description: "why it is `failed`; asking for the same again tries again",
    }),
    waiting_for: z
      .string()
      .nullable()
      .meta({ description: "what keeps it from being made, such as no node being there" }),
    progress: z
      .object({ done: z.number(), total: z.number() })
      .nullable()
      .meta({ description: "steps of its making; null while it is not being made" }),
    bytes: z.number().int().nullable().meta({ description: "null until completed" }),
    sha256: z.string().nullable().meta({ description: "of the file; null until completed" }),
    opset: z
      .number()
      .int()
      .nullable()
      .meta({ description: "version of ONNX's operators; null for what holds no ONNX" }),
    // `.nullable()` would have descriptions name the shape with its null.
    verification: z
      .union([ExportVerification, z.null()])
      .meta({ description: "what the file was held against before it was offered" }),
    recommended_confidence: z
      .number()
      .nullable()
      .meta({
        description:
          "the score from which on the file is as precise as the model from 0.25 on; null where it " +
          "was not measured",
      }),
    calibration_images: z
      .number()
      .int()
      .nullable()
      .meta({ description: "images that `int8` was made by; null for other precisions" }),
    not_verified: z
      .array(z.string())
      .meta({ description: "what nobody has looked at here, and how to look at it" }),
    download_url: z
      .string()
      .nullable()
      .meta({ description: "the file, signed for 15 minutes; null until completed" }),
    created_at: z.iso.datetime(),
    ended_at: z.iso.datetime().nullable(),
  })
  .meta({ id: "ModelExport" });
export type ModelExport = z.infer<typeof ModelExport>;
