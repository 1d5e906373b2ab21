// Wire shapes of predictions and of what serves them. Field names are the contract's; boxes are
// corners in pixels of the image as people see it.

import { z } from "zod";
import { Bbox } from "../shapes.ts";
import { MaskedPrediction } from "../tasks/predict-task.ts";
import { SamMask, SamPrompt } from "../tasks/sam.ts";
import { Model } from "./training.ts";

export const CONFIDENCE_DEFAULT = 0.25;
/** Frames of a clip that a detector looks at; a longer clip is refused unless it is cut. */
export const PREDICT_FRAMES_MAX = 3_000;
/** The same of a segmenter, which looks at a frame for as long as a detector does at a hundred. */
export const SAM_FRAMES_MAX = 600;
/** The longest that an answer is waited for; proxies on the way give up a little later. */
export const PREDICT_WAIT_SECONDS_MAX = 90;

const FramePrediction = z.object({
  frame_index: z.number().int().meta({ description: "place in display order, from 0" }),
  time: z.number().meta({ description: "seconds from the first frame, as decoded" }),
  detections: z.array(MaskedPrediction),
});

export const VideoPrediction = z
  .object({
    prediction_id: z.uuid(),
    status: z.enum(["queued", "running", "completed", "failed"]),
    failure: z.string().nullable().meta({ description: "why it is `failed`" }),
    model_id: z.string(),
    frames_done: z.number().int().nullable().meta({ description: "null before it began" }),
    frames_total: z.number().int().nullable(),
    width: z.number().int().nullable().meta({ description: "of the video; null until completed" }),
    height: z.number().int().nullable(),
    frames: z.array(FramePrediction).nullable().meta({ description: "null until completed" }),
    left_out: z
      .number()
      .int()
      .nullable()
      .meta({ description: "frames beyond `frames_max`, which were not looked at" }),
    masks_left_out: z
      .number()
      .int()
      .nullable()
      .optional()
      .meta({
        description:
          "only where masks are asked for: those of objects that are told, of too many or too " +
          "detailed ones; null until completed",
      }),
    annotated_video_url: z
      .url()
      .nullable()
      .optional()
      .meta({
        description:
          "only where `annotated` is true: the frames that were looked at, with boxes, class names " +
          "and confidences drawn, as MP4 (H.264); signed for 15 minutes, null until completed",
      }),
    seconds: z.number().nullable().meta({ description: "that a node worked on it" }),
    created_at: z.iso.datetime(),
  })
  .meta({ id: "VideoPrediction" });
export type VideoPrediction = z.infer<typeof VideoPrediction>;

const Count = z.number().int().min(0);

export const SamObject = z
  .object({
    class: z.string(),
    prompt: z
      .object({
        kind: z
          .enum(SamPrompt.options.map(({ shape }) => shape.kind.value))
          .meta({ description: "which kind of prompt: words, examples, clicks or a box" }),
        index: Count.meta({
          description:
            "place in `prompts` without repetitions, or in `boxes`, from 0; 0 of examples and clicks",
        }),
      })
      .meta({ description: "what it answers" }),
    confidence: z.number().min(0).max(1),
    bbox: Bbox,
    mask: SamMask.nullable().meta({
      description: "in the form asked for; null where the segmenter made none, or it is left out",
    }),
  })
  .meta({ id: "SamObject" });
export type SamObject = z.infer<typeof SamObject>;

const samLeftOut = {
  objects: Count.meta({ description: "the least sure ones, of too many" }),
  masks: Count.meta({ description: "of objects that are told, whose masks are too many" }),
};
const warnings = z.array(z.string()).meta({
  description: "where a prompt finds more than it names, or was read in part",
});

export const SamPrediction = z
  .object({
    objects: z.array(SamObject).meta({ description: "surest first" }),
    width: z.number().int(),
    height: z.number().int(),
    segmenter: z.string(),
    warnings,
    left_out: z.object(samLeftOut).meta({ description: "what is there and is not told" }),
    seconds: z.number().meta({ description: "that a node worked on it" }),
  })
  .meta({ id: "SamPrediction" });
export type SamPrediction = z.infer<typeof SamPrediction>;

export const SamVideoPrediction = z
  .object({
    prediction_id: z.uuid(),
    status: VideoPrediction.shape.status,
    failure: VideoPrediction.shape.failure,
    frames_done: VideoPrediction.shape.frames_done,
    frames_total: VideoPrediction.shape.frames_total,
    width: VideoPrediction.shape.width,
    height: VideoPrediction.shape.height,
    frames: z
      .array(
        z.object({
          frame_index: FramePrediction.shape.frame_index,
          time: FramePrediction.shape.time,
          objects: z.array(SamObject).meta({ description: "surest first" }),
        }),
      )
      .nullable()
      .meta({ description: "null until completed" }),
    segmenter: z.string().nullable().meta({ description: "that was used; null until completed" }),
    warnings,
    left_out: z
      .object({
        frames: Count.meta({ description: "beyond `frames_max`, which were not looked at" }),
        objects: samLeftOut.objects,
        masks: samLeftOut.masks,
      })
      .nullable()
      .meta({ description: "what is there and is not told; null until completed" }),
    seconds: VideoPrediction.shape.seconds,
    created_at: z.iso.datetime(),
  })
  .meta({ id: "SamVideoPrediction" });
export type SamVideoPrediction = z.infer<typeof SamVideoPrediction>;

const WARM_UP = ["cold", "warming", "warm", "failed"] as const;

export const ServeStatus = z
  .object({
    health: z.enum(["ok", "no_model", "no_node"]).meta({
      description: "`ok`: a prediction on an image would be made now, by a node or at the edge",
    }),
    workspace_id: z.uuid(),
    active_model: Model.pick({
      model_id: true,
      name: true,
      version: true,
      variant: true,
      task: true,
      classes: true,
      image_size: true,
    }).nullable(),
    warm_up: z.enum(WARM_UP).meta({
      description:
        "of the active model: `warm` where a live node has it open, `cold` where the first " +
        "prediction opens it, `failed` where the newest try to open it failed",
    }),
    failure: z.string().nullable().meta({ description: "why it `failed`" }),
    nodes: z.object({
      able: z.number().int().meta({ description: "live nodes that predict" }),
      warm: z.number().int().meta({ description: "those that have the active model open" }),
    }),
    edge: z
      .object({
        able: z.boolean().meta({ description: "it answers for the active model now" }),
        image_size: z
          .number()
          .int()
          .nullable()
          .meta({
            description:
              "side in pixels of the square that is looked at there, in place of the model's own; " +
              "null where there is no inference at the edge",
          }),
        reason: z.string().nullable().meta({ description: "why not; null where it is `able`" }),
      })
      .meta({ description: "inference where no GPU node is there, or none has room" }),
    last_prediction_at: z.iso
      .datetime()
      .nullable()
      .meta({ description: "with the active model; null where there was none within a day" }),
  })
  .meta({ id: "ServeStatus" });
export type ServeStatus = z.infer<typeof ServeStatus>;
