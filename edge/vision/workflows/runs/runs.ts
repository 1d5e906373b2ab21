// A run of a workflow, whatever route it came by: its inputs read, its models resolved, run here or
// by a node, its state kept, and what it asked for outside performed. Effects are performed once
// all else has ended well; what fails before leaves nothing behind.

import { Failure } from "../../../../shared/errors.ts";
import { joined } from "../../../../shared/tasks/line.ts";
import { ANSWER_IMAGE_BYTES_MAX } from "../../../../shared/tasks/workflow-task.ts";
import { PURE_RUNS } from "../../../../shared/workflow/blocks.ts";
import {
  executePlan,
  RUN_LIMITS,
  WorkflowFailure,
  type WorkflowRun,
} from "../../../../shared/workflow/execution.ts";
import { writeOutputs } from "../../../../shared/workflow/wire.ts";
import type { Parts } from "../../base/parts.ts";
import type { DeployedWorkflow } from "../definitions/versions.ts";
import { type EffectSource, sendDeliveries } from "../deliveries.ts";
import { type EffectOfRun, performEffects } from "../effects.ts";
import { countUse } from "../usage.ts";
import {
  type AskedRun,
  type EndedRun,
  type ReadyRun,
  readyRun,
  workflowFailed,
} from "./asked-runs.ts";
import type { EffectReport, RunAnswer } from "./bodies.ts";
import { RunImage } from "./inputs.ts";
import { runOnNode } from "./node-runs.ts";
import { readStream, type StreamSave, type StreamState } from "./streams.ts";

/** A run in the Worker, which shares its processor and its memory with other requests. */
const WORKER_LIMITS = { ...RUN_LIMITS, ms: 5_000, valueBytes: 32 * 1024 * 1024 };

/** A run of a deployed workflow has its version and, where it goes on from others, a stream. */
export interface ServedRun {
  deployed: DeployedWorkflow;
  stream: string | null;
}

/** Who waits for a run. */
interface Waiter {
  signal: AbortSignal;
  /** Lets work go on after the answer. */
  defer: (work: Promise<unknown>) => void;
}

/** What of it whoever runs a plan has to know. */
type Signals = Pick<Waiter, "signal">;

/**
 * Runs a workflow. Fails with `workflow_failed` where a step could not do its part, with
 * `revision_conflict` where another run of the stream came before, and as nodes are asked.
 */
export async function runWorkflow(
  parts: Parts,
  asked: AskedRun,
  { served, version, signal, defer }: { served: ServedRun | null; version: number | null } & Waiter,
): Promise<RunAnswer> {
  const runId = crypto.randomUUID();
  const began = parts.clock();
  try {
    const run = await readyRun(parts, asked);
    const kept = await stateOf(parts, served);
    const ended = await endedRun(parts, run, { state: kept.state, signal });
    const source = sourceOf(asked, { runId, served });
    const save = saveOf(served, { ...kept, state: ended.state });
    const effects = await perform(parts, source, { ...asked, effects: ended.effects, save });
    // The first attempt at once; the minute's duty makes the others.
    if (effects.some(({ status }) => status === "queued")) defer(sendDeliveries(parts, { runId }));
    defer(count(parts, { ...asked, served, ok: true, began }));
    const { outputs, steps, servedBy } = ended;
    const seconds = Math.max(0, ended.seconds);
    return { run_id: runId, version, outputs, steps, effects, seconds, served_by: servedBy };
  } catch (thrown) {
    // Whoever left has not learned that it failed.
    if (!signal.aborted) defer(count(parts, { ...asked, served, ok: false, began }));
    throw thrown;
  }
}

const sourceOf = (
  { workspaceId, actorId }: AskedRun,
  { runId, served }: { runId: string; served: ServedRun | null },
): EffectSource => ({
  workspaceId,
  workflowId: served?.deployed.workflowId ?? null,
  runId,
  actorId,
});

async function count(
  parts: Parts,
  run: { served: ServedRun | null; dryRun: boolean; ok: boolean; began: number },
): Promise<void> {
  if (!run.served) return;
  const { workflowId, versionId } = run.served.deployed;
  const milliseconds = parts.clock() - run.began;
  await countUse(parts, { workflowId, versionId, milliseconds, ok: run.ok, dryRun: run.dryRun });
}

/** What the steps of a run remember of its stream. */
async function stateOf({ database }: Parts, served: ServedRun | null): Promise<StreamState> {
  if (!served || served.stream === null) return { revision: 0, state: {} };
  const { deployed, stream } = served;
  return readStream(database, { versionId: deployed.versionId, stream });
}

/** What is to be saved of a stream; null where nothing is. */
function saveOf(served: ServedRun | null, { revision, state }: StreamState): StreamSave | null {
  if (!served || served.stream === null) return null;
  // Steps that remember nothing have nothing to lose to another run.
  if (revision === 0 && Object.values(state).every((one) => one === null)) return null;
  const { deployed, stream } = served;
  return { versionId: deployed.versionId, stream, revision, state };
}

/** Has a run done by whoever can: this Worker where no step needs a node. */
async function endedRun(
  parts: Parts,
  run: ReadyRun,
  { state, signal }: { state: Record<string, unknown> } & Signals,
): Promise<EndedRun> {
  if (run.plan.runsOn === "node") return runOnNode(parts, run, { state, signal });
  return runHere(parts, run, { state, signal });
}

async function runHere(
  { clock }: Parts,
  { plan, inputs }: ReadyRun,
  { state, signal }: { state: Record<string, unknown> } & Signals,
): Promise<EndedRun> {
  for (const { value } of inputs.values()) {
    if (value instanceof RunImage && "key" in value.file) {
      const detail = "images of a run without a node are at most 8 MiB together";
      throw new Failure("file_too_large", detail, { data: { bytes: value.bytes } });
    }
  }
  const began = clock();
  try {
    const {
      outputs,
      steps,
      effects,
      state: after,
    } = await executePlan({
      plan,
      inputs,
      runs: PURE_RUNS,
      state,
      now: began,
      signal,
      limits: WORKER_LIMITS,
      clock: () => performance.now(),
    });
    checkImages(outputs, effects);
    const addresses = new Map<RunImage, string>();
    const written = await writeOutputs(outputs, async (image) => {
      const own = asRunImage(image);
      const address = addresses.get(own) ?? own.dataAddress();
      addresses.set(own, address);
      return address;
    });
    const files = new Map<RunImage, Uint8Array<ArrayBuffer>>();
    const fileOf = (image: RunImage) => {
      const file = files.get(image) ?? bytesOf(image);
      files.set(image, file);
      return file;
    };
    return {
      outputs: written as RunAnswer["outputs"],
      steps: steps.map((step) => ({
        ...step,
        models: [...step.models],
        warnings: [...step.warnings],
      })),
      effects: effects.map(({ image, element, ...effect }) => ({
        ...effect,
        element,
        image: image === undefined ? null : fileOf(asRunImage(image)),
      })),
      state: after,
      seconds: (clock() - began) / 1_000,
      servedBy: "worker",
    };
  } catch (thrown) {
    throw thrown instanceof WorkflowFailure ? workflowFailed(thrown) : thrown;
  }
}

/** The Worker's images are all a run's own: no block that it runs makes one. */
function asRunImage(image: unknown): RunImage {
  if (image instanceof RunImage) return image;
  throw new Error("an image of the Worker's run is none of its inputs");
}

/**
 * Fails with `limit` where images of outputs and webhooks are more than a node would answer: each
 * is written as often as it is named. Uploads share the file.
 */
function checkImages(outputs: unknown, effects: WorkflowRun["effects"]): void {
  const base64Bytes = (value: unknown): number => {
    if (value instanceof RunImage) return 4 * Math.ceil(value.bytes / 3);
    if (typeof value !== "object" || value === null) return 0;
    return Object.values(value).reduce((sum: number, one) => sum + base64Bytes(one), 0);
  };
  const sent = effects.filter(({ kind }) => kind === "webhook").map(({ image }) => image);
  if (base64Bytes(outputs) + base64Bytes(sent) <= ANSWER_IMAGE_BYTES_MAX) return;
  const max = `${ANSWER_IMAGE_BYTES_MAX / 1024 ** 2} MiB`;
  throw new WorkflowFailure(
    "limit",
    `the images of outputs and webhooks are over ${max}: leave some out`,
  );
}

const bytesOf = ({ file }: RunImage): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(joined("pieces" in file ? file.pieces : []));

/** What a run has come to: what it asked for outside, and what is to be saved of its stream. */
interface Consequences {
  effects: readonly EffectOfRun[];
  dryRun: boolean;
  save?: StreamSave | null;
}

/** Performs what a run asked for outside, and saves its stream; of a dry run, tells it only. */
export async function perform(
  parts: Parts,
  source: EffectSource,
  { effects, dryRun, save = null }: Consequences,
): Promise<EffectReport[]> {
  if (dryRun) return effects.map(dryReport);
  const outcomes = await performEffects(parts, source, effects, save);
  return outcomes.map(({ step, element, kind, status, detail }) => ({
    step,
    element,
    kind,
    status,
    detail,
    request: null,
  }));
}

const dryReport = ({ step, element, kind, request }: EffectOfRun): EffectReport => ({
  step,
  element: [...element],
  kind,
  status: "dry_run",
  detail: null,
  request: request as EffectReport["request"],
});
