// Pre-training on images without labels: a detector's backbone and neck learn to give the features
// that the built-in segmenter's encoder gives, over a plain projection for each level. The recipe
// is that of MobileSAM (Zhang et al., "Faster Segment Anything", 2023, decoupled distillation) with
// FitNets' projection (Romero et al., 2015); by direction, since only directions carry over. One
// forward pass of the student a step, and targets that are made once.

import * as fs from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Engine, FeatureBatch, TrainingOptions } from "../../native/index.d.ts";
import type { Native } from "../../native/load.ts";
import { featureGraph, LEVEL_STRIDES, type Variant } from "../../shared/detector/detector.ts";
import { headerBytes, parseHeader, SafetensorsError } from "../../shared/detector/safetensors.ts";
import { writeWhole } from "../base/whole-file.ts";
import { floatsOf, readTensors, writeTensors } from "../export/weights-file.ts";
import { SOURCES } from "../segmenters/embedded-files.ts";
import { PRETRAINED_FORMAT } from "../segmenters/weights.ts";
import { engineCode } from "./engine-failure.ts";
import {
  FEATURES,
  type FeatureScale,
  featureScale,
  listImages,
  type PreparedImages,
  prepareImages,
  readPrepared,
} from "./pretraining-images.ts";
import { drawView, numbersOf, orderOf, targetsOf, viewOf } from "./pretraining-views.ts";
import { spoken } from "./report.ts";
import { augmentationOf } from "./settings.ts";

export interface PretrainingOptions {
  folder: string;
  /** The file of weights that comes of it; what it needs meanwhile lies beside it. */
  out: string;
  variant: Variant;
  /** Pixels a side. */
  size: number;
  epochs: number;
  batch: number;
  seed: number;
  cpuThreads: number;
  device: "cpu" | "cuda";
  modelsDir: string;
  native: Native;
  /** A checkpoint is written at an epoch's end, but not more often. Default 20 s. */
  checkpointMs?: number;
  say: (line: string) => void;
}

/** It cannot begin or go on; the message says why and what would help. */
export class PretrainingRefusal extends Error {
  override readonly name = "PretrainingRefusal";
}

/** Raised when weights of another recipe come of the same images and options. */
const RECIPE = "features of the built-in segmenter's encoder, by direction; 1";
/** AdamW's, for weights that know nothing. */
const RATE = 0.002;
const CHECKPOINT_MS = 20_000;
const TELL_MS = 10_000;
/** An image is kept at so many times the size: a small cut of it is shown at its own pixels. */
const KEPT_SIDES = 2;
const NAMED_MAX = 10;

/** What the images and the options come to; a checkpoint of other ones is not gone on from. */
type Metadata = Readonly<Record<string, string>>;

/** Pre-trains, or goes on where an earlier call was killed. Fails with PretrainingRefusal. */
export async function pretrain(options: PretrainingOptions): Promise<void> {
  const { out, say, size, epochs, batch, native, variant, seed, device, cpuThreads } = options;
  await refuseOld(out);
  const workDir = `${out}.work`;
  const prepared = await imagesOf(options, workDir);
  const scale = await featureScale(prepared.files);
  const graph = featureGraph(variant, FEATURES);
  const training = trainingOf({ size, epochs, batch: Math.min(batch, prepared.files.length) });
  const metadata = metadataOf(options, prepared);
  const engine = new native.Engine({
    graph,
    device,
    precision: "fp32",
    threads: cpuThreads,
    seed,
    training,
  });
  try {
    await engine.ready;
    const checkpoint = join(workDir, "checkpoint.safetensors");
    const from = await goOn(engine, checkpoint, { metadata, say });
    if (from > 0) say(`Going on after epoch ${from} of ${epochs}.`);
    const course = { engine, training, prepared, scale, checkpoint, metadata };
    await trainFrom(from, course, options);
    await writeWeights(engine, options, metadata);
    await fs.rm(workDir, { recursive: true, force: true });
  } finally {
    await engine.close();
  }
}

async function refuseOld(out: string): Promise<void> {
  const found = await fs.stat(out).catch(() => null);
  if (found)
    throw new PretrainingRefusal(`${out} is there already: remove it, or choose another --out`);
  const folder = await fs.stat(dirname(out)).catch(() => null);
  if (!folder?.isDirectory())
    throw new PretrainingRefusal(`there is no folder ${dirname(out)} for the weights`);
}

/** All images with their features. Fails with PretrainingRefusal where there are none. */
async function imagesOf(options: PretrainingOptions, workDir: string): Promise<PreparedImages> {
  const { folder, size, modelsDir, cpuThreads, say } = options;
  const paths = await listImages(folder).catch((cause: unknown) => {
    throw new PretrainingRefusal(`${folder} is no folder that can be read`, { cause });
  });
  if (paths.length === 0)
    throw new PretrainingRefusal(`${folder} holds no pictures (JPEG, PNG, WebP, TIFF, AVIF, GIF)`);
  say(`${paths.length} pictures; the built-in segmenter looks at each once.`);
  let told = performance.now();
  const settings = { workDir, modelsDir, cpuThreads, longestSide: KEPT_SIDES * size };
  const prepared = await prepareImages(paths, settings, (done, of) => {
    if (performance.now() - told < TELL_MS && done < of) return;
    told = performance.now();
    say(`Features of ${done} of ${of} pictures.`);
  });
  const { unreadable, files } = prepared;
  for (const { path, reason } of unreadable.slice(0, NAMED_MAX))
    say(`${path} is left out: ${reason}`);
  if (unreadable.length > NAMED_MAX)
    say(`${unreadable.length - NAMED_MAX} more pictures are left out.`);
  if (files.length === 0)
    throw new PretrainingRefusal(`none of the ${paths.length} pictures of ${folder} can be read`);
  return prepared;
}

function trainingOf({ size, epochs, batch }: { size: number; epochs: number; batch: number }) {
  const training: TrainingOptions = {
    optimizer: "adamw",
    epochs,
    batch,
    imageSize: size,
    lr0: RATE,
    lrf: 0.01,
    cosine: true,
    momentum: 0.9,
    weightDecay: 5e-4,
    warmupEpochs: Math.min(3, epochs / 10),
    warmupMomentum: 0.8,
    warmupBiasLr: 0,
    nominalBatch: batch,
    clipNorm: 10,
    emaDecay: 0.999,
    emaUpdates: 100,
    gains: { box: 7.5, cls: 0.5, dfl: 1.5 },
    // Views are drawn here: the engine is handed pixels.
    augmentation: augmentationOf({ augmentation: "minimal", augmentation_overrides: {}, epochs }),
  };
  return training;
}

const metadataOf = (
  { variant, size, epochs, batch, seed }: PretrainingOptions,
  { files, sha256 }: PreparedImages,
): Metadata => ({
  format: PRETRAINED_FORMAT,
  recipe: RECIPE,
  teacher_sha256: SOURCES.encoder.sha256,
  variant,
  image_size: String(size),
  epochs: String(epochs),
  batch: String(batch),
  seed: String(seed),
  images: String(files.length),
  images_sha256: sha256,
});

/** Epochs that are done, by a checkpoint of the same training; the engine then stands there. */
async function goOn(
  engine: Engine,
  checkpoint: string,
  { metadata, say }: { metadata: Metadata; say: (line: string) => void },
): Promise<number> {
  try {
    const { done, ...made } = (await metadataIn(checkpoint)) ?? {};
    const isSame = Object.entries(metadata).every(([name, value]) => made[name] === value);
    if (!done || !isSame) return 0;
    await engine.restore(checkpoint);
    return Number(done);
  } catch (thrown) {
    if (!(thrown instanceof SafetensorsError) && engineCode(thrown) !== "bad_weights") throw thrown;
    say(`The checkpoint is not used: ${(thrown as Error).message}. Beginning anew.`);
    return 0;
  }
}

async function metadataIn(path: string): Promise<Metadata | null> {
  const bytes = await fs.readFile(path).catch(() => null);
  const length = bytes && headerBytes(bytes);
  return length ? parseHeader(bytes.subarray(8, 8 + length)).metadata : null;
}

interface Course {
  engine: Engine;
  training: TrainingOptions;
  prepared: PreparedImages;
  scale: FeatureScale;
  checkpoint: string;
  metadata: Metadata;
}

async function trainFrom(from: number, course: Course, options: PretrainingOptions): Promise<void> {
  const { engine, training, prepared, checkpoint, metadata } = course;
  const { epochs, say, seed, checkpointMs = CHECKPOINT_MS } = options;
  const count = prepared.files.length;
  const iterations = Math.ceil(count / training.batch);
  const began = performance.now();
  let kept = began;
  let told = began;
  const eta = (share: number) => {
    const ms = performance.now() - began;
    return share > 0 ? spoken(((ms / share) * (1 - share)) / 1_000) : "an unknown time";
  };
  for (let epoch = from; epoch < epochs; epoch++) {
    const order = orderOf(count, seed, epoch);
    const ratesOf = (iteration: number) => ({ epoch, iteration, iterations });
    const draw = (iteration: number) =>
      drawBatch(course, options, { order, ...ratesOf(iteration) });
    let next = draw(0);
    let sum = 0;
    for (let iteration = 0; iteration < iterations; iteration++) {
      const step = engine.distill(await next, ratesOf(iteration));
      // The next views are drawn while the engine makes the step.
      if (iteration + 1 < iterations) next = draw(iteration + 1);
      const { loss } = await step;
      if (!Number.isFinite(loss)) throw new PretrainingRefusal("the loss is not finite any more");
      sum += loss;
      if (performance.now() - told < TELL_MS) continue;
      told = performance.now();
      const done = epoch - from + (iteration + 1) / iterations;
      say(`  step ${iteration + 1} of ${iterations}, ${eta(done / (epochs - from))} left`);
    }
    const left = eta((epoch + 1 - from) / (epochs - from));
    say(`Epoch ${epoch + 1}/${epochs}  loss ${(sum / iterations).toFixed(4)}  ${left} left`);
    if (performance.now() - kept < checkpointMs && epoch + 1 < epochs) continue;
    kept = performance.now();
    await engine.checkpoint(checkpoint, { ...metadata, done: String(epoch + 1) });
  }
}

interface BatchKey {
  order: readonly number[];
  epoch: number;
  iteration: number;
}

async function drawBatch(
  { prepared, scale, training }: Course,
  { size, seed }: PretrainingOptions,
  { order, epoch, iteration }: BatchKey,
): Promise<FeatureBatch> {
  const from = iteration * training.batch;
  const shown = order.slice(from, from + training.batch);
  const images = new Float32Array(shown.length * 3 * size * size);
  const cells = LEVEL_STRIDES.map((stride) => FEATURES * (size / stride) ** 2);
  const targets = cells.map((length) => new Float32Array(shown.length * length));
  for (const [at, index] of shown.entries()) {
    const source = await readPrepared(prepared.files[index] as string);
    const view = viewOf(source.image, size, numbersOf(seed, epoch, from + at));
    const pixels = 3 * size * size;
    drawView(source.image, view, images.subarray(at * pixels, (at + 1) * pixels));
    for (const [level, length] of cells.entries()) {
      const into = (targets[level] as Float32Array).subarray(at * length, (at + 1) * length);
      targetsOf(source, view, { scale, level, into });
    }
  }
  return { images, count: shown.length, height: size, width: size, targets };
}

/** The average's weights of the backbone and the neck; no projection goes along. */
async function writeWeights(
  engine: Engine,
  { out }: PretrainingOptions,
  metadata: Metadata,
): Promise<void> {
  const all = `${out}.work/all.safetensors`;
  await engine.save(all, {});
  const { tensors } = readTensors(await fs.readFile(all));
  const kept = [...tensors].flatMap(([name, stored]) =>
    name.startsWith("layers.")
      ? [[name, { shape: stored.shape, values: floatsOf(stored, name) }] as const]
      : [],
  );
  await writeWhole(out, writeTensors(new Map(kept), metadata));
}
