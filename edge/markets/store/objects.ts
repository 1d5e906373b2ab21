// The store's objects in R2: written once under a key of their own, never changed.

import type { R2Bucket } from "@cloudflare/workers-types";
import { Failure } from "../../../shared/errors.ts";
import type { Database } from "../../http/database.ts";
import type { NewObject } from "./catalog.ts";
import type { HeldRowGroups } from "./held-row-groups.ts";
import { indexOf } from "./segment.ts";

/** What a reader of the store works with. */
export interface StoreParts {
  database: Database;
  bucket: Pick<R2Bucket, "get">;
  /** Row groups that short reads share; those of one bucket and catalog only. */
  held?: HeldRowGroups;
}

/** What a writer of the store works with. */
export interface WriterParts extends StoreParts {
  bucket: Pick<R2Bucket, "get" | "put" | "delete" | "list">;
  /** A pause in milliseconds between attempts that lost to another writer. */
  pause: (milliseconds: number) => Promise<void>;
  /** Vintages of up to this many rows stay inside the catalog; default `INLINE_ROWS_MAX`. */
  inlineRowsMax?: number;
}

/** Writes a Parquet object; fails with `store_unavailable`. */
export async function putObject(
  { bucket }: Pick<WriterParts, "bucket">,
  objectKey: string,
  bytes: Uint8Array,
): Promise<NewObject> {
  const index = indexOf(bytes.buffer as ArrayBuffer);
  return { ...(await putBytes({ bucket }, objectKey, bytes)), index };
}

/** Writes an object; fails with `store_unavailable`. */
export async function putBytes(
  { bucket }: Pick<WriterParts, "bucket">,
  objectKey: string,
  bytes: Uint8Array,
): Promise<Omit<NewObject, "index">> {
  const digest = await sha256(bytes);
  // R2 refuses bytes that do not hash to this: a torn upload leaves nothing.
  await bucket.put(objectKey, bytes, { sha256: digest.buffer }).catch((cause: unknown) => {
    throw new Failure("store_unavailable", "the object store does not answer", { cause });
  });
  return { objectKey, bytes: bytes.byteLength, sha256: digest };
}

/** The SHA-256 of bytes. */
export const sha256 = async (bytes: Uint8Array) =>
  new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));

/** The bytes of an object, or a range of them. Fails with `store_unavailable`. */
export async function fetchBytes(
  bucket: StoreParts["bucket"],
  key: string,
  range?: { offset: number; length: number },
): Promise<ArrayBuffer> {
  const bytes = async () => (await bucket.get(key, range && { range }))?.arrayBuffer();
  const object = await bytes().catch((cause: unknown) => {
    throw new Failure("store_unavailable", "the object store does not answer", { cause });
  });
  if (!object) throw new Error(`the catalog names ${key}, the object store lacks it`);
  return object;
}
