// Deleting objects in two steps: what nothing names any more is listed, and deleted once its grace
// is over. Until then a database that was set back finds what it names again.

import type { R2Bucket } from "@cloudflare/workers-types";
import { sql } from "drizzle-orm";
import { namesAmong, type Pair } from "./bucket-identity.ts";
import type { Database } from "./database.ts";
import { pagesOf } from "./object-pages.ts";

/** Keys that one statement takes, and that one request to R2 deletes. */
const KEYS_AT_ONCE = 1_000;

/** Where such objects lie. */
interface Discarding extends Pair {
  bucket: Pair["bucket"] & Pick<R2Bucket, "delete">;
}

/**
 * Lists objects, or whole folders by their names with the slash, to be deleted later. The grace of
 * one that is listed already begins anew.
 */
export async function discard(database: Database, keys: readonly string[]): Promise<void> {
  for (let from = 0; from < keys.length; from += KEYS_AT_ONCE) {
    const some = JSON.stringify(keys.slice(from, from + KEYS_AT_ONCE));
    await database.execute(sql`
      INSERT INTO discarded_object (key) SELECT jsonb_array_elements_text(${some}::jsonb)
      ON CONFLICT (key) DO UPDATE SET discarded_at = excluded.discarded_at`);
  }
}

/** Those of these keys that are listed. */
export async function discardedAmong(
  database: Database,
  keys: readonly string[],
): Promise<Set<string>> {
  const { rows } = await database.execute<{ key: string }>(sql`
    SELECT key FROM discarded_object
     WHERE key IN (SELECT jsonb_array_elements_text(${JSON.stringify(keys)}::jsonb))`);
  return new Set(rows.map(({ key }) => key));
}

/**
 * Deletes what was listed `graceMs` ago or longer, but for what is named again. Returns how many
 * objects. Objects go before their entries: after a crash in between they are gone through again.
 */
export async function deleteDiscarded(
  { database, bucket, named }: Discarding,
  { graceMs }: { graceMs: number },
): Promise<number> {
  let deleted = 0;
  const deleteUnnamed = async (keys: readonly string[]) => {
    const names = await namesAmong({ database, named }, keys);
    const left = keys.filter((key) => !names.has(key));
    if (left.length > 0) await bucket.delete(left);
    deleted += left.length;
  };
  const isOver = sql`discarded_at <= clock_timestamp()
    - ${graceMs}::float8 * interval '1 millisecond'`;
  const forget = (keys: readonly string[]) =>
    database.execute(sql`
      DELETE FROM discarded_object WHERE ${isOver}
        AND key IN (SELECT jsonb_array_elements_text(${JSON.stringify(keys)}::jsonb))`);
  for (;;) {
    const { rows } = await database.execute<{ key: string }>(sql`
      SELECT key FROM discarded_object WHERE ${isOver} ORDER BY discarded_at LIMIT ${KEYS_AT_ONCE}`);
    if (rows.length === 0) return deleted;
    const keys = rows.map(({ key }) => key);
    const single = keys.filter((key) => !key.endsWith("/"));
    await deleteUnnamed(single);
    if (single.length > 0) await forget(single);
    for (const folder of keys.filter((key) => key.endsWith("/"))) {
      for await (const page of pagesOf(bucket, folder)) {
        await deleteUnnamed(page.map(({ key }) => key));
      }
      await forget([folder]);
    }
  }
}
