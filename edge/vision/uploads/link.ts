// Videos that lie in the object store already: registered where they are, never copied. Only keys
// under the workspace's own prefix are looked at, so nobody reaches another's objects by naming
// them.

import { Failure } from "../../../shared/errors.ts";
import type { Caller } from "../auth/scope.ts";
import type { Parts } from "../base/parts.ts";
import type { ProjectRow } from "../projects/projects.ts";
import { addVideo, checkQuota, type VideoRow, workspacePrefix } from "../projects/videos.ts";
import { plainName } from "./form.ts";
import { VIDEO, VIDEO_HEAD_BYTES } from "./media-types.ts";
import { tooLarge } from "./object-writer.ts";

const KEY_BYTES_MAX = 1024;

/** An object of the store as a request names it. */
export interface LinkedObject {
  storage_key: string;
  filename: string;
}

/** Whether a key is one under the prefix and no trick: no step upwards, address or control. */
export function isKeyUnder(prefix: string, key: string): boolean {
  if (!key.startsWith(prefix) || key.length === prefix.length) return false;
  if (new TextEncoder().encode(key).length > KEY_BYTES_MAX) return false;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused
  if (/[\x00-\x1f\x7f\\]/.test(key) || !key.isWellFormed()) return false;
  return key.split("/").every((segment) => segment !== "" && segment !== "." && segment !== "..");
}

/** Makes the video of an object; `storage_key_refused` for a key outside of the workspace. */
export async function linkVideo(
  parts: Parts,
  caller: Caller,
  project: ProjectRow,
  { storage_key, filename }: LinkedObject,
): Promise<VideoRow> {
  const prefix = workspacePrefix(project.workspaceId);
  if (!isKeyUnder(prefix, storage_key)) {
    throw new Failure("storage_key_refused", `storage_key: must be a plain key under ${prefix}`);
  }
  const range = { offset: 0, length: VIDEO_HEAD_BYTES };
  // The store refuses a range of an empty object.
  const found = await parts.bucket.head(storage_key);
  if (!found) throw new Failure("storage_key_refused", "storage_key: there is no such object");
  if (found.size === 0) throw new Failure("unsupported_media", "the object is empty");
  if (found.size > parts.limits.uploadBytesMax) throw tooLarge(parts.limits.uploadBytesMax);
  const object = await parts.bucket.get(storage_key, { range });
  if (!object) throw new Failure("storage_key_refused", "storage_key: there is no such object");
  const contentType = VIDEO.typeOf(new Uint8Array(await object.arrayBuffer()));
  await checkQuota(parts, project.workspaceId, found.size);
  return addVideo(parts, {
    videoId: crypto.randomUUID(),
    workspaceId: project.workspaceId,
    projectId: project.projectId,
    filename: plainName(filename),
    storageKey: storage_key,
    source: "link",
    bytes: found.size,
    contentType,
    createdBy: caller.accountId,
  });
}
