// What a run's settings come to. Goal: the automatic choices are those of the description, hold for
// sets of any size, and never ask for more memory than there is.

import { describe, expect, it } from "vitest";
import type { RunState } from "../../../gpu-node/training/checkpoints.ts";
import { asTrainFailure, engineCode } from "../../../gpu-node/training/engine-failure.ts";
import {
  lostInARow,
  metricsOf,
  ranOut,
  trendAfter,
  unmeasured,
} from "../../../gpu-node/training/loop.ts";
import {
  augmentationOf,
  automaticBatch,
  averageOf,
  explicitBatch,
  iterationsOf,
  stepBytes,
  trainingOptions,
} from "../../../gpu-node/training/settings.ts";
import type { Evaluation } from "../../../native/index.d.ts";
import type { AugmentationKnobs } from "../../../shared/detector/augmentation.ts";
import { detectorGraph, parameterCount, type Variant } from "../../../shared/detector/detector.ts";
import { TrainSettings } from "../../../shared/wire/training.ts";

const settings = (more: Partial<TrainSettings> = {}) => TrainSettings.parse(more);
const shape = { classes: 3, trainImages: 1_000, batch: 16 };
const GIB = 1024 ** 3;

describe("the optimiser", () => {
  it.each([
    // 63 steps an epoch: 158 epochs are under ten thousand, 159 are over.
    [{ epochs: 158 }, shape, "adamw", 0.001429, 0.9, 0],
    [{ epochs: 159 }, shape, "musgd", 0.01, 0.937, 0.1],
    [{ epochs: 50 }, { ...shape, classes: 80 }, "adamw", 0.000119, 0.9, 0],
    [{ epochs: 50 }, { ...shape, classes: 1 }, "adamw", 0.002, 0.9, 0],
    [{ epochs: 50, optimizer: "sgd" }, shape, "sgd", 0.01, 0.937, 0.1],
    [{ epochs: 50, optimizer: "musgd" }, shape, "musgd", 0.01, 0.937, 0.1],
    [{ epochs: 500, optimizer: "adamw" }, shape, "adamw", 0.001429, 0.9, 0],
    [{ epochs: 50, learning_rate: 0.004 }, shape, "adamw", 0.004, 0.9, 0],
    [{ epochs: 500, learning_rate: 0.004 }, shape, "musgd", 0.004, 0.937, 0.1],
  ] as const)("%j on %j is %s at %d", (asked, of, optimizer, lr0, momentum, warmupBiasLr) => {
    const pretrained = { weights_id: "00000000-0000-4000-8000-000000000000" };
    const options = trainingOptions(settings({ ...asked, pretrained }), of);
    expect(options).toMatchObject({ optimizer, lr0, momentum, warmupBiasLr });
  });

  const fresh = [
    // 63 steps an epoch: twelve epochs are under 800, thirteen are over.
    [{ epochs: 12 }, 3, "adamw", 0.004],
    [{ epochs: 12 }, 1, "adamw", 0.004],
    [{ epochs: 13 }, 3, "musgd", 0.01],
    [{ epochs: 12, variant: "det26s" }, 80, "adamw", 0.004],
    [{ epochs: 13, variant: "det26s" }, 80, "musgd", 0.01],
    [{ epochs: 50, variant: "det26m" }, 3, "adamw", 0.001429],
    [{ epochs: 50, learning_rate: 0.001 }, 3, "adamw", 0.001],
    [{ epochs: 50, optimizer: "adamw" }, 24, "adamw", 0.004],
    [{ epochs: 7, optimizer: "sgd" }, 3, "sgd", 0.01],
  ] as const;
  it.each(fresh)("%j from scratch, %d classes, is %s at %d", (asked, classes, optimizer, lr0) => {
    const options = trainingOptions(settings(asked), { ...shape, classes });
    expect(options).toMatchObject({ optimizer, lr0 });
  });

  it.each(fresh)(
    "%j under a fresh head, %d classes, is %s at %d",
    (more, classes, optimizer, lr0) => {
      const asked = settings({ ...more, pretrained: { dataset: "cells" } });
      const options = trainingOptions(asked, { ...shape, classes, isHeadFresh: true });
      expect(options).toMatchObject({ optimizer, lr0 });
    },
  );

  it("has the description's other defaults", () => {
    expect(trainingOptions(settings({ epochs: 50 }), shape)).toMatchObject({
      lrf: 0.01,
      cosine: false,
      weightDecay: 5e-4,
      warmupEpochs: 3,
      warmupMomentum: 0.8,
      nominalBatch: 64,
      clipNorm: 10,
      batch: 16,
      gains: { box: 7.5, cls: 0.5, dfl: 1.5 },
    });
  });

  it("falls by a cosine where that is asked for", () => {
    const asked = settings({ learning_rate_schedule: "cosine" });
    expect(trainingOptions(asked, shape).cosine).toBe(true);
  });

  it("steps often enough in a small set, and begins at full speed in a short run", () => {
    const small = { classes: 2, trainImages: 24, batch: 4 };
    expect(trainingOptions(settings({ epochs: 10 }), small)).toMatchObject({
      nominalBatch: 4,
      warmupEpochs: 0,
    });
    // 50 epochs on 30 to 200 images: a step a batch, and the first one as large as the others.
    for (const [trainImages, batch] of [
      [30, 4],
      [30, 8],
      [100, 8],
      [200, 16],
    ] as const) {
      const options = trainingOptions(settings(), { classes: 2, trainImages, batch });
      expect(options).toMatchObject({ nominalBatch: batch, warmupEpochs: 0 });
    }
    // From a thousand steps on a warm-up is a small part of them.
    expect(trainingOptions(settings(), { ...small, trainImages: 80 }).warmupEpochs).toBe(3);
    // Gradients are never gathered over less than a batch.
    const tiny = { classes: 2, trainImages: 8, batch: 8 };
    expect(trainingOptions(settings(), tiny).nominalBatch).toBe(8);
    expect(iterationsOf(9, 8, 10)).toBe(20);
  });
});

describe("the average of weights", () => {
  /** How old its weights are on average after so many updates, in updates. */
  const ageAfter = (updates: number, { decay, tau }: ReturnType<typeof averageOf>) => {
    let age = 0;
    for (let update = 1; update <= updates; update++) {
      age = decay * (1 - Math.exp(-update / tau)) * (age + 1);
    }
    return age;
  };

  it.each([
    [300, 0.07],
    [1_000, 0.05],
    [10_000, 0.01],
    [100_000, 0.1],
  ])("of %i updates is %d of them old at the end, and young until then", (updates, age) => {
    const average = averageOf(updates);
    expect(ageAfter(updates, average) / updates).toBeCloseTo(age, 2);
    // Weights of long ago are what no epoch is to be measured by.
    for (const share of [0.02, 0.1, 0.3, 0.5]) {
      const made = Math.ceil(share * updates);
      expect(ageAfter(made, average)).toBeLessThan(0.1 * updates);
      if (updates < 20_000) expect(ageAfter(made, average)).toBeLessThan(0.05 * made);
    }
  });

  it("is that of the description in a long run, and none of a single step", () => {
    expect(averageOf(100_000)).toEqual({ decay: 0.9999, tau: 2_000 });
    expect(averageOf(1e6)).toEqual({ decay: 0.9999, tau: 2_000 });
    expect(averageOf(10_000)).toEqual({ decay: 0.999, tau: 2_000 });
    expect(averageOf(1)).toEqual({ decay: 0, tau: 1 });
  });

  it("counts updates, not batches, and is what was asked for", () => {
    // 63 batches in each of 50 epochs, four of which make an update.
    const { emaDecay, emaUpdates } = trainingOptions(settings({ epochs: 50 }), shape);
    expect({ decay: emaDecay, tau: emaUpdates }).toEqual(averageOf((63 * 50) / 4));
    const asked = settings({ ema_decay: 0.99, ema_tau: 7 });
    expect(trainingOptions(asked, shape)).toMatchObject({ emaDecay: 0.99, emaUpdates: 7 });
    for (const wrong of [{ ema_decay: 1 }, { ema_decay: -0.1 }, { ema_tau: 0 }]) {
      expect(TrainSettings.safeParse(wrong).success).toBe(false);
    }
  });
});

describe("layers and sizes", () => {
  it("are frozen by number or by name, the head never", () => {
    const frozen = (freeze: TrainSettings["freeze"]) =>
      trainingOptions(settings({ freeze }), shape).freeze;
    expect([frozen(0), frozen(5), frozen("backbone")]).toEqual([0, 5, 11]);
    expect(trainingOptions(settings(), shape)).toMatchObject({ freeze: 0, multiScale: 0 });
    const layers = detectorGraph("det26n", 3).nodes.map(({ layer }) => layer);
    expect(Math.max(...layers)).toBe(23);
    for (const wrong of [{ freeze: 24 }, { freeze: -1 }, { freeze: 0.5 }, { freeze: "neck" }]) {
      expect(TrainSettings.safeParse(wrong).success).toBe(false);
    }
  });

  it("are of a range around the size where that is asked for", () => {
    expect(trainingOptions(settings({ multi_scale: 0.5 }), shape).multiScale).toBe(0.5);
    expect(TrainSettings.safeParse({ multi_scale: 1 }).success).toBe(false);
  });
});

describe("augmentation", () => {
  it.each([
    ["minimal", { mosaic: 0, mixup: 0, scale: 0.25, translate: 0.05, rotate: 0, closeMosaic: 0 }],
    ["standard", { mosaic: 1, mixup: 0, scale: 0.5, translate: 0.1, rotate: 0, closeMosaic: 10 }],
    ["aggressive", { mosaic: 1, mixup: 0.15, scale: 0.9, rotate: 10, shear: 2, closeMosaic: 15 }],
  ] as const)("%s is as described", (preset, values) => {
    const asked = settings({ augmentation: preset, epochs: 100 });
    expect(augmentationOf(asked)).toMatchObject({ ...values, flipLeftRight: 0.5 });
  });

  it("leaves mosaic two thirds of a short run", () => {
    expect(augmentationOf(settings({ epochs: 9 })).closeMosaic).toBe(3);
    const short = settings({ augmentation: "aggressive", epochs: 2 });
    expect(augmentationOf(short).closeMosaic).toBe(0);
  });

  it("has the knobs that were asked for, nothing included, and the others of its preset", () => {
    const asked: AugmentationKnobs = {
      mosaic: 0,
      mixup: 0.1,
      flip_left_right: 0,
      flip_up_down: 0.5,
      scale: 0.1,
      translate: 0,
      rotate: 45,
      shear: 3,
      hsv: [0, 0.1, 0.2],
      copy_paste: 0.3,
      close_mosaic: 8,
    };
    const epochs = 9;
    expect(augmentationOf(settings({ epochs, augmentation_overrides: asked }))).toEqual({
      mosaic: 0,
      mixup: 0.1,
      flipLeftRight: 0,
      flipUpDown: 0.5,
      scale: 0.1,
      translate: 0,
      rotate: 45,
      shear: 3,
      hsv: [0, 0.1, 0.2],
      copyPaste: 0.3,
      closeMosaic: 8,
    });
    const one = settings({ epochs, augmentation_overrides: { mosaic: 0 } });
    expect(augmentationOf(one)).toEqual({ ...augmentationOf(settings({ epochs })), mosaic: 0 });
    for (const wrong of [{ mosiac: 0 }, { mosaic: 2 }, { hsv: [0, 0] }, { close_mosaic: 0.5 }]) {
      const given = TrainSettings.safeParse({ augmentation_overrides: wrong });
      expect([wrong, given.success]).toEqual([wrong, false]);
    }
  });
});

describe("the automatic batch", () => {
  const memory = (device: "cpu" | "cuda", gib: number) => ({ device, freeBytes: gib * GIB });
  /** A step of so many GiB and as much more for each image. */
  const steps = (base: number, each: number, most = Number.POSITIVE_INFINITY) => {
    const asked: number[] = [];
    const probe = async (batch: number) => {
      asked.push(batch);
      return batch > most ? null : (base + each * batch) * GIB;
    };
    return { probe, asked };
  };

  it.each([
    // A GPU of 80 GiB takes the most there is, one of 8 what two thirds of it hold.
    ["cuda", 80, 0.5, 0.3, 5_000, 64],
    ["cuda", 8, 0.5, 0.3, 5_000, 8],
    ["cuda", 8, 0.5, 0.3, 40, 4],
    ["cuda", 1, 0.5, 0.3, 5_000, 1],
    ["cuda", 80, 0.5, 0.3, 40, 4],
    ["cuda", 80, 0.5, 0.3, 200, 8],
    ["cuda", 80, 0.5, 0.3, 1_000, 32],
    ["cuda", 80, 0.5, 0.3, 6, 4],
    ["cuda", 80, 0.5, 0.3, 3, 2],
    ["cuda", 80, 0.5, 0.3, 1, 1],
    ["cpu", 64, 0.1, 0.3, 5_000, 16],
    ["cpu", 4, 0.1, 0.3, 5_000, 4],
  ] as const)("%s with %d GiB, steps of %d + %d a picture, %d pictures: %d", async (...row) => {
    const [device, gib, base, each, images, wanted] = row;
    const { probe, asked } = steps(base, each);
    expect(await automaticBatch(images, memory(device, gib), probe)).toBe(wanted);
    expect(asked.length).toBeLessThan(5);
  });

  it("takes a step that ran out of memory for one that is too large", async () => {
    expect(await automaticBatch(5_000, memory("cuda", 80), steps(0.5, 0.3, 20).probe)).toBe(16);
    expect(await automaticBatch(5_000, memory("cuda", 80), steps(0.5, 0.3, 0).probe)).toBe(1);
  });

  it("reckons with more for larger pictures and variants", () => {
    const bytes = (variant: Variant, side: number, batch: number) =>
      stepBytes(parameterCount(detectorGraph(variant, 3)), side, batch) / GIB;
    // Measured: 0.7 GB at 320 px and batch 8, 1.25 GB at 640 px and batch 4.
    expect(bytes("det26n", 320, 8)).toBeGreaterThan(0.5);
    expect(bytes("det26n", 320, 8)).toBeLessThan(0.9);
    expect(bytes("det26n", 640, 4)).toBeGreaterThan(1);
    expect(bytes("det26n", 640, 4)).toBeLessThan(1.6);
    expect(bytes("det26m", 640, 4)).toBeGreaterThan(3 * bytes("det26n", 640, 4));
  });

  it("leaves a batch that was asked for as it is, up to the pictures there are", () => {
    expect([null, 8, 40].map((asked) => explicitBatch(asked, 20))).toEqual([null, 8, 20]);
  });
});

describe("a run's end", () => {
  it("comes when nothing got better for as long as the patience lasts", () => {
    const best = { epoch: 12, score: 0.5, since: 10 };
    const trend = null;
    expect(ranOut({ best, trend, epoch: 109 }, { patience: 100 })).toBe(false);
    expect(ranOut({ best, trend, epoch: 110 }, { patience: 100 })).toBe(true);
    expect(ranOut({ best, trend, epoch: 5_000 }, { patience: 0 })).toBe(false);
    expect(ranOut({ best: null, trend, epoch: 3 }, { patience: 3 })).toBe(true);
  });

  it("does not come for one lucky epoch while those that follow still rise", () => {
    const scores = [0.1, 0.6, ...Array.from({ length: 12 }, (_, index) => 0.2 + 0.03 * index)];
    let trend: RunState["trend"] = null;
    for (const [index, score] of scores.entries()) trend = trendAfter(trend, score, index + 1);
    const best = { epoch: 2, score: 0.6, since: 2 };
    const epoch = scores.length;
    expect(ranOut({ best, trend: null, epoch }, { patience: 10 })).toBe(true);
    expect(ranOut({ best, trend, epoch }, { patience: 10 })).toBe(false);
    // It comes once they stand still.
    for (let more = 1; more <= 10; more++) trend = trendAfter(trend, 0.3, epoch + more);
    expect(ranOut({ best, trend, epoch: epoch + 10 }, { patience: 10 })).toBe(true);
  });

  it("comes in time where scores stand still after a steep rise: the trend only nears them", () => {
    let trend: RunState["trend"] = null;
    for (let epoch = 1; epoch <= 50; epoch++) {
      trend = trendAfter(trend, epoch < 20 ? epoch / 20 : 1, epoch);
    }
    const best = { epoch: 20, score: 1, since: 20 };
    expect(ranOut({ best, trend, epoch: 50 }, { patience: 10 })).toBe(true);
  });

  it("counts steps that were lost in a row, and forgives the odd one", () => {
    // Of an epoch's report only these two count.
    const epoch = (skipped: number, batches: number) => ({ skipped, batches }) as never;
    expect(lostInARow(epoch(0, 10), 5)).toBe(0);
    expect(lostInARow(epoch(2, 10), 5)).toBe(0);
    expect(lostInARow(epoch(10, 10), 5)).toBe(15);
  });
});

describe("metrics", () => {
  it("stand under the contract's keys; those of a class without an object are null", () => {
    const own = { precision: 0.5, recall: 0.25, mAP50: 0.75, mAP50_95: 0.123456, truths: 4 };
    const whole = { precision: 0.1, recall: Number.NaN, mAP50: 0.3, mAP50_95: 0.4 };
    // The curves that an evaluation also holds become no metrics.
    const evaluation = { ...whole, perClass: [own, null] } as unknown as Evaluation;
    expect(metricsOf(evaluation, ["a/b", "c"])).toEqual({
      precision: 0.1,
      recall: 0,
      mAP50: 0.3,
      "mAP50-95": 0.4,
      "per_class/a%2Fb/precision": 0.5,
      "per_class/a%2Fb/recall": 0.25,
      "per_class/a%2Fb/mAP50": 0.75,
      "per_class/a%2Fb/mAP50-95": 0.12346,
      "per_class/c/precision": null,
      "per_class/c/recall": null,
      "per_class/c/mAP50": null,
      "per_class/c/mAP50-95": null,
    });
    const masked: Evaluation = { ...evaluation, maskMAP50: 0.2, maskMAP50_95: 0.1 };
    expect(metricsOf(masked, ["a/b", "c"])).toMatchObject({
      "mask/mAP50": 0.2,
      "per_class/a%2Fb/mask/mAP50": null,
      "per_class/c/mask/mAP50-95": null,
    });
  });

  it("of weights that no validation was finished for are all null", () => {
    const all = { precision: 0.1, recall: 0.2, mAP50: 0.3, mAP50_95: 0.4 };
    // Curves are no metrics here either.
    const evaluation = { ...all, perClass: [null] } as unknown as Evaluation;
    const none = unmeasured(["c"], "detection");
    expect(Object.keys(none).sort()).toEqual(Object.keys(metricsOf(evaluation, ["c"])).sort());
    const masks = { ...evaluation, maskMAP50: 0.1, maskMAP50_95: 0.1 };
    const ofMasks = unmeasured(["c"], "segmentation");
    expect(Object.keys(ofMasks).sort()).toEqual(Object.keys(metricsOf(masks, ["c"])).sort());
    expect(new Set([none, ofMasks].flatMap(Object.values))).toEqual(new Set([null]));
  });
});

describe("the engine's failures", () => {
  const failing = (code: string) => Object.assign(new Error("it went wrong"), { code });

  it.each([
    ["gpu_out_of_memory", false, /smaller batch/],
    ["not_finite", false, /smaller learning rate/],
    ["bad_weights", false, /^it went wrong$/],
    ["gpu_unavailable", true, /GPU/],
    ["io_failed", true, /^it went wrong$/],
  ])("%s is tried again: %s", (code, retryable, said) => {
    const failure = asTrainFailure(failing(code));
    expect(failure).toMatchObject({ name: "TaskFailure", code, retryable });
    expect((failure as Error).message).toMatch(said);
  });

  it("are told from others", () => {
    const other = failing("ENOENT");
    expect(engineCode(other)).toBeNull();
    expect(asTrainFailure(other)).toBe(other);
  });
});
