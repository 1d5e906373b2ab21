// What a run sends to the store: now and then a checkpoint, beside the training, and at its end the
// model, images and the log. An upload that fails is tried again with the next checkpoint; the
// last one must arrive.

import * as fs from "node:fs/promises";
import type { Checkpoint } from "../../shared/tasks/train-task.ts";
import type { ArtifactObject } from "../../shared/wire/training.ts";
import type { TaskContext } from "../objects/task-context.ts";
import { uploadFile } from "../objects/transfer.ts";
import { pack } from "./checkpoint-archive.ts";
import { bestScores, bestWeights, LAST, type RunState } from "./checkpoints.ts";
import type { RunFolder } from "./run-folder.ts";

/** Uploads of checkpoints take at most this share of the time. */
const SHARE = 0.1;
/** After one that did not arrive, not every short epoch is for another. */
const AGAIN_MS = 30_000;

export interface UploadOptions {
  folder: RunFolder;
  context: Pick<TaskContext, "address" | "log">;
  /** Between two checkpoints. */
  everyMs: number;
  onUploaded(checkpoint: Checkpoint): void;
}

export class CheckpointUploads {
  readonly #options: UploadOptions;
  #running: Promise<void> | null = null;
  #dueAt: number;
  #last: Checkpoint | null = null;

  constructor(options: UploadOptions) {
    this.#options = options;
    this.#dueAt = performance.now() + options.everyMs;
  }

  /** The newest that arrived. */
  get last(): Checkpoint | null {
    return this.#last;
  }

  /**
   * Begins an upload where it is time for one; the training goes on meanwhile, and also where it
   * does not arrive.
   */
  async offer(state: RunState): Promise<void> {
    if (this.#running || performance.now() < this.#dueAt) return;
    const failed = (thrown: unknown) => {
      this.#dueAt = performance.now() + Math.max(AGAIN_MS, this.#options.everyMs / 10);
      this.#options.context.log.warning("checkpoint_not_uploaded", { error: thrown });
    };
    try {
      const packed = await this.#pack(state);
      this.#running = this.#send(packed)
        .catch(failed)
        .finally(() => {
          this.#running = null;
        });
    } catch (thrown) {
      failed(thrown);
    }
  }

  /** Uploads the newest checkpoint, now. Fails where it does not arrive. */
  async finish(state: RunState): Promise<Checkpoint> {
    await this.#running;
    const { epoch, batch } = state;
    const last = this.#last;
    if (last && last.epoch === epoch && last.batch === batch) return last;
    await this.#send(await this.#pack(state));
    if (!this.#last) throw new Error("a checkpoint was sent and is not known");
    return this.#last;
  }

  /** Waits for what is under way. */
  async idle(): Promise<void> {
    await this.#running;
  }

  async #pack(state: RunState) {
    const { folder } = this.#options;
    const path = folder.file("checkpoint.bundle");
    const best = state.best?.epoch;
    const own = (name: string) => ({ name: name.replace("weights/", ""), path: folder.file(name) });
    await pack(path, [
      own(LAST),
      ...(best === undefined ? [] : [own(bestWeights(best)), own(bestScores(best))]),
    ]);
    const { epoch, batch } = state;
    return { path, epoch, batch };
  }

  async #send({ path, epoch, batch }: { path: string; epoch: number; batch: number }) {
    const { context, everyMs, onUploaded } = this.#options;
    const started = performance.now();
    const { size: bytes } = await fs.stat(path);
    const bundle = { name: "checkpoint.bundle", contentType: "application/octet-stream" } as const;
    const key = await uploadFile(context, bundle, path);
    const now = performance.now();
    this.#dueAt = now + Math.max(everyMs, (now - started) / SHARE);
    this.#last = { key, bytes, epoch, batch };
    onUploaded(this.#last);
  }
}

/** The type of a run's file by its name. */
const typeOf = (name: string) => {
  if (name.endsWith(".png")) return "image/png" as const;
  if (name.endsWith(".jpg")) return "image/jpeg" as const;
  if (name.endsWith(".csv")) return "text/csv" as const;
  if (name.endsWith(".json")) return "application/json" as const;
  return name.endsWith(".log") ? ("text/plain" as const) : ("application/octet-stream" as const);
};

/** Uploads a file of the run's under its own name. */
export async function uploadArtifact(
  context: Pick<TaskContext, "address">,
  path: string,
  name: string,
): Promise<ArtifactObject> {
  const content_type = typeOf(name);
  const { size: bytes } = await fs.stat(path);
  const key = await uploadFile(context, { name, contentType: content_type }, path);
  return { name, key, bytes, content_type };
}
