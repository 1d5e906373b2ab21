// What becomes of a run's files and effects when its task ended.

import type { TaskPayload, TaskResult } from "../../../../shared/tasks/tasks.ts";
import { BLOCKS } from "../../../../shared/workflow/blocks.ts";
import { checkWorkflow } from "../../../../shared/workflow/check.ts";
import type { Parts } from "../../base/parts.ts";
import { cutProblem } from "../../serving/predict/clip-frames.ts";
import { annotatedProblem, deleteTaskFiles } from "../../serving/predict/task-files.ts";
import type { Task } from "../../tasks/queue/queue.ts";
import { countUse } from "../usage.ts";
import {
  type AskedPlan,
  answerProblem,
  effectsProblem,
  outputsProblem,
  stepsProblem,
} from "./answers.ts";
import { effectOf } from "./asked-runs.ts";
import type { EffectReport } from "./bodies.ts";
import { perform } from "./runs.ts";
import { isCanceled, keepOutcomes, outcomesOf } from "./video-runs.ts";

type Payload = TaskPayload<"workflow" | "workflow_video">;

/** The plan that a task's run had, and what it was given. */
function askedPlan({ definition, inputs, models }: Payload): AskedPlan | null {
  const { plan } = checkWorkflow(definition, { blocks: BLOCKS, workflows: new Map() });
  if (!plan) return null;
  const values = Object.entries(inputs).map(([name, value]) => [name, { value }] as const);
  const handed = Object.entries(models).map(
    ([called, { model_id, name, version }]) =>
      [called, { modelId: model_id, name, version }] as const,
  );
  return { plan, inputs: new Map(values), models: new Map(handed) };
}

/** Checks what a node says of a run; see `TaskHandlers.seal`. */
export async function sealWorkflow(
  _parts: Parts,
  task: Task,
  { result }: { result: unknown },
): Promise<string | null> {
  const said = result as TaskResult<"workflow">;
  if (said.failure) return null;
  const asked = askedPlan(task.payload as TaskPayload<"workflow">);
  return asked ? answerProblem(said, asked) : "its definition cannot be run any more";
}

/** Checks what a node says of a run over a clip; see `TaskHandlers.seal`. */
export async function sealVideoRun(
  parts: Parts,
  task: Task,
  { result }: { result: unknown },
): Promise<string | null> {
  const payload = task.payload as TaskPayload<"workflow_video">;
  const { frames, steps, effects, left_out, annotated } = result as TaskResult<"workflow_video">;
  const cut = cutProblem(payload, left_out.frames);
  if (cut) return cut;
  const unwritten = await annotatedProblem(parts, task, annotated);
  if (unwritten) return unwritten;
  if ((annotated?.frames_without_output ?? 0) > frames.length) {
    return "the annotated video lacks an output on more frames than are answered";
  }
  const asked = askedPlan(payload);
  if (!asked) return "its definition cannot be run any more";
  if (frames.length > payload.frames_max) return `over ${payload.frames_max} frames are answered`;
  let before = -1;
  for (const { frame_index: index, outputs } of frames) {
    if (index <= before) return `frame ${index} is not in its order`;
    before = index;
    const problem = outputsProblem(outputs, asked.plan);
    if (problem) return `frame ${index}: ${problem}`;
  }
  const answered = new Set(frames.map(({ frame_index: index }) => index));
  const other = effects.find(({ frame_index: index }) => !answered.has(index));
  if (other) return `step ${other.step}: frame ${other.frame_index} is not answered`;
  return stepsProblem(steps, asked) ?? effectsProblem(effects, asked);
}

/** A run's task ended: its files are of no use any more. May be called again for the same task. */
export function workflowEnded(parts: Parts, task: Task): Promise<void> {
  const { images } = task.payload as Payload;
  const video = (task.payload as Partial<TaskPayload<"workflow_video">>).video?.key ?? [];
  return deleteTaskFiles(parts, task, images.map(({ file }) => file.key).concat(video));
}

/**
 * A run over a clip ended: what it asked for outside is performed where it ended well. May be
 * called again for the same task, and does nothing twice.
 */
export async function videoRunEnded(parts: Parts, task: Task): Promise<void> {
  await workflowEnded(parts, task);
  const { origin } = task.payload as TaskPayload<"workflow_video">;
  const result = task.result as TaskResult<"workflow_video"> | null;
  // Its sender ended a canceled run: it is neither performed nor a failure of its workflow.
  if (!origin || task.state === "cancelled" || outcomesOf(task)) return;
  const isWell = task.state === "finished" && result !== null && result.failure === null;
  // Its node may have been done with the frames before it heard of that.
  if (isWell && (await isCanceled(parts, task.taskId))) {
    await keepOutcomes(parts, task.taskId, []);
    return;
  }
  const { actor_id: actorId, dry_run: dryRun, deployed } = origin;
  let outcomes: EffectReport[] = [];
  if (isWell) {
    const { workspaceId, taskId: runId } = task;
    const workflowId = deployed?.workflow_id ?? null;
    const effects = result.effects.map((effect) => {
      const { element, ...told } = effectOf(effect);
      return { ...told, element: [effect.frame_index, ...element] };
    });
    const source = { workspaceId, workflowId, runId, actorId };
    outcomes = await perform(parts, source, { effects, dryRun });
  }
  const isFirst = await keepOutcomes(parts, task.taskId, outcomes);
  if (!deployed || !isFirst) return;
  const use = { workflowId: deployed.workflow_id, versionId: deployed.version_id, dryRun };
  const milliseconds = (result?.seconds ?? 0) * 1_000;
  await countUse(parts, { ...use, milliseconds, ok: isWell });
}
