// Flow control masks and never mixes: what is asked is answered by type, one case alone gets a
// value, and branches come together at the first that is there. And values that steps make.

import { describe, expect, it } from "vitest";
import { BlockFailure } from "../../../shared/workflow/block.ts";
import { FLOW_BLOCKS } from "../../../shared/workflow/blocks/flow.ts";
import { VALUE_BLOCKS } from "../../../shared/workflow/blocks/values.ts";
import { checkWorkflow } from "../../../shared/workflow/check.ts";
import { runnerOf } from "../../support/block-runner.ts";

const run = runnerOf([...FLOW_BLOCKS, ...VALUE_BLOCKS]);

describe("a condition", () => {
  const found = { frame: { width: 9, height: 9 }, objects: [] };

  it.each<[string, unknown, unknown, boolean]>([
    ["equal", { a: 1, b: [2] }, { b: [2], a: 1 }, true],
    ["equal", 1, "1", false],
    ["not_equal", "a", "b", true],
    ["less", 1, 2, true],
    ["less_or_equal", 2, 2, true],
    ["greater", "b", "a", true],
    ["greater_or_equal", 1, 2, false],
    ["in", "cat", ["cat", "dog"], true],
    ["in", "toString", {}, false],
    ["not_in", 3, [1, 2], true],
    ["contains", "scatter", "cat", true],
    ["contains", [1, [2]], [2], true],
    ["starts_with", "gate 3", "gate", true],
    ["ends_with", "gate 3", "4", false],
    ["is_empty", found, undefined, true],
    ["is_empty", {}, undefined, true],
    ["is_not_empty", "x", undefined, true],
    ["is_empty", [0], undefined, false],
  ])("%s of %j and %j", async (operator, left, right, result) => {
    const inputs = right === undefined ? { left } : { left, right };
    expect(await run("condition@1", inputs, { operator })).toEqual({ result });
  });

  it.each<[string, unknown, unknown]>([
    ["less", 1, "2"],
    ["greater", [1], [2]],
    ["in", 1, 2],
    ["starts_with", "a", 1],
    ["is_empty", 3, undefined],
    ["equal", 3, undefined],
  ])("%s cannot be asked of %j and %j", async (operator, left, right) => {
    const inputs = right === undefined ? { left } : { left, right };
    await expect(run("condition@1", inputs, { operator })).rejects.toThrow(BlockFailure);
  });

  it("is joined with others, of which some may be left open", async () => {
    expect(await run("all_of@1", { value_1: true, value_8: true })).toEqual({ result: true });
    expect(await run("all_of@1", { value_1: true, value_3: false })).toEqual({ result: false });
    expect(await run("any_of@1", { value_1: false, value_5: true })).toEqual({ result: true });
    expect(await run("any_of@1", { value_1: false })).toEqual({ result: false });
  });
});

describe("branches", () => {
  it("get the very value that came, or are masked", async () => {
    const value = { any: ["thing"] };
    const passed = await run("continue_if@1", { value, condition: true });
    expect(passed.value).toBe(value);
    expect(await run("continue_if@1", { value, condition: false })).toEqual({ value: null });
  });

  const cases = [
    { name: "few", values: [0, 1] },
    { name: "one", values: [1, "1"] },
  ];

  it("are the first case that holds, or otherwise", async () => {
    const of = (by: unknown) => run("switch@1", { value: "v", by }, { cases });
    expect(await of(1)).toEqual({ few: "v", one: null, otherwise: null });
    expect(await of("1")).toEqual({ few: null, one: "v", otherwise: null });
    expect(await of(2)).toEqual({ few: null, one: null, otherwise: "v" });
  });

  it("have names of their own", async () => {
    for (const name of ["few", "otherwise"]) {
      const twice = [...cases, { name, values: [5] }];
      await expect(run("switch@1", { value: 1, by: 1 }, { cases: twice })).rejects.toThrow(
        `two outputs are called ${name}`,
      );
    }
  });

  it("come together at the first value that is there; false and 0 are values", async () => {
    expect(await run("first_of@1", { value_1: null, value_4: 0 })).toEqual({ value: 0 });
    expect(await run("first_of@1", { value_1: false, value_2: 1 })).toEqual({ value: false });
    expect(await run("first_of@1", { value_1: null, value_2: null })).toEqual({ value: null });
  });
});

describe("values", () => {
  it.each<[string, unknown, boolean]>([
    ["number", 1.5, true],
    ["integer", 1.5, false],
    ["string", "x", true],
    ["list<number>", [1, "2"], false],
    [
      "zone",
      [
        [0, 0],
        [1, 0],
        [1, 1],
      ],
      true,
    ],
    [
      "zone",
      [
        [0, 0],
        [1, 0],
      ],
      false,
    ],
    [
      "line",
      [
        [0, 0],
        [1, 0],
      ],
      true,
    ],
  ])("a constant of the kind %s may be %j: %s", async (kind, value, isRight) => {
    const made = run("constant@1", {}, { kind, value });
    if (isRight) expect(await made).toEqual({ value });
    else await expect(made).rejects.toThrow(`must be of the kind ${kind}`);
  });

  it("are taken out of others by own names and indexes alone", async () => {
    const value = { list: [{ a: 1 }, { a: 2 }], text: "abc" };
    const of = (path: unknown[], more = {}) =>
      run("property@1", { value, ...more }, { path, kind: "json" });
    expect(await of(["list", -1, "a"])).toEqual({ value: 2 });
    expect(await of(["list", 5, "a"])).toEqual({ value: null });
    expect(await of(["none"], { default: 7 })).toEqual({ value: 7 });
    for (const path of [["constructor"], ["__proto__"], ["list", "length"], ["text", "length"]]) {
      expect(await of(path)).toEqual({ value: null });
    }
    const wrong = run("property@1", { value }, { path: ["text"], kind: "number" });
    await expect(wrong).rejects.toThrow("not of the kind number");
  });

  it("of expressions are of the kind that was stated, or mask", async () => {
    const of = (expression: string, kind: string) =>
      run("expression@1", { a: 2 }, { inputs: ["a"], expression, kind });
    expect(await of("a / 4", "number")).toEqual({ value: 0.5 });
    expect(await of("null", "number")).toEqual({ value: null });
    expect(await of("[a]", "list<integer>")).toEqual({ value: [2] });
    await expect(of("a / 4", "integer")).rejects.toThrow("not of the kind integer");
    await expect(of("a + 'x'", "string")).rejects.toThrow("expression: `+` needs a number");
    await expect(of("b", "json")).rejects.toThrow("expression: no value is called b");
  });

  it("of expressions are refused before a run where they can only fail", () => {
    const blocks = new Map(VALUE_BLOCKS.map((block) => [block.type, block]));
    const checked = (expression: string, kind: string) =>
      checkWorkflow(
        {
          version: "1.0",
          inputs: [{ name: "word", kind: "string" }],
          steps: [
            {
              id: "made",
              type: "expression@1",
              parameters: { inputs: ["a"], expression, kind, a: "$inputs.word" },
            },
          ],
          outputs: [{ name: "made", value: "$steps.made.value" }],
        },
        { blocks, workflows: new Map() },
      ).problems;
    const at = { code: "wrong_kind", step: "made", port: "expression" };
    expect(checked("a - 1", "number")).toMatchObject([
      { ...at, detail: "`-` needs a number, not a text (at character 3)" },
    ]);
    expect(checked("upper(a)", "number")).toMatchObject([
      { ...at, detail: "it comes to a text, never to a number" },
    ]);
    expect(checked("upper(a)", "string")).toEqual([]);
  });

  it.each([
    [["a", "a"], "twice"],
    [["kind"], "parameter"],
    [["in"], "word of expressions"],
  ])("cannot be named %j in an expression", async (inputs, problem) => {
    const made = run("expression@1", {}, { inputs, expression: "1" });
    await expect(made).rejects.toThrow(problem);
  });

  it("of no numbers have no mean", async () => {
    expect(await run("aggregate@1", { values: [] })).toEqual({
      count: 0,
      sum: 0,
      min: null,
      max: null,
      mean: null,
      median: null,
    });
    const far = await run("aggregate@1", { values: [-1.7e308, 1.7e308] });
    expect(far).toMatchObject({ median: 0 });
    const huge = run("aggregate@1", { values: [1e308, 1e308] });
    await expect(huge).rejects.toThrow("no finite number");
  });

  it("of objects are those of objects that have them", async () => {
    const objects = [
      { class: "car", confidence: 1, bbox: [0, 0, 2, 2], data: { speed: 5 } },
      { class: "car", confidence: 1, bbox: [0, 0, 2, 2], data: { speed: "fast" } },
      { class: "car", confidence: 1, bbox: [0, 0, 2, 2] },
    ];
    const detections = { frame: { width: 9, height: 9 }, objects };
    const made = await run("aggregate_detections@1", { detections }, { field: "data.speed" });
    expect(made).toMatchObject({ count: 1, mean: 5 });
  });
});
