// Blocks that make single values: constants, parts of others, numbers of many, and whatever an
// expression says.

import { z } from "zod";
import { type Block, BlockFailure, defineBlock } from "../block.ts";
import { meanOf, medianOf } from "../expressions/functions.ts";
import {
  expressionKindProblem,
  expressionProblem,
  expressionValue,
} from "../expressions/program.ts";
import { ClickValue, LineValue, PointValue, ZoneValue } from "../values.ts";
import { NamesOfInputs, namedInputs, problemOfNames } from "./named-inputs.ts";
import { numberOfObject, ObjectField } from "./object-fields.ts";

const common = { runsOn: "anywhere", purity: "pure", cost: "free" } as const;

/** Kinds that a definition can hold or state, by what their values must be. */
const PLAIN = {
  number: z.number(),
  integer: z.int(),
  string: z.string(),
  boolean: z.boolean(),
  json: z.json(),
  "list<number>": z.array(z.number()),
  "list<integer>": z.array(z.int()),
  "list<string>": z.array(z.string()),
  "list<boolean>": z.array(z.boolean()),
  "list<json>": z.array(z.json()),
  click: ClickValue,
  point: PointValue,
  line: LineValue,
  zone: ZoneValue,
  "list<click>": z.array(ClickValue),
  "list<point>": z.array(PointValue),
  "list<line>": z.array(LineValue),
  "list<zone>": z.array(ZoneValue),
} as const;
type PlainKind = keyof typeof PLAIN;
const PlainKind = z
  .enum(Object.keys(PLAIN) as [PlainKind, ...PlainKind[]])
  .default("json")
  .meta({ description: "kind of the result" });

/** A value that must be of a kind; null stays null, and masks. */
function ofKind(value: unknown, kind: PlainKind): unknown {
  if (value === null || value === undefined) return null;
  if (kind === "json") return value;
  const read = PLAIN[kind].safeParse(value);
  if (read.success) return read.data;
  throw new BlockFailure(`the result is not of the kind ${kind}`);
}

const constant = defineBlock({
  ...common,
  type: "constant@1",
  title: "Constant",
  description: "A value that the definition says, once for all that use it.",
  section: "values",
  inputs: {},
  parameters: z.object({
    kind: PlainKind,
    value: z.json().refine((value) => value !== null, "must not be null"),
  }),
  outputs: { value: { kind: "json", meaning: "the value" } },
  portsOf: ({ kind }) => ({ inputs: {}, outputs: { value: { kind, meaning: "the value" } } }),
  problemOf: ({ kind, value }) =>
    PLAIN[kind].safeParse(value).success ? null : `value: must be of the kind ${kind}`,
  example: {
    parameters: { kind: "list<string>", value: ["cat", "dog"] },
    inputs: {},
    outputs: { value: ["cat", "dog"] },
  },
  run: ({ parameters: { kind, value } }) => ({ outputs: { value: ofKind(value, kind) } }),
});

/** What stands in a value behind names of members and indexes of items; null for nothing. */
function partOf(value: unknown, path: readonly (string | number)[]): unknown {
  let part = value;
  for (const key of path) {
    if (Array.isArray(part)) part = typeof key === "number" ? part.at(key) : undefined;
    else if (typeof part !== "object" || part === null) return null;
    else part = Object.hasOwn(part, key) ? (part as Record<string, unknown>)[key] : undefined;
  }
  return part ?? null;
}

const propertyInputs = {
  value: { kind: "json", meaning: "what the part is taken out of" },
  default: { kind: "json", meaning: "what it is where there is none", optional: true },
} as const;

const property = defineBlock({
  ...common,
  type: "property@1",
  title: "Property",
  description:
    "Takes a part out of a value. Where there is none it is the default; without one it is masked.",
  section: "values",
  inputs: propertyInputs,
  parameters: z.object({
    path: z
      .array(z.union([z.string().max(200), z.int()]))
      .min(1)
      .max(20)
      .meta({ description: "names of members and indexes of items; -1 is the last one" }),
    kind: PlainKind,
  }),
  outputs: { value: { kind: "json", meaning: "the part" } },
  portsOf: ({ kind }) => ({
    inputs: propertyInputs,
    outputs: { value: { kind, meaning: "the part" } },
  }),
  example: {
    parameters: { path: ["objects", 0, "class"], kind: "string" },
    inputs: { value: { objects: [{ class: "dog" }] } },
    outputs: { value: "dog" },
  },
  run: ({ inputs, parameters }) => ({
    outputs: {
      value: ofKind(partOf(inputs.value, parameters.path) ?? inputs.default, parameters.kind),
    },
  }),
});

const ExpressionParameters = z.object({
  inputs: NamesOfInputs,
  expression: z
    .string()
    .min(1)
    .max(2_000)
    .meta({
      description:
        "arithmetic, comparisons, and, or, not, in, a ? b : c, members, indexes and functions such as " +
        "len, sum, round, filter(list, x => …), over the inputs by their names",
    }),
  kind: PlainKind,
});

const expression = defineBlock({
  ...common,
  type: "expression@1",
  title: "Expression",
  description:
    "Works out a value from others. It sees its inputs and nothing else. Null masks; a result of " +
    "another kind than stated fails the step; what can only fail for the kinds that come in is " +
    "refused before.",
  section: "values",
  inputs: {},
  parameters: ExpressionParameters,
  outputs: { value: { kind: "json", meaning: "the result" } },
  portsOf: ({ inputs, kind }) => ({
    inputs: namedInputs(inputs),
    outputs: { value: { kind, meaning: "the result" } },
  }),
  problemOf: ({ inputs, expression: source }) => {
    const problem = expressionProblem(source, inputs);
    return (
      problemOfNames(inputs, Object.keys(ExpressionParameters.shape)) ??
      (problem && `expression: ${problem}`)
    );
  },
  kindProblemOf: ({ inputs, expression: source, kind }, kinds) => {
    const named = new Map(inputs.map((name) => [name, kinds.get(name) ?? null]));
    const detail = expressionKindProblem(source, named, kind);
    const fix = "change the expression, or what goes into it";
    return detail === null ? null : { parameter: "expression", detail, fix };
  },
  example: {
    parameters: {
      inputs: ["found", "expected"],
      expression: "round(100 * len(filter(found, x => x in expected)) / len(expected))",
      kind: "integer",
    },
    inputs: { found: ["cat", "fox"], expected: ["cat", "dog"] },
    outputs: { value: 50 },
  },
  run: ({ inputs, parameters }) => {
    const given: Readonly<Record<string, unknown>> = inputs;
    const values = new Map(parameters.inputs.map((name) => [name, given[name] ?? null]));
    const result = expressionValue({ parameters, source: parameters.expression }, values);
    return { outputs: { value: ofKind(result, parameters.kind) } };
  },
});

const figures = {
  count: { kind: "integer", meaning: "numbers" },
  sum: { kind: "number", meaning: "sum; 0 of none" },
  min: { kind: "number", meaning: "lowest number; masked without any" },
  max: { kind: "number", meaning: "highest number; masked without any" },
  mean: { kind: "number", meaning: "mean; masked without any" },
  median: { kind: "number", meaning: "middle number, or the mean of two; masked without any" },
} as const;

function figuresOf(numbers: readonly number[]) {
  const sorted = numbers.toSorted((one, other) => one - other);
  const figures = {
    count: numbers.length,
    sum: numbers.reduce((sum, number) => sum + number, 0),
    min: sorted[0] ?? null,
    max: sorted.at(-1) ?? null,
    mean: meanOf(numbers),
    median: medianOf(numbers),
  };
  if (!Number.isFinite(figures.sum)) throw new BlockFailure("the sum is no finite number");
  return { outputs: figures };
}

const aggregate = defineBlock({
  ...common,
  type: "aggregate@1",
  title: "Aggregate numbers",
  description: "Sum, mean, median and extremes of a list of numbers.",
  section: "values",
  inputs: { values: { kind: "list<number>", meaning: "the numbers" } },
  parameters: z.object({}),
  outputs: figures,
  example: {
    parameters: {},
    inputs: { values: [4, 1, 2, 3] },
    outputs: { count: 4, sum: 10, min: 1, max: 4, mean: 2.5, median: 2.5 },
  },
  run: ({ inputs }) => figuresOf(inputs.values),
});

const aggregateDetections = defineBlock({
  ...common,
  type: "aggregate_detections@1",
  title: "Aggregate objects",
  description:
    "Sum, mean, median and extremes of a field of objects, of those that have it as a number.",
  section: "values",
  inputs: { detections: { kind: "detections", meaning: "objects of one image" } },
  parameters: z.object({ field: ObjectField.default("confidence") }),
  outputs: figures,
  example: {
    parameters: { field: "area" },
    inputs: {
      detections: {
        frame: { width: 100, height: 100 },
        objects: [
          { class: "dog", confidence: 0.9, bbox: [0, 0, 10, 20] },
          { class: "cat", confidence: 0.6, bbox: [0, 0, 10, 10] },
        ],
      },
    },
    outputs: { count: 2, sum: 300, min: 100, max: 200, mean: 150, median: 150 },
  },
  run: ({ inputs, parameters }) =>
    figuresOf(
      inputs.detections.objects.flatMap((object) => numberOfObject(object, parameters.field) ?? []),
    ),
});

export const VALUE_BLOCKS: readonly Block[] = [
  constant,
  property,
  expression,
  aggregate,
  aggregateDetections,
];
