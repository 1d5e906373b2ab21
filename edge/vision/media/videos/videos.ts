// Videos as rows: where their objects lie, how they are found within the caller's workspaces, how
// they come to be and how they go.

import { type SQL, sql } from "drizzle-orm";
import { video } from "../../../../db/vision/schema.ts";
import { Failure } from "../../../../shared/errors.ts";
import { iso, MINUTE } from "../../../../shared/time.ts";
import type { Video } from "../../../../shared/wire/vision.ts";
import { batch, type Database } from "../../../http/database.ts";
import { columnsOf, type RowOf, rowsOf, selection, typed } from "../../../http/selection.ts";
import { jsonb } from "../../../http/storable.ts";
import { API } from "../../base/api.ts";
import { discardObjects } from "../../base/discard.ts";
import { isWanted, type ListPage, type ListQuery, pageOf } from "../../base/lists.ts";
import type { Parts } from "../../base/parts.ts";
import { breaksReference, idList } from "../../base/sql.ts";
import { source, target } from "../../tasks/objects.ts";
import { requestCancel } from "../../tasks/queue/interventions.ts";
import type { NewTask } from "../../tasks/queue/queue.ts";
import { submit } from "../../tasks/queue/wait.ts";

/** Keys of a video's objects; all of them are made here. */
export const objectKeys = (workspaceId: string, videoId: string) => {
  const folder = `ws/${workspaceId}/videos/${videoId}/`;
  return {
    folder,
    source: `${folder}source`,
    pts: `${folder}pts`,
    thumbnail: `${folder}thumbnail.jpg`,
    frame: (index: number, width?: number) =>
      `${folder}frames/${width === undefined ? "" : `w${width}/`}${index}.jpg`,
  };
};

/** The prefix of the keys of a workspace's objects, whatever they are. */
export const workspacePrefix = (workspaceId: string) => `ws/${workspaceId}/`;

/**
 * Folders under a workspace's prefix that the service writes: of its rooms, and of the subjects of
 * tasks. What lies elsewhere under it is the workspace's own.
 */
export const SERVICE_FOLDERS: ReadonlySet<string> = new Set([
  ...["videos", "exports", "model-exports", "predictions", "comparisons", "weights", "models"],
  ...[
    "comparison",
    "crops",
    "embeddings",
    "experiment",
    "export",
    "job",
    "model",
    "model_export",
    "run",
    "segmenter",
  ],
  ...["video", "workflow", "datasets"],
]);

const v = columnsOf(video, "v");
const VIDEO = selection({
  videoId: v.id,
  workspaceId: v.workspaceId,
  projectId: v.projectId,
  filename: v.filename,
  storageKey: v.storageKey,
  source: v.source,
  state: v.state,
  failure: v.failure,
  bytes: v.bytes,
  contentType: v.contentType,
  width: v.width,
  height: v.height,
  fps: v.fps,
  durationSeconds: v.durationSeconds,
  frameCount: v.frameCount,
  timeBase: typed<[number, number] | null>(v.timeBase),
  ptsKey: v.ptsKey,
  thumbnailKey: v.thumbnailKey,
  createdAt: v.createdAt,
});
/** A video as its row holds it. */
export type VideoRow = RowOf<typeof VIDEO>;

/** A video as the wire shows it. */
export const videoRecord = (row: VideoRow): Video => ({
  video_id: row.videoId,
  project_id: row.projectId,
  filename: row.filename,
  source: row.source,
  status: row.state,
  failure: row.failure,
  bytes: row.bytes,
  content_type: row.contentType,
  width: row.width,
  height: row.height,
  fps: row.fps,
  duration_seconds: row.durationSeconds,
  frame_count: row.frameCount,
  thumbnail_url: row.thumbnailKey && `${API}/videos/${row.videoId}/thumbnail.jpg`,
  created_at: row.createdAt,
});

/** The videos of these ids that lie in these workspaces, in no particular order. */
export async function findVideos(
  database: Database,
  workspaceIds: readonly string[],
  videoIds: readonly string[],
): Promise<VideoRow[]> {
  const rows = await rowsOf(database, VIDEO)`
    SELECT ${VIDEO} FROM video v
     WHERE v.id IN ${idList(videoIds)} AND v.workspace_id IN ${idList(workspaceIds)}`;
  return rows;
}

/** The video of this id, if it lies in these workspaces; fails with `not_found`. */
export async function findVideo(
  database: Database,
  workspaceIds: readonly string[],
  videoId: string,
): Promise<VideoRow> {
  const [row] = await findVideos(database, workspaceIds, [videoId]);
  if (!row) throw new Failure("not_found", "no such video in your workspaces");
  return row;
}

/** A page of a project's videos, oldest first. */
export const listVideos = (
  database: Database,
  projectId: string,
  query: ListQuery,
): Promise<ListPage<VideoRow>> => {
  const where = sql`v.project_id = ${projectId}::uuid
    AND ${isWanted(query, { name: v.filename, state: v.state })}`;
  const order = sql`v.created_at, v.id`;
  return pageOf(database, VIDEO, { from: sql`video v`, where, order }, query);
};

/** All videos of a project whose frames were counted, oldest first. */
export async function probedVideos(database: Database, projectId: string): Promise<VideoRow[]> {
  const rows = await rowsOf(database, VIDEO)`
    SELECT ${VIDEO} FROM video v WHERE v.project_id = ${projectId}::uuid AND v.state = 'ready'
     ORDER BY v.created_at, v.id`;
  return rows;
}

/** Workspaces as a condition on a column. */
type WorkspaceFilter = (column: SQL) => SQL;

const one =
  (workspaceId: string): WorkspaceFilter =>
  (column) =>
    sql`${column} = ${workspaceId}::uuid`;

/** All that were made by whoever made this one; none where nobody did. */
const ofItsMaker =
  (workspaceId: string): WorkspaceFilter =>
  (column) =>
    sql`${column} IN (SELECT id FROM workspace WHERE made_by = (
      SELECT made_by FROM workspace WHERE id = ${workspaceId}::uuid))`;

const OWN = sql`workspace_id`;

/** Tasks whose annotated clips are there, as long as their rows: the index has this, too. */
export const HAS_ANNOTATED = sql.raw("state = 'finished' AND payload ? 'annotated'");

/**
 * Bytes that the videos, open uploads, archives that are imported, weights files, models, exported
 * models, training runs, results of comparisons, versions of datasets and annotated clips of
 * workspaces take up, as a subselect. An export that is being made counts with what its file will
 * take, a run with its dataset, its checkpoint and its artifacts; weights that are a model's are no
 * artifact besides.
 */
const usedBytes = (isChosen: WorkspaceFilter, now: number) => sql`(
  SELECT coalesce((SELECT sum(v.bytes) FROM video v JOIN project p ON p.id = v.project_id
      WHERE ${isChosen(sql`p.workspace_id`)}), 0)
    + coalesce((SELECT sum(u.bytes) FROM upload u WHERE ${isChosen(sql`u.workspace_id`)}
      AND u.video_id IS NULL AND u.aborted_at IS NULL
      AND u.expires_at > ${iso(now)}::timestamptz), 0)
    + coalesce((SELECT sum(bytes) FROM weights_file WHERE ${isChosen(OWN)}), 0)
    + coalesce((SELECT sum(bytes) FROM model WHERE ${isChosen(OWN)}), 0)
    + coalesce((SELECT sum(coalesce(bytes, bytes_expected)) FROM model_export
      WHERE ${isChosen(OWN)} AND state <> 'failed'), 0)
    + coalesce((SELECT sum(coalesce((dataset->'manifest'->>'bytes')::bigint, 0)
        + coalesce((checkpoint->>'bytes')::bigint, 0)) FROM training_run
      WHERE ${isChosen(OWN)}), 0)
    + coalesce((SELECT sum((one->>'bytes')::bigint)
      FROM training_run r, jsonb_array_elements(r.artifacts) one
      WHERE ${isChosen(sql`r.workspace_id`)} AND NOT EXISTS (SELECT FROM model m
        WHERE m.workspace_id = r.workspace_id AND m.storage_key = one->>'key')), 0)
    + coalesce((SELECT sum(bytes) FROM comparison_session WHERE ${isChosen(OWN)}), 0)
    + coalesce((SELECT sum((result->'annotated'->>'bytes')::bigint) FROM task
      WHERE ${isChosen(OWN)} AND ${HAS_ANNOTATED}), 0)
    + coalesce((SELECT sum(bytes) FROM dataset_version WHERE ${isChosen(OWN)}), 0)
    + coalesce((SELECT sum(bytes) FROM dataset_import
      WHERE ${isChosen(OWN)} AND state = 'running'), 0))`;

/**
 * Whether so many more bytes have room in a workspace, and beside all else that its maker made. It
 * holds within a batch that began with `lockRoom`.
 */
export const hasRoom = ({ limits, clock }: Parts, workspaceId: string, bytes: number) => {
  const now = clock();
  return sql`${usedBytes(one(workspaceId), now)} + ${bytes}::bigint
      <= ${limits.workspaceBytesMax}::bigint
    AND ${usedBytes(ofItsMaker(workspaceId), now)} + ${bytes}::bigint
      <= ${limits.accountBytesMax}::bigint`;
};

/**
 * Locks a workspace with all others of its maker: of requests that add to them at once, each sees
 * what the one before added.
 */
export const lockRoom = (workspaceId: string): SQL => sql`
  SELECT FROM workspace WHERE id = ${workspaceId}::uuid OR ${ofItsMaker(workspaceId)(sql`id`)}
   ORDER BY id FOR NO KEY UPDATE`;

/**
 * Fails with `quota_exceeded` when so many more bytes have no room in the workspace, or beside all
 * else that its maker made.
 */
export async function checkQuota(parts: Parts, workspaceId: string, bytes: number): Promise<void> {
  const { workspaceBytesMax, accountBytesMax } = parts.limits;
  const now = parts.clock();
  const { rows } = await parts.database.execute<{ used: number; usedByMaker: number }>(sql`
    SELECT ${usedBytes(one(workspaceId), now)}::float8 AS used,
      ${usedBytes(ofItsMaker(workspaceId), now)}::float8 AS "usedByMaker"`);
  const { used = 0, usedByMaker = 0 } = rows[0] ?? {};
  if (used + bytes > workspaceBytesMax)
    throw full("the workspace's storage", { used, wanted: bytes, max: workspaceBytesMax });
  if (usedByMaker + bytes > accountBytesMax) {
    const storage = "the storage of all workspaces that one account made";
    throw full(storage, { used: usedByMaker, wanted: bytes, max: accountBytesMax });
  }
}

/** Fails with `quota_exceeded` after a statement that found no room, whatever was freed since. */
export async function refuseFull(parts: Parts, workspaceId: string, bytes: number): Promise<never> {
  await checkQuota(parts, workspaceId, bytes);
  const max = parts.limits.workspaceBytesMax;
  throw full("the workspace's storage", { used: undefined, wanted: bytes, max });
}

const MAKING_ROOM = "delete videos, training runs, models or files of weights first";

const full = (
  storage: string,
  { used, wanted, max }: { used: number | undefined; wanted: number; max: number },
) =>
  new Failure("quota_exceeded", `${storage} is full; ${MAKING_ROOM}`, {
    data: { bytes_used: used, bytes_wanted: wanted, bytes_max: max },
  });

export interface NewVideo {
  videoId: string;
  workspaceId: string;
  projectId: string;
  filename: string;
  storageKey: string;
  source: VideoRow["source"];
  bytes: number;
  contentType: string;
  /** Id of the account; null where a device sent it. */
  createdBy: string | null;
  /** The direct upload that it comes of, unless that was aborted, which fails. */
  uploadId?: string;
}

/**
 * Makes the row and has the file probed. A row of this id that is there already stays as it is.
 * Fails with `not_found` when the project was deleted meanwhile and with `quota_exceeded`, and only
 * while there is no row: whoever stored the file may then delete it.
 */
export async function addVideo(parts: Parts, video: NewVideo): Promise<VideoRow> {
  // Taken in the same statement: of completing and aborting at once, one finds the other done.
  const origin = video.uploadId
    ? sql`UPDATE upload SET video_id = ${video.videoId}::uuid
        WHERE id = ${video.uploadId}::uuid AND aborted_at IS NULL RETURNING 1`
    : sql`SELECT 1 WHERE ${hasRoom(parts, video.workspaceId, video.bytes)}`;
  const [, rows] = await batch<[unknown, VideoRow]>(parts.database, [
    lockRoom(video.workspaceId),
    insertVideos(parts, [video], origin),
  ]).catch(refuseGone);
  const row =
    rows[0] ?? (await findVideos(parts.database, [video.workspaceId], [video.videoId]))[0];
  if (!row) {
    if (video.uploadId) throw new Failure("state_conflict", "the upload was aborted");
    return refuseFull(parts, video.workspaceId, video.bytes);
  }
  await probeAll(parts, [row]);
  return row;
}

/** Has videos probed; those that a fault keeps from it are the minute cron's. */
const probeAll = (parts: Parts, rows: readonly VideoRow[]) =>
  submit(parts, rows.map(probeTask)).catch((error: unknown) =>
    parts.log.warning("probe_not_enqueued", { video_id: rows[0]?.videoId, error }),
  );

/** Rows for these videos where `origin` has one; a row of one's id that is there stays as it is. */
const insertVideos = (parts: Parts, videos: readonly NewVideo[], origin: SQL) => sql`
    WITH origin AS (${origin}),
    v AS (
      INSERT INTO video (id, workspace_id, project_id, filename, storage_key, source, bytes,
        content_type, created_by, created_at)
      SELECT "videoId", "workspaceId", "projectId", filename, "storageKey", source, bytes,
        "contentType", "createdBy", ${iso(parts.clock())}::timestamptz
        FROM origin, jsonb_to_recordset(${jsonb(videos)}) AS new("videoId" uuid,
          "workspaceId" uuid, "projectId" uuid, filename text, "storageKey" text, source text,
          bytes bigint, "contentType" text, "createdBy" uuid)
      ON CONFLICT (id) DO NOTHING RETURNING *)
    SELECT ${VIDEO} FROM v`;

/**
 * Makes the rows of several videos of a workspace, all or none, and has them probed. `after` is a
 * statement of the same transaction. Otherwise as `addVideo`.
 */
export async function addVideos(
  parts: Parts,
  videos: readonly NewVideo[],
  after: SQL,
): Promise<void> {
  const [first] = videos;
  if (!first) return;
  const { workspaceId } = first;
  const bytes = videos.reduce((sum, one) => sum + one.bytes, 0);
  const ids = videos.map(({ videoId }) => videoId);
  const known = sql`EXISTS (SELECT FROM video WHERE id IN ${idList(ids)})`;
  const origin = sql`SELECT 1 WHERE ${known} OR ${hasRoom(parts, workspaceId, bytes)}`;
  const insert = insertVideos(parts, videos, origin);
  await batch(parts.database, [lockRoom(workspaceId), insert, after]).catch(refuseGone);
  const rows = await findVideos(parts.database, [workspaceId], ids);
  if (rows.length < ids.length) return refuseFull(parts, workspaceId, bytes);
  await probeAll(parts, rows);
}

/** Makes `not_found` of the failure of a row whose project was deleted; rethrows any other. */
export function refuseGone(thrown: unknown): never {
  if (!breaksReference(thrown)) throw thrown;
  throw new Failure("not_found", "the project was deleted meanwhile", { cause: thrown });
}

function probeTask(video: VideoRow): NewTask {
  const keys = objectKeys(video.workspaceId, video.videoId);
  return {
    kind: "probe",
    workspaceId: video.workspaceId,
    subject: `video:${video.videoId}`,
    idempotencyKey: `probe:${video.videoId}`,
    payload: {
      video: source(video.storageKey, video.bytes),
      video_id: video.videoId,
      filename: video.filename,
      still: video.contentType.startsWith("image/"),
      pts: target(keys.pts, "application/octet-stream"),
      thumbnail: target(keys.thumbnail, "image/jpeg"),
    },
  };
}

/**
 * Enqueues the probes of videos whose maker died between making the row and enqueueing. The minute
 * cron calls it.
 */
export async function enqueueMissingProbes(parts: Parts): Promise<number> {
  const rows = await rowsOf(parts.database, VIDEO)`
    SELECT ${VIDEO} FROM video v WHERE v.state = 'probing'
       AND v.created_at < ${iso(parts.clock() - MINUTE)}::timestamptz
       AND NOT EXISTS (SELECT FROM task WHERE idempotency_key = 'probe:' || v.id) LIMIT 100`;
  if (rows.length > 0) await submit(parts, rows.map(probeTask));
  return rows.length;
}

/**
 * Deletes a video that no job and no run that is not over uses, then its objects; otherwise fails
 * with `state_conflict`.
 */
export async function deleteVideo(parts: Parts, video: VideoRow): Promise<void> {
  const { rows } = await parts.database
    .execute(sql`
      WITH gone AS (
        DELETE FROM video WHERE id = ${video.videoId}::uuid
          AND NOT EXISTS (SELECT FROM job_video WHERE video_id = ${video.videoId}::uuid)
          AND NOT EXISTS (SELECT FROM training_run WHERE state IN ('queued', 'running')
            AND dataset->'videos' ? ${video.videoId})
        RETURNING id),
      uploads AS (DELETE FROM upload USING gone WHERE upload.video_id = gone.id)
      SELECT FROM gone`)
    .catch((thrown: unknown) => {
      // A job took it up while this statement ran.
      if (breaksReference(thrown)) return { rows: [] };
      throw thrown;
    });
  if (!rows[0]) {
    const detail = "a labeling job or a training run uses the video; delete that first";
    throw new Failure("state_conflict", detail);
  }
  await requestCancel(parts.database, { subject: `video:${video.videoId}` });
  // Another row may be a link to this one's file, which then stays.
  await discardObjects(parts, [objectKeys(video.workspaceId, video.videoId).folder]);
}
