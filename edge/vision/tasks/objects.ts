// Addresses of single objects, signed for one method and a short while. They are made when somebody
// may use them, are never stored with a task, and never reach the log.

import { AwsV4Signer } from "aws4fetch";
import { assert } from "../../../shared/errors.ts";
import type { WriteAddress } from "../../../shared/tasks/node-protocol.ts";
import type { ObjectSource, ObjectTarget } from "../../../shared/tasks/tasks.ts";
import { iso } from "../../../shared/time.ts";
import type { Parts } from "../base/parts.ts";

/** Validity of an address for a user's download. */
const USER_SECONDS = 900;
/** Validity of the addresses of an upload's parts. */
const PART_SECONDS = 3_600;
/** A node's objects: it asks for another address while the task is its own. */
const NODE_SECONDS = 10 * 60;

export type SigningParts = Pick<Parts, "s3" | "clock">;

/** A reference to an object that a node reads; the claim fills in the address. */
export const source = (key: string, bytes: number): ObjectSource => ({ url: "", key, bytes });

/** A reference to an object that a node writes, of a key that it is read by in the end. */
export const target = (key: string, contentType: string): ObjectTarget => ({
  key,
  content_type: contentType,
});

/** The attempt of a task. */
export interface Attempt {
  taskId: string;
  fence: number;
}

/**
 * Where an attempt writes what its payload calls `key`. No other attempt writes there, so what a
 * task left is not changed by one that ended.
 */
export function attemptKey(key: string, { taskId, fence }: Attempt): string {
  const [, stem = key, extension = ""] = /^(.*?)(\.[^./]+)?$/s.exec(key) ?? [];
  return `${stem}.${taskId.slice(0, 8)}-${fence}${extension}`;
}

/** An address to read an object at; with `filename`, browsers save it under that name. */
export function presignGet(
  parts: SigningParts,
  key: string,
  { seconds = USER_SECONDS, filename }: { seconds?: number; filename?: string } = {},
): Promise<string> {
  const query: Record<string, string> = filename
    ? { "response-content-disposition": attachment(filename) }
    : {};
  return presign(parts, { method: "GET", key, seconds, query });
}

/** An object as a node is about to write it. */
export interface WrittenObject {
  key: string;
  contentType: string;
  bytes: number;
  /** MD5 of its bytes, in hex. */
  md5: string;
}

/** Where to write an object: these bytes and no others, where there is none yet. */
export async function addressToWrite(
  parts: SigningParts,
  { key, contentType, bytes, md5 }: WrittenObject,
): Promise<WriteAddress> {
  const digest = Array.from({ length: 16 }, (_, at) => parseInt(md5.slice(2 * at, 2 * at + 2), 16));
  const headers = {
    "Content-Type": contentType,
    "Content-MD5": btoa(String.fromCharCode(...digest)),
    "If-None-Match": "*",
  };
  const signed = { ...headers, "Content-Length": String(bytes) };
  const url = await presign(parts, { method: "PUT", key, seconds: NODE_SECONDS, headers: signed });
  return { url, key, headers };
}

/** An address to write one part of a multipart upload at, of so many bytes and no other number. */
export const presignPart = (
  parts: SigningParts,
  key: string,
  { uploadId, partNumber, bytes }: { uploadId: string; partNumber: number; bytes: number },
): Promise<string> =>
  presign(parts, {
    method: "PUT",
    key,
    seconds: PART_SECONDS,
    headers: { "Content-Length": String(bytes) },
    query: { partNumber: String(partNumber), uploadId },
  });

interface AddressRequest {
  method: "GET" | "PUT";
  key: string;
  seconds: number;
  headers?: Record<string, string>;
  query?: Record<string, string>;
}

// Signing keys are of a day; the signer keeps them here.
const signingKeys = new WeakMap<Parts["s3"], Map<string, ArrayBuffer>>();

async function presign({ s3, clock }: SigningParts, one: AddressRequest): Promise<string> {
  // An address would be resolved: such a key begins in one folder and names an object of another.
  const climbs = one.key.split("/").some((segment) => segment === "." || segment === "..");
  assert(!climbs, "a key has no dot segments");
  const cache = signingKeys.get(s3) ?? new Map<string, ArrayBuffer>();
  signingKeys.set(s3, cache);
  const url = new URL(`${s3.url}/${one.key.split("/").map(encodeURIComponent).join("/")}`);
  for (const [name, value] of Object.entries(one.query ?? {})) url.searchParams.set(name, value);
  url.searchParams.set("X-Amz-Expires", String(one.seconds));
  const signer = new AwsV4Signer({
    method: one.method,
    url: url.href,
    headers: one.headers ?? {},
    accessKeyId: s3.accessKeyId.reveal(),
    secretAccessKey: s3.secretAccessKey.reveal(),
    service: "s3",
    region: "auto",
    datetime: iso(clock()).replace(/[:-]|\.\d{3}/g, ""),
    cache,
    signQuery: true,
    allHeaders: true,
  });
  return (await signer.sign()).url.href;
}

/** RFC 6266: a plain name for old readers, the true one percent-encoded. */
function attachment(filename: string): string {
  const plain = filename.replace(/[^\x20-\x7e]|["\\%]/g, "_");
  const encoded = encodeURIComponent(filename).replace(
    /['()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `attachment; filename="${plain}"; filename*=UTF-8''${encoded}`;
}

interface Reference {
  key: string;
  /** Given where the object is to be written. */
  content_type?: string;
  /** Given where the object is to be read. */
  bytes?: number;
}

const isTarget = (value: object): value is ObjectTarget =>
  "key" in value && "content_type" in value && typeof value.content_type === "string";
const isReference = (value: object): value is Reference =>
  isTarget(value) ||
  ("url" in value && value.url === "" && "key" in value && typeof value.key === "string");

/** All references in a payload. */
function referencesOf(value: unknown): Reference[] {
  if (typeof value !== "object" || value === null) return [];
  if (isReference(value)) return [value];
  return Object.values(value).flatMap(referencesOf);
}

/** The keys of all references in a payload. */
export const referencedKeys = (value: unknown): string[] =>
  referencesOf(value).map(({ key }) => key);

/** The reference by which a payload lets its node read an object, or null. */
export function sourceIn(payload: unknown, key: string): ObjectSource | null {
  const found = referencesOf(payload).find(
    (one) => one.key === key && one.content_type === undefined,
  );
  return found ? source(found.key, found.bytes ?? 0) : null;
}

/** The target of a payload under a key, or null. */
export const targetIn = (payload: unknown, key: string): ObjectTarget | null =>
  referencesOf(payload)
    .filter(isTarget)
    .find((one) => one.key === key) ?? null;

/** Where a running task's node puts an object of this name: another key each time. */
export const freshKey = (
  task: { workspaceId: string; subject: string; fence: number },
  name: string,
): string => {
  const folder = `ws/${task.workspaceId}/${task.subject.replaceAll(":", "/")}`;
  return `${folder}/${task.fence}-${crypto.randomUUID().slice(0, 8)}/${name}`;
};

/** A copy of a payload in which everything that a node reads has its address. */
export async function signReferences(parts: SigningParts, value: unknown): Promise<unknown> {
  if (typeof value !== "object" || value === null || isTarget(value)) return value;
  if (isReference(value)) {
    return { ...value, url: await presignGet(parts, value.key, { seconds: NODE_SECONDS }) };
  }
  if (Array.isArray(value)) return Promise.all(value.map((one) => signReferences(parts, one)));
  const entries = Object.entries(value).map(
    async ([name, one]) => [name, await signReferences(parts, one)] as const,
  );
  return Object.fromEntries(await Promise.all(entries));
}
