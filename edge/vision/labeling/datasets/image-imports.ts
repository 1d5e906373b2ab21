// Imports of archives with their images: how one begins, and how far it is. Each image becomes a
// still of the project, and then the labels become a job, whose id is that of the import. Nothing
// of the job is there before all of it is. `import-steps.ts` does the work, in steps that another
// process goes on with.

import { type SQL, sql } from "drizzle-orm";
import { datasetImport } from "../../../../db/vision/datasets.ts";
import { Failure } from "../../../../shared/errors.ts";
import { iso } from "../../../../shared/time.ts";
import type { ArchiveImport } from "../../../../shared/wire/labeling.ts";
import type { RefusedFile } from "../../../../shared/wire/vision.ts";
import { batch, type Database } from "../../../http/database.ts";
import { columnsOf, type RowOf, rowsOf, selection, typed } from "../../../http/selection.ts";
import { jsonb } from "../../../http/storable.ts";
import type { Parts } from "../../base/parts.ts";
import { breaksUniqueness, idList, textList } from "../../base/sql.ts";
import type { ProjectRow } from "../../media/projects/projects.ts";
import { relativeName } from "../../media/uploads/form.ts";
import { findUpload } from "../../media/uploads/uploads.ts";
import { hasRoom, lockRoom, refuseFull, refuseGone } from "../../media/videos/videos.ts";
import { assertDistinct } from "../classes.ts";
import { jobRecordOf } from "../jobs/jobs.ts";
import { type ArchiveImage, listImages, readArchive, type StoredArchive } from "./archive.ts";
import { type ArchiveFormat, archiveLabels } from "./archive-labels.ts";
import {
  type FoundFrame,
  firstOf,
  frameFinder,
  isFrame,
  type ProjectVideo,
} from "./image-names.ts";
import { type ImportSummary, matchLabels, readyVideos } from "./imports.ts";
import type { Labels } from "./labels.ts";

/** Images of one archive. */
const IMAGES_MAX = 50_000;
const ROWS_PER_STATEMENT = 5_000;
const NAMED_MAX = 100;

/** What of an import's labels came of it, as its row keeps it. */
export type LabelsSummary = Omit<ImportSummary, "jobId">;
/** Imports of earlier releases kept no sides. */
type StoredSummary = Omit<LabelsSummary, "sides"> & Partial<LabelsSummary>;

const d = columnsOf(datasetImport, "d");
const IMPORT = selection({
  ...d,
  format: typed<ArchiveFormat | null>(d.format),
  summary: typed<StoredSummary | null>(sql`d.summary->'labels'`),
  images: sql<ArchiveImport["images"]>`coalesce(d.summary->'images', ${imageCounts(sql`d.id`)})`,
  failedImages: sql<RefusedFile[]>`
    coalesce(d.summary->'failed_images', ${failedImages(sql`d.id`)})`,
});
/** An import of an archive with its images. */
export type ImportRow = RowOf<typeof IMPORT>;

/** Images of an import with what became of each: `pending` until its video was probed. */
function imageFates(importId: SQL): SQL {
  return sql`(
  SELECT i.position, i.name, CASE
      WHEN i.state = 'failed' OR v.state = 'failed' THEN 'failed'
      WHEN i.state <> 'pending' AND v.id IS NULL THEN 'failed'
      WHEN i.state = 'pending' OR v.state = 'probing' THEN 'pending'
      ELSE i.state END AS fate,
    CASE WHEN i.failure IS NOT NULL THEN i.failure_code
      WHEN v.id IS NULL THEN 'not_found' ELSE 'unsupported_media' END AS code,
    coalesce(i.failure, v.failure, 'its video was deleted meanwhile') AS detail
    FROM dataset_import_image i LEFT JOIN video v ON v.id = i.video_id
   WHERE i.import_id = ${importId})`;
}

function imageCounts(importId: SQL): SQL {
  const count = (fate: string) => sql`count(*) FILTER (WHERE fate = ${fate})`;
  return sql`(SELECT jsonb_build_object('total', count(*), 'stored', ${count("stored")},
    'existing', ${count("existing")}, 'failed', ${count("failed")}, 'pending', ${count("pending")})
    FROM ${imageFates(importId)} f)`;
}

function failedImages(importId: SQL): SQL {
  return sql`(SELECT coalesce(jsonb_agg(jsonb_build_object('filename', name, 'code', code,
      'detail', detail) ORDER BY position), '[]')
    FROM (SELECT * FROM ${imageFates(importId)} f WHERE fate = 'failed'
     ORDER BY position LIMIT ${NAMED_MAX}::int) named)`;
}

/** What an ended import keeps, once its images' rows are gone; `labels` is null of a failed one. */
export const summaryOf = (importId: string, labels: LabelsSummary | null): SQL => {
  const id = sql`${importId}::uuid`;
  return sql`jsonb_build_object('labels', ${jsonb(labels)}, 'images', ${imageCounts(id)},
    'failed_images', ${failedImages(id)})`;
};

/** The import of this id, if it lies in these workspaces; null otherwise. */
export async function importOf(
  database: Database,
  workspaceIds: readonly string[],
  importId: string,
): Promise<ImportRow | null> {
  const [row] = await rowsOf(database, IMPORT)`
    SELECT ${IMPORT} FROM dataset_import d
     WHERE d.id = ${importId}::uuid AND d.workspace_id IN ${idList(workspaceIds)}`;
  return row ?? null;
}

/** An import as the wire shows it; its result is null until then, and after its job was deleted. */
export async function importRecord(database: Database, row: ImportRow): Promise<ArchiveImport> {
  const job =
    row.state === "completed" ? await jobRecordOf(database, [row.workspaceId], row.id) : null;
  const { summary } = row;
  return {
    import_id: row.id,
    project_id: row.projectId,
    name: row.name,
    status: row.state,
    failure: row.failure,
    images: row.images,
    failed_images: row.failedImages,
    result: job && summary ? resultOf(job, summary) : null,
    created_at: row.createdAt,
    ended_at: row.endedAt,
  };
}

/** What an import answers with its job. */
export const resultOf = <Job>(job: Job, found: StoredSummary) => ({
  job,
  stored_annotations: found.annotations,
  unmatched: found.unmatched,
  unmatched_annotations: found.unmatchedAnnotations,
  left_out: found.leftOut,
  sides: found.sides ?? { train: 0, val: 0, test: 0 },
  notes: found.notes,
});

/**
 * What finds the frames of an archive's labels: among its own images by their paths there, and
 * among the other videos of the project.
 */
export function archiveFinder(
  images: readonly ProjectVideo[],
  project: readonly ProjectVideo[],
): (name: string, frameId?: string) => FoundFrame {
  const own = new Set(images.map(({ id }) => id));
  return firstOf(frameFinder(images), frameFinder(project.filter(({ id }) => !own.has(id))));
}

/** An image of an archive as a video of a size that is not known yet. */
const planned = ({ name, id }: { name: string; id: string }): ProjectVideo => ({
  id,
  filename: name,
  frame_count: 1,
  width: 0,
  height: 0,
});

/** The archive of an import: an object of its own, or a completed upload, which is used up. */
export interface ImportArchive extends StoredArchive {
  /** The import's id, which is an upload's own. */
  id: string;
  isUpload: boolean;
  /** The import that used the upload up. */
  begun?: ImportRow;
}

/** Into which project an archive with images goes, and who says so. */
export interface ImportOrder {
  project: ProjectRow;
  name: string;
  format: ArchiveFormat | undefined;
  createdBy: string;
}

/**
 * Begins an import of an archive with its images; false where it holds none that the project lacks
 * by the frames that our exports name. What its labels are refused for, it is refused for before
 * anything is stored. Fails with `state_conflict` while another import with images runs in the
 * project, and with `quota_exceeded`.
 */
export async function beginImport(
  parts: Parts,
  order: ImportOrder,
  archive: ImportArchive,
): Promise<boolean> {
  const { database } = parts;
  const { projectId } = order.project;
  const content = await readArchive(parts.bucket, archive);
  const images = (await listImages(parts.bucket, archive)).map((image) => ({
    ...image,
    id: crypto.randomUUID() as string,
  }));
  if (images.length > IMAGES_MAX) {
    throw new Failure("invalid_request", `the archive holds over ${IMAGES_MAX} images`);
  }
  refuseSameNames(images);
  const videos = await readyVideos(database, projectId);
  const own = frameFinder(images.map(planned));
  const project = frameFinder(videos);
  const find = firstOf(own, project);
  const isKnown = (image: string) => find(image) !== null;
  const { format } = order;
  const labels = archiveLabels({ ...content, images: 0 }, { format, isKnown });
  assertDistinct(labels.classes);
  matchLabels(labels, find);
  const here = framesHere(labels, own, project);
  const missing = images.filter(({ id }) => !here.has(id));
  if (missing.length === 0) return false;
  const bytes = await newBytes(database, projectId, missing);
  await insertImport(parts, order, { archive, missing, bytes });
  return true;
}

function refuseSameNames(images: readonly ArchiveImage[]) {
  const names = new Map<string, string>();
  for (const { name } of images) {
    const before = names.get(relativeName(name));
    if (before !== undefined) {
      const both = `${before} and ${name}`;
      throw new Failure("invalid_request", `${both} would be videos of one name: rename one`);
    }
    names.set(relativeName(name), name);
  }
}

/** Ids of images that are frames of the project's videos, as an export of ours tells. */
function framesHere(
  { images: named, frameIds }: Labels,
  own: ReturnType<typeof frameFinder>,
  byId: ReturnType<typeof frameFinder>,
): Set<string> {
  const here = named.flatMap((image) => {
    const frameId = frameIds.get(image);
    const told = frameId === undefined ? null : byId(image, frameId);
    const found = own(image);
    const isHere = told && isFrame(told) && frameId?.startsWith(`${told.video.id}.`);
    return isHere && found && isFrame(found) ? [found.video.id] : [];
  });
  return new Set(here);
}

/** Bytes of the images of which the project has none of the same path and size. */
async function newBytes(
  database: Database,
  projectId: string,
  images: readonly ArchiveImage[],
): Promise<number> {
  const known = new Set<string>();
  for (let from = 0; from < images.length; from += ROWS_PER_STATEMENT) {
    const names = images
      .slice(from, from + ROWS_PER_STATEMENT)
      .map(({ name }) => relativeName(name));
    for (const { filename, bytes } of await stillsNamed(database, projectId, names)) {
      known.add(`${bytes} ${filename}`);
    }
  }
  return images
    .filter(({ name, bytes }) => !known.has(`${bytes} ${relativeName(name)}`))
    .reduce((sum, { bytes }) => sum + bytes, 0);
}

/** A still of a project that has the path of an archive's image. */
export interface NamedStill extends Record<string, unknown> {
  id: string;
  filename: string;
  storageKey: string;
  bytes: number;
}

/** The stills of a project with these paths. */
export async function stillsNamed(
  database: Database,
  projectId: string,
  names: readonly string[],
): Promise<NamedStill[]> {
  const { rows } = await database.execute<NamedStill>(sql`
    SELECT id, filename, storage_key AS "storageKey", bytes::float8 AS bytes FROM video
     WHERE project_id = ${projectId}::uuid AND source = 'image' AND filename IN ${textList(names)}
     ORDER BY created_at, id`);
  return rows;
}

interface NewImport {
  archive: ImportArchive;
  missing: readonly { id: string; name: string }[];
  /** Bytes of the images that are new. */
  bytes: number;
}

async function insertImport(
  parts: Parts,
  { project: { workspaceId, projectId }, name, format, createdBy }: ImportOrder,
  { archive, missing, bytes }: NewImport,
): Promise<void> {
  const id = sql`${archive.id}::uuid`;
  // An upload counts already for what the workspace stores.
  const wanted = bytes + (archive.isUpload ? 0 : archive.bytes);
  const room = hasRoom(parts, workspaceId, wanted);
  const origin = archive.isUpload
    ? sql`DELETE FROM upload WHERE id = ${id} AND completed_at IS NOT NULL
        AND aborted_at IS NULL AND ${room} RETURNING 1`
    : sql`SELECT 1 WHERE ${room}`;
  const insert = sql`
    WITH origin AS (${origin})
    INSERT INTO dataset_import (id, workspace_id, project_id, name, format, storage_key, bytes,
      created_by, created_at)
    SELECT ${id}, ${workspaceId}::uuid, ${projectId}::uuid, ${name}, ${format ?? null}::text,
      ${archive.key}, ${archive.bytes}::bigint, ${createdBy}::uuid, ${iso(parts.clock())}::timestamptz
      FROM origin RETURNING id`;
  const pages = Array.from(
    { length: Math.ceil(missing.length / ROWS_PER_STATEMENT) },
    (_, page) => {
      const from = page * ROWS_PER_STATEMENT;
      const rows = missing.slice(from, from + ROWS_PER_STATEMENT);
      return sql`
      INSERT INTO dataset_import_image (import_id, position, name, video_id)
      SELECT ${id}, ${from}::int + position - 1, image->>'name', (image->>'id')::uuid
        FROM jsonb_array_elements(${jsonb(rows)}) WITH ORDINALITY x(image, position)
       WHERE EXISTS (SELECT FROM dataset_import WHERE id = ${id} AND state = 'running')
      ON CONFLICT DO NOTHING`;
    },
  );
  const [, made] = await batch(parts.database, [lockRoom(workspaceId), insert, ...pages]).catch(
    (thrown: unknown) =>
      breaksUniqueness(thrown) ? refuseSecond(parts.database, projectId) : refuseGone(thrown),
  );
  // Where two requests name one upload, the second finds the first one's import.
  if (made?.[0] || (await importOf(parts.database, [workspaceId], archive.id))) return;
  if (archive.isUpload && (await findUpload(parts, [workspaceId], archive.id)).aborted) {
    throw new Failure("state_conflict", "upload_id: the upload was dropped");
  }
  await refuseFull(parts, workspaceId, wanted);
}

/** Fails with `state_conflict`, since another import with images runs in the project. */
async function refuseSecond(database: Database, projectId: string): Promise<never> {
  const { rows } = await database.execute<{ id: string }>(sql`
    SELECT id FROM dataset_import WHERE project_id = ${projectId}::uuid AND state = 'running'`);
  const which = rows[0] ? `import ${rows[0].id}` : "another import";
  const detail = `${which} with images runs in this project; wait until it ends`;
  throw new Failure("state_conflict", detail, { data: { import_id: rows[0]?.id ?? null } });
}
