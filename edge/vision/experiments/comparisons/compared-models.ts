// The two models of a comparison as they are now, and the files that are run in place of weights.

import { sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { ObjectSource, TaskPayload } from "../../../../shared/tasks/tasks.ts";
import type { Database } from "../../../http/database.ts";
import { listModels, type ModelRow, modelSource } from "../../models/registry.ts";
import { source } from "../../tasks/objects.ts";
import type { ComparisonSettings, ComparisonSide, SessionModel } from "./records.ts";

type TaskModel = TaskPayload<"comparison">["models"][number];

/** A model of a comparison, for people and for a task. */
export interface SideModel {
  session: SessionModel;
  task: TaskModel;
}

interface ExportFile extends Record<string, unknown> {
  modelId: string;
  format: string;
  output: string;
  height: number;
  width: number;
  batch: number | null;
  state: string;
  key: string | null;
  bytes: number;
  sha256: string;
}

const SIDES = ["model_a", "model_b"] as const;

/**
 * The two models that settings of a workspace come to now, A first. Fails with `not_found` for one
 * that is not the workspace's, with `state_conflict` where an alias means none or an export is not
 * made yet, and with `invalid_request` for an export that is not run here.
 */
export async function sideModels(
  database: Database,
  workspaceId: string,
  settings: ComparisonSettings,
): Promise<[SideModel, SideModel]> {
  const [a, b] = await Promise.all(
    SIDES.map(async (field) => {
      const side = settings[field];
      const model = await modelOf(database, { workspaceId, field }, side);
      if (model.classes.length === 0) {
        throw new Failure("state_conflict", `${field}: the model has no classes`);
      }
      const file = side.export_id && (await exportOf(database, { workspaceId, field }, side));
      if (file && settings.image_size !== null) {
        const detail = `${field}: an export has a size of its own; leave image_size out`;
        throw new Failure("invalid_request", detail);
      }
      return sideOf(model, side, { file: file || null, imageSize: settings.image_size });
    }),
  );
  return [a as SideModel, b as SideModel];
}

interface Field {
  workspaceId: string;
  field: (typeof SIDES)[number];
}

async function modelOf(
  database: Database,
  { workspaceId, field }: Field,
  { model_id, alias }: ComparisonSide,
): Promise<ModelRow> {
  const filter = model_id === null ? { called: alias ?? undefined } : { modelId: model_id };
  const [model] = await listModels(database, [workspaceId], filter);
  if (model) return model;
  if (model_id !== null) throw new Failure("not_found", "no such model in your workspaces");
  throw new Failure("state_conflict", `${field}: no model is ${alias} now`);
}

async function exportOf(
  database: Database,
  { workspaceId, field }: Field,
  { model_id, export_id }: ComparisonSide,
): Promise<ExportFile> {
  const { rows } = await database.execute<ExportFile>(sql`
    SELECT model_id::text AS "modelId", format, output, height, width, batch, state,
      storage_key AS key, bytes::float8 AS bytes, sha256 FROM model_export
     WHERE id = ${export_id}::uuid AND workspace_id = ${workspaceId}::uuid
       AND model_id = ${model_id}::uuid`);
  const [file] = rows;
  if (!file) throw new Failure("not_found", "the model has no such export");
  if (file.state !== "completed") {
    throw new Failure("state_conflict", `${field}: the export is not there: it is ${file.state}`);
  }
  const isRun = file.format === "onnx" && file.output === "end_to_end" && (file.batch ?? 1) === 1;
  if (isRun) return file;
  const runs = "an ONNX export, end to end, of a batch of 1 or any number";
  throw new Failure("invalid_request", `${field}: what nodes run here is ${runs}`);
}

function sideOf(
  model: ModelRow,
  { confidence, export_id }: ComparisonSide,
  { file, imageSize }: { file: ExportFile | null; imageSize: number | null },
): SideModel {
  const side = imageSize ?? model.imageSize;
  const size: [number, number] = file ? [file.height, file.width] : [side, side];
  const object: ObjectSource | null = file?.key ? source(file.key, file.bytes) : null;
  return {
    session: {
      model_id: model.modelId,
      name: model.name,
      version: model.version,
      export_id,
      confidence,
      image_size: size,
    },
    task: {
      model: modelSource({ ...model, imageSize: side }),
      confidence,
      size,
      file: object,
      file_sha256: file?.sha256 ?? null,
    },
  };
}
