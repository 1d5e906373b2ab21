// What a hostile text or object makes a check do, counted. Goal: no more than in proportion to its
// size, whatever the schema.

import { afterEach, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { nullsAsNotGiven } from "../../edge/http/not-given.ts";
import { ClassName } from "../../edge/vision/labeling/classes.ts";
import { importRoboflow } from "../../edge/vision/workflows/roboflow/import.ts";
import { flattened, RoboflowDefinition } from "../../edge/vision/workflows/roboflow/inner.ts";
import { operations } from "../../edge/vision/workflows/roboflow/query.ts";
import { mapOf } from "../../shared/scalars.ts";
import { Json } from "../../shared/workflow/definition.ts";
import { readLiteral } from "../../shared/workflow/literals.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

/**
 * Arguments of the calls of a built-in method while something is done. A spy of the test runner
 * would call some of these methods itself.
 */
function callsDuring(prototype: object, method: string, act: () => void): unknown[][] {
  const calls: unknown[][] = [];
  const own = Object.getOwnPropertyDescriptor(prototype, method);
  if (!own) throw new Error(`there is no method ${method}`);
  const { value: call } = own as { value: (...given: unknown[]) => unknown };
  function counted(this: unknown, ...given: unknown[]) {
    calls[calls.length] = given;
    return call.apply(this, given);
  }
  Object.defineProperty(prototype, method, { ...own, value: counted });
  try {
    act();
  } finally {
    Object.defineProperty(prototype, method, own);
  }
  return calls;
}

it("a class's name is not composed where it is too long", () => {
  const composed: number[] = [];
  const { normalize } = String.prototype;
  vi.spyOn(String.prototype, "normalize").mockImplementation(function (this: string, form) {
    composed.push(this.length);
    return normalize.call(this, form);
  });
  const marks = "\u0315\u0300".repeat(50_000);
  expect(z.prettifyError(ClassName.safeParse(`a${marks}`).error as z.ZodError)).toContain(
    "must have at most 200 characters",
  );
  expect(Math.max(0, ...composed)).toBeLessThanOrEqual(800);
  expect(ClassName.parse(" e\u0301 ")).toBe("\u00e9");
});

it("of an object only the fields of its schema are read", () => {
  const names = Array.from({ length: 10_000 }, (_, index) => [`x${index}`, null] as const);
  const read: unknown[] = [];
  const body = new Proxy(Object.fromEntries([...names, ["a", null]]), {
    get: (target, key) => {
      read.push(key);
      return Reflect.get(target, key);
    },
  });
  nullsAsNotGiven(z.object({ b: z.string().optional() })).parse(body);
  expect(read.length).toBeLessThan(20);
});

it("of a map with too many members only as many as it may have, and one, are looked at", () => {
  let looked = 0;
  const value = z.unknown().refine(() => {
    looked += 1;
    return true;
  });
  const body = nullsAsNotGiven(z.object({ map: mapOf(z.string(), value, 10).default({}) }));
  const members = Array.from({ length: 1_000 }, (_, index) => [`m${index}`, 1] as const);
  const { error } = body.safeParse({ map: Object.fromEntries(members) });
  expect(error?.issues.map(({ message }) => message)).toEqual(["must have at most 10 members"]);
  expect(looked).toBe(11);
  expect(body.parse({ map: { a: 1 } })).toEqual({ map: { a: 1 } });
});

it("of a list with too many items none is looked at", () => {
  let looked = 0;
  const item = z.object({ a: z.string().optional(), b: z.string().optional() });
  const list = z.array(item).max(10);
  const body = nullsAsNotGiven(
    z.object({ list: list.default([]), either: z.union([z.string(), list]).optional() }),
  );
  const watched = new Proxy({ a: null } as object, {
    getOwnPropertyDescriptor: (target, key) => {
      looked += 1;
      return Reflect.getOwnPropertyDescriptor(target, key);
    },
  });
  const items = Array.from({ length: 1_000 }, () => watched);
  const { error } = body.safeParse({ list: items });
  expect(error?.issues.map(({ message }) => message)).toEqual([
    "Too big: expected array to have <=10 items",
  ]);
  expect(body.safeParse({ either: items }).success).toBe(false);
  expect(looked).toBe(0);
  expect(body.parse({ list: [{ a: null }] })).toEqual({ list: [{}] });
});

it("a value of JSON is not tried as each kind of value, with a note of what it is not", () => {
  const items = Array.from({ length: 1_000 }, () => ({ a: [] }));
  const noted = callsDuring(Array.prototype, "push", () => {
    Json.parse(items);
    readLiteral("json", items);
    readLiteral("list", items);
  });
  expect(noted.length).toBeLessThan(1_000);
});

describe("a definition of Roboflow's", () => {
  const STEPS = 190;
  const inner = (name: string, more: object = {}) => ({
    type: "roboflow_core/inner_workflow@v1",
    name,
    workflow_definition: { inputs: [], steps: [], outputs: [] },
    ...more,
  });

  it("has its cases read once, however many workflows lie in it", () => {
    let read = 0;
    const names = Array.from({ length: STEPS }, (_, index) => `inner${index}`);
    const cases = new Proxy(Object.fromEntries(names.map((name) => [name, `$steps.${name}`])), {
      ownKeys: (target) => {
        read += 1;
        return Reflect.ownKeys(target);
      },
    });
    const switching = { type: "roboflow_core/switch_case@v1", name: "switch", cases };
    const steps = [...names.map((name) => inner(name)), switching];
    expect(flattened({ inputs: [], steps, outputs: [] }).steps).toHaveLength(STEPS + 1);
    expect(read).toBe(1);
  });

  it("gives names that look alike ids without trying all that are taken", () => {
    const has = vi.spyOn(Set.prototype, "has");
    const steps = Array.from({ length: STEPS }, (_, index) => ({
      type: "roboflow_core/nothing@v1",
      name: `${"same".repeat(30)}${index}`,
    }));
    importRoboflow(RoboflowDefinition.parse({ steps }));
    expect(has.mock.calls.length).toBeLessThan(20 * STEPS);
  });

  const importOf = (step: object) =>
    importRoboflow({
      inputs: [{ type: "WorkflowParameter", name: "n" }],
      steps: [{ name: "s", ...step }],
    });
  const deciding = (evaluation_parameters: object) =>
    importOf({
      type: "roboflow_core/continue_if@v1",
      condition_statement: {
        type: "UnaryStatement",
        operand: { type: "StaticOperand", value: 1 },
        operator: { type: "Exists" },
      },
      evaluation_parameters,
    });
  const switching = (cases: object, default_next_steps: readonly string[]) =>
    importOf({
      type: "roboflow_core/switch_case@v1",
      value: "$inputs.n",
      cases,
      default_next_steps,
    });

  it("has an inner workflow that is none read once, however many steps have its name", () => {
    let read = 0;
    const parameter_bindings = new Proxy(
      {},
      {
        ownKeys: () => {
          read += 1;
          return [];
        },
      },
    );
    const others = Array.from({ length: STEPS }, () => ({ type: "x", name: "a" }));
    const steps = [inner("a", { parameter_bindings, execution_mode: "none" }), ...others];
    expect(flattened({ inputs: [], steps, outputs: [] }).steps).toHaveLength(STEPS + 1);
    expect(read).toBe(1);
  });

  it("is refused where operations repeat a text until it is too long", () => {
    const size = { type: "ExtractDetectionProperty", property_name: "size" };
    const chain = [
      ...Array.from({ length: 8 }, () => size),
      ...Array.from({ length: 80 }, () => ({ type: "Multiply", other: 2 })),
    ];
    const looked = callsDuring(RegExp.prototype, "test", () => {
      expect(() => operations({ text: "n", of: "value" }, chain)).toThrow(/too long/);
    });
    const texts = looked.map(([text]) => String(text).length);
    expect(Math.max(0, ...texts)).toBeLessThanOrEqual(2_000);
  });

  it("gives values of one name ports of their own without trying all that are taken", () => {
    const names = Array.from({ length: 400 }, (_, index) => "!".repeat(index));
    const values = Object.fromEntries(names.map((name) => [name, 1]));
    let looked = 0;
    const has = callsDuring(Set.prototype, "has", () => {
      looked += callsDuring(Array.prototype, "includes", () => deciding(values)).length;
    });
    expect(has.length + looked).toBeLessThan(20 * names.length);
  });

  it("is not read where a condition has more values than a step may have parameters", () => {
    const names = Array.from({ length: 501 }, (_, index) => [`v${index}`, 1]);
    const { unsupported } = deciding(Object.fromEntries(names));
    expect(unsupported).toMatchObject([{ reason: "a condition over too many values" }]);
  });

  it("looks cases up that name the step of all others, too", () => {
    const names = Array.from({ length: 1_000 }, (_, index) => [`k${index}`, "$steps.t"]);
    const cases = Object.fromEntries(names) as object;
    const includes = callsDuring(Array.prototype, "includes", () => {
      expect(switching(cases, ["$steps.t"]).unsupported).toEqual([]);
    });
    expect(includes.length).toBeLessThan(100);
  });

  it("is not read where a step decides on more steps than are read", () => {
    const others = Array.from({ length: 2_001 }, (_, index) => `$steps.t${index}`);
    const { unsupported } = switching({}, others);
    expect(unsupported).toMatchObject([{ reason: "it decides on too many steps" }]);
  });

  it("is refused where one long text would stand in it many times", () => {
    const long = "x".repeat(100_000);
    const steps = Array.from({ length: 100 }, (_, index) => ({
      type: "roboflow_core/nothing@v1",
      name: `s${index}`,
      value: "$inputs.text",
    }));
    const workflow_definition = { inputs: [], steps, outputs: [] };
    const outer = inner("outer", { workflow_definition, parameter_bindings: { text: long } });
    const given = RoboflowDefinition.parse({ steps: [outer] });
    expect(() => flattened(given)).toThrow(/come to too much/);
  });
});
