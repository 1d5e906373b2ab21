// The rounds of a labeling job: each is a set of tasks over the frames that its pass has not
// labeled yet. A round is planned, begins with its first task and ends with its last; planning it
// again enqueues nothing twice.

import { sql } from "drizzle-orm";
import { assert, Failure } from "../../../../shared/errors.ts";
import type { ModelSource, Prompt } from "../../../../shared/tasks/tasks.ts";
import type { Database } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";
import { objectKeys } from "../../media/videos/videos.ts";
import { findModel, modelSource } from "../../models/registry.ts";
import { source, target } from "../../tasks/objects.ts";
import { publish } from "../../tasks/progress/progress.ts";
import { requestCancel } from "../../tasks/queue/interventions.ts";
import { submit } from "../../tasks/queue/wait.ts";
import { packTarget } from "../crops/packs.ts";
import { flagRepeats } from "./duplicates.ts";
import {
  existingJob,
  findJob,
  isLive,
  type JobRow,
  moveJob,
  passesOf,
  subjectOf,
  topicOf,
} from "./jobs.ts";
import { type Chunk, cutIntoChunks } from "./plan.ts";
import { liveData, statusOf } from "./status.ts";
import { trackPass } from "./tracks.ts";

const TASKS_PER_STATEMENT = 500;
/** Characters of the prompts that the tasks of one statement carry together. */
const PROMPTS_PER_STATEMENT_MAX = 8 * 1024 * 1024;

/**
 * Enqueues the tasks of a job's current round: of each pass the frames that it has not labeled and
 * that no task of the round has. May be called again, when a round was not planned to its end. A
 * job whose model was deleted meanwhile fails.
 */
export async function planJob(parts: Parts, job: JobRow): Promise<void> {
  const { settings } = job;
  try {
    for (const pass of passesOf(job)) await planPass(parts, job, pass);
  } catch (thrown) {
    if (!(thrown instanceof Failure && thrown.code === "not_found")) throw thrown;
    const failure = "the model that labels was deleted";
    await moveJob(parts.database, job.id, "fail", {
      set: sql`, ended_at = now(), failure = ${failure}`,
    });
    await requestCancel(parts.database, { subject: subjectOf(job.id) });
  }
  await parts.database.execute(sql`
    UPDATE job SET settings = settings || jsonb_build_object('planned', ${settings.round}::int)
     WHERE id = ${job.id}::uuid AND (settings->>'round')::int = ${settings.round}::int`);
}

/** Enqueues the tasks of a pass in the current round; none where its classes were removed. */
async function planPass(parts: Parts, job: JobRow, pass: number): Promise<void> {
  const { settings } = job;
  const prompts = await promptsOf(parts.database, job, pass);
  if (prompts.length === 0) return;
  const { rows } = await parts.database.execute<{
    id: string;
    storage_key: string;
    bytes: number;
    frames: number[];
  }>(sql`
    WITH taken AS (
      SELECT (t.payload->>'video_id')::uuid AS video_id, f::int AS frame
        FROM task t, LATERAL (SELECT (t.payload->>'round')::int = ${settings.round}::int AS now) r,
          jsonb_array_elements_text(
            CASE WHEN r.now THEN t.payload->'frames' ELSE t.result->'done' END) f
       WHERE t.subject = ${subjectOf(job.id)} AND t.kind = 'label'
         AND (t.payload->>'pass')::int = ${pass}::int AND (r.now OR t.settled_at IS NOT NULL)
    ), rest AS (
      SELECT video_id, json_agg(frame ORDER BY frame) AS frames FROM (
        SELECT video_id, unnest(frames) AS frame FROM job_video WHERE job_id = ${job.id}::uuid
        EXCEPT SELECT video_id, frame FROM taken) f GROUP BY video_id)
    SELECT v.id, v.storage_key, v.bytes::float8 AS bytes, rest.frames
      FROM rest JOIN job_video jv ON jv.video_id = rest.video_id JOIN video v ON v.id = jv.video_id
     WHERE jv.job_id = ${job.id}::uuid ORDER BY jv.position`);
  if (rows.length === 0) return;
  const model = await modelOf(parts.database, job, pass);
  const videos = new Map(rows.map((row) => [row.id, row]));
  const chunks = cutIntoChunks(rows.map(({ id, frames }) => ({ videoId: id, frames })));
  const taskOf = ({ videoId, frames }: Chunk) => {
    const video = videos.get(videoId);
    assert(video, "a chunk is of a video of the job");
    const keys = objectKeys(job.workspaceId, videoId);
    return {
      kind: "label" as const,
      workspaceId: job.workspaceId,
      subject: subjectOf(job.id),
      idempotencyKey: `label:${job.id}:${pass}:${settings.round}:${videoId}:${frames[0]}`,
      payload: {
        job_id: job.id,
        video_id: videoId,
        pass,
        round: settings.round,
        video: source(video.storage_key, video.bytes),
        prompts,
        frames,
        resolution: job.resolution,
        segmenter: settings.segmenter,
        model,
        images: frames.map((index) =>
          pass === 0 ? target(keys.frame(index), "image/jpeg") : null,
        ),
        crops: packTarget(job, videoId, `${pass}-${settings.round}-${frames[0]}`),
      },
    };
  };
  const large = Math.ceil(PROMPTS_PER_STATEMENT_MAX / JSON.stringify(prompts).length);
  const some = Math.min(TASKS_PER_STATEMENT, large);
  for (let from = 0; from < chunks.length; from += some) {
    await submit(parts, chunks.slice(from, from + some).map(taskOf));
  }
}

/**
 * The model that looks in a pass; null where a segmenter does. Fails with `not_found` where the
 * model was deleted.
 */
async function modelOf(
  database: Database,
  { workspaceId, settings: { models } }: JobRow,
  pass: number,
): Promise<ModelSource | null> {
  const modelId = models?.[pass];
  return modelId ? modelSource(await findModel(database, [workspaceId], modelId)) : null;
}

/** What a pass looks for; nothing when its classes were removed. */
async function promptsOf(
  database: Database,
  { id, settings }: JobRow,
  pass: number,
): Promise<Prompt[]> {
  const numbers = settings.passes[pass] ?? [];
  const { rows } = await database.execute<{ name: string; prompt: string | null }>(sql`
    SELECT name, prompt FROM job_class WHERE job_id = ${id}::uuid AND number IN
      (SELECT n::int FROM jsonb_array_elements_text(${JSON.stringify(numbers)}::jsonb) n)
    ORDER BY number`);
  return rows.map(({ name, prompt }): Prompt => {
    if (prompt !== null) return { kind: "text", class_name: name, text: prompt };
    return { kind: "exemplar", class_name: name, exemplars: settings.exemplars ?? [] };
  });
}

/**
 * Fails with `state_conflict` where all classes that passes look for were removed, and with
 * `not_found` where a model of theirs was deleted.
 */
export async function assertSearchable(
  database: Database,
  job: JobRow,
  passes: readonly number[],
): Promise<void> {
  let prompts = 0;
  for (const pass of passes) {
    const { length } = await promptsOf(database, job, pass);
    if (length > 0) await modelOf(database, job, pass);
    prompts += length;
  }
  if (prompts > 0) return;
  throw new Failure("state_conflict", "the classes that the job looked for were removed");
}

/** Enqueues the round that the job was moved to. */
export async function beginRound(
  parts: Parts,
  { id, workspaceId }: Pick<JobRow, "id" | "workspaceId">,
): Promise<void> {
  await planJob(parts, await findJob(parts.database, [workspaceId], id));
  await advanceJob(parts, id, workspaceId);
}

/** Makes a queued job a running one, as of an instant; tells whether it was queued. */
export const beginJob = ({ database }: Parts, job: JobRow, now: number) =>
  moveJob(database, job.id, "begin", {
    set: sql`, started_at = coalesce(started_at, now()),
        settings = settings || jsonb_build_object('since', ${now}::float8)`,
  });

/** The tasks of a job's current round, counted. */
interface RoundCounts extends Record<string, unknown> {
  /** Tasks whose outcome was not taken yet. */
  open: number;
  /** Whether all tasks of the round are enqueued. */
  planned: boolean;
  /** Tasks that were canceled or revoked. */
  canceled: number;
  /** Why a task failed, or null where none did. */
  failed: string | null;
}

/** Ends a job whose tasks have all ended, and tells its topic how it stands. */
export async function advanceJob(parts: Parts, jobId: string, workspaceId: string): Promise<void> {
  const { database } = parts;
  const { rows } = await database.execute<RoundCounts>(sql`
    SELECT (count(*) FILTER (WHERE t.settled_at IS NULL))::int AS open,
      coalesce((SELECT (settings->>'planned')::int = (settings->>'round')::int FROM job
        WHERE id = ${jobId}::uuid), false) AS planned,
      (count(*) FILTER (WHERE t.state IN ('cancelled', 'revoked')))::int AS canceled,
      min(coalesce(t.errors->-1->>'detail', 'a task failed')) FILTER (WHERE t.state = 'failed')
        AS failed
      FROM task t JOIN job j ON j.id = ${jobId}::uuid
     WHERE t.subject = ${subjectOf(jobId)} AND t.kind = 'label'
       AND (t.payload->>'round')::int = (j.settings->>'round')::int`);
  const [counts] = rows;
  if (!counts) return;
  // A round whose tasks are not enqueued yet has no open ones either.
  const before = await existingJob(database, workspaceId, jobId);
  if (!before) return;
  const ends = isLive(before) && counts.planned && counts.open === 0;
  const job = ends ? await endJob(parts, before, counts) : before;
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

/** Finds what belongs together in a job that ends: tracks, and second boxes of one object. */
export async function relateAnnotations(database: Database, job: JobRow): Promise<void> {
  const { passes, added } = job.settings;
  for (const pass of passesOf(job)) {
    const found = { classes: passes[pass] ?? [], videos: added ?? null };
    await trackPass(database, job.id, found);
    await flagRepeats(database, job.id, { ...found, later: passes.slice(pass + 1).flat() });
  }
}

/** The move that the ended tasks call for, and the job after it. */
async function endJob(
  { database }: Parts,
  job: JobRow,
  { failed, canceled }: RoundCounts,
): Promise<JobRow> {
  const ended = sql`, ended_at = now()`;
  await relateAnnotations(database, job);
  if (canceled > 0) await moveJob(database, job.id, "stop", { set: ended });
  else if (failed !== null) {
    await moveJob(database, job.id, "fail", { set: sql`${ended}, failure = ${failed}` });
  } else await moveJob(database, job.id, "complete", { set: ended });
  return findJob(database, [job.workspaceId], job.id);
}
