// How much a definition may have. Goal: what is too much is told with what to do about it.

import { describe, expect, it } from "vitest";
import { checkWorkflow } from "../../../shared/workflow/check.ts";
import { WorkflowDefinition } from "../../../shared/workflow/definition.ts";
import { TEST_BLOCKS } from "../../support/workflow-blocks.ts";

const names = (count: number, letter: string) =>
  Array.from({ length: count }, (_, index) => `${letter}${index}`);

/** The limits that a chain of steps with so much of all breaks, and what is to be done. */
function limitsOf(count: { steps: number; inputs: number; outputs: number }) {
  const last = `$steps.s${count.steps - 1}.sum`;
  const definition = WorkflowDefinition.parse({
    version: "1.0",
    inputs: names(count.inputs, "i").map((name) => ({ name, kind: "number", default: 1 })),
    steps: names(count.steps, "s").map((id, index) => {
      const a = index === 0 ? "$inputs.i0" : `$steps.s${index - 1}.sum`;
      return { id, type: "add@1", parameters: { a } };
    }),
    outputs: names(count.outputs, "o").map((name) => ({ name, value: last })),
  });
  const { problems } = checkWorkflow(definition, { blocks: TEST_BLOCKS, workflows: new Map() });
  return problems.filter(({ code }) => code === "limit").map(({ detail, fix }) => [detail, fix]);
}

describe("a definition", () => {
  it("of as much as it may have breaks no limit", () => {
    expect(limitsOf({ steps: 200, inputs: 50, outputs: 100 })).toEqual([]);
  });

  it("of more is refused with what to do", () => {
    expect(limitsOf({ steps: 201, inputs: 51, outputs: 101 })).toEqual([
      ["it has 51 inputs; a definition has 50 at most", "leave some out"],
      ["it has 201 steps; a definition has 200 at most", "put some into a sub-workflow"],
      ["it has 101 outputs; a definition has 100 at most", "leave some out"],
    ]);
  });

  it("with thousands of unknown names has few of them compared with all known ones", () => {
    const steps = names(100, "step_number_").map((id) => ({
      id,
      type: "add@1",
      parameters: { a: `$steps.${id}x.sum`, b: `$steps.${id}y.sum`, time: 1, timez: 1, tims: 1 },
    }));
    const outputs = [{ name: "y", value: "$steps.step_number_0.sum" }];
    const definition = WorkflowDefinition.parse({ version: "1.0", inputs: [], steps, outputs });
    const { problems } = checkWorkflow(definition, { blocks: TEST_BLOCKS, workflows: new Map() });
    expect(problems).toHaveLength(500);
    expect(problems.filter(({ fix }) => fix.startsWith("did you mean"))).toHaveLength(5);
  });

  it("that sub-workflows make too long is measured before its literals are hashed", () => {
    let written = 0;
    const literal = {
      text: "x".repeat(100_000),
      toJSON() {
        written += 1;
        return this.text;
      },
    };
    const inner = WorkflowDefinition.parse({
      version: "1.0",
      inputs: [{ name: "value", kind: "any" }],
      steps: [{ id: "one", type: "add@1", parameters: { a: 1 } }],
      outputs: [{ name: "y", value: "$steps.one.sum" }],
    });
    const [input] = inner.inputs;
    const large = {
      ...inner,
      inputs: [{ ...input, name: "value", kind: "any", default: literal }],
    };
    const outer = WorkflowDefinition.parse({
      version: "1.0",
      inputs: [],
      steps: names(190, "w").map((id) => ({
        id,
        type: "workflow@1",
        parameters: { slug: "large" },
      })),
      outputs: [{ name: "y", value: "$steps.w0.y" }],
    });
    // A literal that counts how often it is written is no JSON.
    const workflows = new Map([["large", large as unknown as WorkflowDefinition]]);
    const { problems, plan } = checkWorkflow(outer, { blocks: TEST_BLOCKS, workflows });
    expect(plan).toBeNull();
    expect(problems).toEqual([
      expect.objectContaining({
        code: "limit",
        detail: expect.stringMatching(/longer than 500000/),
      }),
    ]);
    // Five of them reach the limit.
    expect(written).toBeLessThanOrEqual(6);
  });
});
