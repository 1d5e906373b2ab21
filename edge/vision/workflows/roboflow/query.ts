// Roboflow's query language, by which its steps ask of values: chains of operations, and groups of
// statements. Both become texts of our expressions; what has no counterpart is refused by name.

import { z } from "zod";

/** Why something of a Roboflow workflow has no counterpart here. */
export class NoCounterpart extends Error {
  override readonly name = "NoCounterpart";
}

/** A value in an expression: its text, and whether it is detections, one of them, or other. */
export interface Term {
  text: string;
  of: "detections" | "detection" | "value";
}

/** What a name that a statement uses stands for. */
export type Operands = (name: string) => Term;

const NESTING_MAX = 20;
/** Characters of an expression that stands for a condition. */
const EXPRESSION_MAX = 2_000;
const TypedOperation = z.object({ type: z.string() }).loose();
const List = z.array(TypedOperation).max(100);

/** The name of what a chain is applied to, where none is said. */
export const THE_OBJECT = "_";

/** A literal of an expression. */
export function literal(value: unknown): string {
  if (value === null || value === undefined) return "null";
  if (typeof value === "boolean") return String(value);
  if (typeof value === "number" && Number.isFinite(value)) {
    return value < 0 ? `(${value})` : String(value);
  }
  if (typeof value === "string") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  throw new NoCounterpart("a static value that is no number, text, boolean or list of these");
}

const corner = (item: string, index: number) => `${item}.bbox[${index}]`;

/** Properties of a detection, by Roboflow's names. */
const PROPERTIES: Readonly<Record<string, (item: string) => string>> = {
  confidence: (item) => `${item}.confidence`,
  class_name: (item) => `${item}.class`,
  x_min: (item) => corner(item, 0),
  y_min: (item) => corner(item, 1),
  x_max: (item) => corner(item, 2),
  y_max: (item) => corner(item, 3),
  size: (item) =>
    `(${corner(item, 2)} - ${corner(item, 0)}) * (${corner(item, 3)} - ${corner(item, 1)})`,
  center: (item) =>
    `[(${corner(item, 0)} + ${corner(item, 2)}) / 2, (${corner(item, 1)} + ${corner(item, 3)}) / 2]`,
  top_left: (item) => `[${corner(item, 0)}, ${corner(item, 1)}]`,
  top_right: (item) => `[${corner(item, 2)}, ${corner(item, 1)}]`,
  bottom_left: (item) => `[${corner(item, 0)}, ${corner(item, 3)}]`,
  bottom_right: (item) => `[${corner(item, 2)}, ${corner(item, 3)}]`,
  tracker_id: (item) => `${item}.track_id`,
  time_in_zone: (item) => `${item}.data.seconds_in_zone`,
  speed: (item) => `${item}.data.speed`,
  smoothed_speed: (item) => `${item}.data.speed`,
};

function propertyOf(name: unknown, item: string): string {
  const property = typeof name === "string" && Object.hasOwn(PROPERTIES, name);
  const make = property ? PROPERTIES[name as string] : undefined;
  if (!make) throw new NoCounterpart(`the property ${String(name)} of detections`);
  return make(item);
}

/** The items of a term as a list. */
const items = ({ text, of }: Term): string => (of === "detections" ? `${text}.objects` : text);
const value = (text: string): Term => ({ text, of: "value" });
const grouped = (text: string): string => (/^[\w.]+(\[-?\d+\])*$/.test(text) ? text : `(${text})`);

const numbers = z.object({ other: z.number() });
const AGGREGATES: Readonly<Record<string, string>> = { min: "min", max: "max", sum: "sum" };
const ITEMS: Readonly<Record<string, string>> = { first: "[0]", last: "[-1]" };

/** A term after one operation. */
function operated(term: Term, operation: z.infer<typeof TypedOperation>, nesting: number): Term {
  const { text, of } = term;
  const item = `o${nesting}`;
  switch (operation.type) {
    case "SequenceLength":
      return value(`len(${items(term)})`);
    case "DetectionsPropertyExtract":
      return value(`map(${items(term)}, ${item} => ${propertyOf(operation.property_name, item)})`);
    case "ExtractDetectionProperty":
      return value(propertyOf(operation.property_name, text));
    case "DetectionsFilter": {
      const test = statement(operation.filter_operation, (name) => only(name, item), nesting + 1);
      return value(`filter(${items(term)}, ${item} => ${test})`);
    }
    case "SequenceAggregate":
    case "DetectionsSelection": {
      const end = ITEMS[String(operation.mode)];
      if (!end) throw new NoCounterpart(`${operation.type} by ${String(operation.mode)}`);
      const isObject = of === "detections";
      return { text: `${grouped(items(term))}${end}`, of: isObject ? "detection" : "value" };
    }
    case "NumericSequenceAggregate": {
      const name = AGGREGATES[String(operation.function)];
      if (!name) throw new NoCounterpart(`an aggregate ${String(operation.function)}`);
      const neutral = operation.neutral_value;
      const result = `${name}(${text})`;
      return value(
        neutral === null || neutral === undefined
          ? result
          : `coalesce(${result}, ${literal(neutral)})`,
      );
    }
    case "SequenceApply": {
      const inner = operations({ text: item, of: "value" }, operation.operations, nesting + 1);
      return value(`map(${items(term)}, ${item} => ${inner.text})`);
    }
    case "SequenceJoin":
      return value(`join(${text}, ${literal(operation.separator ?? ", ")})`);
    case "Multiply":
      return value(`${grouped(text)} * ${literal(numbers.parse(operation).other)}`);
    case "Divide":
      return value(`${grouped(text)} / ${literal(numbers.parse(operation).other)}`);
    case "NumberRound":
      return value(`round(${text}, ${literal(operation.decimal_digits)})`);
    case "StringToLowerCase":
      return value(`lower(${text})`);
    case "StringToUpperCase":
      return value(`upper(${text})`);
    case "ToString":
      return value(`text(${text})`);
    case "ToNumber":
      return value(operation.cast_to === "int" ? `floor(number(${text}))` : `number(${text})`);
    default:
      throw new NoCounterpart(`the operation ${operation.type}`);
  }
}

/**
 * The text where it may be an expression. Texts only grow, and some operations repeat what they are
 * applied to: each of a chain is looked at, or twelve come to gigabytes.
 */
export function inLimits(text: string): string {
  if (text.length > EXPRESSION_MAX) throw new NoCounterpart("a condition that is too long");
  return text;
}

/** A term after a chain of operations. */
export function operations(term: Term, chain: unknown, nesting = 0): Term {
  if (nesting > NESTING_MAX) throw new NoCounterpart("operations nested too deep");
  const parsed = List.safeParse(chain ?? []);
  if (!parsed.success) throw new NoCounterpart("operations that are no list");
  return parsed.data.reduce((made, operation) => {
    const next = operated(made, operation, nesting);
    inLimits(next.text);
    return next;
  }, term);
}

function only(name: string, item: string): Term {
  if (name === THE_OBJECT) return { text: item, of: "detection" };
  throw new NoCounterpart(`the parameter ${name} within a filter`);
}

const Operand = z.discriminatedUnion("type", [
  z.object({
    type: z.literal("StaticOperand"),
    value: z.unknown(),
    operations: z.unknown().optional(),
  }),
  z.object({
    type: z.literal("DynamicOperand"),
    operand_name: z.string().default(THE_OBJECT),
    operations: z.unknown().optional(),
  }),
]);

function operand(given: unknown, operands: Operands, nesting: number): string {
  const parsed = Operand.safeParse(given);
  if (!parsed.success) throw new NoCounterpart("an operand that is neither static nor dynamic");
  const { data } = parsed;
  const term =
    data.type === "StaticOperand" ? value(literal(data.value)) : operands(data.operand_name);
  return grouped(operations(term, data.operations, nesting).text);
}

/** Comparators of two operands, by Roboflow's names. */
const COMPARATORS: Readonly<Record<string, (left: string, right: string) => string>> = {
  "==": (left, right) => `${left} == ${right}`,
  "(Number) ==": (left, right) => `${left} == ${right}`,
  "!=": (left, right) => `${left} != ${right}`,
  "(Number) !=": (left, right) => `${left} != ${right}`,
  "(Number) >": (left, right) => `${left} > ${right}`,
  "(Number) >=": (left, right) => `${left} >= ${right}`,
  "(Number) <": (left, right) => `${left} < ${right}`,
  "(Number) <=": (left, right) => `${left} <= ${right}`,
  "(Number) in range": (left, right) => `${left} >= ${right}[0] and ${left} <= ${right}[1]`,
  "(String) startsWith": (left, right) => `starts_with(${left}, ${right})`,
  "(String) endsWith": (left, right) => `ends_with(${left}, ${right})`,
  "(String) contains": (left, right) => `contains(${left}, ${right})`,
  "in (Sequence)": (left, right) => `${left} in ${right}`,
  "all in (Sequence)": (left, right) => `all(${left}, one => one in ${right})`,
  "any in (Sequence)": (left, right) => `any(${left}, one => one in ${right})`,
};

const TESTS: Readonly<Record<string, (one: string) => string>> = {
  Exists: (one) => `${one} != null`,
  DoesNotExist: (one) => `${one} == null`,
  "(Boolean) is True": (one) => `${one} == true`,
  "(Boolean) is False": (one) => `${one} == false`,
  "(Sequence) is empty": (one) => `len(${one}) == 0`,
  "(Sequence) is not empty": (one) => `len(${one}) > 0`,
};

const Statement = z.discriminatedUnion("type", [
  z.object({
    type: z.literal("BinaryStatement"),
    left_operand: z.unknown(),
    comparator: z.object({ type: z.string() }),
    right_operand: z.unknown(),
    negate: z.boolean().default(false),
  }),
  z.object({
    type: z.literal("UnaryStatement"),
    operand: z.unknown(),
    operator: z.object({ type: z.string() }),
    negate: z.boolean().default(false),
  }),
  z.object({
    type: z.literal("StatementGroup"),
    statements: z.array(z.unknown()).min(1).max(100),
    operator: z.enum(["and", "or"]).default("or"),
  }),
]);
export type Statement = z.infer<typeof Statement>;

/** A statement or a group of them by its shape; throws NoCounterpart for anything else. */
export function parseStatement(given: unknown): Statement {
  const parsed = Statement.safeParse(given);
  if (!parsed.success) throw new NoCounterpart("a condition that is no statement");
  return parsed.data;
}

/** A condition as the text of an expression that is true or false. */
export function statement(given: unknown, operands: Operands, nesting = 0): string {
  if (nesting > NESTING_MAX) throw new NoCounterpart("conditions nested too deep");
  const parsed = parseStatement(given);
  if (parsed.type === "StatementGroup") {
    const parts = parsed.statements.map((one) => statement(one, operands, nesting + 1));
    return parts.length === 1
      ? (parts[0] as string)
      : parts.map((part) => `(${part})`).join(` ${parsed.operator} `);
  }
  const test =
    parsed.type === "BinaryStatement"
      ? binary(parsed, operands, nesting)
      : unary(parsed, operands, nesting);
  return parsed.negate ? `not (${test})` : test;
}

function binary(
  { comparator, left_operand: left, right_operand: right }: Statement & { type: "BinaryStatement" },
  operands: Operands,
  nesting: number,
): string {
  const isKnown = Object.hasOwn(COMPARATORS, comparator.type);
  const compare = isKnown ? COMPARATORS[comparator.type] : undefined;
  if (!compare) throw new NoCounterpart(`the comparator ${comparator.type}`);
  return compare(operand(left, operands, nesting), operand(right, operands, nesting));
}

function unary(
  { operator, operand: one }: Statement & { type: "UnaryStatement" },
  operands: Operands,
  nesting: number,
): string {
  const test = Object.hasOwn(TESTS, operator.type) ? TESTS[operator.type] : undefined;
  if (!test) throw new NoCounterpart(`the operator ${operator.type}`);
  return test(operand(one, operands, nesting));
}
