// Direct uploads: the sender puts parts straight into the store, at signed addresses, tells which
// have arrived, and may come back after a break for what is missing. An upload's id is the id of
// the video that it becomes, so completing it twice makes one video.
//
// What has arrived is remembered here, as not every store that speaks S3 can list it. The store has
// the last word: it refuses to put parts together that are not those named.

import { sql } from "drizzle-orm";
import { upload } from "../../../../db/vision/schema.ts";
import { Failure } from "../../../../shared/errors.ts";
import { DAY, iso } from "../../../../shared/time.ts";
import { batch } from "../../../http/database.ts";
import { columnsOf, type RowOf, rowsOf, selection, typed } from "../../../http/selection.ts";
import type { Parts } from "../../base/parts.ts";
import { idList } from "../../base/sql.ts";
import type { ProjectRow } from "../projects/projects.ts";
import {
  addVideo,
  checkQuota,
  findVideo,
  hasRoom,
  lockRoom,
  objectKeys,
  refuseFull,
  refuseGone,
  type VideoRow,
} from "../videos/videos.ts";
import { VIDEO, VIDEO_HEAD_BYTES, zipType } from "./media-types.ts";
import { abortMultipart, bareEtag, beginMultipart, completeMultipart } from "./multipart.ts";
import { PART_BYTES, tooLarge } from "./object-writer.ts";

/** The store forgets an unfinished upload after this. */
const UPLOAD_MS = 7 * DAY;
/** Parts of an upload: the store takes ten times as many, but fewer are signed sooner. */
const PARTS_MAX = 1_000;
const MEBIBYTE = 1024 * 1024;

const u = columnsOf(upload, "u");
const UPLOAD = selection({
  uploadId: u.id,
  workspaceId: u.workspaceId,
  projectId: u.projectId,
  kind: u.kind,
  filename: u.filename,
  storageKey: u.storageKey,
  multipartId: u.multipartId,
  bytes: u.bytes,
  partBytes: u.partBytes,
  /** ETags by part number. */
  parts: typed<Record<string, string>>(u.parts),
  videoId: u.videoId,
  completed: sql<boolean>`u.completed_at IS NOT NULL OR u.video_id IS NOT NULL`,
  aborted: sql<boolean>`u.aborted_at IS NOT NULL`,
  createdBy: typed<string>(u.createdBy),
  expiresAt: u.expiresAt,
});
/** A direct upload. */
export type UploadRow = RowOf<typeof UPLOAD>;

/**
 * Bytes of each part of an upload of so many bytes: whole mebibytes, as many as keep the number of
 * parts within `PARTS_MAX`, and no fewer than a streamed part has.
 */
export const partBytesFor = (bytes: number): number =>
  Math.max(PART_BYTES, Math.ceil(bytes / PARTS_MAX / MEBIBYTE) * MEBIBYTE);

/** How many parts an upload has, and how large one is. */
export const partCount = ({ bytes, partBytes }: UploadRow): number => Math.ceil(bytes / partBytes);

/** Begins an upload of so many bytes. Fails with `file_too_large` and `quota_exceeded`. */
export async function beginUpload(
  parts: Parts,
  project: ProjectRow,
  upload: { kind: UploadRow["kind"]; filename: string; bytes: number; createdBy: string },
): Promise<UploadRow> {
  const { database, limits, clock } = parts;
  if (upload.bytes > limits.uploadBytesMax) throw tooLarge(limits.uploadBytesMax);
  await checkQuota(parts, project.workspaceId, upload.bytes);
  const id = crypto.randomUUID();
  const key = objectKeys(project.workspaceId, id).source;
  const multipartId = await beginMultipart(parts, key);
  const insert = sql`
    WITH u AS (
      INSERT INTO upload (id, workspace_id, project_id, kind, filename, storage_key, multipart_id,
        bytes, part_bytes, created_by, created_at, expires_at)
      SELECT ${id}::uuid, ${project.workspaceId}::uuid, ${project.projectId}::uuid,
        ${upload.kind}, ${upload.filename}, ${key}, ${multipartId}, ${upload.bytes}::bigint,
        ${partBytesFor(upload.bytes)}::int, ${upload.createdBy}::uuid,
        ${iso(clock())}::timestamptz, ${iso(clock() + UPLOAD_MS)}::timestamptz
       WHERE ${hasRoom(parts, project.workspaceId, upload.bytes)}
      RETURNING *)
    SELECT ${UPLOAD} FROM u`;
  try {
    const lock = lockRoom(project.workspaceId);
    const [, rows] = await batch<[unknown, UploadRow]>(database, [lock, insert]);
    if (rows[0]) return rows[0];
    return await refuseFull(parts, project.workspaceId, upload.bytes);
  } catch (thrown) {
    await abortMultipart(parts, key, multipartId);
    return refuseGone(thrown);
  }
}

/** An upload within these workspaces; fails with `not_found`. */
export async function findUpload(
  { database }: Parts,
  workspaceIds: readonly string[],
  uploadId: string,
): Promise<UploadRow> {
  const rows = await rowsOf(database, UPLOAD)`
    SELECT ${UPLOAD} FROM upload u
     WHERE u.id = ${uploadId}::uuid AND u.workspace_id IN ${idList(workspaceIds)}`;
  const [row] = rows;
  if (!row) throw new Failure("not_found", "no such upload in your workspaces");
  return row;
}

/** A part that has arrived, as its sender tells. */
export interface NamedPart {
  part_number: number;
  etag: string;
}

const etagsOf = (named: readonly NamedPart[]): Record<string, string> =>
  Object.fromEntries(named.map(({ part_number, etag }) => [part_number, bareEtag(etag)]));

/** Remembers parts that have arrived; one sent anew replaces what was known of it. */
export async function rememberParts(
  { database }: Parts,
  upload: UploadRow,
  named: readonly NamedPart[],
): Promise<UploadRow> {
  const beyond = named.find(({ part_number }) => part_number > partCount(upload));
  if (beyond) {
    throw new Failure("invalid_request", `part_number: the upload has ${partCount(upload)} parts`);
  }
  const rows = await rowsOf(database, UPLOAD)`
    WITH u AS (
      UPDATE upload SET parts = parts || ${JSON.stringify(etagsOf(named))}::jsonb
       WHERE id = ${upload.uploadId}::uuid AND video_id IS NULL AND completed_at IS NULL
         AND aborted_at IS NULL
      RETURNING *)
    SELECT ${UPLOAD} FROM u`;
  if (!rows[0]) throw new Failure("state_conflict", "the upload is completed or aborted");
  return rows[0];
}

/**
 * Makes the video of an upload whose parts have all arrived; `named` adds to those remembered. May
 * be called again: with whatever became of the first call, one video comes of it. Fails with
 * `state_conflict` while parts are missing, and for good, leaving no object, when the file is of
 * another size or of no type that is taken.
 */
export async function completeVideo(
  parts: Parts,
  upload: UploadRow,
  named: readonly NamedPart[],
): Promise<VideoRow> {
  if (upload.videoId !== null) {
    return findVideo(parts.database, [upload.workspaceId], upload.videoId);
  }
  const contentType = await putTogether(parts, upload, named);
  return addVideo(parts, {
    videoId: upload.uploadId,
    uploadId: upload.uploadId,
    workspaceId: upload.workspaceId,
    projectId: upload.projectId,
    filename: upload.filename,
    storageKey: upload.storageKey,
    source: "upload",
    bytes: upload.bytes,
    contentType,
    createdBy: upload.createdBy,
  });
}

/** Completes an archive's upload, which an import may then name. Otherwise as `completeVideo`. */
export async function completeArchive(
  parts: Parts,
  upload: UploadRow,
  named: readonly NamedPart[],
): Promise<UploadRow> {
  if (upload.completed && !upload.aborted) return upload;
  await putTogether(parts, upload, named);
  const rows = await rowsOf(parts.database, UPLOAD)`
    WITH u AS (
      UPDATE upload SET completed_at = coalesce(completed_at, ${iso(parts.clock())}::timestamptz)
       WHERE id = ${upload.uploadId}::uuid AND aborted_at IS NULL RETURNING *)
    SELECT ${UPLOAD} FROM u`;
  if (!rows[0]) throw new Failure("state_conflict", "the upload was aborted");
  return rows[0];
}

/** Has the store put the parts of an upload together; returns the object's content type. */
async function putTogether(parts: Parts, upload: UploadRow, named: readonly NamedPart[]) {
  if (upload.aborted) throw new Failure("state_conflict", "the upload was aborted");
  const uploadId = upload.multipartId;
  const etags = allEtags(upload, { ...upload.parts, ...etagsOf(named) });
  const outcome = await completeMultipart(parts, upload.storageKey, { uploadId, etags });
  if (outcome === "wrong") {
    throw new Failure("state_conflict", "the parts named are not those that arrived");
  }
  // Also when the store no longer knows the upload: an earlier call put its object together.
  return verifyObject(parts, upload);
}

/** The etags of all parts in order; fails while one is unknown. */
function allEtags(upload: UploadRow, known: Readonly<Record<string, string>>): string[] {
  const numbers = Array.from({ length: partCount(upload) }, (_, index) => index + 1);
  const missing = numbers.filter((number) => known[number] === undefined);
  if (missing.length > 0) {
    throw new Failure("state_conflict", `${missing.length} parts have not arrived`, {
      data: { parts_missing: missing.slice(0, 100) },
    });
  }
  if (Object.keys(known).length > numbers.length) {
    throw new Failure("state_conflict", `the upload has ${numbers.length} parts, not more`);
  }
  return numbers.map((number) => known[number] as string);
}

const TYPE_OF: Readonly<Record<UploadRow["kind"], (head: Uint8Array) => string>> = {
  video: VIDEO.typeOf,
  archive: (head) => {
    const type = zipType(head);
    if (!type) throw new Failure("unsupported_media", "the file is no zip");
    return type;
  },
};

/** Content type of the whole object by its first bytes; an object that is not taken goes. */
async function verifyObject(parts: Parts, upload: UploadRow): Promise<string> {
  const range = { offset: 0, length: Math.min(VIDEO_HEAD_BYTES, upload.bytes) };
  const object = await parts.bucket.get(upload.storageKey, { range });
  if (!object) throw new Failure("state_conflict", "the upload has expired; begin it anew");
  const head = new Uint8Array(await object.arrayBuffer());
  try {
    if (object.size !== upload.bytes) throw new Failure("state_conflict", "the size is another");
    return TYPE_OF[upload.kind](head);
  } catch (thrown) {
    await abortUpload(parts, upload);
    throw thrown;
  }
}

/** Gives an upload up and leaves nothing of it. Fails with `state_conflict` once it is a video. */
export async function abortUpload(parts: Parts, upload: UploadRow): Promise<void> {
  const { rows } = await parts.database.execute(sql`
    UPDATE upload SET aborted_at = coalesce(aborted_at, ${iso(parts.clock())}::timestamptz)
     WHERE id = ${upload.uploadId}::uuid AND video_id IS NULL
       AND NOT EXISTS (SELECT FROM video WHERE id = upload.id) RETURNING id`);
  if (rows.length === 0) {
    throw new Failure("state_conflict", "the upload is a video already; delete that");
  }
  await abortMultipart(parts, upload.storageKey, upload.multipartId);
  await parts.bucket.delete(upload.storageKey);
}

/** Gives up uploads that were never completed; none keeps the others. The minute cron calls it. */
export async function abandonUploads(parts: Parts): Promise<number> {
  const rows = await rowsOf(parts.database, UPLOAD)`
    SELECT ${UPLOAD} FROM upload u WHERE u.video_id IS NULL AND u.aborted_at IS NULL
       AND u.expires_at < ${iso(parts.clock())}::timestamptz
       AND NOT EXISTS (SELECT FROM video WHERE id = u.id) ORDER BY random() LIMIT 20`;
  for (const upload of rows) {
    await abortUpload(parts, upload).catch((error: unknown) =>
      parts.log.error("upload_not_abandoned", { upload_id: upload.uploadId, error }),
    );
  }
  return rows.length;
}
