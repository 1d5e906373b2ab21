// Datasets as rows: jobs that are trained on together, their map of classes, and the side of the
// split of each video.

import { type SQL, sql } from "drizzle-orm";
import { dataset } from "../../../../db/vision/datasets.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { Dataset, VideoSide } from "../../../../shared/wire/datasets.ts";
import { type Database, patientBatch } from "../../../http/database.ts";
import { columnsOf, extended, type RowOf, rowsOf, selection } from "../../../http/selection.ts";
import type { Page } from "../../base/api.ts";
import { discardObjects } from "../../base/discard.ts";
import type { Parts } from "../../base/parts.ts";
import { idList } from "../../base/sql.ts";
import { workspacePrefix } from "../../media/videos/videos.ts";
import { releaseExports } from "../datasets/exports.ts";
import { classesOf } from "../datasets/manifest.ts";
import type { Side, SideSpan } from "../datasets/split.ts";
import type { NewSpan } from "./sides.ts";

/** A job of a dataset, with its map of classes. */
export interface Member {
  job_id: string;
  name: string;
  classes: Record<string, string>;
  without: string[];
}

const d = columnsOf(dataset, "d");
const DATASET = selection({
  id: d.id,
  workspaceId: d.workspaceId,
  projectId: d.projectId,
  name: d.name,
  description: d.description,
  classes: d.classes,
  include: d.include,
  valShare: d.valShare,
  testShare: d.testShare,
  createdAt: d.createdAt,
});
const LISTED = extended(DATASET, {
  members: sql<Member[]>`coalesce((SELECT jsonb_agg(jsonb_build_object('job_id', m.job_id,
      'name', j.name, 'classes', m.classes, 'without', m.without) ORDER BY m.added_at, m.job_id)
    FROM dataset_job m JOIN job j ON j.id = m.job_id WHERE m.dataset_id = d.id), '[]')`,
  newest: sql<number | null>`(SELECT max(number) FROM dataset_version WHERE dataset_id = d.id)`,
});
/** A dataset as its row holds it, with its jobs. */
export type DatasetRow = RowOf<typeof LISTED>;

/** A dataset as the wire shows it. */
export const datasetRecord = (row: DatasetRow): Dataset => ({
  dataset_id: row.id,
  project_id: row.projectId,
  name: row.name,
  description: row.description,
  classes: row.classes,
  jobs: row.members,
  include: row.include,
  val_share: row.valShare,
  test_share: row.testShare,
  newest_version: row.newest,
  created_at: row.createdAt,
});

/** Datasets of the workspaces, newest first. */
export async function listDatasets(
  database: Database,
  workspaces: readonly string[],
  {
    projectId,
    datasetId,
    page,
  }: { projectId?: string | undefined; datasetId?: string; page?: Page },
): Promise<DatasetRow[]> {
  const project = projectId ? sql`AND d.project_id = ${projectId}::uuid` : sql``;
  const one = datasetId ? sql`AND d.id = ${datasetId}::uuid` : sql``;
  const some = page ? sql`OFFSET ${page.offset}::int LIMIT ${page.limit}::int` : sql``;
  return await rowsOf(database, LISTED)`
    SELECT ${LISTED} FROM dataset d
     WHERE d.workspace_id IN ${idList(workspaces)} ${project} ${one}
     ORDER BY d.created_at DESC, d.id ${some}`;
}

/** The dataset, if it is of one of the workspaces; fails with `not_found`. */
export async function findDataset(
  database: Database,
  workspaces: readonly string[],
  datasetId: string,
): Promise<DatasetRow> {
  const [row] = await listDatasets(database, workspaces, { datasetId });
  if (!row) throw new Failure("not_found", "no such dataset in your workspaces");
  return row;
}

/** What people say of a dataset. */
export interface DatasetWords {
  name: string;
  description: string;
  include: "not_rejected" | "accepted";
  valShare: number;
  testShare: number;
}

/** Stores a dataset of jobs of the workspace; returns its id. */
export async function createDataset(
  database: Database,
  made: DatasetWords & {
    workspaceId: string;
    projectId: string;
    jobs: readonly string[];
    createdBy: string;
  },
): Promise<string> {
  const id = crypto.randomUUID();
  const wanted = [...new Set(made.jobs)];
  const { rows } = await database.execute<{ found: number }>(sql`
    WITH found AS (
      SELECT j.id, w.position
        FROM jsonb_array_elements_text(${JSON.stringify(wanted)}::jsonb)
          WITH ORDINALITY w(id, position)
        JOIN job j ON j.id = w.id::uuid AND j.workspace_id = ${made.workspaceId}::uuid
    ), made AS (
      INSERT INTO dataset (id, workspace_id, project_id, name, description, include, val_share,
        test_share, created_by)
      SELECT ${id}::uuid, ${made.workspaceId}::uuid, ${made.projectId}::uuid, ${made.name},
        ${made.description}, ${made.include}, ${made.valShare}::float8, ${made.testShare}::float8,
        ${made.createdBy}::uuid
       WHERE (SELECT count(*) FROM found) = ${wanted.length}::int RETURNING id
    ), members AS (
      -- In the order of the request, in which their classes get their indexes.
      INSERT INTO dataset_job (dataset_id, job_id, added_at)
      SELECT made.id, found.id, now() + found.position * interval '1 millisecond'
        FROM made, found)
    SELECT count(*)::int AS found FROM made`);
  if (rows[0]?.found) return id;
  throw new Failure("not_found", "job_ids: one of them is no job of the project's workspace");
}

/**
 * Changes what people say of a dataset; what is left out stays. Fails with `invalid_request` where
 * the shares leave too little for training.
 */
export async function editDataset(
  database: Database,
  { id }: Pick<DatasetRow, "id">,
  edit: { [Word in keyof DatasetWords]?: DatasetWords[Word] | undefined },
): Promise<void> {
  const shares = sql`coalesce(${edit.valShare ?? null}::float8, val_share)
    + coalesce(${edit.testShare ?? null}::float8, test_share)`;
  const { rows } = await database.execute(sql`
    UPDATE dataset SET name = coalesce(${edit.name ?? null}::text, name),
      description = coalesce(${edit.description ?? null}::text, description),
      include = coalesce(${edit.include ?? null}::text, include),
      val_share = coalesce(${edit.valShare ?? null}::float8, val_share),
      test_share = coalesce(${edit.testShare ?? null}::float8, test_share)
     WHERE id = ${id}::uuid AND ${shares} <= ${MEASURED_SHARE_MAX}::float8 RETURNING id`);
  if (!rows[0]) throw new Failure("invalid_request", `test_share: ${SHARES_RULE}`);
}

/** Shares of validation and test together, at most. */
export const MEASURED_SHARE_MAX = 0.9;
export const SHARES_RULE = "must leave a tenth of the frames for training";

/** Where the objects of a dataset lie. */
export const folderOf = ({ workspaceId, id }: Pick<DatasetRow, "id" | "workspaceId">): string =>
  `${workspacePrefix(workspaceId)}datasets/${id}/`;

/** Deletes a dataset with its versions and their exports; its jobs and the runs of it stay. */
export async function deleteDataset(parts: Parts, row: DatasetRow): Promise<void> {
  const { id: datasetId, workspaceId } = row;
  const afterDelete = await releaseExports(parts, { workspaceId, datasetId });
  await patientBatch(parts.database, [sql`DELETE FROM dataset WHERE id = ${row.id}::uuid`]);
  await afterDelete();
  await discardObjects(parts, [folderOf(row)]);
}

/** Jobs of one dataset: a page of the annotations of each is in memory at once. */
export const MEMBERS_MAX = 100;

/**
 * Puts a job into a dataset, or sets the map of its classes. Fails with `invalid_request` for
 * classes that the job lacks, and where the dataset has as many jobs as it may have.
 */
export async function putMember(
  database: Database,
  { id }: Pick<DatasetRow, "id">,
  { job_id: jobId, classes, without }: Omit<Member, "name">,
): Promise<void> {
  const named = [...Object.keys(classes), ...without];
  const known = new Set((await classesOf(database, { id: jobId })).map(({ name }) => name));
  const absent = named.find((name) => !known.has(name));
  if (absent !== undefined) {
    const detail = `the job has no class ${JSON.stringify(absent)}`;
    throw new Failure("invalid_request", `classes, without: ${detail}`);
  }
  const both = without.find((name) => Object.hasOwn(classes, name));
  if (both !== undefined) {
    const detail = `${JSON.stringify(both)} is in classes too`;
    throw new Failure("invalid_request", `without: ${detail}`);
  }
  const { rows } = await database.execute(sql`
    INSERT INTO dataset_job (dataset_id, job_id, classes, without)
    SELECT ${id}::uuid, ${jobId}::uuid, ${JSON.stringify(classes)}::jsonb,
      ARRAY(SELECT jsonb_array_elements_text(${JSON.stringify(without)}::jsonb))
     WHERE (SELECT count(*) FROM dataset_job
       WHERE dataset_id = ${id}::uuid AND job_id <> ${jobId}::uuid) < ${MEMBERS_MAX}::int
    ON CONFLICT (dataset_id, job_id) DO UPDATE SET classes = excluded.classes,
      without = excluded.without RETURNING job_id`);
  if (rows[0]) return;
  throw new Failure("invalid_request", `a dataset has at most ${MEMBERS_MAX} jobs`);
}

/** Takes a job out of a dataset; fails with `not_found` where it is none of it. */
export async function removeMember(
  database: Database,
  { id }: Pick<DatasetRow, "id">,
  jobId: string,
): Promise<void> {
  const { rows } = await database.execute(sql`
    DELETE FROM dataset_job WHERE dataset_id = ${id}::uuid AND job_id = ${jobId}::uuid
    RETURNING job_id`);
  if (!rows[0]) throw new Failure("not_found", "the dataset has no such job");
}

/** The sides of a dataset's videos, all of them. */
export async function knownSides(database: Database, id: string): Promise<SideSpan[]> {
  const { rows } = await database.execute<Record<string, unknown> & SideSpan>(sql`
    SELECT video_id::text AS "videoId", from_index AS "fromIndex", side FROM dataset_side
     WHERE dataset_id = ${id}::uuid ORDER BY video_id, from_index`);
  return rows;
}

/** A page of the sides of a dataset's videos, by the names of the videos. */
export async function listSides(
  database: Database,
  { id }: Pick<DatasetRow, "id">,
  { side, page }: { side?: Side | undefined; page: Page },
): Promise<VideoSide[]> {
  const { rows } = await database.execute<Record<string, unknown> & VideoSide>(sql`
    SELECT s.video_id::text, v.filename, s.from_index, s.side, s.origin
      FROM dataset_side s LEFT JOIN video v ON v.id = s.video_id
     WHERE s.dataset_id = ${id}::uuid AND ${side ? sql`s.side = ${side}` : sql`true`}
     ORDER BY v.filename, s.video_id, s.from_index
    OFFSET ${page.offset}::int LIMIT ${page.limit}::int`);
  return rows;
}

const spanRows = (spans: readonly NewSpan[]): SQL => sql`
  jsonb_to_recordset(${JSON.stringify(spans)}::jsonb)
    x("videoId" uuid, "fromIndex" int, side text, origin text)`;

/**
 * Keeps sides that were drawn or brought along, for videos that have none: where another request
 * drew first, its sides stand.
 */
export async function keepDrawn(
  database: Database,
  id: string,
  spans: readonly NewSpan[],
): Promise<void> {
  if (spans.length === 0) return;
  const lock = sql`SELECT id FROM dataset WHERE id = ${id}::uuid FOR UPDATE`;
  const insert = sql`
    INSERT INTO dataset_side (dataset_id, video_id, from_index, side, origin)
    SELECT d.id, x."videoId", x."fromIndex", x.side, coalesce(x.origin, 'drawn') FROM dataset d, ${spanRows(spans)}
     WHERE d.id = ${id}::uuid AND NOT EXISTS (
       SELECT FROM dataset_side s WHERE s.dataset_id = d.id AND s.video_id = x."videoId")`;
  await patientBatch(database, [lock, insert]);
}

/** Sets the side of videos, whole; fails with `not_found` for one of no job of the dataset. */
export async function setSide(
  database: Database,
  { id }: Pick<DatasetRow, "id">,
  { videoIds, side }: { videoIds: readonly string[]; side: Side },
): Promise<void> {
  const ids = [...new Set(videoIds)];
  const lock = sql`SELECT id FROM dataset WHERE id = ${id}::uuid FOR UPDATE`;
  const isMember = sql`(SELECT count(DISTINCT v.video_id) FROM dataset_job m
    JOIN job_video v ON v.job_id = m.job_id
   WHERE m.dataset_id = ${id}::uuid AND v.video_id IN ${idList(ids)}) = ${ids.length}::int`;
  const cleared = sql`
    DELETE FROM dataset_side WHERE dataset_id = ${id}::uuid AND video_id IN ${idList(ids)}
       AND ${isMember}`;
  const set = sql`
    INSERT INTO dataset_side (dataset_id, video_id, from_index, side, origin)
    SELECT ${id}::uuid, i.value::uuid, 0, ${side}, 'person'
      FROM jsonb_array_elements_text(${JSON.stringify(ids)}::jsonb) i WHERE ${isMember}
    RETURNING video_id`;
  type Rows = [unknown, unknown, { video_id: string }];
  const [, , rows] = await patientBatch<Rows>(database, [lock, cleared, set] as const);
  if (rows.length === 0) throw new Failure("not_found", "video_ids: not all are of the dataset");
}
