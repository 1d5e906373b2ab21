// What may be trained, and how: the detector family and every option, for whoever fills in a form.

import { z } from "@hono/zod-openapi";
import {
  AUGMENTATION_PRESETS,
  AUGMENTATIONS,
  AugmentationKnobs,
} from "../../../../shared/detector/augmentation.ts";
import { deployed } from "../../../../shared/detector/deployed-detector.ts";
import {
  detectorGraph,
  flops,
  parameterCount,
  VARIANT_NAMES,
  type Variant,
} from "../../../../shared/detector/detector.ts";
import {
  LEARNING_RATE_SCHEDULES,
  OPTIMIZERS,
  PRECISIONS,
  TrainSettings,
} from "../../../../shared/wire/training.ts";

/** Classes of the detectors whose sizes are listed; the last layers grow with their number. */
const CLASSES = 80;
const SIZE = 640;

const GOOD_FOR: Record<Variant, string> = {
  det26n: "the fastest: CPUs, edge devices, and fewer than 200 annotated frames",
  det26s: "200 to 1,000 annotated frames, and small GPUs",
  det26m: "1,000 annotated frames and more, on a server's GPU",
  det26l: "large datasets on which det26m gets no better",
  det26x: "the most accurate and the slowest: large datasets, offline work",
};

export const VariantRecord = z
  .object({
    variant: z.enum(VARIANT_NAMES),
    parameters: z.number().int().meta({ description: "in training, both heads" }),
    parameters_deployed: z.number().int(),
    gflops_640: z.number().meta({ description: "of the deployed graph, an image of 640 px" }),
    good_for: z.string(),
  })
  .meta({ id: "Variant" });

let counted: z.infer<typeof VariantRecord>[] | null = null;

/** The variants, smallest first; counted from their graphs. */
export function variantRecords(): z.infer<typeof VariantRecord>[] {
  counted ??= VARIANT_NAMES.map((variant) => {
    const graph = detectorGraph(variant, CLASSES);
    const lean = deployed(graph);
    return {
      variant,
      parameters: parameterCount(graph),
      parameters_deployed: parameterCount(lean),
      gflops_640: Math.round(flops(lean, SIZE) / 1e7) / 100,
      good_for: GOOD_FOR[variant],
    };
  });
  return counted;
}

export const TrainOptions = z
  .object({
    tasks: z.array(
      z.object({
        task: TrainSettings.shape.task.unwrap(),
        trainable: z.boolean(),
        why: z.string(),
      }),
    ),
    augmentations: z.record(z.enum(AUGMENTATIONS), AugmentationKnobs),
    learning_rate_schedules: z.array(z.enum(LEARNING_RATE_SCHEDULES)),
    optimizers: z.array(z.enum(OPTIMIZERS)),
    precisions: z.array(z.enum(PRECISIONS)),
    defaults: TrainSettings,
  })
  .meta({ id: "TrainOptions" });

function presetRecord(name: (typeof AUGMENTATIONS)[number]): AugmentationKnobs {
  const { flipLeftRight, flipUpDown, copyPaste, closeMosaic, ...same } = AUGMENTATION_PRESETS[name];
  const flips = { flip_left_right: flipLeftRight, flip_up_down: flipUpDown };
  return { ...same, ...flips, copy_paste: copyPaste, close_mosaic: closeMosaic };
}

/** Every option of a run, with what may be chosen. */
export const trainOptions = (): z.infer<typeof TrainOptions> => ({
  tasks: TrainSettings.shape.task.unwrap().options.map((task) => ({
    task,
    trainable: true,
    why: "",
  })),
  augmentations: {
    minimal: presetRecord("minimal"),
    standard: presetRecord("standard"),
    aggressive: presetRecord("aggressive"),
  },
  learning_rate_schedules: [...LEARNING_RATE_SCHEDULES],
  optimizers: [...OPTIMIZERS],
  precisions: [...PRECISIONS],
  defaults: TrainSettings.parse({}),
});
