// Videos that lie in the object store already: listed, and registered where they are, never copied.
// Only keys that the workspace may link are looked at: those under its own prefix, but for the
// service's own folders, and those under prefixes that the operator maps to it. So nobody reaches
// another workspace's objects by naming them.

import { Failure } from "../../../../shared/errors.ts";
import type { Caller } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import type { ProjectRow } from "../projects/projects.ts";
import {
  addVideo,
  checkQuota,
  SERVICE_FOLDERS,
  type VideoRow,
  workspacePrefix,
} from "../videos/videos.ts";
import { plainName } from "./form.ts";
import { VIDEO, VIDEO_HEAD_BYTES } from "./media-types.ts";
import { tooLarge } from "./object-writer.ts";

const KEY_BYTES_MAX = 1024;
/** Objects of one listing of the store. */
const LISTED_MAX = 1_000;

/** An object of the store as a request names it. */
export interface LinkedObject {
  storage_key: string;
  filename: string;
}

const isTooLong = (key: string) => new TextEncoder().encode(key).length > KEY_BYTES_MAX;

/** Whether a key is one under the prefix and no trick: no step upwards, address or control. */
export function isKeyUnder(prefix: string, key: string): boolean {
  if (!key.startsWith(prefix) || key.length === prefix.length) return false;
  if (isTooLong(key)) return false;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused
  if (/[\x00-\x1f\x7f\\]/.test(key) || !key.isWellFormed()) return false;
  return key.split("/").every((segment) => segment !== "" && segment !== "." && segment !== "..");
}

type LinkParts = Pick<Parts, "bucket" | "linkPrefixes">;

/** Prefixes of the keys that a workspace may link, in order; none of them lies under another. */
export function linkPrefixesOf(
  { linkPrefixes }: Pick<LinkParts, "linkPrefixes">,
  workspaceId: string,
): string[] {
  const mapped = linkPrefixes.filter((one) => one.workspaceId === workspaceId);
  const given = [workspacePrefix(workspaceId), ...mapped.map(({ prefix }) => prefix)];
  const all = [...new Set(given)];
  return all.filter((one) => !all.some((other) => one !== other && one.startsWith(other))).sort();
}

/** The folder of the service's own that a key of the workspace lies in, or null. */
function serviceFolder(workspaceId: string, key: string): string | null {
  const prefix = workspacePrefix(workspaceId);
  const [folder = "", ...below] = key.startsWith(prefix) ? key.slice(prefix.length).split("/") : [];
  return below.length > 0 && SERVICE_FOLDERS.has(folder) ? `${prefix}${folder}/` : null;
}

/** An object that may be linked. */
export interface LinkableObject extends LinkedObject {
  bytes: number;
  uploaded_at: string;
}

/** Which of the objects that a workspace may link are listed. */
export interface LinkableFilter {
  /** The beginning of their keys. */
  prefix: string;
  /** Key of the last object of the page before. */
  after: string | undefined;
  limit: number;
}

/** Sorts behind every key of a folder. */
const LAST_OF_FOLDER = "\u{10ffff}";

/** A page of the objects that a workspace may link, by key; `next` is null on the last one. */
export async function listLinkable(
  parts: LinkParts,
  workspaceId: string,
  { prefix: wanted, after, limit }: LinkableFilter,
): Promise<{ items: LinkableObject[]; next: string | null }> {
  const prefixes = linkPrefixesOf(parts, workspaceId).flatMap((one) => {
    if (wanted.startsWith(one)) return isTooLong(wanted) ? [] : [wanted];
    return one.startsWith(wanted) ? [one] : [];
  });
  const isOf = (prefix: string, key: string) => key.startsWith(prefix) && !isTooLong(key);
  const first = after === undefined ? 0 : prefixes.findIndex((one) => isOf(one, after));
  if (first < 0) throw new Failure("invalid_request", "cursor: is none of a page of this list");
  const items: LinkableObject[] = [];
  for (const [index, prefix] of prefixes.slice(first).entries()) {
    const from = index === 0 ? after : undefined;
    for await (const { key, size, uploaded } of objectsUnder(parts, workspaceId, prefix, from)) {
      if (!isKeyUnder(prefix.slice(0, prefix.lastIndexOf("/") + 1), key)) continue;
      if (items.length === limit) return { items, next: items.at(-1)?.storage_key ?? null };
      const told = { storage_key: key, filename: plainName(key), bytes: size };
      items.push({ ...told, uploaded_at: uploaded.toISOString() });
    }
  }
  return { items, next: null };
}

/** Objects of a prefix by key, after one of them, without those of the service's own folders. */
async function* objectsUnder(
  { bucket }: LinkParts,
  workspaceId: string,
  prefix: string,
  after: string | undefined,
) {
  for (let startAfter = after; ; ) {
    const range = startAfter === undefined ? {} : { startAfter };
    const { objects, truncated } = await bucket.list({ prefix, limit: LISTED_MAX, ...range });
    let skipped: string | null = null;
    for (const object of objects) {
      skipped = serviceFolder(workspaceId, object.key);
      if (skipped) break;
      yield object;
    }
    const last = objects.at(-1)?.key;
    // A page that ends within a folder of the service goes on behind that folder.
    if (skipped) startAfter = skipped + LAST_OF_FOLDER;
    else if (truncated && last !== undefined) startAfter = last;
    else return;
  }
}

/** Makes an object's video; `storage_key_refused` for a key that the workspace may not link. */
export async function linkVideo(
  parts: Parts,
  caller: Caller,
  project: ProjectRow,
  { storage_key, filename }: LinkedObject,
): Promise<VideoRow> {
  const { workspaceId } = project;
  const prefixes = linkPrefixesOf(parts, workspaceId);
  if (!prefixes.some((prefix) => isKeyUnder(prefix, storage_key))) {
    const detail = `storage_key: must be a plain key under ${prefixes.join(" or ")}`;
    throw new Failure("storage_key_refused", detail);
  }
  const own = serviceFolder(workspaceId, storage_key);
  if (own) throw new Failure("storage_key_refused", `storage_key: ${own} is the service's own`);
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
