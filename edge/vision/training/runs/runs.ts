// Training runs as rows: making one, handing it to the nodes, and where it stands. A run is done in
// rounds, each with one task; a resume is a new round. What a node writes for a run lies in the
// run's folder, and so does what the run is made of.

import { type SQL, sql } from "drizzle-orm";
import { trainingRun } from "../../../../db/vision/training.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { TaskIntervention } from "../../../../shared/tasks/task-intervention.ts";
import type { TaskPayload } from "../../../../shared/tasks/tasks.ts";
import type { Checkpoint, RunArtifact } from "../../../../shared/tasks/train-task.ts";
import {
  type MetricMap,
  type ResolvedSettings,
  type RunEpoch,
  type TrainingRun,
  TrainSettings,
} from "../../../../shared/wire/training.ts";
import { type Database, isSilent } from "../../../http/database.ts";
import { columnsOf, type RowOf, rowsOf, selection, typed } from "../../../http/selection.ts";
import type { Act } from "../../auth/audit.ts";
import { moveRow } from "../../auth/logged-moves.ts";
import { isWanted, type ListPage, type ListQuery, pageOf } from "../../base/lists.ts";
import type { Parts } from "../../base/parts.ts";
import { allOf, breaksReference, idList, textList } from "../../base/sql.ts";
import type { VersionRow } from "../../labeling/versions/versions.ts";
import { checkQuota, workspacePrefix } from "../../media/videos/videos.ts";
import { checkInstalled, startingWeights } from "../../models/weights.ts";
import { hasWeights, offering } from "../../tasks/nodes/nodes.ts";
import { source } from "../../tasks/objects.ts";
import { newestIntervention, requestCancel } from "../../tasks/queue/interventions.ts";
import { submit } from "../../tasks/queue/wait.ts";
import { copyVersion, type RunData, type RunDataset, writeDataset } from "./dataset.ts";
import { MOVES, type Move } from "./states.ts";
import { variantRecords } from "./variants.ts";

/** How far a node is, as it last said. */
export interface Live {
  /** Fence of the claim under which the node said so. */
  fence?: number;
  /** Epochs done, and batches of the one under way. */
  epoch?: number;
  batch?: number;
  batches?: number;
  losses?: RunEpoch["losses"] | null;
  eta_seconds?: number | null;
  /** The newest line of the log that was told. */
  log?: number;
}

/** What the tasks of a run are part of. */
export const subjectOf = (runId: string) => `run:${runId}`;
/** The id of the run that tasks of a subject are part of. */
export const runOfSubject = (subject: string) => subject.slice(subjectOf("").length);
/** The idempotency key of a round's task: a round that is enqueued twice has one task. */
export const taskKey = (runId: SQL, round: SQL) =>
  sql`${subjectOf("")} || ${runId}::text || ':' || ${round}::text`;

/** Whether a node has the weights that a run asks nodes for; one that goes on needs none. */
const HAS_START = sql`(r.settings->'pretrained'->>'dataset' IS NULL OR r.checkpoint IS NOT NULL
  OR ${hasWeights(sql`r.settings->'pretrained'->>'dataset'`, sql`r.settings->>'variant'`)})`;

const r = columnsOf(trainingRun, "r");
const RUN = selection({
  runId: r.id,
  workspaceId: r.workspaceId,
  projectId: r.projectId,
  jobId: r.jobId,
  version: sql<{ dataset_id: string; version: number } | null>`(SELECT jsonb_build_object(
      'dataset_id', v.dataset_id, 'version', v.number)
    FROM dataset_version v WHERE v.id = r.dataset_version_id)`,
  name: r.name,
  notes: r.notes,
  state: r.state,
  failure: r.failure,
  settings: typed<TrainSettings>(r.settings),
  resolved: typed<ResolvedSettings | null>(r.resolved),
  /** In index order. */
  classes: r.classes,
  datasetSha256: sql<string>`r.dataset->>'sha256'`,
  leftOut: sql<RunDataset["leftOut"]>`r.dataset->'leftOut'`,
  round: r.round,
  checkpoint: sql<Checkpoint | null>`r.checkpoint - 'fence'`,
  live: typed<Live>(r.live),
  bestMetrics: typed<MetricMap | null>(r.bestMetrics),
  bestEpoch: r.bestEpoch,
  testMetrics: typed<MetricMap | null>(r.testMetrics),
  artifacts: typed<RunArtifact[]>(r.artifacts),
  stopRequested: sql<boolean>`r.stop_requested_at IS NOT NULL`,
  createdBy: r.createdBy,
  createdAt: r.createdAt,
  startedAt: r.startedAt,
  endedAt: r.endedAt,
  /** Live nodes that train. */
  nodes: typed<number>(offering("train", sql`r.workspace_id`, HAS_START)),
  /** The newest epoch that is done. */
  last: sql<RunEpoch | null>`(SELECT record FROM training_epoch
    WHERE run_id = r.id ORDER BY epoch DESC LIMIT 1)`,
  modelId: sql<string | null>`(SELECT id FROM model
    WHERE run_id = r.id ORDER BY created_at DESC LIMIT 1)`,
  intervention: typed<TaskIntervention | null>(
    newestIntervention(sql`t.idempotency_key = ${taskKey(sql`r.id`, sql`r.round`)}`),
  ),
});
/** A training run as its row and its epochs say. */
export type RunRow = RowOf<typeof RUN>;

/** Where a run's live progress is: each round has a topic of its own, with an end of its own. */
export const topicOf = ({ runId, round }: Pick<RunRow, "runId" | "round">) =>
  `train:${runId}:${round}`;

/** Where all objects of a run lie: nodes are given keys in it, by the subject of their task. */
export const folderOf = ({ workspaceId, runId }: Pick<RunRow, "workspaceId" | "runId">) =>
  `${workspacePrefix(workspaceId)}${subjectOf(runId).replaceAll(":", "/")}/`;

/** Where the dataset of a run is written down. */
export const manifestKey = (run: Pick<RunRow, "workspaceId" | "runId">) =>
  `${folderOf(run)}manifest.json`;

const NO_TRAINER = "no GPU node that trains is there: npm run gpu-node says what it lacks";

const missingNode = ({ settings: { pretrained, variant }, checkpoint }: RunRow): string =>
  pretrained && "dataset" in pretrained && !checkpoint
    ? `no GPU node that trains and has the weights ${JSON.stringify(pretrained.dataset)} for ` +
      `${variant} is there: npm run models -- install brings them`
    : NO_TRAINER;

/** A run as it goes over the wire. */
export const runRecord = (row: RunRow): TrainingRun => {
  const { mAP50 = null, "mAP50-95": mAP = null } = row.last?.metrics ?? {};
  const isLive = row.state === "queued" || row.state === "running";
  const etaSeconds = (isLive ? row.live.eta_seconds : null) ?? null;
  return {
    run_id: row.runId,
    project_id: row.projectId,
    job_id: row.jobId,
    dataset: row.version,
    name: row.name,
    notes: row.notes,
    status: row.state,
    failure: row.failure,
    stop_requested: row.stopRequested,
    // In the order of its fields, which the database does not keep.
    settings: TrainSettings.parse(row.settings),
    resolved: row.resolved,
    classes: row.classes,
    dataset_sha256: row.datasetSha256,
    left_out_frames: row.leftOut.frames,
    left_out_annotated_frames: row.leftOut.annotatedFrames,
    intervention: row.intervention,
    epoch: row.last?.epoch ?? 0,
    epochs: row.settings.epochs,
    loss: (isLive ? row.live.losses : null) ?? row.last?.losses ?? null,
    validation_loss: row.last?.validation_losses ?? null,
    mAP: mAP50 === null || mAP === null ? null : { mAP50, "mAP50-95": mAP },
    eta_seconds: etaSeconds,
    ETA: etaSeconds,
    waiting_for: isLive && row.nodes === 0 ? missingNode(row) : null,
    best_metrics: row.bestMetrics,
    best_epoch: row.bestEpoch,
    test_metrics: row.testMetrics,
    model_id: row.modelId,
    topic: topicOf(row),
    created_at: row.createdAt,
    started_at: row.startedAt,
    ended_at: row.endedAt,
  };
};

/** Which runs are meant; each member narrows it. */
export interface RunFilter {
  runId?: string | undefined;
  projectId?: string | undefined;
  jobId?: string | undefined;
}

/** Runs of the workspaces, newest first. */
export async function listRuns(
  database: Database,
  workspaces: readonly string[],
  filter: RunFilter,
): Promise<RunRow[]> {
  const rows = await rowsOf(database, RUN)`
    SELECT ${RUN} FROM training_run r WHERE ${runIs(workspaces, filter)}
     ORDER BY r.created_at DESC, r.id`;
  return rows;
}

/** A page of the runs of the workspaces, newest first. */
export const runPage = (
  database: Database,
  workspaces: readonly string[],
  { filter, query }: { filter: RunFilter; query: ListQuery },
): Promise<ListPage<RunRow>> => {
  const columns = { name: sql`r.name`, state: sql`r.state` };
  const where = sql`${runIs(workspaces, filter)} AND ${isWanted(query, columns)}`;
  const order = sql`r.created_at DESC, r.id`;
  return pageOf(database, RUN, { from: sql`training_run r`, where, order }, query);
};

/** The condition on a run `r` to be of the workspaces and meant by a filter. */
const runIs = (workspaces: readonly string[], { runId, projectId, jobId }: RunFilter): SQL =>
  allOf([
    sql`r.workspace_id IN ${idList(workspaces)}`,
    runId && sql`r.id = ${runId}::uuid`,
    projectId && sql`r.project_id = ${projectId}::uuid`,
    jobId && sql`r.job_id = ${jobId}::uuid`,
  ]);

/** The run of this id, if it is of these workspaces; fails with `not_found`. */
export async function findRun(
  database: Database,
  workspaces: readonly string[],
  runId: string,
): Promise<RunRow> {
  const [row] = await listRuns(database, workspaces, { runId });
  if (!row) throw new Failure("not_found", "no such run in your workspaces");
  return row;
}

/** A run, or null when it is gone. A database that is away says nothing of that: it fails. */
export async function existingRun(
  database: Database,
  workspaceId: string,
  runId: string,
): Promise<RunRow | null> {
  return (await listRuns(database, [workspaceId], { runId }))[0] ?? null;
}

/** The run's epochs, oldest first. */
export async function listEpochs(database: Database, runId: string): Promise<RunEpoch[]> {
  // Epochs of earlier releases have no losses of validation.
  const { rows } = await database.execute<{ record: RunEpoch }>(sql`
    SELECT jsonb_build_object('validation_losses', null) || record AS record
      FROM training_epoch WHERE run_id = ${runId}::uuid ORDER BY epoch`);
  return rows.map(({ record }) => record);
}

/** The states that a move may be made from, for IN. */
export const statesFor = (move: Move): SQL => textList(MOVES[move].from);

/** Makes a move of a run's table, in its round; tells whether (`moveRow`). */
export const moveRun = (
  database: Database,
  { runId, round }: Pick<RunRow, "runId" | "round">,
  move: Move,
  more?: { set?: SQL; act?: Act },
): Promise<boolean> => {
  const row = { table: trainingRun, id: runId, subject: subjectOf(runId) };
  return moveRow(database, { ...row, where: sql`round = ${round}::int` }, MOVES[move], more);
};

/** What a run is started with, beside its job. */
export interface NewRun {
  name: string;
  notes: string;
  settings: TrainSettings;
  createdBy: string;
}

/**
 * Fails with `quota_exceeded` where a workspace has no room for what a variant's weights take. It
 * is asked before a run begins or goes on, and never at its end: no work is lost for want of room.
 */
export function checkRoom(
  parts: Parts,
  workspaceId: string,
  { variant }: Pick<TrainSettings, "variant">,
): Promise<void> {
  const { parameters = 0 } = variantRecords().find((one) => one.variant === variant) ?? {};
  return checkQuota(parts, workspaceId, parameters * Float32Array.BYTES_PER_ELEMENT);
}

/** The split of a version, in the words of a run's settings. */
const splitOf = ({ settings: { include, valShare } }: VersionRow) => ({
  include,
  val_share: valShare,
});

/**
 * Writes down what the run learns from, stores the run and hands it to the nodes. Fails with
 * `quota_exceeded` where the workspace's storage is full.
 */
export async function startRun(parts: Parts, data: RunData, run: NewRun): Promise<string> {
  const settings = "job" in data ? run.settings : { ...run.settings, ...splitOf(data.version) };
  const { workspaceId, projectId } = data;
  const runId = crypto.randomUUID();
  await startingWeights(parts.database, workspaceId, settings.pretrained);
  await checkInstalled(parts.database, workspaceId, settings);
  await checkRoom(parts, workspaceId, settings);
  const key = manifestKey({ workspaceId, runId });
  const { dataset, classes } =
    "job" in data
      ? await writeDataset(parts, data.job, { key, split: settings })
      : await copyVersion(parts, data.version, { key, task: settings.task });
  const jobId = "job" in data ? data.job.id : null;
  const versionId = "version" in data ? data.version.id : null;
  await parts.database
    .execute(sql`
      INSERT INTO training_run (id, workspace_id, project_id, job_id, dataset_version_id, name,
        notes, settings, classes, dataset, created_by)
      VALUES (${runId}::uuid, ${workspaceId}::uuid, ${projectId}::uuid, ${jobId}::uuid,
        ${versionId}::uuid, ${run.name}, ${run.notes}, ${JSON.stringify(settings)}::jsonb,
        ARRAY(SELECT jsonb_array_elements_text(${JSON.stringify(classes)}::jsonb)),
        ${JSON.stringify(dataset)}::jsonb, ${run.createdBy}::uuid)`)
    .catch(async (thrown: unknown) => {
      // A run that may have been recorded keeps its dataset.
      if (!isSilent(thrown)) await parts.bucket.delete(key);
      if (!breaksReference(thrown)) throw thrown;
      const what = "job" in data ? "job" : "dataset";
      throw new Failure("not_found", `the ${what} was deleted meanwhile`, { cause: thrown });
    });
  try {
    await enqueueRun(parts, await findRun(parts.database, [workspaceId], runId));
  } catch (error) {
    // The run is there, so a repeated request must start no other: the next minute hands it over.
    parts.log.error("run_not_enqueued", { run_id: runId, error });
  }
  return runId;
}

/** Enqueues the task of a run's round. May be called again: a round has one task. */
export async function enqueueRun(parts: Parts, run: RunRow): Promise<void> {
  const { database } = parts;
  const { runId, workspaceId, round, settings, checkpoint } = run;
  const { manifest, sources } = await datasetOf(database, runId);
  const pretrained = await startingWeights(database, workspaceId, settings.pretrained).catch(
    (thrown: unknown) => {
      // A checkpoint holds all that came of them.
      if (checkpoint && thrown instanceof Failure && thrown.code === "not_found") return null;
      throw thrown;
    },
  );
  const payload: TaskPayload<"train"> & { round: number } = {
    run_id: runId,
    name: run.name,
    round,
    settings,
    pretrained,
    manifest: source(manifest.key, manifest.bytes),
    videos: sources.map(({ key, bytes }) => source(key, bytes)),
    resume: checkpoint && resumeFrom(checkpoint),
  };
  const task = { kind: "train" as const, workspaceId, subject: subjectOf(runId), payload };
  await submit(parts, [{ ...task, idempotencyKey: `${subjectOf(runId)}:${round}` }]);
  // A run may be stopped before its task is there to be canceled.
  const now = await existingRun(database, workspaceId, runId);
  const wanted = now?.round === round && (now.state === "queued" || now.state === "running");
  if (!wanted) await requestCancel(database, { subject: subjectOf(runId) });
}

/** What a payload says of the checkpoint that its task goes on from. */
export const resumeFrom = ({ key, bytes, epoch, batch }: Checkpoint) => ({
  checkpoint: source(key, bytes),
  at: { key, bytes, epoch, batch },
});

async function datasetOf(database: Database, runId: string): Promise<RunDataset> {
  const { rows } = await database.execute<{ dataset: RunDataset }>(
    sql`SELECT dataset FROM training_run WHERE id = ${runId}::uuid`,
  );
  if (!rows[0]) throw new Failure("not_found", "no such run in your workspaces");
  return rows[0].dataset;
}

/** How many videos of a run's dataset were deleted: without them it cannot go on. */
export async function missingVideos(database: Database, runId: string): Promise<number> {
  const { videos } = await datasetOf(database, runId);
  const { rows } = await database.execute<{ there: number }>(
    sql`SELECT count(*)::int AS there FROM video WHERE id IN ${idList(videos)}`,
  );
  return videos.length - (rows[0]?.there ?? 0);
}
