// The run of a plan: steps begin as soon as their inputs are there, an element that is masked masks
// what is made of it, and equal work is done once. Nothing is done outside: effects are told.

import type { AnsweringModel } from "./block.ts";
import type { StoredResult } from "./cache.ts";
import {
  countOf,
  elementsOf,
  type Lookup,
  type Skeleton,
  type StepElement,
  type Tree,
  treeOf,
  valuesOf,
} from "./elements.ts";
import { WorkflowFailure } from "./failure.ts";
import { contentKey } from "./literals.ts";
import type { KeyedValue, PlannedSource, PlannedStep, WorkflowPlan } from "./plan.ts";
import {
  ElementRun,
  keysOfRun,
  Pauses,
  type RunContext,
  type RunLimits,
  type RunTerms,
  type StepEffect,
} from "./step-run.ts";
import { answerBytesOf } from "./value-size.ts";

// Hosts know all of a run from here.
export { type RunLimits, type StepEffect, WorkflowFailure };

export const RUN_LIMITS: RunLimits = {
  elements: 1_000,
  concurrency: 32,
  ms: 60_000,
  imageBytes: 512 * 1024 * 1024,
  valueBytes: 256 * 1024 * 1024,
};

export interface RunRequest extends RunTerms {
  plan: WorkflowPlan;
  /** Values by input, as `readInputs` reads them. */
  inputs: ReadonlyMap<string, KeyedValue>;
  /** By step, or by the blocks' `stateKey`, as the last run of the stream left it. */
  state: Readonly<Record<string, unknown>>;
  signal: AbortSignal;
}

export interface StepReport {
  step: string;
  type: string;
  /** All elements, those that were masked and those whose result was there already included. */
  elements: number;
  masked: number;
  cache_hits: number;
  /** From its first element's start to the last one's end. */
  ms: number;
  models: AnsweringModel[];
  warnings: string[];
}

export interface WorkflowRun {
  /** Lists in lists by depth; null where masked. */
  outputs: Record<string, unknown>;
  steps: StepReport[];
  effects: StepEffect[];
  /** To be handed to the next run of the stream. */
  state: Record<string, unknown>;
}

/** A step's outputs by port. */
type Outputs = ReadonlyMap<string, Tree>;

/**
 * Runs a plan. Fails with `WorkflowFailure`, at once: what blocks are still at is told by their
 * signal to stop, and not waited for.
 */
export async function executePlan(request: RunRequest): Promise<WorkflowRun> {
  const ended = new AbortController();
  const { promise: failed, reject: fail } = Promise.withResolvers<never>();
  // Unless the run is still waited for, nobody is there to hear of it.
  failed.catch(() => {});
  const stop = (failure: unknown) => {
    fail(failure);
    ended.abort(failure);
  };
  const cancel = () => stop(new WorkflowFailure("canceled", "the run was canceled"));
  if (request.signal.aborted) throw new WorkflowFailure("canceled", "the run was canceled");
  const execution = new Execution(request, ended.signal);
  const tooLong = () => {
    const detail = `the run took longer than ${request.limits.ms} ms`;
    stop(new WorkflowFailure("limit", detail, execution.longestRunning));
  };
  request.signal.addEventListener("abort", cancel);
  const timer = setTimeout(tooLong, request.limits.ms);
  try {
    return await Promise.race([execution.run(), failed]);
  } catch (failure) {
    stop(failure);
    throw failure;
  } finally {
    clearTimeout(timer);
    request.signal.removeEventListener("abort", cancel);
  }
}

class Execution {
  readonly #request: RunRequest;
  readonly #context: RunContext;
  readonly #values = new Map<string, Outputs>();
  readonly #state: Record<string, unknown>;
  readonly #reports = new Map<string, { report: StepReport; effects: StepEffect[] }>();
  /** Ids of the steps that are at work, the one that began first in front. */
  readonly #running = new Set<string>();

  constructor(request: RunRequest, signal: AbortSignal) {
    this.#request = request;
    this.#state = Object.fromEntries(
      request.plan.steps.flatMap(({ id, block }) => {
        const key = block.stateKey ?? id;
        return Object.hasOwn(request.state, key) ? [[key, request.state[key]]] : [];
      }),
    );
    const { limits, clock } = request;
    this.#context = {
      terms: request,
      signal,
      free: limits.concurrency,
      waiting: [],
      results: new Map<string, Promise<StoredResult> | StoredResult>(),
      counted: new WeakSet(),
      imageBytes: 0,
      valueBytes: 0,
      deadline: clock() + limits.ms,
      pauses: new Pauses(clock),
      keyOf: request.cache ? contentKey : keysOfRun(),
    };
  }

  /** The step that has been at work for longest; none where none is. */
  get longestRunning(): { step?: string } {
    const [step] = this.#running;
    return step === undefined ? {} : { step };
  }

  async run(): Promise<WorkflowRun> {
    const { plan } = this.#request;
    const ends = new Map<string, Promise<void>>();
    const lastOfState = new Map<string, string>();
    for (const step of plan.steps) {
      const needed = [...step.inputs, ...step.when].flatMap(({ source }) =>
        source.from === "step" ? [source.step] : [],
      );
      const { stateKey } = step.block;
      if (stateKey !== undefined) {
        const before = lastOfState.get(stateKey);
        if (before !== undefined) needed.push(before);
        lastOfState.set(stateKey, step.id);
      }
      const before = [...new Set(needed)].map((id) => ends.get(id));
      const end =
        before.length === 0
          ? this.#runStep(step)
          : Promise.all(before).then(() => this.#runStep(step));
      // The first failure ends the run; the others are of the same end.
      end.catch(() => {});
      ends.set(step.id, end);
    }
    await Promise.all(ends.values());
    const reports = plan.steps.flatMap(({ id }) => this.#reports.get(id) ?? []);
    const outputs = plan.outputs.map(({ name, source }) => [name, valuesOf(this.#lookup(source))]);
    this.#checkOutputs(outputs.map(([, value]) => value));
    return {
      outputs: Object.fromEntries(outputs),
      steps: reports.map(({ report }) => report),
      effects: reports.flatMap(({ effects }) => effects),
      state: this.#state,
    };
  }

  /** Bounds the outputs before they are written: each is, as often as it is named. */
  #checkOutputs(values: readonly unknown[]): void {
    const max = this.#request.limits.valueBytes;
    let bytes = 0;
    for (const value of values) {
      bytes += answerBytesOf(value);
      if (bytes <= max) continue;
      const detail = `the outputs of the run would take more than ${max} bytes`;
      throw new WorkflowFailure("limit", detail);
    }
  }

  readonly #lookup: Lookup = (source: PlannedSource): Tree => {
    if (source.from === "literal") return source.literal;
    if (source.from === "step") return this.#values.get(source.step)?.get(source.port) ?? null;
    const { plan, inputs } = this.#request;
    const value = plan.constants.get(source.name) ?? inputs.get(source.name);
    if (!value) throw new WorkflowFailure("bad_input", `the input ${source.name} is not given`);
    return value;
  };

  async #runStep(step: PlannedStep): Promise<void> {
    const { clock } = this.#request;
    const { elements, skeleton } = elementsOf(step, this.#lookup);
    const key = step.block.stateKey ?? step.id;
    const state = Object.hasOwn(this.#state, key) ? this.#state[key] : null;
    const run = new ElementRun(step, this.#context, state);
    const start = clock();
    this.#running.add(step.id);
    const results = await this.#runElements(run, elements);
    this.#running.delete(step.id);
    const { models, warnings, effects, cacheHits } = run;
    if (run.state !== null) this.#state[key] = run.state;
    run.countState();
    const report: StepReport = {
      step: step.id,
      type: step.block.type,
      elements: elements.length,
      masked: elements.filter(({ inputs }) => inputs === null).length,
      cache_hits: cacheHits,
      ms: clock() - start,
      models: [...models.values()],
      warnings: [...warnings],
    };
    effects.sort((one, other) => comparePaths(one.element, other.element));
    this.#reports.set(step.id, { report, effects });
    this.#values.set(step.id, this.#outputsOf(step, skeleton, results));
  }

  /** What each element came to; in order where the step remembers, else side by side. */
  async #runElements(
    run: ElementRun,
    elements: readonly StepElement[],
  ): Promise<(StoredResult | null)[]> {
    const results: (StoredResult | null)[] = elements.map(() => null);
    let next = 0;
    const work = async () => {
      while (next < elements.length) {
        const index = next++;
        const element = elements[index];
        if (!element || element.inputs === null) continue;
        const pause = this.#context.pauses.next();
        if (pause) await pause;
        const result = run.result({ path: element.path, inputs: element.inputs }, index);
        results[index] = result instanceof Promise ? await result : result;
      }
    };
    const hands = run.isOrdered ? 1 : this.#request.limits.concurrency;
    if (hands === 1 || elements.length <= 1) await work();
    else await Promise.all(Array.from({ length: Math.min(hands, elements.length) }, work));
    return results;
  }

  #outputsOf(
    step: PlannedStep,
    skeleton: Skeleton,
    results: readonly (StoredResult | null)[],
  ): Outputs {
    const max = this.#request.limits.elements;
    return new Map(
      step.outputs.map(({ port }) => {
        const tree = treeOf(skeleton, (element) => results[element]?.outputs[port] ?? null);
        const count = countOf(tree);
        if (count <= max) return [port, tree];
        const detail = `${step.id} makes ${count} elements; a run may have ${max} in a step`;
        throw new WorkflowFailure("limit", detail, { step: step.id });
      }),
    );
  }
}

function comparePaths(one: readonly number[], other: readonly number[]): number {
  const index = one.findIndex((each, position) => each !== other[position]);
  return index < 0 ? 0 : (one[index] ?? 0) - (other[index] ?? 0);
}
