// Versions of a dataset: manifests that never change, each with what it holds and how it differs
// from the one before. What a run learned from can be told, and learned from again.

import { sql } from "drizzle-orm";
import { datasetVersion } from "../../../../db/vision/labeling.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { ObjectSource } from "../../../../shared/tasks/tasks.ts";
import type {
  DatasetVersion,
  VersionChanges,
  VersionCounts,
} from "../../../../shared/wire/datasets.ts";
import type { Database } from "../../../http/database.ts";
import { columnsOf, type RowOf, rowsOf, selection, typed } from "../../../http/selection.ts";
import type { Page } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { countsOf, type VideoSplit, writeSplits } from "../datasets/manifest.ts";
import { borderOf } from "../datasets/split.ts";
import { type DatasetRow, folderOf, keepDrawn, knownSides } from "./dataset-rows.ts";
import { mergeJobs } from "./merge.ts";
import { drawSides, sidesOf } from "./sides.ts";
import { compareVersions } from "./version-changes.ts";

/** How the frames of a version were chosen and split. */
type VersionSettings = Pick<DatasetRow, "include" | "valShare" | "testShare">;

const v = columnsOf(datasetVersion, "v");
const VERSION = selection({
  id: v.id,
  datasetId: v.datasetId,
  number: v.number,
  note: v.note,
  settings: typed<VersionSettings>(v.settings),
  classes: v.classes,
  counts: typed<VersionCounts>(v.counts),
  changes: typed<VersionChanges>(v.changes),
  storageKey: v.storageKey,
  bytes: v.bytes,
  sha256: v.sha256,
  sources: typed<Pick<ObjectSource, "key" | "bytes">[]>(v.sources),
  videos: v.videos,
  createdBy: v.createdBy,
  createdAt: v.createdAt,
});
/** A version as its row holds it. */
export type VersionRow = RowOf<typeof VERSION>;

/** A version as the wire shows it. */
export const versionRecord = (row: VersionRow): DatasetVersion => ({
  dataset_id: row.datasetId,
  version: row.number,
  parent: row.number > 1 ? row.number - 1 : null,
  note: row.note,
  classes: row.classes,
  include: row.settings.include,
  counts: row.counts,
  changes: row.changes,
  sha256: row.sha256,
  created_by: row.createdBy,
  created_at: row.createdAt,
});

/** Versions of a dataset, newest first. */
export async function listVersions(
  database: Database,
  { id }: Pick<DatasetRow, "id">,
  { number, page }: { number?: number; page?: Page },
): Promise<VersionRow[]> {
  const one = number === undefined ? sql`true` : sql`v.number = ${number}::int`;
  const some = page ? sql`OFFSET ${page.offset}::int LIMIT ${page.limit}::int` : sql``;
  return await rowsOf(database, VERSION)`
    SELECT ${VERSION} FROM dataset_version v WHERE v.dataset_id = ${id}::uuid AND ${one}
     ORDER BY v.number DESC ${some}`;
}

/** A version of a dataset by its number; fails with `not_found`. */
export async function findVersion(
  database: Database,
  dataset: Pick<DatasetRow, "id">,
  number: number,
): Promise<VersionRow> {
  const [row] = await listVersions(database, dataset, { number });
  if (!row) throw new Failure("not_found", `the dataset has no version ${number}`);
  return row;
}

/**
 * Writes down what a dataset holds now as its next version; the newest one where nothing changed
 * since. Draws sides for videos that have none. Fails with `state_conflict` where there is nothing
 * to write down, where the jobs do not go together, and where another version is made meanwhile.
 */
export async function makeVersion(
  parts: Pick<Parts, "database" | "bucket">,
  dataset: DatasetRow,
  { note, createdBy }: { note: string; createdBy: string },
): Promise<{ version: VersionRow; isNew: boolean }> {
  const { database, bucket } = parts;
  const merged = await mergeJobs(database, dataset);
  const known = await knownSides(database, dataset.id);
  await keepDrawn(database, dataset.id, drawSides(merged.units, known, dataset));
  const spans = Map.groupBy(await knownSides(database, dataset.id), ({ videoId }) => videoId);
  const splits = merged.videos
    .filter(({ frames }) => frames.length > 0)
    .map((video): VideoSplit => {
      const sides = sidesOf(video.frames, spans.get(video.id) ?? []);
      const border = borderOf(sides);
      return { video, sides: new Map([...sides].filter(([frame]) => !border.has(frame))) };
    });
  const { leftOutFrames, annotations } = countsOf(splits);
  if (annotations === 0) throw new Failure("state_conflict", "the dataset has no annotation");
  const { classes } = merged;
  const head = { name: dataset.name, classes, left_out_frames: leftOutFrames };
  const id = crypto.randomUUID();
  const key = `${folderOf(dataset)}${id}.json`;
  const text = { head, splits, annotations: merged.annotations(splits) };
  const written = await writeSplits(parts, text, key);
  const [parent = null] = await listVersions(database, dataset, { page: { offset: 0, limit: 1 } });
  const read = async (stored: string) => (await bucket.get(stored))?.body ?? null;
  const manifest = await read(key);
  if (!manifest) throw new Failure("state_conflict", "the dataset was deleted meanwhile");
  const before = parent && (await read(parent.storageKey));
  const { counts, changes } = await compareVersions(manifest, before, classes);
  const isSame =
    parent !== null &&
    JSON.stringify(parent.classes) === JSON.stringify(classes) &&
    Object.values(changes).every((one) => one.added + one.changed + one.removed === 0);
  if (isSame) {
    await bucket.delete(key);
    return { version: parent, isNew: false };
  }
  const { include, valShare, testShare } = dataset;
  const next = (parent?.number ?? 0) + 1;
  const sources = written.videos.map(({ key: object, bytes }) => ({ key: object, bytes }));
  const rows = await rowsOf(database, VERSION)`
    WITH named AS (
      UPDATE dataset SET classes = ARRAY(SELECT jsonb_array_elements_text(
          ${JSON.stringify(classes)}::jsonb))
       WHERE id = ${dataset.id}::uuid AND (SELECT coalesce(max(number), 0) FROM dataset_version
         WHERE dataset_id = ${dataset.id}::uuid) = ${next - 1}::int RETURNING id, workspace_id
    ), v AS (
      INSERT INTO dataset_version (id, workspace_id, dataset_id, number, note, settings, classes,
        counts, changes, storage_key, bytes, sha256, sources, videos, created_by)
      SELECT ${id}::uuid, workspace_id, id, ${next}::int, ${note},
        ${JSON.stringify({ include, valShare, testShare })}::jsonb,
        ARRAY(SELECT jsonb_array_elements_text(${JSON.stringify(classes)}::jsonb)),
        ${JSON.stringify({ ...counts, left_out_frames: leftOutFrames })}::jsonb,
        ${JSON.stringify(changes)}::jsonb, ${key}, ${written.manifest.bytes}::bigint,
        ${written.sha256}, ${JSON.stringify(sources)}::jsonb,
        ${JSON.stringify(splits.map(({ video }) => video.id))}::jsonb, ${createdBy}::uuid
        FROM named ON CONFLICT (dataset_id, number) DO NOTHING RETURNING *)
    SELECT ${VERSION} FROM v`;
  const [version] = rows;
  if (version) return { version, isNew: true };
  await bucket.delete(key);
  throw new Failure("state_conflict", "another version was made at the same time; try again");
}
