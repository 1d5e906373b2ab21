// `node train.ts [--images N --epochs N --side PX]`: trains det26n on drawn shapes and evaluates it
// on images that it has not seen, in the precisions of the device (ENGINE_DEVICE). Fails below a
// mean average precision of .95 at an overlap of half.

import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import type { EngineOptions } from "../../../native/index.d.ts";
import { AUGMENTATION_PRESETS } from "../../../shared/detector/augmentation.ts";
import { type DetectorTask, detectorGraph } from "../../../shared/detector/detector.ts";
import { DEVICE } from "../engine.ts";
import { type EngineSetup, withImages, writeDataset } from "../rectangle-images.ts";
import { SHAPE_CLASSES, shapeImages } from "./shapes.ts";

const GOAL = 0.95;
const { values } = parseArgs({
  options: {
    images: { type: "string", default: "256" },
    epochs: { type: "string", default: "60" },
    side: { type: "string", default: "192" },
    threads: { type: "string", default: "2" },
    goal: { type: "string", default: String(GOAL) },
  },
});
const [images, epochs, side] = [values.images, values.epochs, values.side].map(Number) as [
  number,
  number,
  number,
];

interface Training {
  task: DetectorTask;
  precision: NonNullable<EngineOptions["precision"]>;
}

const TRAININGS: Readonly<Record<typeof DEVICE, readonly Training[]>> = {
  cpu: [{ task: "detection", precision: "fp32" }],
  cuda: [
    { task: "detection", precision: "bf16" },
    { task: "detection", precision: "fp32" },
    { task: "segmentation", precision: "bf16" },
    { task: "detection", precision: "fp16" },
  ],
};

const sources = shapeImages(images, side, 1);
const unseen = shapeImages(64, side, 2);

/** Trains once; the mean average precision on unseen images. */
async function trained({ task, precision }: Training): Promise<number> {
  const batch = 16;
  const setup: EngineSetup = {
    sources,
    augmentation: { ...AUGMENTATION_PRESETS.standard, closeMosaic: Math.ceil(epochs / 4) },
    training: {
      optimizer: "adamw",
      epochs,
      batch,
      nominalBatch: batch,
      imageSize: side,
      lr0: 0.003,
      momentum: 0.9,
      warmupEpochs: 1,
      emaDecay: 0.98,
      emaUpdates: 100,
    },
    options: {
      graph: detectorGraph("det26n", SHAPE_CLASSES, task),
      device: DEVICE,
      precision,
      threads: Number(values.threads),
    },
  };
  return await withImages(setup, async (engine, { path }) => {
    const began = performance.now();
    let [skipped, recorded] = [0, 0];
    for (let epoch = 0; epoch < epochs; epoch++) {
      const done = await engine.trainEpoch({ epoch, from: 0 }, () => {});
      skipped += done.skipped;
      recorded += done.recorded;
    }
    const seconds = (performance.now() - began) / 1_000;
    await engine.setDataset("val", writeDataset(join(dirname(path), "unseen"), unseen));
    const found = await engine.evaluate({ split: "val", batch: 16, imageSize: side });
    const masks = found.maskMAP50 === undefined ? "" : `, by masks ${found.maskMAP50.toFixed(3)}`;
    process.stdout.write(
      `${task} in ${precision}: mAP50 ${found.mAP50.toFixed(3)}, ` +
        `mAP50-95 ${found.mAP50_95.toFixed(3)}${masks} after ${epochs} epochs of ${images} images, ` +
        `${((epochs * images) / seconds).toFixed(0)} images/s, ` +
        `${recorded} steps recorded, ${skipped} left out\n`,
    );
    return found.mAP50;
  });
}

for (const training of TRAININGS[DEVICE])
  if ((await trained(training)) < Number(values.goal)) process.exitCode = 1;
