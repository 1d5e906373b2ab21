// Where a run begins: from the furthest checkpoint that loads, of this node or of the store, else
// from the first weights. Chooses what the settings leave open, and makes the engine.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { Description, Engine, Precision, TrainingOptions } from "../../native/index.d.ts";
import type { Native } from "../../native/load.ts";
import { type DetectorGraph, parameterCount } from "../../shared/detector/detector.ts";
import type { TaskPayload } from "../../shared/tasks/tasks.ts";
import type { ResolvedSettings } from "../../shared/wire/training.ts";
import { TaskFailure } from "../base/failure.ts";
import type { MediaContext } from "../media/footage.ts";
import { BundleBroken, WeightsMissing } from "../segmenters/failures.ts";
import { checkedWeights, findWeights } from "../segmenters/weights.ts";
import { unpack } from "./checkpoint-archive.ts";
import {
  type CheckpointFile,
  FETCHED,
  findCheckpoints,
  isFurther,
  openCheckpoint,
  type RunState,
} from "./checkpoints.ts";
import type { TrainingData } from "./dataset.ts";
import { engineCode } from "./engine-failure.ts";
import {
  choosePrecision,
  measureSteps,
  type PrecisionChoice,
  precisionOnResume,
} from "./precision.ts";
import { type FirstWeights, loadPretrained, readPretrained } from "./pretrained-weights.ts";
import { gibibytes, type Report } from "./report.ts";
import type { RunFolder } from "./run-folder.ts";
import {
  automaticBatch,
  BATCH_MAX,
  explicitBatch,
  imageSizeMax,
  stepBytes,
  trainingOptions,
} from "./settings.ts";

export interface StartParts {
  native: Native;
  payload: TaskPayload<"train">;
  context: MediaContext;
  folder: RunFolder;
  report: Report;
  graph: DetectorGraph;
  data: TrainingData;
  hardware: Hardware;
}

export interface Hardware {
  device: "cpu" | "cuda";
  /** The device has instructions for bf16. */
  bf16: boolean;
  /** As people see it. */
  title: string;
  /** For a step. */
  freeBytes: number;
  threads: number;
}

/** What a run is trained on, here: the GPU where the engine can use it. */
export async function hardwareOf(
  native: Native,
  machine: MediaContext["machine"],
): Promise<Hardware> {
  const description: Description = native.describe();
  const [gpu] = description.gpus;
  const threads = machine.cpuThreads;
  if (machine.device === "cuda" && gpu) {
    const freeBytes = (await freeGpuBytes(gpu)) ?? gpu.memoryBytes;
    return { device: "cuda", bf16: description.bf16, title: gpu.name, freeBytes, threads };
  }
  const title = `CPU, ${threads} ${threads === 1 ? "thread" : "threads"}`;
  const freeBytes = process.availableMemory();
  return { device: "cpu", bf16: description.cpuBf16, title, freeBytes, threads };
}

/**
 * What a GPU has left, as its driver says, or null. The driver counts all GPUs of the machine, in
 * another order than torch, which may see a part of them: so it is asked by the place on the bus.
 */
export async function freeGpuBytes({
  pciBusId = "0",
}: Description["gpus"][number]): Promise<number | null> {
  const query = ["--query-gpu=memory.free", "--format=csv,noheader,nounits", `--id=${pciBusId}`];
  try {
    const { stdout } = await promisify(execFile)("nvidia-smi", query, { timeout: 10_000 });
    return Number(stdout.trim()) * 1024 ** 2 || null;
  } catch {
    return null;
  }
}

export interface RunStart {
  engine: Engine;
  state: RunState;
  options: TrainingOptions;
  parameters: number;
}

/** Begins, or goes on where an earlier attempt was. An automatic batch is at most `batchMax`. */
export async function begin(parts: StartParts, batchMax: number | null): Promise<RunStart> {
  const { report, payload } = parts;
  const refused: string[] = [];
  let told = 0;
  const tell = () => {
    for (; told < refused.length; told++) report.say(`A checkpoint is not used: ${refused[told]}.`);
  };
  for await (const found of checkpointsOf(parts, refused)) {
    tell();
    const start = await resumed(parts, found, batchMax).catch((thrown: unknown) => {
      const code = engineCode(thrown);
      if (code !== "bad_weights" && code !== "io_failed") throw thrown;
      refused.push((thrown as Error).message);
      return null;
    });
    if (start) return start;
  }
  tell();
  const reasons = refused.join("; ");
  if (payload.resume) {
    const detail = `the run cannot go on from where it was: ${reasons || "its checkpoint is lost"}`;
    throw new TaskFailure("bad_checkpoint", detail);
  }
  if (reasons) report.say("No checkpoint can be used: beginning anew.");
  return fresh(parts, batchMax);
}

/** Checkpoints to try, the furthest first; the store's is fetched only when its turn comes. */
async function* checkpointsOf(
  parts: StartParts,
  refused: string[],
): AsyncGenerator<CheckpointFile> {
  const { folder, payload } = parts;
  const fits = fitsOf(parts);
  const local = await findCheckpoints(folder, fits, (why) => refused.push(why));
  const { resume } = payload;
  const isLocalFurther = local[0] && (!resume || !isFurther(resume.at, local[0].state));
  if (isLocalFurther) yield* local;
  if (resume) {
    const found = await fetchCheckpoint(parts, fits).catch((thrown: unknown) => {
      if (thrown instanceof TaskFailure && thrown.retryable) throw thrown;
      refused.push((thrown as Error).message);
      return null;
    });
    if (found) yield found;
  }
  if (!isLocalFurther) yield* local;
}

/** Why a checkpoint is not this run's, or null. */
const fitsOf =
  ({ payload, data, graph }: StartParts) =>
  (state: RunState): string | null => {
    if (state.run_id !== payload.run_id) return "it is of another run";
    if (state.variant !== graph.variant) return `it is of ${state.variant}`;
    if (state.dataset_sha256 !== data.sha256) return "it is of another dataset";
    return null;
  };

async function fetchCheckpoint(
  { folder, payload, context }: StartParts,
  fits: (state: RunState) => string | null,
): Promise<CheckpointFile | null> {
  if (!payload.resume) return null;
  const held = await context.cache.open(payload.resume.checkpoint, context.cancel);
  try {
    const named = (name: string) =>
      folder.file(name === "last.safetensors" ? FETCHED : `weights/${name}`);
    await unpack(held.path, named);
  } finally {
    await held.release();
  }
  return openCheckpoint(folder, FETCHED, fits);
}

async function resumed(
  parts: StartParts,
  { path, state }: CheckpointFile,
  batchMax: number | null,
): Promise<RunStart> {
  const { payload, report, data, hardware } = parts;
  const before = state.resolved;
  const chosen = { ...before, ...precisionOnResume(before, hardware) };
  const batch = Math.min(before.batch_size, batchMax ?? before.batch_size);
  const images = data.splits.train.images.length;
  const shape = { classes: data.classes.length, trainImages: images, batch };
  const { optimizer, learning_rate } = before;
  const options = trainingOptions({ ...payload.settings, optimizer, learning_rate }, shape);
  const engine = await openEngine(parts, options, chosen);
  try {
    await engine.restore(path);
    const { parameters } = await engine.ready;
    report.continueAfter(state.line);
    const batches = Math.ceil(images / batch);
    // Another batch size counts the epoch's images in other steps.
    const done = Math.min(batches, Math.floor((state.batch * before.batch_size) / batch));
    const resolved = { ...chosen, device: hardware.title, batch_size: batch };
    const after = done > 0 ? `, after ${done} of ${batches} steps.` : ".";
    report.say(`Resumed at epoch ${state.epoch + 1}${after}`);
    return { engine, options, parameters, state: { ...state, batch: done, resolved } };
  } catch (thrown) {
    await engine.close();
    throw thrown;
  }
}

async function fresh(parts: StartParts, batchMax: number | null): Promise<RunStart> {
  const { payload, report, data, graph, hardware } = parts;
  const { settings } = payload;
  const images = data.splits.train.images.length;
  const limited = (batch: number) => Math.min(batch, batchMax ?? batch);
  // On a CPU the batch is known first: no step that is measured takes more memory than the run's.
  const known =
    explicitBatch(settings.batch_size, images) ??
    (hardware.device === "cpu" ? await reckonBatch(parts, images) : null);
  const choice = await choosePrecision(settings.precision, hardware, () =>
    stepsOf(parts, limited(known ?? BATCH_MAX)),
  );
  const batch = limited(known ?? (await probeBatch(parts, images, choice)));
  const first = await firstWeights(parts);
  const isHeadFresh = first !== null && !first.hasHead;
  const shape = { classes: data.classes.length, trainImages: images, batch, isHeadFresh };
  const options = trainingOptions(settings, shape);
  const engine = await openEngine(parts, options, choice);
  try {
    const { parameters } = await engine.ready;
    const pretrained = first && (await loadFirst(parts, engine, first));
    if (isHeadFresh && settings.learning_rate === null)
      report.say("The head starts fresh: the automatic learning rate is the one from scratch.");
    const resolved: ResolvedSettings = {
      device: hardware.title,
      ...choice,
      batch_size: batch,
      optimizer: options.optimizer,
      learning_rate: options.lr0,
      train_images: images,
      val_images: data.splits.val.images.length,
      pretrained,
    };
    report.say(
      `${graph.variant}: ${(parameters / 1e6).toFixed(2)} million parameters, ` +
        `${data.classes.length} ${data.classes.length === 1 ? "class" : "classes"}.`,
    );
    const state: RunState = {
      run_id: payload.run_id,
      dataset_sha256: data.sha256,
      classes: data.classes,
      variant: graph.variant,
      epoch: 0,
      batch: 0,
      resolved,
      history: [],
      best: null,
      trend: null,
      learning_rate: options.lr0,
      line: report.line,
    };
    return { engine, options, parameters, state };
  } catch (thrown) {
    await engine.close();
    throw thrown;
  }
}

/** Weights of this node, where a run that begins asks for some. Fails with WeightsMissing. */
export async function installedWeights(
  { pretrained, settings, resume }: StartParts["payload"],
  { modelsDir }: MediaContext["machine"],
) {
  if (!pretrained || !("dataset" in pretrained) || resume) return null;
  const { dataset } = pretrained;
  if (!modelsDir) throw new WeightsMissing(dataset, settings.variant);
  return findWeights(modelsDir, dataset, settings.variant);
}

/** What a run begins with, read before its engine is made: settings depend on it. */
async function firstWeights(parts: StartParts): Promise<FirstWeights | null> {
  const { payload, context, graph, report } = parts;
  const { pretrained } = payload;
  if (!pretrained) {
    report.say("First weights: none, training from scratch.");
    return null;
  }
  const installed = await installedWeights(payload, context.machine);
  if (installed) {
    const path = await checkedWeights(installed).catch((cause: unknown) => {
      if (!(cause instanceof BundleBroken)) throw cause;
      const { name } = installed.manifest;
      const detail = `the weights ${name} are damaged on this node: npm run models -- install`;
      // Another node's may be whole.
      throw new TaskFailure("bad_weights", detail, { retryable: true, cause });
    });
    const weights = await readPretrained(graph, { path, format: "safetensors" });
    const { title, licence, source } = installed.manifest;
    report.say(`First weights: ${title}, from ${source}; licence: ${licence}.`);
    return weights;
  }
  if ("dataset" in pretrained) throw new WeightsMissing(pretrained.dataset, graph.variant);
  const held = await context.cache.open(pretrained.weights, context.cancel);
  try {
    return await readPretrained(graph, { path: held.path, format: pretrained.format });
  } finally {
    await held.release();
  }
}

async function loadFirst({ context, report }: StartParts, engine: Engine, first: FirstWeights) {
  const loaded = await loadPretrained(engine, first, context.cache.temporary());
  for (const line of loaded.lines) report.say(line);
  return loaded.report;
}

/** What a step takes here in each precision, measured on an engine that is then closed. */
async function stepsOf(parts: StartParts, batch: number) {
  const { payload, data, context } = parts;
  const { image_size: imageSize } = payload.settings;
  const trainImages = data.splits.train.images.length;
  const training = trainingOptions(payload.settings, {
    classes: data.classes.length,
    trainImages,
    batch,
  });
  const engine = await openEngine(parts, training, { precision: "fp32", withData: false });
  try {
    const probe: Engine["probe"] = async (options) => {
      context.cancel.throwIfAborted();
      return engine.probe(options);
    };
    return await measureSteps(probe, { batch, imageSize });
  } finally {
    await engine.close();
  }
}

/** The automatic batch on a CPU. */
async function reckonBatch(
  { hardware, payload, graph, report }: StartParts,
  images: number,
): Promise<number> {
  const imageSize = imageSizeMax(payload.settings);
  const parameters = parameterCount(graph);
  const { device, freeBytes } = hardware;
  const reckon = async (batch: number) => stepBytes(parameters, imageSize, batch);
  const batch = await automaticBatch(images, { device, freeBytes }, reckon);
  report.say(`Batch size ${batch} (automatic: ${gibibytes(freeBytes)} of memory are free).`);
  return batch;
}

/** The automatic batch on a GPU. */
async function probeBatch(
  parts: StartParts,
  images: number,
  { precision }: PrecisionChoice,
): Promise<number> {
  const { hardware, payload, data, report } = parts;
  const imageSize = imageSizeMax(payload.settings);
  const memory = { device: hardware.device, freeBytes: hardware.freeBytes };
  const shape = { classes: data.classes.length, trainImages: images, batch: 1 };
  const training = trainingOptions(payload.settings, shape);
  const engine = await openEngine(parts, training, { precision, withData: false });
  try {
    const probe = async (batch: number): Promise<number | null> => {
      try {
        return (await engine.probe({ batch, imageSize })).bytes;
      } catch (thrown) {
        if (engineCode(thrown) === "gpu_out_of_memory") return null;
        throw thrown;
      }
    };
    const batch = await automaticBatch(images, memory, probe);
    report.say(
      `Batch size ${batch} (automatic: ${gibibytes(memory.freeBytes)} of ${hardware.title}).`,
    );
    return batch;
  } finally {
    await engine.close();
  }
}

/** An engine with the run's images. */
async function openEngine(
  { native, payload, graph, data, hardware }: StartParts,
  training: TrainingOptions,
  { precision, withData = true }: { precision: Precision; withData?: boolean },
): Promise<Engine> {
  const { device, threads } = hardware;
  const { seed } = payload.settings;
  const engine = new native.Engine({ graph, device, precision, threads, seed, training });
  try {
    await engine.ready;
    if (withData) {
      for (const split of ["train", "val"] as const) {
        const { path, images } = data.splits[split];
        await engine.setDataset(split, { path, images });
      }
    }
    return engine;
  } catch (thrown) {
    await engine.close();
    throw thrown;
  }
}
