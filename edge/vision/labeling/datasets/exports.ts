// Datasets made from jobs: what goes into one is written down as a manifest, and a GPU node makes
// the archive.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { ExportNames, TaskPayload } from "../../../../shared/tasks/tasks.ts";
import { iso } from "../../../../shared/time.ts";
import type { DatasetExport, ExportSummary } from "../../../../shared/wire/labeling.ts";
import { rowsOf } from "../../../http/selection.ts";
import { jsonb } from "../../../http/storable.ts";
import { API } from "../../base/api.ts";
import { discardObjects } from "../../base/discard.ts";
import { isWanted, type ListPage, type ListQuery, pageOf } from "../../base/lists.ts";
import type { Parts } from "../../base/parts.ts";
import { idList } from "../../base/sql.ts";
import { presignGet, target } from "../../tasks/objects.ts";
import { requestCancel } from "../../tasks/queue/interventions.ts";
import { submit } from "../../tasks/queue/wait.ts";
import type { JobRow } from "../jobs/jobs.ts";
import { type ManifestOptions, type PlanCounts, writeManifest } from "./manifest.ts";

/** The layout of an archive. */
export interface LayoutOptions {
  format: TaskPayload<"export">["format"];
  rectangles: boolean;
  names: ExportNames;
}

/** What an archive is made of, and its layout. */
interface ExportOptions extends ManifestOptions, LayoutOptions {}

const DOWNLOAD_SECONDS = 15 * 60;
/** Milliseconds that a request waits for its export: a small dataset is made within them. */
const WAIT_MS = 20_000;
const POLL_MS = 250;
/** What the task of an export is part of. */
export const subjectOf = (exportId: string) => `export:${exportId}`;
/** Keys of the objects of an export. */
export const keysOf = (workspaceId: string, exportId: string) => {
  const folder = `ws/${workspaceId}/exports/${exportId}/`;
  return { folder, manifest: `${folder}manifest.json`, archive: `${folder}dataset.zip` };
};

/** Writes down the dataset and enqueues its making; returns the export's id. */
export async function startExport(
  parts: Parts,
  job: JobRow,
  { options, createdBy }: { options: ExportOptions; createdBy: string },
): Promise<string> {
  const id = crypto.randomUUID();
  const keys = keysOf(job.workspaceId, id);
  const written = await writeManifest(parts, job, { key: keys.manifest, options });
  const { manifest, videos, counts, borderFrames } = written;
  const summary = summaryOf(counts, borderFrames);
  const { id: jobId, workspaceId } = job;
  await enqueueExport(parts, {
    id,
    workspaceId,
    jobId,
    options,
    manifest,
    videos,
    summary,
    createdBy,
  });
  return id;
}

/** An export whose manifest is written down. */
interface NewExport extends Pick<TaskPayload<"export">, "manifest" | "videos"> {
  id: string;
  workspaceId: string;
  /** What it is of: a job, or else a version of a dataset. */
  jobId?: string;
  versionId?: string;
  options: LayoutOptions;
  summary: ExportSummary;
  createdBy: string;
}

/** Stores an export and enqueues its making. */
export async function enqueueExport(
  parts: Parts,
  { id, workspaceId, jobId, versionId, options, manifest, videos, summary, createdBy }: NewExport,
): Promise<void> {
  const keys = keysOf(workspaceId, id);
  await parts.database.execute(sql`
    INSERT INTO dataset_export (id, workspace_id, job_id, dataset_version_id, format, options,
      storage_key, summary, created_by)
    VALUES (${id}::uuid, ${workspaceId}::uuid, ${jobId ?? null}::uuid, ${versionId ?? null}::uuid,
      ${options.format}, ${JSON.stringify(options)}::jsonb, ${keys.archive}, ${jsonb(summary)},
      ${createdBy}::uuid)`);
  await submit(parts, [
    {
      kind: "export",
      workspaceId,
      subject: subjectOf(id),
      idempotencyKey: subjectOf(id),
      payload: {
        export_id: id,
        format: options.format,
        rectangles: options.rectangles,
        names: options.names,
        manifest,
        videos,
        archive: target(keys.archive, "application/zip"),
      },
    },
  ]);
}

/** The part of an export's summary that is known before its archive is made. */
const summaryOf = (counts: PlanCounts, borderFrames: number): ExportSummary => ({
  total_frames: counts.totalFrames,
  annotated_frames: counts.annotatedFrames,
  total_annotations: counts.annotations,
  border_frames: borderFrames,
  left_out_frames: counts.leftOutFrames,
  left_out_annotated_frames: counts.leftOutAnnotatedFrames,
  pending_frames: counts.pendingFrames,
});

/** Whose exports are meant: those of a job, or of all versions of a dataset. */
export type ExportsOf = { jobId: string } | { datasetId: string };

const isOf = (those: ExportsOf): SQL =>
  "jobId" in those
    ? sql`e.job_id = ${those.jobId}::uuid`
    : sql`e.dataset_version_id IN (
        SELECT id FROM dataset_version WHERE dataset_id = ${those.datasetId}::uuid)`;

/**
 * The exports of a job or dataset that is about to be deleted; when it is, what is returned ends
 * their tasks and deletes their objects.
 */
export async function releaseExports(
  parts: Parts,
  { workspaceId, ...those }: ExportsOf & { workspaceId: string },
): Promise<() => Promise<void>> {
  const { rows } = await parts.database.execute<{ id: string }>(
    sql`SELECT id::text FROM dataset_export e WHERE ${isOf(those)}`,
  );
  return async () => {
    for (const { id } of rows) await requestCancel(parts.database, { subject: subjectOf(id) });
    await discardObjects(
      parts,
      rows.map(({ id }) => keysOf(workspaceId, id).folder),
    );
  };
}

/** Ends the exports that a crash kept from being enqueued: nobody would ever make them. */
export async function failLostExports({ database }: Parts): Promise<void> {
  await database.execute(sql`
    UPDATE dataset_export e SET state = 'failed', ended_at = now(),
      failure = 'the service was interrupted before the export began; ask for another'
     WHERE state = 'queued' AND created_at < now() - interval '5 minutes'
       AND NOT EXISTS (SELECT FROM task WHERE idempotency_key = ${subjectOf("")} || e.id)`);
}

/** An export as its row says, with the name of what it is of. */
type ExportRow = Record<string, unknown>;

const EXPORT = sql<ExportRow>`e.*, e.bytes::float8 AS size, v.dataset_id::text,
  v.number AS version, coalesce(j.name, d.name || ' v' || v.number) AS name`;
const EXPORTS = sql`dataset_export e LEFT JOIN job j ON j.id = e.job_id
    LEFT JOIN dataset_version v ON v.id = e.dataset_version_id
    LEFT JOIN dataset d ON d.id = v.dataset_id`;

/** An export of the workspaces, with its address; fails with `not_found`. */
export async function findExport(
  parts: Parts,
  workspaces: readonly string[],
  { exportId, origin }: { exportId: string; origin: string },
): Promise<DatasetExport> {
  const [row] = await rowsOf(parts.database, EXPORT)`
    SELECT ${EXPORT} FROM ${EXPORTS}
     WHERE e.id = ${exportId}::uuid AND e.workspace_id IN ${idList(workspaces)}`;
  if (!row) throw new Failure("not_found", "no such export in your workspaces");
  return exportRecord(parts, row, origin);
}

/** An export once it is made, or after some seconds as it is then; fails where it failed. */
export async function awaitExport(
  parts: Parts,
  workspaceId: string,
  wanted: { exportId: string; origin: string },
): Promise<DatasetExport> {
  for (let waited = 0; ; waited += POLL_MS) {
    const found = await findExport(parts, [workspaceId], wanted);
    if (found.status === "failed") throw new Failure("task_failed", found.failure ?? "");
    if (found.status === "completed" || waited >= WAIT_MS) return found;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** A page of the exports of a job or a dataset's versions with their addresses, newest first. */
export async function listExports(
  parts: Parts,
  those: ExportsOf,
  { origin, ...query }: ListQuery & { origin: string },
): Promise<ListPage<DatasetExport>> {
  const where = sql`${isOf(those)} AND ${isWanted(query, { state: sql`e.state` })}`;
  const order = sql`e.created_at DESC, e.id`;
  const { database } = parts;
  const page = await pageOf(database, EXPORT, { from: EXPORTS, where, order }, query);
  const records = page.rows.map((row) => exportRecord(parts, row, origin));
  return { rows: await Promise.all(records), total: page.total };
}

async function exportRecord(parts: Parts, row: ExportRow, origin: string): Promise<DatasetExport> {
  const exportId = row.id as string;
  const time = (value: unknown) => (value === null ? null : iso(Date.parse(String(value))));
  const filename = `${String(row.name)
    .replace(/[^\w.-]+/g, "_")
    .slice(0, 80)
    .toWellFormed()}.zip`;
  const signed = { seconds: DOWNLOAD_SECONDS, filename };
  return {
    export_id: exportId,
    job_id: row.job_id as string | null,
    dataset:
      row.dataset_id === null
        ? null
        : { dataset_id: row.dataset_id as string, version: row.version as number },
    format: row.format as DatasetExport["format"],
    status: row.state as DatasetExport["status"],
    failure: row.failure as string | null,
    bytes: row.size as number | null,
    summary: row.summary as ExportSummary | null,
    download_url:
      row.state === "completed"
        ? await presignGet(parts, row.storage_key as string, signed)
        : `${origin}${API}/exports/${exportId}/download`,
    created_at: time(row.created_at) ?? "",
    ended_at: time(row.ended_at),
  };
}
