// Wire shapes of targets: servers elsewhere that predict, what is known of their health, and what
// they say of an image beside a model of ours.

import { z } from "zod";
import { Prediction } from "../../../../shared/tasks/tasks.ts";

const instant = () => z.iso.datetime();
const count = () => z.number().int().min(0);

/** Bytes of an image that is sent to a target. */
export const TARGET_IMAGE_BYTES_MAX = 8 * 1024 * 1024;
/** Objects that are taken of a target's answer. */
export const TARGET_OBJECTS_MAX = 1_000;

const address = () =>
  z
    .string()
    .max(2_000)
    .refine((text) => URL.canParse(text), "must be a URL")
    .meta({ description: "scheme, host and, where there is one, the path before all others" });
const word = (description: string) =>
  z
    .string()
    .regex(/^[\w./:-]{1,200}$/, "must be 1 to 200 letters, digits and ./:_-")
    .meta({ description });

/** Protocols of servers that are none of ours. */
export const TARGET_PROTOCOLS = ["roboflow", "torchserve"] as const;

/** A named endpoint of another instance of this service. */
const VantageTarget = z.strictObject({
  kind: z.literal("vantage").meta({ description: "another instance's named endpoint" }),
  url: address(),
  endpoint: word("the endpoint's slug there; the credential is one of its keys"),
});
/** A device of the workspace. */
const DeviceTarget = z.strictObject({
  kind: z.literal("device").meta({ description: "an edge device; it is not asked, it reports" }),
  device_id: z.uuid().meta({ description: "the device's id" }),
});
/** A server of a third party. */
const HttpTarget = z.strictObject({
  kind: z.literal("http").meta({ description: "a server of a third party" }),
  url: address(),
  protocol: z.enum(TARGET_PROTOCOLS).meta({
    description:
      "`roboflow`: Roboflow's inference server; `torchserve`: a detector of TorchServe's handler " +
      "`object_detector`",
  }),
  model: word("the model's name there"),
  health_path: z
    .string()
    .regex(/^\/[\w./-]{0,200}$/, "must be a path")
    .optional()
    .meta({
      description:
        "path that answers 200 while it is well; `/info` of Roboflow, `/ping` of TorchServe",
    }),
});

/** What a target is and where. */
export const TargetConfig = z
  .discriminatedUnion("kind", [VantageTarget, DeviceTarget, HttpTarget])
  .meta({ id: "TargetConfig" });
export type TargetConfig = z.infer<typeof TargetConfig>;

/** `unknown`: it was not looked at yet, or not since it was changed. */
export const TARGET_STATES = ["unknown", "up", "down"] as const;

export const Target = z
  .object({
    target_id: z.uuid().meta({ description: "the target's id" }),
    workspace_id: z.uuid(),
    name: z.string(),
    config: TargetConfig,
    has_credential: z.boolean().meta({ description: "it is shown to nobody" }),
    enabled: z.boolean().meta({ description: "whether its health is looked at" }),
    status: z.enum(TARGET_STATES).meta({ description: "how it was when it was looked at last" }),
    problem: z.string().nullable().meta({ description: "why it is `down`" }),
    latency_ms: z.number().nullable().meta({
      description: "milliseconds that its last look took; null where there was no answer",
    }),
    checked_at: instant().nullable().meta({ description: "when it was looked at last" }),
    since: instant().nullable().meta({ description: "since when it is so" }),
    created_at: instant(),
    updated_at: instant().meta({ description: "when people last changed it" }),
  })
  .meta({ id: "Target" });
export type Target = z.infer<typeof Target>;

export const TargetCheck = z
  .object({
    at: instant().meta({ description: "when it was looked at" }),
    up: z.boolean().meta({ description: "whether it was well" }),
    latency_ms: z.number().nullable().meta({ description: "milliseconds until it answered" }),
    problem: z.string().nullable().meta({ description: "what was wrong; null where it was well" }),
  })
  .meta({ id: "TargetCheck" });
export type TargetCheck = z.infer<typeof TargetCheck>;

export const TargetComparison = z
  .object({
    model_id: z.uuid(),
    predictions: z.array(Prediction).meta({ description: "of the model, surest first" }),
    latency_ms: z.number().meta({ description: "milliseconds that the model took" }),
    matched: count().meta({ description: "objects that both see alike, at an IoU of 0.5 or more" }),
    other_class: count().meta({ description: "objects that each has another class for" }),
    only_target: count().meta({ description: "objects that only the target sees" }),
    only_model: count().meta({ description: "objects that only the model sees" }),
    mean_iou: z
      .number()
      .nullable()
      .meta({ description: "of what matched; null where nothing did" }),
  })
  .meta({ id: "TargetComparison" });

/** What a target sees on an image, and what a model of ours does. */
export const TargetPrediction = z
  .object({
    target_id: z.uuid().meta({ description: "the target's id" }),
    predictions: z.array(Prediction).meta({ description: "of the target, surest first" }),
    latency_ms: z.number().meta({ description: "milliseconds until the target had answered" }),
    // `.nullable()` would have descriptions name the shape with its null.
    compared: z
      .union([TargetComparison, z.null()])
      .meta({ description: "null where nothing was to be compared" }),
  })
  .meta({ id: "TargetPrediction" });
export type TargetPrediction = z.infer<typeof TargetPrediction>;
