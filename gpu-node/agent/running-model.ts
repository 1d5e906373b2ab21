// The model that predicts now, and what it came to since it was switched to, over restarts: counts
// and scores; and latencies since the agent's start. As heartbeats tell them.

import { SCORE_BINS } from "../../shared/wire/fleet.ts";
import type { Manifest } from "../../shared/wire/rollouts.ts";
import type { RgbImage } from "../media/image.ts";
import type { DeviceModel, Look } from "./device-model.ts";
import { type FiguresFile, nothingCounted, type Tally } from "./figures-file.ts";

/** Inferences whose latencies are remembered. */
const LATENCIES_MAX = 256;
/** Scores below it are noise of rows that nobody is told of. */
const SCORE_MIN = 0.2;
const MINUTE_MS = 60_000;

/** What a model came to. */
export interface InferenceFigures extends Tally {
  latency_p50_ms?: number;
  latency_p95_ms?: number;
}

/** Hears of each inference: how many were good, whether this one was. */
export type OnInference = (isGood: boolean) => void;

/** The model that predicts, if any. */
export class RunningModel {
  readonly #file: FiguresFile;
  #model: DeviceModel | null = null;
  #onInference: OnInference = () => {};
  #counted = nothingCounted();
  #latencies: number[] = [];
  /** When the inferences of the last minute ended, by the monotonic clock. */
  #ended: number[] = [];

  constructor(file: FiguresFile) {
    this.#file = file;
  }

  get model(): DeviceModel | null {
    return this.#model;
  }

  /** Predicts with another model from here on; the former one is closed when it is done. */
  async use(model: DeviceModel | null, onInference: OnInference = () => {}): Promise<void> {
    const former = this.#model;
    this.flush();
    this.#model = model;
    this.#onInference = onInference;
    this.#counted = model ? this.#file.of(model.manifest.version) : nothingCounted();
    this.#latencies = [];
    if (former && former !== model) await former.close();
  }

  /** Keeps on the disk what the model came to. */
  flush(): void {
    if (this.#model) this.#file.keep(this.#model.manifest.version, this.#counted);
  }

  /** The same file goes on under another manifest. */
  rename(manifest: Manifest): void {
    if (this.#model) this.#model.manifest = manifest;
  }

  /** Another one hears of the model's inferences from here on. */
  listen(onInference: OnInference): void {
    this.#onInference = onInference;
  }

  /** Looks at an image, and counts; null where there is no model, or it failed. */
  async look(image: RgbImage): Promise<{ model: DeviceModel; look: Look } | null> {
    const model = this.#model;
    if (!model) return null;
    try {
      const look = await model.look(image);
      if (this.#model === model) this.#count(look);
      return { model, look };
    } catch {
      // Whoever looked at the former one while it was replaced tells nothing of the new one.
      if (this.#model !== model) return null;
      this.#counted.failures += 1;
      this.#onInference(false);
      return null;
    }
  }

  #count({ scores, latencyMs }: Look) {
    this.#counted.inferences += 1;
    this.#latencies.push(latencyMs);
    if (this.#latencies.length > LATENCIES_MAX) this.#latencies.shift();
    const { scores: counts } = this.#counted;
    for (const score of scores) {
      if (score < SCORE_MIN) continue;
      const bin = Math.min(SCORE_BINS - 1, Math.floor(score * SCORE_BINS + 1e-6));
      counts[bin] = (counts[bin] ?? 0) + 1;
    }
    const now = performance.now();
    this.#ended = [...this.#ended.filter((at) => now - at < MINUTE_MS), now];
    this.#onInference(true);
  }

  /** Inferences a second over the last minute. */
  rate(): number {
    const now = performance.now();
    return this.#ended.filter((at) => now - at < MINUTE_MS).length / (MINUTE_MS / 1_000);
  }

  figures(): InferenceFigures {
    const sorted = [...this.#latencies].sort((one, other) => one - other);
    const at = (share: number) => sorted[Math.floor(share * (sorted.length - 1))];
    const [p50, p95] = [at(0.5), at(0.95)];
    return {
      inferences: this.#counted.inferences,
      failures: this.#counted.failures,
      ...(p50 === undefined ? {} : { latency_p50_ms: p50 }),
      ...(p95 === undefined ? {} : { latency_p95_ms: p95 }),
      scores: [...this.#counted.scores],
    };
  }
}
