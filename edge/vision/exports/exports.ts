// Models as files that leave: one row and one file for each format and options of a model, however
// often they are asked for. A node makes the file; it is offered once its task's end was taken.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import { ExportVerification, type ModelExport } from "../../../shared/exports.ts";
import type { ObjectSource, TaskPayload } from "../../../shared/tasks.ts";
import { batch, type Database, wireTime } from "../../http/database.ts";
import type { Parts } from "../base/parts.ts";
import { breaksReference } from "../base/sql.ts";
import { checkQuota, hasRoom, lockRoom, objectKeys } from "../projects/videos.ts";
import { listModels, type ModelRow, modelSource } from "../registry/models.ts";
import { requestCancel } from "../tasks/interventions.ts";
import { offering } from "../tasks/nodes.ts";
import { presignGet, source, target } from "../tasks/objects.ts";
import type { TaskState } from "../tasks/states.ts";
import { submit } from "../tasks/wait.ts";
import { pagesOf } from "../training/run-objects.ts";
import { type ExportOptions, expectedBytes, fingerprintOf } from "./options.ts";

/** Frames of its dataset that a model is verified on. */
const DATASET_IMAGES_MAX = 4;
/** A frame above it is not sent around for a verification. */
const IMAGE_BYTES_MAX = 16 * 1024 * 1024;
/** How often it is tried to make a row or find it, while others delete and make the same. */
const TRIES_MAX = 3;
const NO_NODE = "no GPU node that exports models is there: npm run gpu-node";

/** What the task of an export is part of. */
export const subjectOf = (exportId: string) => `model_export:${exportId}`;

/** Keys of an export's objects, below the folder of all exports of its model. */
export const keysOf = ({ workspaceId, modelId }: ModelOwner, exportId: string) => {
  const folder = `${folderOf({ workspaceId, modelId })}${exportId}/`;
  return { folder, file: `${folder}model.onnx` };
};

type ModelOwner = Pick<ModelRow, "workspaceId" | "modelId">;
const folderOf = ({ workspaceId, modelId }: ModelOwner) =>
  `ws/${workspaceId}/model-exports/${modelId}/`;

interface ExportRow extends Record<string, unknown> {
  exportId: string;
  workspaceId: string;
  modelId: string;
  format: ExportOptions["format"];
  output: ExportOptions["output"];
  height: number;
  width: number;
  batch: number | null;
  state: "queued" | "completed" | "failed";
  failure: string | null;
  round: number;
  storageKey: string | null;
  bytes: number | null;
  sha256: string | null;
  opset: number | null;
  verification: ModelExport["verification"];
  createdAt: string;
  endedAt: string | null;
}

const EXPORT = sql`e.id::text AS "exportId", e.workspace_id::text AS "workspaceId",
  e.model_id::text AS "modelId", e.format, e.output, e.height, e.width, e.batch, e.state, e.failure,
  e.round, e.storage_key AS "storageKey", e.bytes::float8 AS bytes, e.sha256, e.opset,
  e.verification, ${wireTime(sql`e.created_at`)} AS "createdAt",
  ${wireTime(sql`e.ended_at`)} AS "endedAt"`;

/** The key under which the task of an export's round was enqueued. */
const TASK_KEY = sql`${subjectOf("")} || e.id || ':' || e.round`;
const taskKeyOf = ({ exportId, round }: Pick<ExportRow, "exportId" | "round">) =>
  `${subjectOf(exportId)}:${round}`;

/**
 * Asks for a model as a file; returns the export's id. The same again is the same export; one that
 * failed is tried anew. Fails with `quota_exceeded`, with `state_conflict` for a model without
 * classes, and with `not_found` where the model was deleted meanwhile.
 */
export async function startExport(
  parts: Parts,
  model: ModelRow,
  { options, createdBy }: { options: ExportOptions; createdBy: string },
): Promise<string> {
  if (model.classes.length === 0) {
    throw new Failure("state_conflict", "the model has no classes: there is nothing to export");
  }
  const expected = expectedBytes(model, options);
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const begun = await insertExport(parts, model, { options, expected, createdBy });
    if (begun) {
      await enqueueOrLog(parts, begun, model);
      return begun.exportId;
    }
    const there = await sameExport(parts.database, model, options);
    if (there) return there.exportId;
    await checkQuota(parts, model.workspaceId, expected);
  }
  throw new Failure("state_conflict", "the same export is being deleted; ask for it again");
}

/** Makes the row, or begins a failed one anew; null where it is there or has no room. */
async function insertExport(
  parts: Parts,
  { workspaceId, modelId }: ModelOwner,
  more: { options: ExportOptions; expected: number; createdBy: string },
): Promise<ExportRow | null> {
  const { options, expected, createdBy } = more;
  const { format, output, size, batch: images } = options;
  const insert = sql`
    WITH e AS (
      INSERT INTO model_export (id, workspace_id, model_id, fingerprint, format, output, height,
        width, batch, bytes_expected, created_by)
      SELECT ${crypto.randomUUID()}::uuid, ${workspaceId}::uuid, ${modelId}::uuid,
        ${fingerprintOf(options)}, ${format}, ${output}, ${size[0]}::int, ${size[1]}::int,
        ${images}::int, ${expected}::bigint, ${createdBy}::uuid
       WHERE ${hasRoom(parts, workspaceId, expected)}
      ON CONFLICT (model_id, fingerprint) DO UPDATE SET state = 'queued', failure = NULL,
        ended_at = NULL, round = model_export.round + 1, created_at = now(),
        created_by = excluded.created_by, bytes_expected = excluded.bytes_expected
       WHERE model_export.state = 'failed'
      RETURNING *)
    SELECT ${EXPORT} FROM e`;
  const lock = lockRoom(workspaceId);
  const [, rows] = await batch<[unknown, ExportRow]>(parts.database, [lock, insert]).catch(
    (thrown: unknown) => {
      if (!breaksReference(thrown)) throw thrown;
      throw new Failure("not_found", "no such model in your workspaces", { cause: thrown });
    },
  );
  return rows[0] ?? null;
}

/** The export of these options, unless it failed. */
async function sameExport(
  database: Database,
  { modelId }: ModelOwner,
  options: ExportOptions,
): Promise<ExportRow | null> {
  const { rows } = await database.execute<ExportRow>(sql`
    SELECT ${EXPORT} FROM model_export e WHERE e.model_id = ${modelId}::uuid
       AND e.fingerprint = ${fingerprintOf(options)} AND e.state <> 'failed'`);
  return rows[0] ?? null;
}

/** Enqueues an export's task; what a fault keeps from it, the next minute does. */
const enqueueOrLog = (parts: Parts, row: ExportRow, model: ModelRow): Promise<void> =>
  enqueueExport(parts, row, model).catch((error: unknown) =>
    parts.log.warning("export_not_enqueued", { export_id: row.exportId, error }),
  );

async function enqueueExport(parts: Parts, row: ExportRow, model: ModelRow): Promise<void> {
  const { images, metadata } = await knownOf(parts, model);
  const { exportId, round, format, output, height, width } = row;
  await submit(parts, [
    {
      kind: "model_export",
      workspaceId: model.workspaceId,
      subject: subjectOf(exportId),
      idempotencyKey: taskKeyOf(row),
      payload: {
        export_id: exportId,
        round,
        model: modelSource(model),
        format,
        output,
        size: [height, width],
        batch: row.batch,
        metadata,
        images,
        file: target(keysOf(model, exportId).file, "application/octet-stream"),
      },
    },
  ]);
}

/** What the registry knows of a model beside itself: facts for its file, and frames it knows. */
async function knownOf(
  parts: Parts,
  model: ModelRow,
): Promise<Pick<TaskPayload<"model_export">, "images" | "metadata">> {
  const { rows } = await parts.database.execute<{ sha256: string | null; videos: string[] }>(sql`
    SELECT dataset->>'sha256' AS sha256, coalesce(dataset->'videos', '[]') AS videos
      FROM training_run WHERE id = ${model.runId}::uuid`);
  const [run] = rows;
  const metadata: Record<string, string> = { name: model.name, version: String(model.version) };
  if (model.runId) metadata.run = model.runId;
  if (run?.sha256) metadata.dataset_sha256 = run.sha256;
  const videos = (run?.videos ?? []).slice(0, DATASET_IMAGES_MAX);
  const images = await Promise.all(videos.map((id) => frameOf(parts, model, id)));
  return { metadata, images: images.filter((one) => one !== null) };
}

/** A frame of a video that the store has as an image, or null. */
async function frameOf(
  { bucket }: Parts,
  { workspaceId }: ModelOwner,
  videoId: string,
): Promise<ObjectSource | null> {
  const { folder } = objectKeys(workspaceId, videoId);
  const { objects } = await bucket.list({ prefix: `${folder}frames/`, limit: 1 });
  const [frame] = objects;
  return frame && frame.size <= IMAGE_BYTES_MAX ? source(frame.key, frame.size) : null;
}

/** Enqueues the exports that a crash kept from it. The minute cron calls it. */
export async function enqueueMissingExports(parts: Parts): Promise<number> {
  const { rows } = await parts.database.execute<ExportRow>(sql`
    SELECT ${EXPORT} FROM model_export e WHERE e.state = 'queued'
       AND e.created_at < now() - interval '1 minute'
       AND NOT EXISTS (SELECT FROM task WHERE idempotency_key = ${TASK_KEY}) LIMIT 100`);
  for (const row of rows) {
    const [model] = await listModels(parts.database, [row.workspaceId], { modelId: row.modelId });
    if (model) await enqueueOrLog(parts, row, model);
  }
  return rows.length;
}

interface StandingRow extends ExportRow {
  taskState: TaskState | null;
  progress: { done: number; total: number } | null;
  nodes: number;
}

/** Exports of a model, newest first, with their addresses. */
export async function listExports(
  parts: Parts,
  model: ModelRow,
  { exportId }: { exportId?: string } = {},
): Promise<ModelExport[]> {
  const one: SQL = exportId === undefined ? sql`` : sql`AND e.id = ${exportId}::uuid`;
  const { rows } = await parts.database.execute<StandingRow>(sql`
    SELECT ${EXPORT}, t.state AS "taskState", t.progress,
      CASE WHEN e.state = 'queued' THEN ${offering("model_export", sql`e.workspace_id`)} ELSE 0 END
        AS nodes
      FROM model_export e LEFT JOIN task t ON t.idempotency_key = ${TASK_KEY}
     WHERE e.model_id = ${model.modelId}::uuid AND e.workspace_id = ${model.workspaceId}::uuid
       ${one} ORDER BY e.created_at DESC, e.id`);
  return Promise.all(rows.map((row) => exportRecord(parts, row, model)));
}

/** An export of a model, with its address; fails with `not_found`. */
export async function findExport(
  parts: Parts,
  model: ModelRow,
  exportId: string,
): Promise<ModelExport> {
  const [found] = await listExports(parts, model, { exportId });
  if (!found) throw new Failure("not_found", "the model has no such export");
  return found;
}

async function exportRecord(parts: Parts, row: StandingRow, model: ModelRow): Promise<ModelExport> {
  const isRunning = row.state === "queued" && row.taskState === "running";
  const isQueued = row.state === "queued" && !isRunning;
  const { progress } = row;
  return {
    export_id: row.exportId,
    model_id: row.modelId,
    format: row.format,
    output: row.output,
    image_size: [row.height, row.width],
    batch: row.batch ?? "dynamic",
    status: isRunning ? "running" : row.state,
    failure: row.failure,
    waiting_for: isQueued && row.nodes === 0 ? NO_NODE : null,
    progress: isRunning && progress ? { done: progress.done, total: progress.total } : null,
    bytes: row.bytes,
    sha256: row.sha256,
    opset: row.opset,
    // In the order of its fields, which the database does not keep.
    verification: row.verification && ExportVerification.parse(row.verification),
    not_verified: notVerified(row, model),
    download_url:
      row.storageKey &&
      (await presignGet(parts, row.storageKey, { filename: filenameOf(row, model) })),
    created_at: row.createdAt,
    ended_at: row.endedAt,
  };
}

/** Such as `cells-v2-640x480.onnx`; the model's name without what file systems refuse. */
function filenameOf({ height, width, batch: images, output, format }: ExportRow, model: ModelRow) {
  const name = model.name
    .replace(/[^\p{L}\p{N}.-]+/gu, "_")
    .slice(0, 80)
    .toWellFormed();
  const raw = output === "raw" ? "-raw" : "";
  const many = images === 1 ? "" : `-batch-${images ?? "dynamic"}`;
  return `${name}-v${model.version}-${width}x${height}${many}${raw}.${format}`;
}

/** What no node has looked at, and how whoever has the file looks at it. */
function notVerified(
  { output }: Pick<ExportRow, "output">,
  { task }: Pick<ModelRow, "task">,
): string[] {
  const check =
    "python -c \"import onnx; onnx.checker.check_model('model.onnx', full_check=True)\"";
  const others = [
    "graphics cards and half precision, as TensorRT and other providers use it: " +
      "trtexec --onnx=model.onnx, then the same images through both",
    `other readers of ONNX than onnxruntime: ${check}`,
  ];
  if (task === "segmentation") {
    others.push("the prototypes of masks (output1): draw the masks of an image that you know");
  }
  if (output === "raw") {
    others.push("Ultralytics: it takes raw heads for something else; ask for end_to_end");
  }
  return others;
}

/** Deletes an export and its file, whatever its node still does. */
export async function deleteExport(parts: Parts, model: ModelRow, exportId: string): Promise<void> {
  const { rows } = await parts.database.execute(sql`
    DELETE FROM model_export WHERE id = ${exportId}::uuid AND model_id = ${model.modelId}::uuid
       AND workspace_id = ${model.workspaceId}::uuid RETURNING id`);
  if (rows.length === 0) throw new Failure("not_found", "the model has no such export");
  await requestCancel(parts.database, { subject: subjectOf(exportId) });
  await deleteFolder(parts, keysOf(model, exportId).folder);
}

/** The exports of a model that is about to be deleted; what is returned deletes their files. */
export async function releaseExports(parts: Parts, model: ModelRow): Promise<() => Promise<void>> {
  const { rows } = await parts.database.execute<{ id: string }>(
    sql`SELECT id::text FROM model_export WHERE model_id = ${model.modelId}::uuid`,
  );
  return async () => {
    for (const { id } of rows) await requestCancel(parts.database, { subject: subjectOf(id) });
    await deleteFolder(parts, folderOf(model));
  };
}

/** Deletes all objects of a folder. */
export async function deleteFolder({ bucket }: Pick<Parts, "bucket">, prefix: string) {
  for await (const page of pagesOf(bucket, prefix)) {
    if (page.length > 0) await bucket.delete(page.map(({ key }) => key));
  }
}
