// Where a labeling job stands: the same numbers for pollers and for the live topic.

import { sql } from "drizzle-orm";
import { assert } from "../../../../shared/errors.ts";
import type { TaskIntervention } from "../../../../shared/tasks/task-intervention.ts";
import type { JobProgress } from "../../../../shared/wire/labeling.ts";
import type { Database } from "../../../http/database.ts";
import { offering } from "../../tasks/nodes/nodes.ts";
import { newestIntervention } from "../../tasks/queue/interventions.ts";
import { isLive, type JobRow, passesOf, subjectOf, topicOf } from "./jobs.ts";
import { etaSeconds } from "./plan.ts";

interface StatusCounts extends Record<string, unknown> {
  /** Frames that the passes of the current round looked at, ever, and in the round alone. */
  done: number;
  done_now: number;
  /** Tasks of those passes by state. */
  queued: number;
  running: number;
  finished: number;
  failed: number;
  /** Annotations stored. */
  stored: number;
  intervention: TaskIntervention | null;
  nodes: number;
}

/** The status of a job at an instant (epoch milliseconds). */
export async function statusOf(database: Database, job: JobRow, now: number): Promise<JobProgress> {
  const { passes } = job.settings;
  const current = passesOf(job);
  const searching = current.filter((pass) => (passes[pass]?.length ?? 0) > 0);
  const counting = searching.length > 0 ? searching : current;
  const { rows } = await database.execute<StatusCounts>(sql`
    WITH own AS (
      SELECT state, (payload->>'round')::int AS round,
        CASE WHEN settled_at IS NOT NULL THEN jsonb_array_length(result->'done')
          ELSE greatest((progress->>'done')::int, jsonb_array_length(frames_done)) END AS done
        FROM task
       WHERE subject = ${subjectOf(job.id)} AND kind = 'label'
         AND (payload->>'pass')::int IN (
           SELECT p::int FROM jsonb_array_elements_text(${JSON.stringify(counting)}::jsonb) p))
    SELECT
      coalesce(sum(done), 0)::int AS done,
      coalesce(sum(done) FILTER (WHERE round = ${job.settings.round}::int), 0)::int AS done_now,
      (count(*) FILTER (WHERE state = 'queued'))::int AS queued,
      (count(*) FILTER (WHERE state = 'running'))::int AS running,
      (count(*) FILTER (WHERE state = 'finished'))::int AS finished,
      (count(*) FILTER (WHERE state = 'failed' AND round = ${job.settings.round}::int))::int AS failed,
      (SELECT coalesce(sum(annotations), 0) FROM annotation_count
        WHERE job_id = ${job.id}::uuid)::int AS stored,
      ${newestIntervention(sql`t.subject = ${subjectOf(job.id)} AND t.kind = 'label'
        AND (t.payload->>'round')::int = ${job.settings.round}::int`)} AS intervention,
      ${offering("label", sql`${job.workspaceId}::uuid`)} AS nodes
    FROM own`);
  const [counted] = rows;
  assert(counted, "an aggregate answers one row");
  // A frame is done once each pass has looked at it.
  const looked = (frames: number) => Math.floor(frames / counting.length);
  const live = isLive(job);
  const total = job.framesTotal;
  // Copies and imports are done without a task of their own.
  const done = job.state === "completed" ? total : Math.min(looked(counted.done), total);
  const elapsed = live && job.settings.since ? now - job.settings.since : 0;
  // The clock of a resumed job started with its round.
  const doneNow = Math.min(looked(counted.done_now), done);
  const remaining = { framesDone: doneNow, framesTotal: total - (done - doneNow) };
  const eta = live ? etaSeconds(remaining, elapsed) : null;
  return {
    job_id: job.id,
    status: job.state,
    failure: job.failure,
    frames_done: done,
    frames_total: total,
    progress: total === 0 ? 1 : done / total,
    stored_annotations: counted.stored,
    frames_per_second: elapsed > 0 && doneNow > 0 ? (doneNow * 1_000) / elapsed : null,
    eta_seconds: eta,
    tasks: {
      queued: counted.queued,
      running: counted.running,
      finished: counted.finished,
      failed: counted.failed,
    },
    intervention: counted.intervention,
    waiting_for: live && counted.nodes === 0 ? "no GPU node is there: npm run gpu-node" : null,
    topic: topicOf(job),
  };
}

/** The numbers of `/status`, as the live topic carries them. */
export const liveData = (status: JobProgress): Record<string, unknown> => ({ ...status });
