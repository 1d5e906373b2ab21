// Wire shapes of models as files that leave: what may be asked for, and what is known of a file
// that was made. Datasets that leave are `labeling.ts`'s.

import { z } from "zod";

/** Formats that are made. Others are 422, which lists these. */
export const MODEL_EXPORT_FORMATS = ["onnx"] as const;
export const MODEL_EXPORT_OUTPUTS = ["end_to_end", "raw"] as const;
export type ModelExportOutput = (typeof MODEL_EXPORT_OUTPUTS)[number];

const SIDE_MIN = 32;
const SIDE_MAX = 2048;
export const EXPORT_BATCH_MAX = 64;
/**
 * Pixels that one run of a file with a fixed batch takes in: its verification runs it as it is, and
 * the first maps of the largest variant take some 100 bytes a pixel.
 */
export const EXPORT_PIXELS_MAX = 2 ** 23;

/**
 * How far a file's answer may lie from the predictor's, both of onnxruntime on one CPU. Both sum
 * the same single-precision products; processors whose kernels take a batch in another order may
 * round the sums otherwise (where this was written, batches of 1 and 4 and one or two threads gave
 * equal numbers). A thousandth of a pixel is 16 steps of such a number around 640, and steps grow
 * with the number, so that larger inputs are allowed in proportion; a fault, such as another
 * anchor, stride or class, is off by whole pixels.
 */
export const EXPORT_TOLERANCE = { box: 1e-3, boxSide: 640, score: 1e-5 } as const;

/** Pixels by which a box may differ on an input of this size. */
export const boxTolerance = (size: readonly [number, number]): number =>
  EXPORT_TOLERANCE.box * Math.max(1, Math.max(...size) / EXPORT_TOLERANCE.boxSide);

const side = () =>
  z.number().int().min(SIDE_MIN).max(SIDE_MAX).multipleOf(32).meta({ multipleOf: 32 });

/** What `POST /models/{model_id}/export` takes. */
export const ModelExportRequest = z.strictObject({
  format: z
    .enum(MODEL_EXPORT_FORMATS, {
      error: `must be one that is made: ${MODEL_EXPORT_FORMATS.join(", ")}`,
    })
    .meta({ description: "`onnx`: opset 17, single precision", example: "onnx" }),
  output: z
    .enum(MODEL_EXPORT_OUTPUTS)
    .default("end_to_end")
    .meta({
      description:
        "`end_to_end`: `output0` of [batch, 300, 6], rows of x1, y1, x2, y2 in pixels of the input, " +
        "score and class, surest first, with nothing left to do but a cut by score; `raw`: `boxes` " +
        "[batch, anchors, 4] and `scores` [batch, anchors, classes], for runtimes without top-k",
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
    .meta({ description: "images of one run; `dynamic`: as many as come" }),
});
export type ModelExportRequest = z.infer<typeof ModelExportRequest>;

const count = () => z.number().int().min(0).max(2_147_483_647);

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
    rows: count().meta({ description: "rows that were compared, over all images" }),
    objects: count().meta({ description: "of them, those of a score of 0.25 or more" }),
    box_difference_max: z.number().min(0).meta({ description: "pixels of the input" }),
    box_tolerance: z.number().min(0).meta({ description: "pixels of the input" }),
    score_difference_max: z.number().min(0).meta({ description: "of scores in 0 to 1" }),
    score_tolerance: z.number().min(0).meta({ description: "of scores in 0 to 1" }),
  })
  .meta({ id: "ExportVerification" });
export type ExportVerification = z.infer<typeof ExportVerification>;

/** A file as its node made it. */
export const ExportedFile = z.object({
  bytes: z.number().int().min(1),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  opset: count().min(1),
  verification: ExportVerification,
  seconds: z.number().min(0),
});

/** A model as a file, or the making of one. */
export const ModelExport = z
  .object({
    export_id: z.uuid(),
    model_id: z.uuid(),
    format: z.enum(MODEL_EXPORT_FORMATS).meta({ description: "what the file is" }),
    output: z.enum(MODEL_EXPORT_OUTPUTS).meta({ description: "what the file gives" }),
    image_size: z
      .tuple([z.number().int(), z.number().int()])
      .meta({ description: "height and width of the input in pixels" }),
    batch: z
      .union([z.number().int(), z.literal("dynamic")])
      .meta({ description: "images of one run" }),
    status: z.enum(["queued", "running", "completed", "failed"]),
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
    opset: z.number().int().nullable().meta({ description: "version of ONNX's operators" }),
    // `.nullable()` would have descriptions name the shape with its null.
    verification: z
      .union([ExportVerification, z.null()])
      .meta({ description: "what the file was held against before it was offered" }),
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
