// The types of an expression before any value is known: which ones each part of it may have, by the
// kinds of its names. A part that can have none of the types that are needed is refused, with the
// character at fault; one that only may not have them is left to the run.

import { itemOf, type Kind } from "../kinds.ts";
import { ExpressionFailure } from "./budget.ts";
import type { BinaryOperator, ExpressionNode, Lambda } from "./syntax.ts";

/** Types that a value can have, in the words of messages. */
const TYPE_NAMES = ["a number", "a text", "a boolean", "null", "a list", "an object"] as const;
type TypeName = (typeof TYPE_NAMES)[number];

/** What a value may be. */
export interface ExpressionType {
  names: ReadonlySet<TypeName>;
  /** What its items may be, where it is a list; null is anything. */
  item: ExpressionType | null;
}

const typeOf = (...names: readonly TypeName[]): ExpressionType => ({
  names: new Set(names),
  item: null,
});
const listOf = (item: ExpressionType | null): ExpressionType => ({
  names: new Set(["a list"]),
  item,
});

const ANY = typeOf(...TYPE_NAMES);
const NUMBER = typeOf("a number");
const TEXT = typeOf("a text");
const BOOLEAN = typeOf("a boolean");
const NULL = typeOf("null");
const OBJECT = typeOf("an object");
const LIST = listOf(null);

/** Types of the kinds that are not any JSON. */
const KIND_TYPES: Readonly<Partial<Record<Kind, ExpressionType>>> = {
  number: NUMBER,
  integer: NUMBER,
  string: TEXT,
  model: TEXT,
  project: TEXT,
  boolean: BOOLEAN,
  point: listOf(NUMBER),
  line: listOf(listOf(NUMBER)),
  zone: listOf(listOf(NUMBER)),
  detections: OBJECT,
  masks: OBJECT,
  tracks: OBJECT,
  tracked_masks: OBJECT,
};

/** What values of a kind are in expressions; null is a kind that is not known. */
export function typeOfKind(kind: Kind | null): ExpressionType {
  if (kind === null) return ANY;
  const item = itemOf(kind);
  return item === null ? (KIND_TYPES[kind] ?? ANY) : listOf(typeOfKind(item));
}

function union(types: readonly ExpressionType[]): ExpressionType {
  const lists = types.filter(({ names }) => names.has("a list"));
  const items = lists.map(({ item }) => item).filter((item) => item !== null);
  return {
    names: new Set(types.flatMap(({ names }) => [...names])),
    // Where some lists hold anything, items of the union may be anything.
    item: items.length > 0 && items.length === lists.length ? union(items) : null,
  };
}

const orNull = (type: ExpressionType) => union([type, NULL]);
const canBe = ({ names }: ExpressionType, wanted: ExpressionType): boolean =>
  [...wanted.names].some((name) => names.has(name));
const isOnly = ({ names }: ExpressionType, wanted: ExpressionType): boolean =>
  [...names].every((name) => wanted.names.has(name));

/** A type, or what of it may be, for people. */
export const nameOf = ({ names }: ExpressionType): string =>
  TYPE_NAMES.filter((name) => names.has(name)).join(" or ");

/** Fails where a part can have none of the types that are needed. */
function need(type: ExpressionType, wanted: ExpressionType, spot: { of: string; offset: number }) {
  if (canBe(type, wanted)) return;
  const message = `${spot.of} needs ${nameOf(wanted)}, not ${nameOf(type)}`;
  throw new ExpressionFailure(message, spot.offset);
}

type Types = ReadonlyMap<string, ExpressionType>;
type NodeOf<Name extends ExpressionNode["kind"]> = Extract<ExpressionNode, { kind: Name }>;

/** What an expression may come to; throws ExpressionFailure where it can come to nothing. */
export function infer(node: ExpressionNode, types: Types): ExpressionType {
  const { offset } = node;
  switch (node.kind) {
    case "literal":
      return literalType(node.value);
    case "name":
      return types.get(node.name) ?? ANY;
    case "list": {
      const items = node.items.map((item) => infer(item, types));
      return listOf(items.length > 0 ? union(items) : null);
    }
    case "member": {
      need(infer(node.of, types), orNull(OBJECT), { of: `.${node.name}`, offset });
      return ANY;
    }
    case "index":
      return indexed(node, types);
    case "call":
      return called(node, types);
    case "sign":
      need(infer(node.operand, types), NUMBER, { of: "`-`", offset });
      return NUMBER;
    case "not":
      need(infer(node.operand, types), BOOLEAN, { of: "`not`", offset });
      return BOOLEAN;
    case "conditional":
      need(infer(node.test, types), BOOLEAN, { of: "`?`", offset });
      return union([infer(node.yes, types), infer(node.no, types)]);
    default:
      return binary(node, types);
  }
}

function literalType(value: NodeOf<"literal">["value"]): ExpressionType {
  if (value === null) return NULL;
  return typeof value === "number" ? NUMBER : typeof value === "string" ? TEXT : BOOLEAN;
}

function indexed(node: NodeOf<"index">, types: Types): ExpressionType {
  const { offset } = node;
  const of = infer(node.of, types);
  const index = infer(node.index, types);
  need(index, union([NUMBER, TEXT]), { of: "an index", offset });
  const wanted = [...(canBe(index, NUMBER) ? [LIST] : []), ...(canBe(index, TEXT) ? [OBJECT] : [])];
  need(of, orNull(union(wanted)), { of: `[${nameOf(index)}]`, offset });
  return isOnly(of, LIST) && of.item ? orNull(of.item) : ANY;
}

function binary({ operator, left, right, offset }: NodeOf<"binary">, types: Types): ExpressionType {
  const [one, other] = [infer(left, types), infer(right, types)];
  const spot = { of: `\`${operator}\``, offset };
  switch (operator) {
    case "==":
    case "!=":
      return BOOLEAN;
    case "and":
    case "or":
      for (const type of [one, other]) need(type, BOOLEAN, spot);
      return BOOLEAN;
    case "in":
    case "not in":
      need(other, union([LIST, TEXT, OBJECT]), spot);
      if (!canBe(other, LIST)) need(one, TEXT, spot);
      return BOOLEAN;
    case "+":
    case "<":
    case "<=":
    case ">":
    case ">=":
      return ofOneType(operator, [one, other], spot);
    default:
      for (const type of [one, other]) need(type, NUMBER, spot);
      return NUMBER;
  }
}

/** Checks that both are numbers, or both texts. */
function ofOneType(
  operator: BinaryOperator,
  parts: readonly ExpressionType[],
  spot: { of: string; offset: number },
): ExpressionType {
  const fitting = [NUMBER, TEXT].filter((type) => parts.every((part) => canBe(part, type)));
  if (fitting.length === 0) {
    const came = parts.map(nameOf).join(" and ");
    throw new ExpressionFailure(
      `${spot.of} needs two numbers or two texts, not ${came}`,
      spot.offset,
    );
  }
  return operator === "+" ? union(fitting) : BOOLEAN;
}

/** What a function takes, by position, and what it gives. */
interface Signature {
  takes: readonly ExpressionType[];
  gives: ExpressionType;
}

const TEXT_TO_TEXT = { takes: [TEXT], gives: TEXT };
const NUMBER_TO_NUMBER = { takes: [NUMBER], gives: NUMBER };
const TWO_TEXTS = { takes: [TEXT, TEXT], gives: BOOLEAN };
const FIGURE = { takes: [LIST], gives: orNull(NUMBER) };

/** Functions whose result does not hang on what they are given. */
const SIGNATURES: ReadonlyMap<string, Signature> = new Map([
  ["len", { takes: [union([TEXT, LIST, OBJECT])], gives: NUMBER }],
  ["sum", { takes: [LIST], gives: NUMBER }],
  ["mean", FIGURE],
  ["median", FIGURE],
  ["abs", NUMBER_TO_NUMBER],
  ["round", { takes: [NUMBER, NUMBER], gives: NUMBER }],
  ["floor", NUMBER_TO_NUMBER],
  ["ceil", NUMBER_TO_NUMBER],
  ["sqrt", NUMBER_TO_NUMBER],
  ["lower", TEXT_TO_TEXT],
  ["upper", TEXT_TO_TEXT],
  ["trim", TEXT_TO_TEXT],
  ["contains", { takes: [union([LIST, TEXT]), ANY], gives: BOOLEAN }],
  ["starts_with", TWO_TEXTS],
  ["ends_with", TWO_TEXTS],
  ["join", { takes: [LIST, TEXT], gives: TEXT }],
  ["text", { takes: [union([NUMBER, TEXT, BOOLEAN])], gives: TEXT }],
  ["number", { takes: [union([NUMBER, TEXT])], gives: orNull(NUMBER) }],
  ["any", { takes: [LIST], gives: BOOLEAN }],
  ["all", { takes: [LIST], gives: BOOLEAN }],
  ["count", { takes: [LIST], gives: NUMBER }],
]);
/** Those whose `x => …` is true or false of an item; without one the items themselves are. */
const OF_TRUTH = ["any", "all", "count", "filter"];

function called(node: NodeOf<"call">, types: Types): ExpressionType {
  const { name, lambda, offset } = node;
  const parts = node.parts.map((part) => infer(part, types));
  const [first = ANY] = parts;
  const spot = { of: `${name}()`, offset };
  const { takes, gives } = SIGNATURES.get(name) ?? { takes: [], gives: null };
  for (const [index, type] of parts.entries()) need(type, takes[index] ?? ANY, spot);
  if (name === "min" || name === "max") {
    // Numbers one by one, or one list of them.
    for (const type of parts) need(type, parts.length === 1 ? LIST : NUMBER, spot);
    return parts.length === 1 ? orNull(NUMBER) : NUMBER;
  }
  if (name === "coalesce") return union(parts);
  if (name === "unique" || name === "filter" || name === "map") need(first, LIST, spot);
  const each = lambda ? lambdaType(lambda, first, types) : (first.item ?? ANY);
  if (OF_TRUTH.includes(name)) need(each, BOOLEAN, spot);
  if (name === "map") return listOf(each);
  return gives ?? listOf(first.item);
}

/** What a `x => …` gives for an item of a list. */
const lambdaType = ({ parameter, body }: Lambda, list: ExpressionType, types: Types) =>
  infer(body, new Map(types).set(parameter, list.item ?? ANY));
