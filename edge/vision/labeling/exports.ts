// Datasets made from jobs: what goes into one is written down as a manifest, a GPU node makes the
// archive, and its end is taken here.

import { sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import type { DatasetExport } from "../../../shared/labeling.ts";
import { type ExportManifest, type ObjectSource, TASK_KINDS } from "../../../shared/tasks.ts";
import { iso } from "../../../shared/time.ts";
import type { Database } from "../../http/database.ts";
import { idList } from "../auth/accounts.ts";
import { API, type Parts } from "../auth/parts.ts";
import { presignGet, source, target } from "../tasks/objects.ts";
import type { Task } from "../tasks/queue.ts";
import { submit } from "../tasks/wait.ts";
import { shown } from "./annotations.ts";
import type { JobRow } from "./jobs.ts";
import { splitFrames } from "./split.ts";

export interface ExportOptions {
  format: "yolo" | "coco";
  valShare: number;
  seed: number;
  /** Which annotations: all that are shown but for the rejected, or the accepted alone. */
  include: "not_rejected" | "accepted";
  /** Frames without annotations are background examples. */
  background: boolean;
}

const DOWNLOAD_SECONDS = 15 * 60;
const subjectOf = (exportId: string) => `export:${exportId}`;
const keysOf = (workspaceId: string, exportId: string) => {
  const folder = `ws/${workspaceId}/exports/${exportId}`;
  return { manifest: `${folder}/manifest.json`, archive: `${folder}/dataset.zip` };
};

/** Writes down the dataset and enqueues its making; returns the export's id. */
export async function startExport(
  parts: Parts,
  job: JobRow,
  options: ExportOptions,
  createdBy: string,
): Promise<string> {
  const id = crypto.randomUUID();
  const keys = keysOf(job.workspaceId, id);
  const { manifest, videos } = await manifestOf(parts.database, job, options);
  const bytes = new TextEncoder().encode(JSON.stringify(manifest));
  await parts.bucket.put(keys.manifest, bytes);
  await parts.database.execute(sql`
    INSERT INTO dataset_export (id, workspace_id, job_id, format, options, storage_key, created_by)
    VALUES (${id}::uuid, ${job.workspaceId}::uuid, ${job.id}::uuid, ${options.format},
      ${JSON.stringify(options)}::jsonb, ${keys.archive}, ${createdBy}::uuid)`);
  await submit(parts, [
    {
      kind: "export",
      workspaceId: job.workspaceId,
      subject: subjectOf(id),
      idempotencyKey: subjectOf(id),
      payload: {
        ...{ export_id: id, format: options.format },
        manifest: source(keys.manifest, bytes.byteLength),
        videos,
        archive: target(keys.archive, "application/zip"),
      },
    },
  ]);
  return id;
}

interface ManifestVideo extends Record<string, unknown> {
  id: string;
  filename: string;
  storage_key: string;
  bytes: number;
  width: number;
  height: number;
  frames: number[];
  annotations: {
    id: string;
    frame: number;
    class: number;
    box: number[];
    polygon: number[] | null;
  }[];
}

async function manifestOf(
  database: Database,
  job: JobRow,
  options: ExportOptions,
): Promise<{ manifest: ExportManifest; videos: ObjectSource[] }> {
  const { rows: classes } = await database.execute<{ number: number; name: string }>(sql`
    SELECT number, name FROM job_class WHERE job_id = ${job.id}::uuid ORDER BY number`);
  if (classes.length === 0) throw new Failure("state_conflict", "the job has no classes to export");
  const indexOf = new Map(classes.map(({ number }, index) => [number, index]));
  const wanted =
    options.include === "accepted" ? sql`a.review = 'accepted'` : sql`a.review <> 'rejected'`;
  const { rows } = await database.execute<ManifestVideo>(sql`
    SELECT v.id, v.filename, v.storage_key, v.bytes::float8 AS bytes, v.width, v.height,
      to_json(j.frames) AS frames, (
      SELECT coalesce(json_agg(json_build_object('id', a.id, 'frame', a.frame_index,
          'class', a.class_number, 'box', json_build_array(a.x1, a.y1, a.x2, a.y2),
          'polygon', a.polygon) ORDER BY a.frame_index, a.id), '[]')
        FROM annotation a WHERE a.job_id = j.job_id AND a.video_id = v.id
         AND ${shown(job.threshold)} AND ${wanted}) AS annotations
      FROM job_video j JOIN video v ON v.id = j.video_id
     WHERE j.job_id = ${job.id}::uuid ORDER BY j.position`);
  const videos = rows.map((video) => {
    const byFrame = Map.groupBy(video.annotations, ({ frame }) => frame);
    const frames = video.frames.filter((frame) => options.background || byFrame.has(frame));
    return { video, byFrame, frames, videoId: video.id };
  });
  if (videos.every(({ frames }) => frames.length === 0)) {
    throw new Failure("state_conflict", "there is nothing to export: no frame has an annotation");
  }
  const sides = splitFrames(videos, options);
  const manifest: ExportManifest = {
    name: job.name,
    classes: classes.map(({ name }) => name),
    videos: videos.map(({ video, byFrame, frames }) => ({
      ...{ video_id: video.id, filename: video.filename },
      key: video.storage_key,
      ...{ width: video.width, height: video.height },
      frames: frames.flatMap((index) => {
        const split = sides.get(video.id)?.get(index);
        if (!split) return [];
        const annotations = (byFrame.get(index) ?? []).map(
          ({ id, class: number, box, polygon }) => ({
            ...{ id, polygon, class_index: indexOf.get(number) ?? 0 },
            bbox: box as [number, number, number, number],
          }),
        );
        return [{ index, split, annotations }];
      }),
    })),
  };
  const sources = new Map(
    videos.map(({ video }) => [video.storage_key, source(video.storage_key, video.bytes)]),
  );
  return { manifest, videos: [...sources.values()] };
}

/** An export task ended. May be called again for the same task. */
export async function exportEnded({ database }: Parts, task: Task): Promise<void> {
  const id = task.subject.slice(subjectOf("").length);
  if (task.state === "finished") {
    const { bytes, summary } = TASK_KINDS.export.result.parse(task.result);
    await database.execute(sql`
      UPDATE dataset_export SET state = 'completed', bytes = ${bytes}::bigint, ended_at = now(),
        summary = ${JSON.stringify(summary)}::jsonb WHERE id = ${id}::uuid AND state = 'queued'`);
    return;
  }
  const failure = task.errors.at(-1)?.detail ?? `the export was ${task.state}`;
  await database.execute(sql`
    UPDATE dataset_export SET state = 'failed', failure = ${failure}, ended_at = now()
     WHERE id = ${id}::uuid AND state = 'queued'`);
}

/** An export of the workspaces, with its address; fails with `not_found`. */
export async function findExport(
  parts: Parts,
  workspaces: readonly string[],
  { exportId, origin }: { exportId: string; origin: string },
): Promise<DatasetExport> {
  const { rows } = await parts.database.execute<Record<string, unknown>>(sql`
    SELECT e.*, e.bytes::float8 AS size, j.name FROM dataset_export e JOIN job j ON j.id = e.job_id
     WHERE e.id = ${exportId}::uuid AND e.workspace_id IN ${idList(workspaces)}`);
  const row = rows[0];
  if (!row) throw new Failure("not_found", "no such export in your workspaces");
  const time = (value: unknown) => (value === null ? null : iso(Date.parse(String(value))));
  const filename = `${String(row.name)
    .replace(/[^\w.-]+/g, "_")
    .slice(0, 80)}.zip`;
  const signed = { seconds: DOWNLOAD_SECONDS, filename };
  return {
    export_id: exportId,
    job_id: row.job_id as string,
    format: row.format as DatasetExport["format"],
    state: row.state as DatasetExport["state"],
    failure: row.failure as string | null,
    bytes: row.size as number | null,
    summary: row.summary as Record<string, unknown> | null,
    download_url:
      row.state === "completed"
        ? await presignGet(parts, row.storage_key as string, signed)
        : `${origin}${API}/exports/${exportId}/download`,
    created_at: time(row.created_at) ?? "",
    ended_at: time(row.ended_at),
  };
}
