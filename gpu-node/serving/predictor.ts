// A model of the registry, opened: weights → ONNX in memory → a session of the runtime. Takes
// images and gives objects in pixels of the image. A process keeps the two models that were
// used last; serving needs no libtorch.

import { type DetectionRows, predictionsOf } from "../../shared/letterbox.ts";
import type { ModelSource } from "../../shared/tasks.ts";
import { TaskFailure } from "../base/failure.ts";
import type { Log } from "../base/log.ts";
import { tally } from "../base/tally.ts";
import { deployedModel } from "../export/deployed-model.ts";
import { writeOnnx } from "../export/detector-onnx.ts";
import { readWeights } from "../export/registry-weights.ts";
import { readTensors } from "../export/weights-file.ts";
import type { RgbImage } from "../media/image.ts";
import type { Cache } from "../objects/cache.ts";
import { type Device, usableDevice } from "../onnx/runtime.ts";
import { Batcher } from "./batcher.ts";
import { letterbox, type SquareImage } from "./letterbox.ts";
import { Session } from "./model-thread.ts";

/** Images of one run. On a CPU more gain nothing, and who comes next waits for all of them. */
const BATCH_MAX: Readonly<Record<Device, number>> = { cpu: 2, cuda: 16 };

export interface PredictorSettings {
  cpuThreads: number;
  device: Device;
}

/** What the model gives for one image. */
interface Rows extends DetectionRows {
  /** Images that were looked at together. */
  batch: number;
}

export interface PredictOptions {
  /** Of the frame, where the image was made smaller from a larger one. */
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
  readonly #batcher: Batcher<SquareImage, Rows>;

  constructor(
    model: ModelSource,
    device: Device,
    session: Session,
    size: readonly [number, number] = [model.image_size, model.image_size],
  ) {
    this.model = model;
    this.device = device;
    this.size = size;
    this.#session = session;
    this.#batcher = new Batcher(BATCH_MAX[device], (images) => {
      tally.observe("vantage_node_batch_images", {}, images.length);
      return this.#look(images);
    });
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
    const laid = await this.lay(image, of);
    const rows = await this.rows(laid, signal);
    onBatch?.(rows.batch);
    const { classes } = this.model;
    return predictionsOf(rows, { classes, confidence, placement: laid.placement });
  }

  /** An image as the model looks at it. */
  lay(image: RgbImage, of?: PredictOptions["of"]): Promise<SquareImage> {
    const [height, width] = this.size;
    return letterbox(image, { width, height }, of);
  }

  /** What the model gives for an image, in pixels of what it looks at. */
  rows(image: SquareImage, signal?: AbortSignal): Promise<Rows> {
    return this.#batcher.add(image, signal);
  }

  /** Looks once at nothing in every size of batch, so that the first image is a fast one. */
  async warm(): Promise<void> {
    const [height, width] = this.size;
    const grey = { data: new Uint8Array(3 * width * height).fill(114), width, height };
    const laid = await this.lay(grey);
    // On a CPU one size is as fast as another at the first time.
    for (let size = 1; size <= (this.device === "cuda" ? this.batchMax : 1); size *= 2) {
      const looked = await this.#look(Array.from({ length: size }, () => laid));
      if (looked.some(({ values }) => !values.every((value) => Number.isFinite(value)))) {
        throw new TaskFailure("bad_weights", "the model computes what is no number");
      }
    }
  }

  dispose(): Promise<void> {
    return this.#session.close();
  }

  async #look(images: readonly SquareImage[]): Promise<Rows[]> {
    const [high, wide] = this.size;
    const each = 3 * high * wide;
    const pixels = new Float32Array(images.length * each);
    for (const [index, image] of images.entries()) pixels.set(image.pixels, index * each);
    const { values, dims } = await this.#session.run(pixels, [images.length, 3, high, wide]);
    const [, count = 0, width = 0] = dims;
    return images.map((_, index) => ({
      values: values.subarray(index * count * width, (index + 1) * count * width),
      width,
      batch: images.length,
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
  { cpuThreads, device }: PredictorSettings,
  size: readonly [number, number] = [model.image_size, model.image_size],
): Promise<Predictor> {
  if (model.classes.length === 0) throw new TaskFailure("bad_weights", "the model has no classes");
  const onnx = writeOnnx(deployedModel(model, readTensors(weights)), {
    output: "detections",
    size,
    batch: null,
    // It never leaves this process.
    metadata: {},
  });
  return new Predictor(model, device, await Session.open({ onnx, cpuThreads, device }), size);
}

/** What is promised, unless the signal comes first. */
function unlessAborted<Result>(promised: Promise<Result>, signal: AbortSignal): Promise<Result> {
  return new Promise((resolve, reject) => {
    const end = () => reject(signal.reason);
    if (signal.aborted) end();
    signal.addEventListener("abort", end, { once: true });
    promised.then(resolve, reject).finally(() => signal.removeEventListener("abort", end));
  });
}

/** A model is open for one size of image: another size of the same is another one. */
const nameOf = ({ model_id, sha256, image_size }: ModelSource) =>
  `${model_id} ${sha256} ${image_size}`;

interface OpenModel {
  predictor: Promise<Predictor>;
  users: number;
  evicted: boolean;
}

/** The predictors of a process: those used last stay open, what is in use is never closed. */
export class Predictors {
  static readonly MODELS_MAX = 2;
  readonly #cache: Cache;
  readonly #settings: PredictorSettings;
  readonly #log: Log;
  readonly #onChange: (modelIds: string[]) => void;
  /** The one used longest ago first. */
  readonly #kept = new Map<string, OpenModel>();
  readonly #open = new Set<string>();

  constructor(
    cache: Cache,
    settings: PredictorSettings,
    log: Log,
    onChange: (modelIds: string[]) => void = () => {},
  ) {
    this.#cache = cache;
    this.#settings = settings;
    this.#log = log;
    this.#onChange = onChange;
  }

  /** Works with a model, opened now or still open. */
  async use<Result>(
    model: ModelSource,
    signal: AbortSignal,
    work: (predictor: Predictor) => Promise<Result>,
  ): Promise<Result> {
    const name = nameOf(model);
    const kept = this.#kept.get(name) ?? {
      predictor: this.#opened(model, name),
      users: 0,
      evicted: false,
    };
    this.#kept.delete(name);
    this.#kept.set(name, kept);
    kept.users += 1;
    try {
      this.#makeRoom();
      const predictor = await unlessAborted(kept.predictor, signal);
      try {
        return await work(predictor);
      } finally {
        if (predictor.ended) this.#drop(name, kept);
      }
    } finally {
      kept.users -= 1;
      if (kept.evicted && kept.users === 0) this.#close(kept);
    }
  }

  /** Whether work with a model would begin at once. */
  isOpen(model: ModelSource): boolean {
    return this.#open.has(nameOf(model));
  }

  /** Whether work with a model would cost no other one its place. */
  hasRoomFor(model: ModelSource): boolean {
    return this.#kept.has(nameOf(model)) || this.#kept.size < Predictors.MODELS_MAX;
  }

  /** Closes all; for the end of a process that goes on without them. */
  async clear(): Promise<void> {
    const all = [...this.#kept.values()];
    this.#kept.clear();
    await Promise.all(
      all.map(async ({ predictor }) => (await predictor.catch(() => null))?.dispose()),
    );
    this.#open.clear();
    this.#onChange([]);
  }

  /** Whoever gives up waiting leaves it to the others: it is opened for all of them. */
  async #opened(model: ModelSource, name: string): Promise<Predictor> {
    try {
      const started = performance.now();
      const log = this.#log;
      const device = usableDevice(this.#settings.device, (level, event, fields) =>
        log[level](event, fields),
      );
      const weights = await readWeights({ cache: this.#cache, log }, model);
      const predictor = await openPredictor(model, weights, { ...this.#settings, device });
      const seconds = (performance.now() - started) / 1_000;
      const { model_id, variant, image_size } = model;
      log.info("model_opened", { model_id, variant, image_size, device, seconds });
      tally.count("vantage_node_model_loads_total", { result: "opened" });
      tally.observe("vantage_node_model_load_duration_seconds", {}, seconds);
      if (this.#kept.has(name)) this.#open.add(name);
      this.#tell();
      return predictor;
    } catch (thrown) {
      tally.count("vantage_node_model_loads_total", { result: "failed" });
      this.#kept.delete(name);
      throw thrown;
    }
  }

  #makeRoom() {
    for (const [name, kept] of this.#kept) {
      if (this.#kept.size <= Predictors.MODELS_MAX) return;
      this.#drop(name, kept);
      if (kept.users === 0) this.#close(kept);
    }
  }

  #drop(name: string, kept: OpenModel) {
    if (this.#kept.get(name) === kept) this.#kept.delete(name);
    this.#open.delete(name);
    kept.evicted = true;
    this.#tell();
  }

  #close({ predictor }: OpenModel) {
    predictor
      .then((opened) => opened.dispose())
      .catch((error: unknown) => this.#log.warning("model_not_closed", { error }));
  }

  #tell() {
    const ids = [...this.#open].map((name) => name.split(" ")[0] as string);
    this.#onChange([...new Set(ids)]);
  }
}
