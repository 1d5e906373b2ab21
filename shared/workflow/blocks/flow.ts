// Blocks that decide which elements go on, and where: an element that does not is masked for the
// steps behind, and the run goes on with the others.

import { z } from "zod";
import { type Block, BlockFailure, defineBlock, type InputPort } from "../block.ts";
import {
  ExpressionFailure,
  isRecord,
  isSame,
  nameOfType,
  StepBudget,
} from "../expressions/budget.ts";
import { includesText } from "../expressions/functions.ts";
import { ATOMS, type Kind, listOf } from "../kinds.ts";

const common = { runsOn: "anywhere", purity: "pure", cost: "free" } as const;
const COUNT = 8;

/** Ports `value_1` to `value_8`, of which only the first one must be given. */
const valuePorts = (port: InputPort): Readonly<Record<string, InputPort>> =>
  Object.fromEntries(
    Array.from({ length: COUNT }, (_, index) => [
      `value_${index + 1}`,
      index === 0 ? port : { ...port, optional: true as const },
    ]),
  );

/** What came in at the ports `value_1` to `value_8`, in their order; null of a masked one. */
const valuesOf = (inputs: Readonly<Record<string, unknown>>): unknown[] =>
  Array.from({ length: COUNT }, (_, index) => inputs[`value_${index + 1}`]).filter(
    (value) => value !== undefined,
  );

const OPERATORS = [
  "equal",
  "not_equal",
  "less",
  "less_or_equal",
  "greater",
  "greater_or_equal",
  "in",
  "not_in",
  "contains",
  "starts_with",
  "ends_with",
  "is_empty",
  "is_not_empty",
] as const;
type Operator = (typeof OPERATORS)[number];

/** What is asked of values, within what an expression may cost. */
function bounded<T>(ask: (budget: StepBudget) => T): T {
  try {
    return ask(new StepBudget());
  } catch (error) {
    if (!(error instanceof ExpressionFailure)) throw error;
    throw new BlockFailure("the values are too large to be compared", { cause: error });
  }
}

const areSame = (one: unknown, other: unknown): boolean =>
  bounded((budget) => isSame(one, other, budget.visitor(0)));

function refuse(operator: Operator, ...values: readonly unknown[]): never {
  const types = values.map(nameOfType).join(" and ");
  throw new BlockFailure(`\`${operator}\` cannot be asked of ${types}`);
}

function isOrdered(operator: Operator, left: unknown, right: unknown): boolean {
  const areNumbers = typeof left === "number" && typeof right === "number";
  if (!areNumbers && !(typeof left === "string" && typeof right === "string")) {
    refuse(operator, left, right);
  }
  if (operator === "less") return left < right;
  if (operator === "less_or_equal") return left <= right;
  return operator === "greater" ? left > right : left >= right;
}

/** Whether a list holds a value, a text another one, or an object a member of a name. */
function isPart(operator: Operator, part: unknown, whole: unknown): boolean {
  if (Array.isArray(whole)) {
    return bounded((budget) => whole.some((item) => isSame(item, part, budget.visitor(0))));
  }
  if (typeof part === "string" && typeof whole === "string") {
    return bounded((budget) => includesText(whole, part, { budget, offset: 0 }));
  }
  if (typeof part === "string" && isRecord(whole)) return Object.hasOwn(whole, part);
  return refuse(operator, part, whole);
}

/** Whether a text, a list, objects of an image, or any other object has nothing in it. */
function isEmpty(operator: Operator, value: unknown): boolean {
  if (typeof value === "string" || Array.isArray(value)) return value.length === 0;
  if (!isRecord(value)) return refuse(operator, value);
  const { objects } = value;
  return Array.isArray(objects) ? objects.length === 0 : Object.keys(value).length === 0;
}

function isEdge(operator: Operator, left: unknown, right: unknown): boolean {
  if (typeof left !== "string" || typeof right !== "string") return refuse(operator, left, right);
  return operator === "starts_with" ? left.startsWith(right) : left.endsWith(right);
}

function holds(operator: Operator, left: unknown, right: unknown): boolean {
  if (operator === "is_empty") return isEmpty(operator, left);
  if (operator === "is_not_empty") return !isEmpty(operator, left);
  if (right === undefined) throw new BlockFailure(`\`${operator}\` needs a value at \`right\``);
  switch (operator) {
    case "equal":
      return areSame(left, right);
    case "not_equal":
      return !areSame(left, right);
    case "in":
      return isPart(operator, left, right);
    case "not_in":
      return !isPart(operator, left, right);
    case "contains":
      return isPart(operator, right, left);
    case "starts_with":
    case "ends_with":
      return isEdge(operator, left, right);
    default:
      return isOrdered(operator, left, right);
  }
}

const condition = defineBlock({
  ...common,
  type: "condition@1",
  title: "Condition",
  description:
    "Asks something of one value, or of two. Numbers are ordered with numbers and texts with texts; " +
    "anything else there fails the step.",
  section: "flow",
  inputs: {
    left: { kind: "json", meaning: "the value that is asked about" },
    right: { kind: "json", meaning: "what it is compared with; not for is_empty", optional: true },
  },
  parameters: z.object({
    operator: z.enum(OPERATORS).meta({
      description: "in: left is in right; contains: right is in left; is_empty: of objects, too",
    }),
  }),
  outputs: { result: { kind: "boolean", meaning: "whether it is so" } },
  example: {
    parameters: { operator: "greater_or_equal" },
    inputs: { left: 3, right: 2 },
    outputs: { result: true },
  },
  run: ({ inputs, parameters }) => ({
    outputs: { result: holds(parameters.operator, inputs.left, inputs.right) },
  }),
});

const booleans = valuePorts({ kind: "boolean", meaning: "a condition" });

const allOf = defineBlock({
  ...common,
  type: "all_of@1",
  title: "All of",
  description: "Whether all conditions are true.",
  section: "flow",
  inputs: booleans,
  parameters: z.object({}),
  outputs: { result: { kind: "boolean", meaning: "whether none is false" } },
  example: {
    parameters: {},
    inputs: { value_1: true, value_2: false },
    outputs: { result: false },
  },
  run: ({ inputs }) => ({
    outputs: { result: valuesOf(inputs).every((value) => value === true) },
  }),
});

const anyOf = defineBlock({
  ...common,
  type: "any_of@1",
  title: "Any of",
  description: "Whether one condition is true, or more.",
  section: "flow",
  inputs: booleans,
  parameters: z.object({}),
  outputs: { result: { kind: "boolean", meaning: "whether one is true" } },
  example: {
    parameters: {},
    inputs: { value_1: true, value_2: false },
    outputs: { result: true },
  },
  run: ({ inputs }) => ({
    outputs: { result: valuesOf(inputs).some((value) => value === true) },
  }),
});

const not = defineBlock({
  ...common,
  type: "not@1",
  title: "Not",
  description: "The other one of true and false.",
  section: "flow",
  inputs: { value: { kind: "boolean", meaning: "a condition" } },
  parameters: z.object({}),
  outputs: { result: { kind: "boolean", meaning: "true where the condition is false" } },
  example: { parameters: {}, inputs: { value: true }, outputs: { result: false } },
  run: ({ inputs }) => ({ outputs: { result: !inputs.value } }),
});

const continueIf = defineBlock({
  ...common,
  type: "continue_if@1",
  title: "Continue if",
  description: "Lets a value through where a condition is true; where it is not, it is masked.",
  section: "flow",
  inputs: {
    value: { kind: "any", meaning: "what is let through" },
    condition: { kind: "boolean", meaning: "whether it is" },
  },
  parameters: z.object({}),
  outputs: { value: { kind: { like: "value" }, meaning: "the value, as it came" } },
  example: {
    parameters: {},
    inputs: { value: "a dog", condition: false },
    outputs: { value: null },
  },
  run: ({ inputs }) => ({ outputs: { value: inputs.condition ? inputs.value : null } }),
});

const OTHERWISE = "otherwise";
const CASE_NAME = /^[a-z][a-z0-9_]{0,39}$/;
const SwitchParameters = z.object({
  cases: z
    .array(
      z.object({
        name: z.string().regex(CASE_NAME, "must be a lower-case word of a-z, 0-9 and _"),
        values: z.array(z.json()).min(1).max(100).meta({ description: "any of them is the case" }),
      }),
    )
    .min(1)
    .max(20),
});

const switchInputs = {
  value: { kind: "any", meaning: "what is sent on" },
  by: { kind: "json", meaning: "what decides where it goes" },
} as const;

const switchCase = defineBlock({
  ...common,
  type: "switch@1",
  title: "Switch",
  description:
    "Sends a value on at the output of the first case that holds what decides, else at " +
    "`otherwise`; it is masked at all others. Each case is an output of that name.",
  section: "flow",
  inputs: switchInputs,
  parameters: SwitchParameters,
  outputs: { [OTHERWISE]: { kind: { like: "value" }, meaning: "the value, in no case" } },
  portsOf: ({ cases }) => ({
    inputs: switchInputs,
    outputs: Object.fromEntries(
      [...cases.map(({ name }) => name), OTHERWISE].map((name) => [
        name,
        { kind: { like: "value" }, meaning: `the value, in the case ${name}` },
      ]),
    ),
  }),
  problemOf: ({ cases }) => {
    const names = [...cases.map(({ name }) => name), OTHERWISE];
    const twice = names.find((name, index) => names.indexOf(name) !== index);
    return twice === undefined ? null : `cases: two outputs are called ${twice}`;
  },
  example: {
    parameters: {
      cases: [
        { name: "animals", values: ["cat", "dog"] },
        { name: "people", values: ["person"] },
      ],
    },
    inputs: { value: 7, by: "dog" },
    outputs: { animals: 7, people: null, otherwise: null },
  },
  run: ({ inputs, parameters: { cases } }) => {
    const chosen = cases.find(({ values }) => isPart("in", inputs.by, values))?.name ?? OTHERWISE;
    const names = [...cases.map(({ name }) => name), OTHERWISE];
    return {
      outputs: Object.fromEntries(
        names.map((name) => [name, name === chosen ? inputs.value : null]),
      ),
    };
  },
});

const KINDS: readonly Kind[] = [...ATOMS, ...ATOMS.map((atom): Kind => `list<${atom}>`)];
const KIND_MEANING = { description: "kind of the values" };

const firstOf = defineBlock({
  ...common,
  type: "first_of@1",
  title: "First of",
  description:
    "The first value that is not masked: it brings branches together again. Masked where all are.",
  section: "flow",
  inputs: valuePorts({ kind: "any", meaning: "a value, or none", takesMasked: true }),
  parameters: z.object({ kind: z.enum(KINDS).default("any").meta(KIND_MEANING) }),
  outputs: { value: { kind: "any", meaning: "the first value that is there" } },
  portsOf: ({ kind }) => ({
    inputs: valuePorts({ kind, meaning: "a value, or none", takesMasked: true }),
    outputs: { value: { kind, meaning: "the first value that is there" } },
  }),
  example: {
    parameters: { kind: "string" },
    inputs: { value_1: null, value_2: "a dog", value_3: "a cat" },
    outputs: { value: "a dog" },
  },
  run: ({ inputs }) => ({
    outputs: { value: valuesOf(inputs).find((value) => value !== null) ?? null },
  }),
});

const collect = defineBlock({
  ...common,
  type: "collect@1",
  title: "Collect",
  description: "All values of a batch as one list, in their order, without those that are masked.",
  section: "flow",
  inputs: { values: { kind: "any", meaning: "a value of each element", batch: "all" } },
  parameters: z.object({ kind: z.enum(ATOMS).default("any").meta(KIND_MEANING) }),
  outputs: { values: { kind: "list", meaning: "the values" } },
  portsOf: ({ kind }) => ({
    inputs: { values: { kind, meaning: "a value of each element", batch: "all" } },
    outputs: { values: { kind: listOf(kind), meaning: "the values" } },
  }),
  example: {
    parameters: { kind: "number" },
    inputs: { values: [3, 1, 2] },
    outputs: { values: [3, 1, 2] },
  },
  run: ({ inputs }) => ({ outputs: { values: inputs.values } }),
});

export const FLOW_BLOCKS: readonly Block[] = [
  condition,
  allOf,
  anyOf,
  not,
  continueIf,
  switchCase,
  firstOf,
  collect,
];
