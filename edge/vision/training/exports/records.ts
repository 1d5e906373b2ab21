// Exports of a model as they go over the wire: how each stands, and what nobody has looked at.

import { type SQL, sql } from "drizzle-orm";
import { task } from "../../../../db/vision/schema.ts";
import { EXPORT_FORMATS_TABLE } from "../../../../shared/detector/export-formats.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { TaskProgress } from "../../../../shared/tasks/node-protocol.ts";
import {
  BUILDING_STAGE,
  ExportVerification,
  type ModelExport,
} from "../../../../shared/wire/exports.ts";
import { extended, joinedColumnsOf, type RowOf, rowsOf, typed } from "../../../http/selection.ts";
import type { Parts } from "../../base/parts.ts";
import type { ModelRow } from "../../models/registry.ts";
import { offering } from "../../tasks/nodes/nodes.ts";
import { presignGet } from "../../tasks/objects.ts";
import { notVerified } from "./notes.ts";
import { EXPORT_KINDS, type ExportKind, kindOf } from "./options.ts";
import { EXPORT, type ExportRow } from "./rows.ts";
import { optionsOfRow, TASK_KEY } from "./task.ts";

const NO_NODE: Readonly<Record<ExportKind, string>> = {
  model_export: "no GPU node that exports models is there: npm run gpu-node",
  device_export: "no GPU node that exports models for devices is there: npm run gpu-node",
  engine_export: "no GPU node that reports trtexec is there: install TensorRT on one",
};

const t = joinedColumnsOf(task, "t");
/** An export `e` with its task `t`, and with the nodes that would take it. */
const standing = (workspaceId: SQL) => {
  const counts = EXPORT_KINDS.map((kind) => sql`${kind}::text, ${offering(kind, workspaceId)}`);
  return extended(EXPORT, {
    taskState: t.state,
    progress: typed<TaskProgress | null>(t.progress),
    /** Live nodes that take its task, by the task's kind. */
    nodes: sql<Record<ExportKind, number>>`jsonb_build_object(${sql.join(counts, sql`, `)})`,
  });
};
type StandingRow = RowOf<ReturnType<typeof standing>>;

/** Which exports of a model are meant. */
export interface ExportFilter {
  exportId?: string;
  limit: number;
  offset: number;
}

/** Exports of a model, newest first, with their addresses. */
export async function listExports(
  parts: Parts,
  model: ModelRow,
  { exportId, limit, offset }: ExportFilter,
): Promise<ModelExport[]> {
  const one: SQL = exportId === undefined ? sql`` : sql`AND e.id = ${exportId}::uuid`;
  const list = standing(own(model));
  const rows = await rowsOf(parts.database, list)`
    SELECT ${list} FROM model_export e LEFT JOIN task t ON t.idempotency_key = ${TASK_KEY}
     WHERE e.model_id = ${model.modelId}::uuid AND e.workspace_id = ${own(model)}
       ${one} ORDER BY e.created_at DESC, e.id LIMIT ${limit}::int OFFSET ${offset}::int`;
  return Promise.all(rows.map((row) => exportRecord(parts, row, model)));
}

const own = ({ workspaceId }: ModelRow): SQL => sql`${workspaceId}::uuid`;

/** An export of a model, with its address; fails with `not_found`. */
export async function findExport(
  parts: Parts,
  model: ModelRow,
  exportId: string,
): Promise<ModelExport> {
  const [found] = await listExports(parts, model, { exportId, limit: 1, offset: 0 });
  if (!found) throw new Failure("not_found", "the model has no such export");
  return found;
}

async function exportRecord(parts: Parts, row: StandingRow, model: ModelRow): Promise<ModelExport> {
  const isRunning = row.state === "queued" && row.taskState === "running";
  const isQueued = row.state === "queued" && !isRunning;
  const { progress } = row;
  const isBuilding = progress?.detail.stage === BUILDING_STAGE;
  const stage = isBuilding ? BUILDING_STAGE : "running";
  const kind = kindOf(optionsOfRow(row));
  return {
    export_id: row.exportId,
    model_id: row.modelId,
    format: row.format,
    artifact: row.artifact,
    precision: row.precision,
    output: row.output,
    image_size: [row.height, row.width],
    batch: row.batch ?? "dynamic",
    status: isRunning ? stage : row.state,
    failure: row.failure,
    waiting_for: isQueued && row.nodes[kind] === 0 ? NO_NODE[kind] : null,
    progress: isRunning && progress ? { done: progress.done, total: progress.total } : null,
    bytes: row.bytes,
    sha256: row.sha256,
    opset: row.opset,
    // In the order of its fields, which the database does not keep.
    verification: row.verification && ExportVerification.parse(row.verification),
    recommended_confidence: row.recommendedConfidence,
    calibration_images: row.calibratedOn ?? row.calibrationImages,
    not_verified: notVerified(row, model),
    download_url:
      row.storageKey &&
      (await presignGet(parts, row.storageKey, { filename: filenameOf(row, model) })),
    created_at: row.createdAt,
    ended_at: row.endedAt,
  };
}

/** Such as `cells-v2-640x480-int8.onnx`; the model's name without what file systems refuse. */
function filenameOf(row: ExportRow, model: ModelRow): string {
  const { height, width, batch: images, output, precision, format, artifact } = row;
  const name = model.name
    .replace(/[^\p{L}\p{N}.-]+/gu, "_")
    .slice(0, 80)
    .toWellFormed();
  const many = images === 1 ? "" : `-batch-${images ?? "dynamic"}`;
  const lower = precision === "fp32" ? "" : `-${precision}`;
  const raw = output === "raw" ? "-raw" : "";
  const extension = artifact === "engine" ? "engine" : EXPORT_FORMATS_TABLE[format].extension;
  return `${name}-v${model.version}-${width}x${height}${many}${lower}${raw}.${extension}`;
}
