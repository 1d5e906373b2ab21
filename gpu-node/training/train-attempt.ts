// One attempt at a training run, from its payload to its result. What is done is never lost: a stop
// and a pause end within a step and hand in a checkpoint; a crash costs an epoch here, or as long
// as checkpoints wait for their share of the time, and some minutes on another node.

import { loadEngine, type Native } from "../../native/load.ts";
import { detectorGraph } from "../../shared/detector/detector.ts";
import type { TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import type { RunArtifact, TrainedModel } from "../../shared/tasks/train-task.ts";
import { BEST_WEIGHTS, LATEST_WEIGHTS, type MetricMap } from "../../shared/wire/training.ts";
import { TaskFailure } from "../base/failure.ts";
import type { MediaContext } from "../media/footage.ts";
import { TaskPause } from "../objects/task-context.ts";
import { type RunFiles, uploadArtifacts, writeClosing, writeOpening } from "./artifacts.ts";
import { hashOf } from "./checkpoint-archive.ts";
import {
  bestFiles,
  LATEST_FILES,
  type RunState,
  readScores,
  removeScores,
  saveScores,
  suppressedFiles,
  type WeightsFiles,
} from "./checkpoints.ts";
import { prepareDataset, readManifest } from "./dataset.ts";
import { asTrainFailure, isOutOfMemory } from "./engine-failure.ts";
import { EvaluationBatch } from "./evaluation-batch.ts";
import {
  LAST_VALIDATION_MS,
  lastValidation,
  metricsOf,
  trainEpochs,
  unmeasured,
  weightsMetadata,
} from "./loop.ts";
import { Report, spoken } from "./report.ts";
import { openRunFolder } from "./run-folder.ts";
import { augmentationOf } from "./settings.ts";
import { begin, hardwareOf, installedWeights, type RunStart, type StartParts } from "./start.ts";
import { writeSuppression } from "./suppression-choice.ts";
import { LostProcesses, type Team } from "./team.ts";
import { formTeam, processesOf, shareOf } from "./team-start.ts";
import { testMetrics } from "./test-metrics.ts";
import { CheckpointUploads, uploadArtifact } from "./uploads.ts";

export interface SessionOptions {
  /** Between two uploads of a checkpoint. */
  uploadEveryMs?: number;
  /** The engine, where it is not this machine's own: tests give it faults. */
  native?: Native;
}

const UPLOAD_EVERY_MS = 5 * 60_000;

type Payload = TaskPayload<"train">;
type Result = TaskResult<"train">;

/**
 * Trains as the payload says. A stop gives what result there is; a pause fails with `TaskPause`.
 */
export async function train(
  payload: Payload,
  context: MediaContext,
  options: SessionOptions = {},
): Promise<Result> {
  const started = performance.now();
  const native = options.native ?? engineHere();
  const folder = await openRunFolder(context.machine.trainingDir, payload.run_id);
  const report = new Report(context.progress, folder.file("train.log"));
  const stop = AbortSignal.any([context.cancel, context.pause]);
  const waiting = { ...context, cancel: stop };
  try {
    // A node that lacks them leaves the run to others at once.
    await installedWeights(payload, context.machine);
    const data = await readDataset(payload, waiting, report);
    const { variant, task } = payload.settings;
    const graph = detectorGraph(variant, data.classes.length, task);
    const hardware = await hardwareOf(native, context.machine);
    const parts: StartParts = {
      native,
      payload,
      context: waiting,
      folder,
      report,
      graph,
      data,
      hardware,
    };
    const result = await withFittingBatch(parts, (start, team) =>
      runTo(parts, start, { stop, options, team, pausing: () => isPausing(context) }),
    );
    context.log.info("run_ended", {
      run_id: payload.run_id,
      stopped: result.stopped,
      epochs: result.history.length,
      seconds: (performance.now() - started) / 1_000,
    });
    return result;
  } catch (thrown) {
    if (isPausing(context)) throw new TaskPause();
    const failure = asTrainFailure(thrown);
    if (failure instanceof TaskFailure && !context.cancel.aborted) {
      report.say(`Failed: ${failure.message}`);
      report.tell({ must: true });
    }
    throw failure;
  }
}

const isPausing = ({ cancel, pause }: Pick<MediaContext, "cancel" | "pause">) =>
  pause.aborted && !cancel.aborted;

function engineHere(): Native {
  const loaded = loadEngine();
  if ("native" in loaded) return loaded.native;
  throw new TaskFailure("engine_missing", loaded.missing, { retryable: true });
}

/** The dataset as pixels; says how far it is, since a large one takes its time. */
async function readDataset(payload: Payload, context: MediaContext, report: Report) {
  const { manifest, sha256 } = await readManifest(payload.manifest, context);
  const { image_size: imageSize, task } = payload.settings;
  const augmentation = augmentationOf(payload.settings);
  let tenths = 0;
  const data = await prepareDataset(
    {
      manifest,
      sha256,
      videos: payload.videos,
      imageSize,
      masks: task === "segmentation",
      outlines: augmentation.copyPaste !== 0,
      onProgress: (done, total) => {
        const now = Math.floor((10 * done) / total);
        if (now > tenths && now < 10 && total > 200)
          report.say(`Preparing pictures: ${now * 10} %`);
        tenths = now;
        report.tell();
      },
    },
    context,
  );
  const { train: trained, val } = data.splits;
  const test = data.test?.images ?? [];
  const boxes = [...trained.images, ...val.images, ...test].reduce(
    (sum, image) => sum + image.boxes.length / 5,
    0,
  );
  report.say(
    `Dataset: ${trained.images.length} pictures to train on, ${val.images.length} to validate on, ` +
      `${test.length === 0 ? "" : `${test.length} to test on, `}${boxes} boxes, ` +
      `longest side ${imageSize} px.`,
  );
  const leftOut = manifest.left_out_frames;
  if (leftOut > 0) {
    const frames = leftOut === 1 ? "1 frame is" : `${leftOut} frames are`;
    report.say(`${frames} left out: too near in time to a picture to validate on.`);
  }
  if (data.left > 0) {
    report.say(`${data.left} boxes are left out: outside their picture, or under a pixel.`);
  }
  return data;
}

/**
 * Begins and works; where an automatic batch does not fit into memory, again with half of it, and
 * where a process of several is lost, again from the last checkpoint with those that are left.
 */
async function withFittingBatch(
  whole: StartParts,
  work: (start: RunStart, team: Team | null) => Promise<Result>,
): Promise<Result> {
  const { payload, report } = whole;
  const mayHalve = (batch: number | null): batch is number =>
    payload.settings.batch_size === null && batch !== null && batch >= 2;
  const halve = (batch: number) => {
    const half = Math.floor(batch / 2);
    report.say(`Out of memory at batch size ${batch}: trying again with ${half}.`);
    return half;
  };
  let processes = processesOf(whole);
  for (let batchMax: number | null = null; ; ) {
    let batch = batchMax;
    try {
      const parts = shareOf(whole, processes);
      const start = await begin(parts, batchMax);
      batch = start.state.resolved.batch_size;
      let team: Team | null = null;
      try {
        if (processes > 1) team = await formTeam(parts, start, processes);
        return await work(start, team);
      } finally {
        team?.close();
        await start.engine.close();
      }
    } catch (thrown) {
      if (thrown instanceof LostProcesses) {
        if (thrown.isFull && mayHalve(batch)) {
          batchMax = halve(batch);
          continue;
        }
        // Fewer each time: where all blame another one, it has to come to an end.
        const next = Math.max(1, Math.min(thrown.left, processes - 1));
        const left = `${next} ${next === 1 ? "is" : "are"} left`;
        report.say(`Of ${processes} processes ${left}: ${thrown.message}.`);
        processes = next;
        continue;
      }
      if (!isOutOfMemory(thrown) || !mayHalve(batch)) throw thrown;
      batchMax = halve(batch);
    }
  }
}

interface Attempt {
  stop: AbortSignal;
  options: SessionOptions;
  team: Team | null;
  pausing(): boolean;
}

/** From where the run begins to its result. */
async function runTo(parts: StartParts, start: RunStart, attempt: Attempt): Promise<Result> {
  const { payload, context, folder, report, data } = parts;
  const { engine, state, options } = start;
  const { settings } = payload;
  const files: RunFiles = { context, folder, data, settings };
  const batches = Math.ceil(state.resolved.train_images / state.resolved.batch_size);
  report.resolved = state.resolved;
  report.checkpoint = payload.resume?.at ?? null;
  report.begin({ epochs: settings.epochs, batches }, state, state.history);
  say(report, start);
  report.tell({ must: true });
  const machine = { torch: parts.native.describe().torch, threads: parts.hardware.threads };
  await writeOpening(files, { engine, options, state, name: payload.name, machine });
  const uploads = new CheckpointUploads({
    folder,
    context,
    everyMs: attempt.options.uploadEveryMs ?? UPLOAD_EVERY_MS,
    onUploaded: (checkpoint) => {
      report.checkpoint = checkpoint;
      report.tell({ must: true });
    },
  });
  const evaluationBatch = new EvaluationBatch(state, report);
  const began = performance.now();
  await trainEpochs({
    engine,
    evaluationBatch,
    team: attempt.team,
    settings,
    classes: data.classes,
    folder,
    report,
    state,
    stop: attempt.stop,
    valImages: data.splits.val.images.length,
    onCheckpoint: (at) => uploads.offer(at),
    metadata: metadataOf(parts, state),
  });
  const stopped = attempt.stop.aborted && state.epoch < settings.epochs;
  const spent = spoken((performance.now() - began) / 1_000);
  report.say(`${attempt.stop.aborted ? "Stopped" : "Done"} after ${state.epoch} epochs, ${spent}.`);
  if (attempt.pausing()) {
    await uploads.finish(state);
    throw new TaskPause();
  }
  const handover = { files, uploads, evaluationBatch, stopped, pausing: attempt.pausing };
  return handIn(parts, start, handover);
}

function say(report: Report, { options, state }: RunStart) {
  const { device, precision, precision_reason: reason, batch_size } = state.resolved;
  report.say(`Device: ${device}, ${precision}${reason === undefined ? "" : `: ${reason}`}.`);
  report.say(
    `Optimiser ${options.optimizer}, learning rate ${options.lr0} to ${options.lr0 * options.lrf}, ` +
      `batch ${batch_size}, ${options.epochs} epochs at ${options.imageSize} px.`,
  );
  const { freeze, multiScale } = options;
  if (freeze) report.say(`The first ${freeze} layers are frozen: they stay as they are.`);
  if (multiScale)
    report.say(`Every batch has a size of its own, ± ${Math.round(100 * multiScale)} %.`);
}

/** What a file of weights says of itself. */
const metadataOf = ({ payload, graph, data }: StartParts, { dataset_sha256 }: RunState) => ({
  variant: graph.variant,
  task: graph.task,
  classes: JSON.stringify(data.classes),
  image_size: String(payload.settings.image_size),
  run_id: payload.run_id,
  dataset_sha256,
});

/** What is left to hand in once the training ended. */
interface HandIn {
  files: RunFiles;
  uploads: CheckpointUploads;
  evaluationBatch: EvaluationBatch;
  stopped: boolean;
  pausing(): boolean;
}

/** Sends what the run came to, the checkpoint first, and lets go of its folder here. */
async function handIn(parts: StartParts, start: RunStart, handover: HandIn): Promise<Result> {
  const { context, folder, report, native, graph, hardware, data } = parts;
  const { state } = start;
  const { files, uploads, evaluationBatch, stopped, pausing } = handover;
  const began = performance.now();
  const lost = (thrown: unknown) => {
    context.log.warning("checkpoint_not_uploaded", { error: thrown });
    report.say(`The checkpoint could not be handed in: ${(thrown as Error).message}.`);
    return null;
  };
  await uploads.idle();
  // One that does not arrive costs the model nothing; it stays here.
  const checkpoint = stopped ? await uploads.finish(state).catch(lost) : null;
  const best = bestOf(state);
  const weights = stopped ? await latestOf(parts, start, { best, evaluationBatch }) : best;
  // A GPU has room for one network at a time.
  await start.engine.close();
  const suppressed = weights && (await suppressionFor(parts, state, { weights, evaluationBatch }));
  const putAside = async () => {
    await uploads.finish(state);
    throw new TaskPause();
  };
  // What was cut off chose nothing: the next attempt does.
  if (!suppressed && !stopped && pausing()) await putAside();
  const { parameters } = start;
  const served = weights && { ...weights, ...suppressed };
  const msLeft = LAST_VALIDATION_MS - (performance.now() - began);
  const measuring = { resolved: state.resolved, evaluationBatch, pausing, msLeft };
  const tested = served && (await testMetrics(parts, { ...measuring, ...served.files }));
  // Nor was the model measured.
  if (served && data.test && !tested && !stopped && pausing()) await putAside();
  const handedIn = served && (await handInWeights(parts, { ...served, parameters, tested }));
  const model = handedIn?.model ?? null;
  report.say(model ? `Model: ${scored(model)}.` : "No model: no step was taken.");
  // Better weights that the stop passed over: people take them, or register them.
  const passedOver = best === weights ? null : best;
  const kept = passedOver && (await keepBest(parts, { ...passedOver, parameters }));
  await writeClosing(files, { native, graph, hardware, state, model: served, best });
  report.tell({ must: true });
  const { artifacts, all } = await uploadArtifacts(files);
  artifacts.push(...[handedIn, kept].filter((one) => one !== null));
  const isAllSent = all && (kept || !passedOver) && (checkpoint || !stopped);
  if (isAllSent) await folder.remove();
  else context.log.warning("run_folder_kept", { path: folder.path });
  const { history, resolved } = state;
  return { stopped, history, resolved, model, checkpoint, artifacts };
}

/** Hands in the best weights of a stopped run; null where they do not arrive. */
async function keepBest(parts: StartParts, best: OwnWeights & { parameters: number }) {
  const { context, report } = parts;
  try {
    // Test frames measure the model alone: of two figures people would choose the better one.
    const kept = await handInWeights(parts, { ...best, tested: null });
    report.say(`Best epoch before: ${scored(kept.model)}, kept as ${kept.name}.`);
    return kept;
  } catch (error) {
    context.log.warning("artifact_not_uploaded", { name: best.name, error });
    return null;
  }
}

/** Weights on this node's disk, as they are handed in. */
interface OwnWeights {
  /** Name of the artifact. */
  name: string;
  files: WeightsFiles;
  /** The epoch that they are of, also one that is not done. */
  epoch: number;
  metrics: MetricMap;
}

/** Weights of the best epoch; null where no epoch was measured. */
function bestOf({ best, history }: RunState): OwnWeights | null {
  const metrics = history.find(({ epoch }) => epoch === best?.epoch)?.metrics;
  if (!best || !metrics) return null;
  const { epoch } = best;
  return { name: BEST_WEIGHTS, files: bestFiles(epoch), epoch, metrics };
}

/**
 * Weights of a stopped run as they are now, measured where that goes well; null where no step was
 * taken. Where they cannot be saved, those of the best epoch before are better than none.
 */
async function latestOf(
  parts: StartParts,
  { engine, state }: RunStart,
  { best, evaluationBatch }: Pick<HandIn, "evaluationBatch"> & { best: OwnWeights | null },
): Promise<OwnWeights | null> {
  const { context, folder, data, report } = parts;
  const { settings } = parts.payload;
  if (state.epoch === 0 && state.batch === 0) return null;
  const epoch = state.batch > 0 ? state.epoch + 1 : state.epoch;
  if (best?.epoch === epoch) return best;
  const files = LATEST_FILES;
  const valImages = data.splits.val.images.length;
  const validation = lastValidation({ engine, evaluationBatch, settings, valImages, report });
  const evaluation = await validation.catch((error: unknown) => {
    context.log.warning("weights_not_measured", { epoch, error });
    report.say(`The weights could not be measured: ${(error as Error).message}.`);
    return null;
  });
  try {
    await removeScores(folder, files);
    if (evaluation) await saveScores(folder, files, evaluation);
    await engine.save(folder.file(files.weights), weightsMetadata(metadataOf(parts, state), epoch));
  } catch (error) {
    if (!best) throw error;
    context.log.warning("weights_not_saved", { epoch, error });
    report.say(`The weights could not be saved: ${(error as Error).message}.`);
    return best;
  }
  const { classes } = data;
  const metrics = evaluation ? metricsOf(evaluation, classes) : unmeasured(classes, settings.task);
  return { name: LATEST_WEIGHTS, files, epoch, metrics };
}

interface HandedInMore {
  parameters: number;
  /** Metrics on the test frames. */
  tested: MetricMap | null;
}

/** Uploads weights as an artifact that the registry can take. */
async function handInWeights(
  { context, folder, report }: StartParts,
  { name, files, epoch, metrics, parameters, tested }: OwnWeights & HandedInMore,
): Promise<RunArtifact & { model: TrainedModel }> {
  const path = folder.file(files.weights);
  const sha256 = await hashOf(path);
  report.tell({ must: true });
  const artifact = await uploadArtifact(context, path, name);
  const { key, bytes } = artifact;
  const scores = await readScores(folder, files);
  const model = {
    weights: { key, bytes, sha256 },
    parameters,
    epoch,
    metrics,
    confidence_bins: scores?.confidenceBins ?? null,
    test_metrics: tested,
  };
  return { ...artifact, model };
}

/** The epoch of a model and its average precision, for the log. */
function scored({ epoch, metrics }: TrainedModel): string {
  const at = (name: string) => metrics[name]?.toFixed(3) ?? "not measured";
  return `epoch ${epoch}, mAP50 ${at("mAP50")}, mAP50-95 ${at("mAP50-95")}`;
}

/**
 * Chooses whether the model's overlapping boxes are suppressed, as its file then says. Gives what
 * it measures where they are, and the files of that; null where they are not, such as where the run
 * was stopped: whoever stopped it waits for its model. What fails costs the run nothing.
 */
async function suppressionFor(
  { native, graph, hardware, context, folder, data, payload, report }: StartParts,
  state: RunState,
  { weights, evaluationBatch }: Pick<HandIn, "evaluationBatch"> & { weights: OwnWeights },
): Promise<Pick<OwnWeights, "files" | "metrics"> | null> {
  // Masks were not measured with it.
  if (graph.task === "segmentation") return null;
  try {
    const choice = await evaluationBatch.measure((batch) =>
      writeSuppression(folder.file(weights.files.weights), {
        native,
        graph,
        hardware,
        val: data.splits.val,
        imageSize: payload.settings.image_size,
        batch,
        stop: context.cancel,
        onBatch: () => report.tell(),
      }),
    );
    if (!choice) return null;
    const { head, nmsIou, evaluation, gain, error } = choice;
    Object.assign(state.resolved, { nms_iou: nmsIou, head });
    report.say(
      `Served by the ${head.replaceAll("_", "-")} head with suppression above an IoU of ` +
        `${nmsIou}: the mean of mAP50 and mAP50-95 gains ${gain.toFixed(3)} ± ${error.toFixed(3)} ` +
        "on the validation split.",
    );
    const files = suppressedFiles(weights.files);
    await removeScores(folder, files);
    await saveScores(folder, files, evaluation).catch((error: unknown) =>
      context.log.warning("scores_not_kept", { error }),
    );
    return { files, metrics: metricsOf(evaluation, data.classes) };
  } catch (error) {
    context.log.warning("suppression_not_chosen", { error });
    return null;
  }
}
