// Objects of a bucket, page by page.

import type { R2Bucket } from "@cloudflare/workers-types";

/** An object as a listing names it; `size` in bytes. */
export interface ObjectEntry {
  key: string;
  size: number;
  uploaded: Date;
}

/** All objects whose keys begin with a prefix, a thousand at a time, in the order of their keys. */
export async function* pagesOf(
  bucket: Pick<R2Bucket, "list">,
  prefix = "",
): AsyncGenerator<ObjectEntry[]> {
  let cursor: string | undefined;
  do {
    const listed = await bucket.list({ prefix, limit: 1000, ...(cursor ? { cursor } : {}) });
    yield listed.objects;
    cursor = listed.truncated ? listed.cursor : undefined;
  } while (cursor);
}
