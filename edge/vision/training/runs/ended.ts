// What becomes of a run when its task ended: the run's end and its model come in one transaction,
// so a result that is delivered twice registers nothing twice. The registry never holds a half
// model: the weights are looked at in the store first.

import { type SQL, sql } from "drizzle-orm";
import { TASK_KINDS, type TaskResult } from "../../../../shared/tasks/tasks.ts";
import type { TrainedModel } from "../../../../shared/tasks/train-task.ts";
import type { ArtifactObject } from "../../../../shared/wire/training.ts";
import { batch } from "../../../http/database.ts";
import { pagesOf } from "../../../http/object-pages.ts";
import { jsonb } from "../../../http/storable.ts";
import { deleteUnlisted, discardObjects } from "../../base/discard.ts";
import type { Parts } from "../../base/parts.ts";
import { lockRegistry } from "../../models/registry.ts";
import { publish } from "../../tasks/progress/progress.ts";
import type { Task } from "../../tasks/queue/queue.ts";
import { endEvents, epochEvents } from "./events.ts";
import { modelsIn, takenArtifacts, takenCheckpoint, weightsLack } from "./objects.ts";
import { bestEpoch } from "./reports.ts";
import {
  existingRun,
  folderOf,
  manifestKey,
  moveRun,
  type RunRow,
  runOfSubject,
  runRecord,
  statesFor,
  topicOf,
} from "./runs.ts";
import { hasEnded, MOVES, type Move } from "./states.ts";

type Result = TaskResult<"train">;

/** Checks the weights that a training says it left; see `TaskHandlers.seal`. */
export async function sealTrain(
  parts: Parts,
  task: Task,
  { result }: { result: unknown },
): Promise<string | null> {
  const { model } = result as TaskResult<"train">;
  const run = await existingRun(parts.database, task.workspaceId, runOfSubject(task.subject));
  return run && model ? weightsLack(parts, run, model.weights) : null;
}

/** A train task ended, however it did. May be called again for the same task. */
export async function trainEnded(parts: Parts, task: Task): Promise<void> {
  const { database } = parts;
  const runId = runOfSubject(task.subject);
  const { workspaceId } = task;
  const run = await existingRun(database, workspaceId, runId);
  // The run was deleted while a node worked on it.
  if (!run) return discardObjects(parts, [folderOf({ workspaceId, runId })]);
  const { round } = task.payload as { round: number };
  if (run.round !== round) return;
  if (!hasEnded(run.state)) await endRun(parts, run, task);
  await announceEnd(parts, run);
}

/** Tells the topic of a run's round that it ended, and lets go of what nobody needs any more. */
export async function announceEnd(parts: Parts, { runId, workspaceId, round }: RunRow) {
  const run = await existingRun(parts.database, workspaceId, runId);
  if (run?.round !== round || !hasEnded(run.state)) return;
  await sweepFolder(parts, run);
  await publish(parts, topicOf(run), endEvents(runRecord(run)));
}

interface End {
  move: Move;
  failure: string | null;
  result: Result | null;
  /** The model to register; null where there is none. */
  model: Result["model"];
}

async function endRun(parts: Parts, run: RunRow, task: Task): Promise<void> {
  const end = await endOf(parts, run, task);
  const fresh = await store(parts, run, { end, begun: task.attempt > 0 });
  const { epochs } = run.settings;
  const events = (end.result?.history ?? [])
    .filter(({ epoch }) => fresh.includes(epoch))
    .flatMap((epoch) => epochEvents(epoch, { epochs }));
  if (events.length > 0) await publish(parts, topicOf(run), events);
}

/** What the task's end means for the run. */
async function endOf(parts: Parts, run: RunRow, task: Task): Promise<End> {
  const failed = (failure: string, result: Result | null = null): End => ({
    move: "fail",
    failure,
    result,
    model: null,
  });
  if (task.state === "failed") return failed(task.errors.at(-1)?.detail ?? "the training failed");
  // The result of a finished task was checked when it was reported; that of a canceled one may be
  // of any shape.
  const found = TASK_KINDS.train.result.safeParse(task.result);
  const told = (task.state === "finished" || task.state === "cancelled") && found.success;
  const result = told ? await ownObjects(parts, run, found.data) : null;
  const stopped = { move: "stop", failure: null, result, model: result?.model ?? null } as const;
  if (!result || result.stopped) return stopped;
  if (!result.model) return failed("the training ended before an epoch was evaluated", result);
  return { ...stopped, move: "complete" };
}

/** The result without objects that are not the run's own, or are not there. */
async function ownObjects(parts: Parts, run: RunRow, result: Result): Promise<Result> {
  const { checkpoint, artifacts } = result;
  return {
    ...result,
    artifacts: await takenArtifacts(parts, run, artifacts),
    checkpoint: checkpoint && (await takenCheckpoint(parts, run, checkpoint)),
  };
}

/** Ends the run in one transaction; returns the epochs that were not known before. */
async function store(
  { database }: Parts,
  run: RunRow,
  { end, begun }: { end: End; begun: boolean },
): Promise<number[]> {
  const { move, failure, result, model } = end;
  const { from, to } = { from: statesFor(move), to: MOVES[move].to };
  const own = sql`id = ${run.runId}::uuid AND round = ${run.round}::int`;
  const kept = (value: unknown, column: string) => (value ? jsonb(value) : sql.raw(`r.${column}`));
  const begin = sql`
    UPDATE training_run SET state = 'running', started_at = coalesce(started_at, now())
     WHERE ${own} AND ${begun}::boolean AND state IN ${statesFor("begin")}`;
  const epochs = sql`
    INSERT INTO training_epoch AS e (run_id, epoch, record)
    SELECT r.id, (one->>'epoch')::int, one
      FROM (SELECT id FROM training_run WHERE ${own} AND state IN ${from}) r,
        jsonb_array_elements(${jsonb(uniqueEpochs(result))}) one
    ON CONFLICT (run_id, epoch) DO UPDATE SET record = excluded.record
      -- Of a long run the result has less than what was told when an epoch was new.
      WHERE NOT e.record @> excluded.record RETURNING epoch`;
  // The trainer tells them all: others are of an attempt that was lost, and of weights that are.
  const lost = sql`
    DELETE FROM training_epoch WHERE ${result !== null}::boolean
      AND run_id IN (SELECT id FROM training_run WHERE ${own} AND state IN ${from})
      AND epoch NOT IN (SELECT e::int FROM jsonb_array_elements_text(
        ${jsonb(uniqueEpochs(result).map(({ epoch }) => epoch))}) e)`;
  const moved = sql`
    WITH held AS (
      SELECT * FROM training_run WHERE ${own} AND state IN ${from} FOR UPDATE
    ), registered AS (${model ? insertModel(model, { round: sql`round` }) : sql`SELECT`})
    UPDATE training_run r SET state = ${to}, failure = ${failure}, ended_at = now(),
      live = r.live - 'eta_seconds' - 'losses',
      resolved = ${kept(result?.resolved, "resolved")},
      artifacts = ${kept(result?.artifacts, "artifacts")},
      checkpoint = ${move === "complete" ? sql`NULL` : kept(result?.checkpoint, "checkpoint")},
      test_metrics = ${testMetricsOf(model)},
      best_epoch = coalesce(${model?.epoch ?? null}::int, best.epoch),
      best_metrics = coalesce(${model ? jsonb(model.metrics) : null}::jsonb, best.metrics)
      FROM held LEFT JOIN ${bestEpoch(run.runId)} best ON true WHERE r.id = held.id`;
  const statements = [lockRegistry(run.workspaceId), begin, epochs, lost, moved] as const;
  type Rows = [unknown, unknown, { epoch: number }, unknown, unknown];
  const [, , stored] = await batch<Rows>(database, statements);
  return stored.map(({ epoch }) => epoch);
}

const uniqueEpochs = (result: Result | null) => [
  ...new Map((result?.history ?? []).map((one) => [one.epoch, one])).values(),
];

/**
 * The next version of the run's name, of a run that is `held`. A round registers one; a model that
 * somebody asked for besides has no round.
 */
export const insertModel = (model: TrainedModel, { round }: { round: SQL }): SQL => {
  const { weights, parameters, metrics, confidence_bins: bins } = model;
  return sql`
  INSERT INTO model (id, workspace_id, project_id, run_id, round, name, version, variant, task,
    classes, image_size, parameters, storage_key, bytes, sha256, metrics,
    test_metrics, confidence_bins, created_by)
  SELECT ${crypto.randomUUID()}::uuid, workspace_id, project_id, id, ${round}, name,
    (SELECT coalesce(max(version), 0) + 1 FROM model m
      WHERE m.workspace_id = held.workspace_id AND m.name = held.name),
    settings->>'variant', settings->>'task', classes, (settings->>'image_size')::int,
    ${parameters}::bigint, ${weights.key}, ${weights.bytes}::bigint, ${weights.sha256},
    ${jsonb(metrics)}, ${testMetricsOf(model)}, ${bins ? jsonb(bins) : null}::jsonb, created_by
    FROM held
  ON CONFLICT (run_id, round) DO NOTHING`;
};

/** A model's metrics on the test frames; null of a node that does not measure them. */
export const testMetricsOf = (model: TrainedModel | null): SQL => {
  const metrics = model?.test_metrics ?? null;
  return sql`${metrics && jsonb(metrics)}::jsonb`;
};

/**
 * Deletes what attempts left that nobody names: checkpoints before the last, uploads that a crash
 * cut off. What the end of an earlier round named stays for its grace; what came after the run's
 * end is of a later round.
 */
async function sweepFolder(parts: Parts, run: RunRow): Promise<void> {
  const folder = folderOf(run);
  const ended = Date.parse(run.endedAt ?? "");
  const kept = new Set([
    ...[manifestKey(run), run.checkpoint?.key],
    ...run.artifacts.map(({ key }: ArtifactObject) => key),
    ...(await modelsIn(parts, folder)).map(({ key }) => key),
  ]);
  const left = ({ key, uploaded }: { key: string; uploaded: Date }) =>
    !kept.has(key) && uploaded.getTime() < ended;
  await deleteObjects(parts, folder, left).catch((error: unknown) =>
    parts.log.warning("run_not_swept", { run_id: run.runId, error }),
  );
}

async function deleteObjects(
  parts: Parts,
  prefix: string,
  wanted: (object: { key: string; uploaded: Date }) => boolean,
): Promise<void> {
  for await (const page of pagesOf(parts.bucket, prefix)) {
    const keys = page.filter(wanted).map(({ key }) => key);
    await deleteUnlisted(parts, keys);
  }
}

/** Stops a run of which no node was told. */
export async function stopUntold(parts: Parts, run: RunRow): Promise<void> {
  if (await moveRun(parts.database, run, "stop", { set: sql`, ended_at = now()` })) {
    await announceEnd(parts, run);
  }
}
