// Runs over the frames of a clip, under an id: the task's row is the record, and keeps its result
// for a day, as that of a prediction on a video does. What it asked for outside is performed once
// its task has finished; then the images that went with it leave the row.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { TaskPayload, TaskResult } from "../../../../shared/tasks/tasks.ts";
import type { WorkflowPlan } from "../../../../shared/workflow/plan.ts";
import { wireTime } from "../../../http/database.ts";
import { allow, type Caller, workspacesOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { idList } from "../../base/sql.ts";
import { type FramesWish, framesOf } from "../../serving/predict/clip-frames.ts";
import type { StoredFile } from "../../serving/predict/predictions.ts";
import { annotatedTarget, annotatedUrl } from "../../serving/predict/task-files.ts";
import { type SigningParts, source } from "../../tasks/objects.ts";
import { requestCancel } from "../../tasks/queue/interventions.ts";
import type { NewTask, Task } from "../../tasks/queue/queue.ts";
import type { AskedRun, ReadyRun } from "./asked-runs.ts";
import { EffectReport, type VideoRun } from "./bodies.ts";
import { imagesOf, runPayload } from "./node-runs.ts";
import type { ServedRun } from "./runs.ts";

/** Claimed after images, on each of which somebody waits for less. */
const PRIORITY = 40;
const ATTEMPTS = 2;
const NO_CLIPS = "The node's release makes no clip of `annotated_output`: update the node.";

/**
 * The input that takes an image or a clip's frames: the named one, or the only image that a run has
 * to be given and is not. Fails with `invalid_request`.
 */
export function imageInput(
  plan: WorkflowPlan,
  given: AskedRun["given"],
  named: string | undefined,
): string {
  const images = plan.inputs.filter(({ kind }) => kind === "image");
  if (named !== undefined) {
    if (images.some(({ name }) => name === named)) return named;
    throw new Failure("invalid_request", `frames_input: the workflow has no image input ${named}`);
  }
  const open = images.filter(({ name }) => !Object.hasOwn(given, name));
  const [only] = open;
  if (only && open.length === 1) return only.name;
  const many = open.length === 0 ? "has none" : `has ${open.map(({ name }) => name).join(", ")}`;
  throw new Failure(
    "invalid_request",
    `the workflow must have one image input that is not given; it ${many}`,
  );
}

/**
 * Fails with `invalid_request` where a plan has no output of a name, or one there that is not a
 * single image.
 */
export function checkAnnotated({ outputs }: WorkflowPlan, named: string | undefined): void {
  const images = outputs
    .filter(({ kind, lineage }) => kind === "image" && lineage.length === 0)
    .map(({ name }) => name);
  if (named === undefined || images.includes(named)) return;
  const isThere = outputs.some(({ name }) => name === named);
  const problem = isThere ? `the output ${named} is not one image` : `there is no output ${named}`;
  const fix = images.length > 0 ? `name ${images.join(" or ")}` : "no output is one image";
  throw new Failure("invalid_request", `annotated_output: ${problem}; ${fix}`);
}

/** The task of a run over a stored clip. */
export function clipTask(
  run: ReadyRun,
  {
    clip,
    frames,
    images,
    wish,
    annotated,
    served,
  }: {
    clip: StoredFile;
    frames: string;
    images: readonly StoredFile[];
    wish: FramesWish;
    /** The output that is wanted as a clip. */
    annotated: string | undefined;
    served: ServedRun | null;
  },
): NewTask {
  const names = imagesOf(run).map(([name]) => name);
  const { actorId, dryRun, workspaceId } = run;
  const deployed = served && {
    workflow_id: served.deployed.workflowId,
    version_id: served.deployed.versionId,
    slug: served.deployed.slug,
    version: served.deployed.version,
  };
  return {
    kind: "workflow_video",
    workspaceId,
    subject: `workflow:${served?.deployed.workflowId ?? crypto.randomUUID()}`,
    priority: PRIORITY,
    attemptsMax: ATTEMPTS,
    payload: {
      ...runPayload(run, {}),
      images: images.map(({ key, bytes }, index) => ({
        name: names[index] ?? "",
        file: source(key, bytes),
      })),
      frames_input: frames,
      video: source(clip.key, clip.bytes),
      ...framesOf(wish),
      ...(annotated === undefined
        ? {}
        : { annotated_output: annotated, annotated: annotatedTarget(workspaceId) }),
      origin: { actor_id: actorId, dry_run: dryRun, deployed },
    },
  };
}

/** A result once what it asked for was performed. */
interface DoneResult extends TaskResult<"workflow_video"> {
  outcomes?: EffectReport[];
}

interface RunRow extends Record<string, unknown> {
  taskId: string;
  state: Task["state"];
  /** Somebody asked for its end before it came to it. */
  canceled: boolean;
  origin: TaskPayload<"workflow_video">["origin"];
  /** Whether an output is wanted as a clip. */
  annotated: boolean;
  progress: Task["progress"];
  failure: string | null;
  result: Omit<DoneResult, "effects"> | null;
  createdAt: string;
}

const notThere = () =>
  new Failure("not_found", "no such run in your workspaces; they are kept for a day");

const OWN = (workspaces: readonly string[], runId: string): SQL => sql`
  id = ${runId}::uuid AND kind = 'workflow_video' AND workspace_id IN ${idList(workspaces)}`;

const WIRE_STATES: Readonly<Record<Exclude<Task["state"], "finished">, VideoRun["status"]>> = {
  queued: "queued",
  running: "running",
  failed: "failed",
  cancelled: "canceled",
  revoked: "failed",
};

/** A run over a clip, of the workspaces; fails with `not_found`, also for one over for a day. */
export async function findVideoRun(
  parts: Pick<Parts, "database"> & SigningParts,
  workspaces: readonly string[],
  runId: string,
): Promise<VideoRun> {
  const { rows } = await parts.database.execute<RunRow>(sql`
    SELECT id::text AS "taskId", state, cancel_requested_at IS NOT NULL AS canceled,
        payload->'origin' AS origin, payload ? 'annotated' AS annotated, progress,
        errors->-1->>'detail' AS failure,
        result - 'effects' AS result, ${wireTime(sql`created_at`)} AS "createdAt"
      FROM task WHERE ${OWN(workspaces, runId)}`);
  const [row] = rows;
  if (row && (row.state !== "finished" || row.result)) return videoRun(parts, row);
  throw notThere();
}

/** A run ends once all is done outside; of one that is under way only how far it is is told. */
async function videoRun(
  parts: SigningParts,
  { taskId, state, origin, progress, failure, result, ...row }: RunRow,
): Promise<VideoRun> {
  const problem = result?.failure ?? null;
  const outcomes = result?.outcomes ?? null;
  const isPerformed = outcomes !== null || !origin;
  const wellEnded = !isPerformed ? "running" : row.canceled ? "canceled" : "completed";
  const status = problem ? "failed" : state === "finished" ? wellEnded : WIRE_STATES[state];
  const hasEnded = status !== "queued" && status !== "running";
  const ended = hasEnded && (state === "finished" || state === "cancelled") ? result : null;
  const words = problem?.detail ?? failure ?? `the run was ${state}`;
  const deployed = origin?.deployed ?? null;
  // What a canceled task left of a clip is deleted.
  const clip = state === "finished" ? ended?.annotated : undefined;
  const annotated = row.annotated && {
    annotated_video_url: await annotatedUrl(parts, clip),
    frames_without_output: clip?.frames_without_output ?? null,
  };
  const isUnmade = row.annotated && state === "finished" && ended?.frames.length && !clip;
  return {
    run_id: taskId,
    slug: deployed?.slug ?? null,
    version: deployed?.version ?? null,
    status,
    failure: status === "failed" ? words : null,
    problem,
    frames_done: result?.frames?.length ?? progress?.done ?? null,
    frames_total: result?.frames?.length ?? progress?.total ?? null,
    width: ended?.width ?? null,
    height: ended?.height ?? null,
    frames: ended?.frames ?? null,
    steps: ended?.steps ?? [],
    effects: hasEnded ? (outcomes ?? []) : null,
    left_out: ended?.left_out ?? null,
    warnings: [...(ended?.warnings ?? []), ...(isUnmade ? [NO_CLIPS] : [])],
    ...annotated,
    seconds: ended?.seconds ?? null,
    created_at: row.createdAt,
  };
}

/**
 * Asks for the end of a run of the caller's: what it asked for outside is not performed then. One
 * that ended stays as it is. Returns its task where that ended so. Fails with `not_found` and
 * `forbidden`.
 */
export async function cancelVideoRun(
  { database }: Pick<Parts, "database">,
  caller: Caller,
  runId: string,
): Promise<Task | null> {
  const workspaces = workspacesOf(caller);
  const { rows } = await database.execute<{ workspaceId: string }>(sql`
    SELECT workspace_id::text AS "workspaceId" FROM task WHERE ${OWN(workspaces, runId)}`);
  const [row] = rows;
  if (!row) throw notThere();
  allow(caller, row.workspaceId, "annotator");
  const [task] = await requestCancel(database, { taskIds: [runId], realm: [row.workspaceId] });
  return task?.state === "cancelled" ? task : null;
}

/**
 * Keeps what became of a run's effects in the place of these, of a failed one that it is over;
 * whether nobody had before.
 */
export async function keepOutcomes(
  { database }: Pick<Parts, "database">,
  taskId: string,
  outcomes: readonly EffectReport[],
): Promise<boolean> {
  const kept = JSON.stringify({ effects: [], outcomes });
  const { rows } = await database.execute(sql`
    UPDATE task SET result = coalesce(result, '{}'::jsonb) || ${kept}::jsonb
     WHERE id = ${taskId}::uuid AND (result IS NOT NULL OR state <> 'finished')
       AND result->'outcomes' IS NULL
    RETURNING id`);
  return rows.length > 0;
}

/** Whether a condition holds of a task. */
async function holds(
  { database }: Pick<Parts, "database">,
  taskId: string,
  condition: SQL,
): Promise<boolean> {
  const { rows } = await database.execute(sql`
    SELECT FROM task WHERE id = ${taskId}::uuid AND ${condition}`);
  return rows.length > 0;
}

/** Whether the end of a run was asked for before it came. */
export const isCanceled = (parts: Pick<Parts, "database">, taskId: string): Promise<boolean> =>
  holds(parts, taskId, sql`cancel_requested_at IS NOT NULL`);

/** Whether nothing follows any more from the end of a run's task. */
export const isOver = (parts: Pick<Parts, "database">, taskId: string): Promise<boolean> =>
  holds(parts, taskId, sql`(state <> 'finished' OR settled_at IS NOT NULL)`);

/** What became of a run's effects; null where they were not performed yet. */
export function outcomesOf({ result }: Pick<Task, "result">): EffectReport[] | null {
  const told = EffectReport.array().safeParse(result?.outcomes);
  return told.success ? told.data : null;
}
