// Workflows of Roboflow's that decide and that lie in others, run as ours. Goal: a step goes on
// where theirs would, however many cases and workflows stand before it.

import { expect, it } from "vitest";
import { importRoboflow } from "../../../edge/vision/workflows/roboflow/import.ts";
import { BLOCKS, PURE_RUNS } from "../../../shared/workflow/blocks.ts";
import { checkWorkflow } from "../../../shared/workflow/check.ts";
import { executePlan, RUN_LIMITS } from "../../../shared/workflow/execution.ts";
import { readInputs } from "../../../shared/workflow/wire.ts";

const output = (name: string, selector: string) => ({ type: "JsonField", name, selector });

const parameter = (name: string, default_value?: unknown) => ({
  type: "WorkflowParameter",
  name,
  default_value,
});
const label = (name: string, text: string) => ({
  type: "roboflow_core/expression@v1",
  name,
  data: { any: "$inputs.kind" },
  switch: {
    type: "CasesDefinition",
    cases: [],
    default: { type: "StaticCaseResult", value: text },
  },
});

/** Runs what needs neither pixels nor a model, with images that stand for themselves. */
async function outputsOf(definition: unknown, given: Record<string, unknown>) {
  const { definition: read, problems } = importRoboflow(definition);
  expect(problems).toEqual([]);
  const { plan } = checkWorkflow(read as NonNullable<typeof read>, {
    blocks: BLOCKS,
    workflows: new Map(),
  });
  if (!plan) throw new Error("it has no plan");
  const inputs = await readInputs(plan, given, async (value) => ({ value, key: "image" }));
  const { outputs } = await executePlan({
    plan,
    inputs,
    runs: PURE_RUNS,
    state: {},
    now: 0,
    signal: new AbortController().signal,
    limits: RUN_LIMITS,
    clock: () => 0,
  });
  return outputs;
}

it("one that switches goes on in every case that names a step, and in no other", async () => {
  const switching = (more: object) => ({
    inputs: [parameter("kind")],
    steps: [
      {
        type: "roboflow_core/switch_case@v1",
        name: "which",
        value: "$inputs.kind",
        cases: { car: "$steps.road", lorry: "$steps.road", boat: "$steps.water" },
        ...more,
      },
      label("road", "by road"),
      label("water", "by water"),
    ],
    outputs: [output("road", "$steps.road.output"), output("water", "$steps.water.output")],
  });
  const ways = async (more: object = {}) => {
    const found: unknown[] = [];
    for (const kind of ["car", "lorry", "boat", "train", "LORRY"]) {
      const { road, water } = await outputsOf(switching(more), { kind });
      found.push([road, water]);
    }
    return found;
  };
  const [road, water, none] = [
    ["by road", null],
    [null, "by water"],
    [null, null],
  ];
  expect(await ways()).toEqual([road, road, water, none, none]);
  const otherwise = { default_next_steps: ["$steps.road"] };
  expect(await ways(otherwise)).toEqual([road, road, water, road, road]);
  const both = { default_next_steps: ["$steps.road", "$steps.water"], case_insensitive: true };
  expect(await ways(both)).toEqual([road, road, water, ["by road", "by water"], road]);
});

it("one that has another one within it does the steps of that, with what it binds", async () => {
  const inner = {
    inputs: [parameter("kind"), parameter("sort", "lorry")],
    steps: [
      {
        type: "roboflow_core/switch_case@v1",
        name: "which",
        value: "$inputs.kind",
        cases: { car: "$steps.road" },
      },
      { ...label("road", "by road"), data: { any: "$inputs.sort" } },
    ],
    outputs: [output("way", "$steps.road.output")],
  };
  const use = (name: string, kind: string) => ({
    type: "roboflow_core/inner_workflow@v1",
    name,
    workflow_definition: inner,
    parameter_bindings: { kind },
  });
  const outer = {
    inputs: [parameter("first"), parameter("second")],
    steps: [use("a", "$inputs.first"), use("b", "$inputs.second")],
    outputs: [output("a", "$steps.a.way"), output("b", "$steps.b.way")],
  };
  const given = { first: "car", second: "boat" };
  expect(await outputsOf(outer, given)).toEqual({ a: "by road", b: null });
  const named = { type: "roboflow_core/inner_workflow@v1", name: "c", workflow_id: "other" };
  const result = importRoboflow({ ...outer, steps: [...outer.steps, named] });
  expect(result.unsupported).toEqual([
    expect.objectContaining({ step: "c", reason: expect.stringContaining("workflow@1") }),
  ]);
});

it("workflows within workflows that bind lists of lists come to no more than memory holds", () => {
  // Seven kilobytes, of which a hundred million values would come.
  const list = Array.from({ length: 100 }, () => "$inputs.a");
  let definition: object = {
    inputs: [parameter("a")],
    steps: [{ type: "roboflow_core/expression@v1", name: "leaf", data: { list } }],
  };
  for (let depth = 0; depth < 4; depth++) {
    const type = "roboflow_core/inner_workflow@v1";
    const inner = { workflow_definition: definition, parameter_bindings: { a: list } };
    definition = { inputs: [parameter("a")], steps: [{ type, name: "s", ...inner }] };
  }
  const { definition: read, warnings } = importRoboflow(definition);
  expect(read).toBeNull();
  expect(warnings).toEqual([expect.stringContaining("too much")]);
});
