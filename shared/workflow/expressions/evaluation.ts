// Works out the value of an expression. It only sees values that it was handed: JSON, of which it
// reads own members and items. It ends within its budget, in a value or an ExpressionFailure.

import { ExpressionFailure, isRecord, isSame, nameOfType, StepBudget } from "./budget.ts";
import { FUNCTIONS, includesText } from "./functions.ts";
import type { BinaryOperator, ExpressionNode, Lambda } from "./syntax.ts";

type Values = ReadonlyMap<string, unknown>;
type NodeOf<Name extends ExpressionNode["kind"]> = Extract<ExpressionNode, { kind: Name }>;

/** The value of an expression for values by name; throws ExpressionFailure where it has none. */
export function evaluate(
  node: ExpressionNode,
  values: Values,
  budget: StepBudget = new StepBudget(),
): unknown {
  const value = evaluatePart(node, values, budget);
  budget.measure(value, node.offset);
  return value;
}

function evaluatePart(node: ExpressionNode, values: Values, budget: StepBudget): unknown {
  budget.spend(1, node.offset);
  switch (node.kind) {
    case "literal":
      return node.value;
    case "name":
      return values.get(node.name) ?? null;
    case "list":
      return node.items.map((item) => evaluatePart(item, values, budget));
    case "member":
      return memberOf(evaluatePart(node.of, values, budget), node.name, node.offset);
    case "index":
      return indexed(node, values, budget);
    case "call":
      return called(node, values, budget);
    case "sign":
      return -needNumber(evaluatePart(node.operand, values, budget), "-", node.offset);
    case "not":
      return !needBoolean(evaluatePart(node.operand, values, budget), "not", node.offset);
    case "conditional": {
      const isTrue = needBoolean(evaluatePart(node.test, values, budget), "?", node.offset);
      return evaluatePart(isTrue ? node.yes : node.no, values, budget);
    }
    default:
      return binary(node, values, budget);
  }
}

function needNumber(value: unknown, operator: string, offset: number): number {
  if (typeof value === "number") return value;
  throw new ExpressionFailure(`\`${operator}\` needs a number, not ${nameOfType(value)}`, offset);
}

function needBoolean(value: unknown, operator: string, offset: number): boolean {
  if (typeof value === "boolean") return value;
  const message = `\`${operator}\` needs true or false, not ${nameOfType(value)}`;
  throw new ExpressionFailure(message, offset);
}

/** An own member; null where there is none, and of null. */
function memberOf(value: unknown, name: string, offset: number): unknown {
  if (value === null) return null;
  if (!isRecord(value)) {
    throw new ExpressionFailure(`${nameOfType(value)} has no member ${name}`, offset);
  }
  return Object.hasOwn(value, name) ? (value[name] ?? null) : null;
}

/** An item, counted from the end where the index is negative, or a member; null for none. */
function indexed(node: NodeOf<"index">, values: Values, budget: StepBudget): unknown {
  const of = evaluatePart(node.of, values, budget);
  const index = evaluatePart(node.index, values, budget);
  if (typeof index === "string") return memberOf(of, index, node.offset);
  if (of === null) return null;
  if (!Array.isArray(of)) {
    throw new ExpressionFailure(`${nameOfType(of)} has no items`, node.offset);
  }
  if (!Number.isInteger(index)) {
    throw new ExpressionFailure("an index is a whole number, or a text", node.offset);
  }
  return of.at(index as number) ?? null;
}

function called(node: NodeOf<"call">, values: Values, budget: StepBudget): unknown {
  const { name, parts, lambda, offset } = node;
  const result = FUNCTIONS.get(name)?.apply({
    name,
    values: parts.map((part) => evaluatePart(part, values, budget)),
    each: lambda && eachOf(lambda, values, budget),
    offset,
    budget,
  });
  return typeof result === "number" ? finite(result, offset) : (result ?? null);
}

/** A lambda as a function of an item. Its name hides another one of the same name. */
function eachOf({ parameter, body }: Lambda, values: Values, budget: StepBudget) {
  const inner = new Map(values);
  return (item: unknown) => evaluatePart(body, inner.set(parameter, item ?? null), budget);
}

function finite(value: number, offset: number): number {
  if (Number.isFinite(value)) return value;
  throw new ExpressionFailure("the result is no finite number", offset);
}

function binary(node: NodeOf<"binary">, values: Values, budget: StepBudget): unknown {
  const { operator, offset } = node;
  const left = evaluatePart(node.left, values, budget);
  if (operator === "and" || operator === "or") {
    const isTrue = needBoolean(left, operator, offset);
    if (isTrue === (operator === "or")) return isTrue;
    return needBoolean(evaluatePart(node.right, values, budget), operator, offset);
  }
  const right = evaluatePart(node.right, values, budget);
  const spend = budget.visitor(offset);
  switch (operator) {
    case "==":
      return isSame(left, right, spend);
    case "!=":
      return !isSame(left, right, spend);
    case "in":
      return isIn(left, right, { budget, offset });
    case "not in":
      return !isIn(left, right, { budget, offset });
    case "+":
      if (typeof left === "string" && typeof right === "string") {
        budget.reserve(left.length + right.length, offset);
        return left + right;
      }
      break;
    case "<":
    case "<=":
    case ">":
    case ">=":
      return isOrdered(operator, left, right, offset);
  }
  return arithmetic(
    operator,
    needNumber(left, operator, offset),
    needNumber(right, operator, offset),
    offset,
  );
}

/** Whether an item is in a list, a text in a text, or a member's name in an object. */
function isIn(
  item: unknown,
  whole: unknown,
  { budget, offset }: { budget: StepBudget; offset: number },
): boolean {
  if (Array.isArray(whole)) {
    return whole.some((other) => isSame(item, other, budget.visitor(offset)));
  }
  if (typeof item === "string" && typeof whole === "string") {
    return includesText(whole, item, { budget, offset });
  }
  if (typeof item === "string" && isRecord(whole)) return Object.hasOwn(whole, item);
  const message = `\`in\` cannot look for ${nameOfType(item)} in ${nameOfType(whole)}`;
  throw new ExpressionFailure(message, offset);
}

/** Two numbers, or two texts by their code units. */
function isOrdered(
  operator: BinaryOperator,
  left: unknown,
  right: unknown,
  offset: number,
): boolean {
  const areNumbers = typeof left === "number" && typeof right === "number";
  if (!areNumbers && !(typeof left === "string" && typeof right === "string")) {
    const types = `${nameOfType(left)} and ${nameOfType(right)}`;
    const message = `\`${operator}\` needs two numbers or two texts, not ${types}`;
    throw new ExpressionFailure(message, offset);
  }
  if (operator === "<") return left < right;
  if (operator === "<=") return left <= right;
  return operator === ">" ? left > right : left >= right;
}

function arithmetic(operator: BinaryOperator, left: number, right: number, offset: number): number {
  if ((operator === "/" || operator === "%") && right === 0) {
    throw new ExpressionFailure("division by zero", offset);
  }
  if (operator === "+") return finite(left + right, offset);
  if (operator === "-") return finite(left - right, offset);
  if (operator === "*") return finite(left * right, offset);
  // As in JavaScript, the remainder has the sign of what is divided.
  return finite(operator === "/" ? left / right : left % right, offset);
}
