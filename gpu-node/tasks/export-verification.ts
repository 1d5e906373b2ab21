// A written file held against the model's predictor: row by row on a few images, in every number of
// images that it can be run with; below single precision also on the model's validation set, by the
// average precision of both.

import {
  boxTolerance,
  EXPORT_TOLERANCES,
  type ExportPrecision,
  missesOf,
} from "../../shared/detector/export-formats.ts";
import {
  type DetectionRows,
  type MaskedRows,
  predictionsOf,
} from "../../shared/detector/letterbox.ts";
import { suppress } from "../../shared/detector/suppression.ts";
import type { ObjectSource, TaskPayload } from "../../shared/tasks/tasks.ts";
import { EXPORT_PIXELS_MAX, type ExportVerification } from "../../shared/wire/exports.ts";
import { TaskFailure } from "../base/failure.ts";
import { accuracyOf, type JudgedImage, recommendedConfidence } from "../export/accuracy.ts";
import { RuntimeMissing } from "../export/file-runner.ts";
import { MaskComparison } from "../export/mask-verification.ts";
import { sampleImage, sampleImages } from "../export/sample-images.ts";
import {
  compareObjects,
  compareRows,
  greatestDifference,
  OBJECT_SCORE,
  type ObjectDifference,
  p99Difference,
} from "../export/verification.ts";
import type { RgbImage } from "../media/image.ts";
import { readStill } from "../media/stills.ts";
import type { SquareImage } from "../serving/letterbox.ts";
import { openPredictor, type Predictor } from "../serving/predictor.ts";
import { openWrittenFile, type WrittenFile } from "./export-runtimes.ts";
import type { LabeledImages } from "./labeled-images.ts";
import type { RunnerContext } from "./runner-context.ts";
import { openSuppressingFile, type SuppressingFile } from "./suppressing-file.ts";
import type { TaskSteps } from "./task-steps.ts";

type Payload = TaskPayload<"device_export">;

/** Images of a verification: frames of the model's dataset, and drawn ones where those are few. */
const IMAGES = 4;
/** Images of the validation set that average precision is measured on. */
const VALIDATION_IMAGES = 128;
/** A file for any batch is run with one image, and with so many. */
const BATCH_OF_ANY = 4;
/** The lowest score that counts for average precision. */
const SCORE_MIN = 0.001;

/** What a file is verified with. */
export interface FileToVerify {
  weights: Uint8Array;
  path: string;
  /** What the file suppresses by; null of one that does not. */
  suppressing: SuppressingFile | null;
  /** What the model is served with. */
  nmsIou: number | null;
  steps: TaskSteps;
  dataset: LabeledImages | null;
}

/** An image as the model looks at it, and what its predictor gives for it. */
export interface PredictedImage {
  laid: SquareImage;
  rows: MaskedRows;
}

/** What came of a verification. */
export interface VerificationOutcome {
  /** Null where nothing here opens the file. */
  verification: ExportVerification | null;
  recommendedConfidence: number | null;
  /** What was not looked at, and why. */
  notVerified: string[];
  /** A drawn image, whatever the dataset has; null of what is delivered without one. */
  example: PredictedImage | null;
}

/** The numbers of images that a file is run with. */
function batchesOf({ batch, size: [height, width] }: Pick<Payload, "batch" | "size">): number[] {
  if (batch !== null) return [batch];
  const fits = Math.floor(EXPORT_PIXELS_MAX / (height * width));
  return [...new Set([1, Math.max(1, Math.min(BATCH_OF_ANY, fits))])];
}

/** Whether an image travels with the file: a drawn one, since frames are the workspace's own. */
const hasExample = ({ format, artifact }: Pick<Payload, "format" | "artifact">) =>
  format === "tensorrt" && artifact === "bundle";

const isJudged = ({ precision }: Pick<Payload, "precision">) =>
  EXPORT_TOLERANCES[precision].accuracyDrop !== null;

/** How many steps a verification takes at most. */
export function looksOf(payload: Payload, dataset: LabeledImages | null): number {
  const rounds = batchesOf(payload).map((count) => count * Math.ceil(IMAGES / count));
  const judged = isJudged(payload) ? (dataset?.count("val", VALIDATION_IMAGES) ?? 0) : 0;
  return rounds.reduce((sum, count) => sum + count, IMAGES + judged);
}

/** Holds a file against the predictor; fails with `export_differs`, with the figures. */
export async function verify(
  payload: Payload,
  { weights, path, suppressing, nmsIou, steps, dataset }: FileToVerify,
  context: RunnerContext,
): Promise<VerificationOutcome> {
  const { model, size } = payload;
  const { cpuThreads } = context.machine;
  const settings = {
    cpuThreads,
    device: "cpu",
    prototypes: model.task === "segmentation",
    // A last digit may decide which of two boxes stays.
    unsuppressed: true,
  } as const;
  const predictor = await openPredictor(model, weights, settings, size);
  try {
    const { images, known, frames } = await imagesOf(payload, dataset, context);
    const predicted: PredictedImage[] = [];
    for (const image of images) {
      predicted.push(await predictedOn(image, predictor));
      steps.next();
    }
    const drawn = hasExample(payload) ? await predictedOn(sampleImage(0), predictor) : null;
    const rows = drawn && {
      ...drawn.rows,
      ...(suppressing && suppress(drawn.rows, suppressing.nmsIou)),
    };
    const example = drawn && rows && { ...drawn, rows };
    const unseen = { verification: null, recommendedConfidence: null, example };
    let file: WrittenFile;
    try {
      file = suppressing
        ? await openSuppressingFile(path, suppressing, payload, context)
        : await openWrittenFile(path, payload, context);
    } catch (thrown) {
      if (thrown instanceof RuntimeMissing) return { ...unseen, notVerified: [thrown.message] };
      throw differing(thrown);
    }
    try {
      const comparison = new Comparison(payload);
      await compareAll(file, predicted, { payload, comparison, steps });
      const judged =
        isJudged(payload) && dataset
          ? await judgedBy(
              file,
              { predictor, dataset, frames, comparison, steps, nmsIou },
              { payload, context },
            )
          : { images: [], more: 0 };
      const verification = comparison.end({
        file,
        images: images.length + judged.more,
        known: known + judged.more,
        accuracy: judged.images,
      });
      return {
        verification,
        recommendedConfidence: confidenceOf(payload, judged.images),
        notVerified: isJudged(payload) && !verification.accuracy ? [NO_VALIDATION] : [],
        example,
      };
    } finally {
      await file.close();
    }
  } finally {
    await predictor.dispose();
  }
}

const NO_VALIDATION =
  "average precision: the model has no validation images any more; compare both on yours";

/** What the file gives for images; one that cannot be run is as wrong as one that differs. */
const look = (file: WrittenFile, images: readonly Float32Array[]): Promise<MaskedRows[]> =>
  file.look(images).catch((thrown: unknown) => {
    throw differing(thrown);
  });

/** A file that its runtime refuses is none that is offered. */
function differing(thrown: unknown): TaskFailure {
  if (thrown instanceof TaskFailure) return thrown;
  const why = thrown instanceof Error ? thrown.message : String(thrown);
  return new TaskFailure("export_differs", `the file cannot be run: ${why.slice(0, 300)}`, {
    cause: thrown,
  });
}

function confidenceOf({ precision, model }: Payload, judged: readonly JudgedImage[]) {
  if (precision === "fp32") return OBJECT_SCORE;
  return judged.length > 0 ? recommendedConfidence(judged, model.classes) : null;
}

/** Frames of the model's dataset, by their ids too, and drawn images where those are few. */
async function imagesOf(
  payload: Payload,
  dataset: LabeledImages | null,
  context: RunnerContext,
): Promise<{ images: RgbImage[]; known: number; frames: Set<string> }> {
  const images: RgbImage[] = [];
  const frames = new Set<string>();
  if (dataset) {
    for await (const { id, image } of dataset.read("val", IMAGES, context)) {
      images.push(image);
      frames.add(id);
    }
  }
  if (images.length === 0) images.push(...(await namedImages(payload.images, context)));
  const known = images.length;
  // Nobody labeled the drawn ones: below single precision they say little of the file.
  const drawn = known > 0 && payload.precision !== "fp32" ? 0 : IMAGES - known;
  return { images: [...images, ...sampleImages(drawn)], known, frames };
}

/** What can be read of the frames that the service named; one that is gone is nobody's fault. */
async function namedImages(
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

async function predictedOn(image: RgbImage, predictor: Predictor): Promise<PredictedImage> {
  const laid = await predictor.lay(image);
  const rows = await predictor.rows(laid);
  const { values, prototypes } = rows;
  if (![values, prototypes ?? []].every((all) => all.every((value) => Number.isFinite(value)))) {
    throw new TaskFailure("bad_weights", "the model computes what is no number");
  }
  return { laid, rows };
}

/** Compares all images, by each number of images that the file is run with. */
async function compareAll(
  file: WrittenFile,
  predicted: readonly PredictedImage[],
  { payload, comparison, steps }: { payload: Payload; comparison: Comparison; steps: TaskSteps },
): Promise<void> {
  for (const count of batchesOf(payload)) {
    for (let first = 0; first < predicted.length; first += count) {
      // The last run of a batch is filled up from the start.
      const group = Array.from(
        { length: count },
        (_, at) => predicted[(first + at) % predicted.length] as PredictedImage,
      );
      const answers = await look(
        file,
        group.map(({ laid }) => laid.pixels),
      );
      for (const [at, one] of group.entries()) {
        comparison.add(answers[at] as MaskedRows, one.rows);
        steps.next();
      }
    }
  }
}

/**
 * What the file and the model find on the validation set, an image at a time, and how many of its
 * frames are `more` than those that were compared before: each weighs once in the comparison.
 */
async function judgedBy(
  file: WrittenFile,
  by: {
    predictor: Predictor;
    dataset: LabeledImages;
    frames: ReadonlySet<string>;
    comparison: Comparison;
    steps: TaskSteps;
    nmsIou: number | null;
  },
  { payload, context }: { payload: Payload; context: RunnerContext },
): Promise<{ images: JudgedImage[]; more: number }> {
  const images: JudgedImage[] = [];
  let more = 0;
  const { classes } = payload.model;
  const { predictor, dataset, frames, comparison, steps, nmsIou } = by;
  for await (const { id, image, truths } of dataset.read("val", VALIDATION_IMAGES, context)) {
    const { laid, rows } = await predictedOn(image, predictor);
    const group = Array.from({ length: payload.batch ?? 1 }, () => laid.pixels);
    const [answer] = await look(file, group);
    if (!answer) throw new Error("a file answers for each image");
    if (!frames.has(id)) {
      comparison.add(answer, rows);
      more += 1;
    }
    // As it is served.
    const found = (of: DetectionRows) =>
      predictionsOf(nmsIou === null ? of : suppress(of, nmsIou), {
        classes,
        confidence: SCORE_MIN,
        placement: laid.placement,
      });
    images.push({ truths, file: found(answer), model: found(rows) });
    steps.next();
  }
  return { images, more };
}

/** The differences of all images, and what they come to. */
class Comparison {
  readonly #payload: Payload;
  readonly #masks: MaskComparison | null;
  /** By which each object's box differs, pixels. */
  readonly #boxes: number[] = [];
  readonly #total: Omit<ObjectDifference, "pairs"> = {
    rows: 0,
    objects: 0,
    box: 0,
    score: 0,
    unmatched: 0,
    scores: { file: 0, predictor: 0 },
  };

  constructor(payload: Payload) {
    this.#payload = payload;
    this.#masks = payload.model.task === "segmentation" ? new MaskComparison() : null;
  }

  add(file: MaskedRows, predictor: MaskedRows): void {
    const total = this.#total;
    const { precision, size } = this.#payload;
    const { scores, pairs, ...one } = compared(file, predictor, { precision, size });
    total.rows += one.rows;
    total.objects += one.objects;
    total.unmatched += one.unmatched;
    total.box = Math.max(total.box, one.box);
    total.score = Math.max(total.score, one.score);
    total.scores.file += scores.file;
    total.scores.predictor += scores.predictor;
    for (const { row, partner } of pairs)
      this.#boxes.push(greatestDifference(row.box, partner.box));
    this.#masks?.add({ file, predictor }, pairs, size);
  }

  /** The figures; fails with `export_differs` for those that miss what is allowed. */
  end(looked: {
    file: WrittenFile;
    images: number;
    /** Images that are frames of a dataset. */
    known: number;
    accuracy: readonly JudgedImage[];
  }): ExportVerification {
    const { model, precision, size } = this.#payload;
    const { rows, objects, box, score, unmatched, scores } = this.#total;
    if (rows === 0) {
      throw new TaskFailure(
        "export_differs",
        "no score stands out on any image: nothing to compare",
      );
    }
    const { accuracy, images, known, file } = looked;
    const verification: ExportVerification = {
      runtime: file.runtime,
      device: "cpu",
      images,
      dataset_images: known,
      batches: batchesOf(this.#payload),
      rows,
      objects,
      box_difference_max: box,
      box_tolerance: boxTolerance(precision, size),
      box_difference_p99: p99Difference(this.#boxes),
      score_difference_max: score,
      score_tolerance: EXPORT_TOLERANCES[precision].score,
      confidence_ratio: scores.predictor > 0 ? scores.file / scores.predictor : null,
      accuracy: accuracyOf(accuracy, { classes: model.classes, precision }),
      masks: this.#masks?.end(precision) ?? null,
      engine: null,
    };
    const misses = missesOf(verification, { precision, size });
    if (unmatched > 0) misses.push(`${unmatched} of ${rows} rows have no equal`);
    if (misses.length === 0) return verification;
    throw new TaskFailure(
      "export_differs",
      `the file gives other objects than the model's predictor: ${misses.join(", ")}`,
    );
  }
}

/** Single precision is compared to the last row; below it what people would see. */
function compared(
  file: DetectionRows,
  predictor: DetectionRows,
  { precision, size }: { precision: ExportPrecision; size: readonly [number, number] },
): ObjectDifference {
  const { score } = EXPORT_TOLERANCES[precision];
  const objects = compareObjects(file, predictor, precision === "int8" ? undefined : score);
  if (precision !== "fp32") return objects;
  const tolerance = { box: boxTolerance(precision, size), score };
  const rows = compareRows(file, predictor, tolerance);
  const unmatched = Math.max(rows.unmatched, objects.unmatched);
  return { ...rows, unmatched, scores: objects.scores, pairs: objects.pairs };
}
