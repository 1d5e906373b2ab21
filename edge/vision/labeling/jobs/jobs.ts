// Labeling jobs as rows, and what the rooms that edit a job's annotations need of it: the lock that
// edits take, its labeled frames, numbers for its classes.

import { type SQL, sql } from "drizzle-orm";
import { job } from "../../../../db/vision/labeling.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { Prompt } from "../../../../shared/tasks/tasks.ts";
import type { Job } from "../../../../shared/wire/labeling.ts";
import { type Database, patientBatch } from "../../../http/database.ts";
import { newRow } from "../../../http/row-changes.ts";
import { columnsOf, type RowOf, rowsOf, selection, typed } from "../../../http/selection.ts";
import type { Act } from "../../auth/audit.ts";
import { moveRow } from "../../auth/logged-moves.ts";
import { idList } from "../../base/sql.ts";
import type { TaskHead } from "../../tasks/queue/queue.ts";
import { assertDistinct } from "../classes.ts";
import type { JobWords } from "./bodies.ts";
import { tellEdited } from "./edit-events.ts";
import { MOVES, type Move } from "./states.ts";

/** What a job's `settings` hold: its passes and rounds, and what its segmenter is asked. */
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
  /** Ids of the models that look in the segmenter's place, by the pass. */
  models?: Record<number, string>;
  /** Videos that the current round brought in: its tasks are of all passes. */
  added?: string[];
  /** The job that this one is a copy of. */
  copyOf?: string;
  /** What people are to know of what its prompts find. */
  warnings: string[];
  /** Since when the current round runs, epoch milliseconds. */
  since?: number;
}

/** A video of a job with the indexes of the frames that the job is over, in order. */
export interface SampledVideo {
  videoId: string;
  frames: readonly number[];
}

/** A job to store, with what it is over and looks for. */
export interface NewJob {
  /** Its id; a new one when omitted. */
  id?: string;
  workspaceId: string;
  projectId: string;
  name: string;
  words?: JobWords;
  kind: Job["kind"];
  threshold: number;
  resolution: number | null;
  fps: number | null;
  settings: Pick<Settings, "exemplars" | "segmenter" | "models" | "warnings">;
  videos: readonly SampledVideo[];
  classes: readonly { name: string; prompt: string | null }[];
  createdBy: string;
  /** Statements that store, together with the job of the id, what it comes with. */
  annotations?: (jobId: string) => SQL[];
}

/**
 * The number of the newest thing that happened to a job's annotations or in its log of changes, 0
 * where there is none. It rises with each commit that changed something.
 */
export const editsSeq = (jobId: SQL): SQL<number> => {
  const newest = (table: string) => sql`(SELECT max(seq) FROM ${sql.identifier(table)} e
    WHERE e.job_id = ${jobId} AND e.seq > 0)`;
  // A table without a row counts for nothing in greatest().
  return sql`coalesce(greatest(${newest("annotation")}, ${newest("annotation_deletion")},
    ${newest("change")}), 0)::float8`;
};

const j = columnsOf(job, "j");
const ROW = selection({ ...j, settings: typed<Settings>(j.settings) });
/** A labeling job as its row holds it. */
export type JobRow = RowOf<typeof ROW>;

/** A labeling job as the wire shows it. */
const RECORD: SQL<Job> = selection({
  job_id: j.id,
  project_id: j.projectId,
  name: j.name,
  description: j.description,
  kind: j.kind,
  status: j.state,
  failure: j.failure,
  threshold: j.threshold,
  resolution: j.resolution,
  fps: j.fps,
  prompts: sql<string[]>`coalesce((SELECT jsonb_agg(coalesce(c.prompt, c.name) ORDER BY c.number)
    FROM job_class c WHERE c.job_id = j.id), '[]')`,
  model_id: sql<string | null>`j.settings->'models'->>'0'`,
  warnings: sql<string[]>`j.settings->'warnings'`,
  video_ids: sql<string[]>`coalesce((SELECT jsonb_agg(v.video_id ORDER BY v.position)
    FROM job_video v WHERE v.job_id = j.id), '[]')`,
  created_at: j.createdAt,
  started_at: j.startedAt,
  ended_at: j.endedAt,
  edits_seq: editsSeq(sql`j.id`),
});

/** What the tasks of a job are part of. */
export const subjectOf = (jobId: string) => `job:${jobId}`;
/** Where a job's live progress is: each round has a topic of its own, with an end of its own. */
export const topicOf = ({ id, settings }: Pick<JobRow, "id" | "settings">) =>
  `label:${id}:${settings.round}`;

/** Columns of what people say of a job: what they leave out stays, and of a new one is empty. */
export const wordColumns = ({ description }: JobWords, isNew = false) => ({
  description: sql`coalesce(${description ?? null}::text, ${isNew ? sql`''` : sql`description`})`,
});

/**
 * Stores a job; its tasks are enqueued by `planJob`. Fails with `invalid_request` where two of its
 * classes are one.
 */
export async function insertJob(database: Database, made: NewJob): Promise<string> {
  const { id = crypto.randomUUID(), videos, classes, settings } = made;
  assertDistinct(classes.map((one) => one.name));
  const numbers = classes.map((_, number) => number);
  const labels = made.kind === "text" || made.kind === "exemplar";
  const own: Settings = { ...settings, passes: [numbers], round: 1, planned: labels ? 0 : 1 };
  const ended = labels ? sql`NULL` : sql`now()`;
  const row = newRow(job, {
    id: sql`${id}::uuid`,
    workspaceId: sql`${made.workspaceId}::uuid`,
    projectId: sql`${made.projectId}::uuid`,
    name: sql`${made.name}`,
    ...wordColumns(made.words ?? {}, true),
    kind: sql`${made.kind}`,
    state: labels ? sql`'queued'` : sql`'completed'`,
    failure: sql`NULL`,
    threshold: sql`${Math.fround(made.threshold)}::real`,
    resolution: sql`${made.resolution}::int`,
    fps: sql`${made.fps}::float8`,
    settings: sql`${JSON.stringify(own)}::jsonb`,
    framesTotal: sql`${videos.reduce((sum, { frames }) => sum + frames.length, 0)}::int`,
    createdBy: sql`${made.createdBy}::uuid`,
    createdAt: sql`now()`,
    startedAt: ended,
    endedAt: ended,
  });
  const statement = sql`
    WITH j AS (
      INSERT INTO job ${row}
    ), v AS (
      INSERT INTO job_video (job_id, video_id, position, frames, searched)
      SELECT ${id}::uuid, video_id, position - 1, frames, ${made.kind !== "manual"}
        FROM (${sampledRows(videos)}) v)
    INSERT INTO job_class (job_id, number, name, prompt)
    SELECT ${id}::uuid, position - 1, c->>'name', c->>'prompt'
      FROM jsonb_array_elements(${JSON.stringify(classes)}::jsonb) WITH ORDINALITY x(c, position)`;
  await patientBatch(database, [statement, ...(made.annotations?.(id) ?? [])]);
  return id;
}

/** Videos with their frames as rows of `video_id`, `frames` and `position`, from 1 on. */
export const sampledRows = (videos: readonly SampledVideo[]): SQL => sql`
  SELECT (v->>'videoId')::uuid AS video_id, position, ARRAY(
      SELECT f::int FROM jsonb_array_elements_text(v->'frames') WITH ORDINALITY n(f, at)
       ORDER BY at) AS frames
    FROM jsonb_array_elements(${JSON.stringify(videos)}::jsonb) WITH ORDINALITY x(v, position)`;

/** The job, if it is of one of the workspaces; fails with `not_found`. */
export async function findJob(
  database: Database,
  workspaces: readonly string[],
  jobId: string,
): Promise<JobRow> {
  const [row] = await rowsOf(database, ROW)`
    SELECT ${ROW} FROM job j WHERE id = ${jobId}::uuid AND workspace_id IN ${idList(workspaces)}`;
  if (!row) throw new Failure("not_found", "no such job in your workspaces");
  return row;
}

/** Jobs of the workspaces, newest first. */
export async function listJobs(
  database: Database,
  workspaces: readonly string[],
  filter: { projectId?: string | undefined; jobId?: string | undefined },
): Promise<Job[]> {
  const project = filter.projectId ? sql`AND j.project_id = ${filter.projectId}::uuid` : sql``;
  const one = filter.jobId ? sql`AND j.id = ${filter.jobId}::uuid` : sql``;
  return await rowsOf(database, RECORD)`
    SELECT ${RECORD} FROM job j
     WHERE j.workspace_id IN ${idList(workspaces)} ${project} ${one}
     ORDER BY j.created_at DESC, j.id`;
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

/** The job, or null when it is gone: a database that is away says nothing of that, and fails. */
export async function existingJob(
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

/** The id of the job that a task is part of. */
export const jobIdOf = ({ subject }: Pick<TaskHead, "subject">): string =>
  subject.slice(subjectOf("").length);

/** The job that a task is part of; null when it was deleted. */
export const jobOfTask = (
  database: Database,
  task: Pick<TaskHead, "subject" | "workspaceId">,
): Promise<JobRow | null> => existingJob(database, task.workspaceId, jobIdOf(task));

/** Makes a move of a job's table; tells whether (`moveRow`). */
export const moveJob = (
  database: Database,
  jobId: string,
  move: Move,
  more?: { set?: SQL; act?: Act },
): Promise<boolean> =>
  moveRow(database, { table: job, id: jobId, subject: subjectOf(jobId) }, MOVES[move], more);

/** Has a job keep what people are to know of what its prompts find; each sentence once. */
export async function addWarnings(
  database: Database,
  { id, settings }: Pick<JobRow, "id" | "settings">,
  warnings: readonly string[],
): Promise<void> {
  const news = warnings.filter((warning) => !settings.warnings.includes(warning));
  if (news.length === 0) return;
  await database.execute(sql`
    UPDATE job SET settings = settings || jsonb_build_object('warnings',
      (settings->'warnings') || (SELECT coalesce(jsonb_agg(w), '[]')
        FROM jsonb_array_elements(${JSON.stringify(news)}::jsonb) w
       WHERE NOT settings->'warnings' @> w))
     WHERE id = ${id}::uuid`);
}

/**
 * The frames of a job that were looked at for all its classes, that have annotations, or that a
 * person reviewed, as rows of `video_id` and `frame`: what a job that was stopped halfway consists
 * of.
 */
export const labeledFrames = ({ id, settings }: Pick<JobRow, "id" | "settings">): SQL => sql`
  SELECT video_id, frame_index AS frame FROM frame_count WHERE job_id = ${id}::uuid AND stored > 0
  UNION
  SELECT video_id, frame_index FROM frame_review WHERE job_id = ${id}::uuid
  UNION
  SELECT (t.payload->>'video_id')::uuid, d::int
    FROM task t, jsonb_array_elements_text(t.result->'done') d
   WHERE t.subject = ${subjectOf(id)} AND t.kind = 'label' AND t.settled_at IS NOT NULL
   GROUP BY 1, 2 HAVING count(DISTINCT t.payload->>'pass')
     >= ${settings.passes.filter(({ length }) => length > 0).length}::int`;

/**
 * The frames between a job's own that people drew on or reviewed, as rows of `video_id` and
 * `frame`: they are frames of the job from then on.
 */
export const addedFrames = ({ id }: Pick<JobRow, "id">): SQL => sql`
  SELECT own.video_id, f.frame FROM (
      -- To a video whose every frame is the job's none is added, and none is looked for.
      SELECT j.video_id, j.frames FROM job_video j JOIN video v ON v.id = j.video_id
       WHERE j.job_id = ${id}::uuid AND cardinality(j.frames) < v.frame_count) own
    CROSS JOIN LATERAL (
      SELECT frame_index AS frame FROM frame_count
       WHERE job_id = ${id}::uuid AND video_id = own.video_id AND stored > 0
      UNION SELECT frame_index FROM frame_review
       WHERE job_id = ${id}::uuid AND video_id = own.video_id
      EXCEPT SELECT unnest(own.frames)) f`;

/**
 * The job's own frames of which it is known what is on them, as rows of `video_id` and `frame`:
 * of a job that was stopped or failed what is labeled, of a finished one all frames that were
 * searched, and of the others those with annotations or a reviewer's mark.
 */
export const knownFrames = (job: Pick<JobRow, "id" | "settings" | "state">): SQL =>
  job.state === "completed"
    ? sql`
  SELECT video_id, unnest(frames) AS frame FROM job_video
   WHERE job_id = ${job.id}::uuid AND searched
  UNION ALL
  SELECT own.video_id, f.frame_index FROM job_video own CROSS JOIN LATERAL (
      (SELECT frame_index FROM frame_count
        WHERE job_id = ${job.id}::uuid AND video_id = own.video_id AND stored > 0
       UNION SELECT frame_index FROM frame_review
        WHERE job_id = ${job.id}::uuid AND video_id = own.video_id)
      INTERSECT SELECT unnest(own.frames)) f
   WHERE own.job_id = ${job.id}::uuid AND NOT own.searched`
    : labeledFrames(job);

/**
 * The condition on a video `v` of the job `j`, as its `jv`, that a frame lies in the job's range:
 * from the first frame that it labels to before the one that it would label next. Labels that were
 * made elsewhere range over the whole video.
 */
export const inRange = (frame: SQL): SQL => sql`${frame} < v.frame_count
  AND (j.kind IN ('import', 'manual') OR ${frame} >= jv.frames[1]
    AND ${frame} < jv.frames[cardinality(jv.frames)] + CASE cardinality(jv.frames) WHEN 1 THEN 1
      ELSE ceil((jv.frames[cardinality(jv.frames)] - jv.frames[1])::float8
        / (cardinality(jv.frames) - 1)) END)`;

/** The passes of a job's current round: all where it brought videos in, else the last one. */
export const passesOf = ({ settings: { passes, added } }: Pick<JobRow, "settings">): number[] =>
  added ? [...passes.keys()] : [passes.length - 1];

/** Whether tasks of the job's round may still come or run. */
export const isLive = ({ state }: Pick<JobRow, "state">): boolean =>
  state === "queued" || state === "running";

/** The failure of a request that has to wait for its job's end. */
export const stillRuns = ({ state }: Pick<JobRow, "state">): Failure =>
  new Failure("state_conflict", `the job is ${state}; wait for its end, or stop it`);

/** How a statement is run among the edits of a job. */
interface EditOptions {
  /** Run with the statement; sees what it did. */
  after?: SQL;
  /** Whether it joins thousands of rows. */
  isLarge?: boolean;
  /** Who edits, for listeners; nobody where a node reports. */
  actorId?: string;
}

/**
 * Runs a statement alone among the edits of its job: classes do not come or go under it, and two
 * edits of many annotations do not wait for each other's. An edit of a hundred thousand takes
 * longer than the database gives other statements. Listeners of the job are told of what changed.
 */
export async function inJob<Row>(
  database: Database,
  jobId: string,
  statement: SQL,
  options: EditOptions = {},
): Promise<Row[]> {
  const { rows, afterSeq, editsSeq } = await editedJob<Row>(database, jobId, statement, options);
  const { actorId = null } = options;
  const data = { edits_seq: editsSeq, after_seq: afterSeq, actor_id: actorId };
  await tellEdited(database, jobId, data);
  return rows;
}

/** The same without a word to listeners; tells the job's `edits_seq` before and after. */
export async function editedJob<Row>(
  database: Database,
  jobId: string,
  statement: SQL,
  { after = sql`SELECT`, isLarge = false }: EditOptions = {},
): Promise<{ rows: Row[]; afterSeq: number; editsSeq: number }> {
  const lock = sql`SELECT id FROM job WHERE id = ${jobId}::uuid FOR NO KEY UPDATE`;
  // By statistics of before a table was filled, Postgres would compare all with all.
  const joins = sql`SELECT set_config('enable_nestloop', ${isLarge ? "off" : "on"}, true)`;
  const seq = sql`SELECT ${editsSeq(sql`${jobId}::uuid`)} AS seq`;
  const all = [lock, joins, seq, statement, after, seq] as const;
  const [, , before, rows, , now] = await patientBatch<
    [unknown, unknown, { seq: number }, Row, unknown, { seq: number }]
  >(database, all);
  return { rows, afterSeq: before[0]?.seq ?? 0, editsSeq: now[0]?.seq ?? 0 };
}
