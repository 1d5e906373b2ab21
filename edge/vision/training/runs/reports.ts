// A node said how far a run is. A report may come many times, late, and after a newer one: what it
// says of an epoch is stored once, and what it says of the present only while nothing newer did.

import { type SQL, sql } from "drizzle-orm";
import type { TaskProgress } from "../../../../shared/tasks/node-protocol.ts";
import { type Checkpoint, TrainDetail } from "../../../../shared/tasks/train-task.ts";
import type { RunEpoch } from "../../../../shared/wire/training.ts";
import { batch } from "../../../http/database.ts";
import { jsonb } from "../../../http/storable.ts";
import { deleteUnlisted } from "../../base/discard.ts";
import type { Parts } from "../../base/parts.ts";
import type { NewEvent } from "../../tasks/progress/progress.ts";
import { publish } from "../../tasks/progress/progress.ts";
import { requestRevoke } from "../../tasks/queue/interventions.ts";
import { amendPayload, type TaskHead } from "../../tasks/queue/queue.ts";
import { batchEvent, checkpointEvent, epochEvents, logEvents, stateEvent } from "./events.ts";
import { takenCheckpoint } from "./objects.ts";
import {
  existingRun,
  type Live,
  type RunRow,
  resumeFrom,
  runOfSubject,
  runRecord,
  statesFor,
} from "./runs.ts";

/** A node reported how far a train task is. */
export async function trainReported(
  parts: Parts,
  task: TaskHead,
  { detail: given }: TaskProgress,
): Promise<void> {
  const parsed = TrainDetail.safeParse(given);
  const detail = parsed.success ? parsed.data : null;
  const runId = runOfSubject(task.subject);
  const named = detail?.checkpoint ?? null;
  const checkpoint = named && (await checkpointOf(parts, { ...task, runId }, named));
  const epochs = newestOf(detail?.recent ?? []);
  const kept = await keep(parts, task, { runId, detail, checkpoint, epochs });
  if (!kept) {
    // The run ended, was taken to another round, or is gone: nobody wants the rest.
    await requestRevoke(parts.database, { taskIds: [task.taskId] });
    return;
  }
  await rememberCheckpoint(parts, task, kept);
  const run = await existingRun(parts.database, task.workspaceId, runId);
  if (run) await publish(parts, kept.topic, eventsOf(run, kept, { detail, epochs }));
  if (given && Object.keys(given).length > 0 && !parsed.success) {
    parts.log.warning("train_progress_unread", { run_id: runId, issues: parsed.error.issues });
  }
}

/** The checkpoint that a report names, if it may be gone on from; it comes with every report. */
async function checkpointOf(
  parts: Parts,
  run: { workspaceId: string; runId: string },
  named: Checkpoint,
): Promise<Checkpoint | null> {
  const { rows } = await parts.database.execute<{ held: Checkpoint | null }>(
    sql`SELECT checkpoint AS held FROM training_run WHERE id = ${run.runId}::uuid`,
  );
  const held = rows[0]?.held;
  if (held?.key === named.key && held.bytes === named.bytes) return named;
  const taken = await takenCheckpoint(parts, run, named);
  if (!taken) parts.log.warning("checkpoint_not_taken", { run_id: run.runId, key: named.key });
  return taken;
}

/** Each epoch once, by its number. */
const newestOf = (recent: readonly RunEpoch[]) => [
  ...new Map(recent.map((one) => [one.epoch, one])).values(),
];

interface RunReport {
  runId: string;
  detail: TrainDetail | null;
  checkpoint: Checkpoint | null;
  epochs: readonly RunEpoch[];
}

interface ReportEffect extends Record<string, unknown> {
  topic: string;
  /** The state of the run before the report. */
  state: RunRow["state"];
  /** The newest line of the log that was told before. */
  logged: number;
  /** The run's checkpoint before the report. */
  before: Checkpoint | null;
  /** The run's checkpoint after the report. */
  checkpoint: Checkpoint | null;
  /** What the task's next attempt would go on from. */
  resume: string | null;
  /** Whether no newer report came before. */
  newer: boolean;
  /** Numbers of the epochs that were new, or changed. */
  epochs: number[];
}

/** Stores what a report says, and begins the run; null where the task is none of a live run. */
async function keep(
  { database }: Parts,
  task: TaskHead,
  report: RunReport,
): Promise<ReportEffect | null> {
  const { runId, detail, checkpoint, epochs } = report;
  const run = sql`${runId}::uuid`;
  const live: Live & Record<string, unknown> = {
    fence: task.fence,
    epoch: detail?.epoch ?? 0,
    batch: detail?.batch ?? 0,
    ...(detail && { batches: detail.batches, losses: detail.losses }),
    ...(detail && { eta_seconds: detail.eta_seconds }),
  };
  const logged = Math.max(0, ...(detail?.log ?? []).map(({ n }) => n));
  const progressMark = (of: SQL) => sql`(coalesce((${of}->>'fence')::bigint, 0),
    coalesce((${of}->>'epoch')::int, 0), coalesce((${of}->>'batch')::int, 0))`;
  const mark = checkpoint && { ...checkpoint, fence: task.fence };
  const further = mark
    ? sql`${progressMark(jsonb(mark))} > ${progressMark(sql`r.checkpoint`)}`
    : sql`false`;
  const statement = sql`
    WITH held AS (
      SELECT r.id, r.state, r.round,
        -- An attempt from the beginning counts its lines from 1 again.
        CASE WHEN ${task.fence}::bigint > (r.live->>'fence')::bigint
            AND ${logged}::int < (r.live->>'log')::int THEN 0
          ELSE coalesce((r.live->>'log')::int, 0) END AS logged,
        r.checkpoint AS before, t.payload->'resume'->'at'->>'key' AS resume,
        ${progressMark(jsonb(live))} >= ${progressMark(sql`r.live`)} AS newer,
        ${further} AS further
        FROM training_run r JOIN task t ON t.id = ${task.taskId}::uuid
         AND t.fence = ${task.fence}::bigint AND (t.payload->>'round')::int = r.round
       WHERE r.id = ${run} AND r.state IN ('queued', 'running') FOR UPDATE OF r),
    stored AS (
      INSERT INTO training_epoch AS e (run_id, epoch, record)
      SELECT held.id, (one->>'epoch')::int, one
        FROM held, jsonb_array_elements(${jsonb(epochs)}) one
      ON CONFLICT (run_id, epoch) DO UPDATE SET record = excluded.record
        WHERE e.record <> excluded.record RETURNING epoch),
    now AS (
      UPDATE training_run r SET started_at = coalesce(r.started_at, now()),
        state = CASE WHEN r.state IN ${statesFor("begin")} THEN 'running' ELSE r.state END,
        live = CASE WHEN newer THEN ${jsonb(live)} ELSE r.live END
          || jsonb_build_object('log', greatest(logged, ${logged}::int)),
        resolved = coalesce(${detail?.resolved ? jsonb(detail.resolved) : null}, r.resolved),
        checkpoint = CASE WHEN further THEN ${jsonb(mark)} ELSE r.checkpoint END
        FROM held WHERE r.id = held.id RETURNING r.id, r.checkpoint)
    SELECT 'train:' || held.id || ':' || held.round AS topic, held.state, held.logged, held.before,
      now.checkpoint, held.resume, held.newer,
      (SELECT coalesce(json_agg(epoch ORDER BY epoch), '[]') FROM stored) AS epochs
      FROM held JOIN now ON now.id = held.id`;
  const [rows] = await batch<[ReportEffect, unknown]>(database, [statement, bestOf(runId)]);
  return rows[0] ?? null;
}

/** Notes which of a live run's epochs is its best. */
const bestOf = (runId: string): SQL => sql`
  UPDATE training_run r SET best_epoch = best.epoch, best_metrics = best.metrics
    FROM ${bestEpoch(runId)} best
   WHERE r.id = ${runId}::uuid AND r.state IN ('queued', 'running')
     AND (r.best_epoch, r.best_metrics) IS DISTINCT FROM (best.epoch, best.metrics)`;

/**
 * The first of the epochs with the highest score, as a row: `epochScore` in SQL. While every score
 * is 0 it is the newest, as on the node: who learned longer is ahead.
 */
export const bestEpoch = (runId: string): SQL => sql`(
  SELECT epoch, metrics FROM training_epoch, LATERAL (SELECT record->'metrics' AS metrics) m,
    LATERAL (SELECT (metrics->>'mAP50-95')::float8
      + coalesce(metrics->>'mask/mAP50-95', metrics->>'mAP50-95')::float8 AS score) s
   WHERE run_id = ${runId}::uuid AND score IS NOT NULL
   ORDER BY score DESC, CASE WHEN score = 0 THEN -epoch ELSE epoch END LIMIT 1)`;

/**
 * Has a later attempt go on from the newest checkpoint, and only then lets the one before it go: at
 * every moment the object that the payload names is there.
 */
async function rememberCheckpoint(
  parts: Parts,
  { taskId, fence }: TaskHead,
  { checkpoint, before, resume }: ReportEffect,
): Promise<void> {
  if (!checkpoint || checkpoint.key === resume) return;
  const amended = await amendPayload(
    parts.database,
    { taskId, fence },
    { resume: resumeFrom(checkpoint) },
  );
  const former = [before?.key, resume].filter((key) => key && key !== checkpoint.key) as string[];
  if (!amended || former.length === 0) return;
  await deleteUnlisted(parts, former);
}

function eventsOf(
  run: RunRow,
  kept: ReportEffect,
  { detail, epochs }: Pick<RunReport, "detail" | "epochs">,
): NewEvent[] {
  const fresh = new Set(kept.epochs);
  const { checkpoint, before } = kept;
  const { eta_seconds = null } = detail ?? {};
  return [
    ...(kept.state === "queued" ? [stateEvent(runRecord(run))] : []),
    ...logEvents((detail?.log ?? []).filter(({ n }) => n > kept.logged)),
    ...epochs
      .filter(({ epoch }) => fresh.has(epoch))
      .toSorted((one, other) => one.epoch - other.epoch)
      .flatMap((one) => epochEvents(one, { epochs: run.settings.epochs, eta_seconds })),
    ...(checkpoint && checkpoint.key !== before?.key ? [checkpointEvent(checkpoint)] : []),
    ...(detail && kept.newer ? [batchEvent(detail, run.settings.epochs)] : []),
  ];
}
