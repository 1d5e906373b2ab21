// The training engine as Node sees it. All work but the writing of files runs on one thread per
// engine; calls are done in the order they were made. A failed call rejects with an EngineError
// that carries the caller's stack; nothing here ever ends the process.

import type { DetectorGraph } from "../shared/detector/detector.ts";

export type Device = "cpu" | "cuda";
export type Precision = "fp32" | "bf16";

/** `code` is one of `bad_argument`, `bad_weights`, `bad_dataset`, `gpu_unavailable`,
 * `gpu_out_of_memory`, `out_of_memory`, `not_finite`, `io_failed`, `peer_lost`, `interrupted`,
 * `closed`, `internal`. */
export interface EngineError extends Error {
  code: string;
}

/** What this build can do on this machine. */
export interface Description {
  /** Version of libtorch. */
  torch: string;
  /** Whether it was built with a wheel of PyPI, or with the system's libtorch. */
  torchSource: "system" | "wheel";
  /** Our kernels for CUDA are compiled in. */
  cudaKernels: boolean;
  /**
   * GPUs that torch sees, in its order, which is not that of their driver; empty without a CUDA
   * build of torch. `pciBusId` is what the driver knows one by.
   */
  gpus: { name: string; memoryBytes: number; pciBusId?: string }[];
  /** The first GPU computes in bf16. */
  bf16: boolean;
  /** The CPU has instructions for bf16: whether steps get faster by them, a probe measures. */
  cpuBf16: boolean;
}

/** What the engine of this build can do here; it opens nothing and allocates nothing. */
export function describe(): Description;

/** Engines, tensors and bytes of GPU memory that are alive in this process; for tests of leaks. */
export function alive(): { engines: number; gpuBytes: number };

export interface EngineOptions {
  graph: DetectorGraph;
  device: Device;
  /** Decides the first weights, the order of images and every augmentation. */
  seed: number;
  /** Number of CPU threads of the engine. */
  threads: number;
  /**
   * Default fp32. bf16 is torch's autocast of the network; statistics, assignment, loss and weights
   * stay in fp32, and so do evaluation and prediction on a CPU. fp16 is the same for GPUs that are
   * slow in bf16, with a scaled loss; a CPU refuses it.
   */
  precision?: Precision | "fp16";
  /**
   * Whether training makes batch norm and the SiLU after it one operation of ours. Default: yes,
   * for fp32 and bf16; on a GPU where our kernels are built. On a CPU norms without SiLU are too.
   */
  fusedNorm?: boolean;
  /**
   * Whether training has images and weights with the channels of a pixel side by side, as our
   * batch norm has its maps. Default: yes; on a CPU not with torch's batch norm
   * (`fusedNorm: false`), which loses digits there. Files have the same tensors either way, and
   * all processes of a group one of them.
   */
  channelsLast?: boolean;
  /**
   * Whether steps replay a recording of their passes through the network, for each shape of a batch
   * once a step of it was made and another one rehearsed it: on a GPU a graph of CUDA, which is the
   * default where torch has it. On a CPU its parts are computed anew, for tests of the arithmetic.
   * Where that fails, all later steps are computed as they would be without.
   */
  recorded?: boolean;
  /** Without it the engine evaluates and predicts only. */
  training?: TrainingOptions;
}

/** Everything a step needs to know; the loop over epochs is the caller's. */
export interface TrainingOptions {
  optimizer: "adamw" | "sgd" | "musgd";
  epochs: number;
  /** Images a step; fewer in an epoch's last one. */
  batch: number;
  /** Side of the square input in pixels, a multiple of 32; see `multiScale`. */
  imageSize: number;
  lr0: number;
  /** The learning rate of the last epoch, as a share of `lr0`. */
  lrf: number;
  cosine: boolean;
  momentum: number;
  weightDecay: number;
  warmupEpochs: number;
  warmupMomentum: number;
  warmupBiasLr: number;
  /** Gradients are accumulated over so many images; weight decay is scaled to them. */
  nominalBatch: number;
  /** Largest norm of the gradients; they are scaled down to it. 0 turns clipping off. */
  clipNorm: number;
  /**
   * The average keeps emaDecay · (1 − exp(−t / emaUpdates)) of itself in the optimizer's update t,
   * which counts from 1.
   */
  emaDecay: number;
  emaUpdates: number;
  /**
   * So many layers from the input on neither learn nor move their statistics, 23 at most, which are
   * all but the head; none by default. A checkpoint is of one number.
   */
  freeze?: number;
  /**
   * Sides of batches differ from `imageSize` by this share of it at most, in steps of 32 pixels,
   * each side as likely: decided by seed, epoch and batch. 0 by default, 0.9 at most.
   */
  multiScale?: number;
  /**
   * First factor of the loss and of its gradients, which is taken out before a step. It halves
   * where they overflow and doubles after 2,000 steps without. Default: 65,536 in fp16, else none.
   */
  lossScale?: number;
  /** Weights of the losses; segmentation has `mask` and `semantic`, too, 7.5 each by default. */
  gains: { box: number; cls: number; dfl: number; mask?: number; semantic?: number };
  augmentation: Augmentation;
}

export interface Augmentation {
  /** Probabilities: of mosaic, mixup and both flips. */
  mosaic: number;
  mixup: number;
  flipLeftRight: number;
  flipUpDown: number;
  /**
   * Ranges around none: a factor of 1 ± `scale`, a shift of ± `translate` of the image's side, a
   * rotation of ± `rotate` and a shear of ± `shear` degrees.
   */
  scale: number;
  translate: number;
  rotate: number;
  shear: number;
  /** Ranges of hue (a shift of ± turns), saturation and value (factors of 1 ±). */
  hsv: [number, number, number];
  /**
   * Probability that objects with rings of another image are pasted over all others: each with
   * probability 0.5, at least one. What they hide of boxes and masks is cut, and an object of which
   * a tenth or less is still seen goes. 0 by default.
   */
  copyPaste?: number;
  /** Mosaic, mixup and pasting are off in so many last epochs. */
  closeMosaic: number;
}

/** One of several processes that train as one. */
export interface GroupOptions {
  /** A file that all of them open, and that is not there before: how they find each other. */
  store: string;
  /** From 0, the first, to `size` − 1. */
  rank: number;
  size: number;
  /**
   * Batch norm uses the statistics of the whole batch, and not of each process's part: then the
   * steps are those of one process, and each waits for the others twice a layer.
   */
  synchronizedNorm: boolean;
  /** A process that does not answer for so long is lost; one that ended is so at once. */
  timeoutSeconds: number;
}

/** Images of a split: one file of RGB bytes, row by row, image after image; it is mapped. */
export interface Dataset {
  path: string;
  images: DatasetImage[];
}
export interface DatasetImage {
  /** Offset of the image's first byte in the file. */
  offset: number;
  /** Pixels of the image in the file; its longest side is the image size of the training. */
  width: number;
  height: number;
  /** Five numbers a box: class index, x1, y1, x2, y2 in pixels of the image in the file. */
  boxes: Float32Array;
  /**
   * Outlines, a ring a box, filled by the non-zero rule: x and y of their corners in turn, ring
   * after ring, in the same pixels. Bridges of no width may lead to holes and to other parts. A box
   * with a ring is taken for the ring's own box; one without has no mask.
   */
  rings?: Float32Array;
  /** With `rings`: index of the corner that each box's ring begins with; an empty ring is none. */
  ringStarts?: Int32Array;
}

/** Images and their boxes as a step takes them. */
export interface Batch {
  /** RGB in 0 to 1: [count, 3, height, width]. */
  images: Float32Array;
  count: number;
  height: number;
  width: number;
  /** Six numbers a box: index of its image in the batch, class index, x1, y1, x2, y2 in pixels. */
  boxes: Float32Array;
  /**
   * Segmentation: a mask a box, of the whole image at a cell of four pixels, [boxes, height / 4,
   * width / 4] of 1 and 0. A box whose mask is all 0 has none, and teaches none; absent: no box
   * has one.
   */
  masks?: Uint8Array;
}

/** Images and the features that another network has of them. */
export interface FeatureBatch extends Omit<Batch, "boxes" | "masks"> {
  /**
   * By level, finest first: [count, classes, height / stride, width / stride]. A cell of which all
   * are 0 teaches nothing.
   */
  targets: Float32Array[];
}

/** A map of the graph: [count, channels, height, width]. */
export interface TensorMap {
  shape: number[];
  values: Float32Array;
}
export interface HeadMaps {
  box: TensorMap[];
  cls: TensorMap[];
  mask?: TensorMap[];
}
export interface Maps {
  o2m?: HeadMaps;
  o2o: HeadMaps;
  prototypes?: TensorMap;
  /** Given by a segmentation graph that trains: a logit a class at a cell of eight pixels. */
  semantic?: TensorMap;
}

/** The one-to-one branch's items and the weighted sum that is minimised, a mean over images. */
export interface Losses {
  total: number;
  box: number;
  cls: number;
  dfl: number;
  /** Losses of segmentation: of the one-to-one branch's masks, and of the semantic map. */
  mask?: number;
  semantic?: number;
}

export interface StepProgress {
  epoch: number;
  /** Batches of the epoch that are done, and all of them. */
  batch: number;
  batches: number;
  /** Means over the epoch so far. */
  losses: Losses;
  lr: number;
  imagesPerSecond: number;
  memoryBytes: number;
}

export interface EpochResult {
  losses: Losses;
  lr: number;
  /** Batches done in all of the epoch; fewer than `batches` after `interrupt`. */
  batch: number;
  batches: number;
  images: number;
  /** Where the time went, in seconds. */
  seconds: { data: number; forward: number; backward: number; optimizer: number };
  /** Optimiser steps left out because gradients were not finite. */
  skipped: number;
  /** Steps that rehearsed or replayed a recording. */
  recorded: number;
}

/** What a file of weights gave a graph. */
export interface LoadReport {
  matched: string[];
  /** In the file and the graph under other shapes; left as they were. */
  mismatched: { name: string; file: number[]; graph: number[] }[];
  /** In the graph only. */
  missing: string[];
  /** In the file only. */
  unused: string[];
  metadata: Record<string, string>;
}

/** Curves of a class at IoU 0.5. */
export interface ClassCurves {
  /** Over 101 confidences from 0 to 1, linear between detections. */
  precision: Float32Array;
  recall: Float32Array;
  f1: Float32Array;
  /** Over 101 recalls from 0 to 1, as pycocotools' `precision`: their mean is `mAP50`. */
  precisionByRecall: Float32Array;
}

/** Losses of validation, means over images; the items of `Losses` by the same definitions. */
export type ValidationLosses = Pick<Losses, "box" | "cls" | "dfl" | "mask">;

export interface ClassMetrics {
  precision: number;
  recall: number;
  mAP50: number;
  mAP50_95: number;
  /** The same by the overlap of masks: of segmentation, where objects of the class have masks. */
  maskMAP50?: number;
  maskMAP50_95?: number;
  /** Objects of the class in the split. */
  truths: number;
  curves: ClassCurves;
}

export interface Evaluation {
  precision: number;
  recall: number;
  mAP50: number;
  mAP50_95: number;
  /**
   * The same by the overlap of masks in pixels of the input: of segmentation. Images of which an
   * object has no mask do not count; absent where none is left.
   */
  maskMAP50?: number;
  maskMAP50_95?: number;
  /** By class index; null for a class without an object. */
  perClass: (ClassMetrics | null)[];
  /** The confidence at which precision and recall are read. */
  confidence: number;
  /** Over 1,000 confidences from 0 to 1, means over classes. */
  curves: { precision: Float32Array; recall: Float32Array; f1: Float32Array };
  /** Mean precision over 1,000 recalls at IoU 0.5. */
  precisionByRecall: Float32Array;
  /** [classes + 1]², row = predicted, column = true, last = background; IoU 0.45, conf 0.25. */
  confusion: Int32Array;
  /** All detections by confidence, in 20 bins from 0 to 1, the least confident first. */
  confidenceBins: Int32Array;
  /**
   * Losses of the split's letterboxed images, with the statistics of evaluation; absent where the
   * detections were made elsewhere and where no batch was done.
   */
  losses?: ValidationLosses;
  images: number;
  seconds: number;
}

/** Six numbers a detection: x1, y1, x2, y2 in pixels of the input, confidence, class index. */
export type Detections = Float32Array;

export class Engine {
  constructor(options: EngineOptions);
  /** Makes the network; every other call waits for it. */
  readonly ready: Promise<{ parameters: number }>;

  /** Takes weights by name. Those of EMA where a checkpoint is given. */
  load(path: string): Promise<LoadReport>;
  /**
   * Writes the EMA weights (the plain ones without training) as safetensors, all or nothing. What
   * is written is copied in the call's turn; the file is made beside the calls that follow, and is
   * there for good when this resolves. Files appear in the order of their calls; of two that are
   * not written yet, a third waits for the first.
   */
  save(path: string, metadata: Record<string, string>): Promise<{ bytes: number }>;
  /** Writes everything that the next step depends on, in the same way. */
  checkpoint(path: string, metadata: Record<string, string>): Promise<{ bytes: number }>;
  /** Goes on from a checkpoint as if nothing had happened. */
  restore(path: string): Promise<{ metadata: Record<string, string> }>;

  /**
   * Makes this engine one of several that train as one, each in a process of its own and on its
   * part of every batch: they take the first one's state, and then make the same steps as one
   * engine would. Resolves once all are there. Every engine has the same options and dataset and is
   * told of the same epochs; weights are given before. The first one's averages, evaluations and
   * checkpoints are those of the training. An interrupt of any ends the epoch of all after the step
   * under way. Where one is gone or fails, the others' epochs reject with `peer_lost`, and so does
   * every later one: training goes on in new engines, from a checkpoint. On CPUs of one machine
   * alone.
   */
  join(options: GroupOptions): Promise<void>;

  setDataset(split: "train" | "val", dataset: Dataset): Promise<void>;
  /**
   * Trains one epoch from its batch `from`. `interrupt` abandons the step under way, of which
   * nothing stays; the epoch resolves with what was done before it, and goes on from `batch` to the
   * bits of one that nobody interrupted. What `onProgress` throws ends it and is what it rejects
   * with.
   */
  trainEpoch(
    options: { epoch: number; from: number },
    onProgress: (progress: StepProgress) => void,
  ): Promise<EpochResult>;
  /**
   * Ends the call under way and those that wait, on a CPU in the middle of a step: epochs and
   * evaluations resolve with what was done, other passes through the network reject with
   * `interrupted`.
   */
  interrupt(): void;
  /** Metrics of the EMA weights on the split. */
  evaluate(
    options: { split: "train" | "val"; batch: number; imageSize: number },
    onProgress?: (done: { images: number; of: number }) => void,
  ): Promise<Evaluation>;
  /** Detections of letterboxed images; at most 300 each, none below `confidence`. */
  predict(batch: Omit<Batch, "boxes">, confidence: number): Promise<Detections[]>;
  /**
   * The same with their masks, by image: at most 100, the most confident first. A mask is
   * [height, width] of 1 and 0 in pixels of the input, mask after mask. Only of segmentation.
   */
  predictMasks(
    batch: Omit<Batch, "boxes" | "masks">,
    confidence: number,
  ): Promise<{ detections: Detections; masks: Uint8Array }[]>;
  /**
   * A training batch as the epoch would see it; with `byTorch` as it would be on a GPU where our
   * kernel is not built, on whatever device.
   */
  render(options: { epoch: number; batch: number; byTorch?: boolean }): Promise<Batch>;
  /**
   * Time and memory that one step at this batch takes, in the engine's precision or another;
   * weights stay as they are. `cpuSeconds` are those of all the process's threads together: other
   * processes do not count in them.
   */
  probe(options: {
    batch: number;
    imageSize: number;
    precision?: Precision;
  }): Promise<{ bytes: number; seconds: number; cpuSeconds: number }>;

  /** The maps of a batch; with `training`, batch norm uses the batch's statistics. */
  forward(batch: Omit<Batch, "boxes">, options: { training: boolean }): Promise<Maps>;
  /** The losses of a batch, at `o2mShare` of the one-to-many branch. */
  losses(batch: Batch, options: { o2mShare: number }): Promise<Losses>;
  /** One optimiser step on a batch, as iteration `iteration` of `epoch` would do it. */
  step(batch: Batch, options: { epoch: number; iteration: number }): Promise<Losses>;
  /**
   * One optimiser step of pre-training: the class maps of the one-to-many branch learn the
   * directions of other features. The loss is 1 − cosine, a mean over a level's cells, and over
   * levels; the rates are those of an iteration of an epoch that has `iterations`.
   */
  distill(
    batch: FeatureBatch,
    options: { epoch: number; iteration: number; iterations: number },
  ): Promise<{ loss: number }>;
  /** A tensor of the state by its name: plain weights, or those of EMA. */
  tensor(name: string, of: "model" | "ema" | "gradient"): Promise<TensorMap>;

  /** Frees everything. Calls that wait reject with `closed`. */
  close(): Promise<void>;
}

/** Average precision as evaluation does it, of detections and truths made elsewhere. */
export function evaluateDetections(input: {
  classes: number;
  /** By image; boxes in one unit. */
  detections: Detections[];
  /** Five numbers a box: class index, x1, y1, x2, y2. */
  truths: Float32Array[];
  /** Their masks, by image: [boxes, height, width] of 1 and 0. */
  masks?: { height: number; width: number; detections: Uint8Array[]; truths: Uint8Array[] };
}): Evaluation;

/** Target assignment as the loss does it, of predictions made elsewhere. */
export function assignTargets(input: {
  classes: number;
  /** Sides of the input in pixels, multiples of 32; anchors are those of its three levels. */
  height: number;
  width: number;
  /** The one-to-one branch's rules instead of the one-to-many's. */
  oneToOne: boolean;
  images: number;
  /** Corners in pixels: [images, 4, anchors]. */
  boxes: Float32Array;
  /** [images, classes, anchors]. */
  logits: Float32Array;
  /** [images, any, 5]: class index, x1, y1, x2, y2; class −1 is padding. */
  truths: Float32Array;
}): {
  /** Target score, [images, anchors]: 0 without an object. */
  scores: Float32Array;
  /** Index of the object among its image's truths where the score is above 0. */
  objects: Float32Array;
};
