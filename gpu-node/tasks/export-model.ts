// Writes a model of the registry as a file that other programs run. The file is opened as it lies
// on disk and held against the model's own predictor on images; one that differs is never uploaded.

import { readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { DeployedModel } from "../../shared/detector/deployed-weights.ts";
import { OPSET } from "../../shared/detector/detector-onnx.ts";
import { ultralyticsNote } from "../../shared/detector/export-formats.ts";
import { withSuppression } from "../../shared/detector/suppression.ts";
import type { TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import { BUILDING_STAGE, type Calibration, type ExportEngine } from "../../shared/wire/exports.ts";
import { TaskFailure } from "../base/failure.ts";
import { sha256OfFile } from "../base/file-hash.ts";
import { measureRanges, passesOf } from "../export/calibration.ts";
import { deployedModel } from "../export/deployed-model.ts";
import { describeModel } from "../export/detector-onnx.ts";
import { writeDetector } from "../export/format-writers.ts";
import { NotNumbers } from "../export/histogram.ts";
import { type MapRanges, measuredMaps } from "../export/ranges.ts";
import { readWeights } from "../export/registry-weights.ts";
import { writeRoboflowBundle } from "../export/roboflow-bundle.ts";
import { writeTensorrtBundle } from "../export/tensorrt-bundle.ts";
import { buildEngine, findTrtexec } from "../export/trtexec.ts";
import { readTensors } from "../export/weights-file.ts";
import { uploadFile } from "../objects/transfer.ts";
import { letterbox } from "../serving/letterbox.ts";
import { looksOf, type PredictedImage, verify } from "./export-verification.ts";
import { type LabeledImages, openLabeledImages } from "./labeled-images.ts";
import type { RunnerContext } from "./runner-context.ts";
import { TaskSteps } from "./task-steps.ts";

type Payload = TaskPayload<"device_export">;

/** A builder tries many kernels; the largest variant takes minutes. */
const ENGINE_SECONDS = 30 * 60;
/** What a file of raw heads says of itself. */
const rawNote = (format: Payload["format"], nmsIou: number | null) => {
  const left = nmsIou === null ? "" : ` and class-wise suppression above an IoU of ${nmsIou}`;
  return `Raw heads: every anchor's box and scores, before top-k${left}. ${ultralyticsNote(format)}.`;
};
const NO_IMAGES = "no_calibration_images";
const NO_DATASET =
  "int8 is made by images of the model's own training set, and none of them is there any more";

/** Does a task of the kinds that export models. Fails with a TaskFailure, such as `bad_weights`. */
export async function run(
  payload: Payload,
  context: RunnerContext,
): Promise<TaskResult<"device_export">> {
  const started = performance.now();
  const { model, precision, format } = payload;
  if (model.classes.length === 0) throw new TaskFailure("bad_weights", "the model has no classes");
  const weights = await readWeights(context, model, context.cancel);
  const deployed = deployedModel(model, readTensors(weights));
  const dataset = await openLabeledImages(payload.dataset, context);
  const isMeasured = precision === "int8" && !wholeCalibration(payload, dataset);
  const measured = isMeasured
    ? (dataset?.count("train", payload.calibration_images) ?? 0) * passesOf(deployed, payload.size)
    : 0;
  const steps = new TaskSteps(context, 2 + measured + looksOf(payload, dataset));
  const path = context.cache.temporary();
  const [bundle, plainPath] = [context.cache.temporary(), context.cache.temporary()];
  try {
    const calibration =
      precision === "int8" ? await calibrate(payload, { deployed, dataset, steps }, context) : null;
    const form = {
      ...formOf(payload, deployed),
      ...(calibration && { ranges: rangesOf(calibration, deployed) }),
    };
    await writeFile(path, writeDetector(deployed, form), { mode: 0o600 });
    steps.next();
    const { nmsIou } = deployed;
    const suppressing =
      payload.output === "end_to_end" && nmsIou !== null ? { nmsIou, plainPath } : null;
    if (suppressing) {
      const plain = writeDetector({ ...deployed, nmsIou: null }, form);
      await writeFile(plainPath, plain, { mode: 0o600 });
    }
    const told = { weights, path, suppressing, nmsIou, steps, dataset };
    const verified = await verify(payload, told, context);
    const made = { path, bundle, example: verified.example, steps };
    const { path: upload, engine } = await delivered(payload, made, context);
    const file = { bytes: (await stat(upload)).size, sha256: await sha256OfFile(upload) };
    await uploadFile(context, payload.file, upload, context.cancel);
    steps.next();
    const seconds = (performance.now() - started) / 1_000;
    const { model_id, variant } = model;
    context.log.info("model_exported", { model_id, variant, format, precision, seconds });
    return {
      ...file,
      opset: holdsOnnx(payload) ? OPSET : null,
      verification: verified.verification && Object.assign(verified.verification, { engine }),
      recommended_confidence: verified.recommendedConfidence,
      calibration,
      not_verified: verified.notVerified,
      seconds,
    };
  } finally {
    await Promise.all([path, bundle, plainPath].map((one) => rm(one, { force: true })));
  }
}

/** Whether what is uploaded holds ONNX, by its operators' version. */
const holdsOnnx = ({ format, artifact }: Payload) =>
  artifact !== "engine" && ["onnx", "tensorrt", "roboflow"].includes(format);

/** The ranges that another file was made by, unless the dataset lists more images for them. */
const wholeCalibration = (
  { calibration, calibration_images }: Payload,
  dataset: LabeledImages | null,
): Calibration | null => {
  const listed = dataset?.count("train", calibration_images) ?? 0;
  return calibration && calibration.images >= listed ? calibration : null;
};

/** The ranges of the model's maps: of the two there may be, those of more images. */
async function calibrate(
  payload: Payload,
  made: { deployed: DeployedModel; dataset: LabeledImages | null; steps: TaskSteps },
  context: RunnerContext,
): Promise<Calibration> {
  const { deployed, dataset, steps } = made;
  const whole = wholeCalibration(payload, dataset);
  if (whole) return whole;
  const known = payload.calibration;
  if (!dataset) throw new TaskFailure(NO_IMAGES, NO_DATASET);
  const [height, width] = payload.size;
  let seen = 0;
  async function* images(from: LabeledImages): AsyncGenerator<Float32Array> {
    seen = 0;
    for await (const { image } of from.read("train", payload.calibration_images, context)) {
      seen += 1;
      yield (await letterbox(image, { width, height })).pixels;
    }
    if (seen === 0) throw new TaskFailure(NO_IMAGES, NO_DATASET);
  }
  const ranges = await measureRanges(deployed, () => images(dataset), {
    size: payload.size,
    cpuThreads: context.machine.cpuThreads,
    signal: context.cancel,
    onImage: () => steps.next(),
  }).catch((thrown: unknown) => {
    // The images are gone meanwhile: what was measured while they were there is enough.
    if (known && thrown instanceof TaskFailure && thrown.code === NO_IMAGES) return null;
    if (!(thrown instanceof NotNumbers)) throw thrown;
    throw new TaskFailure("bad_weights", "the model computes what is no number", {
      cause: thrown,
    });
  });
  if (known && (!ranges || known.images >= seen)) return known;
  const named = [...(ranges ?? [])].map(([name, [low, high]]): [string, [number, number]] => [
    name,
    [low, high],
  ]);
  return { images: seen, ranges: Object.fromEntries(named) };
}

/** A file that is uploaded, and what it was built for where it is an engine. */
interface DeliveredFile {
  path: string;
  engine: ExportEngine | null;
}

/** Gives the file as it was verified, or makes of it what was asked for. */
async function delivered(
  payload: Payload,
  made: { path: string; bundle: string; example: PredictedImage | null; steps: TaskSteps },
  context: RunnerContext,
): Promise<DeliveredFile> {
  const { artifact, format } = payload;
  const { path, bundle, example } = made;
  if (artifact === "engine") return engineOf(payload, made, context);
  if (artifact === "file") return { path, engine: null };
  const onnx = await readFile(path);
  const { size, model } = payload;
  const { classes, task } = model;
  const zip =
    format === "roboflow"
      ? writeRoboflowBundle({ onnx, size, classes, task })
      : tensorrtBundle(payload, onnx, example);
  await writeFile(bundle, zip, { mode: 0o600 });
  return { path: bundle, engine: null };
}

function tensorrtBundle(
  { precision, size, batch, output }: Payload,
  onnx: Uint8Array,
  example: PredictedImage | null,
): Uint8Array {
  if (!example) throw new Error("a bundle for TensorRT has an example");
  const { laid, rows } = example;
  return writeTensorrtBundle({
    onnx,
    precision,
    size,
    batch,
    output: output === "raw" ? "raw" : "end_to_end",
    example: { pixels: laid.pixels, rows: rows.values, width: rows.width },
  });
}

/** What TensorRT builds of a verified file for this node's GPU. */
async function engineOf(
  payload: Payload,
  { path, steps }: { path: string; steps: TaskSteps },
  context: RunnerContext,
): Promise<DeliveredFile> {
  const trtexec = await findTrtexec();
  if (!trtexec) {
    const detail = "this node has no trtexec any more, or no GPU";
    throw new TaskFailure("engine_not_built", detail, { retryable: true });
  }
  const { precision, size, batch } = payload;
  const folder = join(context.machine.trainingDir, "engines");
  const build = {
    folder,
    timeoutSeconds: ENGINE_SECONDS,
    signal: context.cancel,
    trtexec,
    onBuilding: (seconds: number) => steps.at({ stage: BUILDING_STAGE, seconds }),
  };
  const engine = await buildEngine(path, { precision, size, batch }, build);
  const { version, gpu } = trtexec;
  context.log.info("engine_built", { version, gpu, is_new: engine.isNew });
  return { path: engine.path, engine: { gpu, tensorrt: version } };
}

/** The ranges by name; ranges of another graph are nobody's that can be used. */
function rangesOf({ ranges }: Calibration, { graph }: DeployedModel): MapRanges {
  const lacking = measuredMaps(graph).find(({ name }) => !ranges[name]);
  if (lacking) {
    throw new TaskFailure("invalid_request", `the ranges lack that of ${lacking.name}`);
  }
  return new Map(Object.entries(ranges));
}

function formOf(
  { model, format, precision, output, size, batch, metadata }: Payload,
  { head, nmsIou }: DeployedModel,
) {
  const notes: Record<string, string> =
    output === "raw" ? { description: rawNote(format, nmsIou) } : {};
  if (precision !== "fp32") notes.precision = precision;
  const suppression = nmsIou === null ? null : { head, nmsIou };
  const described = withSuppression(describeModel(model, { ...metadata, ...notes }), suppression);
  return { format, precision, output, size, batch, classes: model.classes, metadata: described };
}
