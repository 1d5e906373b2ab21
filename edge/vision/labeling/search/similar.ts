// Images and frames like one, by their embeddings; and how many of a project have those.

import { sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { Embeddings, SimilarFrames } from "../../../../shared/wire/suggestions.ts";
import type { Database } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";
import type { ProjectRow } from "../../media/projects/projects.ts";
import { findVideos, type VideoRow } from "../../media/videos/videos.ts";
import { listCapabilities } from "../../tasks/nodes/nodes.ts";
import { enqueueLooks, frameOf, int8s, projectFrames, type WantedFrame } from "./embeddings.ts";
import { similarities } from "./frame-ranking.ts";

/** Frames of a project that one request embeds: a day of a node without a GPU. */
const EMBED_MAX = 100_000;
/** Embeddings that one request compares: as many as a Worker's memory takes. */
const COMPARED_MAX = 100_000;
const PAGE_ROWS = 20_000;
/** The default of every node. */
const SEGMENTER_DEFAULT = "builtin";

/**
 * The segmenter whose embeddings are meant: the named one, or the nodes' default. Fails with
 * `invalid_request` where nodes are there and none offers it.
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
  if (nodes.length === 0 || offered.has(named)) return named;
  const all = [...offered].join(", ");
  throw new Failure("invalid_request", `segmenter: no node offers it; they offer ${all}`);
}

/** What the tasks of a project's embeddings are part of. */
const subjectOf = (projectId: string, segmenter: string) => `embeddings:${projectId}:${segmenter}`;

/** How many frames of a project have embeddings of a segmenter. */
export async function embeddingsOf(
  database: Database,
  { projectId }: ProjectRow,
  segmenter: string,
): Promise<Embeddings> {
  const { rows } = await database.execute<Omit<Embeddings, "segmenter"> & Record<string, unknown>>(
    sql`
    SELECT count(*)::int AS frames, count(e.video_id)::int AS embedded,
      EXISTS (SELECT FROM task WHERE subject = ${subjectOf(projectId, segmenter)}
        AND settled_at IS NULL) AS running
      FROM (${projectFrames(projectId)}) f LEFT JOIN frame_embedding e
        ON e.video_id = f.video_id AND e.frame_index = f.frame AND e.segmenter = ${segmenter}`,
  );
  const { frames = 0, embedded = 0, running = false } = rows[0] ?? {};
  return { segmenter, frames, embedded, running };
}

/** Has nodes embed the frames of a project that have no embedding; not while they do. */
export async function embedProject(
  parts: Parts,
  project: ProjectRow,
  segmenter: string,
): Promise<Embeddings> {
  const { database } = parts;
  const { projectId, workspaceId } = project;
  const before = await embeddingsOf(database, project, segmenter);
  if (before.running || before.embedded === before.frames) return before;
  const { rows } = await database.execute<WantedFrame & Record<string, unknown>>(sql`
    SELECT f.video_id::text AS "videoId", f.frame, true AS embed, false AS score
      FROM (${projectFrames(projectId)}) f JOIN video v ON v.id = f.video_id AND v.state = 'ready'
     WHERE NOT EXISTS (SELECT FROM frame_embedding e WHERE e.video_id = f.video_id
       AND e.frame_index = f.frame AND e.segmenter = ${segmenter})
     ORDER BY v.created_at, v.id, f.frame LIMIT ${EMBED_MAX}::int`);
  const subject = subjectOf(projectId, segmenter);
  const key = `${subject}:${crypto.randomUUID()}`;
  const order = { workspaceId, subject, key, segmenter, model: null };
  await enqueueLooks(parts, order, rows);
  return embeddingsOf(database, project, segmenter);
}

/**
 * The frames of a project most like one of it. Fails with `state_conflict` where that one has no
 * embedding of the segmenter.
 */
export async function similarFrames(
  database: Database,
  { video, frame }: { video: VideoRow; frame: number },
  { segmenter, limit }: { segmenter: string; limit: number },
): Promise<SimilarFrames> {
  const all = await vectorsOf(database, video.projectId, segmenter);
  const own = all.find(({ videoId, index }) => videoId === video.videoId && index === frame);
  if (!own) {
    throw new Failure(
      "state_conflict",
      `the frame has no embedding of ${segmenter}: POST /projects/${video.projectId}/embeddings`,
    );
  }
  const comparable = all.filter(({ vector }) => vector.length === own.vector.length);
  const alike = similarities(
    comparable.map(({ vector }) => vector),
    comparable.indexOf(own),
  );
  const nearest = comparable
    .map((one, at) => ({ ...one, similarity: alike[at] as number }))
    .filter(({ videoId, index }) => videoId !== own.videoId || index !== own.index)
    .toSorted((one, other) => other.similarity - one.similarity)
    .slice(0, limit);
  const ids = nearest.map(({ videoId }) => videoId);
  const videos = await findVideos(database, [video.workspaceId], ids);
  const names = new Map(videos.map(({ videoId, filename }) => [videoId, filename]));
  return {
    segmenter,
    compared: comparable.length,
    frames: nearest.flatMap(({ videoId, index, similarity }) => {
      const filename = names.get(videoId);
      // Its video was deleted meanwhile.
      if (filename === undefined) return [];
      return [{ ...frameOf({ videoId, filename, index }), similarity }];
    }),
  };
}

/** A frame's embedding. */
interface EmbeddedFrame {
  videoId: string;
  index: number;
  vector: Int8Array;
}

/** The embeddings of a project's frames, in pages: one answer with all of them is too large. */
async function vectorsOf(
  database: Database,
  projectId: string,
  segmenter: string,
): Promise<EmbeddedFrame[]> {
  const all: EmbeddedFrame[] = [];
  for (;;) {
    const last = all.at(-1);
    const after = last
      ? sql`AND (e.video_id, e.frame_index) > (${last.videoId}::uuid, ${last.index}::int)`
      : sql``;
    const { rows } = await database.execute<{ videoId: string; index: number; vector: string }>(sql`
      SELECT e.video_id::text AS "videoId", e.frame_index AS index,
        encode(e.vector, 'base64') AS vector
        FROM video v JOIN frame_embedding e ON e.video_id = v.id AND e.segmenter = ${segmenter}
       WHERE v.project_id = ${projectId}::uuid ${after}
       ORDER BY e.video_id, e.frame_index LIMIT ${PAGE_ROWS}::int`);
    for (const { vector, ...frame } of rows) all.push({ ...frame, vector: int8s(vector) });
    if (rows.length < PAGE_ROWS || all.length >= COMPARED_MAX) return all;
  }
}
