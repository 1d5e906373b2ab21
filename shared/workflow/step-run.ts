// One step at work on its elements: equal work of a run is done once, that of other runs is taken
// from the cache, and what a block hands back is held against its entry before others see it.

import {
  type AnsweringModel,
  BlockFailure,
  type BlockResult,
  type Effect,
  type RunBlock,
} from "./block.ts";
import type { ResultCache, StoredResult, StoredValue } from "./cache.ts";
import { type StepElement, VOLATILE } from "./elements.ts";
import { WorkflowFailure } from "./failure.ts";
import { itemOf, type Kind } from "./kinds.ts";
import { contentKey } from "./literals.ts";
import { isShallow, NESTING_MAX } from "./nesting.ts";
import type { KeyedValue, PlannedStep } from "./plan.ts";
import { bytesOf } from "./value-size.ts";
import { isImage } from "./wire.ts";

/** Different warnings of one step; more of them tell nobody more. */
const WARNINGS_MAX = 20;
/** Characters of a text whose key is its content. */
const TEXT_KEY_MAX = 62;
const BYTES_PER_PIXEL = 3;
/** Milliseconds and elements between pauses: a clock may stand still while nobody waits. */
const PAUSE_MS = 20;
const PAUSE_ELEMENTS = 500;
/** Kinds whose values may hold others, to any depth. */
const OPEN_KINDS: ReadonlySet<Kind> = new Set<Kind>(["any", "json", "list"]);

export interface RunLimits {
  /** Elements that a step may work on. */
  elements: number;
  /** Elements that are worked on at once, of all steps together. */
  concurrency: number;
  /** Milliseconds that a run may take. */
  ms: number;
  /** Bytes of all images that the steps of a run make, decoded at three bytes a pixel. */
  imageBytes: number;
  /**
   * Bytes of all other values that they make, ask for outside and remember: a value that is only
   * handed on counts once. And of the outputs, each as often as it is named.
   */
  valueBytes: number;
}

/** On what terms a host runs blocks. */
export interface RunTerms {
  /** What this host runs, by type; of other blocks, what their entries have. */
  runs: ReadonlyMap<string, RunBlock>;
  /** Time of the frame or request, milliseconds. */
  now: number;
  limits: RunLimits;
  /**
   * By the names that steps may call models, what tells one that answers otherwise: what a name
   * stands for may change, and how the same model is used.
   */
  modelKeys?: ReadonlyMap<string, string>;
  cache?: ResultCache;
  /** Whose results these are: runs of another one share none of them. */
  cachePrefix?: string;
  /** Milliseconds, for the times of steps and the limit. */
  clock: () => number;
}

/** An effect with the step and the element that it is of, by indexes, outermost batch first. */
export interface StepEffect extends Effect {
  step: string;
  element: number[];
}

/** What the steps of one run share. */
export interface RunContext {
  terms: RunTerms;
  signal: AbortSignal;
  /** Elements that may be begun, and what waits for one to end. */
  free: number;
  waiting: (() => void)[];
  /** By key: what was made in this run, or is being made. */
  results: Map<string, Promise<StoredResult> | StoredResult>;
  /** Images and other values that are counted. */
  counted: WeakSet<object>;
  imageBytes: number;
  valueBytes: number;
  /** By the clock of the request. */
  deadline: number;
  /** That others of the process get their turn: a cancel, a heartbeat, the limit's own timer. */
  pauses: Pauses;
  /** What tells results: by content where other runs share them, else within the run alone. */
  keyOf: (parts: readonly unknown[]) => string;
}

/**
 * Keys of results that no other run sees: equal parts have one key, which takes a fraction of the
 * time of a digest. No key of a value begins as these do.
 */
export function keysOfRun(): RunContext["keyOf"] {
  const keys = new Map<string, string>();
  return (parts) => {
    const text = JSON.stringify(parts);
    const key = keys.get(text) ?? `@${keys.size}`;
    keys.set(text, key);
    return key;
  };
}

/** Lets the process do other things, once work that waits for nothing has gone on for a while. */
export class Pauses {
  readonly #clock: () => number;
  #since: number;
  #done = 0;
  #current: Promise<void> | null = null;

  constructor(clock: () => number) {
    this.#clock = clock;
    this.#since = clock();
  }

  /** The pause that must be waited for before the next element; null where none is due. */
  next(): Promise<void> | null {
    if (this.#current) return this.#current;
    const isDue = ++this.#done >= PAUSE_ELEMENTS || this.#clock() - this.#since >= PAUSE_MS;
    if (!isDue) return null;
    const pause = new Promise<void>((resolve) => {
      setTimeout(() => {
        this.#current = null;
        this.#done = 0;
        this.#since = this.#clock();
        resolve();
      }, 0);
    });
    this.#current = pause;
    return pause;
  }
}

interface Element {
  path: readonly number[];
  inputs: NonNullable<StepElement["inputs"]>;
}

export class ElementRun {
  readonly models = new Map<string, AnsweringModel>();
  readonly warnings = new Set<string>();
  readonly effects: StepEffect[] = [];
  cacheHits = 0;
  /** What the last element has left of it. */
  state: unknown;
  readonly #step: PlannedStep;
  readonly #context: RunContext;
  readonly #block: RunBlock;
  /** What the last step or run has left of it. */
  readonly #stateBefore: unknown;
  /** Elements made, by port. */
  readonly #elements = new Map<string, number>();

  constructor(step: PlannedStep, context: RunContext, state: unknown) {
    const { id, block } = step;
    const run = context.terms.runs.get(block.type) ?? block.run;
    if (!run) {
      const detail = `${block.type} does not run here`;
      throw new WorkflowFailure("step_failed", detail, { step: id });
    }
    this.#step = step;
    this.#context = context;
    this.#block = run;
    this.#stateBefore = state;
    this.state = state;
  }

  /** Whether each element sees what the one before has left, or does something but once. */
  get isOrdered(): boolean {
    return this.#step.block.purity !== "pure";
  }

  /** What an element comes to; no promise where the block needs none. */
  result(element: Element, index: number): StoredResult | Promise<StoredResult> {
    this.#checkTime();
    const { results } = this.#context;
    const key = this.#keyOf(element.inputs, index);
    if (this.isOrdered) return this.#admitted(element, key);
    const known = results.get(key) ?? this.#ofOtherRuns(key);
    if (known instanceof Promise) return known.then((result) => this.#hit(result));
    if (known) return this.#hit(known);
    const made = this.#admitted(element, key);
    results.set(key, made);
    if (!(made instanceof Promise)) return made;
    return made.then((result) => {
      results.set(key, result);
      return result;
    });
  }

  #hit(result: StoredResult): StoredResult {
    this.cacheHits++;
    this.#note(result);
    return result;
  }

  #note({ models, warnings }: Pick<StoredResult, "models" | "warnings">): void {
    for (const model of models) this.models.set(`${model.asked} ${model.model_id}`, model);
    for (const warning of warnings)
      if (this.warnings.size < WARNINGS_MAX) this.warnings.add(warning);
  }

  #checkTime(): void {
    const { terms, signal, deadline } = this.#context;
    signal.throwIfAborted();
    if (terms.clock() <= deadline) return;
    const detail = `the run took longer than ${terms.limits.ms} ms`;
    throw new WorkflowFailure("limit", detail, { step: this.#step.id });
  }

  #keyOf(inputs: Element["inputs"], index: number): string {
    const { terms, keyOf } = this.#context;
    const { modelKeys } = terms;
    if (this.isOrdered) return `${VOLATILE}${this.#step.id}/${index}`;
    let isVolatile = false;
    const keys = this.#step.inputs.map(({ port, kind }) => {
      const input = inputs.get(port);
      if (input === undefined) return null;
      if (input === null) return [port, null];
      isVolatile ||= input.key.startsWith(VOLATILE);
      if ((itemOf(kind) ?? kind) !== "model") return [port, input.key];
      // What a model's name stands for may change from run to run.
      const models = [input.value].flat().map((name) => modelKeys?.get(String(name)) ?? null);
      isVolatile ||= models.includes(null);
      return [port, input.key, models];
    });
    return `${isVolatile ? VOLATILE : ""}${keyOf([this.#step.key, keys])}`;
  }

  get #isKept(): boolean {
    const { cost } = this.#step.block;
    return this.#context.terms.cache !== undefined && cost !== "free";
  }

  #ofOtherRuns(key: string): StoredResult | null {
    if (!this.#isKept || key.startsWith(VOLATILE)) return null;
    const { cache, cachePrefix, clock } = this.#context.terms;
    const result = cache?.get(`${cachePrefix ?? ""}/${key}`, clock()) ?? null;
    if (result) this.#context.results.set(key, result);
    return result;
  }

  /** Runs the block as soon as the run may begin another element. */
  #admitted(element: Element, key: string): StoredResult | Promise<StoredResult> {
    const context = this.#context;
    if (context.free === 0) {
      const turn = new Promise<void>((resolve) => context.waiting.push(resolve));
      return turn.then(() => this.#run(element, key));
    }
    context.free--;
    return this.#run(element, key);
  }

  #run(element: Element, key: string): StoredResult | Promise<StoredResult> {
    let made: BlockResult | Promise<BlockResult> | null = null;
    try {
      this.#checkTime();
      made = this.#block({
        inputs: Object.fromEntries(
          [...element.inputs].map(([port, input]) => [port, input === null ? null : input.value]),
        ),
        parameters: this.#step.parameters,
        state: this.state,
        now: this.#context.terms.now,
        signal: this.#context.signal,
      });
      if (!(made instanceof Promise)) return this.#taken(made, element, key);
    } catch (error) {
      throw this.#failure(error, element);
    } finally {
      if (!(made instanceof Promise)) this.#release();
    }
    return made
      .finally(() => this.#release())
      .then((result) => this.#taken(result, element, key))
      .catch((error) => {
        throw this.#failure(error, element);
      });
  }

  /** Hands what an element was admitted by to the next that waits. */
  #release(): void {
    const next = this.#context.waiting.shift();
    if (next) next();
    else this.#context.free++;
  }

  #failure(error: unknown, { path }: Element): WorkflowFailure {
    if (error instanceof WorkflowFailure) return error;
    // Only what a block says on purpose is for users; anything else may hold what is not theirs.
    const detail = error instanceof BlockFailure ? error.message : "the block failed";
    const about = { step: this.#step.id, element: path, cause: error };
    return new WorkflowFailure("step_failed", detail, about);
  }

  /** A block's result, held against its entry and given its keys. */
  #taken(made: BlockResult, element: Element, key: string): StoredResult {
    const values = new Map<unknown, string>();
    for (const input of element.inputs.values())
      if (typeof input?.value === "object") values.set(input.value, input.key);
    const keyed = (value: unknown, suffix: string): KeyedValue | null => {
      if (value === null) return null;
      return { value, key: values.get(value) ?? primitiveKey(value) ?? `${key}/${suffix}` };
    };
    let batch: number | null = null;
    const outputs = this.#step.outputs.map(({ port, kind, deepens }, index) => {
      const value = Object.hasOwn(made.outputs, port) ? made.outputs[port] : undefined;
      const what = `the output ${port}`;
      if (value === null || !deepens) {
        this.#check(value, kind, what);
        return [port, keyed(value, `${index}`)] as const;
      }
      if (!Array.isArray(value)) throw new Error(`${what} is no list`);
      if (batch !== null && batch !== value.length)
        throw new Error(`${what} has ${value.length} elements, another one ${batch}`);
      batch = value.length;
      this.#countElements(value.length, port);
      const items = value.map((item, position) => {
        this.#check(item, kind, what);
        return keyed(item, `${index}/${position}`);
      });
      return [port, items] as const;
    });
    const models = made.models ?? [];
    const warnings = made.warnings ?? [];
    if (made.state !== undefined) this.state = made.state;
    for (const effect of made.effects ?? []) {
      this.#countValue(effect.request);
      this.effects.push({ ...effect, step: this.#step.id, element: [...element.path] });
    }
    const result: StoredResult = {
      outputs: Object.fromEntries<StoredValue>(outputs),
      models,
      warnings,
    };
    this.#note(result);
    if (!this.isOrdered && this.#isKept && !key.startsWith(VOLATILE)) {
      const { cache, cachePrefix, clock } = this.#context.terms;
      cache?.set(`${cachePrefix ?? ""}/${key}`, result, clock());
    }
    return result;
  }

  /** Bounds a batch before its steps do: those of all elements together are of one step. */
  #countElements(length: number, port: string): void {
    const made = (this.#elements.get(port) ?? 0) + length;
    this.#elements.set(port, made);
    const max = this.#context.terms.limits.elements;
    if (made <= max) return;
    const detail = `it makes more than ${max} elements, which a step may work on`;
    throw new WorkflowFailure("limit", detail, { step: this.#step.id });
  }

  #check(value: unknown, kind: Kind, what: string): void {
    if (value === undefined) throw new Error(`${what} is missing`);
    if (value === null) return;
    if (!isShapeOf(value, kind)) throw new Error(`${what} is no ${kind}`);
    // A value that blocks wrap again and again would be too deep for whoever reads it.
    if (OPEN_KINDS.has(itemOf(kind) ?? kind) && !isShallow(value))
      throw new BlockFailure(`${what} is more than ${NESTING_MAX} levels deep`);
    const images = isImage(value) ? [value] : Array.isArray(value) ? value.filter(isImage) : [];
    for (const image of images) this.#countImage(image);
    if (images.length === 0) this.#countValue(value);
  }

  #countImage(image: { frame: { width: number; height: number } }): void {
    const context = this.#context;
    if (!this.#isFirst(image)) return;
    context.imageBytes += image.frame.width * image.frame.height * BYTES_PER_PIXEL;
    this.#checkBytes("images", context.imageBytes, context.terms.limits.imageBytes);
  }

  #countValue(value: unknown): void {
    if (typeof value === "object" && value !== null && !this.#isFirst(value)) return;
    this.#countBytes(bytesOf(value));
  }

  /** Counts what the step remembers, once it is done, in the stead of what it found. */
  countState(): void {
    if (this.state !== this.#stateBefore)
      this.#countBytes(bytesOf(this.state) - bytesOf(this.#stateBefore));
  }

  #countBytes(bytes: number): void {
    const context = this.#context;
    context.valueBytes += bytes;
    this.#checkBytes("values", context.valueBytes, context.terms.limits.valueBytes);
  }

  /** Whether the run has not counted it before. */
  #isFirst(value: object): boolean {
    const { counted } = this.#context;
    if (counted.has(value)) return false;
    counted.add(value);
    return true;
  }

  #checkBytes(what: string, bytes: number, max: number): void {
    if (bytes <= max) return;
    const detail = `the ${what} of the run would take more than ${max} bytes`;
    throw new WorkflowFailure("limit", detail, { step: this.#step.id });
  }
}

/** The key of a small value: its content, so that it is equal however it came about. */
function primitiveKey(value: unknown): string | null {
  if (typeof value === "string" && value.length > TEXT_KEY_MAX) return null;
  return typeof value === "object" ? null : contentKey(value);
}

/** Whether a value has the outer shape of a kind: a mistake of a block shows where it was made. */
function isShapeOf(value: unknown, kind: Kind): boolean {
  if (itemOf(kind) !== null) return Array.isArray(value);
  switch (kind) {
    case "number":
      return Number.isFinite(value);
    case "integer":
      return Number.isInteger(value);
    case "boolean":
      return typeof value === "boolean";
    case "string":
    case "model":
    case "project":
    case "secret":
      return typeof value === "string";
    case "point":
    case "line":
    case "zone":
      return Array.isArray(value);
    case "image":
      return isImage(value);
    case "detections":
    case "masks":
    case "tracks":
    case "tracked_masks":
      return typeof value === "object" && value !== null && "objects" in value;
    default:
      return true;
  }
}
