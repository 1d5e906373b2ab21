// The process of one training of `npm run bench -- training-choices`: trains as its cell says, by
// the node's own code, and has pycocotools judge the model on images that nothing was chosen on.
// Killed anywhere it goes on from the run's checkpoint; asked to end, it writes one first.

import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { z } from "zod";
import { readTensors } from "../../gpu-node/export/weights-file.ts";
import { TaskPause } from "../../gpu-node/objects/task-context.ts";
import { prepareDataset, readManifest } from "../../gpu-node/training/dataset.ts";
import { ranOut, trendAfter } from "../../gpu-node/training/loop.ts";
import { lookAt, suppressedDetections } from "../../gpu-node/training/suppression-choice.ts";
import { train } from "../../gpu-node/training/train-attempt.ts";
import type { EngineOptions } from "../../native/index.d.ts";
import { loadEngine, type Native } from "../../native/load.ts";
import { byHead } from "../../shared/detector/deployed-detector.ts";
import { detectorGraph } from "../../shared/detector/detector.ts";
import { placementOf } from "../../shared/detector/letterbox.ts";
import { suppressionOf } from "../../shared/detector/suppression.ts";
import type { MetricMap } from "../../shared/wire/training.ts";
import { startNodeService } from "../support/node-service.ts";
import { taskContext } from "../support/task-context.ts";
import { cocoOf, imageSet, innerSplit, type LabeledImage, offered } from "./image-sets.ts";
import {
  type CellResult,
  codeVersion,
  FIRST_WEIGHTS,
  Figures,
  PATIENCES,
  writeWhole,
} from "./training-cells.ts";
import { type CellOrder, cocoFigures, PUT_ASIDE } from "./training-process.ts";

const VAL_BATCH = 16;
/** Numbers of a detection. */
const ROW = 6;

const order = JSON.parse(process.argv[2] ?? "") as CellOrder;
const { cell, folder } = order;
const { epochs } = cell.training;
const inFolder = (name: string) => join(folder, name);
const say = (line: string) => process.stdout.write(`${line}\n`);

/** What outlives a process of the cell. */
const Progress = z.object({
  scores: z.array(z.number()),
  /** By patience: where the run would have ended, and the best epoch as of then. */
  stops: z.record(z.string(), z.object({ stopped: z.number(), epoch: z.number() })),
  /** Processor time of so many epochs. */
  cpu: z.object({ training: z.number(), whole: z.number(), epochs: z.number() }),
});
type Progress = z.infer<typeof Progress>;

/** What a training left that ended: then only its figures are missing. */
const TrainingOutcome = z.object({
  epoch: z.number(),
  inner: Figures,
  precision: z.string(),
});
type TrainingOutcome = z.infer<typeof TrainingOutcome>;

function read<Shape extends z.ZodType>(name: string, shape: Shape): z.infer<Shape> | null {
  const path = inFolder(name);
  return existsSync(path) ? shape.parse(JSON.parse(readFileSync(path, "utf8"))) : null;
}

const WEIGHTS = "weights.safetensors";
const OUTCOME = "trained.json";
const PROGRESS = "progress.json";
const stopWeights = (patience: number | string) => `patience-${patience}.safetensors`;

/** The engine, trained by the cell's own options; it notes each epoch's score. */
function measuredEngine(native: Native, progress: Progress, held: number): Native {
  const { Engine: Plain, ...rest } = native;
  let [epoch, from] = [0, 0];
  const cpu = { before: process.cpuUsage(), training: 0 };
  const cpuSeconds = () => {
    const { user, system } = process.cpuUsage(cpu.before);
    return (user + system) / 1e6;
  };
  class CellEngine extends Plain {
    constructor(options: EngineOptions) {
      super(options.training ? { ...options, training: cell.training } : options);
    }
    override async trainEpoch(...args: Parameters<InstanceType<typeof Plain>["trainEpoch"]>) {
      [{ epoch, from }] = args;
      cpu.before = process.cpuUsage();
      const result = await super.trainEpoch(...args);
      cpu.training = cpuSeconds();
      return result;
    }
    override async evaluate(...args: Parameters<InstanceType<typeof Plain>["evaluate"]>) {
      const evaluation = await super.evaluate(...args);
      // It was interrupted: the epoch is measured again.
      if (evaluation.images < held) return evaluation;
      if (from === 0) {
        progress.cpu.training += cpu.training;
        progress.cpu.whole += cpuSeconds();
        progress.cpu.epochs += 1;
      }
      // As the loop rounds them, whose best epoch is looked up by it.
      const score = Number(evaluation.mAP50_95.toFixed(5));
      progress.scores = [...progress.scores.slice(0, epoch), score];
      noteStops(progress);
      writeWhole(inFolder(PROGRESS), JSON.stringify(progress));
      const told = [evaluation.mAP50, evaluation.mAP50_95].map((one) => one.toFixed(4));
      say(`  epoch ${epoch + 1}/${epochs}: held AP50 ${told[0]}, AP ${told[1]}`);
      return evaluation;
    }
  }
  return { ...rest, Engine: CellEngine };
}

/** Keeps the best weights as of where a patience would have ended the run. */
function noteStops(progress: Progress) {
  const { scores, stops } = progress;
  let best = { score: -1, epoch: 0, since: 0 };
  let trend: ReturnType<typeof trendAfter> | null = null;
  for (const [index, score] of scores.entries()) {
    const epoch = index + 1;
    if (score > best.score) best = { score, epoch, since: epoch };
    // As the loop does: while nothing is found yet, the newest weights are the best.
    else if (score === 0 && best.score === 0) best.epoch = epoch;
    trend = trendAfter(trend, score, epoch);
    const state = { best: { ...best }, trend, epoch };
    if (epoch < scores.length) continue;
    for (const patience of PATIENCES) {
      if (stops[patience] || epoch >= epochs || !ranOut(state, { patience })) continue;
      const path = inFolder(`training/runs/${order.key}/weights/best-${best.epoch}.safetensors`);
      // The file of this epoch is not written yet: it is the best only while nothing is found.
      if (!existsSync(path)) continue;
      copyFileSync(path, inFolder(stopWeights(patience)));
      stops[patience] = { stopped: epoch, epoch: best.epoch };
    }
  }
}

async function trained(native: Native, progress: Progress): Promise<TrainingOutcome> {
  const kept = read(OUTCOME, TrainingOutcome);
  if (kept && existsSync(inFolder(WEIGHTS))) return kept;
  const pause = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => pause.abort());
  const service = await startNodeService();
  try {
    const set = await imageSet(cell.set);
    const split = innerSplit(set, cell);
    const payload = {
      run_id: order.key,
      name: order.name,
      settings: cell.settings,
      ...offered(service, set, split),
      pretrained: cell.first === null ? null : firstWeights(service, cell.first),
      resume: null,
    };
    const context = await taskContext(service, folder, { pause: pause.signal });
    const measured = measuredEngine(native, progress, split.val.length);
    const result = await train(payload, context, { native: measured });
    const { model, resolved } = result;
    const weights = model && service.objects.get(model.weights.key);
    if (!weights || !resolved) throw new Error("the training gave no model");
    const { mAP50, "mAP50-95": mAP }: MetricMap = model.metrics;
    const { precision } = resolved;
    const made = { epoch: model.epoch, inner: { ap50: mAP50 ?? 0, ap: mAP ?? 0 }, precision };
    writeWhole(inFolder(WEIGHTS), weights);
    writeWhole(inFolder(OUTCOME), JSON.stringify(made));
    return made;
  } finally {
    await service.close();
  }
}

/** The weights that a training begins with; fails where they are no more what they were. */
function firstWeights(store: Parameters<typeof offered>[0], digest: string) {
  const bytes = readFileSync(FIRST_WEIGHTS);
  const weights = store.source("ws/a/first.safetensors", bytes);
  if (createHash("sha256").update(bytes).digest("hex") !== digest)
    throw new Error(`${FIRST_WEIGHTS} has changed`);
  return { weights, format: "safetensors" as const };
}

/** pycocotools' figures of a model on val.txt, and the suppression that it is served with. */
async function judged(native: Native, file: string) {
  const service = await startNodeService();
  try {
    const set = await imageSet(cell.set);
    // A data set has to have something to train on; it is not used.
    const { manifest: source, videos } = offered(service, set, {
      train: set.train.slice(0, 1),
      val: set.val,
    });
    const context = await taskContext(service, folder);
    const { image_size: imageSize, variant } = cell.settings;
    const { splits } = await prepareDataset(
      { ...(await readManifest(source, context)), videos, imageSize, onProgress: () => {} },
      context,
    );
    const suppression = suppressionOf(readTensors(readFileSync(inFolder(file))).metadata);
    const trained = detectorGraph(variant, set.classes.length);
    const graph = byHead(trained, suppression?.head ?? "one_to_one");
    const engine = new native.Engine({ graph, device: "cpu", threads: 1, seed: 0 });
    try {
      await engine.load(inFolder(file));
      const stop = new AbortController().signal;
      const asked = { val: splits.val, imageSize, batch: VAL_BATCH, stop, onBatch: () => {} };
      const looked = (await lookAt(engine, asked)) ?? [];
      const detections = looked.flatMap(({ detections: all }, index) => {
        const stay = suppression ? suppressedDetections(all, suppression.nmsIou) : all;
        const image = set.val[index];
        return image ? asCoco(stay, { index, image, imageSize }) : [];
      });
      const [truth, found] = [inFolder("truth.json"), inFolder("found.json")];
      writeWhole(truth, JSON.stringify(cocoOf(set, set.val)));
      writeWhole(found, JSON.stringify(detections));
      return { val: await cocoFigures(order.python, truth, found), suppression };
    } finally {
      await engine.close();
    }
  } finally {
    await service.close();
  }
}

/** Detections in pixels of the square that was read, as rows of COCO in those of the image. */
function asCoco(
  detections: Float32Array,
  { index, image, imageSize }: { index: number; image: LabeledImage; imageSize: number },
) {
  const { left, top, scaleX, scaleY } = placementOf(image, {
    width: imageSize,
    height: imageSize,
  });
  return Array.from({ length: detections.length / ROW }, (_, row) => {
    const numbers = detections.subarray(row * ROW, (row + 1) * ROW);
    const [x1 = 0, y1 = 0, x2 = 0, y2 = 0, score = 0, classIndex = 0] = numbers;
    return {
      image_id: index + 1,
      category_id: classIndex + 1,
      bbox: [(x1 - left) / scaleX, (y1 - top) / scaleY, (x2 - x1) / scaleX, (y2 - y1) / scaleY],
      score,
    };
  });
}

async function main() {
  const loaded = loadEngine();
  if ("missing" in loaded) throw new Error(loaded.missing);
  const { native } = loaded;
  mkdirSync(folder, { recursive: true });
  const progress = read(PROGRESS, Progress) ?? {
    scores: [],
    stops: {},
    cpu: { training: 0, whole: 0, epochs: 0 },
  };
  const { epoch, inner, precision } = await trained(native, progress);
  const { scores, stops, cpu } = progress;
  const patience: CellResult["patience"] = {};
  for (const [name, stop] of Object.entries(stops)) {
    const { val: figures } = await judged(native, stopWeights(name));
    patience[name] = { ...stop, val: figures };
  }
  const { val, suppression } = await judged(native, WEIGHTS);
  const { torch } = native.describe();
  const result: CellResult = {
    name: order.name,
    torch,
    version: codeVersion(torch),
    precision,
    epoch,
    inner,
    val,
    suppression,
    patience,
    scores,
    cpuSeconds: cpu.epochs
      ? { training: cpu.training / cpu.epochs, epoch: cpu.whole / cpu.epochs }
      : null,
  };
  writeWhole(order.result, JSON.stringify(result, null, 2));
  rmSync(folder, { recursive: true, force: true });
}

// Who started it is gone, and the training may be begun by another one.
process.once("disconnect", () => process.exit(1));
try {
  await main();
  process.exit(0);
} catch (thrown) {
  if (thrown instanceof TaskPause) process.exit(PUT_ASIDE);
  process.stderr.write(`${basename(folder)}: ${(thrown as Error).stack}\n`);
  process.exit(1);
}
