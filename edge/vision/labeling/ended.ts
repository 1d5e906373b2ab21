// What becomes of a job when one of its tasks ended or went on: annotations are stored in the same
// statement that settles the task, so a result that is delivered twice changes nothing.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import type { JobStatus } from "../../../shared/labeling.ts";
import { type FrameDetections, TASK_KINDS, type TaskResult } from "../../../shared/tasks.ts";
import type { Database } from "../../http/database.ts";
import type { Parts } from "../base/parts.ts";
import { publish } from "../progress/progress.ts";
import type { Task } from "../tasks/queue.ts";
import { findJob, type JobRow, moveJob, planJob, statusOf, subjectOf, topicOf } from "./jobs.ts";
import { derivedId } from "./plan.ts";
import { trackJob } from "./tracks.ts";

/** The job that a task is part of; null when it was deleted. */
async function jobOf({ database }: Parts, task: Task): Promise<JobRow | null> {
  const jobId = task.subject.slice(subjectOf("").length);
  return existingJob(database, task.workspaceId, jobId);
}

/** Null only for a job that is gone: what a database that is away hides must not be given up. */
async function existingJob(
  database: Database,
  workspaceId: string,
  jobId: string,
): Promise<JobRow | null> {
  try {
    return await findJob(database, [workspaceId], jobId);
  } catch (thrown) {
    if (thrown instanceof Failure && thrown.code === "not_found") return null;
    throw thrown;
  }
}

/** A node reported how far a label task is. */
export async function labelProgressed(parts: Parts, task: Task): Promise<void> {
  const job = await jobOf(parts, task);
  if (!job) return;
  const now = parts.clock();
  if (await beginJob(parts, job, now)) job.state = "running";
  const status = await statusOf(parts.database, job, now);
  await publish(parts, topicOf(job), [{ type: "batch", data: liveData(status) }]);
}

/** A label task ended, however it did. May be called again for the same task. */
export async function labelEnded(parts: Parts, task: Task): Promise<void> {
  const job = await jobOf(parts, task);
  if (!job) return settleOnly(parts, task);
  // A finished task's was checked when it was reported; a cancelled one's may be of any shape.
  const found = TASK_KINDS.label.result.safeParse(task.result);
  const ended = task.state === "finished" || task.state === "cancelled";
  const result = ended && found.success ? found.data : null;
  await store(parts, { job, task, result });
  await beginJob(parts, job, parts.clock());
  await advanceJob(parts, job.id, job.workspaceId);
}

async function settleOnly({ database }: Parts, task: Task) {
  await database.execute(sql`
    UPDATE task SET settled_at = now() WHERE id = ${task.taskId}::uuid AND settled_at IS NULL`);
}

const beginJob = ({ database }: Parts, job: JobRow, now: number) =>
  moveJob(
    database,
    job.id,
    "begin",
    sql`, started_at = coalesce(started_at, now()),
      settings = settings || jsonb_build_object('since', ${now}::float8)`,
  );

interface Stored {
  job: JobRow;
  task: Task;
  result: TaskResult<"label"> | null;
}

/** Stores what a task found and settles it, in one statement. */
async function store({ database }: Parts, { job, task, result }: Stored): Promise<void> {
  const { pass, video_id: videoId } = task.payload as { pass: number; video_id: string };
  const rows = await annotationRows(job, videoId, pass, result?.frames ?? []);
  const done = result?.frames.map(({ frame_index }) => frame_index) ?? [];
  const kept = { done, segmenter: result?.segmenter ?? null, seconds: result?.seconds ?? null };
  await database.execute(sql`
    WITH t AS (
      UPDATE task SET settled_at = now(), result = ${JSON.stringify(kept)}::jsonb
       WHERE id = ${task.taskId}::uuid AND settled_at IS NULL RETURNING id)
    ${insertAnnotations(job, sql`FROM t,`, rows)}`);
}

export interface AnnotationInsert {
  id: string;
  video: string;
  frame: number;
  class: string;
  bbox: readonly number[];
  confidence: number | null;
  track: number | null;
  duplicate: string | null;
  polygon: readonly number[] | null;
}

/** Inserts annotations of a job's classes; one that is there already stays as it is. */
export const insertAnnotations = (
  job: Pick<JobRow, "id" | "workspaceId">,
  from: SQL,
  rows: readonly AnnotationInsert[],
  source: "model" | "import" = "model",
): SQL => sql`
  INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number,
    x1, y1, x2, y2, confidence, source, track_id, duplicate_of, polygon)
  SELECT (r->>'id')::uuid, ${job.workspaceId}::uuid, ${job.id}::uuid, (r->>'video')::uuid,
    (r->>'frame')::int, c.number, (r->'bbox'->>0)::real, (r->'bbox'->>1)::real,
    (r->'bbox'->>2)::real, (r->'bbox'->>3)::real, (r->>'confidence')::real, ${source},
    (r->>'track')::int, (r->>'duplicate')::uuid, nullif(r->'polygon', 'null')
    ${from} jsonb_array_elements(${JSON.stringify(rows)}::jsonb) r
    JOIN job_class c ON c.job_id = ${job.id}::uuid AND c.name = r->>'class'
  ON CONFLICT (id) DO NOTHING`;

async function annotationRows(
  job: JobRow,
  videoId: string,
  pass: number,
  frames: readonly FrameDetections[],
): Promise<AnnotationInsert[]> {
  const rows: AnnotationInsert[] = [];
  for (const { frame_index: frame, detections } of frames) {
    const ids = await Promise.all(
      detections.map((_, place) => derivedId(job.id, pass, videoId, frame, place)),
    );
    for (const [place, found] of detections.entries()) {
      rows.push({
        id: ids[place] as string,
        video: videoId,
        frame,
        class: found.class_name,
        bbox: found.bbox,
        confidence: found.confidence,
        track: null,
        polygon: found.polygon,
        duplicate: found.duplicate_of === null ? null : (ids[found.duplicate_of] ?? null),
      });
    }
  }
  return rows;
}

/** How the tasks of a job's current round stand. */
interface Counted extends Record<string, unknown> {
  open: number;
  planned: boolean;
  cut: number;
  failed: string | null;
}

/** Ends a job whose tasks have all ended, and tells its topic how it stands. */
export async function advanceJob(parts: Parts, jobId: string, workspaceId: string): Promise<void> {
  const { database } = parts;
  const { rows } = await database.execute<Counted>(sql`
    SELECT (count(*) FILTER (WHERE t.settled_at IS NULL))::int AS open,
      coalesce((SELECT (settings->>'planned')::int = (settings->>'round')::int FROM job
        WHERE id = ${jobId}::uuid), false) AS planned,
      (count(*) FILTER (WHERE t.state IN ('cancelled', 'revoked')))::int AS cut,
      min(coalesce(t.errors->-1->>'detail', 'a task failed')) FILTER (WHERE t.state = 'failed')
        AS failed
      FROM task t JOIN job j ON j.id = ${jobId}::uuid
     WHERE t.subject = ${subjectOf(jobId)} AND t.kind = 'label'
       AND (t.payload->>'round')::int = (j.settings->>'round')::int`);
  const [counted] = rows;
  if (!counted) return;
  // A round whose tasks are not enqueued yet has no open ones either.
  const before = await existingJob(database, workspaceId, jobId);
  if (!before) return;
  const ends = isLive(before) && counted.planned && counted.open === 0;
  const job = ends ? await endJob(parts, before, counted) : before;
  const status = await statusOf(database, job, parts.clock());
  const data = liveData(status);
  if (isLive(job)) {
    await publish(parts, topicOf(job), [{ type: "batch", data }]);
    return;
  }
  const error = { type: "error" as const, data: { detail: job.failure } };
  await publish(parts, topicOf(job), [
    { type: "state", data },
    ...(job.state === "failed" ? [error] : []),
    { type: "end", data },
  ]);
}

const isLive = ({ state }: JobRow) => state === "queued" || state === "running";

/** The move that the ended tasks call for, and the job after it. */
async function endJob(
  { database }: Parts,
  job: JobRow,
  { failed, cut }: { failed: string | null; cut: number },
): Promise<JobRow> {
  const ended = sql`, ended_at = now()`;
  await trackJob(database, job);
  if (cut > 0) await moveJob(database, job.id, "stop", ended);
  else if (failed !== null) {
    await moveJob(database, job.id, "fail", sql`${ended}, failure = ${failed}`);
  } else await moveJob(database, job.id, "complete", ended);
  return findJob(database, [job.workspaceId], job.id);
}

/** The numbers of `/status`, as the live topic carries them. */
export const liveData = (status: JobStatus): Record<string, unknown> => ({ ...status });

/**
 * Takes up what a crash left half done: rounds that were not planned, jobs that were not ended. One
 * that cannot be taken up holds up no other.
 */
export async function resumeJobs(parts: Parts): Promise<void> {
  const { rows } = await parts.database.execute<{ id: string; workspace_id: string }>(sql`
    SELECT id, workspace_id FROM job WHERE state IN ('queued', 'running')
       AND created_at < now() - interval '30 seconds' ORDER BY random() LIMIT 100`);
  for (const { id, workspace_id: workspaceId } of rows) {
    try {
      const job = await findJob(parts.database, [workspaceId], id);
      if (job.settings.planned < job.settings.round) await planJob(parts, job);
      await advanceJob(parts, id, workspaceId);
    } catch (error) {
      parts.log.error("job_not_taken_up", { job_id: id, error });
    }
  }
}
