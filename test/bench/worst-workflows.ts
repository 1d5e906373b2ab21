// Definitions of workflows, ours and Roboflow's, that are meant to cost their check the most: what
// a schema cannot say, such as circles, near names and what inner workflows come to.

import type { Description } from "../../edge/http/example-request.ts";
import { BLOCKS } from "../../shared/workflow/blocks.ts";
import { DEFINITION_LIMITS } from "../../shared/workflow/definition.ts";
import type { Schema } from "../support/hostile.ts";
import { placed, type WorstInput, worstOfSchema } from "./worst-inputs.ts";

const STEPS: number = DEFINITION_LIMITS.steps;
const OUTPUTS: number = DEFINITION_LIMITS.outputs;

type Step = Record<string, unknown>;
const counted = <Item>(count: number, make: (index: number) => Item): Item[] =>
  Array.from({ length: count }, (_, index) => make(index));
/** Names that are as long as they may be, and differ at their ends. */
const longName = (index: number) => `${"s".repeat(58)}_${index}`;
const stepsOf = (bytes: number, max = STEPS) => Math.min(max, Math.ceil((bytes / 2 ** 20) * max));

/** A workflow of these steps, with the first of them as its output. */
const definitionOf = (steps: Step[], more: object = {}) => ({
  version: "1.0",
  inputs: [{ name: "n", kind: "json" }],
  steps,
  outputs: [{ name: "o", value: `$steps.${steps[0]?.id}.value` }],
  ...more,
});

/** Values that a step may be given, each a reference to another step. */
const references = (count: number, refer: (index: number) => string) =>
  Object.fromEntries(counted(count, (index) => [`p${index}`, refer(index)]));

/** What a step of `expression@1` with all its inputs is. */
const termsOf = (count: number) => ({
  inputs: counted(count, (index) => `p${index}`),
  expression: counted(count, (index) => `p${index}`).join(" + "),
  kind: "number",
});

const DEFINITIONS: Readonly<Record<string, (bytes: number) => object>> = {
  "a ring of long names": (bytes) => {
    const count = stepsOf(bytes);
    const steps = counted(count, (index) => ({
      id: longName(index),
      type: "constant@1",
      parameters: { value: `$steps.${longName((index + 1) % count)}.value` },
      when: counted(20, (more) => `$steps.${longName((index + more + 2) % count)}.value`),
    }));
    return definitionOf(steps);
  },
  "all steps need others": (bytes) => {
    const count = stepsOf(bytes);
    const steps = counted(count, (index) => ({
      id: longName(index),
      type: "expression@1",
      parameters: {
        ...termsOf(20),
        ...references(20, (more) => `$steps.${longName((index * 7 + more) % count)}.value`),
      },
    }));
    return definitionOf(steps);
  },
  "near names of steps": (bytes) =>
    definitionOf(
      counted(stepsOf(bytes), (index) => ({
        id: longName(index),
        type: "expression@1",
        parameters: { ...termsOf(20), ...references(20, (more) => `$steps.${longName(more)}x.v`) },
      })),
    ),
  "unknown parameters": (bytes) =>
    definitionOf(
      counted(stepsOf(bytes), (index) => ({
        id: `s${index}`,
        type: "expression@1",
        parameters: references(400, (more) => String(more)),
      })),
    ),
  "unknown blocks beyond": (bytes) =>
    definitionOf(
      counted(stepsOf(bytes, 10 * STEPS), (index) => ({
        id: `s${index}`,
        type: `expresion@${index}${"x".repeat(60)}`,
        parameters: {},
      })),
    ),
  "one id again and again": (bytes) =>
    definitionOf(
      counted(stepsOf(bytes, 10 * STEPS), () => ({ id: "s", type: "constant@1", parameters: {} })),
    ),
};

/** Kinds of literals, and an item of which many are given. */
const LITERALS: Readonly<Record<string, unknown>> = {
  zone: [1, 2],
  line: [1, 2],
  json: { a: [1, "x"] },
  "list<string>": "name",
  "list<click>": [1, 2],
  string: "x",
  model: "x",
};

/** A literal of a kind, as long as a definition may be and longer. */
function literalsOf(kind: string, item: unknown): WorstInput["make"] {
  const text = JSON.stringify(item);
  const value = (bytes: number) =>
    kind === "string" || kind === "model"
      ? "x".repeat(bytes)
      : counted(Math.floor(bytes / (text.length + 1)), () => item);
  return (bytes) =>
    JSON.stringify(
      definitionOf([{ id: "s", type: "constant@1", parameters: { value: "$inputs.n" } }], {
        inputs: [{ name: "n", kind, default: value(Math.min(bytes, 2 ** 20) * 0.46) }],
      }),
    );
}

/** Detections in number. */
const detections = (bytes: number) => ({
  frame: { width: 1280, height: 720, offset: [0, 0], scale: [1, 1] },
  objects: counted(Math.floor(bytes / 80), (index) => ({
    class: `c${index}`,
    confidence: 0.5,
    bbox: [1, 2, 3, 4],
  })),
});

/** Definitions of ours; `wrap` makes a body of one. */
export function worstDefinitions(wrap: (definition: unknown) => unknown): WorstInput[] {
  const made = Object.entries(DEFINITIONS).map(([name, make]) => ({
    name: `workflow: ${name}`,
    make: (bytes: number) => JSON.stringify(wrap(make(bytes))),
  }));
  const literals = Object.entries(LITERALS).map(([kind, item]) => ({
    name: `workflow: a long ${kind}`,
    make: (bytes: number) => JSON.stringify(wrap(JSON.parse(literalsOf(kind, item)(bytes)))),
  }));
  const objects = {
    name: "workflow: many detections",
    make: (bytes: number) => {
      const [input] = [{ name: "n", kind: "detections", default: detections(bytes * 0.46) }];
      const step = { id: "s", type: "sort@1", parameters: { detections: "$inputs.n" } };
      return JSON.stringify(wrap(definitionOf([step], { inputs: [input] })));
    },
  };
  return [...made, ...literals, objects];
}

/** Each block's own parameters at their worst, in a workflow of that step. */
export function worstParameters(
  wrap: (definition: unknown) => unknown,
  at: readonly string[],
): WorstInput[] {
  return [...BLOCKS.values()].flatMap((block) => {
    const schema = block.parameters.toJSONSchema({ io: "input", unrepresentable: "any" }) as Schema;
    const step = { id: "s", type: block.type, parameters: {} };
    const body = wrap(definitionOf([step]));
    const document = { info: { title: "", version: "" } } as Description;
    const way = [...at, "steps", "0", "parameters"];
    const inputs = Object.entries(schema.properties ?? {}).flatMap(([name, one]) =>
      worstOfSchema(one, document, { body, at: [...way, name] }),
    );
    const ports = { name: "any port: a list", make: placed(body, [...way, "x"], manyTexts) };
    return [...inputs, ports].map(({ name, make }) => ({ name: `${block.type} ${name}`, make }));
  });
}
const manyTexts = (bytes: number) =>
  JSON.stringify(counted(Math.floor(bytes / 10), () => "a text"));

const INNER = "roboflow_core/inner_workflow@v1";
const ROBOFLOW: Readonly<Record<string, (bytes: number) => object>> = {
  "cases that name inner workflows": (bytes) => {
    const count = STEPS - 1;
    const workflow_definition = { inputs: [], steps: [], outputs: [] };
    const steps = counted(count, (index) => ({
      type: INNER,
      name: `i${index}`,
      workflow_definition,
    }));
    const others = Math.floor((bytes - count * 160) / 20);
    const names = counted(others, (index) => [`k${index}`, "$steps."] as const);
    const named = counted(count, (index) => [`i${index}`, `$steps.i${index}`] as const);
    const cases = Object.fromEntries([...names, ...named]);
    const last = { type: "roboflow_core/switch_case@v1", name: "last", cases };
    return { steps: [...steps, last] };
  },
  "inner workflows of many steps": (bytes) => {
    const steps = counted(STEPS, (index) => ({ type: "x", name: `n${index}` }));
    const outers = counted(Math.ceil(bytes / 52_000), (index) => ({
      type: INNER,
      name: `${"o".repeat(60)}${index}`,
      workflow_definition: { steps },
    }));
    return { steps: outers };
  },
  "a long text in many steps": (bytes) =>
    longTextIn(bytes, (reference) => ({ data: reference, operations: [] })),
  "a long text as many values": (bytes) =>
    longTextIn(bytes, (reference) => ({ data: "$inputs.x.y", operations: reference })),
  "next steps that are one": (bytes) => ({
    steps: counted(STEPS, (index) => ({
      type: "roboflow_core/continue_if@v1",
      name: `c${index}`,
      next_steps: counted(Math.floor(bytes / STEPS / 14), (one) => `$steps.c${one % STEPS}`),
    })),
  }),
  "a chain of steps": () => ({
    steps: counted(STEPS, (index) => ({
      type: "roboflow_core/property_definition@v1",
      name: `c${index}`,
      data: `$steps.c${index + 1}.output`,
      operations: [{ type: "SequenceLength" }],
    })),
    outputs: counted(OUTPUTS, (index) => ({ name: "o", selector: `$steps.c${index}.*` })),
  }),
  "operations that repeat their text": () => {
    const size = { type: "ExtractDetectionProperty", property_name: "size" };
    const double = { type: "Multiply", other: 2 };
    const operations = [...counted(10, () => size), ...counted(80, () => double)];
    const type = "roboflow_core/property_definition@v1";
    return { steps: [{ type, name: "p", data: "$inputs.n", operations }], inputs: [INPUT] };
  },
  "values of one name": (bytes) =>
    decidedBy(Object.fromEntries(counted(longest(bytes), (index) => ["!".repeat(index), 1]))),
  "many values": (bytes) =>
    decidedBy(Object.fromEntries(counted(Math.floor(bytes / 10), (index) => [`v${index}`, 1]))),
  "cases of a step that is the other, too": (bytes) =>
    switchedBy(
      counted(Math.floor(bytes / 18), () => "$steps.t"),
      ["$steps.t"],
    ),
  "other steps that are not there": (bytes) =>
    switchedBy(
      [],
      counted(Math.floor(bytes / 16), (index) => `$steps.t${index}`),
    ),
  "an inner workflow that is none, and steps of its name": (bytes) => {
    const values = counted(Math.floor(bytes / 12), (index) => [`k${index}`, 0] as const);
    const parameter_bindings = Object.fromEntries(values);
    const workflow_definition = { inputs: [], steps: [], outputs: [] };
    const more = { workflow_definition, parameter_bindings, execution_mode: "none" };
    const others = counted(STEPS - 1, () => ({ type: "x", name: "a" }));
    return { steps: [{ type: INNER, name: "a", ...more }, ...others] };
  },
  "deep operations": (bytes) => ({
    steps: [
      {
        type: "roboflow_core/property_definition@v1",
        name: "p",
        data: "$inputs.n",
        operations: counted(Math.floor(bytes / 30), () => ({ type: "SequenceLength" })),
      },
    ],
    inputs: [{ type: "WorkflowParameter", name: "n" }],
    outputs: [{ name: "o", selector: "$steps.p.output" }],
  }),
};

const INPUT = { type: "WorkflowParameter", name: "n" };
/** So many texts of a letter more each come to so many bytes. */
const longest = (bytes: number) => Math.floor(Math.sqrt(2 * bytes) * 0.98);

/** A step that decides by a condition over values. */
const decidedBy = (evaluation_parameters: object) => ({
  steps: [
    {
      type: "roboflow_core/continue_if@v1",
      name: "c",
      condition_statement: {
        type: "UnaryStatement",
        operand: { type: "StaticOperand", value: 1 },
        operator: { type: "Exists" },
      },
      evaluation_parameters,
    },
  ],
});

/** A step that decides by cases, which name these steps, and those of all other cases. */
const switchedBy = (targets: readonly string[], default_next_steps: readonly string[]) => ({
  inputs: [INPUT],
  steps: [
    {
      type: "roboflow_core/switch_case@v1",
      name: "s",
      value: "$inputs.n",
      cases: Object.fromEntries(targets.map((target, index) => [`k${index}`, target])),
      default_next_steps,
    },
  ],
});

/** One text that an inner workflow's steps all take. */
function longTextIn(bytes: number, fields: (reference: string) => object): object {
  const steps = counted(STEPS, (index) => ({
    type: "roboflow_core/property_definition@v1",
    name: `n${index}`,
    ...fields("$inputs.x"),
  }));
  const inner = { inputs: [{ type: "WorkflowParameter", name: "x" }], steps, outputs: [] };
  const text = `$steps.known.${"x".repeat(Math.max(0, bytes - 40_000))}`;
  const known = {
    type: "roboflow_core/property_definition@v1",
    name: "known",
    data: "$inputs.n",
    operations: [],
  };
  const outer = {
    type: INNER,
    name: "i",
    workflow_definition: inner,
    parameter_bindings: { x: text },
  };
  return { inputs: [{ type: "WorkflowParameter", name: "n" }], steps: [known, outer] };
}

/** Definitions of Roboflow's. */
export const worstRoboflow = (): WorstInput[] =>
  Object.entries(ROBOFLOW).map(([name, make]) => ({
    name: `roboflow: ${name}`,
    make: (bytes) => JSON.stringify({ definition: make(bytes) }),
  }));
