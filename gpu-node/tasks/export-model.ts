// Writes a model of the registry as a file that other programs run. The file is opened as it lies
// on disk and held against the model's own predictor on images; one that differs is never uploaded.

import { createHash } from "node:crypto";
import { rm, writeFile } from "node:fs/promises";
import { PROTOTYPES } from "../../shared/detector.ts";
import { INPUT, OPSET } from "../../shared/detector-onnx.ts";
import {
  boxTolerance,
  EXPORT_PIXELS_MAX,
  EXPORT_TOLERANCE,
  type ExportVerification,
} from "../../shared/exports.ts";
import type { DetectionRows } from "../../shared/letterbox.ts";
import type { ObjectSource, TaskPayload, TaskResult } from "../../shared/tasks.ts";
import { TaskFailure } from "../base/failure.ts";
import { deployedModel } from "../export/deployed-model.ts";
import { describeModel, writeOnnx } from "../export/detector-onnx.ts";
import { readWeights } from "../export/registry-weights.ts";
import { sampleImages } from "../export/sample-images.ts";
import { compareRows, type RowDifference, rowsOfHeads } from "../export/verification.ts";
import { readTensors } from "../export/weights-file.ts";
import type { RgbImage } from "../media/image.ts";
import { readStill } from "../media/stills.ts";
import { uploadFile } from "../objects/transfer.ts";
import { float, floats, openSession, run as runOnce, runtimeName } from "../onnx/runtime.ts";
import type { SquareImage } from "../serving/letterbox.ts";
import { openPredictor } from "../serving/predictor.ts";
import type { RunnerContext } from "./runner-context.ts";

type Payload = TaskPayload<"model_export">;

/** Images of a verification: frames of the model's dataset, and drawn ones where those are few. */
const IMAGES = 4;
/** A file for any batch is run with one image, and with so many. */
const BATCH_OF_ANY = 4;
const RAW_NOTE =
  "Raw heads: every anchor's box and scores, before top-k. Ultralytics takes them for something " +
  "else without an error; it reads files of the output end_to_end.";

/** Does a `model_export` task. Fails with a TaskFailure, such as `bad_weights`. */
export async function run(
  payload: Payload,
  context: RunnerContext,
): Promise<TaskResult<"model_export">> {
  const started = performance.now();
  const { model, batch } = payload;
  if (model.classes.length === 0) throw new TaskFailure("bad_weights", "the model has no classes");
  const looks = batchesOf(payload).map((count) => count * Math.ceil(IMAGES / count));
  const steps = new Steps(
    context,
    looks.reduce((sum, count) => sum + count, 2 + IMAGES),
  );
  const weights = await readWeights(context, model, context.cancel);
  const path = context.cache.temporary();
  try {
    const written = await writeModel(payload, weights, path);
    steps.next();
    const verification = await verify(payload, { weights, path, steps }, context);
    await uploadFile(context, payload.file, path, context.cancel);
    steps.next();
    const seconds = (performance.now() - started) / 1_000;
    const { box_difference_max: box, score_difference_max: score } = verification;
    const { model_id, variant } = model;
    context.log.info("model_exported", { model_id, variant, batch, box, score, seconds });
    return { ...written, opset: OPSET, verification, seconds };
  } finally {
    await rm(path, { force: true });
  }
}

/** How far the task is. */
class Steps {
  readonly #context: Pick<RunnerContext, "progress" | "cancel">;
  readonly #total: number;
  #done = 0;

  constructor(context: Pick<RunnerContext, "progress" | "cancel">, total: number) {
    this.#context = context;
    this.#total = total;
  }

  next(): void {
    this.#context.cancel.throwIfAborted();
    this.#done += 1;
    this.#context.progress({ done: this.#done, total: this.#total, detail: {} });
  }
}

/** Writes the file; its bytes depend on the weights and the options alone. */
async function writeModel(
  { model, output, size, batch, metadata }: Payload,
  weights: Uint8Array,
  path: string,
): Promise<{ bytes: number; sha256: string }> {
  const note: Record<string, string> = output === "raw" ? { description: RAW_NOTE } : {};
  const file = writeOnnx(deployedModel(model, readTensors(weights)), {
    output: output === "raw" ? "raw" : "detections",
    size,
    batch,
    metadata: describeModel(model, { ...metadata, ...note }),
  });
  await writeFile(path, file, { mode: 0o600 });
  return { bytes: file.length, sha256: createHash("sha256").update(file).digest("hex") };
}

/** The numbers of images that a file is run with. */
function batchesOf({ batch, size: [height, width] }: Pick<Payload, "batch" | "size">): number[] {
  if (batch !== null) return [batch];
  const fits = Math.floor(EXPORT_PIXELS_MAX / (height * width));
  return [...new Set([1, Math.max(1, Math.min(BATCH_OF_ANY, fits))])];
}

interface FileToVerify {
  weights: Uint8Array;
  path: string;
  steps: Steps;
}

/** Holds a file against the predictor; fails with `export_differs`, with the figures. */
async function verify(
  payload: Payload,
  { weights, path, steps }: FileToVerify,
  context: RunnerContext,
): Promise<ExportVerification> {
  const { model, size } = payload;
  const tolerance = { box: boxTolerance(size), score: EXPORT_TOLERANCE.score };
  const known = await datasetImages(payload.images, context);
  const images = [...known, ...sampleImages(IMAGES - known.length)];
  const { laid, wanted } = await predicted(images, { payload, weights, steps }, context);
  const total = { rows: 0, objects: 0, box: 0, score: 0, unmatched: 0 };
  const batches = batchesOf(payload);
  for await (const { index, rows } of answersOf(path, { payload, laid, batches }, context)) {
    add(total, compareRows(rows, wanted[index] as DetectionRows, tolerance));
    steps.next();
  }
  const { box, score, unmatched, rows, objects } = total;
  if (!(unmatched === 0 && box <= tolerance.box && score <= tolerance.score)) {
    throw new TaskFailure("export_differs", differenceOf(total, tolerance));
  }
  if (rows === 0) {
    throw new TaskFailure("export_differs", "no score stands out on any image: nothing to compare");
  }
  context.log.info("export_verified", { model_id: model.model_id, box, score, rows });
  return {
    runtime: runtimeName(),
    device: "cpu",
    images: images.length,
    dataset_images: known.length,
    batches,
    rows,
    objects,
    box_difference_max: box,
    box_tolerance: tolerance.box,
    score_difference_max: score,
    score_tolerance: tolerance.score,
  };
}

function add(total: RowDifference, one: RowDifference): void {
  total.rows += one.rows;
  total.objects += one.objects;
  total.unmatched += one.unmatched;
  total.box = Math.max(total.box, one.box);
  total.score = Math.max(total.score, one.score);
}

function differenceOf(
  { box, score, unmatched, rows }: RowDifference,
  tolerance: { box: number; score: number },
): string {
  const figures = [
    `boxes by ${box.toPrecision(3)} pixels (${tolerance.box} are allowed)`,
    `scores by ${score.toPrecision(3)} (${tolerance.score} is allowed)`,
    ...(unmatched > 0 ? [`${unmatched} of ${rows} rows have no equal`] : []),
  ];
  return `the file gives other objects than the model's predictor: ${figures.join(", ")}`;
}

/** What can be read of the frames that the service named; one that is gone is nobody's fault. */
async function datasetImages(
  sources: readonly ObjectSource[],
  { cache, cancel, log }: RunnerContext,
): Promise<RgbImage[]> {
  const images: RgbImage[] = [];
  for (const source of sources.slice(0, IMAGES)) {
    try {
      const held = await cache.open(source, cancel);
      try {
        images.push(await readStill(held.path));
      } finally {
        await held.release();
      }
    } catch (thrown) {
      cancel.throwIfAborted();
      log.warning("verification_image_missing", { key: source.key, error: thrown });
    }
  }
  return images;
}

/** The images as the model looks at them, and what its predictor gives for each. */
async function predicted(
  images: readonly RgbImage[],
  { payload, weights, steps }: Omit<FileToVerify, "path"> & { payload: Payload },
  { machine }: RunnerContext,
): Promise<{ laid: SquareImage[]; wanted: DetectionRows[] }> {
  const { model, size } = payload;
  const settings = { cpuThreads: machine.cpuThreads, device: "cpu" } as const;
  const predictor = await openPredictor(model, weights, settings, size);
  try {
    const laid: SquareImage[] = [];
    const wanted: DetectionRows[] = [];
    for (const image of images) {
      const one = await predictor.lay(image);
      const rows = await predictor.rows(one);
      if (!rows.values.every((value) => Number.isFinite(value))) {
        throw new TaskFailure("bad_weights", "the model computes what is no number");
      }
      laid.push(one);
      wanted.push(rows);
      steps.next();
    }
    return { laid, wanted };
  } finally {
    await predictor.dispose();
  }
}

/** What the file gives for each image, by each number of images that it is run with. */
async function* answersOf(
  path: string,
  { payload, laid, batches }: { payload: Payload; laid: SquareImage[]; batches: number[] },
  { machine, cancel }: RunnerContext,
): AsyncGenerator<{ index: number; rows: DetectionRows }> {
  const session = await openSession(path, { cpuThreads: machine.cpuThreads, device: "cpu" });
  try {
    for (const count of batches) {
      for (let first = 0; first < laid.length; first += count) {
        // The last run of a batch is filled up from the start.
        const indices = Array.from({ length: count }, (_, at) => (first + at) % laid.length);
        const outputs = await runOnce(session, { [INPUT]: inputOf(payload, laid, indices) });
        for (const [at, index] of indices.entries()) {
          yield { index, rows: rowsIn(payload, outputs, { at, count }) };
        }
        // The runtime holds this thread while it works: hear what came meanwhile.
        await new Promise((resume) => setImmediate(resume));
        cancel.throwIfAborted();
      }
    }
  } finally {
    await session.release();
  }
}

function inputOf(
  { size: [height, width] }: Payload,
  laid: readonly SquareImage[],
  indices: readonly number[],
) {
  const each = 3 * height * width;
  const pixels = new Float32Array(indices.length * each);
  for (const [at, index] of indices.entries()) {
    pixels.set((laid[index] as SquareImage).pixels, at * each);
  }
  return float(pixels, [indices.length, 3, height, width]);
}

/** The rows of one image of a run. */
function rowsIn(
  { model: { task, classes }, output }: Payload,
  outputs: Parameters<typeof floats>[0],
  { at, count }: { at: number; count: number },
): DetectionRows {
  const own = (name: string) => {
    const all = floats(outputs, name);
    return all.subarray((at * all.length) / count, ((at + 1) * all.length) / count);
  };
  const masks = task === "segmentation";
  if (output === "end_to_end") {
    return { values: own("output0"), width: masks ? 6 + PROTOTYPES : 6 };
  }
  const heads = { boxes: own("boxes"), scores: own("scores") };
  return rowsOfHeads(masks ? { ...heads, masks: own("masks") } : heads, classes.length);
}
