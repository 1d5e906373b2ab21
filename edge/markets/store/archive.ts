// Archiving: the entries of old vintages leave the catalog, which would else grow with every
// commit for ever, for objects. Their rows are in compacted objects by then, and every answer stays
// as it was.
//
// First a stretch of the feed becomes an object, in the feed's order and of all series; then, of
// each series, what the feed's objects have becomes an object of its own and leaves `vintage`. So a
// follower far behind reads one object after the other, and a series' history is a few objects.

import type { Log } from "../../http/log.ts";
import { encodeEntries, type FeedEntry } from "./entries.ts";
import {
  type ArchivableSeries,
  type ArchivePolicy,
  feedArchiveEnd,
  insertFeedArchive,
  listArchivable,
  listArchivableSeries,
  listOldVintages,
  swapVintages,
} from "./housekeeping.ts";
import { putBytes, type WriterParts } from "./objects.ts";

/** Where archived objects lie, apart from the others. */
export const ARCHIVE_PREFIX = "archive/v1/";

/**
 * An hourly series fills an object in six weeks at least and in six months at most; 8,192 entries
 * are about 5 MB on their way from the database and 50 ms for a reader of an object.
 */
export const ARCHIVE_POLICY: ArchivePolicy = {
  ageMs: 90 * 86_400_000,
  feedMin: 4_096,
  feedMax: 8_192,
  seriesMin: 1_024,
  seriesMax: 4_096,
};

/**
 * Archives what the policy says is old, a stretch at a time, until nothing is left or `isOver` says
 * so. Returns how many vintages left the catalog. A process that dies leaves an object that nothing
 * names, which collection deletes, or a stretch done.
 */
export async function archive(
  parts: WriterParts & { log: Log },
  policy: ArchivePolicy,
  isOver: () => boolean = () => false,
): Promise<number> {
  while (!isOver()) if (!(await archiveFeed(parts, policy))) break;
  const end = await feedArchiveEnd(parts.database);
  let archived = 0;
  for (let before = -1; archived > before && !isOver(); ) {
    before = archived;
    for (let afterId = 0; !isOver(); ) {
      const list = await listArchivableSeries(parts.database, { end, afterId }, policy);
      if (list.length === 0) break;
      for (const series of list) {
        if (isOver()) break;
        afterId = series.id;
        try {
          archived += await archiveSeries(parts, series);
        } catch (error) {
          // One series whose object cannot be written must not keep the others waiting.
          const { library, symbol } = series;
          parts.log.error("archiving_failed", { library, symbol, error });
        }
      }
    }
  }
  return archived;
}

/** Archives the next stretch of the feed; false when there is none, or another process took it. */
async function archiveFeed(parts: WriterParts, policy: ArchivePolicy): Promise<boolean> {
  const end = await feedArchiveEnd(parts.database);
  const entries = await listArchivable(parts.database, end, policy);
  if (entries.length < policy.feedMin) return false;
  const object = await putEntries(parts, `${ARCHIVE_PREFIX}feed`, entries);
  if (await insertFeedArchive(parts.database, { id: end.id + 1, entries, object })) return true;
  await parts.bucket.delete(object.objectKey);
  return false;
}

async function archiveSeries(parts: WriterParts, series: ArchivableSeries): Promise<number> {
  const entries = await listOldVintages(parts.database, series);
  // Another process was faster.
  if (entries.length < series.seqMax - series.archivedSeq) return 0;
  const folder = `${ARCHIVE_PREFIX}${series.library}/${series.symbol}/vintages`;
  const object = await putEntries(parts, folder, entries);
  if (await swapVintages(parts.database, series, { entries, object })) return entries.length;
  await parts.bucket.delete(object.objectKey);
  return 0;
}

const putEntries = (parts: WriterParts, folder: string, entries: readonly FeedEntry[]) =>
  putBytes(parts, `${folder}/${crypto.randomUUID()}.parquet`, encodeEntries(entries));
