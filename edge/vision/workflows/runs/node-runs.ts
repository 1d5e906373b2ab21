// A run on a GPU node: by the direct line where one is and all fits it, else by the queue. What a
// node answers is checked against the plan before anything is done with it.

import { Failure } from "../../../../shared/errors.ts";
import type { LineHeadOf } from "../../../../shared/tasks/line.ts";
import { TASK_KINDS, type TaskPayload } from "../../../../shared/tasks/tasks.ts";
import { type ResolvedModel, WorkflowAnswer } from "../../../../shared/tasks/workflow-task.ts";
import { segmentersOf } from "../../../../shared/workflow/blocks/model-blocks.ts";
import type { Parts } from "../../base/parts.ts";
import { modelSource } from "../../models/registry.ts";
import { askLine, bodyOf, noAnswer } from "../../serving/predict/direct.ts";
import { asRefusal } from "../../serving/predict/predictions.ts";
import { listWorkflowNodes, offeringNodes } from "../../tasks/nodes/nodes.ts";
import { signReferences, source } from "../../tasks/objects.ts";
import { runNow } from "../../tasks/queue/wait.ts";
import { answerProblem } from "./answers.ts";
import { type EndedRun, effectOf, type ReadyRun, workflowFailed } from "./asked-runs.ts";
import { RunImage, storeImages } from "./inputs.ts";
import type { RunModel } from "./run-models.ts";

/** By when a node that has all models open answers, and one that opens them first. */
const DEADLINES = { warmMs: 60_000, coldMs: 85_000 };
const QUEUE_MS = 85_000;
/** A file that crashes a process takes an attempt of the runs beside it. */
const ATTEMPTS = 2;

/** What the steps remember, and who waits. */
interface Circumstances {
  state: Record<string, unknown>;
  signal: AbortSignal;
}

/** A model as a run names it. */
const resolved = (model: RunModel): ResolvedModel => ({
  model_id: model.modelId,
  name: model.name,
  version: model.version,
  source: modelSource(model),
  told: model.told,
});

/** What is the same of a run however it goes to a node. */
export function runPayload(
  { workspaceId, definition, inputs, models }: ReadyRun,
  state: Record<string, unknown>,
) {
  const values = [...inputs].filter(([, { value }]) => imagesIn(value).length === 0);
  return {
    definition,
    inputs: Object.fromEntries(
      values.map(([name, { value }]) => [name, value]),
    ) as TaskPayload<"workflow">["inputs"],
    models: Object.fromEntries([...models].map(([name, model]) => [name, resolved(model)])),
    state: state as TaskPayload<"workflow">["state"],
    workspace: workspaceId,
  };
}

/** The images of an input: one, or those of a list. */
const imagesIn = (value: unknown): RunImage[] =>
  [value].flat().filter((one) => one instanceof RunImage);

/** The images of a run, by their inputs; those of a list have one name. */
export const imagesOf = ({ inputs }: ReadyRun): [name: string, image: RunImage][] =>
  [...inputs].flatMap(([name, { value }]) =>
    imagesIn(value).map((image): [string, RunImage] => [name, image]),
  );

/** What a node must take and have to do a run. */
interface NodeNeed {
  kind: "workflow" | "workflow_video";
  workspaceId: string;
  /** Segmenters that the steps name; null is the node's own. */
  segmenters: readonly (string | null)[];
}

/**
 * Fails with `no_node` where no live node runs workflows of a kind of task for a workspace and has
 * all segmenters that they name.
 */
export async function requireWorkflowNode(
  { database }: Pick<Parts, "database">,
  need: NodeNeed,
): Promise<void> {
  if ((await offeringNodes(database, need)) > 0) return;
  const { segmenters } = need;
  const named = segmenters.filter((name) => name !== null).join(" and ");
  const kind = named ? ` ${named}` : "";
  const having = segmenters.length > 0 ? ` and has the segmenter${kind}` : "";
  throw new Failure("no_node", `no GPU node that runs workflows${having} is there`);
}

/** Has a node run a workflow. Fails with `no_node`, `overloaded`, `task_failed` and as it fails. */
export async function runOnNode(
  parts: Parts,
  run: ReadyRun,
  circumstances: Circumstances,
): Promise<EndedRun> {
  const images = imagesOf(run);
  const areHeld = images.every(([, { file }]) => "pieces" in file);
  const direct = areHeld ? await runDirectly(parts, run, circumstances) : null;
  return direct ?? runByQueue(parts, run, circumstances);
}

async function runDirectly(
  parts: Parts,
  run: ReadyRun,
  { state, signal }: Circumstances,
): Promise<EndedRun | null> {
  const { workspaceId, plan, models } = run;
  const opened = [...models.values()];
  const names = opened.map(({ modelId, imageSize }) => `${modelId}@${imageSize}`);
  const segmenters = segmentersOf(plan);
  const images = imagesOf(run);
  const answer = await askLine(parts, {
    topic: `workflow:${workspaceId}.${JSON.stringify([segmenters, [...new Set(names)].toSorted()])}`,
    list: () => listWorkflowNodes(parts.database, { workspaceId, models: opened, segmenters }),
    head: async () => {
      const head = {
        kind: "workflow",
        ...runPayload(run, state),
        images: images.map(([name, image]) => ({ name, bytes: image.bytes })),
        now: parts.clock(),
      } satisfies LineHeadOf<"workflow">;
      const signed = await signReferences(parts, head.models);
      return { ...head, models: signed as typeof head.models };
    },
    image: images.flatMap(([, { file }]) => ("pieces" in file ? file.pieces : [])),
    ...DEADLINES,
    signal,
  });
  if (!answer) return null;
  const said = WorkflowAnswer.safeParse(bodyOf(answer.said, ["unsupported_media"])).data;
  if (!said) throw noAnswer();
  return endedOf(parts, run, { said, servedBy: `node/${encodeURIComponent(answer.servedBy)}` });
}

async function runByQueue(
  parts: Parts,
  run: ReadyRun,
  { state }: Circumstances,
): Promise<EndedRun> {
  const { workspaceId, plan } = run;
  const segmenters = segmentersOf(plan);
  await requireWorkflowNode(parts, { kind: "workflow", workspaceId, segmenters });
  const images = imagesOf(run);
  const own = images.map(([, image]) => image);
  const stored = await storeImages(parts, run.workspaceId, own);
  try {
    const files = stored.map(({ key, bytes }, index) => ({
      name: images[index]?.[0] ?? "",
      file: source(key, bytes),
    }));
    const task = {
      kind: "workflow" as const,
      workspaceId: run.workspaceId,
      subject: `workflow:${crypto.randomUUID()}`,
      attemptsMax: ATTEMPTS,
      payload: { ...runPayload(run, state), images: files, now: parts.clock() },
    };
    const done = await runNow<"workflow">(parts, task, { timeoutMs: QUEUE_MS });
    const said = TASK_KINDS.workflow.result.parse(done);
    return endedOf(parts, run, { said, servedBy: "node" });
  } catch (thrown) {
    throw asRefusal(thrown);
  } finally {
    // Whether it ended or was given up: nobody takes its result any more.
    await parts.bucket.delete(stored.map(({ key }) => key));
  }
}

/** What a node said, checked. Fails with `workflow_failed` where a step could not do its part. */
function endedOf(
  { log }: Pick<Parts, "log">,
  run: ReadyRun,
  { said, servedBy }: { said: WorkflowAnswer; servedBy: string },
): EndedRun {
  if (said.failure) {
    const { code, step, element, detail } = said.failure;
    throw workflowFailed({ code, step, element, message: detail });
  }
  const problem = answerProblem(said, run);
  if (problem) {
    log.warning("line_answer_refused", { problem });
    throw noAnswer();
  }
  const { outputs, steps, effects, state, seconds } = said;
  return { outputs, steps, effects: effects.map(effectOf), state, seconds, servedBy };
}
