// A run as it is asked for, made ready to be run: its inputs read and its models resolved. And what
// a run came to, whoever ran it.

import { Failure } from "../../../../shared/errors.ts";
import type { WorkflowEffect, WorkflowStepReport } from "../../../../shared/tasks/workflow-task.ts";
import type { WorkflowDefinition } from "../../../../shared/workflow/definition.ts";
import type { KeyedValue, WorkflowPlan } from "../../../../shared/workflow/plan.ts";
import { InputFailure, readInputs } from "../../../../shared/workflow/wire.ts";
import type { Parts } from "../../base/parts.ts";
import { invalidWorkflow } from "../definitions/library.ts";
import type { EffectOfRun } from "../effects.ts";
import type { RunAnswer } from "./bodies.ts";
import { RunImage, readDataAddress } from "./inputs.ts";
import { type ModelMention, type RunModel, resolveModels } from "./run-models.ts";

/** A run that is asked for. */
export interface AskedRun {
  workspaceId: string;
  /** The account that asks. */
  actorId: string;
  plan: WorkflowPlan;
  /** With its sub-workflows in it. */
  definition: WorkflowDefinition;
  /** Values by input as they came: JSON, and images of forms as `RunImage`. */
  given: Readonly<Record<string, unknown>>;
  dryRun: boolean;
}

/** Inputs that were read, and the models that they and the definition name. */
export interface ReadyRun extends AskedRun {
  inputs: ReadonlyMap<string, KeyedValue>;
  models: ReadonlyMap<string, RunModel>;
}

/** What a run came to, whoever ran it; its images are as the wire has them. */
export interface EndedRun {
  outputs: RunAnswer["outputs"];
  steps: WorkflowStepReport[];
  effects: EffectOfRun[];
  state: Record<string, unknown>;
  seconds: number;
  servedBy: string;
}

/**
 * Reads a run's inputs and resolves its models. Fails with `invalid_workflow`, which lists what is
 * wrong with them by their ports, and as images do.
 */
export async function readyRun(parts: Parts, asked: AskedRun): Promise<ReadyRun> {
  const inputs = await inputsOf(asked);
  const mentions = mentionsOf(asked.plan, inputs);
  const models = await resolveModels(parts.database, asked.workspaceId, mentions);
  return { ...asked, inputs, models };
}

async function inputsOf({ plan, given }: AskedRun): Promise<Map<string, KeyedValue>> {
  const readImage = async (wire: unknown): Promise<KeyedValue> => {
    const image = wire instanceof RunImage ? wire : await readDataAddress(wire);
    return { value: image, key: image.key };
  };
  try {
    return await readInputs(plan, given, readImage);
  } catch (thrown) {
    if (thrown instanceof InputFailure) throw invalidWorkflow(thrown.problems);
    throw thrown;
  }
}

/** Where the steps and inputs of a run name models. */
function mentionsOf(plan: WorkflowPlan, inputs: ReadonlyMap<string, KeyedValue>): ModelMention[] {
  const literals = plan.steps.flatMap(({ id, inputs: ports }) =>
    ports.flatMap(({ port, kind, source }) =>
      kind === "model" && source.from === "literal"
        ? [{ name: String(source.literal.value), step: id, port }]
        : [],
    ),
  );
  const given = plan.inputs.flatMap(({ name: port, kind }) => {
    const value = kind === "model" ? inputs.get(port)?.value : undefined;
    return value === undefined ? [] : [{ name: String(value), step: null, port }];
  });
  const mentions = [...literals, ...given];
  // Literals that sub-workflows were given stand at no port of their own; and a default is not
  // looked up where something else was given.
  const hidden = plan.models.filter(
    (name) =>
      !mentions.some((one) => one.name === name) &&
      !plan.inputs.some(({ kind, default: standing }) => kind === "model" && standing === name),
  );
  return [...mentions, ...hidden.map((name) => ({ name, step: null, port: "model" }))];
}

/** A run that ended without outputs, in words for whoever asked for it. */
export function workflowFailed(failure: {
  code: string;
  step: string | null;
  element: readonly number[] | null;
  message: string;
}): Failure {
  const { code: problem, step, element, message } = failure;
  const detail = step === null ? message : `${step}: ${message}`;
  return new Failure("workflow_failed", detail, { data: { step, element, problem } });
}

/** An effect as a node tells it, as the Worker knows it. Fails for an image that is none. */
export function effectOf({ step, element, kind, request, image }: WorkflowEffect): EffectOfRun {
  const file = image === null ? null : Uint8Array.fromBase64(image);
  return { step, element, kind, request, image: file };
}
