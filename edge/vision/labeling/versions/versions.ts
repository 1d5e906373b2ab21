// Versions of a dataset: manifests that never change, each with what it holds and how it differs
// from the one before. What a run learned from can be told, and learned from again.

import { sql } from "drizzle-orm";
import { datasetVersion } from "../../../../db/vision/datasets.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { ObjectSource } from "../../../../shared/tasks/tasks.ts";
import type {
  DatasetVersion,
  VersionChanges,
  VersionCounts,
} from "../../../../shared/wire/datasets.ts";
import { type Database, isSilent } from "../../../http/database.ts";
import { columnsOf, type RowOf, rowsOf, selection, typed } from "../../../http/selection.ts";
import type { Page } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { idList } from "../../base/sql.ts";
import { checkQuota } from "../../media/videos/videos.ts";
import { importedSides } from "../datasets/imported-sides.ts";
import {
  countsOf,
  type VideoSplit,
  type WrittenManifest,
  writeSplits,
} from "../datasets/manifest.ts";
import { borderOf, sidesOf } from "../datasets/split.ts";
import { type DatasetRow, findDataset, folderOf, keepDrawn, knownSides } from "./dataset-rows.ts";
import { mergeJobs } from "./merge.ts";
import { drawSides } from "./sides.ts";
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
  createdBy: v.createdBy,
  createdAt: v.createdAt,
});
/** Objects of a version: megabytes where it has many stills, so they are read where needed. */
const OBJECTS = selection({
  sources: typed<Pick<ObjectSource, "key" | "bytes">[]>(v.sources),
  videos: v.videos,
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

/** The objects of a version's videos, and the videos' ids. */
async function versionObjects(
  database: Database,
  { id }: Pick<VersionRow, "id">,
): Promise<{ sources: Pick<ObjectSource, "key" | "bytes">[]; videos: string[] }> {
  const [row] = await rowsOf(database, OBJECTS)`
    SELECT ${OBJECTS} FROM dataset_version v WHERE v.id = ${id}::uuid`;
  if (!row) throw new Failure("state_conflict", "the dataset was deleted meanwhile");
  return row;
}

/** The same, of a version to use: fails with `state_conflict` when videos of it were deleted. */
export async function presentObjects(database: Database, version: Pick<VersionRow, "id">) {
  const { sources, videos } = await versionObjects(database, version);
  const { rows } = await database.execute<{ there: number }>(sql`
    SELECT count(*)::int AS there FROM video WHERE id IN ${idList(videos)}`);
  if (rows[0]?.there === videos.length) return { sources, videos };
  throw new Failure("state_conflict", "videos of the version were deleted; make another version");
}

/**
 * Writes down what a dataset holds now as its next version; the newest one where nothing changed
 * since. Draws sides for videos that have none. Fails with `state_conflict` where there is nothing
 * to write down, where the jobs do not go together, and where another version is made meanwhile.
 */
export async function makeVersion(
  parts: Parts,
  { id: datasetId, workspaceId }: Pick<DatasetRow, "id" | "workspaceId">,
  { note, createdBy }: { note: string; createdBy: string },
): Promise<{ version: VersionRow; isNew: boolean }> {
  const { database, bucket } = parts;
  // The parent before what the dataset holds: where another version is made from here on, this one
  // is refused, as it may know less.
  const newest = { page: { offset: 0, limit: 1 } };
  const [parent = null] = await listVersions(database, { id: datasetId }, newest);
  const dataset = await findDataset(database, [workspaceId], datasetId);
  const merged = await mergeJobs(database, dataset);
  if (merged.videos.every(({ counts }) => counts.size === 0)) {
    throw new Failure("state_conflict", "the dataset has no annotation");
  }
  await checkQuota(parts, workspaceId, parent?.bytes ?? 0);
  const known = await knownSides(database, dataset.id);
  const told = await importedSides(
    database,
    dataset.members.map(({ job_id: id }) => id),
  );
  await keepDrawn(database, dataset.id, drawSides(merged.units, known, dataset, told));
  const spans = Map.groupBy(await knownSides(database, dataset.id), ({ videoId }) => videoId);
  const splits = merged.videos
    .filter(({ frames }) => frames.length > 0)
    .map((video): VideoSplit => {
      const sides = sidesOf(video.frames, spans.get(video.id) ?? []);
      const border = borderOf(sides);
      return { video, sides: new Map([...sides].filter(([frame]) => !border.has(frame))) };
    });
  const { leftOutFrames, leftOutAnnotatedFrames } = countsOf(splits);
  const { classes } = merged;
  const head = { name: dataset.name, classes, left_out_frames: leftOutFrames };
  const id = crypto.randomUUID();
  const key = `${folderOf(dataset)}${id}.json`;
  const text = { head, splits, annotations: merged.annotations(splits) };
  const written = await writeSplits(parts, text, key);
  try {
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
    const videos = splits.map(({ video }) => video.id);
    const made = { id, key, written, videos, classes, note, createdBy, changes };
    const leftOut = {
      left_out_frames: leftOutFrames,
      left_out_annotated_frames: leftOutAnnotatedFrames,
    };
    const version = await keepVersion(database, dataset, {
      ...made,
      number: (parent?.number ?? 0) + 1,
      counts: { ...counts, ...leftOut },
    });
    return { version, isNew: true };
  } catch (thrown) {
    // A version that may have been recorded keeps its manifest.
    if (!isSilent(thrown)) await bucket.delete(key);
    throw thrown;
  }
}

/** A version that is written down, to be recorded under its number. */
interface WrittenVersion {
  id: string;
  key: string;
  number: number;
  written: WrittenManifest;
  videos: string[];
  classes: string[];
  note: string;
  createdBy: string;
  counts: VersionCounts;
  changes: VersionChanges;
}

/** Records a version and its classes as the dataset's; fails where another has its number. */
async function keepVersion(
  database: Database,
  { id: datasetId, include, valShare, testShare }: DatasetRow,
  { id, key, number, written, videos, classes, note, createdBy, ...found }: WrittenVersion,
): Promise<VersionRow> {
  const sources = written.videos.map(({ key: object, bytes }) => ({ key: object, bytes }));
  const names = sql`ARRAY(SELECT jsonb_array_elements_text(${JSON.stringify(classes)}::jsonb))`;
  const rows = await rowsOf(database, VERSION)`
    WITH v AS (
      INSERT INTO dataset_version (id, workspace_id, dataset_id, number, note, settings, classes,
        counts, changes, storage_key, bytes, sha256, sources, videos, created_by)
      SELECT ${id}::uuid, workspace_id, id, ${number}::int, ${note},
        ${JSON.stringify({ include, valShare, testShare })}::jsonb, ${names},
        ${JSON.stringify(found.counts)}::jsonb, ${JSON.stringify(found.changes)}::jsonb, ${key},
        ${written.manifest.bytes}::bigint, ${written.sha256}, ${JSON.stringify(sources)}::jsonb,
        ${JSON.stringify(videos)}::jsonb, ${createdBy}::uuid
        FROM dataset WHERE id = ${datasetId}::uuid AND (
          SELECT coalesce(max(number), 0) FROM dataset_version
           WHERE dataset_id = ${datasetId}::uuid) = ${number - 1}::int
      ON CONFLICT (dataset_id, number) DO NOTHING RETURNING *
    ), named AS (
      UPDATE dataset SET classes = v.classes FROM v WHERE dataset.id = v.dataset_id)
    SELECT ${VERSION} FROM v`;
  const [version] = rows;
  if (version) return version;
  throw new Failure("state_conflict", "another version was made at the same time; try again");
}
