// The run that a registered model came from, with its dataset's list and an image in the store.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import type { RunDataset } from "../../edge/vision/training/runs/dataset.ts";
import { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import { TrainSettings } from "../../shared/wire/training.ts";
import type { World } from "./world.ts";

interface ModelOfJob {
  workspaceId: string;
  projectId: string;
  modelId: string;
}

/** A finished job of the project, for runs to be of; its id. */
async function jobOf(
  { visionDatabase: database }: Pick<World, "visionDatabase">,
  { workspaceId, projectId }: ModelOfJob,
): Promise<string> {
  const jobId = randomUUID();
  await database.execute(sql`
    INSERT INTO job (id, workspace_id, project_id, name, kind, state, threshold, settings, ended_at)
    VALUES (${jobId}::uuid, ${workspaceId}::uuid, ${projectId}::uuid, 'j', 'manual', 'completed',
      0.5, '{}', now())`);
  return jobId;
}

/** Gives a model a run of its own; returns the key of the dataset's list. */
export async function giveDataset(
  world: Pick<World, "visionDatabase" | "media">,
  model: ModelOfJob,
): Promise<string> {
  const { workspaceId, projectId, modelId } = model;
  const runId = randomUUID();
  const jobId = await jobOf(world, model);
  const folder = `ws/${workspaceId}/run/${runId}`;
  const [list, image] = [`${folder}/manifest.json`, `${folder}/image.png`];
  const manifest = JSON.stringify(
    ExportManifest.parse({
      name: "d",
      classes: ["disc", "square", "star"],
      left_out_frames: 0,
      videos: [],
    }),
  );
  await world.media.put(list, manifest);
  await world.media.put(image, "an image");
  const dataset = {
    manifest: { key: list, bytes: manifest.length },
    sha256: "ab",
    sources: [{ key: image, bytes: 8 }],
    videos: [],
    train: 1,
    val: 1,
    leftOut: { frames: 0, annotatedFrames: 0 },
  } satisfies RunDataset;
  await world.visionDatabase.execute(sql`
    INSERT INTO training_run (id, workspace_id, project_id, job_id, name, state, settings, classes,
      dataset, started_at, ended_at)
    VALUES (${runId}::uuid, ${workspaceId}::uuid, ${projectId}::uuid, ${jobId}::uuid, 'run',
      'completed', ${JSON.stringify(TrainSettings.parse({}))}::jsonb, '{disc}', ${JSON.stringify(dataset)}::jsonb, now(), now())`);
  await world.visionDatabase.execute(
    sql`UPDATE model SET run_id = ${runId}::uuid, round = 1 WHERE id = ${modelId}::uuid`,
  );
  return list;
}
