// A look at an image that begins before the database has said which model looks: by the one that it
// said the last time. It counts only where the database says the same again, so that a model's move
// holds for the very next request; else it ends, and nothing comes of it. It asks one node, has no
// model of a node leave for another, takes no place that others may soon need, and goes to no node
// of a workspace that the request may not be for.

import type { Caller } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { type ModelRow, modelSource } from "../../models/registry.ts";
import { requestsAtNodes } from "./asks.ts";
import {
  type DirectAnswer,
  type DirectRequest,
  isLineLikely,
  predictEarly,
  type TriedNode,
} from "./direct.ts";
import { makesMasks } from "./masks.ts";
import type { Choice } from "./model-choice.ts";
import type { HeldFile } from "./predictions.ts";

const CHOICES_MAX = 256;
/** Requests at nodes above which none begins: it would often find no room, and ask for nothing. */
const BUSY_REQUESTS = 16;

/** What choices of this isolate came to the last time, by all that decides that; oldest first. */
const lastModels = new Map<string, ModelRow>();

const choiceName = ({ memberships }: Caller, { workspace_id, model_id, alias }: Choice): string =>
  JSON.stringify([[...memberships], workspace_id, model_id, alias]);

/** All of a model that a node's answer depends on, and whose nodes may look. */
const served = (model: ModelRow): string => JSON.stringify([model.workspaceId, modelSource(model)]);

/** What is wanted of an image, and of whom. */
interface EarlyWish extends Pick<DirectRequest, "confidenceMin" | "mask" | "signal"> {
  caller: Caller;
  choice: Choice;
}

/** What a node found, and how long it was asked in milliseconds; or one that was lost with it. */
export type EarlyAnswer = (DirectAnswer & { ms: number }) | TriedNode;

/** A look at the image of one request, before it is known whose it is. */
export class EarlyLook {
  readonly #choice: string;
  readonly #model: ModelRow | null = null;
  readonly #ended = new AbortController();
  readonly #answer: Promise<EarlyAnswer | null> = Promise.resolve(null);
  #isChosen = false;

  /**
   * Begins where a model looked before at what the caller chose, once the image is there. Whoever
   * makes one has to `end` it.
   */
  constructor(
    parts: Parts,
    receiving: Promise<HeldFile> | null,
    { caller, choice, mask = "none", ...wish }: EarlyWish,
  ) {
    this.#choice = choiceName(caller, choice);
    const isOfOneWorkspace = choice.workspace_id !== undefined || caller.memberships.size === 1;
    const model = isOfOneWorkspace ? lastModels.get(this.#choice) : undefined;
    if (!receiving || !model || !makesMasks(model, mask)) return;
    // Without a node nobody would wait for the image.
    if (!isLineLikely(parts, model) || requestsAtNodes(parts.clock) >= BUSY_REQUESTS) return;
    this.#model = model;
    const signal = AbortSignal.any([wish.signal, this.#ended.signal]);
    this.#answer = lookOf(parts, model, receiving, { ...wish, mask, signal });
    // Whoever takes it hears of its failure, and perhaps nobody does.
    this.#answer.catch(() => {});
  }

  /**
   * What a node made of the image, where it looked by the model that was chosen. Null where none
   * had it for that. Fails as `predictEarly` and as receiving the image do.
   */
  by(chosen: ModelRow): Promise<EarlyAnswer | null> {
    this.#isChosen = true;
    lastModels.delete(this.#choice);
    lastModels.set(this.#choice, chosen);
    const [oldest = ""] = lastModels.keys();
    if (lastModels.size > CHOICES_MAX) lastModels.delete(oldest);
    if (this.#model && served(this.#model) === served(chosen)) return this.#answer;
    this.end();
    return Promise.resolve(null);
  }

  /** Ends it if it goes on: nobody takes its answer any more. */
  end(): void {
    // What names no model any more makes no node look again.
    if (!this.#isChosen) lastModels.delete(this.#choice);
    this.#ended.abort();
  }
}

async function lookOf(
  parts: Parts,
  model: ModelRow,
  receiving: Promise<HeldFile>,
  request: Omit<DirectRequest, "image">,
): Promise<EarlyAnswer | null> {
  const { pieces: image } = await receiving;
  request.signal.throwIfAborted();
  const began = parts.clock();
  const answer = await predictEarly(parts, model, { ...request, image });
  return answer && "predictions" in answer ? { ...answer, ms: parts.clock() - began } : answer;
}
