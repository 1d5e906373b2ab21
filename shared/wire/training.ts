// Wire shapes of training runs, their dataset and the model registry. Field names are the
// contract's; boxes are corners in pixels.

import { z } from "zod";
import { AUGMENTATIONS, AugmentationKnobs } from "../detector/augmentation.ts";
import { HEADS, VARIANT_NAMES } from "../detector/detector.ts";
import { TaskIntervention } from "../tasks/task-intervention.ts";
import { DatasetCounts, DatasetInclude } from "./dataset-report.ts";

const instant = () => z.iso.datetime();

export const OPTIMIZERS = ["auto", "adamw", "sgd", "musgd"] as const;
export const PRECISIONS = ["auto", "fp32", "bf16"] as const;
export const ALIASES = ["production", "staging", "canary"] as const;
export type Alias = (typeof ALIASES)[number];

const EPOCHS_DEFAULT = 50;
export const DEVICES_MAX = 16;
export const EPOCHS_MAX = 10_000;

export const LEARNING_RATE_SCHEDULES = ["linear", "cosine"] as const;
export const IMAGE_SIZE_DEFAULT = 640;
export const IMAGE_SIZE_SMALL_OBJECTS = 1280;

export const VAL_SHARE_DEFAULT = 0.2;

/**
 * A detector that begins with nothing learns by steps, not by images: a batch has at most a
 * sixteenth of the training images, or `BATCH_SMALL` of a small set.
 */
export const EPOCH_STEPS_MIN = 16;
export const BATCH_SMALL = 4;

/** Layers of the backbone, which come first. */
export const BACKBONE_LAYERS = 11;
/** Layers before the head, which always learns. */
const FROZEN_LAYERS_MAX = 23;

/** Name of a set of first weights, as operators install it. */
export const WeightSetName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9._-]{0,39}$/, "must be lower-case letters, digits, '.', '_' or '-'");

/**
 * Where the first weights come from: a model of the registry, weights that somebody uploaded, or a
 * general or other public dataset's, which operators install on nodes. Null is none.
 */
const PretrainedSource = z
  .union([
    z.strictObject({ model_id: z.uuid() }),
    z.strictObject({ weights_id: z.uuid() }),
    z.strictObject({
      dataset: WeightSetName.meta({
        description:
          "name of weights that an operator installed on a node with `npm run models -- install`, " +
          "such as those of a general dataset",
        example: "coco",
      }),
    }),
  ])
  .nullable();

/** What a run is asked to do. */
export const TrainSettings = z
  .object({
    variant: z.enum(VARIANT_NAMES).default("det26n"),
    task: z.enum(["detection", "segmentation"]).default("detection"),
    epochs: z.number().int().min(1).max(EPOCHS_MAX).default(EPOCHS_DEFAULT),
    image_size: z.number().int().min(32).max(2048).multipleOf(32).default(IMAGE_SIZE_DEFAULT).meta({
      description: "side of the square input in pixels; 1280 for small objects",
      multipleOf: 32,
    }),
    batch_size: z
      .number()
      .int()
      .min(1)
      .max(1024)
      .nullable()
      .default(null)
      .meta({ description: "images a step; null is what the device's memory allows, 64 at most" }),
    multi_scale: z
      .number()
      .min(0)
      .max(0.9)
      .default(0)
      .meta({
        description:
          "every batch of training has a size of its own, image_size × (1 ± at most this share) in " +
          "steps of 32 pixels; memory is judged by the largest, evaluation is at image_size. " +
          "0 is off",
        example: 0.5,
      }),
    freeze: z
      .union([z.number().int().min(0).max(FROZEN_LAYERS_MAX), z.literal("backbone")])
      .default(0)
      .meta({
        description:
          `so many layers from the input on stay as they begin, weights and statistics of batch ` +
          `norm; "backbone" is the first ${BACKBONE_LAYERS}. Saves time and memory, and is for first ` +
          "weights that know something",
        example: "backbone",
      }),
    augmentation: z.enum(AUGMENTATIONS).default("standard"),
    augmentation_overrides: AugmentationKnobs.partial().strict().default({}).meta({
      description: "knobs of the augmentation that are to have other values, by name",
    }),
    learning_rate: z
      .number()
      .positive()
      .max(1)
      .nullable()
      .default(null)
      .meta({ description: "null is automatic" }),
    learning_rate_schedule: z
      .enum(LEARNING_RATE_SCHEDULES)
      .default("linear")
      .meta({ description: "how the learning rate falls to a hundredth" }),
    optimizer: z.enum(OPTIMIZERS).default("auto"),
    ema_decay: z
      .number()
      .min(0)
      .lt(1)
      .nullable()
      .default(null)
      .meta({
        description:
          "share of itself that the average of the weights keeps in an update of the optimizer, at " +
          "the end of the run; null is by the run's N updates: 1 − 10 / N, 0.9999 at most",
        example: 0.999,
      }),
    ema_tau: z
      .number()
      .positive()
      .max(1e9)
      .nullable()
      .default(null)
      .meta({
        description:
          "updates t after which the decay is at 63 % of ema_decay: it is ema_decay × " +
          "(1 − e^(−t / ema_tau)). null is a fifth of the run's updates, 2,000 at most",
        example: 2000,
      }),
    precision: z
      .enum(PRECISIONS)
      .default("auto")
      .meta({
        description:
          "number format of the network's steps: auto is what is faster on the node, which it " +
          "measures; where there is no bf16, it is fp32",
      }),
    devices: z
      .number()
      .int()
      .min(1)
      .max(DEVICES_MAX)
      .default(1)
      .meta({
        description:
          "processes that train as one, each on a device of the node and its part of every batch; " +
          "on a CPU each takes a core. Of more than the node has, it takes what it has",
      }),
    synchronized_norm: z
      .boolean()
      .default(false)
      .meta({
        description:
          "with several devices: batch norm uses the statistics of the whole batch, so that the " +
          "steps are those of one device, at two waits a layer; without, each uses its part's",
      }),
    patience: z
      .number()
      .int()
      .min(0)
      .max(10_000)
      .default(100)
      .meta({
        description:
          "epochs in which neither mAP50-95 nor its trend got better (of segmentation: its mean " +
          "with mask/mAP50-95); 0 is never",
      }),
    seed: z.number().int().min(0).max(4_294_967_295).default(0),
    val_share: z
      .number()
      .min(0.05)
      .max(0.5)
      .default(VAL_SHARE_DEFAULT)
      .meta({
        description:
          "share of the frames that metrics are measured on, 0 to 1; of frames whose side the job's " +
          "import brought along none are drawn, and no others where it brought frames for validation",
      }),
    include: DatasetInclude,
    pretrained: PretrainedSource.default(null),
  })
  .meta({ id: "TrainSettings" });
export type TrainSettings = z.infer<typeof TrainSettings>;

export const RUN_STATES = ["queued", "running", "completed", "failed", "stopped"] as const;

/** One-to-one branch's items, means over the epoch; `mask` and `semantic` of segmentation alone. */
export const RunLosses = z.object({
  box: z.number(),
  cls: z.number(),
  dfl: z.number(),
  mask: z.number().optional().meta({ description: "of segmentation: loss of the masks" }),
  semantic: z.number().optional().meta({
    description: "of segmentation: loss of the map of classes, which only training has",
  }),
});
export type RunLosses = z.infer<typeof RunLosses>;

/** The same items on the validation split; the semantic map is not validated. */
export const ValidationLosses = RunLosses.omit({ semantic: true });
export type ValidationLosses = z.infer<typeof ValidationLosses>;

/** Keys of the contract: `per_class/{class}/{metric}`, a `/` of a class name as `%2F`. */
export const CLASS_METRICS = ["precision", "recall", "mAP50", "mAP50-95"] as const;
/** By the overlap of masks: of segmentation, over all classes and by class. */
export const MASK_METRICS = ["mask/mAP50", "mask/mAP50-95"] as const;
export type ClassMetric = (typeof CLASS_METRICS)[number] | (typeof MASK_METRICS)[number];
/** The key of a class's metric in a `MetricMap`; `%` and `/` of its name are escaped. */
export const classMetricKey = (className: string, metric: ClassMetric) =>
  `per_class/${className.replaceAll("%", "%25").replaceAll("/", "%2F")}/${metric}`;

/**
 * Metrics by name: `mAP50`, `mAP50-95`, `precision`, `recall`, and `per_class/{class}/{metric}` for
 * every class; of segmentation also `mask/mAP50` and `mask/mAP50-95`, where the validation split
 * has masks. Null is not measured: a class without an object in the validation split, or weights
 * whose validation was not finished.
 */
export const MetricMap = z.record(z.string(), z.number().nullable());
export type MetricMap = z.infer<typeof MetricMap>;

/**
 * What a run's epochs are ranked by, 0 to 1: mAP50-95, and where masks were measured, its mean with
 * theirs. The service ranks by the same rule in SQL.
 */
export function epochScore(metrics: MetricMap): number {
  const boxes = metrics["mAP50-95"] ?? 0;
  return (boxes + (metrics["mask/mAP50-95"] ?? boxes)) / 2;
}

/** One epoch of a run. */
export const RunEpoch = z
  .object({
    epoch: z.number().int().min(1).max(EPOCHS_MAX).meta({ description: "from 1" }),
    losses: RunLosses,
    validation_losses: ValidationLosses.nullable()
      .default(null)
      .meta({
        description:
          "losses of the averaged weights on the validation split, without augmentation; the same " +
          "items as `losses`. Null where they were not finite, and for epochs of earlier releases",
      }),
    metrics: MetricMap,
    learning_rate: z.number(),
    seconds: z.number(),
  })
  .meta({ id: "RunEpoch" });
export type RunEpoch = z.infer<typeof RunEpoch>;

/** What the automatic settings came to on the node. */
export const ResolvedSettings = z
  .object({
    device: z.string(),
    precision: z.enum(["fp32", "bf16"]),
    precision_reason: z.string().meta({
      description: "why the run has this precision",
      example: "1.6 times as fast as fp32 here",
    }),
    batch_size: z.number().int(),
    optimizer: z.enum(["adamw", "sgd", "musgd"]),
    learning_rate: z.number(),
    train_images: z.number().int(),
    val_images: z.number().int(),
    nms_iou: z
      .number()
      .optional()
      .meta({
        description:
          "IoU above which the model's overlapping boxes of a class are suppressed, where that " +
          "gained more than noise on the validation split; absent where nothing is suppressed",
        example: 0.6,
      }),
    head: z
      .enum(HEADS)
      .optional()
      .meta({
        description:
          "with `nms_iou`: the head by which the model is served. `one_to_many` only where it is " +
          "better than the other one by more than noise",
      }),
    /** How far the first weights matched, where there were any. */
    pretrained: z
      .object({
        matched: z.number().int(),
        of: z.number().int(),
        mismatched: z.array(z.string()),
        missing: z.array(z.string()),
        unused: z.array(z.string()),
      })
      .nullable(),
  })
  .meta({ id: "ResolvedSettings" });
export type ResolvedSettings = z.infer<typeof ResolvedSettings>;

/** Names of the artifacts that are weights: of the best epoch, and of a run that was stopped. */
export const BEST_WEIGHTS = "best.safetensors";
export const LATEST_WEIGHTS = "last.safetensors";

/** An object that a run left: a chart, an image, a log. */
export const ArtifactObject = z.object({
  name: z.string().meta({ example: "results.png" }),
  key: z.string(),
  bytes: z.number().int(),
  content_type: z.string(),
});
export type ArtifactObject = z.infer<typeof ArtifactObject>;

export const TrainingRun = z
  .object({
    run_id: z.uuid(),
    project_id: z.uuid(),
    job_id: z.uuid().nullable().meta({
      description: "null once the job was deleted, and of a run that learns from a dataset",
    }),
    dataset: z
      .object({ dataset_id: z.uuid(), version: z.number().int() })
      .nullable()
      .meta({
        description:
          "beyond the contract: the version that it learns from in place of a job; null once the " +
          "dataset was deleted",
      }),
    name: z.string(),
    notes: z.string(),
    status: z.enum(RUN_STATES),
    failure: z.string().nullable(),
    stop_requested: z.boolean(),
    settings: TrainSettings,
    // `.nullable()` would have descriptions name the shape with its null.
    resolved: z.union([ResolvedSettings, z.null()]),
    classes: z.array(z.string()),
    dataset_sha256: z.string(),
    left_out_frames: DatasetCounts.shape.left_out_frames.meta({
      description:
        "frames of a single video that the run does not use, since they lie within the gap of a " +
        "validation frame",
    }),
    left_out_annotated_frames: DatasetCounts.shape.left_out_annotated_frames.meta({
      description: "of those, the frames with annotations",
    }),
    intervention: z.union([TaskIntervention, z.null()]).meta({
      description: "newest intervention in a task of the current round; null where there is none",
    }),
    epoch: z.number().int().meta({ description: "epochs done" }),
    epochs: z.number().int(),
    loss: RunLosses.nullable(),
    validation_loss: ValidationLosses.nullable().meta({
      description: "losses of the last epoch on the validation split; null where it has none",
    }),
    mAP: z
      .object({ mAP50: z.number(), "mAP50-95": z.number() })
      .nullable()
      .meta({ description: "of the last epoch" }),
    eta_seconds: z.number().nullable(),
    ETA: z.number().nullable().meta({
      description: "the same number as `eta_seconds`, under the name that the contract shows",
    }),
    waiting_for: z
      .string()
      .nullable()
      .meta({ description: "what keeps it from going on, such as no node being there" }),
    best_metrics: MetricMap.nullable().meta({
      description:
        "while the run trains: of its best epoch so far by mAP50-95 (of segmentation: by its mean " +
        "with mask/mAP50-95). Once it ended: the final values, those of the model that it " +
        "registered; of a run that registered none, still of its best epoch. A class without an " +
        "object in the validation split has null",
    }),
    best_epoch: z
      .number()
      .int()
      .nullable()
      .meta({
        description:
          "the epoch that `best_metrics` are of. Of a model that was stopped within an epoch it is " +
          "that epoch, which is not done",
      }),
    test_metrics: MetricMap.nullable().meta({
      description:
        "as `best_metrics`, on the frames of the side `test`: measured once, of the model that the " +
        "run registered, and nothing is chosen by them. Null before the end, where no test frame " +
        "has an annotation, and where they were not measured",
    }),
    model_id: z.uuid().nullable().meta({ description: "the newest model it registered" }),
    topic: z.string(),
    created_at: instant(),
    started_at: instant().nullable(),
    ended_at: instant().nullable(),
  })
  .meta({ id: "TrainingRun" });
export type TrainingRun = z.infer<typeof TrainingRun>;

/** Whether a model may be served where no GPU node is. */
const EdgeAbility = z.object({
  able: z.boolean().meta({
    description: "it is small enough to be served at the edge, where no GPU node is",
  }),
  reason: z.string().nullable().meta({ description: "why not; null where it is `able`" }),
});

export const Model = z
  .object({
    model_id: z.uuid(),
    project_id: z.uuid().nullable(),
    run_id: z.uuid().nullable().meta({ description: "null for an imported one" }),
    name: z.string(),
    version: z.number().int().meta({ description: "counts up within a name" }),
    variant: z.enum(VARIANT_NAMES),
    task: TrainSettings.shape.task,
    classes: z.array(z.string()),
    image_size: z.number().int(),
    parameters: z.number().int(),
    bytes: z.number().int(),
    sha256: z.string(),
    metrics: MetricMap,
    test_metrics: MetricMap.nullable().meta({
      description:
        "the same by the same rule on the test frames of its run's dataset, on which nothing was " +
        "trained or chosen; null where there were none with an annotation, where they were not " +
        "measured, for best weights that people registered, and for an imported model",
    }),
    metrics_rule: z
      .enum(["coco_at_image_edge"])
      .nullable()
      .meta({
        description:
          "how its run measured them on its validation split: `coco_at_image_edge` is COCO's " +
          "average precision of boxes cut at the image's edge, with a confidence of 0.001 or more, " +
          "at most 300 an image and 100 a class; null for an imported model",
        example: "coco_at_image_edge",
      }),
    aliases: z.array(z.enum(ALIASES)),
    active: z.boolean(),
    download_url: z.string().meta({ description: "its weights as safetensors" }),
    edge: EdgeAbility.meta({ description: "serving where no GPU node is" }),
    created_at: instant(),
  })
  .meta({ id: "Model" });
export type Model = z.infer<typeof Model>;

/** What may name a model: an alias, or `active`, the one of the default prediction routes. */
export const MODEL_NAMES = [...ALIASES, "active"] as const;
export type ModelName = (typeof MODEL_NAMES)[number];

/** Each time that a name came to mean another model. */
export const ModelMove = z
  .object({
    move_id: z.number().int(),
    name: z.enum(MODEL_NAMES),
    from_model_id: z.uuid().nullable().meta({ description: "null where it named none before" }),
    to_model_id: z.uuid().nullable().meta({ description: "null where it names none any more" }),
    rollback_of: z
      .number()
      .int()
      .nullable()
      .meta({ description: "the oldest of the moves that this one took back" }),
    actor_id: z.uuid().nullable(),
    at: instant(),
  })
  .meta({ id: "ModelMove" });
export type ModelMove = z.infer<typeof ModelMove>;

/** Weights that somebody brought along, to start runs from. */
export const WeightsFile = z
  .object({
    weights_id: z.uuid(),
    name: z.string(),
    dataset: z.string().meta({ description: "what they were trained on, in their owner's words" }),
    format: z.enum(["safetensors", "onnx"]),
    bytes: z.number().int(),
    created_at: instant(),
  })
  .meta({ id: "WeightsFile" });
export type WeightsFile = z.infer<typeof WeightsFile>;
