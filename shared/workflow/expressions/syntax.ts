// Reads the text of an expression into a tree: operators by precedence, names that were declared,
// functions of the closed set. Whatever is no expression is refused with the character at fault.

import { EXPRESSION_LIMITS, ExpressionFailure } from "./budget.ts";
import { FUNCTIONS } from "./functions.ts";
import { KEYWORDS, type Token, tokensOf } from "./tokens.ts";

export type BinaryOperator =
  | "or"
  | "and"
  | "=="
  | "!="
  | "<"
  | "<="
  | ">"
  | ">="
  | "in"
  | "not in"
  | "+"
  | "-"
  | "*"
  | "/"
  | "%";

/** A part of an expression; `offset` is the index of its first character, or of its operator. */
export type ExpressionNode = { offset: number } & (
  | { kind: "literal"; value: number | string | boolean | null }
  | { kind: "name"; name: string }
  | { kind: "list"; items: readonly ExpressionNode[] }
  | { kind: "member"; of: ExpressionNode; name: string }
  | { kind: "index"; of: ExpressionNode; index: ExpressionNode }
  | { kind: "call"; name: string; parts: readonly ExpressionNode[]; lambda: Lambda | null }
  | { kind: "sign" | "not"; operand: ExpressionNode }
  | { kind: "binary"; operator: BinaryOperator; left: ExpressionNode; right: ExpressionNode }
  | { kind: "conditional"; test: ExpressionNode; yes: ExpressionNode; no: ExpressionNode }
);

/** `x => …`, which only stands in a call. */
export interface Lambda {
  parameter: string;
  body: ExpressionNode;
}

/** How tightly operators bind; those of one level are read from the left. */
const PRECEDENCE: Readonly<Record<BinaryOperator, number>> = {
  or: 1,
  and: 2,
  "==": 4,
  "!=": 4,
  "<": 4,
  "<=": 4,
  ">": 4,
  ">=": 4,
  in: 4,
  "not in": 4,
  "+": 5,
  "-": 5,
  "*": 6,
  "/": 6,
  "%": 6,
};
const NOT_PRECEDENCE = 3;
const COMPARISON = 4;
const LITERALS: ReadonlyMap<string, boolean | null> = new Map([
  ["true", true],
  ["false", false],
  ["null", null],
]);

/** Whether a word may name a value in expressions. */
export const isFreeName = (word: string): boolean =>
  /^[A-Za-z_]\w*$/.test(word) && !KEYWORDS.has(word);

/** The tree of an expression over values of these names; throws ExpressionFailure for any other. */
export function parseExpression(source: string, names: readonly string[]): ExpressionNode {
  return new Parser(source, names).parse();
}

class Parser {
  readonly #tokens: readonly Token[];
  readonly #end: Token;
  /** Names of values, those of lambdas last. */
  readonly #names: string[];
  #position = 0;
  #nesting = 0;

  constructor(source: string, names: readonly string[]) {
    this.#tokens = tokensOf(source);
    this.#end = { kind: "end", text: "the end", offset: source.length };
    this.#names = [...names];
  }

  parse(): ExpressionNode {
    const node = this.#conditional();
    const rest = this.#token();
    if (rest.kind !== "end") this.#unexpected(rest);
    return node;
  }

  #token(ahead = 0): Token {
    return this.#tokens[this.#position + ahead] ?? this.#end;
  }

  #is(text: string, ahead = 0): boolean {
    const token = this.#token(ahead);
    return (token.kind === "sign" || token.kind === "word") && token.text === text;
  }

  /** Goes past a token of this text, if it is the next. */
  #take(text: string): boolean {
    const isNext = this.#is(text);
    if (isNext) this.#position += 1;
    return isNext;
  }

  #expect(text: string) {
    if (!this.#take(text)) this.#unexpected(this.#token(), `\`${text}\``);
  }

  #unexpected({ text, offset, kind }: Token, wanted = "a value or an operator"): never {
    const what = kind === "end" ? "the expression ends here" : `found \`${text.slice(0, 40)}\``;
    throw new ExpressionFailure(`${what}, where ${wanted} should be`, offset);
  }

  /** Reads something that holds others, which may hold such in turn. */
  #nested<T>(read: () => T): T {
    this.#nesting += 1;
    if (this.#nesting > EXPRESSION_LIMITS.nesting) {
      const message = `more than ${EXPRESSION_LIMITS.nesting} parts within each other`;
      throw new ExpressionFailure(message, this.#token().offset);
    }
    const result = read();
    this.#nesting -= 1;
    return result;
  }

  #conditional(): ExpressionNode {
    return this.#nested(() => {
      const test = this.#binary(1);
      const { offset } = this.#token();
      if (!this.#take("?")) return test;
      const yes = this.#conditional();
      this.#expect(":");
      return { kind: "conditional", offset, test, yes, no: this.#conditional() };
    });
  }

  #operator(): BinaryOperator | null {
    if (this.#is("not") && this.#is("in", 1)) return "not in";
    const { kind, text } = this.#token();
    const isOperator = (kind === "sign" || kind === "word") && Object.hasOwn(PRECEDENCE, text);
    return isOperator ? (text as BinaryOperator) : null;
  }

  /** Operators that bind at least so tightly. */
  #binary(precedenceMin: number): ExpressionNode {
    let left = this.#prefix(precedenceMin);
    for (let isCompared = false; ; ) {
      const operator = this.#operator();
      const precedence = operator === null ? 0 : PRECEDENCE[operator];
      if (operator === null || precedence < precedenceMin) return left;
      const { offset } = this.#token();
      if (precedence === COMPARISON && isCompared) {
        throw new ExpressionFailure("join comparisons with `and`: a < b and b < c", offset);
      }
      isCompared = precedence === COMPARISON;
      this.#position += operator === "not in" ? 2 : 1;
      left = { kind: "binary", offset, operator, left, right: this.#binary(precedence + 1) };
    }
  }

  #prefix(precedenceMin: number): ExpressionNode {
    const { offset } = this.#token();
    if (this.#take("-")) {
      const operand = this.#nested(() => this.#prefix(PRECEDENCE["*"] + 1));
      return { kind: "sign", offset, operand };
    }
    if (!this.#is("not")) return this.#postfix();
    if (precedenceMin > NOT_PRECEDENCE) {
      throw new ExpressionFailure("put `not …` into parentheses here", offset);
    }
    this.#position += 1;
    const operand = this.#nested(() => this.#binary(NOT_PRECEDENCE));
    return { kind: "not", offset, operand };
  }

  #postfix(): ExpressionNode {
    let node = this.#primary();
    for (;;) {
      const { offset } = this.#token();
      if (this.#take(".")) {
        const { kind, text } = this.#token();
        if (kind !== "word") this.#unexpected(this.#token(), "the name of a member");
        this.#position += 1;
        node = { kind: "member", offset, of: node, name: text };
      } else if (this.#take("[")) {
        node = { kind: "index", offset, of: node, index: this.#conditional() };
        this.#expect("]");
      } else {
        return node;
      }
    }
  }

  #primary(): ExpressionNode {
    const token = this.#token();
    const { offset } = token;
    if (this.#take("(")) {
      const node = this.#conditional();
      this.#expect(")");
      return node;
    }
    if (this.#take("[")) return { kind: "list", offset, items: this.#items("]") };
    if (token.kind === "number" || token.kind === "text") {
      this.#position += 1;
      return { kind: "literal", offset, value: token.value };
    }
    if (token.kind !== "word") this.#unexpected(token);
    const literal = LITERALS.get(token.text);
    if (literal === undefined && KEYWORDS.has(token.text)) this.#unexpected(token);
    this.#position += 1;
    if (literal !== undefined) return { kind: "literal", offset, value: literal };
    if (this.#take("(")) return this.#call(token.text, offset);
    if (!this.#names.includes(token.text)) {
      const known = this.#names.join(", ") || "none";
      throw new ExpressionFailure(`no value is called ${token.text} (known: ${known})`, offset);
    }
    return { kind: "name", offset, name: token.text };
  }

  /** What stands between commas, up to a closing sign. */
  #items(closing: string): ExpressionNode[] {
    const items: ExpressionNode[] = [];
    if (this.#take(closing)) return items;
    do items.push(this.#conditional());
    while (this.#take(","));
    this.#expect(closing);
    return items;
  }

  #call(name: string, offset: number): ExpressionNode {
    const called = FUNCTIONS.get(name);
    if (!called) {
      const known = [...FUNCTIONS.keys()].join(", ");
      throw new ExpressionFailure(`no function is called ${name} (known: ${known})`, offset);
    }
    const parts: ExpressionNode[] = [];
    let lambda: Lambda | null = null;
    if (!called.takesLambda) {
      parts.push(...this.#items(")"));
    } else if (!this.#take(")")) {
      parts.push(this.#conditional());
      if (this.#take(",")) lambda = this.#lambda();
      this.#expect(")");
    }
    const count = parts.length + (lambda ? 1 : 0);
    const { argumentsMin, argumentsMax } = called;
    if (count < argumentsMin || count > argumentsMax) {
      const wanted =
        argumentsMin === argumentsMax ? `${argumentsMin}` : `${argumentsMin} to ${argumentsMax}`;
      const message = `${name}() takes ${wanted} arguments, not ${count}`;
      throw new ExpressionFailure(message, offset);
    }
    return { kind: "call", offset, name, parts, lambda };
  }

  #lambda(): Lambda {
    const token = this.#token();
    if (token.kind !== "word" || !isFreeName(token.text)) {
      this.#unexpected(token, "`x => …`");
    }
    this.#position += 1;
    this.#expect("=>");
    this.#names.push(token.text);
    const body = this.#conditional();
    this.#names.pop();
    return { parameter: token.text, body };
  }
}
