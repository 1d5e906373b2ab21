// What every minute brings for runs: it takes up what a crash left half done.

import { sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { Parts } from "../../base/parts.ts";
import { findTask, markTaken } from "../../tasks/queue/queue.ts";
import { announceEnd, stopUntold, trainEnded } from "./ended.ts";
import { stopRun } from "./moves.ts";
import { enqueueRun, existingRun, moveRun, type RunRow, taskKey } from "./runs.ts";

interface StrandedRun extends Record<string, unknown> {
  run: string;
  workspace: string;
  task: string | null;
  ended: boolean;
  stopRequested: boolean;
}

/**
 * Takes up runs that no node was told of, runs whose task ended and that did not, and stops that no
 * node heard of. One that cannot be taken up holds up no other.
 */
export async function resumeRuns(parts: Parts): Promise<void> {
  const ago = (interval: string) => sql`now() - ${interval}::interval`;
  const { rows } = await parts.database.execute<StrandedRun>(sql`
    SELECT r.id::text AS run, r.workspace_id::text AS workspace, t.id::text AS task,
      t.ended_at IS NOT NULL AS ended, r.stop_requested_at IS NOT NULL AS "stopRequested"
      FROM training_run r
      LEFT JOIN task t ON t.idempotency_key = ${taskKey(sql`r.id`, sql`r.round`)}
     WHERE r.state IN ('queued', 'running') AND r.created_at < ${ago("30 seconds")}
       AND (t.id IS NULL OR t.ended_at < ${ago("2 minutes")} OR (t.ended_at IS NULL
         AND t.cancel_requested_at IS NULL AND r.stop_requested_at < ${ago("30 seconds")}))
     ORDER BY random() LIMIT 100`);
  for (const row of rows) {
    try {
      await takeUp(parts, row);
    } catch (error) {
      parts.log.error("run_not_taken_up", { run_id: row.run, error });
    }
  }
}

async function takeUp(parts: Parts, row: StrandedRun): Promise<void> {
  const { database } = parts;
  if (row.task !== null && row.ended) {
    const task = await findTask(database, row.task);
    if (task) await trainEnded(parts, task);
    await markTaken(database, [row.task]);
    return;
  }
  const run = await existingRun(database, row.workspace, row.run);
  if (!run) return;
  if (row.task !== null) await stopRun(parts, run);
  else if (row.stopRequested) await stopUntold(parts, run);
  else await enqueueRun(parts, run).catch((thrown) => failUntold(parts, run, thrown));
}

/** Fails a run that can never be handed over: what it starts from was deleted. */
async function failUntold(parts: Parts, run: RunRow, thrown: unknown): Promise<void> {
  if (!(thrown instanceof Failure) || thrown.code !== "not_found") throw thrown;
  const failed = sql`, ended_at = now(), failure = ${thrown.message}`;
  if (await moveRun(parts.database, run, "fail", { set: failed })) await announceEnd(parts, run);
}
