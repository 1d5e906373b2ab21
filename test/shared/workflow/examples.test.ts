// Every block does what its entry says: its example's parameters and inputs are of its schema and
// kinds, and what it makes of them is what the example tells.

import { describe, expect, it } from "vitest";
import { z } from "zod";
import { imageHeader } from "../../../shared/image-header.ts";
import {
  type Block,
  type InputPort,
  portsFor,
  problemFor,
} from "../../../shared/workflow/block.ts";
import { BLOCKS as CATALOGUE } from "../../../shared/workflow/blocks.ts";
import { checkWorkflow } from "../../../shared/workflow/check.ts";
import type { WorkflowDefinition } from "../../../shared/workflow/definition.ts";
import { type Kind, listOf } from "../../../shared/workflow/kinds.ts";
import { readLiteral } from "../../../shared/workflow/literals.ts";

/** All but those that a node alone runs, whose examples are held to the pixel beside the node. */
const BLOCKS: readonly Block[] = [...CATALOGUE.values()].filter(
  ({ runsOn }) => runsOn === "anywhere",
);

/** A value of an example as a block is handed it. */
function givenOf(port: InputPort, wire: unknown): unknown {
  if (wire === null && port.takesMasked) return null;
  if (port.batch === "all") return (wire as unknown[]).map((item) => literal(port.kind, item));
  return literal(port.kind, wire);
}

/** Blocks that need no node look at no pixel: an image is its address and its sides. */
function imageOf(address: string) {
  const header = imageHeader(Buffer.from(address.split(",")[1] ?? "", "base64"));
  if (!header) throw new Error("an example has an image that is none");
  const { width, height } = header;
  return { address, frame: { width, height, offset: [0, 0], scale: [1, 1] } };
}

function literal(kind: Kind, wire: unknown): unknown {
  if (kind === "image") return imageOf(String(wire));
  const { literal: read, problem } = readLiteral(kind, wire);
  expect(problem, `as ${kind}: ${JSON.stringify(wire)}`).toBeNull();
  return read?.value;
}

/** Numbers as they are compared: to a millionth. */
const rounded = (value: unknown): unknown =>
  JSON.parse(
    JSON.stringify(value, (_, part) =>
      typeof part === "number" ? Number(part.toFixed(6)) : part,
    ) ?? "null",
  );

describe("examples of blocks", () => {
  it("are of blocks that each have a type of their own", () => {
    const types = BLOCKS.map(({ type }) => type);
    expect(new Set(types).size).toBe(types.length);
    expect(types.filter((type) => !/^[a-z][a-z0-9_]*@[1-9]\d*$/.test(type))).toEqual([]);
  });

  it("stand beside parameters that a JSON schema can tell", () => {
    for (const { parameters } of BLOCKS) {
      for (const io of ["input", "output"] as const) {
        expect(z.toJSONSchema(parameters, { io })).toMatchObject({ type: "object" });
      }
    }
  });

  it.each(BLOCKS.map((block) => [block.type, block] as const))("hold of %s", async (_, block) => {
    const { example } = block;
    const parameters = block.parameters.parse(example.parameters);
    expect(problemFor(block, parameters)).toBeNull();
    const { inputs, outputs } = portsFor(block, parameters);
    expect(Object.keys(example.inputs).filter((port) => !Object.hasOwn(inputs, port))).toEqual([]);
    expect(Object.keys(example.outputs).sort()).toEqual(Object.keys(outputs).sort());
    if (!block.run) return;
    const given: Record<string, unknown> = {};
    for (const [name, port] of Object.entries(inputs)) {
      const wire = example.inputs[name] ?? (name in example.inputs ? null : port.default);
      if (wire !== undefined) given[name] = givenOf(port, wire);
      else expect(port.optional, `${name} is open`).toBe(true);
    }
    const result = await block.run({
      inputs: given,
      parameters,
      state: example.state ?? null,
      now: example.now ?? 0,
      signal: new AbortController().signal,
    });
    expect(Object.keys(result.outputs).sort()).toEqual(Object.keys(example.outputs).sort());
    for (const [name, port] of Object.entries(outputs)) {
      const likeOf = typeof port.kind === "object" ? port.kind.like : null;
      const kind = likeOf === null ? (port.kind as Kind) : inputs[likeOf]?.kind;
      expect(kind, `kind of ${name}`).toBeDefined();
      // An example leaves out what is so by default, such as where the frame of a root lies.
      const read = (value: unknown) =>
        value === null || !kind ? value : literal(port.deepens ? listOf(kind) : kind, value);
      expect([name, rounded(read(result.outputs[name]))]).toEqual([
        name,
        rounded(read(example.outputs[name])),
      ]);
    }
  });

  it.each(BLOCKS.map((block) => [block.type, block] as const))(
    "leave what %s is given as it was",
    async (_, block) => {
      const { example, run } = block;
      if (!run) return;
      const parameters = block.parameters.parse(example.parameters);
      const { inputs } = portsFor(block, parameters);
      const given = Object.entries(inputs).flatMap(([name, port]) => {
        const wire = example.inputs[name] ?? port.default;
        return wire === undefined ? [] : [[name, frozen(givenOf(port, wire))]];
      });
      await run({
        inputs: Object.fromEntries(given),
        parameters: frozen(parameters),
        state: frozen(example.state ?? null),
        now: example.now ?? 0,
        signal: new AbortController().signal,
      });
    },
  );
});

it("a block is run here or by a node, but for workflow@1, whose steps take its stead", () => {
  const unrun = BLOCKS.filter(({ run }) => run === null).map(({ type }) => type);
  expect(unrun).toEqual(["workflow@1"]);
  const slug = String(CATALOGUE.get("workflow@1")?.example.parameters.slug);
  const inner: WorkflowDefinition = {
    version: "1.0",
    inputs: [{ name: "flag", kind: "boolean" }],
    steps: [{ id: "turn", type: "not@1", parameters: { value: "$inputs.flag" } }],
    outputs: [{ name: "turned", value: "$steps.turn.result" }],
  };
  const outer: WorkflowDefinition = {
    version: "1.0",
    inputs: inner.inputs,
    steps: [{ id: "sub", type: "workflow@1", parameters: { slug, flag: "$inputs.flag" } }],
    outputs: [{ name: "turned", value: "$steps.sub.turned" }],
  };
  const workflows = new Map([[slug, inner]]);
  const { plan, problems } = checkWorkflow(outer, { blocks: CATALOGUE, workflows });
  expect(problems).toEqual([]);
  expect(plan?.steps.map(({ id, block }) => [id, block.type])).toEqual([["sub.turn", "not@1"]]);
});

/** A value that throws where it is changed. */
function frozen<T>(value: T): T {
  if (typeof value === "object" && value !== null) {
    for (const part of Object.values(value)) frozen(part);
    Object.freeze(value);
  }
  return value;
}
