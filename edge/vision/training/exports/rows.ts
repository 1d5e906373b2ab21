// Rows of the table of exports, and where their objects lie.

import { sql } from "drizzle-orm";
import type { Calibration, ModelExport } from "../../../../shared/wire/exports.ts";
import { wireTime } from "../../../http/database.ts";
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

/** An export of a model, or the making of one. */
export interface ExportRow extends Record<string, unknown> {
  exportId: string;
  workspaceId: string;
  modelId: string;
  format: ExportOptions["format"];
  artifact: ExportOptions["artifact"];
  precision: ExportOptions["precision"];
  output: ExportOptions["output"];
  height: number;
  width: number;
  batch: number | null;
  calibrationImages: number | null;
  state: "queued" | "completed" | "failed";
  failure: string | null;
  round: number;
  storageKey: string | null;
  bytes: number | null;
  sha256: string | null;
  opset: number | null;
  verification: ModelExport["verification"];
  recommendedConfidence: number | null;
  /** Images that it was calibrated on, once it was. */
  calibratedOn: Calibration["images"] | null;
  notVerified: string[];
  createdAt: string;
  endedAt: string | null;
}

/** The columns of `ExportRow` of a row `e`. */
export const EXPORT = sql`e.id::text AS "exportId", e.workspace_id::text AS "workspaceId",
  e.model_id::text AS "modelId", e.format, e.artifact, e.precision, e.output, e.height, e.width,
  e.batch, e.calibration_images AS "calibrationImages", e.state, e.failure, e.round,
  e.storage_key AS "storageKey", e.bytes::float8 AS bytes, e.sha256, e.opset, e.verification,
  e.recommended_confidence AS "recommendedConfidence",
  (e.calibration->'images')::int AS "calibratedOn", to_jsonb(e.not_verified) AS "notVerified",
  ${wireTime(sql`e.created_at`)} AS "createdAt", ${wireTime(sql`e.ended_at`)} AS "endedAt"`;
