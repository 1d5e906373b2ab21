// Workflows that lie within one of Roboflow's, as steps of the outer one: their steps take the
// place of the step that has them, with what it binds in the place of their inputs. What is only
// named, and not there, stays as it is.

import { z } from "zod";
import { DEFINITION_LIMITS } from "../../../../shared/workflow/definition.ts";
import { NoCounterpart } from "./query.ts";

const Step = z.object({ type: z.string().max(200), name: z.string().min(1).max(200) }).loose();
export type RoboflowStep = z.infer<typeof Step>;
const Input = z
  .object({ type: z.string(), name: z.string().min(1).max(200), default_value: z.unknown() })
  .partial({ default_value: true });
const Output = z.object({ name: z.string().min(1).max(200), selector: z.string().max(400) });
/** A definition in Roboflow's shape. */
export const RoboflowDefinition = z.object({
  inputs: z.array(Input).max(DEFINITION_LIMITS.inputs).default([]),
  steps: z.array(Step).max(DEFINITION_LIMITS.steps),
  outputs: z.array(Output).max(DEFINITION_LIMITS.outputs).default([]),
});
export type RoboflowDefinition = z.infer<typeof RoboflowDefinition>;

const Inner = z.object({
  workflow_definition: RoboflowDefinition,
  parameter_bindings: z.record(z.string(), z.unknown()).default({}),
  execution_mode: z.enum(["embedded"]).optional(),
});
type Inner = z.infer<typeof Inner>;

/** The type of a step that has a workflow within it, without the plugin's name. */
export const INNER_TYPE = "inner_workflow@v1";

/** Steps of an inner workflow are called so, after the step that it is. */
const within = (outer: string, name: string): string => `${outer}__${name}`;

/** Values that may come of a definition: bound into lists again and again, few become very many. */
const VALUES_MAX = 500_000;
/** Characters of the texts that may come of it: four times those of the largest body. */
const CHARACTERS_MAX = 4 * 1024 * 1024;
const TOO_LARGE = "the workflows within it come to too much: save those here, each by itself";

/** What a definition may still come to. */
class Budget {
  #values = VALUES_MAX;
  #characters = CHARACTERS_MAX;

  /** Takes a value, or a text of so many characters. */
  take(characters = 0): void {
    this.#values -= 1;
    this.#characters -= characters;
    if (this.#values < 0 || this.#characters < 0) throw new NoCounterpart(TOO_LARGE);
  }
}

/**
 * A definition with the steps of the workflows that lie in it, as deep as ours may lie. Fails with
 * NoCounterpart where it comes to more than a definition may.
 */
export const flattened = (given: RoboflowDefinition): RoboflowDefinition =>
  flattenedAt(given, 0, new Budget());

function flattenedAt(given: RoboflowDefinition, depth: number, budget: Budget): RoboflowDefinition {
  if (depth === DEFINITION_LIMITS.nesting) return given;
  let { steps, outputs } = given;
  let cases = casesOf(steps);
  // Steps may have one name, and each is the first of them until it is inlined.
  const known = new Map<RoboflowStep, Inner | null>();
  const innerOnce = (step: RoboflowStep) => {
    const inner = known.get(step) ?? (known.has(step) ? null : innerOf(step));
    known.set(step, inner);
    return inner;
  };
  for (const { name: outer } of given.steps) {
    // As it is by now: what it binds may be an output of one that came before.
    const step = steps.find(({ name }) => name === outer);
    // A case names one step, and cannot decide on all of those that come in its place.
    const inner = step && !cases.has(`$steps.${outer}`) && innerOnce(step);
    if (!inner) continue;
    const { workflow_definition: own, parameter_bindings: bindings } = inner;
    const definition = flattenedAt(own, depth + 1, budget);
    const made = inlined(outer, { ...definition, bindings }, budget);
    const replace = (text: string): unknown[] => {
      const [, name, rest] = /^\$steps\.([^.]+)(?:\.(.+))?$/.exec(text) ?? [];
      if (name !== outer) return [text];
      if (rest === undefined) return made.steps.map((one) => `$steps.${one.name}`);
      return [made.outputs.get(rest) ?? text];
    };
    steps = steps.flatMap((other) =>
      other === step ? made.steps : [mapped(other, replace, budget) as RoboflowStep],
    );
    cases = casesOf(steps);
    outputs = outputs.map((one) => ({ ...one, selector: String(replace(one.selector)[0]) }));
  }
  return { ...given, steps, outputs };
}

function innerOf(step: RoboflowStep): Inner | null {
  if (step.type.replace(/^roboflow_core\//, "") !== INNER_TYPE) return null;
  return Inner.safeParse(step).data ?? null;
}

/** All that the steps' cases name. */
const casesOf = (steps: readonly RoboflowStep[]): Set<unknown> =>
  new Set(steps.flatMap(({ cases }) => (isPlainObject(cases) ? Object.values(cases) : [])));

const isPlainObject = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** An inner workflow's steps, and what its outputs are, in the words of the outer one. */
function inlined(
  outer: string,
  { inputs, steps, outputs, bindings }: RoboflowDefinition & { bindings: Record<string, unknown> },
  budget: Budget,
): { steps: RoboflowStep[]; outputs: Map<string, unknown> } {
  const replace = (text: string): unknown[] => {
    const [, source, name = "", rest = ""] = /^\$(inputs|steps)\.([^.]+)(.*)$/.exec(text) ?? [];
    if (source === "steps") return [`$steps.${within(outer, name)}${rest}`];
    if (source !== "inputs") return [text];
    if (Object.hasOwn(bindings, name)) return [bindings[name]];
    const own = inputs.find((input) => input.name === name);
    // A name that no outer input has, so that it is told to be missing.
    return [own?.default_value ?? `$inputs.${outer}.${name}`];
  };
  return {
    steps: steps.map(({ name, ...step }) => ({
      ...(mapped(step, replace, budget) as Omit<RoboflowStep, "name">),
      name: within(outer, name),
    })) as RoboflowStep[],
    outputs: new Map(outputs.map(({ name, selector }) => [name, replace(selector)[0]])),
  };
}

/** A value with its texts replaced; one text of a list may become several. */
function mapped(value: unknown, replace: (text: string) => unknown[], budget: Budget): unknown {
  budget.take();
  // What comes in a text's place is copied, so that all that there is of it counts.
  const inPlaceOf = (text: string) =>
    replace(text).map((one) => {
      if (typeof one !== "string") return mapped(one, itself, budget);
      // What stood there before counted when it was read.
      if (one !== text) budget.take(one.length);
      return one;
    });
  if (typeof value === "string") return inPlaceOf(value)[0];
  if (Array.isArray(value)) {
    return value.flatMap((one) => {
      if (typeof one !== "string") return [mapped(one, replace, budget)];
      budget.take();
      return inPlaceOf(one);
    });
  }
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, one]) => [key, mapped(one, replace, budget)]),
  );
}

const itself = (text: string): unknown[] => [text];
