// Which objects of the bucket the database names, and how those go that it names no more.

import { sql } from "drizzle-orm";
import { DAY } from "../../../shared/time.ts";
import { deleteDiscarded, discard, discardedAmong } from "../../http/discarded-objects.ts";
import type { Parts } from "./parts.ts";

type Discarding = Pick<Parts, "database" | "bucket" | "limits">;

/**
 * Every object that a row names, whichever room wrote it: `key`, and `required`, which the file of
 * a linked video is not: it is its owner's. Nor is the checkpoint of a run that is under way: the
 * next one replaces it; nor a pack of crops, which are cut again. What is made again where it is
 * missing and has no row, such as images of frames, and what lives for a day is not among them.
 */
export const NAMED_OBJECTS = sql`
  SELECT storage_key AS key, source <> 'link' AS required FROM video
  UNION ALL SELECT pts_key, true FROM video WHERE pts_key IS NOT NULL
  UNION ALL SELECT thumbnail_key, true FROM video WHERE thumbnail_key IS NOT NULL
  UNION ALL SELECT storage_key, true FROM dataset_export WHERE state = 'completed'
  UNION ALL SELECT storage_key, true FROM dataset_version
  UNION ALL SELECT key, false FROM crop_pack
  UNION ALL SELECT dataset->'manifest'->>'key', true FROM training_run
  UNION ALL SELECT checkpoint->>'key', state NOT IN ('queued', 'running') FROM training_run
    WHERE checkpoint IS NOT NULL
  UNION ALL SELECT one->>'key', true FROM training_run, jsonb_array_elements(artifacts) one
  UNION ALL SELECT storage_key, true FROM weights_file
  UNION ALL SELECT storage_key, true FROM model
  UNION ALL SELECT storage_key, true FROM model_export WHERE storage_key IS NOT NULL
  UNION ALL SELECT report_key, true FROM comparison_session
    WHERE report_key IS NOT NULL AND forgotten_at IS NULL
  UNION ALL SELECT unnest(overlay_keys), true FROM comparison_session WHERE forgotten_at IS NULL`;

/** The database with its bucket. */
export const pairOf = ({ database, bucket }: Pick<Parts, "database" | "bucket">) => ({
  database,
  bucket,
  named: NAMED_OBJECTS,
});

/**
 * Has objects deleted, or whole folders by their names with the slash, that no row names any more:
 * once their grace is over, at once where there is none. What a row names stays.
 */
export async function discardObjects(parts: Discarding, keys: readonly string[]): Promise<void> {
  await discard(parts.database, keys);
  if (parts.limits.objectGraceDays === 0) await deleteOverdue(parts);
}

/** Deletes objects at once, but for those that are kept for their grace. */
export async function deleteUnlisted(
  { database, bucket }: Pick<Parts, "database" | "bucket">,
  keys: readonly string[],
): Promise<void> {
  if (keys.length === 0) return;
  const listed = await discardedAmong(database, keys);
  const unlisted = keys.filter((key) => !listed.has(key));
  if (unlisted.length > 0) await bucket.delete(unlisted);
}

/** Deletes the objects whose grace is over. */
export const deleteOverdue = (parts: Discarding): Promise<number> =>
  deleteDiscarded(pairOf(parts), { graceMs: parts.limits.objectGraceDays * DAY });
