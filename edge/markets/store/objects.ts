// The store's objects in R2: written once under a key of their own, never changed.

import type { R2Bucket } from "@cloudflare/workers-types";
import { Failure } from "../../../shared/errors.ts";
import type { NewObject } from "./catalog.ts";
import { indexOf } from "./segment.ts";
import type { StoreParts } from "./store.ts";

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
  const digest = await sha256(bytes);
  // R2 refuses bytes that do not hash to this: a torn upload leaves nothing.
  await bucket.put(objectKey, bytes, { sha256: digest.buffer }).catch((cause: unknown) => {
    throw new Failure("store_unavailable", "the object store does not answer", { cause });
  });
  const index = indexOf(bytes.buffer as ArrayBuffer);
  return { objectKey, bytes: bytes.byteLength, sha256: digest, index };
}

/** The SHA-256 of bytes. */
export const sha256 = async (bytes: Uint8Array) =>
  new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
