// What a node says of a run, held against the plan that it was given. A node is not believed: what
// it says was to be done outside is done only where a sink of the plan could have asked for it.

import { imageHeader } from "../../../../shared/image-header.ts";
import type { WorkflowEffect, WorkflowStepReport } from "../../../../shared/tasks/workflow-task.ts";
import {
  type StepSegmenter,
  segmenterModel,
  segmenterOf,
} from "../../../../shared/workflow/blocks/model-blocks.ts";
import {
  DatasetUploadEffect,
  headerPort,
  WebhookEffect,
} from "../../../../shared/workflow/blocks/sinks.ts";
import { itemOf, type Kind } from "../../../../shared/workflow/kinds.ts";
import type {
  KeyedValue,
  PlannedInput,
  PlannedStep,
  WorkflowPlan,
} from "../../../../shared/workflow/plan.ts";

/** What a run has to be an answer to. */
export interface AskedPlan {
  plan: WorkflowPlan;
  inputs: ReadonlyMap<string, Pick<KeyedValue, "value">>;
  /** The models that it was handed, by what the run calls them. */
  models: ReadonlyMap<string, { modelId: string; name: string; version: number }>;
}

/** What of an answer is checked. */
interface Saying {
  outputs: Readonly<Record<string, unknown>>;
  steps: readonly WorkflowStepReport[];
  effects: readonly WorkflowEffect[];
  state: Readonly<Record<string, unknown>>;
}

/** What is wrong with an answer, in words for people, or null. */
export function answerProblem(said: Saying, asked: AskedPlan): string | null {
  return (
    outputsProblem(said.outputs, asked.plan) ??
    stepsProblem(said.steps, asked) ??
    effectsProblem(said.effects, asked) ??
    stateProblem(said.state, asked.plan)
  );
}

/** What is wrong with outputs: all that the plan has, nested as deep as it says. */
export function outputsProblem(
  outputs: Readonly<Record<string, unknown>>,
  plan: WorkflowPlan,
): string | null {
  const names = plan.outputs.map(({ name }) => name);
  const unknown = Object.keys(outputs).find((name) => !names.includes(name));
  if (unknown !== undefined) return "an output that the plan has not";
  for (const { name, lineage } of plan.outputs) {
    if (!Object.hasOwn(outputs, name)) return `no output ${name}`;
    if (!isNested(outputs[name], lineage.length)) return `output ${name} is nested otherwise`;
  }
  return null;
}

/** Whether a value lies so many lists deep; what is masked is null at any level. */
const isNested = (value: unknown, depth: number): boolean =>
  depth === 0 ||
  value === null ||
  (Array.isArray(value) && value.every((one) => isNested(one, depth - 1)));

/** What is wrong with the reports of steps: each of a step of the plan, and of models it has. */
export function stepsProblem(
  steps: readonly WorkflowStepReport[],
  { plan, models }: Pick<AskedPlan, "plan" | "models">,
): string | null {
  const byId = new Map(plan.steps.map((step) => [step.id, step]));
  for (const { step, type, models: answering } of steps) {
    const planned = byId.get(step);
    if (planned?.block.type !== type) return "a step that the plan has not";
    const own = segmenterOf(planned);
    const isForeign = answering.some(
      (model) => !isHanded(model, models) && !(own && isSegmenter(model, own)),
    );
    if (isForeign) return `step ${step} was answered by a model that it was not given`;
  }
  return null;
}

type ToldModel = WorkflowStepReport["models"][number];

function isHanded(
  { asked, model_id, name, version }: ToldModel,
  models: AskedPlan["models"],
): boolean {
  const handed = models.get(asked);
  return handed?.modelId === model_id && handed.name === name && handed.version === version;
}

/** Whether a model is the segmenter that a step asks for; without a name, any may have answered. */
function isSegmenter(told: ToldModel, { name }: StepSegmenter): boolean {
  const wanted = segmenterModel({ asked: name, name: name ?? told.name });
  const keys = ["asked", "model_id", "name", "version"] as const;
  return keys.every((key) => told[key] === wanted[key]);
}

/** An effect of a run, or of one on a frame. */
type ToldEffect = WorkflowEffect & { frame_index?: number };

/**
 * What is wrong with effects: each of a sink of the plan, once for each of its elements, and with
 * names that it may tell.
 */
export function effectsProblem(
  effects: readonly ToldEffect[],
  asked: Pick<AskedPlan, "plan" | "inputs">,
): string | null {
  const told = new Set<string>();
  for (const effect of effects) {
    const { step, element, frame_index: frame, image } = effect;
    const problem = effectProblem(effect, asked) ?? imageProblem(image);
    if (problem) return `step ${step}: ${problem}`;
    const key = JSON.stringify([step, frame, element]);
    if (told.has(key)) return `step ${step}: it is told twice of an element`;
    told.add(key);
  }
  return null;
}

/** What is wrong with an effect's image: it goes on as a file. */
function imageProblem(image: string | null): string | null {
  if (image === null) return null;
  try {
    const header = imageHeader(Uint8Array.fromBase64(image));
    return header?.type === "image/jpeg" ? null : "its image is no JPEG";
  } catch {
    return "its image is no base64";
  }
}

/** Which sink asks for what. */
const SINKS: Readonly<Record<string, WorkflowEffect["kind"]>> = {
  "webhook@1": "webhook",
  "dataset_upload@1": "dataset_upload",
};

function effectProblem(
  { step, element, kind, request }: ToldEffect,
  { plan, inputs }: Pick<AskedPlan, "plan" | "inputs">,
): string | null {
  const planned = plan.steps.find(({ id }) => id === step);
  if (planned?.block.purity !== "sink") return "it is no sink";
  if (SINKS[planned.block.type] !== kind) return `it is no sink of ${kind}`;
  if (element.length !== planned.lineage.length) return "it has no such element";
  const isAt = (port: string, name: string | null): boolean =>
    isGiven(planned, port, { plan, inputs, name });
  if (kind === "dataset_upload") {
    const read = DatasetUploadEffect.safeParse(request).data;
    if (!read) return "its request is none";
    return isAt("project", read.project) ? null : "it names another project";
  }
  const read = WebhookEffect.safeParse(request).data;
  if (!read) return "its request is none";
  const own = planned.parameters as { url?: string; headers?: Record<string, string> };
  const isSame = read.url === (own.url ?? null) && isSameRecord(read.headers, own.headers ?? {});
  if (!isSame) return "it sends elsewhere";
  const headers = Object.entries(read.secret_headers);
  const isNamed =
    isAt("url_secret", read.url_secret) &&
    isAt("signing_secret", read.signing_secret) &&
    headers.every(([name, secret]) => isAt(headerPort(name), secret));
  return isNamed ? null : "it names another secret";
}

/** Whether records are alike; their entries may stand in any order, as jsonb has one of its own. */
const isSameRecord = (one: Record<string, string>, other: Record<string, string>): boolean =>
  Object.keys(one).length === Object.keys(other).length &&
  Object.entries(one).every(([name, value]) => Object.hasOwn(other, name) && other[name] === value);

/** Whether a step may be given a name at a port of secrets or projects; null is an open port. */
function isGiven(
  step: PlannedStep,
  port: string,
  { plan, inputs, name }: Pick<AskedPlan, "plan" | "inputs"> & { name: string | null },
): boolean {
  const given = step.inputs.find((one) => one.port === port);
  return given ? namesOf(given, { plan, inputs }).has(name) : name === null;
}

/** Kinds of values whose names are told outside. */
const NAMED = ["secret", "project"];

/**
 * The names that may come to a port: what flows there through other steps is one of those that they
 * were given, since no block makes a name.
 */
function namesOf(
  port: PlannedInput,
  { plan, inputs }: Pick<AskedPlan, "plan" | "inputs">,
): Set<unknown> {
  const names = new Set<unknown>();
  const seen = new Set<string>();
  const isNamed = (kind: Kind | undefined): boolean =>
    kind !== undefined && NAMED.includes(itemOf(kind) ?? kind);
  const follow = ({ kind, source }: PlannedInput) => {
    if (source.from === "literal") {
      if (isNamed(kind)) names.add(source.literal.value);
      return;
    }
    if (source.from === "input") {
      const input = plan.inputs.find(({ name }) => name === source.name);
      const constant = plan.constants.get(source.name);
      const given = isNamed(input?.kind) ? (inputs.get(source.name) ?? constant) : constant;
      for (const name of [given?.value].flat()) names.add(name);
      return;
    }
    const before = plan.steps.find(({ id }) => id === source.step);
    const output = before?.outputs.find(({ port: one }) => one === source.port);
    if (!before || seen.has(before.id) || !isNamed(output?.kind)) return;
    seen.add(before.id);
    before.inputs.forEach(follow);
  };
  follow(port);
  return names;
}

/** What is wrong with a state: of steps that remember, or that share what they remember. */
function stateProblem(state: Readonly<Record<string, unknown>>, plan: WorkflowPlan): string | null {
  const keys = new Set(
    plan.steps.flatMap(({ id, block }) => (block.purity === "pure" ? [] : [block.stateKey ?? id])),
  );
  // A step that remembers nothing may say so.
  const isKnown = Object.entries(state).every(([key, one]) => one === null || keys.has(key));
  return isKnown ? null : "a state that no step has";
}
