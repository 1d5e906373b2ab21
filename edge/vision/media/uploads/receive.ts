// Takes files out of a form into videos. The form may name its project before the files or after
// them: a file that comes first goes where the caller may write, and moves if that was not it.

import { Failure } from "../../../../shared/errors.ts";
import type { RefusedFile, VideoBatch } from "../../../../shared/wire/vision.ts";
import { isSilent } from "../../../http/database.ts";
import { type Caller, workspacesOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { findProjectFor, type ProjectRow } from "../projects/projects.ts";
import { addVideo, checkQuota, objectKeys, type VideoRow, videoRecord } from "../videos/videos.ts";
import { type FormFile, formParts } from "./form.ts";
import type { MediaKind } from "./media-types.ts";
import { tooLarge, writeObject } from "./object-writer.ts";

/** Bytes of a form beyond its files. */
const ENVELOPE_BYTES = 1024 * 1024;

/** A file that lies in the store and is no video yet. */
interface StoredFile {
  videoId: string;
  workspaceId: string;
  filename: string;
  bytes: number;
  contentType: string;
}

/** What is taken out of a form. */
export interface FormRules {
  kind: MediaKind;
  /** Bytes of one file. */
  bytesMax: number;
  /** Fields that a file may come in. */
  fields: readonly string[];
  /** Only one file is taken. */
  single: boolean;
}

interface FormContent {
  project: ProjectRow;
  stored: StoredFile[];
  refused: RefusedFile[];
}

/** The one video of a form. Whatever fails, no object is left behind. */
export async function receiveOne(
  parts: Parts,
  caller: Caller,
  request: Request,
  rules: FormRules,
): Promise<VideoRow> {
  const { project, stored } = await receive(parts, caller, request, rules);
  const [file] = stored;
  if (!file) throw new Failure("invalid_request", "file: required");
  return makeVideo(parts, file, { project, rules, createdBy: caller.accountId });
}

/**
 * The videos of a form, and the files that were refused; fails when that was all of them. Whatever
 * else fails keeps the videos that are made by then, and leaves no other object behind.
 */
export async function receiveMany(
  parts: Parts,
  caller: Caller,
  request: Request,
  rules: FormRules,
): Promise<VideoBatch> {
  const { project, stored, refused } = await receive(parts, caller, request, rules);
  const videos: VideoRow[] = [];
  for (const [index, file] of stored.entries()) {
    try {
      videos.push(await makeVideo(parts, file, { project, rules, createdBy: caller.accountId }));
    } catch (thrown) {
      const fault = refusal(file.filename, thrown);
      if (fault) refused.push(fault);
      else {
        for (const other of stored.slice(index + 1)) await discard(parts, other);
        throw thrown;
      }
    }
  }
  if (videos.length === 0) {
    const detail = refused.length > 0 ? "none of the files can be taken" : "files: required";
    throw new Failure("invalid_request", detail, { data: { failed: refused } });
  }
  return { videos: videos.map(videoRecord), failed: refused };
}

/** The refusal of one file; null for a failure that is not the file's and ends the request. */
function refusal(filename: string, thrown: unknown): RefusedFile | null {
  const ofFile = ["unsupported_media", "file_too_large", "quota_exceeded", "invalid_request"];
  if (!(thrown instanceof Failure) || !ofFile.includes(thrown.code)) return null;
  return { filename, code: thrown.code, detail: thrown.message };
}

async function receive(
  parts: Parts,
  caller: Caller,
  request: Request,
  rules: FormRules,
): Promise<FormContent> {
  const [fallback] = workspacesOf(caller, "engineer");
  if (!fallback) throw new Failure("forbidden", "uploading needs the role engineer");
  checkLength(request, rules);
  const stored: StoredFile[] = [];
  const refused: RefusedFile[] = [];
  let project: ProjectRow | null = null;
  try {
    const contentType = request.headers.get("Content-Type") ?? undefined;
    for await (const part of formParts(request.body, contentType)) {
      if (part.kind === "field") {
        if (part.name === "project_id") project = await projectOf(parts, caller, part.value);
        continue;
      }
      if (!rules.fields.includes(part.name)) {
        part.skip();
        continue;
      }
      if (rules.single && stored.length > 0) {
        throw new Failure("invalid_request", "file: only one is taken; see /upload/batch");
      }
      try {
        // A full workspace takes no file in the first place.
        const workspaceId = project?.workspaceId ?? fallback;
        const before = stored.reduce((sum, { bytes }) => sum + bytes, 0);
        await checkQuota(parts, workspaceId, before + 1);
        stored.push(await store(parts, workspaceId, part, rules));
      } catch (thrown) {
        const fault = rules.single ? null : refusal(part.filename, thrown);
        if (!fault) throw thrown;
        refused.push(fault);
        // Unread, it would keep the parts after it from coming.
        part.skip();
      }
    }
    if (!project) throw new Failure("invalid_request", "project_id: required");
    return { project, stored, refused };
  } catch (thrown) {
    for (const file of stored) await discard(parts, file);
    throw thrown;
  }
}

function checkLength(request: Request, { bytesMax, single }: FormRules) {
  const bytes = Number(request.headers.get("Content-Length") ?? 0);
  if (single && bytes > bytesMax + ENVELOPE_BYTES) throw tooLarge(bytesMax);
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

function projectOf(parts: Parts, caller: Caller, id: string): Promise<ProjectRow> {
  if (!UUID.test(id)) throw new Failure("invalid_request", "project_id: must be a UUID");
  return findProjectFor(parts, caller, id, "engineer");
}

async function store(
  parts: Parts,
  workspaceId: string,
  { filename, chunks }: FormFile,
  { kind, bytesMax }: FormRules,
): Promise<StoredFile> {
  const videoId = crypto.randomUUID();
  const key = objectKeys(workspaceId, videoId).source;
  const { bytes, contentType } = await writeObject(parts.bucket, chunks, {
    key,
    bytesMax,
    headBytes: kind.headBytes,
    typeOf: kind.typeOf,
  });
  return { videoId, workspaceId, filename, bytes, contentType };
}

const discard = ({ bucket }: Parts, { workspaceId, videoId }: StoredFile) =>
  bucket.delete(objectKeys(workspaceId, videoId).source);

interface VideoOrigin {
  project: ProjectRow;
  rules: FormRules;
  /** Id of the account. */
  createdBy: string;
}

/** Makes the video of a stored file; where it cannot, the file goes. */
async function makeVideo(
  parts: Parts,
  file: StoredFile,
  { project, rules, createdBy }: VideoOrigin,
): Promise<VideoRow> {
  let moved = file;
  let isRecording = false;
  try {
    await checkQuota(parts, project.workspaceId, file.bytes);
    moved = await move(parts, file, project.workspaceId, rules);
    const { videoId, workspaceId, filename, bytes, contentType } = moved;
    isRecording = true;
    return await addVideo(parts, {
      videoId,
      workspaceId,
      filename,
      bytes,
      contentType,
      projectId: project.projectId,
      storageKey: objectKeys(workspaceId, videoId).source,
      source: rules.kind.source,
      createdBy,
    });
  } catch (thrown) {
    // A video that may have been recorded keeps its bytes.
    if (!isRecording || !isSilent(thrown)) await discard(parts, moved);
    throw thrown;
  }
}

/** The file under another workspace's prefix, where its project turned out to lie. */
async function move(
  parts: Parts,
  file: StoredFile,
  workspaceId: string,
  { kind, bytesMax }: FormRules,
): Promise<StoredFile> {
  if (file.workspaceId === workspaceId) return file;
  const object = await parts.bucket.get(objectKeys(file.workspaceId, file.videoId).source);
  if (!object) throw new Error("a file just stored is not there");
  // The platform's type of streams does not say that they are iterable.
  const chunks = object.body as unknown as AsyncIterable<Uint8Array>;
  await writeObject(parts.bucket, chunks, {
    key: objectKeys(workspaceId, file.videoId).source,
    bytesMax,
    headBytes: kind.headBytes,
    typeOf: kind.typeOf,
  });
  await discard(parts, file);
  return { ...file, workspaceId };
}
