// Expressions as blocks have them: in a parameter, checked before a run, read once for all
// elements, and with failures in the words of blocks.

import { BlockFailure } from "../block.ts";
import type { Kind } from "../kinds.ts";
import { aKind } from "../problems.ts";
import { ExpressionFailure, type StepBudget } from "./budget.ts";
import { evaluate } from "./evaluation.ts";
import { infer, nameOf, typeOfKind } from "./inference.ts";
import { type ExpressionNode, parseExpression } from "./syntax.ts";

/** What is wrong with the text of an expression over values of these names; null for nothing. */
export function expressionProblem(source: string, names: readonly string[]): string | null {
  try {
    parseExpression(source, names);
    return null;
  } catch (error) {
    if (error instanceof ExpressionFailure) return error.message;
    throw error;
  }
}

/**
 * Why an expression over names of these kinds cannot come to a value of a kind; null where it may.
 * A result of null is of every kind: it masks.
 */
export function expressionKindProblem(
  source: string,
  kinds: ReadonlyMap<string, Kind | null>,
  wanted: Kind,
): string | null {
  try {
    const types = new Map([...kinds].map(([name, kind]) => [name, typeOfKind(kind)]));
    const type = infer(parseExpression(source, [...kinds.keys()]), types);
    const result = typeOfKind(wanted);
    if (type.names.has("null") || [...type.names].some((name) => result.names.has(name)))
      return null;
    return `it comes to ${nameOf(type)}, never to ${aKind(wanted)}`;
  } catch (error) {
    if (error instanceof ExpressionFailure) return error.message;
    throw error;
  }
}

/** Expressions that have been read, by the parameters of the step that they belong to. */
const programs = new WeakMap<object, ExpressionNode>();

/** The value of the expression of a step; throws BlockFailure where it has none. */
export function expressionValue(
  step: { parameters: object; source: string },
  values: ReadonlyMap<string, unknown>,
  budget?: StepBudget,
): unknown {
  try {
    const known = programs.get(step.parameters);
    const program = known ?? parseExpression(step.source, [...values.keys()]);
    if (!known) programs.set(step.parameters, program);
    return evaluate(program, values, budget);
  } catch (error) {
    if (!(error instanceof ExpressionFailure)) throw error;
    throw new BlockFailure(`expression: ${error.message}`, { cause: error });
  }
}
