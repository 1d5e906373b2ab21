// Suggestions of what to label next: the frames that are looked at, and their ranking once nodes
// have looked at them.

import { type SQL, sql } from "drizzle-orm";
import { suggestion } from "../../../../db/vision/suggestions.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { EmbedResult } from "../../../../shared/tasks/embed-task.ts";
import { TASK_KINDS } from "../../../../shared/tasks/tasks.ts";
import type { Suggestion } from "../../../../shared/wire/suggestions.ts";
import { batch, type Database } from "../../../http/database.ts";
import { columnsOf, extended, type RowOf, rowsOf, selection } from "../../../http/selection.ts";
import { jsonb } from "../../../http/storable.ts";
import type { Page } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { idList } from "../../base/sql.ts";
import type { ProjectRow } from "../../media/projects/projects.ts";
import { probedVideos } from "../../media/videos/videos.ts";
import { listModels, modelSource } from "../../models/registry.ts";
import { requestCancel } from "../../tasks/queue/interventions.ts";
import type { Task } from "../../tasks/queue/queue.ts";
import type { Stretch } from "../jobs/bodies.ts";
import { sampleVideos } from "../jobs/new-jobs.ts";
import { reviewedFrames } from "../review/frames.ts";
import {
  enqueueLooks,
  frameOf,
  int8s,
  ofOneLength,
  storedVectors,
  type WantedFrame,
} from "./embeddings.ts";
import { type Candidate, rankFrames } from "./frame-ranking.ts";

/** Unlabeled frames that one suggestion ranks, and labeled ones that they are held against. */
const CANDIDATES_MAX = 10_000;
/** Without a model all of them are held against each other. */
const PLAIN_CANDIDATES_MAX = 4_000;
const LABELED_MAX = 500;
/** Clips of one suggestion: the times of each one's frames are read, of images none. */
const CLIPS_MAX = 900;

const s = columnsOf(suggestion, "s");
const SUGGESTION = extended(selection(s), {
  done: sql<number>`(SELECT count(*)::int FROM suggestion_frame f
    WHERE f.suggestion_id = s.id AND f.done)`,
});
type SuggestionRow = RowOf<typeof SUGGESTION>;

/** What the tasks of a suggestion are part of. */
const SUBJECT = "suggestion:";
const subjectOf = (suggestionId: string) => SUBJECT + suggestionId;

/** The suggestions of a project without their frames, newest first. */
export async function listSuggestions(
  database: Database,
  projectId: string,
  { offset, limit }: Page,
): Promise<Omit<Suggestion, "frames">[]> {
  const rows = await rowsOf(database, SUGGESTION)`
    SELECT ${SUGGESTION} FROM suggestion s WHERE s.project_id = ${projectId}::uuid
     ORDER BY s.created_at DESC, s.id OFFSET ${offset}::int LIMIT ${limit}::int`;
  return rows.map(headOf);
}

/** The suggestion, if it is of one of the workspaces; fails with `not_found`. */
export async function findSuggestion(
  database: Database,
  workspaces: readonly string[],
  id: string,
): Promise<SuggestionRow> {
  const [row] = await rowsOf(database, SUGGESTION)`
    SELECT ${SUGGESTION} FROM suggestion s
     WHERE s.id = ${id}::uuid AND s.workspace_id IN ${idList(workspaces)}`;
  if (!row) throw new Failure("not_found", "no such suggestion in your workspaces");
  return row;
}

const headOf = (row: SuggestionRow): Omit<Suggestion, "frames"> => ({
  suggestion_id: row.id,
  project_id: row.projectId,
  status: row.state,
  failure: row.failure,
  budget: row.budget,
  model_id: row.modelId,
  segmenter: row.segmenter,
  unlabeled_frames: row.unlabeled,
  candidates: row.candidates,
  labeled_frames: row.labeled,
  frames_total: row.candidates + row.labeled,
  frames_done: row.state === "completed" ? row.candidates + row.labeled : row.done,
  unreadable_frames: row.unreadable,
  created_at: row.createdAt,
  ended_at: row.endedAt,
});

/** A suggestion as the wire shows it; frames of videos that were deleted since are left out. */
export async function suggestionRecord(
  database: Database,
  row: SuggestionRow,
): Promise<Suggestion> {
  const { rows } = await database.execute<{
    videoId: string;
    filename: string;
    index: number;
    uncertainty: number | null;
    distance: number | null;
  }>(sql`
    SELECT v.id::text AS "videoId", v.filename, f.frame_index AS index, f.uncertainty, f.distance
      FROM suggestion_frame f JOIN video v ON v.id = f.video_id
     WHERE f.suggestion_id = ${row.id}::uuid AND f.rank IS NOT NULL ORDER BY f.rank`);
  const frames = rows.map(({ uncertainty, distance, ...frame }) => ({
    ...frameOf(frame),
    uncertainty,
    distance,
  }));
  return { ...headOf(row), frames };
}

/** What a suggestion is asked for. */
export interface SuggestionOrder {
  project: ProjectRow;
  budget: number;
  modelId: string | null;
  segmenter: string;
  videoIds: readonly string[] | undefined;
  stretch: Stretch;
  createdBy: string;
}

/**
 * Begins a suggestion; returns its id. Fails with `state_conflict` where no frame is unlabeled, and
 * with `not_found` for a video that is not of the project.
 */
export async function beginSuggestion(parts: Parts, order: SuggestionOrder): Promise<string> {
  const { database } = parts;
  const { projectId, workspaceId } = order.project;
  const ready = await probedVideos(database, projectId);
  const byId = new Map(ready.map((video) => [video.videoId, video]));
  const videos =
    order.videoIds?.map((id) => {
      const video = byId.get(id);
      if (!video)
        throw new Failure("not_found", `video ${id} is not of the project, or not probed`);
      return video;
    }) ?? ready;
  const clips = videos.filter(({ frameCount }) => frameCount !== 1).length;
  if (clips > CLIPS_MAX) {
    throw new Failure("invalid_request", `video_ids: ${clips} clips; name at most ${CLIPS_MAX}`);
  }
  if (videos.length === 0) throw nothingLeft();
  const sampled = await sampleVideos(parts, videos, order.stretch);
  const id = crypto.randomUUID();
  const given = JSON.stringify(sampled.map(({ videoId, frames }) => ({ v: videoId, f: frames })));
  const labeled = labeledFrames(projectId);
  const isScored = order.modelId !== null;
  const { rows } = await database.execute(sql`
    WITH given AS (
      SELECT (g->>'v')::uuid AS video_id, f::int AS frame
        FROM jsonb_array_elements(${given}::jsonb) g, jsonb_array_elements_text(g->'f') f),
    labeled AS MATERIALIZED (${labeled}),
    unlabeled AS MATERIALIZED (SELECT * FROM given EXCEPT SELECT * FROM labeled),
    chosen AS MATERIALIZED (
      SELECT c.*, false AS is_labeled
        FROM (SELECT * FROM unlabeled ORDER BY random() LIMIT ${isScored ? CANDIDATES_MAX : PLAIN_CANDIDATES_MAX}::int) c
      UNION ALL SELECT c.*, true FROM (
        SELECT l.* FROM labeled l JOIN video v ON v.id = l.video_id AND v.state = 'ready'
         ORDER BY random() LIMIT ${LABELED_MAX}::int) c),
    made AS (
      INSERT INTO suggestion (id, workspace_id, project_id, budget, model_id, segmenter, unlabeled,
        candidates, labeled, created_by)
      SELECT ${id}::uuid, ${workspaceId}::uuid, ${projectId}::uuid, ${order.budget}::int,
        ${order.modelId}::uuid, ${order.segmenter}, (SELECT count(*) FROM unlabeled),
        (SELECT count(*) FROM chosen WHERE NOT is_labeled),
        (SELECT count(*) FROM chosen WHERE is_labeled), ${order.createdBy}::uuid
       WHERE EXISTS (SELECT FROM unlabeled) RETURNING id),
    frames AS (
      SELECT made.id, c.video_id, c.frame, c.is_labeled, e.video_id IS NULL AS embed,
        row_number() OVER (ORDER BY v.created_at, v.id, c.frame) - 1 AS position
        FROM made, chosen c JOIN video v ON v.id = c.video_id
        LEFT JOIN frame_embedding e ON e.video_id = c.video_id AND e.frame_index = c.frame
         AND e.segmenter = ${order.segmenter})
    INSERT INTO suggestion_frame (suggestion_id, video_id, frame_index, position, labeled, embed,
      done)
    SELECT id, video_id, frame, position, is_labeled, embed,
      NOT embed AND (is_labeled OR NOT ${isScored}::boolean) FROM frames RETURNING 1`);
  if (rows.length === 0) throw nothingLeft();
  await planSuggestion(parts, await findSuggestion(database, [workspaceId], id));
  return id;
}

const nothingLeft = () =>
  new Failure("state_conflict", "no frame is left to label: upload more, or give a higher fps");

/**
 * Frames of a project that people labeled in some job, as rows of `video_id` and `frame`: those
 * that they drew on or imported labels for, and those that they judged or marked.
 */
const labeledFrames = (projectId: string): SQL => sql`
  SELECT f.video_id, f.frame FROM job j CROSS JOIN LATERAL (
    SELECT a.video_id, a.frame_index AS frame FROM annotation a
     WHERE a.job_id = j.id AND a.source IN ('person', 'import')
    UNION ALL ${reviewedFrames({ id: sql`j.id` })}) f
   WHERE j.project_id = ${projectId}::uuid GROUP BY f.video_id, f.frame`;

/** Enqueues what a suggestion's frames lack; may be called again. */
async function planSuggestion(parts: Parts, row: SuggestionRow): Promise<void> {
  const { database } = parts;
  const { rows } = await database.execute<WantedFrame & Record<string, unknown>>(sql`
    SELECT video_id::text AS "videoId", frame_index AS frame, embed,
      NOT labeled AND ${row.modelId !== null}::boolean AS score FROM suggestion_frame
     WHERE suggestion_id = ${row.id}::uuid
       AND (embed OR NOT labeled AND ${row.modelId !== null}::boolean) ORDER BY position`);
  const { workspaceId, segmenter, modelId } = row;
  const [model] = modelId ? await listModels(database, [workspaceId], { modelId }) : [];
  if (modelId && !model) {
    await database.execute(sql`
      WITH ended AS (
        UPDATE suggestion SET state = 'failed', failure = 'the model was deleted', ended_at = now()
         WHERE id = ${row.id}::uuid AND state = 'running' RETURNING id)
      DELETE FROM suggestion_frame USING ended WHERE suggestion_id = ended.id`);
    return;
  }
  const subject = subjectOf(row.id);
  const source = model ? modelSource(model) : null;
  const order = { workspaceId, subject, key: subject, segmenter, model: source };
  await enqueueLooks(parts, order, rows);
  const { rows: planned } = await database.execute(sql`
    UPDATE suggestion SET planned = true WHERE id = ${row.id}::uuid RETURNING id`);
  if (planned.length > 0) await endSuggestion(parts, row.id);
  // It was deleted while its tasks were enqueued.
  else await requestCancel(database, { subject });
}

/** A task that looked at frames ended, however it did. May be called again for the same task. */
export async function looksEnded(parts: Parts, task: Task): Promise<void> {
  const { segmenter } = task.payload as { segmenter: string };
  const parsed = TASK_KINDS.embed.result.safeParse(task.result);
  // What a canceled task did was checked, too.
  const reported = task.state === "finished" || task.state === "cancelled";
  const { frames, unreadable } = reported && parsed.success ? parsed.data : NOTHING;
  const suggestionId = task.subject.startsWith(SUBJECT) ? task.subject.slice(SUBJECT.length) : null;
  const looks = JSON.stringify(frames.map(({ vector: _, ...look }) => look));
  await parts.database.execute(sql`
    WITH stored AS (${storedVectors(segmenter, frames)}),
    marked AS (
      UPDATE suggestion_frame f SET done = true, entropies = l.entropies
        FROM jsonb_to_recordset(${looks}::jsonb)
          l(video_id uuid, frame_index int, entropies jsonb)
       WHERE f.suggestion_id = ${suggestionId}::uuid AND f.video_id = l.video_id
         AND f.frame_index = l.frame_index)
    UPDATE task SET settled_at = now(), result = ${jsonb({ unreadable })}
     WHERE id = ${task.taskId}::uuid AND settled_at IS NULL`);
  if (!suggestionId) return;
  if (await exists(parts.database, suggestionId)) await endSuggestion(parts, suggestionId);
  // It was deleted, or its project was.
  else await requestCancel(parts.database, { subject: task.subject });
}

const NOTHING: EmbedResult = { frames: [], unreadable: [] };

async function exists(database: Database, id: string): Promise<boolean> {
  const { rows } = await database.execute(sql`SELECT FROM suggestion WHERE id = ${id}::uuid`);
  return rows.length > 0;
}

/** Ranks the frames of a suggestion once no node looks at them any more. */
async function endSuggestion({ database }: Parts, id: string): Promise<void> {
  const [row] = await rowsOf(database, SUGGESTION)`
    SELECT ${SUGGESTION} FROM suggestion s
     WHERE s.id = ${id}::uuid AND s.state = 'running' AND s.planned AND NOT EXISTS (
       SELECT FROM task WHERE subject = ${subjectOf(id)} AND settled_at IS NULL)`;
  if (!row) return;
  const { rows } = await database.execute<{
    video_id: string;
    frame: number;
    labeled: boolean;
    entropies: Record<string, number> | null;
    vector: string | null;
  }>(sql`
    SELECT f.video_id::text, f.frame_index AS frame, f.labeled, f.entropies,
      encode(e.vector, 'base64') AS vector
      FROM suggestion_frame f LEFT JOIN frame_embedding e ON e.video_id = f.video_id
       AND e.frame_index = f.frame_index AND e.segmenter = ${row.segmenter}
     WHERE f.suggestion_id = ${id}::uuid ORDER BY f.position`);
  const frames = ofOneLength(
    rows.flatMap(({ vector, ...frame }) => (vector ? [{ ...frame, vector: int8s(vector) }] : [])),
  );
  const candidates: (Candidate & { video_id: string; frame: number })[] = frames.filter(
    ({ labeled, entropies }) => !labeled && (row.modelId === null || entropies !== null),
  );
  const labeled = frames.filter((one) => one.labeled);
  const vectors = labeled.map(({ vector }) => vector);
  const chosen = rankFrames(candidates, vectors, row.budget).map(({ index, ...one }, rank) => {
    const { video_id, frame: frame_index } = candidates[index] as (typeof candidates)[number];
    return { video_id, frame_index, rank, ...one };
  });
  const seen = candidates.length + labeled.length;
  const unreadable = row.candidates + row.labeled - seen;
  const failure = candidates.length > 0 ? null : await reasonOf(database, id);
  const running = sql`EXISTS (SELECT FROM suggestion
    WHERE id = ${id}::uuid AND state = 'running')`;
  // The lock first: of two who come here at once, the second finds it ended.
  await batch(database, [
    sql`SELECT FROM suggestion WHERE id = ${id}::uuid FOR UPDATE`,
    sql`
      UPDATE suggestion_frame f
         SET rank = c.rank, uncertainty = c.uncertainty, distance = c.distance
        FROM jsonb_to_recordset(${JSON.stringify(chosen)}::jsonb)
          c(video_id uuid, frame_index int, rank int, uncertainty real, distance real)
       WHERE f.suggestion_id = ${id}::uuid AND f.video_id = c.video_id
         AND f.frame_index = c.frame_index AND ${running}`,
    sql`
      DELETE FROM suggestion_frame
       WHERE suggestion_id = ${id}::uuid AND rank IS NULL AND ${running}`,
    sql`
      UPDATE suggestion SET state = ${failure === null ? "completed" : "failed"},
        failure = ${failure}, unreadable = ${unreadable}::int, ended_at = now()
       WHERE id = ${id}::uuid AND state = 'running'`,
  ]);
}

/** Why no frame of a suggestion could be looked at, in a node's words. */
async function reasonOf(database: Database, id: string): Promise<string> {
  const { rows } = await database.execute<{ detail: string | null }>(sql`
    SELECT coalesce(result->'unreadable'->0->>'detail', errors->-1->>'detail') AS detail FROM task
     WHERE subject = ${subjectOf(id)} ORDER BY ended_at DESC LIMIT 1`);
  return rows[0]?.detail ?? "no node could look at a frame";
}

/** Deletes a suggestion and stops its tasks. */
export async function deleteSuggestion({ database }: Parts, id: string): Promise<void> {
  await database.execute(sql`DELETE FROM suggestion WHERE id = ${id}::uuid`);
  await requestCancel(database, { subject: subjectOf(id) });
}

/** Takes up what a crash left half done; a duty of the minute cron. */
export async function resumeSuggestions(parts: Parts): Promise<void> {
  const rows = await rowsOf(parts.database, SUGGESTION)`
    SELECT ${SUGGESTION} FROM suggestion s
     WHERE s.state = 'running' AND s.created_at < now() - interval '30 seconds'
     ORDER BY random() LIMIT 50`;
  for (const row of rows) {
    try {
      await (row.planned ? endSuggestion(parts, row.id) : planSuggestion(parts, row));
    } catch (error) {
      parts.log.error("suggestion_not_taken_up", { suggestion_id: row.id, error });
    }
  }
}
