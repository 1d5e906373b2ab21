// Workflows of the tests' own blocks, and runs of them as a host has them.

import { expect } from "vitest";
import { checkWorkflow } from "../../shared/workflow/check.ts";
import type { WorkflowDefinition, WorkflowStep } from "../../shared/workflow/definition.ts";
import {
  executePlan,
  RUN_LIMITS,
  type RunRequest,
  type WorkflowRun,
} from "../../shared/workflow/execution.ts";
import { readInputs } from "../../shared/workflow/wire.ts";
import { TEST_BLOCKS } from "./workflow-blocks.ts";

/** A step. */
export const step = (
  id: string,
  type: string,
  parameters: WorkflowStep["parameters"],
  when?: string,
): WorkflowStep => ({ id, type, parameters, ...(when && { when }) });

/** A workflow of these steps, whose outputs are named by what they refer to. */
export const workflow = (
  steps: WorkflowStep[],
  outputs: Record<string, string>,
  inputs: WorkflowDefinition["inputs"] = [{ name: "n", kind: "number", default: 3 }],
): WorkflowDefinition => ({
  version: "1.0",
  inputs,
  steps,
  outputs: Object.entries(outputs).map(([name, value]) => ({ name, value })),
});

/** Runs a workflow that the check has nothing against. */
export async function run(
  definition: WorkflowDefinition,
  more: Partial<RunRequest> = {},
  {
    workflows = new Map(),
    blocks = TEST_BLOCKS,
  }: Partial<Parameters<typeof checkWorkflow>[1]> = {},
): Promise<WorkflowRun> {
  const { plan, problems } = checkWorkflow(definition, { blocks, workflows });
  expect(problems).toEqual([]);
  if (!plan) throw new Error("no plan");
  const noImage = () => Promise.reject(new Error("no image"));
  const inputs = more.inputs ?? (await readInputs(plan, {}, noImage));
  const { signal } = new AbortController();
  const limits = RUN_LIMITS;
  const request = { plan, inputs, runs: new Map(), state: {}, now: 0, signal, limits };
  return executePlan({ ...request, clock: () => 0, ...more });
}
