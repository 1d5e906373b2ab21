// The language of expressions: JavaScript's arithmetic and precedence, types that are not mixed,
// own data only, and an end within its budget for whatever anybody writes.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  EXPRESSION_LIMITS,
  ExpressionFailure,
  nameOfType,
  StepBudget,
} from "../../../shared/workflow/expressions/budget.ts";
import { evaluate } from "../../../shared/workflow/expressions/evaluation.ts";
import { FUNCTIONS } from "../../../shared/workflow/expressions/functions.ts";
import { infer, nameOf, typeOfKind } from "../../../shared/workflow/expressions/inference.ts";
import { expressionKindProblem } from "../../../shared/workflow/expressions/program.ts";
import { parseExpression } from "../../../shared/workflow/expressions/syntax.ts";
import type { Kind } from "../../../shared/workflow/kinds.ts";

const VALUES = {
  a: 3,
  b: -2.5,
  name: "gate",
  isOpen: true,
  nothing: null,
  list: [3, 1, 2],
  object: { class: "dog", data: { seconds: 4 }, bbox: [1, 2, 3, 4] },
  objects: [
    { class: "dog", confidence: 0.9 },
    { class: "cat", confidence: 0.4 },
  ],
};

const resultOf = (source: string, values: Readonly<Record<string, unknown>> = VALUES) =>
  evaluate(parseExpression(source, Object.keys(values)), new Map(Object.entries(values)));

/** Kinds of the values, as the ports of a step would have them. */
const KINDS = {
  a: "integer",
  b: "number",
  name: "string",
  isOpen: "boolean",
  nothing: "json",
  list: "list<number>",
  object: "json",
  objects: "list<json>",
} as const satisfies Record<keyof typeof VALUES, Kind>;

const typeOf = (source: string) =>
  infer(
    parseExpression(source, Object.keys(VALUES)),
    new Map(Object.entries(KINDS).map(([name, kind]) => [name, typeOfKind(kind)])),
  );

/** The failure of a source, when it is read or worked out. */
function failureOf(source: string, values?: Readonly<Record<string, unknown>>): ExpressionFailure {
  try {
    resultOf(source, values);
  } catch (error) {
    expect(error).toBeInstanceOf(ExpressionFailure);
    return error as ExpressionFailure;
  }
  throw new Error(`${source} did not fail`);
}

describe("values of expressions", () => {
  it.each<[string, unknown]>([
    ["1 + 2 * 3", 7],
    ["(1 + 2) * 3", 9],
    ["-a + 1", -2],
    ["--a", 3],
    ["7 % 4 - 10 / 4", 0.5],
    ["1.5e2", 150],
    ["'a' + \"b\"", "ab"],
    ["'it\\'s \\u0041\\n'", "it's A\n"],
    ["a > 2 and b < 0 or false", true],
    ["not a > 2", false],
    ["not (true and false) == true", true],
    ["true or nothing.x > 1", true],
    ["false and 1 / 0 > 1", false],
    ["2 in list", true],
    ["5 not in list", true],
    ["'at' in name", true],
    ["'class' in object", true],
    ["a == 3 and name != 'door'", true],
    ["[1, [2]] == [1, [2]]", true],
    ["object == object", true],
    ["isOpen ? a > 5 ? 1 : 2 : 3", 2],
    ["false ? 1 : true ? 2 : 3", 2],
    ["object.data.seconds", 4],
    ["object['class']", "dog"],
    ["list[0] + list[-1]", 5],
    ["list[9]", null],
    ["object.none", null],
    ["object.none.deeper", null],
    ["nothing.x", null],
    ["coalesce(object.none, nothing, 7)", 7],
    ["len(list) + len(name) + len(object)", 10],
    ["min(list) + max(4, a, b)", 5],
    ["min([])", null],
    ["sum(list) + mean(list) + median([4, 1])", 10.5],
    ["round(2.5) + round(-0.126, 2)", 2.87],
    ["floor(-1.5) + ceil(1.2) + abs(b) + sqrt(9)", 5.5],
    ["upper(name) + lower('ÄB') + trim(' x ')", "GATEäbx"],
    ["contains(name, 'at') and contains(list, 1)", true],
    ["starts_with(name, 'ga') and ends_with(name, 'te')", true],
    ["join(list, '-') + text(a) + text(isOpen)", "3-1-23true"],
    ["number('12.5') + a", 15.5],
    ["number('12abc')", null],
    ["unique([1, 2, 1, [3], [3]])", [1, 2, [3]]],
    ["filter(objects, o => o.confidence > 0.5)[0].class", "dog"],
    ["map(objects, o => o.class)", ["dog", "cat"]],
    ["sum(map(list, x => x * a))", 18],
    ["any(objects, o => o.class == 'cat') and all([true, isOpen])", true],
    ["count(objects, o => o.confidence < 0.5)", 1],
    ["map([1, 2], x => sum(map(list, y => x * y)))", [6, 12]],
    ["map([1], a => a + 1)[0] + a", 5],
  ])("%s", (source, value) => {
    expect(resultOf(source)).toEqual(value);
    // What is known of it before is true.
    expect(nameOf(typeOf(source)).split(" or ")).toContain(nameOfType(value));
  });

  it.each<[string, number, string]>([
    ["", 0, "ends here"],
    ["1 +", 3, "ends here"],
    ["1 2", 2, "`2`"],
    ["a & b", 2, "write `and`"],
    ["!a", 0, "write `not`"],
    ["a = 3", 2, "write `==`"],
    ["1 < a < 3", 6, "and"],
    ["1 + not true", 4, "parentheses"],
    ["x + 1", 0, "no value is called x"],
    ["list.map(x => x)", 8, "`(`"],
    ["foo(1)", 0, "no function is called foo"],
    ["len()", 0, "takes 1 arguments"],
    ["min(list, x => x)", 10, "no value is called x"],
    ["min(list, a => a)", 12, "`=>`"],
    ["map(list, 1)", 10, "x => …"],
    ["map(list, x => x) + x", 20, "no value is called x"],
    ["'open", 0, "not closed"],
    ["'\\q'", 1, "no escape"],
    ["12px", 0, "decimal digits"],
    ["1e999", 0, "too large"],
    ["{a: 1}", 0, "[…]"],
    ["and", 0, "`and`"],
  ])("are none of %s", (source, offset, message) => {
    const failure = failureOf(source);
    expect(failure.message).toContain(message);
    expect(failure.offset).toBe(offset);
    expect(failure.message).toContain(`(at character ${offset + 1})`);
  });

  it.each<[string, number, string]>([
    ["a + name", 2, "needs a number, not a text"],
    ["1 + true", 2, "not a boolean"],
    ["nothing > 1", 8, "null and a number"],
    ["a and true", 2, "true or false, not a number"],
    ["a ? 1 : 2", 2, "true or false"],
    ["1 / (a - 3)", 2, "division by zero"],
    ["1e308 * 10", 6, "no finite number"],
    ["sqrt(b)", 0, "no finite number"],
    ["name.length", 4, "no member length"],
    ["name[0]", 4, "no items"],
    ["list[0.5]", 4, "whole number"],
    ["1 in 2", 2, "cannot look for"],
    ["sum(objects)", 0, "needs numbers, not an object"],
    ["any(list)", 0, "true or false"],
    ["filter(list, x => x)", 0, "true or false"],
    ["join(objects)", 0, "an object"],
    ["round(1, 99)", 0, "0 to 12"],
  ])("fail of %s when it is worked out", (source, offset, message) => {
    const failure = failureOf(source);
    expect(failure.message).toContain(message);
    expect(failure.offset).toBe(offset);
  });
});

describe("types of expressions", () => {
  const kinds = new Map<string, Kind>(Object.entries({ ...KINDS, found: "masks", gate: "zone" }));
  const problemOf = (source: string, wanted: Kind = "json") =>
    expressionKindProblem(source, kinds, wanted);

  it.each<[string, string]>([
    ["a + name", "two numbers or two texts, not a number and a text (at character 3)"],
    ["a + 1 - isOpen", "`-` needs a number, not a boolean"],
    ["name < a", "two numbers or two texts"],
    ["not name", "needs a boolean, not a text"],
    ["a ? 1 : 2", "needs a boolean, not a number"],
    ["isOpen and a", "needs a boolean"],
    ["name.length", ".length needs null or an object, not a text"],
    ["found[0]", "needs null or a list, not an object"],
    ["list['x']", "needs null or an object, not a list"],
    ["1 in a", "needs a text or a list or an object, not a number"],
    ["a in name", "needs a text, not a number"],
    ["sum(a)", "sum() needs a list, not a number"],
    ["max(a, name)", "max() needs a number, not a text"],
    ["map(name, x => x)", "map() needs a list"],
    ["filter(list, x => x)", "filter() needs a boolean, not a number"],
    ["any(list)", "any() needs a boolean"],
    ["map(list, x => upper(x))", "upper() needs a text, not a number"],
    ["map(gate, p => p[0] + 'px')", "not a number or null and a text"],
    ["(isOpen ? name : 'shut') * 2", "needs a number, not a text"],
  ])("refuse %s before anything runs", (source, message) => {
    expect(problemOf(source)).toContain(message);
  });

  it.each<[string, Kind]>([
    ["object.class + 'x'", "string"],
    ["objects[0].confidence * 2", "number"],
    ["len(found.objects) > 2", "boolean"],
    ["map(gate, p => p[0])", "list<number>"],
    ["coalesce(object.x, a)", "integer"],
    ["isOpen ? a : name", "string"],
    ["min(list)", "string"],
    ["nothing + 1", "number"],
  ])("leave %s of the kind %s to the run", (source, wanted) => {
    expect(problemOf(source, wanted)).toBeNull();
  });

  it("refuse a result that is never of the kind that a step states", () => {
    expect(problemOf("a > 2", "integer")).toBe("it comes to a boolean, never to an integer");
    expect(problemOf("upper(name)", "list<string>")).toContain("it comes to a text");
    expect(problemOf("list", "list<string>")).toBeNull();
  });
});

describe("the reach of expressions", () => {
  it("ends at own data: nothing of a prototype can be read", () => {
    const inherited = Object.getOwnPropertyNames(Object.prototype);
    for (const name of [...inherited, "prototype", "call", "apply"]) {
      expect(resultOf(`object.${name}`)).toBeNull();
      expect(resultOf(`object["${name}"]`)).toBeNull();
      expect(resultOf(`"${name}" in object`)).toBe(false);
      expect(failureOf(`${name}(1)`).message).toContain("no function is called");
      expect(failureOf(name).message).toContain("no value is called");
    }
    for (const name of ["constructor", "length", "map", "__proto__"]) {
      expect(failureOf(`list.${name}`).message).toContain("has no member");
      expect(failureOf(`list["${name}"]`).message).toContain("has no member");
      expect(failureOf(`name.${name}`).message).toContain("has no member");
    }
  });

  it("holds own members that are called as those of prototypes", () => {
    const value = JSON.parse('{"__proto__": {"constructor": 5}}');
    expect(resultOf("value.__proto__.constructor", { value })).toBe(5);
    expect(resultOf("constructor + 1", { constructor: 1 })).toBe(2);
  });

  it("is bounded in characters, words and depth", () => {
    expect(failureOf("1".repeat(EXPRESSION_LIMITS.characters + 1)).message).toContain("characters");
    expect(failureOf(`1${"+1".repeat(600)}`).message).toContain("words and signs");
    expect(resultOf(`1${"+1".repeat(400)}`)).toBe(401);
    for (const [open, close] of [
      ["(", ")"],
      ["[", "]"],
      ["-", ""],
      ["not ", ""],
      ["abs(", ")"],
      ["list[", "]"],
      ["true ? ", " : 1"],
    ] as const) {
      const deep = `${open.repeat(100)}1${close.repeat(100)}`;
      expect(failureOf(deep).message).toContain("within each other");
    }
    expect(resultOf(`${"(".repeat(40)}1${")".repeat(40)}`)).toBe(1);
  });

  it("is bounded in steps, texts and lists", () => {
    const list = Array.from({ length: 10_000 }, (_, index) => index);
    const nested = "len(map(list, x => map(list, y => y)))";
    expect(failureOf(nested, { list }).message).toContain("too many steps");
    const text = "x".repeat(60_000);
    expect(failureOf("text + text", { text }).message).toContain("more than 100000 characters");
    expect(failureOf("join([text, text])", { text }).message).toContain("characters");
    expect(failureOf("sum(list)", { list: [...list, 1] }).message).toContain("10000 items");
    expect(failureOf("contains(text, text)", { text }).message).toContain("looked for");
  });

  it("pays for results in which one value is many times over", () => {
    const list = Array.from({ length: 2_000 }, () => 1);
    expect(failureOf("map(list, x => list)", { list }).message).toContain("too many steps");
    const twice = Array.from({ length: 20 }).reduce<string>(
      (inner) => `map([${inner}], y => [y, y])[0]`,
      "1",
    );
    expect(failureOf(twice).message).toContain("too many steps");
  });

  it("refuses values too deep to be compared", () => {
    const deep = JSON.parse(`${"[".repeat(5_000)}${"]".repeat(5_000)}`);
    const other = JSON.parse(`${"[".repeat(5_000)}${"]".repeat(5_000)}`);
    expect(failureOf("deep == other", { deep, other }).message).toContain("within each other");
    expect(failureOf("deep", { deep }).message).toContain("within each other");
  });
});

/** Arithmetic and comparisons that JavaScript writes as we do, but for its words. */
const number = fc.integer({ min: 0, max: 20 }).map(String);
const arithmetic = fc.letrec<{ sum: string }>((tie) => ({
  sum: fc.oneof(
    { maxDepth: 4, depthIdentifier: "sum" },
    number,
    fc.constantFrom("a", "b"),
    fc
      .tuple(tie("sum"), fc.constantFrom("+", "-", "*", "/", "%"), tie("sum"))
      .map(([left, sign, right]) => `${left} ${sign} ${right}`),
    tie("sum").map((inner) => `(${inner})`),
    tie("sum").map((inner) => `- ${inner}`),
  ),
})).sum;
const comparison = fc
  .tuple(arithmetic, fc.constantFrom("<", "<=", ">", ">=", "==", "!="), arithmetic)
  .map(([left, sign, right]) => `${left} ${sign} ${right}`);
const logic = fc.letrec<{ all: string }>((tie) => ({
  all: fc.oneof(
    { maxDepth: 3, depthIdentifier: "all" },
    comparison,
    fc
      .tuple(tie("all"), fc.constantFrom("and", "or"), tie("all"))
      .map(([left, word, right]) => `${left} ${word} ${right}`),
    tie("all").map((inner) => `not (${inner})`),
    fc
      .tuple(tie("all"), tie("all"), tie("all"))
      .map(([test, yes, no]) => `((${test}) ? ${yes} : ${no})`),
  ),
})).all;

const javaScript = (source: string) =>
  source
    .replaceAll("and", "&&")
    .replaceAll("or", "||")
    .replaceAll("not", "!")
    .replaceAll("==", "===")
    .replaceAll("!=", "!==");

/** What JavaScript makes of a source, or a number that is none. */
const inJavaScript = (source: string): unknown =>
  new Function("a", "b", `return ${javaScript(source)}`)(VALUES.a, VALUES.b);

/** What we make of it; a failure where JavaScript ends in no finite number on its way. */
function ours(source: string): unknown {
  try {
    return resultOf(source);
  } catch (error) {
    if (error instanceof ExpressionFailure) return error;
    throw error;
  }
}

describe("any text", () => {
  it("has the value that JavaScript gives it, where both can read it", () => {
    fc.assert(
      fc.property(fc.oneof(arithmetic, logic), (source) => {
        fc.pre(source.length < EXPRESSION_LIMITS.characters);
        const value = ours(source);
        if (value instanceof ExpressionFailure) {
          const isOfLimits = /within each other|words and signs/.test(value.message);
          expect(isOfLimits || /finite|zero/.test(value.message), value.message).toBe(true);
        } else {
          expect(value).toEqual(inJavaScript(source));
        }
      }),
      { numRuns: 500 },
    );
  });

  const piece = fc.oneof(
    fc.constantFrom("a", "list", "object", "objects", "name", "x", "=>", "x => ", "o.class"),
    fc.constantFrom(..."+-*/%<>()[],.?:'\"&|={} ".split(""), "==", "!=", "<=", ">="),
    fc.constantFrom("and", "or", "not", "in", "true", "null", " ", "__proto__", "constructor"),
    fc.constantFrom(...FUNCTIONS.keys()).map((name) => `${name}(`),
    fc.string({ maxLength: 4 }),
    number,
  );
  const source = fc.oneof(
    fc.string({ maxLength: 60 }),
    fc.array(piece, { maxLength: 24 }).map((pieces) => pieces.join("")),
    fc.array(piece, { maxLength: 24 }).map((pieces) => pieces.join(" ")),
    logic.chain((text) =>
      fc.nat(text.length).map((offset) => text.slice(0, offset) + text.slice(offset + 1)),
    ),
  );

  it("is read, or fails at a character of it; what is read ends within its steps", () => {
    const prototype = JSON.stringify(Object.getOwnPropertyNames(Object.prototype));
    fc.assert(
      fc.property(source, (text) => {
        try {
          const program = parseExpression(text, Object.keys(VALUES));
          const value = evaluate(program, new Map(Object.entries(VALUES)), new StepBudget(5_000));
          expect(typeof value === "function" || value === undefined).toBe(false);
        } catch (error) {
          expect(error).toBeInstanceOf(ExpressionFailure);
          const { offset } = error as ExpressionFailure;
          expect(offset).toBeGreaterThanOrEqual(0);
          expect(offset).toBeLessThanOrEqual(text.length);
        }
      }),
      { numRuns: 2_000 },
    );
    expect(JSON.stringify(Object.getOwnPropertyNames(Object.prototype))).toBe(prototype);
  });
});
