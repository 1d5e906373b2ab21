// What the registry knows of a model's dataset: the list that its run learned from, and the ranges
// that other files of the model were made by.

import { sql } from "drizzle-orm";
import type { ObjectSource, TaskPayload } from "../../../../shared/tasks/tasks.ts";
import type { Calibration } from "../../../../shared/wire/exports.ts";
import type { Parts } from "../../base/parts.ts";
import { objectKeys } from "../../media/videos/videos.ts";
import type { ModelRow } from "../../models/registry.ts";
import { source } from "../../tasks/objects.ts";
import type { RunDataset } from "../runs/dataset.ts";
import type { ExportOptions } from "./options.ts";

/** Frames of its dataset that a model without a list is verified on. */
const DATASET_IMAGES_MAX = 4;
/** A frame above it is not sent around for a verification. */
const IMAGE_BYTES_MAX = 16 * 1024 * 1024;

type ModelOfRun = Pick<ModelRow, "workspaceId" | "modelId" | "runId">;
type Dataset = NonNullable<TaskPayload<"device_export">["dataset"]>;

/** The dataset as its run's row keeps it; null of a model without a run. */
async function keptDataset(
  { database }: Pick<Parts, "database">,
  { runId, workspaceId }: ModelOfRun,
): Promise<RunDataset | null> {
  const { rows } = await database.execute<{ dataset: RunDataset }>(sql`
    SELECT dataset FROM training_run
     WHERE id = ${runId}::uuid AND workspace_id = ${workspaceId}::uuid`);
  return rows[0]?.dataset ?? null;
}

/** What a model learned from, as a node reads it; null where the list is gone. */
export async function datasetOf(
  parts: Pick<Parts, "database" | "bucket">,
  model: ModelOfRun,
): Promise<Dataset | null> {
  const kept = await keptDataset(parts, model);
  if (!kept) return null;
  const { manifest, sources } = kept;
  if (!(await parts.bucket.head(manifest.key))) return null;
  return {
    manifest: source(manifest.key, manifest.bytes),
    videos: sources.map(({ key, bytes }) => source(key, bytes)),
  };
}

/** The ranges that the newest file of the model, of this size and as many images, was made by. */
export async function rangesFor(
  { database }: Pick<Parts, "database">,
  { modelId, workspaceId }: ModelOfRun,
  { size, calibrationImages }: Pick<ExportOptions, "size" | "calibrationImages">,
): Promise<Calibration | null> {
  const { rows } = await database.execute<{ calibration: Calibration }>(sql`
    SELECT calibration FROM model_export WHERE model_id = ${modelId}::uuid
       AND workspace_id = ${workspaceId}::uuid AND state = 'completed' AND calibration IS NOT NULL
       AND height = ${size[0]}::int AND width = ${size[1]}::int
       AND calibration_images = ${calibrationImages}::int ORDER BY ended_at DESC LIMIT 1`);
  return rows[0]?.calibration ?? null;
}

/** What the registry knows of a model beside itself: facts for its file, and frames it knows. */
export async function knownOf(
  parts: Parts,
  model: ModelRow,
): Promise<Pick<TaskPayload<"device_export">, "images" | "metadata" | "dataset">> {
  const kept = await keptDataset(parts, model);
  const metadata: Record<string, string> = { name: model.name, version: String(model.version) };
  if (model.runId) metadata.run = model.runId;
  if (kept) metadata.dataset_sha256 = kept.sha256;
  const videos = (kept?.videos ?? []).slice(0, DATASET_IMAGES_MAX);
  const images = await Promise.all(videos.map((id) => frameOf(parts, model, id)));
  return {
    metadata,
    images: images.filter((one) => one !== null),
    dataset: await datasetOf(parts, model),
  };
}

/** A frame of a video that the store has as an image, or null. */
async function frameOf(
  { bucket }: Parts,
  { workspaceId }: ModelOfRun,
  videoId: string,
): Promise<ObjectSource | null> {
  const { folder } = objectKeys(workspaceId, videoId);
  const { objects } = await bucket.list({ prefix: `${folder}frames/`, limit: 1 });
  const [frame] = objects;
  return frame && frame.size <= IMAGE_BYTES_MAX ? source(frame.key, frame.size) : null;
}
