// Random workflows that are typed right, over any catalogue: each step's ports are given references
// of fitting kinds and batches, or literals.

import fc from "fast-check";
import { type Block, kindProblemFor, portsFor } from "../../shared/workflow/block.ts";
import type { WorkflowDefinition, WorkflowStep } from "../../shared/workflow/definition.ts";
import { isKindOf, type Kind, trackedKind } from "../../shared/workflow/kinds.ts";

export interface GraphSource {
  blocks: ReadonlyMap<string, Block>;
  /** Values of a kind as JSON; null where none can be written. */
  literal: (kind: Kind) => fc.Arbitrary<unknown> | null;
  /** Static parameters of a block by its type; its defaults, if left out. */
  parameters?: (type: string) => fc.Arbitrary<Record<string, unknown>>;
  inputs: WorkflowDefinition["inputs"];
  stepsMax: number;
}

export interface KnownValue {
  reference: string;
  kind: Kind;
  lineage: readonly string[];
}

export interface RandomGraph {
  definition: WorkflowDefinition;
  /** Every value that something can refer to. */
  values: readonly KnownValue[];
}

type Draw = fc.GeneratorValue;

const joins = (one: readonly string[], other: readonly string[]) =>
  one.every((id, index) => index >= other.length || other[index] === id);

function given(draw: Draw, values: readonly KnownValue[], source: GraphSource, kind: Kind) {
  const literal = source.literal(kind);
  const isLiteral = values.length === 0 || draw(fc.nat, { max: 3 }) === 0;
  if (literal && isLiteral) return { json: draw(() => literal), value: null };
  if (values.length === 0) return null;
  const value = draw(() => fc.constantFrom(...values));
  return { json: value.reference, value };
}

/** A step of a block, or null where what it needs is not there. */
function stepOf(draw: Draw, id: string, block: Block, known: KnownValue[], source: GraphSource) {
  const statics = source.parameters ? draw(source.parameters, block.type) : {};
  const parsed = block.parameters.parse(statics);
  const ports = portsFor(block, parsed);
  const step: WorkflowStep = { id, type: block.type, parameters: {} };
  Object.assign(step.parameters, statics);
  const kinds = new Map<string, Kind>();
  let lineage: readonly string[] = [];
  for (const [name, port] of Object.entries(ports.inputs)) {
    kinds.set(name, port.kind);
    const isOpen = port.optional === true || port.default !== undefined;
    if (isOpen && draw(fc.boolean)) continue;
    const isWhole = port.batch === "all";
    const common = (value: KnownValue) => (isWhole ? value.lineage.slice(0, -1) : value.lineage);
    const fitting = known.filter(
      (value) =>
        isKindOf(value.kind, port.kind) &&
        (!isWhole || value.lineage.length > 0) &&
        joins(common(value), lineage),
    );
    const literals = { ...source, literal: isWhole ? () => null : source.literal };
    const chosen = given(draw, fitting, literals, port.kind);
    if (!chosen && isOpen) continue;
    if (!chosen) return null;
    Object.assign(step.parameters, { [name]: chosen.json });
    if (!chosen.value) continue;
    kinds.set(name, chosen.value.kind);
    if (common(chosen.value).length > lineage.length) lineage = common(chosen.value);
  }
  if (kindProblemFor(block, parsed, kinds)) return null;
  const conditions = known.filter(
    (value) => value.kind === "boolean" && joins(value.lineage, lineage),
  );
  if (conditions.length > 0 && draw(fc.nat, { max: 3 }) === 0) {
    const condition = draw(() => fc.constantFrom(...conditions));
    step.when = condition.reference;
    if (condition.lineage.length > lineage.length) lineage = condition.lineage;
  }
  if (block.takesFrames && lineage.length > 0) return null;
  const made: KnownValue[] = [];
  for (const [name, port] of Object.entries(ports.outputs)) {
    const like = typeof port.kind === "string" ? null : port.kind;
    const kind = like ? (kinds.get(like.like) ?? "any") : (port.kind as Kind);
    if (port.deepens && lineage.length >= 3) return null;
    made.push({
      reference: `$steps.${id}.${name}`,
      kind: like?.tracked ? trackedKind(kind) : kind,
      lineage: port.deepens ? [...lineage, id] : lineage,
    });
  }
  return { step, made };
}

/**
 * Workflows of a catalogue that the check must pass; every value that nobody reads is an output.
 */
export const randomGraphs = (source: GraphSource): fc.Arbitrary<RandomGraph> =>
  fc.gen().map((draw) => {
    const known: KnownValue[] = source.inputs.map(({ name, kind }) => ({
      reference: `$inputs.${name}`,
      kind,
      lineage: [],
    }));
    const steps: WorkflowStep[] = [];
    const wanted = draw(fc.integer, { min: 1, max: source.stepsMax });
    const blocks = [...source.blocks.values()];
    for (let tries = 0; steps.length < wanted && tries < wanted * 4; tries++) {
      const block = draw(() => fc.constantFrom(...blocks));
      const made = stepOf(draw, `s${steps.length}`, block, known, source);
      if (!made) continue;
      steps.push(made.step);
      known.push(...made.made);
    }
    const outputs = known
      .filter(({ reference }) => reference.startsWith("$steps."))
      .slice(-100)
      .map(({ reference }, index) => ({ name: `o${index}`, value: reference }));
    const shuffled = draw(fc.shuffledSubarray<WorkflowStep>, steps, {
      minLength: steps.length,
      maxLength: steps.length,
    });
    const definition = { version: "1.0", inputs: source.inputs, steps: shuffled, outputs };
    return { definition, values: known };
  });

/** A workflow some of whose steps are another one. */
export interface EnclosedGraph {
  outer: WorkflowDefinition;
  inner: WorkflowDefinition;
  /** Kinds of what the inner one's steps can refer to, by reference. */
  innerKinds: ReadonlyMap<string, Kind>;
}

/**
 * Moves steps into a workflow of their own, which stands in their stead as the step `sub`: what
 * they refer to outside becomes its inputs, and so does each literal at a port, given as such. No
 * step that stays may lie between two that go.
 */
export function enclosed(
  { blocks }: Pick<GraphSource, "blocks">,
  { definition, kinds }: { definition: WorkflowDefinition; kinds: ReadonlyMap<string, Kind> },
  { ids, slug }: { ids: ReadonlySet<string>; slug: string },
): EnclosedGraph {
  const inputs: WorkflowDefinition["inputs"] = [];
  const given: WorkflowStep["parameters"] = {};
  const innerKinds = new Map(kinds);
  const outputs = new Map<string, string>();
  const take = (kind: Kind, json: WorkflowStep["parameters"][string]): string => {
    const name = `i${inputs.length}`;
    inputs.push({ name, kind });
    given[name] = json;
    innerKinds.set(`$inputs.${name}`, kind);
    return `$inputs.${name}`;
  };
  const isMoved = (reference: string): boolean => ids.has(reference.split(".")[1] ?? "");
  const inside = (reference: string): string =>
    reference.startsWith("$steps.") && isMoved(reference)
      ? reference
      : take(kinds.get(reference) ?? "any", reference);
  const outside = (reference: string): string => {
    if (!reference.startsWith("$steps.") || !isMoved(reference)) return reference;
    const name = outputs.get(reference) ?? `o${outputs.size}`;
    outputs.set(reference, name);
    return `$steps.sub.${name}`;
  };
  const mapped = (step: WorkflowStep, map: (reference: string) => string): WorkflowStep => {
    const block = blocks.get(step.type);
    if (!block) throw new Error(`no block ${step.type}`);
    const ports = portsFor(block, block.parameters.parse(step.parameters)).inputs;
    const parameters = Object.entries(step.parameters).map(([name, json]) => {
      const port = ports[name];
      if (typeof json === "string" && json.startsWith("$")) return [name, map(json)];
      return [name, port && map === inside ? take(port.kind, json) : json];
    });
    const when = [step.when ?? []].flat().map(map);
    return {
      ...step,
      parameters: Object.fromEntries(parameters),
      ...(when.length > 0 && { when }),
    };
  };
  const moved = definition.steps.filter(({ id }) => ids.has(id));
  const steps = definition.steps.filter(({ id }) => !ids.has(id));
  const innerSteps = moved.map((step) => mapped(step, inside));
  const outer = {
    ...definition,
    steps: steps.map((step) => mapped(step, outside)),
    outputs: definition.outputs.map(({ name, value }) => ({ name, value: outside(value) })),
  };
  outer.steps.push({ id: "sub", type: "workflow@1", parameters: { slug, ...given } });
  const inner = {
    version: "1.0",
    inputs,
    steps: innerSteps,
    outputs: [...outputs].map(([value, name]) => ({ name, value })),
  };
  return { outer, inner, innerKinds };
}
