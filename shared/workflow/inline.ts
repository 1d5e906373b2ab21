// Sub-workflows: their steps take the stead of the step that names them, as `outer.inner`, and what
// refers to its outputs refers to what they are. What an inner input is given as a literal becomes
// an input `outer.name` that has it as its default; what it is given by reference is replaced by
// it.

import type { Block } from "./block.ts";
import { SUBWORKFLOW_TYPE } from "./blocks/subworkflow.ts";
import {
  DEFINITION_LIMITS,
  parseReference,
  type WorkflowDefinition,
  type WorkflowInput,
  type WorkflowStep,
} from "./definition.ts";
import type { Kind } from "./kinds.ts";
import { Problems } from "./problems.ts";

export interface WorkflowLibrary {
  blocks: ReadonlyMap<string, Block>;
  /** By slug. */
  workflows: ReadonlyMap<string, WorkflowDefinition>;
  /** What the outermost workflow is called, where it is known: no step in it may name it. */
  slug?: string | undefined;
}

/** That a sub-workflow's input is given a value by reference: it must be of the input's kind. */
interface Boundary {
  step: string;
  port: string;
  kind: Kind;
  reference: string;
}

export interface Inlining {
  /** As `InlinedDefinition` has it. */
  definition: WorkflowDefinition;
  problems: Problems;
  boundaries: Boundary[];
  /** Outputs of the steps that were sub-workflows; null of those that could not be read. */
  replaced: ReadonlyMap<string, readonly string[] | null>;
  /** Those of them that something refers to. */
  referred: ReadonlySet<string>;
}

/** One workflow on its way into the outermost one. */
interface Level {
  definition: WorkflowDefinition;
  /** `outer.`, or nothing. */
  prefix: string;
  when: readonly string[];
  slugs: readonly string[];
}

/** A reference of one level, as the outermost one would write it. */
function absolute(reference: string, prefix: string): string {
  if (prefix === "") return reference;
  return reference.replace(/^\$(inputs|steps)\./, (start) => start + prefix);
}

const listed = <Item>(one: Item | readonly Item[] | undefined): readonly Item[] =>
  one === undefined ? [] : Array.isArray(one) ? one : [one as Item];

/** Lets a value by; its step's own conditions mask it. */
const GATE_TYPE = "continue_if@1";

/** An id after a name that no step has, which from then on one has. */
function unusedName(name: string, ids: Set<string>): string {
  let [id, number] = [name, 2];
  while (ids.has(id)) id = `${name.slice(0, 58)}_${number++}`;
  ids.add(id);
  return id;
}

class Inliner {
  readonly problems = new Problems();
  readonly boundaries: Boundary[] = [];
  readonly inputs: WorkflowInput[] = [];
  readonly steps: WorkflowStep[] = [];
  readonly replaced = new Map<string, readonly string[] | null>();
  readonly referred = new Set<string>();
  /** References that stand for others. */
  readonly #aliases = new Map<string, string>();
  readonly #library: WorkflowLibrary;
  /** Steps that were looked at: it bounds the work. */
  #seen = 0;

  constructor(library: WorkflowLibrary) {
    this.#library = library;
  }

  expand(level: Level): void {
    const ids = new Set<string>();
    for (const step of level.definition.steps) {
      const id = level.prefix + step.id;
      if (++this.#seen > DEFINITION_LIMITS.inlined) {
        this.#tellOfLimit(id);
        return;
      }
      if (ids.has(step.id)) {
        this.problems.add(
          "duplicate_name",
          { step: id, port: null },
          { detail: "two steps have this id", fix: "give one of them another id" },
        );
        continue;
      }
      ids.add(step.id);
      const when = [
        ...level.when,
        ...listed(step.when).map((each) => absolute(each, level.prefix)),
      ];
      if (step.type === SUBWORKFLOW_TYPE) this.#replace({ ...step, id, when }, level);
      else this.#take({ ...step, id }, when, level.prefix);
    }
  }

  #tellOfLimit(step: string): void {
    const max = DEFINITION_LIMITS.inlined;
    this.problems.add(
      "limit",
      { step, port: null },
      {
        detail: `with its sub-workflows it has more than ${max} steps`,
        fix: "leave sub-workflows out, or make them smaller",
      },
    );
  }

  /** A step as it is, its references those of the outermost level. */
  #take(step: WorkflowStep, when: readonly string[], prefix: string): void {
    const statics = this.#library.blocks.get(step.type)?.parameters.shape ?? {};
    const parameters = Object.fromEntries(
      Object.entries(step.parameters).map(([name, value]) => {
        const isReference = parseReference(value) !== null && !Object.hasOwn(statics, name);
        return [name, isReference ? absolute(value as string, prefix) : value];
      }),
    );
    const { when: _, ...rest } = step;
    this.steps.push({ ...rest, parameters, ...(when.length > 0 && { when: [...when] }) });
  }

  #replace(step: WorkflowStep & { when: readonly string[] }, outer: Level): void {
    const { slug, ...given } = step.parameters;
    const inner = this.#innerOf(step, slug, outer);
    this.replaced.set(step.id, inner ? inner.outputs.map(({ name }) => name) : null);
    if (!inner) return;
    for (const reference of step.when)
      this.boundaries.push({ step: step.id, port: "when", kind: "boolean", reference });
    this.#bind(step, given, inner.inputs, outer.prefix);
    const prefix = `${step.id}.`;
    const ids = new Set(inner.steps.map(({ id }) => id));
    for (const { name, value } of inner.outputs) {
      let reference = absolute(value, prefix);
      if (step.when.length > 0 && parseReference(value)?.source === "inputs")
        reference = this.#gate(prefix + unusedName(name, ids), reference, step.when);
      this.#aliases.set(`$steps.${prefix}${name}`, reference);
    }
    const slugs = [...outer.slugs, slug as string];
    this.expand({ definition: inner, prefix, when: step.when, slugs });
  }

  /** A value under conditions that no inner step holds it to: the reference of what is let by. */
  #gate(id: string, value: string, when: readonly string[]): string {
    if (++this.#seen > DEFINITION_LIMITS.inlined) this.#tellOfLimit(id);
    else {
      const parameters = { value, condition: true };
      this.steps.push({ id, type: GATE_TYPE, parameters, when: [...when] });
    }
    return `$steps.${id}.value`;
  }

  /** The workflow that a step names, or null where it cannot be taken in. */
  #innerOf(step: WorkflowStep, slug: unknown, outer: Level): WorkflowDefinition | null {
    const spot = { step: step.id, port: "slug" };
    const known = [...this.#library.workflows.keys()];
    if (typeof slug !== "string") {
      const detail = "it must be the slug of a saved workflow";
      this.problems.add("bad_parameter", spot, { detail, fix: "name a saved workflow" });
      return null;
    }
    const inner = this.#library.workflows.get(slug);
    if (!inner) {
      const detail = `there is no workflow ${slug.slice(0, 100)}`;
      const fix = this.problems.otherName(slug, known, "save it first");
      this.problems.add("unknown_workflow", spot, { detail, fix });
      return null;
    }
    if (slug === this.#library.slug || outer.slugs.includes(slug)) {
      const detail = `the workflow ${slug} would contain itself`;
      this.problems.add("cycle", spot, { detail, fix: "take this step out of one of them" });
      return null;
    }
    if (outer.slugs.length >= DEFINITION_LIMITS.nesting) {
      const detail = `workflows are more than ${DEFINITION_LIMITS.nesting} deep in each other`;
      this.problems.add("limit", spot, { detail, fix: "write its steps here instead" });
      return null;
    }
    return inner;
  }

  /** What a sub-workflow's inputs are given. */
  #bind(
    step: WorkflowStep,
    given: WorkflowStep["parameters"],
    inputs: readonly WorkflowInput[],
    prefix: string,
  ): void {
    const names = inputs.map(({ name }) => name);
    for (const port of Object.keys(given).filter((name) => !names.includes(name)))
      this.problems.add(
        "unknown_parameter",
        { step: step.id, port },
        {
          detail: "the workflow has no such input",
          fix: this.problems.otherName(port, names, "leave it out: it has none"),
        },
      );
    for (const input of inputs) {
      const { name, kind } = input;
      const path = `${step.id}.${name}`;
      const value = Object.hasOwn(given, name) ? given[name] : input.default;
      if (value === undefined) {
        const said = { detail: `the workflow needs its input ${name}`, fix: `give it ${kind}` };
        this.problems.add("missing_port", { step: step.id, port: name }, said);
        this.replaced.set(path, null);
      } else if (typeof value === "string" && parseReference(value)) {
        const reference = absolute(value, prefix);
        this.#aliases.set(`$inputs.${path}`, reference);
        this.boundaries.push({ step: step.id, port: name, kind, reference });
      } else {
        this.inputs.push({ name: path, kind, default: value });
      }
    }
  }

  /** What a reference comes to; one that comes back to itself stays, to no step at all. */
  resolve(reference: string): string {
    const passed = new Set<string>();
    let current = reference;
    for (;;) {
      const next = this.#aliases.get(current);
      if (next === undefined || passed.has(current)) return current;
      passed.add(current);
      const parsed = parseReference(current);
      if (parsed?.source === "steps") this.referred.add(parsed.step);
      current = next;
    }
  }
}

/** A definition with the sub-workflows of its steps in it, and what is wrong with these. */
export function inlineWorkflows(
  definition: WorkflowDefinition,
  library: WorkflowLibrary,
): Inlining {
  const inliner = new Inliner(library);
  inliner.expand({ definition, prefix: "", when: [], slugs: [] });
  const { problems, boundaries, replaced, referred } = inliner;
  const resolved = (value: string) => inliner.resolve(value);
  const steps = inliner.steps.map((step) => {
    const statics = library.blocks.get(step.type)?.parameters.shape ?? {};
    const parameters = Object.fromEntries(
      Object.entries(step.parameters).map(([name, value]) => {
        const isReference = parseReference(value) !== null && !Object.hasOwn(statics, name);
        return [name, isReference ? resolved(value as string) : value];
      }),
    );
    const when = listed(step.when).map(resolved);
    return { ...step, parameters, ...(when.length > 0 && { when }) };
  });
  const outputs = definition.outputs.map(({ name, value }) => ({ name, value: resolved(value) }));
  const inputs = [...definition.inputs, ...inliner.inputs];
  const inlined = { version: definition.version, inputs, steps, outputs };
  return {
    definition: inlined,
    problems,
    boundaries: boundaries.map((each) => ({ ...each, reference: resolved(each.reference) })),
    replaced,
    referred,
  };
}
