// The check of a workflow, the same when it is saved, deployed and run: every reference, kind,
// batch and parameter. It tells all problems at once, or makes the plan by which a run goes.

import {
  DEFINITION_LIMITS,
  parseReference,
  type WorkflowDefinition,
  type WorkflowInput,
  type WorkflowProblem,
} from "./definition.ts";
import { type Inlining, inlineWorkflows, type WorkflowLibrary } from "./inline.ts";
import { isKindOf, itemOf, type Kind } from "./kinds.ts";
import { isWritable, meaningOf, readLiteral } from "./literals.ts";
import { orderOf } from "./order.ts";
import { type Outline, outlineOf } from "./outline.ts";
import type { KeyedValue, PlannedOutput, PlannedStep, WorkflowPlan } from "./plan.ts";
import { aKind, type ProblemSpot, type Problems } from "./problems.ts";
import { type Scope, StepTyping, type TypedValue } from "./typing.ts";

export interface WorkflowCheck {
  problems: WorkflowProblem[];
  /** Null if and only if there are problems. */
  plan: WorkflowPlan | null;
}

/** Checks a definition, as written or with its sub-workflows in it already. Never throws. */
export function checkWorkflow(
  definition: WorkflowDefinition,
  library: WorkflowLibrary,
): WorkflowCheck {
  const inlining = inlineWorkflows(definition, library);
  checkCounts(definition, inlining.problems);
  const length = `longer than ${DEFINITION_LIMITS.characters} characters`;
  if (isTooLong(definition))
    inlining.problems.add(
      "limit",
      { step: null, port: null },
      {
        detail: `it is ${length}`,
        fix: "split it into sub-workflows, or give long literals as inputs",
      },
    );
  // What is deployed is the inlined definition, and every run of it is checked anew.
  else if (isTooLong(inlining.definition))
    inlining.problems.add(
      "limit",
      { step: null, port: null },
      {
        detail: `with its sub-workflows it is ${length}`,
        fix: "leave sub-workflows out, or give their long literals as inputs",
      },
    );
  if (inlining.definition.inputs.length > DEFINITION_LIMITS.inlined)
    inlining.problems.add(
      "limit",
      { step: null, port: null },
      {
        detail: `with its sub-workflows it has more than ${DEFINITION_LIMITS.inlined} inputs`,
        fix: "leave sub-workflows out, or give their inputs by reference",
      },
    );
  const problems = inlining.problems.all;
  // What is too large is measured alone: literals are hashed only where all of them are few.
  if (problems.some(({ code, step }) => code === "limit" && step === null))
    return { problems, plan: null };
  const plan = new Checking(inlining, library).plan();
  return { problems, plan: problems.length === 0 ? plan : null };
}

/** Tells what a definition has too many of; what its sub-workflows bring is named by a path. */
function checkCounts({ inputs, steps, outputs }: WorkflowDefinition, problems: Problems): void {
  const names = {
    inputs: inputs.map(({ name }) => name),
    steps: steps.map(({ id }) => id),
    outputs: outputs.map(({ name }) => name),
  };
  for (const list of ["inputs", "steps", "outputs"] as const) {
    const count = names[list].filter((name) => !name.includes(".")).length;
    const max = DEFINITION_LIMITS[list];
    if (count <= max) continue;
    const detail = `it has ${count} ${list}; a definition has ${max} at most`;
    const fix = list === "steps" ? "put some into a sub-workflow" : "leave some out";
    problems.add("limit", { step: null, port: null }, { detail, fix });
  }
}

/** Whether a definition has more characters as JSON than it may; no more than these are written. */
function isTooLong({ version, ...lists }: WorkflowDefinition): boolean {
  const { inputs, steps, outputs } = lists;
  const parts: readonly object[] = [...inputs, ...steps, ...outputs];
  let characters = JSON.stringify({ version, inputs: [], steps: [], outputs: [] }).length;
  for (const list of [inputs, steps, outputs]) characters += Math.max(0, list.length - 1);
  for (const part of parts) {
    characters += JSON.stringify(part).length;
    if (characters > DEFINITION_LIMITS.characters) return true;
  }
  return false;
}

class Checking {
  readonly #inlining: Inlining;
  readonly #problems: Problems;
  readonly #definition: WorkflowDefinition;
  readonly #outlines = new Map<string, Outline | null>();
  readonly #scope: Scope;
  readonly #constants = new Map<string, KeyedValue>();

  constructor(inlining: Inlining, { blocks }: WorkflowLibrary) {
    this.#inlining = inlining;
    this.#problems = inlining.problems;
    this.#definition = inlining.definition;
    const inputs = this.#checkInputs();
    for (const step of this.#definition.steps)
      this.#outlines.set(step.id, outlineOf(step, blocks, this.#problems));
    this.#scope = {
      inputs,
      steps: new Map([...this.#outlines.keys()].map((id) => [id, null])),
      replaced: inlining.replaced,
      conditions: new Set(
        inlining.boundaries.flatMap((each) => (each.port === "when" ? [each.reference] : [])),
      ),
    };
  }

  plan(): WorkflowPlan {
    const needs = this.#needs();
    const { order, circles } = orderOf(needs);
    for (const circle of circles)
      for (const step of circle) {
        const detail = `it needs its own output, by ${[...circle, circle[0]].join(" → ")}`;
        const fix = "take one of these references out";
        this.#problems.add("cycle", { step, port: null }, { detail, fix });
      }
    const typing = new StepTyping(this.#scope, this.#problems);
    const steps: PlannedStep[] = [];
    const circular = [...this.#outlines.keys()].filter((id) => !order.includes(id));
    for (const id of [...order, ...circular]) {
      const outline = this.#outlines.get(id) ?? null;
      if (!outline) continue;
      const step = typing.step(outline);
      if (step) steps.push(step);
    }
    for (const { step, port, kind, reference } of this.#inlining.boundaries)
      typing.typed(reference, kind, { step, port });
    const outputs = this.#checkOutputs(typing);
    const used = this.#used(needs);
    return planOf(
      { inputs: this.#definition.inputs, constants: this.#constants },
      steps.filter(({ id }) => used.has(id)),
      outputs,
    );
  }

  #checkInputs(): Map<string, TypedValue> {
    const inputs = new Map<string, TypedValue>();
    for (const input of this.#definition.inputs) {
      const { name, kind } = input;
      const spot = spotOf(name);
      if (inputs.has(name)) {
        const said = { detail: "two inputs have this name", fix: "give one of them another name" };
        this.#problems.add("duplicate_name", spot, said);
        continue;
      }
      inputs.set(name, { kind, lineage: [], source: { from: "input", name } });
      if (input.default === undefined && spot.step === null) continue;
      const { literal, problem } = readLiteral(kind, input.default);
      if (literal && spot.step !== null) this.#constants.set(name, literal);
      if (problem === null) continue;
      const fix = isWritable(kind)
        ? `give ${meaningOf(kind)}`
        : spot.step === null
          ? "leave the default out"
          : `refer to ${aKind(kind)}`;
      this.#problems.add("bad_value", spot, { detail: problem, fix });
    }
    return inputs;
  }

  /** What each step needs to be there, by the steps' ids. */
  #needs(): Map<string, Set<string>> {
    const needs = new Map<string, Set<string>>();
    for (const step of this.#definition.steps) {
      const outline = this.#outlines.get(step.id);
      const ports = Object.keys(outline?.ports.inputs ?? step.parameters);
      const given = ports.flatMap((port) =>
        Object.hasOwn(step.parameters, port) ? [step.parameters[port]] : [],
      );
      const needed = new Set<string>();
      for (const value of given.concat(step.when ?? [])) {
        const reference = parseReference(value);
        if (reference?.source === "steps") needed.add(reference.step);
      }
      needs.set(step.id, needed);
    }
    return needs;
  }

  #checkOutputs(typing: StepTyping): PlannedOutput[] {
    const names = new Set<string>();
    const outputs: PlannedOutput[] = [];
    for (const { name, value } of this.#definition.outputs) {
      if (names.has(name)) {
        const said = { detail: "two outputs have this name", fix: "give one of them another name" };
        this.#problems.add("duplicate_name", { step: null, port: name }, said);
      }
      names.add(name);
      const typed = typing.typed(value, "any", { step: null, port: name });
      if (!typed?.kind || !typed.lineage) continue;
      outputs.push({ name, kind: typed.kind, source: typed.source, lineage: typed.lineage });
    }
    return outputs;
  }

  /** Steps that an output or a sink needs, and those that nobody needs as problems. */
  #used(needs: ReadonlyMap<string, ReadonlySet<string>>): Set<string> {
    const open = this.#definition.outputs.flatMap(({ value }) => {
      const reference = parseReference(value);
      return reference?.source === "steps" ? [reference.step] : [];
    });
    for (const [id, outline] of this.#outlines) {
      const acts = outline?.block.purity === "sink" || outline?.block.stateKey !== undefined;
      if (!outline || acts) open.push(id);
    }
    const used = new Set(open);
    // The set grows while it is gone through.
    for (const id of used) for (const needed of needs.get(id) ?? []) used.add(needed);
    const inside = new Set([...used].map((id) => id.split(".")[0]));
    const outer = [...this.#inlining.replaced].flatMap(([id, outputs]) =>
      outputs && !this.#inlining.referred.has(id) && !inside.has(id) ? [id] : [],
    );
    for (const step of [...this.#outlines.keys(), ...outer]) {
      // What the outer workflow has no use for is left out of a sub-workflow's run.
      if (used.has(step) || step.includes(".")) continue;
      const detail = "no output and no sink needs it";
      const fix = "refer to one of its outputs, or take it out";
      this.#problems.add("unused_step", { step, port: null }, { detail, fix });
    }
    return used;
  }
}

/** Where an input is: one of a sub-workflow is a port of the step that it was. */
function spotOf(name: string): ProblemSpot {
  const end = name.lastIndexOf(".");
  return end < 0
    ? { step: null, port: name }
    : { step: name.slice(0, end), port: name.slice(end + 1) };
}

/** Values of a kind that a plan names itself. */
function namesOf(
  kind: Kind,
  inputs: readonly WorkflowInput[],
  { constants, steps }: Pick<WorkflowPlan, "constants" | "steps">,
): string[] {
  const isWanted = (each: Kind) => isKindOf(itemOf(each) ?? each, kind);
  const defaults = inputs.flatMap((input) => {
    if (!isWanted(input.kind)) return [];
    return [constants.get(input.name)?.value ?? input.default];
  });
  const literals = steps.flatMap((step) =>
    step.inputs.flatMap(({ kind: wanted, source }) =>
      source.from === "literal" && isWanted(wanted) ? [source.literal.value] : [],
    ),
  );
  const texts = [...defaults, ...literals].flat();
  return [...new Set(texts.filter((text) => typeof text === "string"))];
}

function planOf(
  { inputs, constants }: Pick<WorkflowPlan, "inputs" | "constants">,
  steps: readonly PlannedStep[],
  outputs: readonly PlannedOutput[],
): WorkflowPlan {
  const parts = { constants, steps };
  return {
    inputs: inputs.filter(({ name }) => !constants.has(name)),
    constants,
    steps,
    outputs,
    runsOn: steps.some(({ block }) => block.runsOn === "node") ? "node" : "anywhere",
    isStateful: steps.some(({ block }) => block.purity !== "pure"),
    hasEffects: steps.some(({ block }) => block.purity === "sink"),
    models: namesOf("model", inputs, parts),
    secrets: namesOf("secret", inputs, parts),
    projects: namesOf("project", inputs, parts),
  };
}
