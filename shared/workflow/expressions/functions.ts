// The functions that an expression may call: a closed set, each with how many arguments it takes.
// They see values only; nothing of the host can be reached through them.

import { decimal } from "../../scalars.ts";
import {
  EXPRESSION_LIMITS,
  ExpressionFailure,
  isRecord,
  isSame,
  nameOfType,
  type StepBudget,
} from "./budget.ts";

/** A call of a function: its arguments, and what pays for it. */
interface FunctionCall {
  name: string;
  values: readonly unknown[];
  /** The second argument, where it is a `x => …`, for an item of the list. */
  each: ((item: unknown) => unknown) | null;
  offset: number;
  budget: StepBudget;
}

interface ExpressionFunction {
  argumentsMin: number;
  argumentsMax: number;
  /** Whether the second argument is `x => …`: always, if it is there, or never. */
  takesLambda: boolean;
  apply: (call: FunctionCall) => unknown;
}

function refuse({ name, offset }: FunctionCall, why: string): never {
  throw new ExpressionFailure(`${name}() ${why}`, offset);
}

function numberOf(call: FunctionCall, index = 0): number {
  const value = call.values[index];
  if (typeof value !== "number") refuse(call, `needs a number, not ${nameOfType(value)}`);
  return value;
}

function textOf(call: FunctionCall, index = 0): string {
  const value = call.values[index];
  if (typeof value !== "string") refuse(call, `needs a text, not ${nameOfType(value)}`);
  return call.budget.read(value, call.offset);
}

function listOf(call: FunctionCall): readonly unknown[] {
  const [value] = call.values;
  if (!Array.isArray(value)) refuse(call, `needs a list, not ${nameOfType(value)}`);
  return call.budget.list(value, call.offset);
}

/** Numbers given one by one, or as one list. */
function numbersOf(call: FunctionCall): readonly number[] {
  const values = call.values.length === 1 ? listOf(call) : call.values;
  for (const value of values) {
    if (typeof value !== "number") refuse(call, `needs numbers, not ${nameOfType(value)}`);
  }
  return values as readonly number[];
}

/** A boolean for each item: what the lambda says of it, or itself. */
function truthOf(call: FunctionCall, item: unknown): boolean {
  const value = call.each ? call.each(item) : item;
  if (typeof value !== "boolean") refuse(call, `needs true or false, not ${nameOfType(value)}`);
  return value;
}

/** A number, a text or a boolean as text. */
function wordOf(call: FunctionCall, value: unknown): string {
  if (typeof value === "string") return call.budget.read(value, call.offset);
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  return refuse(call, `cannot write ${nameOfType(value)} as a text`);
}

const sumOf = (numbers: readonly number[]) => numbers.reduce((sum, number) => sum + number, 0);

/** The middle number, or the mean of the two; of none, null. */
export function medianOf(numbers: readonly number[]): number | null {
  const sorted = numbers.toSorted((one, other) => one - other);
  const [low, high] = [sorted[(sorted.length - 1) >> 1], sorted[sorted.length >> 1]];
  return low === undefined || high === undefined ? null : low === high ? low : low / 2 + high / 2;
}

function round(call: FunctionCall): number {
  const digits = call.values.length > 1 ? numberOf(call, 1) : 0;
  if (!(Number.isInteger(digits) && digits >= 0 && digits <= 12)) {
    refuse(call, "rounds to 0 to 12 digits");
  }
  const unit = 10 ** digits;
  const rounded = Math.round(numberOf(call) * unit) / unit;
  // A number too large to be moved by so many digits has none after the point.
  return Number.isFinite(rounded) ? rounded : numberOf(call);
}

/** Whether the second text is in the first one, or the second value in the list. */
function contains(call: FunctionCall): boolean {
  const [whole, part] = call.values;
  if (Array.isArray(whole)) {
    return listOf(call).some((item) => isSame(item, part, call.budget.visitor(call.offset)));
  }
  return includesText(textOf(call), textOf(call, 1), call);
}

/** Whether one text is in another; paid for by the lengths of both. */
export function includesText(
  whole: string,
  part: string,
  { budget, offset }: { budget: StepBudget; offset: number },
): boolean {
  if (part.length > EXPRESSION_LIMITS.needle) {
    const limit = EXPRESSION_LIMITS.needle;
    throw new ExpressionFailure(
      `a text that is looked for has at most ${limit} characters`,
      offset,
    );
  }
  budget.spend(Math.ceil((whole.length * part.length) / EXPRESSION_LIMITS.needle), offset);
  return whole.includes(part);
}

function join(call: FunctionCall): string {
  const words = listOf(call).map((item) => wordOf(call, item));
  const separator = call.values.length > 1 ? textOf(call, 1) : ", ";
  const characters = words.reduce((sum, { length }) => sum + length + separator.length, 0);
  call.budget.reserve(characters, call.offset);
  return words.join(separator);
}

function unique(call: FunctionCall): unknown[] {
  const kept: unknown[] = [];
  const spend = call.budget.visitor(call.offset);
  for (const item of listOf(call)) {
    if (!kept.some((other) => isSame(item, other, spend))) kept.push(item);
  }
  return kept;
}

function lengthOf(call: FunctionCall): number {
  const [value] = call.values;
  if (typeof value === "string" || Array.isArray(value)) return value.length;
  if (isRecord(value)) return Object.keys(value).length;
  return refuse(call, `needs a text, a list or an object, not ${nameOfType(value)}`);
}

/** The number that a text is in decimal digits; null where it is none. */
function parseNumber(call: FunctionCall): number | null {
  const [value] = call.values;
  if (typeof value === "number") return value;
  const parsed = decimal().safeParse(textOf(call));
  return parsed.success ? parsed.data : null;
}

/** A text of another case, which may be longer: ß is SS. */
function cased(call: FunctionCall, change: (text: string) => string): string {
  const text = change(textOf(call));
  call.budget.reserve(text.length, call.offset);
  return text;
}

const of = (
  argumentsMin: number,
  argumentsMax: number,
  apply: ExpressionFunction["apply"],
): ExpressionFunction => ({ argumentsMin, argumentsMax, takesLambda: false, apply });

const ofItems = (argumentsMin: number, apply: ExpressionFunction["apply"]): ExpressionFunction => ({
  argumentsMin,
  argumentsMax: 2,
  takesLambda: true,
  apply,
});

/** Arguments of a function that takes as many as one likes. */
const MANY = 20;

/** All functions by name. Of a list without numbers min, max and mean are null. */
export const FUNCTIONS: ReadonlyMap<string, ExpressionFunction> = new Map([
  ["len", of(1, 1, lengthOf)],
  ["min", of(1, MANY, (call) => extremeOf(numbersOf(call), (one, other) => one < other))],
  ["max", of(1, MANY, (call) => extremeOf(numbersOf(call), (one, other) => one > other))],
  ["sum", of(1, 1, (call) => sumOf(numbersOf(call)))],
  ["mean", of(1, 1, (call) => meanOf(numbersOf(call)))],
  ["median", of(1, 1, (call) => medianOf(numbersOf(call)))],
  ["abs", of(1, 1, (call) => Math.abs(numberOf(call)))],
  ["round", of(1, 2, round)],
  ["floor", of(1, 1, (call) => Math.floor(numberOf(call)))],
  ["ceil", of(1, 1, (call) => Math.ceil(numberOf(call)))],
  ["sqrt", of(1, 1, (call) => Math.sqrt(numberOf(call)))],
  ["lower", of(1, 1, (call) => cased(call, (text) => text.toLowerCase()))],
  ["upper", of(1, 1, (call) => cased(call, (text) => text.toUpperCase()))],
  ["trim", of(1, 1, (call) => textOf(call).trim())],
  ["contains", of(2, 2, contains)],
  ["starts_with", of(2, 2, (call) => textOf(call).startsWith(textOf(call, 1)))],
  ["ends_with", of(2, 2, (call) => textOf(call).endsWith(textOf(call, 1)))],
  ["join", of(1, 2, join)],
  ["text", of(1, 1, (call) => wordOf(call, call.values[0]))],
  ["number", of(1, 1, parseNumber)],
  ["unique", of(1, 1, unique)],
  ["coalesce", of(1, MANY, ({ values }) => values.find((value) => value !== null) ?? null)],
  ["any", ofItems(1, (call) => listOf(call).some((item) => truthOf(call, item)))],
  ["all", ofItems(1, (call) => listOf(call).every((item) => truthOf(call, item)))],
  ["count", ofItems(1, (call) => listOf(call).filter((item) => truthOf(call, item)).length)],
  ["filter", ofItems(2, (call) => listOf(call).filter((item) => truthOf(call, item)))],
  ["map", ofItems(2, (call) => listOf(call).map((item) => call.each?.(item) ?? null))],
]);

function extremeOf(
  numbers: readonly number[],
  isBetter: (one: number, other: number) => boolean,
): number | null {
  let [best = null] = numbers;
  for (const number of numbers) if (best === null || isBetter(number, best)) best = number;
  return best;
}

/** The mean of numbers; of none, null. */
export const meanOf = (numbers: readonly number[]): number | null =>
  numbers.length === 0 ? null : sumOf(numbers) / numbers.length;
