// Random workflows that are typed right pass the check, run, and come to what a plain evaluator,
// that knows neither caches nor concurrency, comes to; edits that break typing are refused where
// they are.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { portsFor } from "../../../shared/workflow/block.ts";
import { checkWorkflow } from "../../../shared/workflow/check.ts";
import { parseReference, type WorkflowDefinition } from "../../../shared/workflow/definition.ts";
import { executePlan, RUN_LIMITS } from "../../../shared/workflow/execution.ts";
import type { Kind } from "../../../shared/workflow/kinds.ts";
import { readInputs } from "../../../shared/workflow/wire.ts";
import { GRAPH_BLOCKS } from "../../support/workflow-blocks.ts";
import { enclosed, type KnownValue, randomGraphs } from "../../support/workflow-graphs.ts";

const seed = process.env.SEED ? { seed: Number(process.env.SEED) } : {};
const library = { blocks: GRAPH_BLOCKS, workflows: new Map<string, WorkflowDefinition>() };

const literal = (kind: Kind): fc.Arbitrary<unknown> | null => {
  if (kind === "boolean") return fc.boolean();
  return kind === "number" || kind === "any" ? fc.integer({ min: 0, max: 4 }) : null;
};
const names = fc.uniqueArray(fc.constantFrom("x", "y", "z"), { minLength: 1 });
const parameters = (type: string): fc.Arbitrary<Record<string, unknown>> =>
  type === "named@1" ? names.map((each) => ({ names: each })) : fc.constant({});
const graphs = randomGraphs({
  blocks: GRAPH_BLOCKS,
  literal,
  parameters,
  inputs: [
    { name: "n", kind: "number", default: 2 },
    { name: "flag", kind: "boolean", default: true },
  ],
  stepsMax: 10,
});

/** A value by the path of its element; it calls the blocks as their ports say and keeps nothing. */
class Naive {
  readonly #steps;
  readonly #values;

  constructor(definition: WorkflowDefinition, values: readonly KnownValue[]) {
    this.#steps = new Map(definition.steps.map((step) => [step.id, step]));
    this.#values = new Map(values.map((value) => [value.reference, value]));
  }

  #depth(reference: string): number {
    return this.#values.get(reference)?.lineage.length ?? 0;
  }

  /** A value with all batches below a path as lists. */
  whole(reference: string, path: number[] = []): unknown {
    if (path.length === this.#depth(reference)) return this.one(reference, path);
    const length = this.#length(reference, path);
    if (length === null) return null;
    return Array.from({ length }, (_, index) => this.whole(reference, [...path, index]));
  }

  #length(reference: string, path: number[]): number | null {
    const maker = this.#values.get(reference)?.lineage[path.length] ?? "";
    const ports = this.#made(maker, path);
    const list = Object.values(ports ?? {}).find((each) => Array.isArray(each));
    if (!list) return null;
    return (list as unknown[]).length;
  }

  one(reference: string, path: number[]): unknown {
    const parsed = parseReference(reference);
    if (parsed?.source !== "steps") return parsed?.name === "n" ? 2 : true;
    const block = GRAPH_BLOCKS.get(this.#steps.get(parsed.step)?.type ?? "");
    const isDeep = block?.outputs[parsed.port]?.deepens === true;
    const made = this.#made(parsed.step, isDeep ? path.slice(0, -1) : path);
    const value = made?.[parsed.port] ?? null;
    return isDeep ? ((value as unknown[] | null)?.[path.at(-1) ?? 0] ?? null) : value;
  }

  #made(id: string, path: number[]): Readonly<Record<string, unknown>> | null {
    const step = this.#steps.get(id);
    const block = GRAPH_BLOCKS.get(step?.type ?? "");
    if (!step || !block?.run) throw new Error(`no step ${id}`);
    const parsed = block.parameters.parse(step.parameters);
    const ports = portsFor(block, parsed);
    const inputs: Record<string, unknown> = {};
    for (const when of [step.when ?? []].flat())
      if (this.one(when, path.slice(0, this.#depth(when))) !== true) return null;
    for (const [name, port] of Object.entries(ports.inputs)) {
      const json = step.parameters[name] ?? port.default;
      if (json === undefined) continue;
      const isReference = parseReference(json) !== null;
      const depth = isReference ? this.#depth(json as string) : 0;
      let value: unknown = json;
      if (isReference && port.batch === "all") {
        const all = this.whole(json as string, path.slice(0, depth - 1));
        value = (all as unknown[] | null)?.filter((each) => each !== null) ?? null;
      } else if (isReference) value = this.one(json as string, path.slice(0, depth));
      if (value === null && !port.takesMasked) return null;
      inputs[name] = value;
    }
    const call = { inputs, parameters: parsed, state: null, now: 0 };
    const result = block.run({ ...call, signal: new AbortController().signal });
    return (result as { outputs: Record<string, unknown> }).outputs;
  }
}

async function run(definition: WorkflowDefinition, workflows = library.workflows) {
  const { plan, problems } = checkWorkflow(definition, { ...library, workflows });
  expect(problems).toEqual([]);
  if (!plan) throw new Error("no plan");
  const inputs = await readInputs(plan, {}, () => Promise.reject(new Error("no image")));
  const signal = new AbortController().signal;
  const request = { plan, inputs, runs: new Map(), state: {}, now: 0, signal };
  const limits = { ...RUN_LIMITS, concurrency: 4 };
  return executePlan({ ...request, limits, clock: () => 0 });
}

/** Masked batches as null however deep: which level says so is no part of the contract. */
const bare = (value: unknown): unknown => {
  if (!Array.isArray(value)) return value;
  const items = value.map(bare);
  return items.length > 0 && items.every((item) => item === null) ? null : items;
};

/** Whether one value's batches are those of another, or some of them. */
const isWithin = (one: readonly string[], other: readonly string[]): boolean =>
  one.every((step, level) => other[level] === step || level >= other.length);

describe("random workflows", () => {
  it("pass the check, and come to what a plain evaluator comes to", async () => {
    await fc.assert(
      fc.asyncProperty(graphs, async ({ definition, values }) => {
        const { outputs } = await run(definition);
        const naive = new Naive(definition, values);
        for (const { name, value } of definition.outputs)
          expect(bare(outputs[name])).toEqual(bare(naive.whole(value)));
      }),
      { numRuns: 150, ...seed },
    );
  });

  it("come to the same with some of their steps in a sub-workflow, and some of these in another", async () => {
    const range = (definition: WorkflowDefinition, picks: readonly number[]) => {
      // By their numbers, each step comes after what it needs.
      const ids = definition.steps.map(({ id }) => id).sort((a, b) => numberOf(a) - numberOf(b));
      const [start = 0, end = 0] = picks.map((pick) => pick % ids.length).sort((a, b) => a - b);
      return new Set(ids.slice(start, end + 1));
    };
    const numberOf = (id: string) => Number(id.slice(1));
    const pair = fc.tuple(fc.nat(), fc.nat());
    await fc.assert(
      fc.asyncProperty(graphs, pair, pair, async ({ definition, values }, outermost, innermost) => {
        const kinds = new Map(values.map(({ reference, kind }) => [reference, kind]));
        const whole = { ids: range(definition, outermost), slug: "one" };
        const { outer, inner, innerKinds } = enclosed(library, { definition, kinds }, whole);
        const part = { ids: range(inner, innermost), slug: "two" };
        const two = enclosed(library, { definition: inner, kinds: innerKinds }, part);
        const expected = (await run(definition)).outputs;
        const workflows = new Map([["one", inner]]);
        expect((await run(outer, workflows)).outputs).toEqual(expected);
        workflows.set("one", two.outer).set("two", two.inner);
        expect((await run(outer, workflows)).outputs).toEqual(expected);
      }),
      { numRuns: 150, ...seed },
    );
  });

  it("are refused at the step and port of an edit that breaks typing", () => {
    fc.assert(
      fc.property(graphs, fc.nat(), fc.nat({ max: 3 }), ({ definition }, pick, edit) => {
        const steps = structuredClone(definition.steps);
        const step = steps[pick % steps.length];
        if (!step) return;
        const edits = [
          { port: "no_such", code: "unknown_parameter", json: 1 },
          { port: "a", code: "wrong_kind", json: "$inputs.text" },
          { port: "a", code: "unknown_reference", json: "$steps.nobody.x" },
          { port: "a", code: "bad_value", json: "seven" },
        ] as const;
        const { port, code, json } = edits[edit] ?? edits[0];
        if (port === "a" && step.type !== "add@1" && step.type !== "first@1") return;
        step.parameters[port] = json;
        const text = { name: "text", kind: "string" as const };
        const inputs = [...definition.inputs, text];
        const { problems, plan } = checkWorkflow({ ...definition, inputs, steps }, library);
        expect(plan).toBeNull();
        expect(problems).toContainEqual(expect.objectContaining({ code, step: step.id, port }));
      }),
      { numRuns: 200, ...seed },
    );
  });

  it("are refused where an output, a condition or a depth is wrong, by its name or step", () => {
    fc.assert(
      fc.property(graphs, fc.nat(), ({ definition, values }, pick) => {
        const check = (edit: (changed: WorkflowDefinition) => void) => {
          const changed = structuredClone(definition);
          edit(changed);
          const { problems, plan } = checkWorkflow(changed, library);
          expect(plan).toBeNull();
          return problems;
        };
        const output = pick % definition.outputs.length;
        const name = definition.outputs[output]?.name ?? null;
        const nowhere = check(({ outputs }) => {
          Object.assign(outputs[output] ?? {}, { value: "$steps.nobody.x" });
        });
        expect(nowhere).toContainEqual(
          expect.objectContaining({ code: "unknown_reference", step: null, port: name }),
        );
        const at = pick % definition.steps.length;
        const step = definition.steps[at]?.id;
        const condition = check(({ steps }) =>
          Object.assign(steps[at] ?? {}, { when: "$inputs.n" }),
        );
        expect(condition).toContainEqual(
          expect.objectContaining({ code: "wrong_kind", step, port: "when" }),
        );
        // What takes a whole batch is handed a value that is in none.
        const whole = check(({ steps, outputs }) => {
          steps.push({ id: "whole", type: "total@1", parameters: { items: "$inputs.n" } });
          outputs.push({ name: "whole", value: "$steps.whole.total" });
        });
        expect(whole).toContainEqual(
          expect.objectContaining({ code: "wrong_depth", step: "whole", port: "items" }),
        );
        // A value of one batch beside one of another, which is no part of it.
        const deep = values.filter(({ lineage, kind }) => lineage.length > 0 && kind === "number");
        const [first] = deep;
        const other = deep.find(({ lineage }) => !isWithin(lineage, first?.lineage ?? []));
        if (!first || !other) return;
        const apart = check(({ steps, outputs }) => {
          const parameters = { a: first.reference, b: other.reference };
          steps.push({ id: "apart", type: "add@1", parameters });
          outputs.push({ name: "apart", value: "$steps.apart.sum" });
        });
        expect(apart).toContainEqual(
          expect.objectContaining({ code: "wrong_depth", step: "apart" }),
        );
      }),
      { numRuns: 150, ...seed },
    );
  });

  it("are refused where a needed port is taken out, and on a circle", () => {
    fc.assert(
      fc.property(graphs, ({ definition }) => {
        for (const [index, { id, type }] of definition.steps.entries()) {
          if (type !== "add@1") continue;
          const steps = structuredClone(definition.steps);
          delete steps[index]?.parameters.a;
          const without = checkWorkflow({ ...definition, steps }, library).problems;
          const missing = { code: "missing_port", step: id, port: "a" };
          expect(without).toContainEqual(expect.objectContaining(missing));
          Object.assign(steps[index]?.parameters ?? {}, { a: `$steps.${id}.sum` });
          const { problems } = checkWorkflow({ ...definition, steps }, library);
          expect(problems).toContainEqual(expect.objectContaining({ code: "cycle", step: id }));
        }
      }),
      { numRuns: 50, ...seed },
    );
  });
});
