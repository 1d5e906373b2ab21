// Reads a workflow of Roboflow's as one of ours: inputs by how they are used, steps by the table of
// those that have a counterpart, and outputs. What cannot be read is listed with its reason, and
// steps that need it with it; what is read otherwise than it was written is told as a warning.

import { z } from "zod";
import { JsonValue } from "../../../../shared/json-value.ts";
import { BLOCKS } from "../../../../shared/workflow/blocks.ts";
import { checkWorkflow } from "../../../../shared/workflow/check.ts";
import {
  DEFINITION_VERSION,
  WorkflowDefinition,
  type WorkflowInput,
  type WorkflowProblem,
  type WorkflowStep,
} from "../../../../shared/workflow/definition.ts";
import { isKindOf, type Kind } from "../../../../shared/workflow/kinds.ts";
import { LineValue, ZoneValue } from "../../../../shared/workflow/values.ts";
import { ROBOFLOW_BLOCKS } from "./blocks.ts";
import { flattened, RoboflowDefinition, type RoboflowStep } from "./inner.ts";
import { NoCounterpart } from "./query.ts";
import {
  FreeNames,
  type Json,
  nameOf,
  type Scope,
  type Source,
  StepReader,
  Texts,
  type Translation,
} from "./steps.ts";

export interface RoboflowImport {
  /** Null where nothing is left that could run. */
  definition: WorkflowDefinition | null;
  /** Steps by their Roboflow names and types, and why they are not there. */
  unsupported: { step: string; type: string; reason: string }[];
  warnings: string[];
  /** What the check finds in the definition as it stands: to be put right before it is saved. */
  problems: WorkflowProblem[];
}

/** A response of Roboflow's API has the definition in it. */
const WrappedDefinition = z.object({ specification: z.unknown() });

/** Imports a definition in Roboflow's JSON shape. Never throws. */
export function importRoboflow(definition: unknown): RoboflowImport {
  const wrapped = WrappedDefinition.safeParse(definition);
  const isWrapped = wrapped.success && wrapped.data.specification !== undefined;
  const parsed = RoboflowDefinition.safeParse(isWrapped ? wrapped.data.specification : definition);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const where = issue?.path.join(".") || "definition";
    const warnings = [`not a workflow of Roboflow's: ${where}: ${issue?.message ?? "unreadable"}`];
    return { definition: null, unsupported: [], warnings, problems: [] };
  }
  try {
    return new Importing(flattened(parsed.data)).result();
  } catch (thrown) {
    if (!(thrown instanceof NoCounterpart)) throw thrown;
    return { definition: null, unsupported: [], warnings: [thrown.message], problems: [] };
  }
}

const IMAGE_INPUTS = ["WorkflowImage", "InferenceImage"];
const PARAMETER_INPUTS = ["WorkflowParameter", "InferenceParameter"];
const SINKS = ["webhook@1", "dataset_upload@1"];

/** An input while its kind is not known yet. */
interface InputDraft {
  name: string;
  default: unknown;
  isImage: boolean;
  wanted: Set<Kind>;
}

class Importing {
  readonly #given: RoboflowDefinition;
  readonly #steps = new Map<string, RoboflowStep>();
  readonly #ids = new Map<string, string>();
  readonly #inputs = new Map<string, InputDraft>();
  /** Inputs that the import adds, by what they stand for. */
  readonly #added = new Map<string, WorkflowInput>();
  readonly #controllers = new Map<string, string[]>();
  readonly #done = new Map<string, Translation | NoCounterpart>();
  readonly #open = new Set<string>();
  readonly #warnings = new Set<string>();
  /** Names of inputs, and ids of steps: further steps of one are called `id__…`, as no name is. */
  readonly #names = new FreeNames();
  readonly #freeIds = new FreeNames();

  constructor(given: RoboflowDefinition) {
    this.#given = given;
    for (const { type, name, default_value: initial } of given.inputs) {
      const isImage = IMAGE_INPUTS.includes(type);
      if (!isImage && !PARAMETER_INPUTS.includes(type)) {
        // A frame knows its own time here.
        const isMetadata = type === "WorkflowVideoMetadata" || type === "InferenceVideoMetadata";
        if (!isMetadata) this.#warnings.add(`the input ${name} of the type ${type} is left out`);
        continue;
      }
      const draft = {
        name: this.#names.take(nameOf(name)),
        default: initial,
        isImage,
        wanted: new Set<Kind>(),
      };
      this.#inputs.set(name, draft);
    }
    for (const step of given.steps) {
      if (this.#steps.has(step.name)) this.#warnings.add(`two steps are called ${step.name}`);
      this.#steps.set(step.name, step);
      this.#ids.set(step.name, this.#freeIds.take(nameOf(step.name)));
    }
    for (const step of given.steps) {
      for (const target of targetsOf(step)) {
        this.#controllers.set(target, [...(this.#controllers.get(target) ?? []), step.name]);
      }
    }
  }

  result(): RoboflowImport {
    const unsupported: RoboflowImport["unsupported"] = [];
    const steps: WorkflowStep[] = [];
    for (const { name, type } of this.#steps.values()) {
      const result = this.#translated(name);
      if (result instanceof NoCounterpart) {
        unsupported.push({ step: name, type, reason: result.message });
      } else {
        const when = this.#conditionsOf(name);
        steps.push(...result.steps.map((step) => (when.length > 0 ? { ...step, when } : step)));
      }
    }
    const outputs = this.#outputs();
    const needed = this.#needed(
      steps,
      outputs.map(({ value }) => value),
    );
    const draft = {
      version: DEFINITION_VERSION,
      inputs: [
        ...[...this.#inputs.values()].map((one) => this.#input(one)),
        ...this.#added.values(),
      ],
      steps: needed,
      outputs,
    };
    const definition = WorkflowDefinition.safeParse(draft);
    if (!definition.success) this.#warnings.add(nothingLeft(draft));
    return {
      definition: definition.success ? definition.data : null,
      unsupported,
      warnings: [...this.#warnings],
      problems: definition.success
        ? checkWorkflow(definition.data, { blocks: BLOCKS, workflows: new Map() }).problems
        : [],
    };
  }

  /** What a step became, or why it did not; once, however many ask. */
  #translated(name: string): Translation | NoCounterpart {
    const known = this.#done.get(name);
    if (known) return known;
    if (this.#open.has(name)) return new NoCounterpart("it needs its own result");
    this.#open.add(name);
    const result = this.#translate(name);
    this.#open.delete(name);
    this.#done.set(name, result);
    return result;
  }

  #translate(name: string): Translation | NoCounterpart {
    const step = this.#steps.get(name);
    if (!step) return new NoCounterpart("there is no such step");
    try {
      for (const controller of this.#controllers.get(name) ?? []) {
        const gate = this.#translated(controller);
        if (gate instanceof NoCounterpart) {
          throw new NoCounterpart(`the step ${controller}, which decides on it, is not supported`);
        }
      }
      const type = step.type.replace(/^roboflow_core\//, "");
      const translate = ROBOFLOW_BLOCKS.get(type);
      if (!translate) throw new NoCounterpart("there is no block for it");
      return translate(new StepReader(this.#ids.get(name) ?? nameOf(name), step, this.#scope()));
    } catch (error) {
      if (error instanceof NoCounterpart) return error;
      if (error instanceof z.ZodError)
        return new NoCounterpart("its fields are not those of its type");
      throw error;
    }
  }

  #scope(): Scope {
    return {
      refer: (selector, wanted) => this.#refer(selector, wanted),
      defaultOf: (selector) => this.#inputs.get(selector.replace(/^\$inputs\./, ""))?.default,
      addInput: (name, kind, fallback) => this.#addInput(name, kind, fallback),
      warn: (text) => this.#warnings.add(text),
    };
  }

  #refer(selector: string, wanted: Kind): Source {
    const [source, name = "", ...path] = selector.split(".");
    if (source === "$inputs") {
      const input = this.#inputs.get([name, ...path].join("."));
      if (!input) throw new NoCounterpart(`it takes the input ${name}, which is not there`);
      if (input.isImage && !isKindOf("image", wanted)) {
        throw new NoCounterpart(`it takes the image ${name} where a ${wanted} is needed`);
      }
      if (!input.isImage && isKindOf("image", wanted) && wanted !== "any") {
        throw new NoCounterpart(`it takes the parameter ${name} where an image is needed`);
      }
      input.wanted.add(wanted);
      return { reference: `$inputs.${input.name}`, kind: input.isImage ? "image" : wanted };
    }
    const result = this.#translated(name);
    if (result instanceof NoCounterpart) {
      throw new NoCounterpart(`it takes a result of the step ${name}, which is not supported`);
    }
    const output = Object.hasOwn(result.outputs, path.join("."))
      ? result.outputs[path.join(".")]
      : undefined;
    if (!output) throw new NoCounterpart(`${selector} has no counterpart`);
    if (isKindOf(output.kind, wanted)) return output;
    throw new NoCounterpart(`${selector} is of the kind ${output.kind}; it needs ${wanted}`);
  }

  #conditionsOf(name: string): string[] {
    const gates = (this.#controllers.get(name) ?? []).flatMap((controller) => {
      const result = this.#done.get(controller);
      return result && !(result instanceof NoCounterpart) ? (result.gates ?? []) : [];
    });
    return [...new Set(gates.filter(({ target }) => target === name).map((one) => one.reference))];
  }

  #outputs(): { name: string; value: string }[] {
    const taken = new Set<string>();
    const add = (name: string, value: string) => {
      const base = nameOf(name);
      let free = base;
      for (let index = 2; taken.has(free); index++) free = `${base}_${index}`;
      taken.add(free);
      if (free !== name) this.#warnings.add(`the output ${name} is called ${free}`);
      return { name: free, value };
    };
    return this.#given.outputs.flatMap(({ name, selector }) => {
      const [, step, port] = /^\$steps\.([^.]+)\.(.+)$/.exec(selector) ?? [];
      if (step !== undefined && port === "*") {
        const result = this.#translated(step);
        if (!(result instanceof NoCounterpart)) {
          return Object.entries(result.outputs).map(([one, { reference }]) =>
            add(`${name}_${one}`, reference),
          );
        }
      }
      try {
        return [add(name, this.#refer(selector, "any").reference)];
      } catch (error) {
        if (!(error instanceof NoCounterpart)) throw error;
        this.#warnings.add(`the output ${name} is left out: ${error.message}`);
        return [];
      }
    });
  }

  /** Steps that an output or a sink needs; the check would refuse the others. */
  #needed(steps: readonly WorkflowStep[], outputs: readonly string[]): WorkflowStep[] {
    const byId = new Map(steps.map((step) => [step.id, step]));
    const wanted = new Set<string>();
    const pending = [
      ...outputs.map(stepOf),
      ...steps.filter(({ type }) => SINKS.includes(type)).map(({ id }) => id),
    ];
    for (let id = pending.pop(); id !== undefined; id = pending.pop()) {
      const step = byId.get(id);
      if (!step || wanted.has(id)) continue;
      wanted.add(id);
      const values = [...Object.values(step.parameters), ...[step.when ?? []].flat()];
      pending.push(...values.filter((one) => typeof one === "string").map(stepOf));
    }
    for (const { id } of steps) {
      if (!wanted.has(id)) this.#warnings.add(`the step ${id} is left out: nothing needs it`);
    }
    return steps.filter(({ id }) => wanted.has(id));
  }

  /** An input by the narrowest kind that all its uses take. */
  #input({ name, default: initial, isImage, wanted }: InputDraft): WorkflowInput {
    if (isImage) return { name, kind: "image" };
    const uses = [...wanted].filter((kind) => kind !== "any");
    const narrowest = uses.find((kind) => uses.every((other) => isKindOf(kind, other)));
    if (uses.length > 1 && narrowest === undefined) {
      this.#warnings.add(`the input ${name} is used as ${uses.join(" and as ")}`);
    }
    const kind = narrowest ?? kindOfDefault(initial);
    if (initial === undefined || initial === null) return { name, kind };
    if (kind === "model") {
      this.#warnings.add(`the input ${name} has the active model as its default`);
      return { name, kind, default: "active" };
    }
    const literal = JsonValue.safeParse(initial);
    if (literal.success && (LITERALS[kind]?.safeParse(initial).success ?? true)) {
      return { name, kind, default: literal.data };
    }
    this.#warnings.add(`the default of the input ${name} is no ${kind} and is left out`);
    return { name, kind };
  }

  #addInput(name: string, kind: Kind, fallback?: Json): string {
    const key = `${kind} ${name}`;
    const known = this.#added.get(key);
    const input = known ?? {
      name: this.#names.take(nameOf(name)),
      kind,
      ...(fallback !== undefined && { default: fallback }),
    };
    this.#added.set(key, input);
    return `$inputs.${input.name}`;
  }
}

const stepOf = (reference: string): string => /^\$steps\.([^.]+)\./.exec(reference)?.[1] ?? "";

const LITERALS: Readonly<Partial<Record<Kind, z.ZodType>>> = {
  number: z.number(),
  integer: z.int(),
  string: z.string(),
  boolean: z.boolean(),
  zone: ZoneValue,
  line: LineValue,
  "list<string>": z.array(z.string()),
};

function kindOfDefault(value: unknown): Kind {
  if (typeof value === "number") return "number";
  if (typeof value === "string") return "string";
  return typeof value === "boolean" ? "boolean" : "json";
}

const Targets = z.object({
  next_steps: z.array(z.string()).optional().catch(undefined),
  default_next_steps: z.array(z.string()).optional().catch(undefined),
  cases: Texts.optional().catch(undefined),
});

/** Steps that a step of flow control decides on, by their names. */
function targetsOf(step: RoboflowStep): string[] {
  const {
    next_steps: next = [],
    default_next_steps: otherwise = [],
    cases = {},
  } = Targets.parse(step);
  const targets = [...next, ...otherwise, ...Object.values(cases)];
  return [...new Set(targets.map((target) => target.replace(/^\$steps\./, "")))];
}

const nothingLeft = ({
  steps,
  outputs,
}: {
  steps: readonly object[];
  outputs: readonly object[];
}) =>
  steps.length === 0 || outputs.length === 0
    ? "nothing is left that could run: no step, or no output"
    : "what is left is beyond the limits of a definition";
