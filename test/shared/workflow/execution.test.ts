// Runs of workflows: batches, masks, states, effects, results used again, limits and failures.

import { createHash } from "node:crypto";
import { beforeEach, describe, expect, it } from "vitest";
import {
  WorkflowAsk,
  WorkflowTask,
  WorkflowVideoTask,
} from "../../../shared/tasks/workflow-task.ts";
import type { RunBlock } from "../../../shared/workflow/block.ts";
import { BLOCKS } from "../../../shared/workflow/blocks.ts";
import { ResultCache } from "../../../shared/workflow/cache.ts";
import { checkWorkflow } from "../../../shared/workflow/check.ts";
import { WorkflowDefinition, type WorkflowStep } from "../../../shared/workflow/definition.ts";
import { digestOf } from "../../../shared/workflow/digest.ts";
import { RUN_LIMITS } from "../../../shared/workflow/execution.ts";
import { inlineWorkflows } from "../../../shared/workflow/inline.ts";
import { calls, TEST_BLOCKS } from "../../support/workflow-blocks.ts";
import { run, step, workflow } from "../../support/workflow-run.ts";

const range = step("range", "range@1", { count: "$inputs.n" });

beforeEach(() => calls.clear());

describe("a run", () => {
  it("gives outer values to each element of a batch, and collapses batches without masked ones", async () => {
    const add = step("add", "add@1", { a: "$steps.range.items", b: "$inputs.n" });
    const total = step("total", "total@1", { items: "$steps.range.squares" });
    const names = { sums: "$steps.add.sum", total: "$steps.total.total" };
    const { outputs } = await run(workflow([range, add, total], names));
    expect(outputs).toEqual({ sums: [3, 4, 5], total: 4 });
  });

  it("masks an element whose condition is not true, and goes on with the others", async () => {
    const even = step("even", "add@1", { a: "$steps.range.items", b: 0 });
    const add = step("add", "add@1", { a: "$steps.range.items" }, "$steps.even.is_even");
    const either = step("either", "first@1", { a: "$steps.add.sum", b: -1 });
    const names = { sums: "$steps.add.sum", either: "$steps.either.value" };
    const { outputs, steps } = await run(workflow([range, even, add, either], names));
    expect(outputs).toEqual({ sums: [1, null, 3], either: [1, -1, 3] });
    expect(steps.find((each) => each.step === "add")).toMatchObject({ elements: 3, masked: 1 });
  });

  it("hands a step's state through its elements in order, and on to the next run", async () => {
    const counter = step("counter", "counter@1", { value: "$steps.range.items" });
    const definition = workflow([range, counter], { count: "$steps.counter.count" });
    const first = await run(definition);
    expect(first).toMatchObject({ outputs: { count: [1, 2, 3] }, state: { counter: 3 } });
    const next = await run(definition, { state: first.state });
    expect(next.outputs.count).toEqual([4, 5, 6]);
  });

  it("tells effects by step and element, and does nothing", async () => {
    const send = step("send", "send@1", { value: "$steps.range.squares" });
    const { effects } = await run(workflow([range, send], { items: "$steps.range.items" }));
    expect(effects).toEqual([
      { kind: "webhook", request: { value: 0 }, step: "send", element: [0] },
      { kind: "webhook", request: { value: 4 }, step: "send", element: [2] },
    ]);
  });

  it("does equal work once, and takes what an earlier run has done from the cache", async () => {
    const one = step("one", "costly@1", { value: "$inputs.n" });
    const two = step("two", "costly@1", { value: "$inputs.n" });
    const definition = workflow([one, two], { a: "$steps.one.value", b: "$steps.two.value" });
    const bounds = { entriesMax: 10, bytesMax: 1_000, ageMax: 100 };
    const cache = new ResultCache(bounds, () => 8);
    const more = { cache, modelKeys: new Map([["active", "m1"]]), cachePrefix: "w1" };
    const first = await run(definition, more);
    expect(first.outputs).toEqual({ a: 6, b: 6 });
    expect(first.steps.map((each) => each.cache_hits)).toEqual([0, 1]);
    expect(first.steps[1]?.models).toHaveLength(1);
    const again = await run(definition, more);
    expect(again.steps.map((each) => each.cache_hits)).toEqual([1, 1]);
    expect(calls.get("costly@1")).toBe(1);
    for (const other of [
      { ...more, modelKeys: new Map([["active", "m2"]]) },
      { ...more, cachePrefix: "w2" },
      { ...more, clock: () => 1_000 },
    ])
      await run(definition, other);
    expect(calls.get("costly@1")).toBe(4);
  });

  it("tells the step, the element and the block's own words of a failure, and of no other", async () => {
    const failing = (is_told: boolean) =>
      workflow([range, step("fail", "fail@1", { value: "$steps.range.items", is_told })], {
        value: "$steps.fail.value",
      });
    const failure = { code: "step_failed", step: "fail", element: [1] };
    await expect(run(failing(true))).rejects.toMatchObject({
      ...failure,
      message: "one is too few",
    });
    await expect(run(failing(false))).rejects.toMatchObject({
      ...failure,
      message: "the block failed",
    });
  });

  it("ends at its limits of elements and time, and when it is canceled", async () => {
    const many = workflow([step("range", "range@1", { count: 50, max: 50 })], {
      items: "$steps.range.items",
    });
    const limits = { ...RUN_LIMITS, elements: 40 };
    await expect(run(many, { limits })).rejects.toMatchObject({ code: "limit", step: "range" });
    const hang = workflow([step("hang", "hang@1", { value: 1 })], { value: "$steps.hang.value" });
    const short = { limits: { ...RUN_LIMITS, ms: 5 } };
    await expect(run(hang, short)).rejects.toMatchObject({ code: "limit", step: "hang" });
    // A step that waits for nothing hears it from the clock, before its next element.
    let now = 0;
    const clock = () => {
      now += 10;
      return now;
    };
    const late = { ...short, clock };
    await expect(run(many, late)).rejects.toMatchObject({ code: "limit", step: "range" });
    const canceling = new AbortController();
    const canceled = expect(run(hang, { signal: canceling.signal })).rejects.toMatchObject({
      code: "canceled",
    });
    canceling.abort();
    await canceled;
  });

  it("ends where its values take more memory than it may, counting once what is handed on", async () => {
    const ids = Array.from({ length: 10 }, (_, index) => `s${index}`);
    const limits = { ...RUN_LIMITS, valueBytes: 4_000 };
    const list = Array.from({ length: 100 }, () => 1);
    const handed = ids.map((id, index) =>
      step(id, "continue_if@1", {
        value: index === 0 ? "$inputs.list" : `$steps.s${index - 1}.value`,
        condition: true,
      }),
    );
    const inputs = [{ name: "list", kind: "list", default: list } as const];
    const passed = await run(workflow(handed, { last: "$steps.s9.value" }, inputs), { limits });
    expect(passed.outputs.last).toEqual(list);
    const made = ids.map((id, index) => step(id, "range@1", { count: 90 + index, max: 100 }));
    const items = Object.fromEntries(ids.map((id) => [id, `$steps.${id}.items`]));
    await expect(run(workflow(made, items), { limits })).rejects.toMatchObject({
      code: "limit",
      message: expect.stringContaining("4000 bytes"),
    });
  });

  it("ends at the step whose image is one too many for its memory, counting each image once", async () => {
    class Image {
      readonly frame = { width: 10, height: 10, offset: [0, 0], scale: [1, 1] };
    }
    const ids = ["one", "two", "three"];
    const steps = ids.map((id, index) =>
      step(id, "pass@1", {
        value: index === 0 ? "$inputs.image" : `$steps.${ids[index - 1]}.value`,
        condition: true,
      }),
    );
    const images = workflow(steps, { image: "$steps.three.value" }, [
      { name: "image", kind: "image" },
    ]);
    const inputs = new Map([["image", { value: new Image(), key: "image" }]]);
    const limits = { ...RUN_LIMITS, imageBytes: 2 * 300 };
    const made = () => ({ outputs: { value: new Image() } });
    const handed = await run(images, { inputs, limits });
    expect(handed.outputs.image).toBe(inputs.get("image")?.value);
    const making = run(images, { inputs, limits, runs: new Map([["pass@1", made]]) });
    await expect(making).rejects.toMatchObject({
      code: "limit",
      step: "three",
      message: expect.stringContaining("600 bytes"),
    });
  });

  it("begins each step as soon as its inputs are there, whatever else is at work", async () => {
    const [one, other] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    // Each branch's step waits for a step of the other: neither one branch after the other nor one
    // level after the other comes to an end.
    const pass = (id: string, value: WorkflowStep["parameters"][string]) =>
      step(id, "pass@1", { value, condition: true });
    const crossed = workflow([pass("a", "a"), pass("then_a", "$steps.a.value"), pass("b", "b")], {
      a: "$steps.then_a.value",
      b: "$steps.b.value",
    });
    const work: RunBlock = async ({ inputs: { value } }) => {
      if (value === "a") return { outputs: { value: "after a" } };
      const [own, awaited] = value === "b" ? [other, one] : [one, other];
      own.resolve();
      await awaited.promise;
      return { outputs: { value } };
    };
    const { outputs } = await run(crossed, { runs: new Map([["pass@1", work]]) });
    expect(outputs).toEqual({ a: "after a", b: "b" });
  });

  it("takes a collected list for no list that is written as its values' keys", async () => {
    const collect = step("collect", "collect@1", { values: "$steps.range.items" });
    const same = (id: string, value: WorkflowStep["parameters"][string]) =>
      step(id, "pass@1", { value, condition: true });
    const keys = ["=0", "=1", "=2"];
    const { outputs } = await run(
      workflow([range, collect, same("collected", "$steps.collect.values"), same("keys", keys)], {
        collected: "$steps.collected.value",
        keys: "$steps.keys.value",
      }),
    );
    expect(outputs).toEqual({ collected: [0, 1, 2], keys });
  });

  it("does what a sub-workflow does, given literals and references, under its condition", async () => {
    const inner = workflow(
      [step("add", "add@1", { a: "$inputs.a", b: "$inputs.b" })],
      { sum: "$steps.add.sum", b: "$inputs.b" },
      [
        { name: "a", kind: "number" },
        { name: "b", kind: "number", default: 10 },
      ],
    );
    const even = step("even", "add@1", { a: "$steps.range.items", b: 0 });
    const sub = step(
      "sub",
      "workflow@1",
      { slug: "inner", a: "$steps.range.items" },
      "$steps.even.is_even",
    );
    const names = { sum: "$steps.sub.sum", b: "$steps.sub.b" };
    const { outputs, steps } = await run(
      workflow([range, even, sub], names),
      {},
      { workflows: new Map([["inner", inner]]) },
    );
    // What only passes through is under the condition as well.
    expect(outputs).toEqual({ sum: [10, null, 12], b: [10, null, 10] });
    expect(steps.map((each) => each.step)).toContain("sub.add");
  });
});

describe("a key", () => {
  it("is the SHA-256 of its text", () => {
    // One after another in the same memory, of lengths about those of blocks and of that memory.
    const lengths = [1_400, 1_341, 1_340, 64, 63, 56, 55, 1, 0];
    const texts = lengths.flatMap((length) => ["x".repeat(length), "€".repeat(length)]);
    for (const text of [...texts, "ä".repeat(40), "a\ud800b"])
      expect(digestOf(text)).toBe(createHash("sha256").update(text).digest("hex"));
  });
});

describe("a sub-workflow", () => {
  const inner = workflow([step("add", "add@1", { a: "$inputs.a" })], { sum: "$steps.add.sum" }, [
    { name: "a", kind: "number", default: 1 },
  ]);
  const library = { blocks: TEST_BLOCKS, workflows: new Map([["inner", inner]]) };

  it("goes to a node by the line and by the queue, in words that it reads", () => {
    const outer = workflow(
      [step("sub", "workflow@1", { slug: "inner", a: 2 })],
      { sum: "$steps.sub.sum" },
      [],
    );
    const { definition } = inlineWorkflows(outer, library);
    const run = { definition, inputs: {}, models: {}, state: {}, workspace: "w", images: [] };
    const video = { video: { url: "https://a.b/c" }, frames_input: "image", fps: 1, frames_max: 1 };
    expect(WorkflowAsk.shape.definition.safeParse(definition).success).toBe(true);
    expect(WorkflowAsk.safeParse({ ...run, now: 0 }).error).toBeUndefined();
    expect(WorkflowTask.safeParse({ ...run, now: 0 }).error).toBeUndefined();
    const issues = WorkflowVideoTask.safeParse({ ...run, ...video }).error?.issues ?? [];
    expect(issues.filter(({ path }) => path[0] === "definition")).toEqual([]);
    expect(
      checkWorkflow(WorkflowAsk.shape.definition.parse(definition), library).plan,
    ).not.toBeNull();
  });

  it("is refused where all together have more inputs than a deployed version may have", () => {
    const names = Array.from({ length: 50 }, (_, index) => `i${index}`);
    const many = workflow(
      [step("add", "add@1", { a: "$inputs.i0" })],
      { sum: "$steps.add.sum" },
      names.map((name) => ({ name, kind: "number", default: 1 })),
    );
    const ids = Array.from({ length: 11 }, (_, index) => `w${index}`);
    const outer = workflow(
      ids.map((id) => step(id, "workflow@1", { slug: "many" })),
      Object.fromEntries(ids.map((id) => [id, `$steps.${id}.sum`])),
      [],
    );
    const workflows = new Map([["many", many]]);
    const { problems } = checkWorkflow(outer, { blocks: TEST_BLOCKS, workflows });
    expect(problems.map(({ code }) => code)).toEqual(["limit"]);
  });

  it("is refused where all together are too long to be run as they are deployed", () => {
    const big = workflow([step("text", "constant@1", { value: "x".repeat(300_000) })], {
      text: "$steps.text.value",
    });
    const twice = workflow(
      ["one", "two"].map((id) => step(id, "workflow@1", { slug: "big" })),
      { one: "$steps.one.text", two: "$steps.two.text" },
      [],
    );
    const library = { blocks: BLOCKS, workflows: new Map([["big", big]]) };
    const { problems, plan } = checkWorkflow(twice, library);
    expect(plan).toBeNull();
    expect(problems).toMatchObject([
      {
        code: "limit",
        detail: "with its sub-workflows it is longer than 500000 characters",
      },
    ]);
  });

  it("that is just as long as it may be is so, deployed and run, too", () => {
    const inner = (length: number) =>
      workflow(
        [step("text", "constant@1", { value: "x".repeat(length) })],
        { text: "$steps.text.value" },
        [],
      );
    const outer = workflow(
      [step("sub", "workflow@1", { slug: "inner" })],
      { text: "$steps.sub.text" },
      [],
    );
    const inlined = (length: number) => {
      const library = { blocks: BLOCKS, workflows: new Map([["inner", inner(length)]]) };
      const { definition } = inlineWorkflows(outer, library);
      const [first, second] = [outer, definition].map((each) => checkWorkflow(each, library));
      const fits = [first, second].map((checked) => checked?.plan != null);
      return { characters: JSON.stringify(definition).length, fits };
    };
    const longest = 500_000 - inlined(0).characters;
    expect(inlined(longest)).toEqual({ characters: 500_000, fits: [true, true] });
    expect(inlined(longest + 1)).toEqual({ characters: 500_001, fits: [false, false] });
  });

  it("is refused where it is too long, too deep in sub-workflows, or of too many steps with them", () => {
    const add = step("add", "add@1", { a: 1 });
    const sum = { sum: "$steps.add.sum" };
    const check = (asked: WorkflowDefinition, workflows = new Map<string, WorkflowDefinition>()) =>
      checkWorkflow(asked, { blocks: TEST_BLOCKS, workflows }).problems.map(
        ({ code, step: id, detail }) => [code, id, detail],
      );
    const long = workflow([add], sum, [
      { name: "text", kind: "string", default: "x".repeat(500_000) },
    ]);
    expect(check(long)).toEqual([["limit", null, "it is longer than 500000 characters"]]);
    const chain = Array.from({ length: 6 }, (_, index): [string, WorkflowDefinition] => {
      const inner = step("inner", "workflow@1", { slug: `w${index + 1}` });
      return [`w${index}`, workflow([inner], { sum: "$steps.inner.sum" }, [])];
    });
    const deep = new Map([...chain, ["w6", workflow([add], sum, [])] as const]);
    const outer = workflow([step("outer", "workflow@1", { slug: "w0" })], {
      sum: "$steps.outer.sum",
    });
    const tooDeep = "workflows are more than 4 deep in each other";
    expect(check(outer, deep)).toContainEqual(["limit", expect.stringContaining("outer"), tooDeep]);
    const adds = Array.from({ length: 200 }, (_, index) => step(`a${index}`, "add@1", { a: 1 }));
    const big = workflow(adds, Object.fromEntries(adds.map(({ id }) => [id, `$steps.${id}.sum`])));
    const three = [1, 2, 3].map((index) => step(`w${index}`, "workflow@1", { slug: "big" }));
    const many = workflow(three, { sum: "$steps.w1.a0" });
    expect(check(many, new Map([["big", big]]))).toContainEqual([
      "limit",
      expect.any(String),
      "with its sub-workflows it has more than 500 steps",
    ]);
    const unread = workflow(
      Array.from({ length: 2_001 }, () => add),
      sum,
    );
    expect(WorkflowDefinition.safeParse(unread).error?.issues[0]?.path).toEqual(["steps"]);
  });
});

describe("values in values", () => {
  const nested = (depth: number) => {
    let value: WorkflowStep["parameters"][string] = 1;
    for (let index = 0; index < depth; index++) value = [value];
    return value;
  };

  it("are refused as a definition's where nothing could follow them", () => {
    const deep = workflow([step("add", "add@1", { a: nested(20_000) })], { sum: "$steps.add.sum" });
    expect(WorkflowDefinition.safeParse(deep).success).toBe(false);
    const constant = workflow(
      [step("go", "switch@1", { value: 1, by: 1, cases: [{ name: "a", values: [nested(100)] }] })],
      { a: "$steps.go.a" },
    );
    const { problems } = checkWorkflow(constant, { blocks: TEST_BLOCKS, workflows: new Map() });
    expect(problems).toMatchObject([{ code: "bad_parameter", step: "go", port: "cases" }]);
  });

  it("end the run in the block that would wrap them once more", async () => {
    const wrapped = workflow([step("go", "pass@1", { value: 1, condition: true })], {
      value: "$steps.go.value",
    });
    const runs = new Map([["pass@1", () => ({ outputs: { value: nested(65) } })]]);
    await expect(run(wrapped, { runs })).rejects.toMatchObject({
      message: expect.stringContaining("64 levels deep"),
    });
  });
});

it("lets the process hear a cancel while blocks wait for nothing", async () => {
  const ids = Array.from({ length: 30 }, (_, index) => `s${index}`);
  const busy = workflow(
    ids.map((id, index) => step(id, "add@1", { a: index })),
    Object.fromEntries(ids.map((id) => [id, `$steps.${id}.sum`])),
  );
  const work = () => {
    const end = performance.now() + 5;
    while (performance.now() < end);
    return { outputs: { sum: 1, is_even: false } };
  };
  const canceling = new AbortController();
  setTimeout(() => canceling.abort(), 1);
  const more = { runs: new Map([["add@1", work]]), clock: () => performance.now() };
  const ended = run(busy, { ...more, signal: canceling.signal });
  await expect(ended).rejects.toMatchObject({ code: "canceled" });
});

describe("the check", () => {
  const checked = (definition: WorkflowDefinition, blocks = TEST_BLOCKS) =>
    checkWorkflow(definition, { blocks, workflows: new Map() }).problems;
  const add = step("add", "add@1", { a: "$inputs.n" });
  const sum = { sum: "$steps.add.sum" };

  it("refuses batches that are not in each other, and a whole batch of none", () => {
    const other = step("other", "range@1", { count: 2 });
    const both = step("add", "add@1", { a: "$steps.range.items", b: "$steps.other.items" });
    const depth = { code: "wrong_depth", step: "add", port: "b" };
    expect(checked(workflow([range, other, both], sum))).toMatchObject([depth]);
    const total = step("total", "total@1", { items: "$inputs.n" });
    const whole = { code: "wrong_depth", step: "total", port: "items" };
    expect(checked(workflow([total], { total: "$steps.total.total" }))).toMatchObject([whole]);
  });

  it("refuses elements of a batch where a block takes each call for a frame", () => {
    const counter = TEST_BLOCKS.get("counter@1");
    if (!counter) throw new Error("no counter");
    const blocks = new Map([
      ...TEST_BLOCKS,
      ["counter@1", { ...counter, takesFrames: true as const }],
    ]);
    const counted = (value: string) =>
      workflow([range, step("counter", "counter@1", { value })], {
        count: "$steps.counter.count",
        items: "$steps.range.items",
      });
    const problem = { code: "wrong_depth", step: "counter", port: "value" };
    expect(checked(counted("$steps.range.items"), blocks)).toMatchObject([problem]);
    expect(checked(counted("$steps.range.length"), blocks)).toEqual([]);
    const framed = [...BLOCKS.values()].filter((block) => block.takesFrames);
    expect(framed.map(({ type }) => type).sort()).toEqual([
      "draw_tracks@1",
      "line_counter@1",
      "time_in_zone@1",
      "tracker@1",
      "velocity@1",
    ]);
  });

  it("tells of names that are there twice, blocks that are not, and steps for nothing", () => {
    const codes = (definition: WorkflowDefinition) =>
      checked(definition).map(({ code, step: id, port }) => [code, id, port]);
    expect(codes(workflow([add, add], sum))).toEqual([["duplicate_name", "add", null]]);
    const twice = { name: "n", kind: "number" } as const;
    expect(codes(workflow([add], sum, [twice, twice]))).toEqual([["duplicate_name", null, "n"]]);
    const unknown = step("odd", "ad@1", {});
    expect(codes(workflow([add, unknown], sum))).toEqual([["unknown_block", "odd", null]]);
    const unused = step("idle", "add@1", { a: 1 });
    expect(codes(workflow([add, unused], sum))).toEqual([["unused_step", "idle", null]]);
  });
});
