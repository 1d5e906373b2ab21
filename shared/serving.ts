// Wire shapes of predictions and of what serves them. Field names are the contract's; boxes are
// corners in pixels of the image as people see it.

import { z } from "zod";
import { Prediction } from "./tasks.ts";
import { Model } from "./training.ts";

export const CONFIDENCE_DEFAULT = 0.25;
export const PREDICT_FRAMES_DEFAULT = 300;
export const PREDICT_FRAMES_MAX = 3_000;
/** The longest that an answer is waited for; proxies on the way give up a little later. */
export const PREDICT_WAIT_SECONDS_MAX = 90;

const FramePrediction = z.object({
  frame_index: z.number().int().meta({ description: "place in display order, from 0" }),
  time: z.number().meta({ description: "seconds from the first frame, as decoded" }),
  detections: z.array(Prediction),
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
    seconds: z.number().nullable().meta({ description: "that a node worked on it" }),
    created_at: z.iso.datetime(),
  })
  .meta({ id: "VideoPrediction" });
export type VideoPrediction = z.infer<typeof VideoPrediction>;

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
