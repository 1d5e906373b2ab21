// Frames whose objects are known: those of a job that people reviewed, and those of a dataset that
// was exported.

import { sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { TaskPayload } from "../../../../shared/tasks/tasks.ts";
import type { Database } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";
import { keysOf } from "../../labeling/datasets/exports.ts";
import { planDataset, writePlan } from "../../labeling/datasets/manifest.ts";
import { isLive, type JobRow, stillRuns } from "../../labeling/jobs/jobs.ts";
import { reviewedFrames } from "../../labeling/review/frames.ts";
import { source } from "../../tasks/objects.ts";

type Dataset = NonNullable<TaskPayload<"comparison">["dataset"]>;

/** What of a job counts: shown annotations that nobody rejected, each object once. */
const TRUTH = {
  valShare: 0,
  seed: 0,
  include: "not_rejected",
  background: true,
  duplicates: false,
  splitGap: false,
} as const;

/** A frame as a key of a set. */
const frameKey = (videoId: string, frame: number) => `${videoId}.${frame}`;

/** The frames of a job that people reviewed: what is pending on any other frame may be wrong. */
async function reviewedKeys(database: Database, job: JobRow): Promise<Set<string>> {
  const { rows } = await database.execute<{ video: string; frames: number[] }>(sql`
    SELECT video_id::text AS video, json_agg(frame_index) AS frames
      FROM (${reviewedFrames(job)}) f GROUP BY video_id`);
  return new Set(rows.flatMap(({ video, frames }) => frames.map((one) => frameKey(video, one))));
}

/**
 * Writes the reviewed frames of a job down under a key. Fails with `state_conflict` for a job that
 * runs, and for one of which no frame was reviewed.
 */
export async function writeReviewed(
  parts: Pick<Parts, "database" | "bucket">,
  job: JobRow,
  key: string,
): Promise<Dataset> {
  if (isLive(job)) throw stillRuns(job);
  const [plan, reviewed] = await Promise.all([
    planDataset(parts.database, job, TRUTH),
    reviewedKeys(parts.database, job),
  ]);
  const splits = plan.splits.flatMap(({ video, sides }) => {
    const own = [...sides].filter(([frame]) => reviewed.has(frameKey(video.id, frame)));
    return own.length > 0 ? [{ video, sides: new Map(own) }] : [];
  });
  if (splits.length === 0) {
    const advice = "accept or reject what is on some, or mark them as reviewed";
    throw new Failure("state_conflict", `no frame of the job was reviewed: ${advice}`);
  }
  const { manifest, videos } = await writePlan(parts, { ...plan, splits }, key);
  return { manifest, videos };
}

/** A dataset that was exported. */
export interface ExportRow extends Record<string, unknown> {
  exportId: string;
  workspaceId: string;
  state: "queued" | "completed" | "failed";
}

/** The export of a dataset, if it is of the workspace; fails with `not_found`. */
export async function findDataset(
  database: Database,
  workspaceId: string,
  exportId: string,
): Promise<ExportRow> {
  const { rows } = await database.execute<ExportRow>(sql`
    SELECT id::text AS "exportId", workspace_id::text AS "workspaceId", state FROM dataset_export
     WHERE id = ${exportId}::uuid AND workspace_id = ${workspaceId}::uuid`);
  const [row] = rows;
  if (!row) throw new Failure("not_found", "no such export in your workspaces");
  return row;
}

/** The frames of a dataset, as they were when it was exported. */
export async function datasetOf(
  { database, bucket }: Pick<Parts, "database" | "bucket">,
  { exportId, workspaceId, state }: ExportRow,
): Promise<Dataset> {
  const key = keysOf(workspaceId, exportId).manifest;
  const manifest = state === "completed" ? await bucket.head(key) : null;
  if (!manifest) {
    throw new Failure("state_conflict", `the dataset is not there: its export is ${state}`);
  }
  const { rows } = await database.execute<{ key: string; bytes: number }>(sql`
    WITH e AS (SELECT * FROM dataset_export WHERE id = ${exportId}::uuid)
    SELECT v.storage_key AS key, v.bytes::float8 AS bytes FROM (
      SELECT j.video_id, j.position FROM job_video j JOIN e ON e.job_id = j.job_id
      UNION ALL SELECT one::uuid, position FROM e
        JOIN dataset_version d ON d.id = e.dataset_version_id,
        jsonb_array_elements_text(d.videos) WITH ORDINALITY x(one, position)
    ) own JOIN video v ON v.id = own.video_id ORDER BY own.position`);
  const videos = new Map(rows.map((one) => [one.key, source(one.key, one.bytes)]));
  return { manifest: source(key, manifest.size), videos: [...videos.values()] };
}
