// The models that a process has open: as many as their bytes fit into what they may take, those
// that were used last. One that is worked with is never closed under who works with it.

import type { ModelSource } from "../../shared/tasks/tasks.ts";
import type { Log } from "../base/log.ts";
import { tally } from "../base/tally.ts";
import { unlessAborted } from "../base/turns.ts";
import { readWeights } from "../export/registry-weights.ts";
import type { Cache } from "../objects/cache.ts";
import { presumedDevice, usableDevice } from "../onnx/runtime.ts";
import { estimatedBytes } from "./model-memory.ts";
import { openPredictor, type Predictor, type PredictorSettings } from "./predictor.ts";

/** Each has a thread of its own, and heartbeats name them all. */
const MODELS_MAX = 32;

export interface PredictorsSettings extends PredictorSettings {
  /** What all together may take; one is open however much it takes. */
  bytesMax: number;
}

/** What is open. */
export interface OpenModels {
  modelIds: string[];
  /** The sizes of image, pixels a side, that each is open for, by its id. */
  sizes: Record<string, number[]>;
  /** What they take, estimated. */
  bytes: number;
}

/** A model that is open, is being opened, or waits for room. */
interface KeptModel {
  name: string;
  modelId: string;
  imageSize: number;
  bytes: number;
  predictor: Promise<Predictor>;
  isOpen: boolean;
  users: number;
  /** It takes no new work, and closes when what it has is done. */
  isLeaving: boolean;
  /** Resolves when its memory is free. */
  gone: PromiseWithResolvers<void>;
}

/** A model is open for one size of image: another size of the same is another one. */
const nameOf = ({ model_id, sha256, image_size }: ModelSource) =>
  `${model_id} ${sha256} ${image_size}`;

/** The predictors of a process. */
export class Predictors {
  readonly #cache: Cache;
  readonly #settings: PredictorsSettings;
  readonly #log: Log;
  readonly #onChange: (open: OpenModels) => void;
  /** Those that take work by their names, the one used longest ago first. */
  readonly #kept = new Map<string, KeptModel>();
  /** Those that take memory, also the leaving ones. */
  readonly #held = new Set<KeptModel>();
  /** Whoever waits for room does so behind who came before. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(
    cache: Cache,
    settings: PredictorsSettings,
    log: Log,
    onChange: (open: OpenModels) => void = () => {},
  ) {
    this.#cache = cache;
    this.#settings = settings;
    this.#log = log;
    this.#onChange = onChange;
  }

  /** Works with a model, opened now or still open. */
  use<Result>(
    model: ModelSource,
    signal: AbortSignal,
    work: (predictor: Predictor) => Promise<Result>,
  ): Promise<Result> {
    const name = nameOf(model);
    const kept = this.#kept.get(name) ?? this.#keep(model, name);
    this.#kept.delete(name);
    this.#kept.set(name, kept);
    return this.#work(kept, signal, work);
  }

  /**
   * Works with a second model inside the work with a first one. It waits for no room, since that
   * could be the first one's: what is not open yet is opened for this work alone, and together
   * they may take more than the bound, as a single model may.
   */
  useBeside<Result>(
    model: ModelSource,
    signal: AbortSignal,
    work: (predictor: Predictor) => Promise<Result>,
  ): Promise<Result> {
    const name = nameOf(model);
    const kept = this.#kept.get(name);
    return this.#work(kept?.isOpen ? kept : this.#openBeside(model, name), signal, work);
  }

  async #work<Result>(
    kept: KeptModel,
    signal: AbortSignal,
    work: (predictor: Predictor) => Promise<Result>,
  ): Promise<Result> {
    kept.users += 1;
    try {
      const predictor = await unlessAborted(kept.predictor, signal);
      try {
        return await work(predictor);
      } finally {
        if (predictor.ended) this.#leave(kept);
      }
    } finally {
      kept.users -= 1;
      if (kept.isLeaving && kept.users === 0) this.#close(kept);
    }
  }

  /** Whether work with a model would begin at once. */
  isOpen(model: ModelSource): boolean {
    return this.#kept.get(nameOf(model))?.isOpen === true;
  }

  /** Whether work with a model would have no other one leave. */
  hasRoomFor(model: ModelSource): boolean {
    return this.#kept.has(nameOf(model)) || this.#fits(this.#bytesOf(model));
  }

  /** Closes all; for the end of a process that goes on without them. */
  async clear(): Promise<void> {
    for (const kept of [...this.#kept.values()]) this.#leave(kept);
    await Promise.all([...this.#held].map(({ gone }) => gone.promise));
  }

  #bytesOf(model: ModelSource): number {
    return estimatedBytes(model, presumedDevice(this.#settings.device));
  }

  #fits(bytes: number): boolean {
    const held = [...this.#held].reduce((sum, one) => sum + one.bytes, 0);
    if (this.#held.size === 0) return true;
    return this.#held.size < MODELS_MAX && held + bytes <= this.#settings.bytesMax;
  }

  /** A model that is opened as soon as there is room for it. */
  #keep(model: ModelSource, name: string): KeptModel {
    const { promise: predictor, resolve, reject } = Promise.withResolvers<Predictor>();
    const kept = this.#unopened(model, name, predictor);
    this.#turn = this.#turn.then(() => this.#makeRoom(kept));
    this.#turn.then(() => this.#open(kept, model)).then(resolve, reject);
    // Whoever waits for it hears of a failure; it may be that nobody does any more.
    predictor.catch(() => {});
    return kept;
  }

  /** A model that is opened at once, whatever else is; it closes when its work is done. */
  #openBeside(model: ModelSource, name: string): KeptModel {
    const { promise: predictor, resolve, reject } = Promise.withResolvers<Predictor>();
    const kept = this.#unopened(model, name, predictor);
    kept.isLeaving = true;
    this.#held.add(kept);
    this.#open(kept, model).then(resolve, reject);
    return kept;
  }

  #unopened(model: ModelSource, name: string, predictor: Promise<Predictor>): KeptModel {
    return {
      name,
      modelId: model.model_id,
      imageSize: model.image_size,
      bytes: this.#bytesOf(model),
      predictor,
      isOpen: false,
      users: 0,
      isLeaving: false,
      gone: Promise.withResolvers(),
    };
  }

  /** Closes what was used longest ago until a model fits, and takes its room. */
  async #makeRoom(kept: KeptModel): Promise<void> {
    while (!this.#fits(kept.bytes)) {
      const held = [...this.#kept.values()].filter((one) => this.#held.has(one));
      // First what nobody works with. Else the oldest takes no more work, and is waited for.
      const next = held.find(({ users }) => users === 0) ?? held[0];
      const leaving = next ?? [...this.#held][0];
      if (!leaving) return;
      if (!leaving.isLeaving) this.#leave(leaving);
      await leaving.gone.promise;
    }
    this.#held.add(kept);
  }

  /** Whoever gives up waiting leaves it to the others: it is opened for all of them. */
  async #open(kept: KeptModel, model: ModelSource): Promise<Predictor> {
    try {
      const started = performance.now();
      const log = this.#log;
      const device = await usableDevice(this.#settings.device, (level, event, fields) =>
        log[level](event, fields),
      );
      const weights = await readWeights({ cache: this.#cache, log }, model);
      const predictor = await openPredictor(model, weights, { ...this.#settings, device });
      const seconds = (performance.now() - started) / 1_000;
      const { model_id, variant, image_size } = model;
      const { bytes } = kept;
      log.info("model_opened", { model_id, variant, image_size, device, seconds, bytes });
      tally.count("vantage_node_model_loads_total", { result: "opened" });
      tally.observe("vantage_node_model_load_duration_seconds", {}, seconds);
      kept.isOpen = true;
      this.#tell();
      return predictor;
    } catch (thrown) {
      tally.count("vantage_node_model_loads_total", { result: "failed" });
      this.#forget(kept);
      this.#free(kept);
      throw thrown;
    }
  }

  /** Takes no more work to a model, and closes it when it has none. */
  #leave(kept: KeptModel) {
    this.#forget(kept);
    if (kept.isLeaving) return;
    kept.isLeaving = true;
    if (kept.isOpen) this.#tell();
    if (kept.users === 0) this.#close(kept);
  }

  #forget(kept: KeptModel) {
    if (this.#kept.get(kept.name) === kept) this.#kept.delete(kept.name);
  }

  #close(kept: KeptModel) {
    kept.predictor
      // One that could not be opened has nothing to close, and whoever asked heard of it.
      .then(
        (opened) => opened.dispose(),
        () => {},
      )
      .catch((error: unknown) => this.#log.warning("model_not_closed", { error }))
      .finally(() => this.#free(kept));
  }

  #free(kept: KeptModel) {
    this.#held.delete(kept);
    kept.gone.resolve();
  }

  #tell() {
    const open = [...this.#kept.values()].filter(({ isOpen }) => isOpen);
    const sizes: OpenModels["sizes"] = {};
    for (const { modelId, imageSize } of open) {
      sizes[modelId] = [...(sizes[modelId] ?? []), imageSize];
    }
    const bytes = open.reduce((sum, one) => sum + one.bytes, 0);
    this.#onChange({ modelIds: Object.keys(sizes), sizes, bytes });
  }
}
