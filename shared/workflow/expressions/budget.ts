// What an expression may cost, and how it fails: always with the character at which it did. Every
// step of an evaluation, and every value that it makes, is paid for from one budget.

/** What is accepted of a program's text, and what one evaluation may spend and make. */
export const EXPRESSION_LIMITS = {
  characters: 2_000,
  tokens: 1_000,
  /** Parentheses, lists, calls and signs within each other. */
  nesting: 50,
  /** Values looked at or made; about 50 ms. */
  steps: 500_000,
  /** Values within each other, of what is compared or made. */
  depth: 100,
  /** Characters of a text, items of a list. */
  text: 100_000,
  items: 10_000,
  /** Characters of a text that is looked for in another. */
  needle: 1_000,
} as const;

/** Characters of a text that are worked on for one step. */
const CHARACTERS_PER_STEP = 16;

/** Why an expression was refused or did not end in a value; the message names the character. */
export class ExpressionFailure extends Error {
  override readonly name = "ExpressionFailure";
  /** Index of the character in the source, from 0. */
  readonly offset: number;

  constructor(message: string, offset: number) {
    super(`${message} (at character ${offset + 1})`);
    this.offset = offset;
  }
}

/** The steps that evaluations may still take together. */
export class StepBudget {
  #left: number;

  constructor(steps: number = EXPRESSION_LIMITS.steps) {
    this.#left = steps;
  }

  /** Pays for steps; fails once more are asked for than were given. */
  spend(steps: number, offset: number) {
    this.#left -= steps;
    if (this.#left < 0) throw new ExpressionFailure("the expression takes too many steps", offset);
  }

  /** What pays for a comparison of values within values. */
  visitor(offset: number): (depth: number) => void {
    return (depth) => {
      this.spend(1, offset);
      if (depth > EXPRESSION_LIMITS.depth) {
        const message = `a value has more than ${EXPRESSION_LIMITS.depth} values within each other`;
        throw new ExpressionFailure(message, offset);
      }
    };
  }

  /** Pays for a whole value, in which the same part may be many times over. */
  measure(value: unknown, offset: number, depth = 0) {
    this.visitor(offset)(depth);
    if (typeof value === "string") this.read(value, offset);
    if (typeof value !== "object" || value === null) return;
    for (const part of Object.values(value)) this.measure(part, offset, depth + 1);
  }

  /** Pays for a text that is worked on. */
  read(text: string, offset: number): string {
    this.spend(Math.ceil(text.length / CHARACTERS_PER_STEP), offset);
    return text;
  }

  /** Fails for more characters than a text may have that is about to be made. */
  reserve(characters: number, offset: number) {
    if (characters > EXPRESSION_LIMITS.text) {
      throw new ExpressionFailure(
        `a text would have more than ${EXPRESSION_LIMITS.text} characters`,
        offset,
      );
    }
    this.spend(Math.ceil(characters / CHARACTERS_PER_STEP), offset);
  }

  /** Pays for the items of a list. */
  list<T>(items: readonly T[], offset: number): readonly T[] {
    if (items.length > EXPRESSION_LIMITS.items) {
      throw new ExpressionFailure(`a list has more than ${EXPRESSION_LIMITS.items} items`, offset);
    }
    this.spend(items.length, offset);
    return items;
  }
}

/** What a value is, in the words of messages. */
export function nameOfType(value: unknown): string {
  if (value === null || value === undefined) return "null";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "string") return "a text";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

/** Whether a value has members by name. */
export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Whether two JSON values are the same, members in any order; each value looked at is a step. */
export function isSame(one: unknown, other: unknown, spend: (depth: number) => void): boolean {
  return isSameWithin(one, other, { spend, depth: 0 });
}

function isSameWithin(
  one: unknown,
  other: unknown,
  { spend, depth }: { spend: (depth: number) => void; depth: number },
): boolean {
  spend(depth);
  if (one === other || (one ?? null) === (other ?? null)) return true;
  const inner = { spend, depth: depth + 1 };
  if (Array.isArray(one) && Array.isArray(other)) {
    return (
      one.length === other.length &&
      one.every((item, index) => isSameWithin(item, other[index], inner))
    );
  }
  if (!isRecord(one) || !isRecord(other)) return false;
  const names = Object.keys(one);
  return (
    names.length === Object.keys(other).length &&
    names.every((name) => Object.hasOwn(other, name) && isSameWithin(one[name], other[name], inner))
  );
}
