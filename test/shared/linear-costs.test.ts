// What a hostile text or object makes a check do, counted. Goal: no more than in proportion to its
// size, whatever the schema.

import { afterEach, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { nullsAsNotGiven } from "../../edge/http/not-given.ts";
import { ClassName } from "../../edge/vision/labeling/classes.ts";
import { mapOf } from "../../shared/scalars.ts";
import { importRoboflow } from "../../shared/workflow/roboflow-import.ts";
import { flattened, RoboflowDefinition } from "../../shared/workflow/roboflow-inner.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

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
