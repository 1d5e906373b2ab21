// Kinds and batches through a workflow: what a reference stands for, whether it may stand at a
// port, and what a step makes of what it is given. A null kind or lineage is one that a problem
// told of elsewhere keeps from being known: it makes no further problems.

import { type InputPort, kindProblemFor, type OutputPort } from "./block.ts";
import { DEFINITION_LIMITS, parseReference } from "./definition.ts";
import { isKindOf, type Kind, trackedKind } from "./kinds.ts";
import { contentKey, isWritable, meaningOf, readLiteral } from "./literals.ts";
import { isOpen, type Outline } from "./outline.ts";
import type { Lineage, PlannedInput, PlannedSource, PlannedStep } from "./plan.ts";
import { aKind, type ProblemSpot, type Problems } from "./problems.ts";

export interface TypedValue {
  kind: Kind | null;
  lineage: Lineage | null;
  source: PlannedSource;
}

/** What references can name. */
export interface Scope {
  inputs: ReadonlyMap<string, TypedValue>;
  /** Outputs by step and port; null of a step whose ports are not known, or not yet. */
  steps: Map<string, ReadonlyMap<string, TypedValue> | null>;
  /** Outputs of the steps that were sub-workflows. */
  replaced: ReadonlyMap<string, readonly string[] | null>;
  /** References that are conditions of sub-workflows, and so of each step of theirs. */
  conditions: ReadonlySet<string>;
}

/** Text that was meant as a reference, whether it is one or not. */
const REFERENCE_START = /^\$(inputs|steps)\./;

const isPrefix = (start: Lineage, whole: Lineage) =>
  start.every((step, index) => step === whole[index]);
const inBatches = (lineage: Lineage) =>
  lineage.length === 0 ? "is of the whole run" : `is in the batch of ${lineage.join(" in ")}`;

export class StepTyping {
  readonly #scope: Scope;
  readonly #problems: Problems;

  constructor(scope: Scope, problems: Problems) {
    this.#scope = scope;
    this.#problems = problems;
  }

  /** What a reference stands for, where a kind is asked for; null where it stands for nothing. */
  typed(text: string, wanted: Kind, spot: ProblemSpot): TypedValue | null {
    const value = this.#find(text, spot);
    if (value?.kind && !isKindOf(value.kind, wanted)) {
      const detail = `${text} is ${aKind(value.kind)}, not ${aKind(wanted)}`;
      this.#problems.add("wrong_kind", spot, { detail, fix: this.#advice(wanted) });
    }
    return value;
  }

  /** Types a step's inputs and outputs; null where a problem keeps it from being planned. */
  step(outline: Outline): PlannedStep | null {
    const { step, block, ports } = outline;
    const before = this.#problems.all.length;
    const inputs = Object.entries(ports.inputs).map(([name, port]) => ({
      name,
      port,
      value: this.#given(outline, name, port),
    }));
    const when = [step.when ?? []].flat().map((text) => ({
      name: "when",
      // A sub-workflow's condition is told of once, at its own step, not at each step in it.
      value: this.typed(text, this.#scope.conditions.has(text) ? "any" : "boolean", {
        step: step.id,
        port: "when",
      }),
    }));
    const lineages = [
      ...inputs.map(({ name, port, value }) => ({
        name,
        lineage: this.#common(step.id, name, port, value),
      })),
      ...when.map(({ name, value }) => ({ name, lineage: value ? value.lineage : null })),
    ];
    const lineage = this.#join(step.id, lineages);
    if (block.takesFrames && lineage && lineage.length > 0) {
      const port = lineages.find((each) => each.lineage === lineage)?.name ?? null;
      const detail = `${block.type} takes one value of a frame, and this one ${inBatches(lineage)}`;
      const fix = "collapse or stitch the batch first";
      this.#problems.add("wrong_depth", { step: step.id, port }, { detail, fix });
    }
    const kinds = new Map(
      inputs.map(({ name, port, value }) => [name, value === "open" ? port.kind : value?.kind]),
    );
    const outputs = Object.entries(ports.outputs).map(([name, port]) => {
      const kind = kindOf(port, kinds, ports.inputs);
      return { port: name, kind, deepens: port.deepens === true };
    });
    this.#scope.steps.set(step.id, this.#outputsOf(step.id, outputs, lineage));
    const problem = kindProblemFor(
      block,
      outline.parameters,
      new Map([...kinds].map(([name, kind]) => [name, kind ?? null])),
    );
    if (problem) {
      const { parameter: port, detail, fix } = problem;
      this.#problems.add("wrong_kind", { step: step.id, port }, { detail, fix });
    }
    if (this.#problems.all.length > before || lineage === null) return null;
    return {
      id: step.id,
      block,
      parameters: outline.parameters,
      key: contentKey([block.type, JSON.stringify(outline.parameters)]),
      inputs: inputs.flatMap(({ name, port, value }, index) => {
        const common = lineages[index]?.lineage ?? null;
        if (value === "open" || value === null || common === null) return [];
        return [plannedInput(name, port, value.source, common)];
      }),
      when: when.flatMap(({ value }) =>
        value?.lineage ? [{ source: value.source, lineage: value.lineage }] : [],
      ),
      outputs: outputs.map(({ port, kind, deepens }) => ({ port, kind: kind ?? "any", deepens })),
      lineage,
    };
  }

  #find(text: string, spot: ProblemSpot): TypedValue | null {
    const reference = parseReference(text);
    const unknown = (detail: string, fix: string) => {
      this.#problems.add("unknown_reference", spot, { detail, fix });
      return null;
    };
    if (!reference) return unknown(`${text} is no reference`, "write $steps.<step>.<output>");
    const { inputs, steps, replaced } = this.#scope;
    const problems = this.#problems;
    if (reference.source === "inputs") {
      if (replaced.get(reference.name) === null) return null;
      const input = inputs.get(reference.name);
      if (input) return input;
      const fix = problems.otherName(reference.name, [...inputs.keys()], "declare it under inputs");
      return unknown(`there is no input ${reference.name}`, fix);
    }
    const { step, port } = reference;
    const outputs = steps.get(step);
    if (outputs === null) return null;
    if (outputs) {
      const output = outputs.get(port);
      if (output) return output;
      const fix = problems.otherName(port, [...outputs.keys()], `${step} has no outputs`);
      return unknown(`${step} has no output ${port}`, fix);
    }
    const names = replaced.get(step);
    if (names === null) return null;
    if (names?.includes(port)) {
      const said = {
        detail: `${text} comes back to itself`,
        fix: "take one of its references out",
      };
      this.#problems.add("cycle", spot, said);
      return null;
    }
    if (names) {
      const fix = problems.otherName(port, names, `${step} has no outputs`);
      return unknown(`the workflow of ${step} has no output ${port}`, fix);
    }
    const known = [...steps.keys(), ...replaced.keys()].filter((id) => !id.includes("."));
    return unknown(`there is no step ${step}`, problems.otherName(step, known, "add it"));
  }

  /** What a port is given: a value, nothing, or, null, what a problem keeps from being known. */
  #given({ step }: Outline, name: string, port: InputPort): TypedValue | "open" | null {
    const spot = { step: step.id, port: name };
    if (!Object.hasOwn(step.parameters, name)) {
      if (port.default !== undefined) {
        const literal = { value: port.default, key: contentKey(port.default) };
        return { kind: port.kind, lineage: [], source: { from: "literal", literal } };
      }
      if (isOpen(port)) return "open";
      const detail = `it needs ${aKind(port.kind)} here: ${port.meaning}`;
      this.#problems.add("missing_port", spot, { detail, fix: this.#advice(port.kind) });
      return null;
    }
    const given = step.parameters[name];
    if (typeof given === "string" && REFERENCE_START.test(given)) {
      return this.typed(given, port.kind, spot);
    }
    const { literal, problem } = readLiteral(port.kind, given);
    if (literal) return { kind: port.kind, lineage: [], source: { from: "literal", literal } };
    this.#problems.add("bad_value", spot, { detail: problem, fix: this.#advice(port.kind) });
    return null;
  }

  /** The batches that a step has in common with what it is given at a port. */
  #common(
    step: string,
    name: string,
    port: InputPort,
    value: TypedValue | "open" | null,
  ): Lineage | null {
    if (value === "open") return [];
    if (value === null || value.lineage === null) return null;
    const isDefault =
      value.source.from === "literal" && port.default === value.source.literal.value;
    if (port.batch !== "all" || isDefault) return value.lineage;
    if (value.lineage.length > 0) return value.lineage.slice(0, -1);
    const detail = "it takes all elements of a batch, and this value is in none";
    const fix =
      "refer to what is made of each element of a batch, such as of the crops of an image";
    this.#problems.add("wrong_depth", { step, port: name }, { detail, fix });
    return null;
  }

  /** The batches of a step's elements: the longest, which all others must be a part of. */
  #join(step: string, given: readonly { name: string; lineage: Lineage | null }[]): Lineage | null {
    let longest: Lineage = [];
    let isKnown = true;
    for (const { lineage } of given) {
      if (lineage === null) isKnown = false;
      else if (lineage.length > longest.length) longest = lineage;
    }
    for (const { name, lineage } of given) {
      if (lineage === null || isPrefix(lineage, longest)) continue;
      isKnown = false;
      const detail = `the value ${inBatches(lineage)}, another one ${inBatches(longest)}`;
      const fix = "collapse one of the batches first, or take both values from one";
      this.#problems.add("wrong_depth", { step, port: name }, { detail, fix });
    }
    return isKnown ? longest : null;
  }

  #outputsOf(
    step: string,
    outputs: readonly { port: string; kind: Kind | null; deepens: boolean }[],
    lineage: Lineage | null,
  ): ReadonlyMap<string, TypedValue> {
    return new Map(
      outputs.map(({ port, kind, deepens }) => {
        const source: PlannedSource = { from: "step", step, port };
        if (!deepens || lineage === null) {
          return [port, { kind, lineage: deepens ? null : lineage, source }];
        }
        if (lineage.length < DEFINITION_LIMITS.depth) {
          return [port, { kind, lineage: [...lineage, step], source }];
        }
        const detail = `batches are in each other ${DEFINITION_LIMITS.depth} deep at most`;
        const fix = "collapse a batch first";
        this.#problems.add("wrong_depth", { step, port }, { detail, fix });
        return [port, { kind, lineage: null, source }];
      }),
    );
  }

  /** What would fit where a kind is asked for. */
  #advice(kind: Kind): string {
    const known: [string, TypedValue][] = [...this.#scope.inputs].map(([name, value]) => [
      `$inputs.${name}`,
      value,
    ]);
    for (const [step, outputs] of this.#scope.steps)
      for (const [port, value] of outputs ?? []) known.push([`$steps.${step}.${port}`, value]);
    const fitting = known.find(([, value]) => value.kind !== null && isKindOf(value.kind, kind));
    const written = isWritable(kind) ? `write ${meaningOf(kind)}` : null;
    const referred = fitting ? `refer to ${aKind(kind)}, such as ${fitting[0]}` : null;
    return [referred, written].filter(Boolean).join(", or ") || `refer to ${aKind(kind)}`;
  }
}

const plannedInput = (
  port: string,
  { kind, batch, takesMasked }: InputPort,
  source: PlannedSource,
  lineage: Lineage,
): PlannedInput => ({
  port,
  kind,
  isWhole: batch === "all" && source.from !== "literal",
  takesMasked: takesMasked === true,
  source,
  lineage,
});

function kindOf(
  { kind }: OutputPort,
  given: ReadonlyMap<string, Kind | null | undefined>,
  ports: Readonly<Record<string, InputPort>>,
): Kind | null {
  if (typeof kind === "string") return kind;
  const came = given.get(kind.like) ?? null;
  if (came === null) return null;
  const declared = Object.hasOwn(ports, kind.like) ? (ports[kind.like]?.kind ?? came) : came;
  // What came in by mistake was told of: what is made of it is as if it had been right.
  const fitting = isKindOf(came, declared) ? came : declared;
  return kind.tracked ? trackedKind(fitting) : fitting;
}
