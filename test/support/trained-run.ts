// A run that was trained, its artifact, its model, and weights that somebody brought along, as a
// tenant may have them.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import type { RunDataset } from "../../edge/vision/training/runs/dataset.ts";
import { type RUN_STATES, TrainSettings } from "../../shared/wire/training.ts";
import type { World } from "./world.ts";

export interface Owner {
  workspaceId: string;
  projectId: string;
  jobId: string;
}

/** Writes them down with their objects; returns ids by the parameter that names each. */
export async function trainedThings(
  { visionDatabase: database, media }: Pick<World, "visionDatabase" | "media">,
  { workspaceId, projectId, jobId }: Owner,
  state: (typeof RUN_STATES)[number] = "completed",
) {
  const [run_id, model_id, weights_id] = [randomUUID(), randomUUID(), randomUUID()];
  const folder = `ws/${workspaceId}/run/${run_id}`;
  const files = [`${folder}/1-a/results.png`, `${folder}/1-b/weights.safetensors`];
  const brought = `ws/${workspaceId}/weights/${weights_id}`;
  for (const key of [...files, brought]) await media.put(key, "x");
  const [key, weights] = files;
  const artifacts = [{ name: "results.png", key, bytes: 1, content_type: "image/png" }];
  const dataset: RunDataset = {
    manifest: { key: `${folder}/manifest.json`, bytes: 1 },
    sha256: "ab",
    sources: [],
    videos: [],
    train: 1,
    val: 1,
    leftOut: { frames: 0, annotatedFrames: 0 },
  };
  const settings = TrainSettings.parse({ epochs: 1 });
  await database.execute(sql`
    INSERT INTO training_run (id, workspace_id, project_id, job_id, name, state, settings, classes,
      dataset, artifacts, started_at, ended_at)
    VALUES (${run_id}::uuid, ${workspaceId}::uuid, ${projectId}::uuid, ${jobId}::uuid, 'theirs',
      ${state}, ${JSON.stringify(settings)}::jsonb, '{person,car}',
      ${JSON.stringify(dataset)}::jsonb,
      ${JSON.stringify(artifacts)}::jsonb, now(), now())`);
  await database.execute(sql`
    INSERT INTO model (id, workspace_id, project_id, run_id, round, name, version, variant, task,
      classes, image_size, parameters, storage_key, bytes, sha256)
    VALUES (${model_id}::uuid, ${workspaceId}::uuid, ${projectId}::uuid, ${run_id}::uuid, 1,
      ${`model of ${run_id}`}, 1, 'det26n', 'detection', '{person,car}', 640, 1, ${weights}, 1, 'ab')`);
  await database.execute(sql`
    INSERT INTO weights_file (id, workspace_id, name, format, storage_key, bytes)
    VALUES (${weights_id}::uuid, ${workspaceId}::uuid, 'theirs', 'safetensors', ${brought}, 1)`);
  return { run_id, model_id, weights_id };
}
