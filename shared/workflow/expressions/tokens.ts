// Cuts the text of an expression into tokens: numbers, texts, words and signs, each with the index
// of its first character.

import { EXPRESSION_LIMITS, ExpressionFailure } from "./budget.ts";

export type Token =
  | { kind: "number"; text: string; offset: number; value: number }
  | { kind: "text"; text: string; offset: number; value: string }
  | { kind: "word" | "sign" | "end"; text: string; offset: number };

/** Words that name no values. */
export const KEYWORDS: ReadonlySet<string> = new Set([
  "and",
  "or",
  "not",
  "in",
  "true",
  "false",
  "null",
]);

const SPACE = /[ \t\r\n]*/y;
const NUMBER = /\d+(\.\d+)?([eE][+-]?\d+)?/y;
const WORD = /[A-Za-z_]\w*/y;
const SIGN = /=>|==|!=|<=|>=|[-+*/%<>()[\],.?:]/y;
const TEXT = /"([^"\\\n]|\\.)*"|'([^'\\\n]|\\.)*'/y;
const ESCAPE = /\\(u[0-9a-fA-F]{4}|.)/g;
const ESCAPES: ReadonlyMap<string, string> = new Map([
  ["n", "\n"],
  ["t", "\t"],
  ["r", "\r"],
  ['"', '"'],
  ["'", "'"],
  ["\\", "\\"],
]);
/** What people write who know other languages, and what is written here. */
const FOREIGN: ReadonlyMap<string, string> = new Map([
  ["&", "and"],
  ["|", "or"],
  ["!", "not"],
  ["=", "=="],
  ["{", "[…]"],
]);

/** The tokens of a source, in order; throws ExpressionFailure for what is none. */
export function tokensOf(source: string): Token[] {
  if (source.length > EXPRESSION_LIMITS.characters) {
    const message = `an expression has at most ${EXPRESSION_LIMITS.characters} characters`;
    throw new ExpressionFailure(message, EXPRESSION_LIMITS.characters);
  }
  const tokens: Token[] = [];
  for (let offset = after(SPACE, source, 0); offset < source.length; ) {
    const token = tokenOf(source, offset);
    if (tokens.push(token) > EXPRESSION_LIMITS.tokens) {
      const message = `an expression has at most ${EXPRESSION_LIMITS.tokens} words and signs`;
      throw new ExpressionFailure(message, offset);
    }
    offset = after(SPACE, source, offset + token.text.length);
  }
  return tokens;
}

/** The index behind what a sticky pattern matches; the same one where it does not. */
function after(pattern: RegExp, source: string, offset: number): number {
  pattern.lastIndex = offset;
  return pattern.test(source) ? pattern.lastIndex : offset;
}

function tokenOf(source: string, offset: number): Token {
  const match = (pattern: RegExp) => source.slice(offset, after(pattern, source, offset));
  const digits = match(NUMBER);
  if (digits) {
    const value = Number(digits);
    if (!Number.isFinite(value)) throw new ExpressionFailure("the number is too large", offset);
    if (/\w/.test(source[offset + digits.length] ?? "")) {
      throw new ExpressionFailure("a number is written in decimal digits", offset);
    }
    return { kind: "number", text: digits, offset, value };
  }
  const quoted = match(TEXT);
  if (quoted) return { kind: "text", text: quoted, offset, value: unescaped(quoted, offset) };
  const word = match(WORD);
  if (word) return { kind: "word", text: word, offset };
  const sign = match(SIGN);
  if (sign) return { kind: "sign", text: sign, offset };
  const character = String.fromCodePoint(source.codePointAt(offset) ?? 0);
  if (character === '"' || character === "'") {
    throw new ExpressionFailure("the text is not closed", offset);
  }
  const instead = FOREIGN.get(character);
  const advice = instead ? `: write \`${instead}\`` : "";
  throw new ExpressionFailure(`${JSON.stringify(character)} means nothing here${advice}`, offset);
}

/** What stands between quotes. */
function unescaped(quoted: string, offset: number): string {
  return quoted.slice(1, -1).replace(ESCAPE, (whole, code: string, index: number) => {
    if (code.length === 5) return String.fromCharCode(Number.parseInt(code.slice(1), 16));
    const character = ESCAPES.get(code);
    if (character === undefined) {
      throw new ExpressionFailure(`${whole} is no escape`, offset + 1 + index);
    }
    return character;
  });
}
