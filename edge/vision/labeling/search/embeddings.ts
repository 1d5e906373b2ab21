// Embeddings of frames: which a project lacks, the tasks that make them, and what those store.

import { type SQL, sql } from "drizzle-orm";
import type { EmbedResult, EmbedTask, FrameLook } from "../../../../shared/tasks/embed-task.ts";
import type { ModelSource, TaskPayload } from "../../../../shared/tasks/tasks.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import type { Database } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";
import { frameImagePath } from "../../media/videos/frames.ts";
import { indexesProblem } from "../../tasks/nodes/detections.ts";
import { source } from "../../tasks/objects.ts";
import type { Task } from "../../tasks/queue/queue.ts";
import { submit } from "../../tasks/queue/wait.ts";

/** Frames of one task. */
const TASK_FRAMES = 32;
/** Tasks that one statement enqueues. */
const TASKS_PER_STATEMENT = 200;
/** Numbers of a vector: those of the largest encoders, four times over. */
const VECTOR_MAX = 8_192;
/** Entropy of one object, bits, times the objects that a detector gives at most, and room. */
const BITS_MAX = 100_000;

/** A frame to look at. */
export interface WantedFrame {
  videoId: string;
  frame: number;
  /** Whether its embedding is wanted. */
  embed: boolean;
  /** Whether a model's uncertainty is wanted. */
  score: boolean;
}

/** The tasks that look at frames: their subject, keys and priority, and their models. */
export interface LookOrder {
  workspaceId: string;
  subject: string;
  /** Begins the tasks' idempotency keys. */
  key: string;
  /** The tasks' priority; the kind's when left out. */
  priority?: number;
  segmenter: string;
  model: ModelSource | null;
}

/**
 * Enqueues the tasks that look at frames, which keep their order. Again with the same key and
 * frames, it enqueues nothing twice. Frames of videos that were deleted are left out.
 */
export async function enqueueLooks(
  parts: Parts,
  { workspaceId, subject, key, priority, segmenter, model }: LookOrder,
  frames: readonly WantedFrame[],
): Promise<void> {
  const files = await filesOf(parts.database, workspaceId, frames);
  const chunks = Array.from({ length: Math.ceil(frames.length / TASK_FRAMES) }, (_, chunk) =>
    frames.slice(chunk * TASK_FRAMES, (chunk + 1) * TASK_FRAMES),
  );
  const tasks = chunks.flatMap((chunk, number) => {
    const videos = [...Map.groupBy(chunk, ({ videoId }) => videoId)].flatMap(([videoId, own]) => {
      const file = files.get(videoId);
      const indexes = (wanted: "embed" | "score") =>
        own.filter((one) => one[wanted]).map(({ frame }) => frame);
      if (!file) return [];
      const video = source(file.key, file.bytes);
      return [{ video_id: videoId, video, embed: indexes("embed"), score: indexes("score") }];
    });
    if (videos.length === 0) return [];
    return {
      kind: "embed" as const,
      workspaceId,
      subject,
      idempotencyKey: `${key}:${number}`,
      ...(priority !== undefined && { priority }),
      payload: { segmenter, model, videos },
    };
  });
  for (let from = 0; from < tasks.length; from += TASKS_PER_STATEMENT) {
    await submit(parts, tasks.slice(from, from + TASKS_PER_STATEMENT));
  }
}

async function filesOf(
  database: Database,
  workspaceId: string,
  frames: readonly WantedFrame[],
): Promise<Map<string, { key: string; bytes: number }>> {
  const ids = JSON.stringify([...new Set(frames.map(({ videoId }) => videoId))]);
  const { rows } = await database.execute<{ id: string; key: string; bytes: number }>(sql`
    SELECT id::text, storage_key AS key, bytes::float8 AS bytes FROM video
     WHERE workspace_id = ${workspaceId}::uuid AND state = 'ready'
       AND id IN (SELECT v::uuid FROM jsonb_array_elements_text(${ids}::jsonb) v)`);
  return new Map(rows.map(({ id, ...file }) => [id, file]));
}

/** Checks what a node made of frames against what it was asked; see `TaskHandlers.seal`. */
export async function sealLooks(
  _parts: Parts,
  task: Task,
  { result, partial }: { result: unknown; partial: boolean },
): Promise<string | null> {
  const { videos, model } = task.payload as TaskPayload<"embed">;
  const { frames, unreadable } = result as EmbedResult;
  const asked = new Map(videos.map((one) => [one.video_id, one]));
  const classes = new Set(model?.classes);
  const broken = new Set(unreadable.map(({ video_id }) => video_id));
  const foreign = [...frames.map(({ video_id }) => video_id), ...broken].find(
    (id) => !asked.has(id),
  );
  if (foreign !== undefined) return "a video that was not asked for";
  const answered = Map.groupBy(frames, ({ video_id }) => video_id);
  for (const [videoId, { embed, score }] of asked) {
    const own = answered.get(videoId) ?? [];
    const problem =
      indexesProblem(
        own.map(({ frame_index }) => frame_index),
        { frames: [...embed, ...score], partial: partial || broken.has(videoId) },
      ) ??
      own.map((look) => lookProblem(look, { embed, score }, classes)).find((one) => one !== null);
    if (problem) return problem;
  }
  const lengths = new Set(frames.flatMap(({ vector }) => (vector ? [int8s(vector).length] : [])));
  if (lengths.size > 1) return "vectors of several lengths";
  return !model && frames.some(({ entropies }) => entropies) ? "an uncertainty of no model" : null;
}

function lookProblem(
  { frame_index: frame, vector, entropies }: FrameLook,
  { embed, score }: Pick<EmbedTask["videos"][number], "embed" | "score">,
  classes: ReadonlySet<string>,
): string | null {
  if ((vector !== null) !== embed.includes(frame))
    return `frame ${frame}: a vector too many or few`;
  if ((entropies !== null) !== score.includes(frame)) {
    return `frame ${frame}: an uncertainty too many or few`;
  }
  for (const [name, bits] of Object.entries(entropies ?? {})) {
    if (!classes.has(name)) return `frame ${frame}: an uncertainty of no class of the model`;
    if (bits > BITS_MAX) return `frame ${frame}: an uncertainty that no detector has`;
  }
  if (vector === null) return null;
  const numbers = int8s(vector).length;
  return numbers >= 1 && numbers <= VECTOR_MAX ? null : `frame ${frame}: a vector of ${numbers}`;
}

/** A statement that stores the vectors of frames whose videos are still there. */
export const storedVectors = (segmenter: string, frames: readonly FrameLook[]): SQL => sql`
  INSERT INTO frame_embedding (video_id, frame_index, segmenter, vector)
  SELECT v.id, f.frame_index, ${segmenter}, decode(f.vector, 'base64')
    FROM jsonb_to_recordset(${JSON.stringify(frames)}::jsonb)
      f(video_id uuid, frame_index int, vector text) JOIN video v ON v.id = f.video_id
   WHERE f.vector IS NOT NULL
  ON CONFLICT (video_id, segmenter, frame_index) DO UPDATE
    SET vector = excluded.vector, created_at = now()`;

/**
 * Frames of a project that people look for, as rows of `video_id` and `frame`: images, frames that
 * its jobs label or have added, and frames with tags.
 */
export const projectFrames = (projectId: string): SQL => sql`
  SELECT v.id AS video_id, 0 AS frame FROM video v
   WHERE v.project_id = ${projectId}::uuid AND v.state = 'ready' AND v.frame_count = 1
  UNION SELECT jv.video_id, unnest(jv.frames) FROM job_video jv JOIN job j ON j.id = jv.job_id
    JOIN video v ON v.id = jv.video_id AND v.state = 'ready'
   WHERE j.project_id = ${projectId}::uuid
  UNION SELECT c.video_id, c.frame_index FROM frame_count c JOIN job j ON j.id = c.job_id
   WHERE j.project_id = ${projectId}::uuid AND c.stored > 0
  UNION SELECT r.video_id, r.frame_index FROM frame_review r JOIN job j ON j.id = r.job_id
   WHERE j.project_id = ${projectId}::uuid
  UNION SELECT t.video_id, t.frame_index FROM frame_tag t JOIN video v ON v.id = t.video_id
   WHERE v.project_id = ${projectId}::uuid`;

/** Bytes in base64, also in the lines of Postgres, as signed numbers. */
export const int8s = (base64: string): Int8Array =>
  new Int8Array(Uint8Array.fromBase64(base64).buffer);

/** The ones with vectors as long as most have: a segmenter that was replaced left others. */
export function ofOneLength<One extends { vector: Int8Array }>(all: readonly One[]): One[] {
  const groups = [...Map.groupBy(all, ({ vector }) => vector.length).values()];
  return groups.toSorted((one, other) => other.length - one.length)[0] ?? [];
}

/** A frame as the wire names it. */
export const frameOf = (one: { videoId: string; filename: string; index: number }) => ({
  frame_id: frameId(one.videoId, one.index),
  video_id: one.videoId,
  filename: one.filename,
  index: one.index,
  image_url: frameImagePath(one.videoId, one.index),
});
