// Labeling jobs as rows: making one, cutting it into tasks, and where it stands. A job is done
// frame by frame; annotations are named by what they are, so a frame that is labeled twice is
// stored once.

import { type SQL, sql } from "drizzle-orm";
import type { job as jobs } from "../../../db/vision/schema.ts";
import { assert, Failure } from "../../../shared/errors.ts";
import type { Job, JobStatus } from "../../../shared/labeling.ts";
import type { Prompt } from "../../../shared/tasks.ts";
import { iso } from "../../../shared/time.ts";
import { batch, type Database } from "../../http/database.ts";
import type { Parts } from "../base/parts.ts";
import { idList, textList } from "../base/sql.ts";
import { objectKeys } from "../projects/videos.ts";
import { source, target } from "../tasks/objects.ts";
import { submit } from "../tasks/wait.ts";
import { type Chunk, cutIntoChunks, etaSeconds } from "./plan.ts";
import { MOVES, type Move } from "./states.ts";

/** What a job is asked for beyond its columns. */
export interface Settings {
  /** The class numbers that each pass looks for; the last pass is the current one. */
  passes: number[][];
  /** Raised by each resume, so that its tasks are new ones. */
  round: number;
  /** The round whose tasks are all enqueued; behind `round`, they have to be yet. */
  planned: number;
  /** Exemplars of an exemplar job's class. */
  exemplars?: Extract<Prompt, { kind: "exemplar" }>["exemplars"];
  segmenter: string | null;
  /** Since when the current round runs, epoch milliseconds. */
  since?: number;
}

const TASKS_PER_STATEMENT = 500;
/** Of the prompts that each task of a statement carries. */
const PROMPTS_PER_STATEMENT_MAX = 8 * 1024 * 1024;

export interface NewJob {
  workspaceId: string;
  projectId: string;
  name: string;
  description: string;
  kind: Job["kind"];
  threshold: number;
  resolution: number | null;
  fps: number | null;
  settings: Pick<Settings, "exemplars" | "segmenter">;
  videos: readonly { videoId: string; frames: readonly number[] }[];
  classes: readonly { name: string; prompt: string | null }[];
  createdBy: string;
  /** Statements that store, together with the job of the id, what it comes with. */
  annotations?: (jobId: string) => SQL[];
}

export type JobRow = typeof jobs.$inferSelect & { settings: Settings };

/** What the tasks of a job are part of. */
export const subjectOf = (jobId: string) => `job:${jobId}`;
/** Where a job's live progress is: each round has a topic of its own, with an end of its own. */
export const topicOf = ({ id, settings }: Pick<JobRow, "id" | "settings">) =>
  `label:${id}:${settings.round}`;

/** Stores a job; its tasks are enqueued by `planJob`. */
export async function insertJob(database: Database, job: NewJob): Promise<string> {
  const id = crypto.randomUUID();
  const { videos, classes, settings } = job;
  const numbers = classes.map((_, number) => number);
  const labels = job.kind === "text" || job.kind === "exemplar";
  const own: Settings = { ...settings, passes: [numbers], round: 1, planned: labels ? 0 : 1 };
  const ended = labels ? sql`NULL` : sql`now()`;
  const statement = sql`
    WITH j AS (
      INSERT INTO job (id, workspace_id, project_id, name, description, kind, state, threshold,
        resolution, fps, settings, frames_total, created_by, started_at, ended_at)
      VALUES (${id}::uuid, ${job.workspaceId}::uuid, ${job.projectId}::uuid, ${job.name},
        ${job.description}, ${job.kind}, ${labels ? "queued" : "completed"},
        ${Math.fround(job.threshold)}::real, ${job.resolution}::int, ${job.fps}::float8,
        ${JSON.stringify(own)}::jsonb,
        ${videos.reduce((sum, { frames }) => sum + frames.length, 0)}::int,
        ${job.createdBy}::uuid, ${ended}, ${ended})
    ), v AS (
      INSERT INTO job_video (job_id, video_id, position, frames)
      SELECT ${id}::uuid, (v->>'videoId')::uuid, place - 1,
        ARRAY(SELECT f::int FROM jsonb_array_elements_text(v->'frames') WITH ORDINALITY n(f, at)
          ORDER BY at)
        FROM jsonb_array_elements(${JSON.stringify(videos)}::jsonb) WITH ORDINALITY x(v, place))
    INSERT INTO job_class (job_id, number, name, prompt)
    SELECT ${id}::uuid, place - 1, c->>'name', c->>'prompt'
      FROM jsonb_array_elements(${JSON.stringify(classes)}::jsonb) WITH ORDINALITY x(c, place)`;
  await batch(database, [statement, ...(job.annotations?.(id) ?? [])]);
  return id;
}

/** The job, if it is of one of the workspaces; fails with `not_found`. */
export async function findJob(
  database: Database,
  workspaces: readonly string[],
  jobId: string,
): Promise<JobRow> {
  const { rows } = await database.execute<{ job: Record<string, unknown> }>(sql`
    SELECT to_jsonb(j) AS job FROM job j
     WHERE id = ${jobId}::uuid AND workspace_id IN ${idList(workspaces)}`);
  const row = rows[0]?.job;
  if (!row) throw new Failure("not_found", "no such job in your workspaces");
  return jobRow(row);
}

const moment = (value: unknown) => (value === null ? null : new Date(String(value)));

const jobRow = (row: Record<string, unknown>): JobRow =>
  ({
    id: row.id,
    workspaceId: row.workspace_id,
    projectId: row.project_id,
    name: row.name,
    description: row.description,
    kind: row.kind,
    state: row.state,
    failure: row.failure,
    threshold: row.threshold,
    resolution: row.resolution,
    fps: row.fps,
    settings: row.settings,
    framesTotal: row.frames_total,
    createdBy: row.created_by,
    createdAt: moment(row.created_at),
    startedAt: moment(row.started_at),
    endedAt: moment(row.ended_at),
  }) as JobRow;

/** Jobs of the workspaces, newest first. */
export async function listJobs(
  database: Database,
  workspaces: readonly string[],
  filter: { projectId?: string | undefined; jobId?: string | undefined },
): Promise<Job[]> {
  const project = filter.projectId ? sql`AND j.project_id = ${filter.projectId}::uuid` : sql``;
  const one = filter.jobId ? sql`AND j.id = ${filter.jobId}::uuid` : sql``;
  const { rows } = await database.execute<Record<string, unknown>>(sql`
    SELECT to_jsonb(j) - 'settings' AS job,
      coalesce((SELECT jsonb_agg(coalesce(c.prompt, c.name) ORDER BY c.number)
        FROM job_class c WHERE c.job_id = j.id), '[]') AS prompts,
      coalesce((SELECT jsonb_agg(v.video_id ORDER BY v.position)
        FROM job_video v WHERE v.job_id = j.id), '[]') AS videos
    FROM job j
    WHERE j.workspace_id IN ${idList(workspaces)} ${project} ${one}
    ORDER BY j.created_at DESC, j.id`);
  return rows.map(({ job, prompts, videos }) => {
    const row = jobRow(job as Record<string, unknown>);
    const time = (at: Date | null) => (at === null ? null : iso(at.getTime()));
    return {
      job_id: row.id,
      project_id: row.projectId,
      name: row.name,
      description: row.description,
      kind: row.kind,
      state: row.state,
      failure: row.failure,
      threshold: row.threshold,
      resolution: row.resolution,
      fps: row.fps,
      prompts: prompts as string[],
      video_ids: videos as string[],
      created_at: time(row.createdAt) ?? "",
      started_at: time(row.startedAt),
      ended_at: time(row.endedAt),
    };
  });
}

/** One job as it goes over the wire; fails with `not_found`. */
export async function jobRecord(
  database: Database,
  workspaces: readonly string[],
  jobId: string,
): Promise<Job> {
  const [found] = await listJobs(database, workspaces, { jobId });
  if (!found) throw new Failure("not_found", "no such job in your workspaces");
  return found;
}

/** Makes a move of the table, where the job stands in a state that allows it; tells whether. */
export async function moveJob(
  database: Database,
  jobId: string,
  move: Move,
  set: SQL = sql``,
): Promise<boolean> {
  const { from, to } = MOVES[move];
  const { rows } = await database.execute(sql`
    UPDATE job SET state = ${to} ${set}
     WHERE id = ${jobId}::uuid AND state IN ${textList(from)} RETURNING id`);
  return rows.length > 0;
}

/**
 * Enqueues the tasks of a job's current round: the frames that the current pass has not labeled and
 * that no task of the round has. May be called again, by whoever finds a round that was not planned
 * to its end.
 */
export async function planJob(parts: Parts, job: JobRow): Promise<void> {
  const { settings } = job;
  const pass = settings.passes.length - 1;
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
  const prompts = await promptsOf(parts.database, job);
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
        images: frames.map((index) =>
          pass === 0 ? target(keys.frame(index), "image/jpeg") : null,
        ),
      },
    };
  };
  const large = Math.ceil(PROMPTS_PER_STATEMENT_MAX / JSON.stringify(prompts).length);
  const some = Math.min(TASKS_PER_STATEMENT, large);
  for (let from = 0; from < chunks.length; from += some) {
    await submit(parts, chunks.slice(from, from + some).map(taskOf));
  }
  await parts.database.execute(sql`
    UPDATE job SET settings = settings || jsonb_build_object('planned', ${settings.round}::int)
     WHERE id = ${job.id}::uuid AND (settings->>'round')::int = ${settings.round}::int`);
}

/** What the current pass looks for; nothing when its classes were removed. */
export async function promptsOf(database: Database, { id, settings }: JobRow): Promise<Prompt[]> {
  const numbers = settings.passes.at(-1) ?? [];
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
 * The frames of a job that were looked at for all its classes, or that have annotations, as rows of
 * `video_id` and `frame`: what a job that was stopped halfway consists of.
 */
export const labeledFrames = ({ id, settings }: Pick<JobRow, "id" | "settings">): SQL => sql`
  SELECT video_id, frame_index AS frame FROM annotation WHERE job_id = ${id}::uuid
  UNION
  SELECT (t.payload->>'video_id')::uuid, d::int
    FROM task t, jsonb_array_elements_text(t.result->'done') d
   WHERE t.subject = ${subjectOf(id)} AND t.kind = 'label' AND t.settled_at IS NOT NULL
   GROUP BY 1, 2 HAVING count(DISTINCT t.payload->>'pass')
     >= ${settings.passes.filter(({ length }) => length > 0).length}::int`;

/** Where a job stands: the same numbers for pollers and for the live topic. */
export async function statusOf(database: Database, job: JobRow, now: number): Promise<JobStatus> {
  const pass = job.settings.passes.length - 1;
  const { rows } = await database.execute<Record<string, number>>(sql`
    WITH own AS (
      SELECT state, settled_at, result, progress, (payload->>'round')::int AS round FROM task
       WHERE subject = ${subjectOf(job.id)} AND kind = 'label'
         AND (payload->>'pass')::int = ${pass}::int)
    SELECT
      coalesce(sum(CASE WHEN settled_at IS NOT NULL THEN jsonb_array_length(result->'done')
        ELSE (progress->>'done')::int END), 0)::int AS done,
      coalesce(sum(CASE WHEN settled_at IS NOT NULL THEN jsonb_array_length(result->'done')
        ELSE (progress->>'done')::int END) FILTER (WHERE round = ${job.settings.round}::int), 0)::int
        AS done_now,
      (count(*) FILTER (WHERE state = 'queued'))::int AS queued,
      (count(*) FILTER (WHERE state = 'running'))::int AS running,
      (count(*) FILTER (WHERE state = 'finished'))::int AS finished,
      (count(*) FILTER (WHERE state = 'failed' AND round = ${job.settings.round}::int))::int AS failed,
      (SELECT count(*) FROM annotation WHERE job_id = ${job.id}::uuid)::int AS annotations,
      (SELECT count(*) FROM node WHERE revoked_at IS NULL
         AND last_heartbeat_at > now() - interval '60 seconds'
         AND capabilities->'kinds' ? 'label')::int AS nodes
    FROM own`);
  const [counted] = rows;
  assert(counted, "an aggregate answers one row");
  const live = job.state === "queued" || job.state === "running";
  const total = job.framesTotal;
  // Copies and imports are done without a task of their own.
  const done = job.state === "completed" ? total : Math.min(counted.done ?? 0, total);
  const elapsed = live && job.settings.since ? now - job.settings.since : 0;
  // The clock of a resumed job started with its round.
  const doneNow = Math.min(counted.done_now ?? 0, done);
  const asked = { framesDone: doneNow, framesTotal: total - (done - doneNow) };
  const eta = live ? etaSeconds(asked, elapsed) : null;
  return {
    job_id: job.id,
    state: job.state,
    failure: job.failure,
    frames_done: done,
    frames_total: total,
    progress: total === 0 ? 1 : done / total,
    annotations: counted.annotations ?? 0,
    frames_per_second: elapsed > 0 && doneNow > 0 ? (doneNow * 1_000) / elapsed : null,
    eta_seconds: eta,
    tasks: {
      queued: counted.queued ?? 0,
      running: counted.running ?? 0,
      finished: counted.finished ?? 0,
      failed: counted.failed ?? 0,
    },
    waiting_for: live && counted.nodes === 0 ? "no GPU node is there: npm run gpu-node" : null,
    topic: topicOf(job),
  };
}
