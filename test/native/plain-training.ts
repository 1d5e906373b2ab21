// Settings of plain training steps, for tests and for processes that load the engine themselves.

import type { TrainingOptions } from "../../native/index.d.ts";

/** Plain steps: no warm-up, no decay, no augmentation, a step a batch. */
export const PLAIN: TrainingOptions = {
  optimizer: "adamw",
  epochs: 2,
  batch: 2,
  imageSize: 64,
  lr0: 0.002,
  lrf: 1,
  cosine: false,
  momentum: 0.9,
  weightDecay: 0,
  warmupEpochs: 0,
  warmupMomentum: 0.8,
  warmupBiasLr: 0,
  nominalBatch: 2,
  clipNorm: 0,
  emaDecay: 0.9999,
  emaUpdates: 2000,
  gains: { box: 7.5, cls: 0.5, dfl: 1.5 },
  augmentation: {
    mosaic: 0,
    mixup: 0,
    flipLeftRight: 0,
    flipUpDown: 0,
    scale: 0,
    translate: 0,
    rotate: 0,
    shear: 0,
    hsv: [0, 0, 0],
    closeMosaic: 0,
  },
};
