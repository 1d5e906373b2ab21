// Images and frames like one, by their embeddings; and how many of a project have those.

import { sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { Embeddings, SimilarFrames } from "../../../../shared/wire/suggestions.ts";
import type { Database } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";
import type { ProjectRow } from "../../media/projects/projects.ts";
import { findVideos, type VideoRow } from "../../media/videos/videos.ts";
import { listCapabilities } from "../../tasks/nodes/nodes.ts";
import { enqueueLooks, frameOf, int8s, projectFrames } from "./embeddings.ts";
import { Likeness } from "./likeness.ts";

/** Frames of a project that one request embeds: hours of a node without a GPU. */
const EMBED_MAX = 20_000;
/** Nobody waits for them: labeling comes first. */
const PRIORITY = -10;
/** Embeddings that are read at once. */
const PAGE_ROWS = 10_000;
/** The default of every node. */
const SEGMENTER_DEFAULT = "builtin";

/**
 * The segmenter that is to embed: the named one, or the nodes' default. Fails with
 * `invalid_request` where nodes offer others and none offers it.
 */
export async function segmenterOf(
  database: Database,
  workspaceId: string,
  named: string | undefined,
): Promise<string> {
  const nodes = await listCapabilities(database, workspaceId);
  const offered = new Set(nodes.flatMap(({ segmenters }) => segmenters.map(({ name }) => name)));
  const [first = SEGMENTER_DEFAULT] = offered;
  if (named === undefined) return first;
  if (offered.size === 0 || offered.has(named)) return named;
  const all = [...offered].join(", ");
  throw new Failure("invalid_request", `segmenter: no node offers it; they offer ${all}`);
}

/** The subject of the tasks that embed a project's frames. */
const subjectOf = (projectId: string, segmenter: string) => `embeddings:${projectId}:${segmenter}`;

/** How many frames of a project have embeddings of a segmenter, and some of those that lack one. */
async function embeddingState(
  database: Database,
  { projectId }: ProjectRow,
  { segmenter, missingMax }: { segmenter: string; missingMax: number },
) {
  const { rows } = await database.execute<{
    frames: number;
    embedded: number;
    missing: { videoId: string; frame: number }[];
    /** Tasks that were ever enqueued for it, and whether some have not ended. */
    tasks: number;
    running: boolean;
  }>(sql`
    WITH f AS MATERIALIZED (
      SELECT f.video_id, f.frame, e.video_id IS NOT NULL AS has_one
        FROM (${projectFrames(projectId)}) f LEFT JOIN frame_embedding e
          ON e.video_id = f.video_id AND e.frame_index = f.frame AND e.segmenter = ${segmenter})
    SELECT (SELECT count(*)::int FROM f) AS frames,
      (SELECT count(*)::int FROM f WHERE has_one) AS embedded,
      (SELECT coalesce(json_agg(json_build_object('videoId', video_id, 'frame', frame)), '[]')
        FROM (SELECT video_id, frame FROM f WHERE NOT has_one
         ORDER BY video_id, frame LIMIT ${missingMax}::int) m) AS missing,
      t.tasks, t.running
      FROM (SELECT count(*)::int AS tasks,
          coalesce(bool_or(settled_at IS NULL), false) AS running
          FROM task WHERE subject = ${subjectOf(projectId, segmenter)}) t`);
  const [state] = rows;
  return state ?? { frames: 0, embedded: 0, missing: [], tasks: 0, running: false };
}

/** How many frames of a project have embeddings of a segmenter. */
export async function embeddingsOf(
  database: Database,
  project: ProjectRow,
  segmenter: string,
): Promise<Embeddings> {
  const state = await embeddingState(database, project, { segmenter, missingMax: 0 });
  const { frames, embedded, running } = state;
  return { segmenter, frames, embedded, running };
}

/**
 * Has nodes embed frames of a project that have no embedding; not while they do. Of requests at
 * once one enqueues tasks, as all give them the same keys.
 */
export async function embedProject(
  parts: Parts,
  project: ProjectRow,
  segmenter: string,
): Promise<Embeddings> {
  const { projectId, workspaceId } = project;
  const state = await embeddingState(parts.database, project, {
    segmenter,
    missingMax: EMBED_MAX,
  });
  const { frames, embedded, missing, tasks, running } = state;
  if (running || missing.length === 0) return { segmenter, frames, embedded, running };
  const subject = subjectOf(projectId, segmenter);
  await enqueueLooks(
    parts,
    {
      workspaceId,
      subject,
      key: `${subject}:${tasks}`,
      priority: PRIORITY,
      segmenter,
      model: null,
    },
    missing.map((frame) => ({ ...frame, embed: true, score: false })),
  );
  return { segmenter, frames, embedded, running: true };
}

/**
 * The frames of a project most like one of it, by the embeddings of a segmenter: the named one, or
 * the newest that embedded the frame. Fails with `state_conflict` where the frame has none.
 */
export async function similarFrames(
  database: Database,
  { video, frame }: { video: VideoRow; frame: number },
  { segmenter: named, limit }: { segmenter?: string | undefined; limit: number },
): Promise<SimilarFrames> {
  const which = named === undefined ? sql`true` : sql`segmenter = ${named}`;
  const { rows } = await database.execute<{ segmenter: string; vector: string }>(sql`
    SELECT segmenter, encode(vector, 'base64') AS vector FROM frame_embedding
     WHERE video_id = ${video.videoId}::uuid AND frame_index = ${frame}::int AND ${which}
     ORDER BY created_at DESC LIMIT 1`);
  const [own] = rows;
  if (!own) {
    const whose = named === undefined ? "" : ` of ${named}`;
    throw new Failure(
      "state_conflict",
      `the frame has no embedding${whose}: POST /projects/${video.projectId}/embeddings`,
    );
  }
  const { segmenter } = own;
  const likeness = new Likeness<FrameEmbedding>(int8s(own.vector), limit);
  // All of a project's vectors are more than a Worker's memory takes: they are read twice.
  for await (const page of pagesOf(database, video.projectId, segmenter)) {
    for (const { vector } of page) likeness.average(vector);
  }
  for await (const page of pagesOf(database, video.projectId, segmenter)) {
    for (const one of page) {
      const isOwn = one.videoId === video.videoId && one.index === frame;
      if (!isOwn) likeness.compare(one, one.vector);
    }
  }
  const nearest = likeness.nearest();
  const ids = nearest.map(({ one }) => one.videoId);
  const videos = await findVideos(database, [video.workspaceId], ids);
  const names = new Map(videos.map(({ videoId, filename }) => [videoId, filename]));
  return {
    segmenter,
    compared: likeness.averaged,
    frames: nearest.flatMap(({ one: { videoId, index }, similarity }) => {
      const filename = names.get(videoId);
      // Its video was deleted meanwhile.
      if (filename === undefined) return [];
      return [{ ...frameOf({ videoId, filename, index }), similarity }];
    }),
  };
}

/** A frame's embedding. */
interface FrameEmbedding {
  videoId: string;
  index: number;
  vector: Int8Array;
}

/** The embeddings of a project's frames. */
async function* pagesOf(
  database: Database,
  projectId: string,
  segmenter: string,
): AsyncGenerator<FrameEmbedding[]> {
  let last: FrameEmbedding | undefined;
  do {
    const after = last
      ? sql`AND (e.video_id, e.frame_index) > (${last.videoId}::uuid, ${last.index}::int)`
      : sql``;
    const { rows } = await database.execute<{ videoId: string; index: number; vector: string }>(sql`
      SELECT e.video_id::text AS "videoId", e.frame_index AS index,
        encode(e.vector, 'base64') AS vector
        FROM video v JOIN frame_embedding e ON e.video_id = v.id AND e.segmenter = ${segmenter}
       WHERE v.project_id = ${projectId}::uuid ${after}
       ORDER BY e.video_id, e.frame_index LIMIT ${PAGE_ROWS}::int`);
    const page = rows.map(({ vector, ...frame }) => ({ ...frame, vector: int8s(vector) }));
    yield page;
    last = page.length < PAGE_ROWS ? undefined : page.at(-1);
  } while (last);
}
