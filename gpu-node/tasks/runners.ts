// The kinds of task that this node knows, and one task from its payload to its outcome.

import type { Outcome } from "../../shared/tasks/node-protocol.ts";
import {
  isTaskKind,
  TASK_KINDS,
  type TaskKind,
  type TaskPayload,
  type TaskResult,
} from "../../shared/tasks/tasks.ts";
import { DISK_FULL, isDiskFull, TaskFailure } from "../base/failure.ts";
import { scrub } from "../base/log.ts";
import { TaskPause } from "../objects/task-context.ts";
import { BundleMissing, WeightsMissing } from "../segmenters/failures.ts";
import { run as runComparison } from "./compare-models.ts";
import { run as runExport } from "./export-dataset.ts";
import { run as runModelExport } from "./export-model.ts";
import { run as runCrops } from "./frame-crops.ts";
import { run as runEmbed } from "./frame-embeddings.ts";
import { run as runFrames } from "./frame-images.ts";
import { run as runLabel } from "./label.ts";
import { run as runPredict, warm as runWarm } from "./predict.ts";
import { run as runPreview } from "./preview.ts";
import { run as runProbe } from "./probe.ts";
import type { RunnerContext } from "./runner-context.ts";
import { run as runSam, runVideo as runSamVideo } from "./sam-objects.ts";
import { run as runSegment } from "./segment.ts";
import { run as runTrain } from "./train.ts";
import { run as runWorkflow, runVideo as runWorkflowVideo } from "./workflow.ts";

/** Nodes differ in segmenters and weights: one that lacks a task's leaves it so long to others. */
const ELSEWHERE_SECONDS = 10;

type Runner<Kind extends TaskKind> = (
  payload: TaskPayload<Kind>,
  context: RunnerContext,
) => Promise<TaskResult<Kind>>;

/** A kind of `TASK_KINDS` without a runner does not compile. */
const RUNNERS: { readonly [Kind in TaskKind]: Runner<Kind> } = {
  probe: runProbe,
  label: runLabel,
  preview: runPreview,
  segment: runSegment,
  embed: runEmbed,
  crops: runCrops,
  frames: runFrames,
  export: runExport,
  model_export: runModelExport,
  device_export: runModelExport,
  engine_export: runModelExport,
  train: runTrain,
  warm: runWarm,
  predict: runPredict,
  comparison: runComparison,
  sam: runSam,
  sam_video: runSamVideo,
  workflow: runWorkflow,
  workflow_video: runWorkflowVideo,
};

async function runAs<Kind extends TaskKind>(
  kind: Kind,
  payload: unknown,
  context: RunnerContext,
): Promise<Record<string, unknown>> {
  const schema = TASK_KINDS[kind];
  const runner: Runner<Kind> = RUNNERS[kind];
  const result = await runner(schema.payload.parse(payload) as TaskPayload<Kind>, context);
  return schema.result.parse(result) as Record<string, unknown>;
}

/** Runs a task; how it failed is a value. */
export async function runTask(
  kind: string,
  payload: unknown,
  context: RunnerContext,
): Promise<Outcome> {
  if (!isTaskKind(kind)) {
    const detail = `this node does not know tasks of the kind ${kind}`;
    return { outcome: "failed", code: "invalid_request", detail, retryable: true };
  }
  try {
    const result = await runAs(kind, payload, context);
    return context.cancel.aborted
      ? { outcome: "cancelled", result }
      : { outcome: "finished", result };
  } catch (thrown) {
    if (context.cancel.aborted) return { outcome: "cancelled", result: null };
    if (thrown instanceof TaskPause) return { outcome: "snoozed", seconds: 0 };
    if (thrown instanceof BundleMissing) {
      context.log.info("segmenter_missing", { kind, detail: thrown.message });
      return { outcome: "snoozed", seconds: ELSEWHERE_SECONDS };
    }
    if (thrown instanceof WeightsMissing) {
      context.log.info("weights_missing", { kind, detail: thrown.message });
      return { outcome: "snoozed", seconds: ELSEWHERE_SECONDS };
    }
    const outcome = failedOutcome(thrown);
    // What was expected needs no stack.
    const known = thrown instanceof TaskFailure && !thrown.retryable;
    context.log.warning("task_failed", { kind, ...(known ? outcome : { error: thrown }) });
    return outcome;
  }
}

function failedOutcome(thrown: unknown): Outcome {
  if (thrown instanceof TaskFailure) {
    const { code, retryable } = thrown;
    return { outcome: "failed", code, detail: scrub(thrown.message), retryable };
  }
  if (isDiskFull(thrown)) {
    return { outcome: "failed", code: "node_disk_full", detail: DISK_FULL, retryable: true };
  }
  const detail = scrub(thrown instanceof Error ? thrown.message : String(thrown)).slice(0, 500);
  return { outcome: "failed", code: "internal", detail, retryable: true };
}
