// A model of the registry, opened: weights → ONNX in memory → a session of the runtime. Takes
// images and gives objects in pixels of the image; serving needs no libtorch.

import { PROTOTYPES } from "../../shared/detector/detector.ts";
import {
  foundIn,
  layPixels,
  type MaskedRows,
  predictionsOf,
} from "../../shared/detector/letterbox.ts";
import type { MaskBounds, MaskedPrediction } from "../../shared/tasks/predict-task.ts";
import type { ModelSource, Prediction } from "../../shared/tasks/tasks.ts";
import { TaskFailure } from "../base/failure.ts";
import { tally } from "../base/tally.ts";
import { deployedModel } from "../export/deployed-model.ts";
import { writeOnnx } from "../export/detector-onnx.ts";
import { readTensors } from "../export/weights-file.ts";
import type { RgbImage } from "../media/image.ts";
import type { Device } from "../onnx/runtime.ts";
import type { ToldForm } from "../segmenters/mask-allowance.ts";
import { Batcher } from "./batcher.ts";
import { type LaidImage, layImage, letterbox, type SquareImage } from "./letterbox.ts";
import { BATCH_MAX } from "./model-memory.ts";
import { Session } from "./model-thread.ts";
import type { MaskJob } from "./prototype-masks.ts";

export interface PredictorSettings {
  cpuThreads: number;
  device: Device;
  /** Images of one run; the device's own number when left out. */
  batchMax?: number;
  /** Whether rows of a segmentation model come with its prototypes. */
  prototypes?: boolean;
  /** Whether rows come before the suppression that the model is served with. */
  unsuppressed?: boolean;
}

/**
 * Batches that are with a model at once. On a CPU the second is laid out while the first is looked
 * at, so that the model does not wait for it; there larger batches gain nothing. A GPU's batches
 * are to grow while one is looked at.
 */
const BATCHES_MAX: Readonly<Record<Device, number>> = { cpu: 2, cuda: 1 };

/** What the model gives for one image. */
interface Rows extends MaskedRows {
  /** Images that were looked at together. */
  batch: number;
}

/** An image to look at, and whether its prototypes are wanted. */
interface ImageWish {
  image: SquareImage | LaidImage;
  prototypes: boolean;
}

/** What was found on an image, and what its masks are made of. */
export interface OutlinedImage {
  predictions: Prediction[];
  source: Omit<MaskJob, "form" | "bounds">;
}

export interface PredictOptions {
  /** Size of the frame, where the image was made smaller from a larger one. */
  of?: { width: number; height: number };
  confidence: number;
  /** Aborts when nobody waits any more: the image is then not looked at. */
  signal?: AbortSignal;
  /** Hears how many images were looked at together. */
  onBatch?: (images: number) => void;
}

export class Predictor {
  readonly model: ModelSource;
  readonly device: Device;
  /** Height and width of what it looks at, pixels. */
  readonly size: readonly [number, number];
  readonly #session: Session;
  /** Whether rows come with prototypes. */
  readonly #prototypes: boolean;
  readonly #batcher: Batcher<ImageWish, Rows>;
  /**
   * The memory of runs that ended, for the next ones: megabytes that are new each time have the
   * process collect its whole heap every few images.
   */
  readonly #spares: Float32Array<ArrayBuffer>[] = [];

  constructor(
    model: ModelSource,
    {
      device,
      batchMax = BATCH_MAX[device],
      prototypes = false,
    }: Omit<PredictorSettings, "cpuThreads">,
    session: Session,
    size: readonly [number, number] = [model.image_size, model.image_size],
  ) {
    this.model = model;
    this.device = device;
    this.size = size;
    this.#session = session;
    this.#prototypes = prototypes && model.task === "segmentation";
    this.#batcher = new Batcher(
      batchMax,
      (images) => {
        tally.observe("vantage_node_batch_images", {}, images.length);
        return this.#look(images);
      },
      { batchesMax: BATCHES_MAX[device] },
    );
  }

  /** It can be used no more. */
  get ended(): boolean {
    return this.#session.ended;
  }

  /** Images that one run may take. */
  get batchMax(): number {
    return this.#batcher.sizeMax;
  }

  /** The objects on an image, surest first. Images that wait together are looked at together. */
  async predict(image: RgbImage, { of, confidence, signal, onBatch }: PredictOptions) {
    const laid = await this.#layImage(image, of);
    const rows = await this.#batcher.add({ image: laid, prototypes: this.#prototypes }, signal);
    onBatch?.(rows.batch);
    const { classes } = this.model;
    return predictionsOf(rows, { classes, confidence, placement: laid.placement });
  }

  /**
   * The same, with what the objects' masks are made of; fails with `invalid_request` where the
   * model makes none.
   */
  async outline(
    image: RgbImage,
    { of, confidence, signal, onBatch }: PredictOptions,
  ): Promise<OutlinedImage> {
    const { classes, task } = this.model;
    if (task !== "segmentation") {
      throw new TaskFailure("invalid_request", "mask: the model detects, and makes boxes only");
    }
    const laid = await this.#layImage(image, of);
    const rows = await this.#batcher.add({ image: laid, prototypes: true }, signal);
    onBatch?.(rows.batch);
    const { placement } = laid;
    const found = foundIn(rows, { classes, confidence, placement });
    const [height, width] = this.size;
    const objects = found.map(({ prediction: { bbox }, row }) => {
      const end = (row + 1) * rows.width;
      return { bbox, coefficients: rows.values.slice(end - PROTOTYPES, end) };
    });
    const values = rows.prototypes ?? new Float32Array();
    return {
      predictions: found.map(({ prediction }) => prediction),
      source: { objects, placement, values, rows: height / 4, columns: width / 4 },
    };
  }

  /** Objects with their masks, of which those beyond the bounds are left out; what is left, too. */
  async masked({ predictions, source }: OutlinedImage, form: ToldForm, bounds: MaskBounds) {
    if (predictions.length === 0) return { predictions: [], leftOut: 0, left: bounds };
    const { masks, leftOut, left } = await this.#session.masks({ ...source, form, bounds });
    const told = predictions.map(
      (one, index): MaskedPrediction => ({ ...one, mask: masks[index] ?? null }),
    );
    return { predictions: told, leftOut, left };
  }

  /** An image as the model looks at it. */
  lay(image: RgbImage, of?: PredictOptions["of"]): Promise<SquareImage> {
    const [height, width] = this.size;
    return letterbox(image, { width, height }, of);
  }

  #layImage(image: RgbImage, of?: PredictOptions["of"]): Promise<LaidImage> {
    const [height, width] = this.size;
    return layImage(image, { width, height }, of);
  }

  /** What the model gives for an image, in pixels of what it looks at. */
  rows(image: SquareImage, signal?: AbortSignal): Promise<Rows> {
    return this.#batcher.add({ image, prototypes: this.#prototypes }, signal);
  }

  /** Looks once at nothing in every size of batch, so that the first image is a fast one. */
  async warm(): Promise<void> {
    const [height, width] = this.size;
    const grey = { data: new Uint8Array(3 * width * height).fill(114), width, height };
    const laid = await this.lay(grey);
    // On a CPU one size is as fast as another at the first time.
    for (let size = 1; size <= (this.device === "cuda" ? this.batchMax : 1); size *= 2) {
      const looked = await this.#look(
        Array.from({ length: size }, () => ({ image: laid, prototypes: false })),
      );
      if (looked.some(({ values }) => !values.every((value) => Number.isFinite(value)))) {
        throw new TaskFailure("bad_weights", "the model computes what is no number");
      }
    }
  }

  dispose(): Promise<void> {
    return this.#session.close();
  }

  /** So many numbers to write a batch into. */
  #pixelsOf(count: number): Float32Array<ArrayBuffer> {
    const spare = this.#spares.pop();
    return spare && spare.length >= count ? spare.subarray(0, count) : new Float32Array(count);
  }

  async #look(looks: readonly ImageWish[]): Promise<Rows[]> {
    const [high, wide] = this.size;
    const each = 3 * high * wide;
    const pixels = this.#pixelsOf(looks.length * each);
    for (const [index, { image }] of looks.entries()) {
      const own = pixels.subarray(index * each, (index + 1) * each);
      if ("pixels" in image) own.set(image.pixels);
      else layPixels(image.rgb, image.placement, { width: wide, height: high }, own);
    }
    const prototypesOf = looks.flatMap(({ prototypes }, index) => (prototypes ? [index] : []));
    const shape = [looks.length, 3, high, wide];
    const run = await this.#session.run(pixels, { shape, prototypesOf });
    this.#spares.push(new Float32Array<ArrayBuffer>(run.pixels.buffer));
    const { values, dims, prototypes } = run;
    const [, count = 0, width = 0] = dims;
    return looks.map((_, index) => ({
      values: values.subarray(index * count * width, (index + 1) * count * width),
      width,
      batch: looks.length,
      prototypes: prototypes[prototypesOf.indexOf(index)] ?? null,
    }));
  }
}

/**
 * Makes a predictor of a model's weights, of the model's own square unless a size is given; fails
 * with `bad_weights` where they are not its own.
 */
export async function openPredictor(
  model: ModelSource,
  weights: Uint8Array,
  settings: PredictorSettings,
  size: readonly [number, number] = [model.image_size, model.image_size],
): Promise<Predictor> {
  if (model.classes.length === 0) throw new TaskFailure("bad_weights", "the model has no classes");
  const deployed = deployedModel(model, readTensors(weights));
  const drawn = settings.unsuppressed ? { ...deployed, nmsIou: null } : deployed;
  const onnx = writeOnnx(drawn, {
    output: "detections",
    size,
    batch: null,
    // It never leaves this process.
    metadata: {},
  });
  const { cpuThreads, device } = settings;
  const session = await Session.open({ onnx, cpuThreads, device });
  return new Predictor(model, settings, session, size);
}
