// The int8 file that the edge looks with, made as a node makes it, and offered as if a node had.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import type { Database } from "../../edge/http/database.ts";
import { measureRanges } from "../../gpu-node/export/calibration.ts";
import { deployedModel } from "../../gpu-node/export/deployed-model.ts";
import { writeDetector } from "../../gpu-node/export/format-writers.ts";
import { sampleImages } from "../../gpu-node/export/sample-images.ts";
import { readTensors } from "../../gpu-node/export/weights-file.ts";
import { letterbox } from "../../gpu-node/serving/letterbox.ts";
import type { RegisteredModel } from "./registered-model.ts";
import { sha256 } from "./weights.ts";
import type { MediaBucket } from "./world.ts";

/** Figures of a file, of which the edge asks for those of average precision. */
const MEASURED = {
  accuracy: { truths: 100, map50: 0.8, map50_95: 0.5, model_map50: 0.8, model_map50_95: 0.5 },
};

/** The int8 file of a model in the store, for a square input of `side` pixels. */
export async function int8FileOf(
  media: MediaBucket,
  model: RegisteredModel,
  side: number,
): Promise<Buffer<ArrayBuffer>> {
  const object = await media.get(model.weights.key);
  if (!object) throw new Error("the model has no weights");
  const deployed = deployedModel(model, readTensors(new Uint8Array(await object.arrayBuffer())));
  const images = await Promise.all(
    sampleImages(4).map(async (image) => (await letterbox(image, side)).pixels),
  );
  const ranges = await measureRanges(deployed, () => images, { size: [side, side], cpuThreads: 1 });
  const file = writeDetector(deployed, {
    format: "onnx",
    precision: "int8",
    output: "end_to_end",
    size: [side, side],
    batch: 1,
    classes: model.classes,
    metadata: {},
    ranges,
  });
  return Buffer.from(file);
}

export interface EdgeFile {
  workspaceId: string;
  model: RegisteredModel;
  file: Buffer<ArrayBuffer>;
  side: number;
  /** What was measured of it; figures that are good enough when omitted. */
  verification?: { accuracy: object | null } | null;
}

/** Offers a file as the edge's of a model; its key in the store. */
export async function offerEdgeFile(
  { database, media }: { database: Database; media: MediaBucket },
  { workspaceId, model, file, side, verification = MEASURED }: EdgeFile,
): Promise<string> {
  const id = randomUUID();
  const key = `ws/${workspaceId}/model-exports/${model.model_id}/${id}/model.onnx`;
  await media.put(key, file);
  await database.execute(sql`
    INSERT INTO model_export (id, workspace_id, model_id, fingerprint, format, artifact, precision,
      output, height, width, batch, calibration_images, bytes_expected, state, storage_key, bytes,
      sha256, verification)
    VALUES (${id}::uuid, ${workspaceId}::uuid, ${model.model_id}::uuid, 'edge', 'onnx', 'file',
      'int8', 'end_to_end', ${side}::int, ${side}::int, 1, 32, 1, 'completed', ${key},
      ${file.length}::bigint, ${sha256(file)},
      ${verification && JSON.stringify(verification)}::jsonb)`);
  return key;
}
