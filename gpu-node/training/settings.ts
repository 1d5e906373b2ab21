// What the settings of a run come to: optimiser, learning rate, augmentation and batch. Pure; the
// figures are those of the detector family's description.

import type { Augmentation, Device, TrainingOptions } from "../../native/index.d.ts";
import { AUGMENTATION_PRESETS } from "../../shared/detector/augmentation.ts";
import {
  BACKBONE_LAYERS,
  BATCH_SMALL,
  EPOCH_STEPS_MIN,
  IMAGE_SIZE_DEFAULT,
  type TrainSettings,
} from "../../shared/wire/training.ts";

/** Beyond so many steps the strong optimiser is worth its cost for weights that know something. */
const LONG_ITERATIONS = 10_000;
/** The engine warms up for at least a hundred iterations: in a shorter run, over a tenth of it. */
const SHORT_ITERATIONS = 1_000;
const NOMINAL_BATCH = 64;
export const BATCH_MAX = 64;
const BATCH_MAX_CPU = 16;
/** A run of fewer steps gathers no gradients over more than one batch: it needs updates. */
const RUN_STEPS_MIN = 750;
/** The share of free memory for a step; the rest is for evaluation and whatever else runs. */
const GPU_SHARE = 0.65;
const CPU_SHARE = 0.5;
/**
 * How images are changed in a run. The last epochs see whole images; unless their number was asked
 * for, these are at most a third of a short run, or mosaic would never be.
 */
export function augmentationOf({
  augmentation,
  augmentation_overrides: asked,
  epochs,
}: Pick<TrainSettings, "augmentation" | "augmentation_overrides" | "epochs">): Augmentation {
  const preset = AUGMENTATION_PRESETS[augmentation];
  const [hue = 0, saturation = 0, value = 0] = asked.hsv ?? preset.hsv;
  return {
    mosaic: asked.mosaic ?? preset.mosaic,
    mixup: asked.mixup ?? preset.mixup,
    flipLeftRight: asked.flip_left_right ?? preset.flipLeftRight,
    flipUpDown: asked.flip_up_down ?? preset.flipUpDown,
    scale: asked.scale ?? preset.scale,
    translate: asked.translate ?? preset.translate,
    rotate: asked.rotate ?? preset.rotate,
    shear: asked.shear ?? preset.shear,
    hsv: [hue, saturation, value],
    copyPaste: asked.copy_paste ?? preset.copyPaste,
    closeMosaic: asked.close_mosaic ?? Math.min(preset.closeMosaic, Math.floor(epochs / 3)),
  };
}

/** Steps of the whole run. */
export const iterationsOf = (images: number, batch: number, epochs: number): number =>
  Math.ceil(images / batch) * epochs;

export interface Shape {
  classes: number;
  trainImages: number;
  batch: number;
  /** The run starts from weights without a head: it learns that as a run from scratch does. */
  isHeadFresh?: boolean;
}

/** What the engine trains by; a learning rate that was asked for holds for every optimiser. */
export function trainingOptions(settings: TrainSettings, shape: Shape): TrainingOptions {
  const { epochs } = settings;
  const { trainImages, batch } = shape;
  const iterations = iterationsOf(trainImages, batch, epochs);
  const asked = settings.optimizer === "auto" ? null : settings.optimizer;
  const optimizer = asked ?? automaticOptimizer(iterations, shape, settings);
  const lr0 = settings.learning_rate ?? learningRate(optimizer, shape, settings);
  const nominal = nominalBatch(batch, trainImages * epochs);
  const updates = iterations / Math.max(1, Math.round(nominal / batch));
  return {
    optimizer,
    epochs,
    batch,
    imageSize: settings.image_size,
    lr0,
    lrf: 0.01,
    cosine: settings.learning_rate_schedule === "cosine",
    momentum: optimizer === "adamw" ? 0.9 : 0.937,
    weightDecay: 5e-4,
    warmupEpochs: warmupEpochs(iterations, epochs),
    warmupMomentum: 0.8,
    // An adaptive optimiser's first steps are large enough without it.
    warmupBiasLr: optimizer === "adamw" ? 0 : 0.1,
    nominalBatch: nominal,
    clipNorm: 10,
    emaDecay: settings.ema_decay ?? averageOf(updates).decay,
    emaUpdates: settings.ema_tau ?? averageOf(updates).tau,
    freeze: settings.freeze === "backbone" ? BACKBONE_LAYERS : settings.freeze,
    multiScale: settings.multi_scale,
    gains: { box: 7.5, cls: 0.5, dfl: 1.5 },
    augmentation: augmentationOf(settings),
  };
}

/** The average that long runs have: the description's. */
const AVERAGE = { decay: 0.9999, tau: 2_000 };
/** Updates that the average looks back over at most, and those that its ramp takes, of a run's. */
const AVERAGE_SHARES = { span: 1 / 10, ramp: 1 / 5 };

/**
 * The average of weights in a run of so many updates of the optimizer. What keeps a share d of
 * itself is 1 / (1 − d) updates old. That of long runs keeps 14 % after 300 updates, which is no
 * average; with their decay and a ramp of the run's length it would be as old as the run, and
 * epochs would be measured by weights of long ago. So 1 / (1 − d) is N / 10 at most, and
 * d = 1 − 10 / N; the ramp is a fifth of the run: the weights of its end are then 1 to 10 % of the
 * run old. From 10,000 updates on the ramp is the description's, from 100,000 on the decay.
 */
export function averageOf(updates: number): { decay: number; tau: number } {
  const { span, ramp } = AVERAGE_SHARES;
  return {
    decay: Math.min(AVERAGE.decay, 1 - 1 / Math.max(1, span * updates)),
    tau: Math.min(AVERAGE.tau, Math.max(1, ramp * updates)),
  };
}

/**
 * What small variants learn by from scratch, and above a backbone and a neck that know something,
 * where a fresh head learns (`bench -- training-choices`, `bench -- pretraining`; AP on images that
 * nothing was chosen on, of 164 of blood cells, three classes, and as many drawn ones of 24).
 *
 * AdamW's rate of the description falls with the classes, for weights that know something. One rate
 * whatever the classes is better: 60 epochs at 160 px of the drawn ones gave .14 at 0.00036, .29 at
 * 0.0011, .51 at 0.004, .64 at 0.008, and 40 at 224 px .68 at 0.004, .63 at 0.008; blood cells gave
 * .44 at 0.0014, .50 at 0.004, .47 at 0.008, and at 224 px .49 and .47.
 *
 * MuSGD is better still, which the description has for long runs alone: in 1,260 steps at 160 px it
 * has .72 where AdamW has .51 (drawn) and .50 where it has .50 (blood cells); in 840 at 224 px .76
 * and .68, .50 and .49; in 630 at 320 px .83 and .55, but .50 and .54, so shorter runs keep AdamW.
 * A step costs more by a time that does not grow with the images: 1.4 times at 160 px, 1.3 at 320
 * (batch 8).
 */
const SCRATCH = {
  variants: ["det26n", "det26s"] as readonly string[],
  rate: 0.004,
  /** Steps above which MuSGD is taken. */
  musgdIterations: 800,
};

const isScratch = (
  { isHeadFresh = false }: Shape,
  { pretrained, variant }: Pick<TrainSettings, "pretrained" | "variant">,
): boolean => (pretrained === null || isHeadFresh) && SCRATCH.variants.includes(variant);

/** A rate that was asked for is one for AdamW. */
function automaticOptimizer(iterations: number, shape: Shape, settings: TrainSettings) {
  const isEarly = isScratch(shape, settings) && settings.learning_rate === null;
  const enough = isEarly ? SCRATCH.musgdIterations : LONG_ITERATIONS;
  return iterations > enough ? "musgd" : "adamw";
}

function learningRate(
  optimizer: "adamw" | "sgd" | "musgd",
  shape: Shape,
  settings: TrainSettings,
): number {
  if (optimizer !== "adamw") return 0.01;
  if (isScratch(shape, settings)) return SCRATCH.rate;
  return Math.round(((0.002 * 5) / (4 + shape.classes)) * 1e6) / 1e6;
}

const warmupEpochs = (iterations: number, epochs: number): number =>
  iterations < SHORT_ITERATIONS ? 0 : Math.min(3, epochs / 10);

/** Images between two steps of the optimiser, of so many that the run sees. */
const nominalBatch = (batch: number, images: number): number =>
  Math.max(batch, Math.min(NOMINAL_BATCH, Math.floor(images / RUN_STEPS_MIN)));

export interface Memory {
  device: Device;
  /** Free for the step, bytes. */
  freeBytes: number;
}

/**
 * The automatic batch: the largest power of two whose step fits into the share of memory that is
 * for it. `probe` gives the bytes of a step, or null where it does not fit at all. Memory grows
 * with the batch, so two small probes say where to begin.
 */
export async function automaticBatch(
  trainImages: number,
  memory: Memory,
  probe: (batch: number) => Promise<number | null>,
): Promise<number> {
  const share = memory.device === "cuda" ? GPU_SHARE : CPU_SHARE;
  const budget = memory.freeBytes * share;
  const max = memory.device === "cuda" ? BATCH_MAX : BATCH_MAX_CPU;
  const enough = Math.max(BATCH_SMALL, trainImages / EPOCH_STEPS_MIN);
  const bound = powerOfTwo(Math.min(max, trainImages, enough));
  const [one, two] = [await probe(1), bound > 1 ? await probe(2) : null];
  if (one === null || two === null || two > budget) return 1;
  const each = Math.max(1, two - one);
  const guess = Math.min(bound, powerOfTwo(Math.max(2, (budget - one) / each + 1)));
  if (memory.device === "cpu") return guess;
  // A GPU's memory does not grow evenly: what was reckoned is tried before it is relied on.
  for (let batch = guess; batch > 2; batch /= 2) {
    const bytes = await probe(batch);
    if (bytes !== null && bytes <= budget) return batch;
  }
  return 2;
}

/** The largest power of two that is not above. */
const powerOfTwo = (value: number): number => 2 ** Math.floor(Math.log2(Math.max(1, value)));

/** Sides of images are multiples of it; the engine draws those of batches by the same rule. */
const SIDE_STEP = 32;

/** Side of a run's largest batches in pixels, by which its memory is judged. */
export const imageSizeMax = ({
  image_size: size,
  multi_scale: share,
}: Pick<TrainSettings, "image_size" | "multi_scale">): number =>
  SIDE_STEP * Math.floor((size / SIDE_STEP) * (1 + share) + 1e-6);

/** Bytes of one image of 640 pixels through the smallest variant, both ways, measured on CPUs. */
const IMAGE_BYTES = 3.2e8;
const SMALLEST_PARAMETERS = 2.6e6;

/** A weight with its gradient and moments; and the copy of it that a checkpoint is written of. */
const PARAMETER_BYTES = 32;

/** Bytes of a step, roughly, where they cannot be measured: what it holds of weights and maps. */
export const stepBytes = (parameters: number, imageSize: number, batch: number): number =>
  parameters * PARAMETER_BYTES +
  batch *
    (imageSize / IMAGE_SIZE_DEFAULT) ** 2 *
    IMAGE_BYTES *
    Math.max(1, parameters / SMALLEST_PARAMETERS) ** 0.7;

/** An explicit batch, never above the images; null asks for the automatic one. */
export const explicitBatch = (asked: number | null, trainImages: number): number | null =>
  asked === null ? null : Math.max(1, Math.min(asked, trainImages));
