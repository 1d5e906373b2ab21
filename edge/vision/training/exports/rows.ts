// Rows of the table of exports, and where their objects lie.

import { sql } from "drizzle-orm";
import { modelExport } from "../../../../db/vision/training.ts";
import type { Calibration, ModelExport } from "../../../../shared/wire/exports.ts";
import { columnsOf, type RowOf, selection, typed } from "../../../http/selection.ts";
import type { ModelRow } from "../../models/registry.ts";
import type { ExportOptions } from "./options.ts";

/** What the task of an export is part of. */
export const subjectOf = (exportId: string) => `model_export:${exportId}`;

/** Whose exports they are. */
export type ModelOwner = Pick<ModelRow, "workspaceId" | "modelId">;
/** The folder of all exports of a model. */
export const folderOf = ({ workspaceId, modelId }: ModelOwner) =>
  `ws/${workspaceId}/model-exports/${modelId}/`;

/** The folder of an export's objects, below that of all exports of its model. */
export const keysOf = ({ workspaceId, modelId }: ModelOwner, exportId: string) => {
  const folder = `${folderOf({ workspaceId, modelId })}${exportId}/`;
  return { folder };
};

const e = columnsOf(modelExport, "e");
/** The columns of a row `e`. */
export const EXPORT = selection({
  exportId: e.id,
  workspaceId: e.workspaceId,
  modelId: e.modelId,
  format: typed<ExportOptions["format"]>(e.format),
  artifact: typed<ExportOptions["artifact"]>(e.artifact),
  precision: typed<ExportOptions["precision"]>(e.precision),
  output: typed<ExportOptions["output"]>(e.output),
  height: e.height,
  width: e.width,
  batch: e.batch,
  calibrationImages: e.calibrationImages,
  state: e.state,
  failure: e.failure,
  round: e.round,
  storageKey: e.storageKey,
  bytes: e.bytes,
  sha256: e.sha256,
  opset: e.opset,
  verification: typed<ModelExport["verification"]>(e.verification),
  recommendedConfidence: e.recommendedConfidence,
  /** Images that it was calibrated on, once it was. */
  calibratedOn: sql<Calibration["images"] | null>`(e.calibration->'images')::int`,
  notVerified: e.notVerified,
  createdAt: e.createdAt,
  endedAt: e.endedAt,
});
/** An export of a model, or the making of one. */
export type ExportRow = RowOf<typeof EXPORT>;
