// What a run writes beside its training: checkpoints, and the best weights. The engine copies them
// between two steps and makes the files while the next ones are done. One write at a time, and
// checkpoints take a limited share of the time: a crash costs an epoch, or twenty times what a
// checkpoint takes.

import type { Engine } from "../../native/index.d.ts";
import {
  type BestWeights,
  beginCheckpoint,
  bestFiles,
  bestWeights,
  keepPrevious,
  type Position,
  pruneBest,
  type RunState,
  saveScores,
} from "./checkpoints.ts";
import type { RunFolder } from "./run-folder.ts";

/** Share of the time that checkpoints may take; those that have to be written do not count. */
export const CHECKPOINT_SHARE = 0.05;

export interface WriterParts {
  engine: Pick<Engine, "checkpoint" | "save" | "interrupt">;
  folder: RunFolder;
  /** A checkpoint is there for good, and stays the newest one until this resolves. */
  onCheckpoint(state: RunState): Promise<void>;
  /** Milliseconds of a clock that is never set back. */
  now?: () => number;
}

export interface WriteWish {
  /** Weights that are the best so far: they are written whenever there are such. */
  best?: BestWeights | null;
  /** The checkpoint is written whatever it costs. */
  must?: boolean;
}

export class CheckpointWriter {
  readonly #parts: WriterParts;
  readonly #now: () => number;
  #writing: Promise<void> | null = null;
  #failure: { thrown: unknown } | null = null;
  #dueAt = Number.NEGATIVE_INFINITY;
  #position: Position | null = null;
  /** Epochs whose best weights checkpoints of this folder refer to. */
  #referred: (number | undefined)[] = [];

  constructor(parts: WriterParts) {
    this.#parts = parts;
    this.#now = parts.now ?? (() => performance.now());
  }

  /** Whether the newest checkpoint, or the one that is being written, is of this position. */
  isAt({ epoch, batch }: Position): boolean {
    return this.#position?.epoch === epoch && this.#position.batch === batch;
  }

  /**
   * Has the engine copy what is to be written, as of now, and begins to write it. Without a wish
   * that may come to nothing: while another write is under way, and until the share allows one.
   * The first one is due, and waited for where there is none yet: without it a crash costs all.
   * Fails with what an earlier write failed with.
   */
  async write(state: RunState, { best = null, must = false }: WriteWish = {}): Promise<void> {
    const { folder, engine } = this.#parts;
    if (this.#writing && !best && !must) return;
    await this.finish();
    const isDue = must || this.#now() >= this.#dueAt;
    if (!best && !isDue) return;
    const began = this.#now();
    if (best) await saveScores(folder, bestFiles(best.epoch), best.evaluation);
    const kept = isDue ? await keepPrevious(folder) : null;
    // Both calls are made before the engine gets another. Files appear in their order.
    const files: Promise<unknown>[] = [];
    if (best) files.push(engine.save(folder.file(bestWeights(best.epoch)), best.metadata));
    if (isDue) files.push(beginCheckpoint(engine, folder, state));
    // The training goes on, and changes the state.
    const copy = isDue ? { ...state } : null;
    if (copy) {
      this.#position = { epoch: copy.epoch, batch: copy.batch };
      this.#referred = [copy.best?.epoch, kept?.best?.epoch];
    }
    this.#writing = this.#complete(Promise.all(files), { best, copy, began });
    if (copy && !kept) await this.finish();
  }

  /** Waits for what is under way. Fails with what it, or an earlier write, failed with. */
  async finish(): Promise<void> {
    await this.idle();
    if (this.#failure) throw this.#failure.thrown;
  }

  /** Waits for what is under way, whatever comes of it. */
  async idle(): Promise<void> {
    await this.#writing;
  }

  /** Never fails: whoever writes or finishes next hears of it, within a step. */
  async #complete(
    files: Promise<unknown>,
    { best, copy, began }: { best: BestWeights | null; copy: RunState | null; began: number },
  ) {
    const { folder, engine, onCheckpoint } = this.#parts;
    try {
      await files;
      const ended = this.#now();
      await pruneBest(folder, [best?.epoch, ...this.#referred]);
      if (!copy) return;
      this.#dueAt = ended + (ended - began) * (1 / CHECKPOINT_SHARE - 1);
      await onCheckpoint(copy);
    } catch (thrown) {
      this.#failure = { thrown };
      engine.interrupt();
    } finally {
      this.#writing = null;
    }
  }
}
