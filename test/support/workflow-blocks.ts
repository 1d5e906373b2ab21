// Small pure blocks that between them have every feature that ports can have, for the tests of the
// check and of runs.

import { z } from "zod";
import { type Block, BlockFailure, defineBlock, type Ports } from "../../shared/workflow/block.ts";
import { FLOW_BLOCKS } from "../../shared/workflow/blocks/flow.ts";
import { SUBWORKFLOW_BLOCKS } from "../../shared/workflow/blocks/subworkflow.ts";

/** How often each block ran. */
export const calls = new Map<string, number>();

const common = {
  title: "Test",
  description: "Of the tests.",
  section: "values",
  runsOn: "anywhere",
  purity: "pure",
  cost: "free",
  example: { parameters: {}, inputs: {}, outputs: {} },
} as const;
const number = { kind: "number", meaning: "a number" } as const;
const none = z.object({});

const all: readonly Block[] = [
  defineBlock({
    ...common,
    type: "add@1",
    inputs: { a: number, b: { kind: "number", meaning: "another", default: 1 } },
    parameters: z.object({ times: z.int().min(1).max(3).default(1) }),
    outputs: { sum: number, is_even: { kind: "boolean", meaning: "whether it is even" } },
    run: ({ inputs: { a, b = 0 }, parameters: { times } }) => {
      const sum = (a + b * times) % 1_000;
      return { outputs: { sum, is_even: sum % 2 === 0 } };
    },
  }),
  defineBlock({
    ...common,
    type: "range@1",
    inputs: { count: number },
    parameters: z.object({ max: z.int().min(0).max(1_000).default(3) }),
    outputs: {
      items: { kind: "integer", meaning: "from 0", deepens: true },
      squares: { kind: "number", meaning: "of them; of odd ones, none", deepens: true },
      length: { kind: "integer", meaning: "how many" },
    },
    run: ({ inputs: { count }, parameters: { max } }) => {
      const length = Math.min(Math.abs(Math.trunc(count)), max);
      const items = Array.from({ length }, (_, index) => index);
      const squares = items.map((item) => (item % 2 === 0 ? item * item : null));
      return { outputs: { items, squares, length } };
    },
  }),
  defineBlock({
    ...common,
    type: "total@1",
    inputs: {
      items: { kind: "number", meaning: "of a batch", batch: "all" },
      base: { kind: "number", meaning: "added", optional: true },
    },
    parameters: none,
    outputs: { total: number },
    run: ({ inputs: { items, base } }) => {
      const sum = items.reduce((total, item) => total + item, base ?? 0);
      return { outputs: { total: sum % 1_000 } };
    },
  }),
  defineBlock({
    ...common,
    type: "pass@1",
    inputs: {
      value: { kind: "any", meaning: "what passes" },
      condition: { kind: "boolean", meaning: "whether" },
    },
    parameters: none,
    outputs: { value: { kind: { like: "value" }, meaning: "the same" } },
    run: ({ inputs: { value, condition } }) => ({ outputs: { value: condition ? value : null } }),
  }),
  defineBlock({
    ...common,
    type: "first@1",
    inputs: {
      a: { kind: "number", meaning: "the first", takesMasked: true },
      b: { kind: "number", meaning: "the other", takesMasked: true },
    },
    parameters: none,
    outputs: { value: number },
    run: ({ inputs: { a, b } }) => ({ outputs: { value: a ?? b } }),
  }),
  defineBlock({
    ...common,
    type: "named@1",
    inputs: {},
    parameters: z.object({
      names: z
        .array(z.enum(["x", "y", "z"]))
        .max(3)
        .default(["x"]),
    }),
    outputs: { count: number },
    portsOf: ({ names }): Ports => ({
      inputs: Object.fromEntries(names.map((name) => [name, number])),
      outputs: { sum: number },
    }),
    problemOf: ({ names }) => (new Set(names).size < names.length ? "a name is there twice" : null),
    run: ({ inputs }) => {
      const sum = Object.values(inputs).reduce((total: number, each) => total + Number(each), 0);
      return { outputs: { sum: sum % 1_000 } };
    },
  }),
];

/** Blocks that remember, act, cost or fail. */
const others: readonly Block[] = [
  defineBlock({
    ...common,
    type: "counter@1",
    purity: "stateful",
    inputs: { value: number },
    parameters: none,
    outputs: { count: number },
    run: ({ state }) => {
      const count = (typeof state === "number" ? state : 0) + 1;
      return { outputs: { count }, state: count };
    },
  }),
  defineBlock({
    ...common,
    type: "send@1",
    purity: "sink",
    inputs: { value: number },
    parameters: none,
    outputs: {},
    run: ({ inputs: { value } }) => ({
      outputs: {},
      effects: [{ kind: "webhook", request: { value } }],
    }),
  }),
  defineBlock({
    ...common,
    type: "costly@1",
    cost: "model",
    inputs: { value: number, model: { kind: "model", meaning: "who", default: "active" } },
    parameters: none,
    outputs: { value: number },
    run: async ({ inputs: { value, model } }) => {
      calls.set("costly@1", (calls.get("costly@1") ?? 0) + 1);
      await Promise.resolve();
      const answering = { asked: model ?? "", model_id: "m", name: "cars", version: 1 };
      return { outputs: { value: value * 2 }, models: [answering] };
    },
  }),
  defineBlock({
    ...common,
    type: "fail@1",
    inputs: { value: number },
    parameters: z.object({ is_told: z.boolean().default(true) }),
    outputs: { value: number },
    run: ({ inputs: { value }, parameters: { is_told } }) => {
      if (value !== 1) return { outputs: { value } };
      if (is_told) throw new BlockFailure("one is too few");
      throw new Error("the password is hunter2");
    },
  }),
  defineBlock({
    ...common,
    type: "hang@1",
    inputs: { value: number },
    parameters: none,
    outputs: { value: number },
    run: () => new Promise(() => {}),
  }),
];

const byType = (blocks: readonly Block[]): ReadonlyMap<string, Block> =>
  new Map(blocks.map((block) => [block.type, block]));

/** Pure ones that never fail: what random graphs are made of. */
export const GRAPH_BLOCKS = byType(all);
export const TEST_BLOCKS = byType([...all, ...others, ...FLOW_BLOCKS, ...SUBWORKFLOW_BLOCKS]);
