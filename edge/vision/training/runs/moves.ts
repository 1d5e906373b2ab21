// A run's life after its start, as people decide it: edit, stop, resume, delete, force-fail.

import { sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import { BEST_WEIGHTS } from "../../../../shared/wire/training.ts";
import { batch } from "../../../http/database.ts";
import { jsonb } from "../../../http/storable.ts";
import type { Act } from "../../auth/audit.ts";
import { mayMove } from "../../auth/logged-moves.ts";
import { discardObjects } from "../../base/discard.ts";
import type { Parts } from "../../base/parts.ts";
import { listModels, lockRegistry, type ModelRow } from "../../models/registry.ts";
import { startingWeights } from "../../models/weights.ts";
import { publish } from "../../tasks/progress/progress.ts";
import { deliverEnded } from "../../tasks/queue/delivery.ts";
import { requestCancel, requestRevoke } from "../../tasks/queue/interventions.ts";
import { announceEnd, insertModel, stopUntold, testMetricsOf, trainEnded } from "./ended.ts";
import { weightsLack } from "./objects.ts";
import {
  checkRoom,
  enqueueRun,
  findRun,
  folderOf,
  missingVideos,
  moveRun,
  type RunRow,
  statesFor,
  subjectOf,
  topicOf,
} from "./runs.ts";
import { hasEnded, MOVES } from "./states.ts";

/** Renames a run, or notes something on it. */
export async function editRun(
  { database }: Parts,
  { runId }: RunRow,
  { name, notes }: { name?: string | undefined; notes?: string | undefined },
): Promise<void> {
  await database.execute(sql`
    UPDATE training_run SET name = coalesce(${name ?? null}, name),
      notes = coalesce(${notes ?? null}, notes) WHERE id = ${runId}::uuid`);
}

/**
 * Asks for a graceful stop: a node that is at it registers the weights as they are then, within
 * some heartbeats; a run that no node has is stopped at once. Asking again changes nothing.
 */
export async function stopRun(parts: Parts, run: RunRow): Promise<void> {
  const { database } = parts;
  const { rows } = await database.execute(sql`
    UPDATE training_run SET stop_requested_at = coalesce(stop_requested_at, now())
     WHERE id = ${run.runId}::uuid AND state IN ${statesFor("stop")} RETURNING id`);
  if (rows.length === 0) {
    const now = await findRun(database, [run.workspaceId], run.runId);
    throw new Failure("state_conflict", `the run is ${now.state}: there is nothing to stop`);
  }
  const tasks = await requestCancel(database, { subject: subjectOf(run.runId) });
  await deliverEnded(parts, { train: { ended: trainEnded } }, tasks);
  if (!(await hasTask(parts, run))) await stopUntold(parts, run);
}

async function hasTask({ database }: Parts, { runId, round }: RunRow): Promise<boolean> {
  const { rows } = await database.execute(sql`
    SELECT FROM task WHERE idempotency_key = ${`${subjectOf(runId)}:${round}`}`);
  return rows.length > 0;
}

/**
 * Goes on with a run that was stopped or failed: from its checkpoint, or from the beginning where
 * it has none. `epochs` is how many it shall have in all. Fails with `quota_exceeded` where the
 * workspace's storage is full.
 */
export async function resumeRun(
  parts: Parts,
  run: RunRow,
  { epochs = run.settings.epochs }: { epochs?: number | undefined },
): Promise<RunRow> {
  const { database } = parts;
  const { runId, workspaceId, round, checkpoint, artifacts } = run;
  if (!mayMove(MOVES.resume, run.state)) {
    throw new Failure("state_conflict", `the run is ${run.state}: there is nothing to resume`);
  }
  const done = checkpoint?.epoch ?? 0;
  if (epochs < done) {
    throw new Failure("invalid_request", `epochs: the run has done ${done} of them already`);
  }
  const missing = await missingVideos(database, runId);
  if (missing > 0) {
    const videos = missing === 1 ? "a video" : `${missing} videos`;
    throw new Failure("state_conflict", `${videos} of the run's dataset were deleted: start anew`);
  }
  if (!checkpoint) await refuseWithoutWeights(parts, run);
  await checkRoom(parts, workspaceId, run.settings);
  const { from, to } = { from: statesFor("resume"), to: MOVES.resume.to };
  const [rows] = await batch<[unknown, unknown]>(database, [
    sql`
      UPDATE training_run SET state = ${to}, round = round + 1, failure = NULL, ended_at = NULL,
        stop_requested_at = NULL, live = '{}', checkpoint = checkpoint - 'fence',
        test_metrics = NULL,
        best_epoch = CASE WHEN checkpoint IS NOT NULL THEN best_epoch END,
        best_metrics = CASE WHEN checkpoint IS NOT NULL THEN best_metrics END,
        settings = settings || jsonb_build_object('epochs', ${epochs}::int)
       WHERE id = ${runId}::uuid AND round = ${round}::int AND state IN ${from} RETURNING id`,
    // From the beginning: what was learned before is no part of it.
    sql`
      DELETE FROM training_epoch WHERE run_id IN (SELECT id FROM training_run
        WHERE id = ${runId}::uuid AND round = ${round + 1}::int AND state = ${to}
          AND checkpoint IS NULL)`,
  ]);
  if (rows.length === 0) {
    throw new Failure("state_conflict", "the run is no more stopped or failed");
  }
  // A database that is set back to the end of the round before names them again.
  const ofRound = [checkpoint, ...artifacts].flatMap((object) => object?.key ?? []);
  await discardObjects(parts, ofRound);
  const resumed = await findRun(database, [workspaceId], runId);
  await enqueueRun(parts, resumed);
  return resumed;
}

async function refuseWithoutWeights({ database }: Parts, run: RunRow): Promise<void> {
  try {
    await startingWeights(database, run.workspaceId, run.settings.pretrained);
  } catch (thrown) {
    if (!(thrown instanceof Failure) || thrown.code !== "not_found") throw thrown;
    const detail = "the weights that the run starts from were deleted: start anew";
    throw new Failure("state_conflict", detail, { cause: thrown });
  }
}

/**
 * Registers the best weights of a run that has ended, which a stop passes over for the latest.
 * Asking again returns the same model. Fails with `state_conflict` before the run's end, and where
 * it left no such weights.
 */
export async function registerBest(parts: Parts, run: RunRow): Promise<ModelRow> {
  const { database } = parts;
  const { runId, workspaceId, round, state, checkpoint } = run;
  const refused = (why: string) => new Failure("state_conflict", `the run ${why}`);
  if (!hasEnded(state)) throw refused(`is ${state}: stop it first`);
  const best = run.artifacts.find(({ name }) => name === BEST_WEIGHTS);
  if (!best) throw refused("has no best weights: no epoch was measured, or they were deleted");
  const registered = async () => {
    const models = await listModels(database, [workspaceId], { runId });
    return models.find(({ storageKey }) => storageKey === best.key);
  };
  const known = await registered();
  if (known) return known;
  const { key, model } = best;
  // A checkpoint is deleted once there is a later one.
  if (model?.weights.key !== key || key === checkpoint?.key) {
    throw refused("has best weights that its node did not describe");
  }
  const lack = await weightsLack(parts, run, model.weights);
  if (lack) {
    // Another request may have registered them since: they are a model's then.
    const meanwhile = await registered();
    if (meanwhile) return meanwhile;
    throw refused(`has no best weights to register: ${lack}`);
  }
  await batch(database, [
    lockRegistry(workspaceId),
    sql`
    WITH held AS (
      SELECT * FROM training_run WHERE id = ${runId}::uuid AND round = ${round}::int
         AND state = ${state} AND artifacts @> ${jsonb([{ key }])}
         AND NOT EXISTS (SELECT FROM model WHERE storage_key = ${key}) FOR UPDATE
    ), registered AS (${insertModel(model, { round: sql`NULL::int` })})
    UPDATE training_run r SET best_epoch = ${model.epoch}::int,
      best_metrics = ${jsonb(model.metrics)}, test_metrics = ${testMetricsOf(model)} FROM held WHERE r.id = held.id`,
  ]);
  const made = await registered();
  if (!made) throw refused("was resumed or deleted meanwhile");
  return made;
}

/** Deletes a run and what it left, ending its process; models that it registered stay. */
export async function deleteRun(parts: Parts, run: RunRow): Promise<void> {
  const { database } = parts;
  await requestRevoke(database, { subject: subjectOf(run.runId) });
  await database.execute(sql`DELETE FROM training_run WHERE id = ${run.runId}::uuid`);
  // What its process still writes goes when its exit is known.
  // The weights of its models stay.
  await discardObjects(parts, [folderOf(run)]);
  const data = { run_id: run.runId, deleted: true };
  await publish(parts, topicOf(run), [{ type: "end", data }]);
}

/** Fails a run whatever its node does: nothing that comes of it later is taken. */
export async function failRun(
  parts: Parts,
  run: RunRow,
  { reason, act }: { reason: string; act: Act },
): Promise<void> {
  const { database } = parts;
  const set = sql`, ended_at = now(), failure = ${reason}`;
  if (!(await moveRun(database, run, "fail", { set, act }))) {
    const now = await findRun(database, [run.workspaceId], run.runId);
    throw new Failure("state_conflict", `the run has ended: it is ${now.state}`);
  }
  await requestRevoke(database, { subject: subjectOf(run.runId) });
  await announceEnd(parts, run);
}
