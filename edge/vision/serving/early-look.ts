// A look at an image that begins before the database has said whose model looks: by the one that
// looked the last time. It counts only where the database says the same again, so that a model's
// move holds for the very next request; else it ends, and has cost a node's time alone.

import type { Caller } from "../auth/scope.ts";
import type { Parts } from "../base/parts.ts";
import type { ModelRow } from "../registry/models.ts";
import {
  type DirectAnswer,
  type DirectRequest,
  isLineBelieved,
  predictDirectly,
} from "./direct.ts";
import type { Choice } from "./model-choice.ts";
import type { HeldFile } from "./predictions.ts";

const CHOICES_MAX = 256;

/** The models that looked last in this isolate, by who chose them and how. */
const lastModels = new Map<string, ModelRow>();

/** All that decides which model a choice names. */
const choiceName = ({ memberships }: Caller, { workspace_id, model_id, alias }: Choice): string =>
  JSON.stringify([[...memberships], workspace_id, model_id, alias]);

/** What is wanted of an image, and of whom. */
export interface EarlyWish extends Pick<DirectRequest, "confidenceMin" | "mask" | "signal"> {
  caller: Caller;
  choice: Choice;
}

/** A look that may turn out to be another model's. */
export interface EarlyLook {
  /** When it had the image, epoch milliseconds; null before. */
  readonly beganAt: number | null;
  /** What a node found; null where no node has a line. It fails as `predictDirectly` does. */
  readonly answer: Promise<DirectAnswer | null>;
}

/** A choice of a model, and the look that began before it was made. */
export class LookAhead {
  readonly #name: string;
  readonly #before: ModelRow | null;
  readonly #ended = new AbortController();
  readonly #look: EarlyLook | null = null;
  #isChosen = false;

  /**
   * Begins a look at an image that is being received, where a model looked before and a node that
   * may be asked has a line. Whoever makes one has to `end` it.
   */
  constructor(
    parts: Parts,
    receiving: Promise<HeldFile> | null,
    { caller, choice, mask = "none", ...wish }: EarlyWish,
  ) {
    this.#name = choiceName(caller, choice);
    this.#before = lastModels.get(this.#name) ?? null;
    const model = this.#before;
    const isAble = model && (mask === "none" || model.task === "segmentation");
    if (!receiving || !isAble || !isLineBelieved(model)) return;
    const signal = AbortSignal.any([wish.signal, this.#ended.signal]);
    const look = async () => {
      const { pieces: image } = await receiving;
      signal.throwIfAborted();
      own.beganAt = parts.clock();
      return predictDirectly(parts, model, { ...wish, image, mask, signal });
    };
    const own = { beganAt: null as number | null, answer: look() };
    // Whoever takes it hears of its failure; nobody may.
    own.answer.catch(() => {});
    this.#look = own;
  }

  /** The look, where it is by the model that was chosen; else it ends here. */
  by(chosen: ModelRow): EarlyLook | null {
    this.#isChosen = true;
    if (lastModels.size >= CHOICES_MAX) lastModels.clear();
    lastModels.set(this.#name, chosen);
    if (JSON.stringify(chosen) === JSON.stringify(this.#before)) return this.#look;
    this.end();
    return null;
  }

  /** Ends the look if it goes on: nobody takes its answer any more. */
  end(): void {
    // Whoever asks again for a model that is none any more has no node look.
    if (!this.#isChosen) lastModels.delete(this.#name);
    this.#ended.abort();
  }
}
