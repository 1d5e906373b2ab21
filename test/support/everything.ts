// One of everything that a tenant may have, and how every route of the service is asked about it,
// for tests that walk all routes. A route without a fixture fails them: none can be forgotten.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { strToU8, zipSync } from "fflate";
import { API } from "../../edge/vision/base/api.ts";
import { describeApi } from "./common-routes.ts";
import { form, mp4, png } from "./media.ts";
import { registerModel } from "./registered-model.ts";
import { trainedThings } from "./trained-run.ts";
import type { Tenant } from "./vision.ts";
import type { World } from "./world.ts";

/** What of the first tenant the second one names, by the parameter it is named in. */
export type Ids = Record<string, string>;

/** A body that passes validation, for routes that take one; `ids` are those of the first tenant. */
export const BODIES: Record<string, (ids: Ids) => unknown> = {
  "PATCH /admin/users/{user_id}": () => ({ role: "viewer" }),
  "PATCH /projects/{project_id}": () => ({ name: "mine now" }),
  "POST /uploads/{upload_id}/parts": () => ({ parts: [{ part_number: 1, etag: "x" }] }),
  "POST /uploads/{upload_id}/complete": () => ({ parts: [] }),
  "POST /jobs/{job_id}/ticket": () => ({}),
  "PATCH /jobs/{job_id}": () => ({ name: "mine now" }),
  "POST /jobs/{job_id}/duplicate": () => ({}),
  "POST /jobs/{job_id}/add-class": () => ({ class: "mine" }),
  "POST /jobs/{job_id}/stop": () => ({}),
  "POST /jobs/{job_id}/resume": () => ({}),
  "POST /jobs/{job_id}/export": () => ({}),
  "POST /jobs/{job_id}/annotations/review": () => ({ accepted: true }),
  "POST /jobs/{job_id}/annotations/relabel": () => ({
    class: "mine",
    filter: { class_name: "nothing" },
  }),
  "POST /jobs/{job_id}/annotations/delete": () => ({ filter: { class_name: "nothing" } }),
  "POST /jobs/{job_id}/frames/review": () => ({ reviewed: true, filter: {} }),
  "POST /jobs/{job_id}/tracks/split": ({ video_id }) => ({ video_id, track_id: 1, index: 1 }),
  "POST /jobs/{job_id}/tracks/merge": ({ video_id }) => ({ video_id, track_id: 1, into: 2 }),
  "POST /jobs/{job_id}/tracks/interpolate": ({ video_id }) => ({ video_id, track_id: 1 }),
  "POST /train/{run_id}/ticket": () => ({}),
  "PATCH /train/{run_id}": () => ({ name: "mine now" }),
  "POST /train/{run_id}/stop": () => ({}),
  "POST /train/{run_id}/resume": () => ({}),
  "POST /admin/jobs/{job_id}/mark-failed": () => ({}),
  "POST /admin/training/{run_id}/mark-failed": () => ({}),
  "POST /models/{model_id}/promote": () => ({ alias: "production" }),
  "POST /models/{model_id}/export": () => ({ format: "onnx" }),
  "PATCH /annotations/{annotation_id}": () => ({ accepted: true }),
  "POST /changes/{change_id}/undo": () => ({}),
  "POST /models/{model_id}/activate": () => ({}),
  "PATCH /endpoints/{slug}": () => ({ description: "mine now" }),
  "POST /endpoints/{slug}/rollback": () => ({}),
  "POST /endpoints/{slug}/keys": () => ({ name: "mine" }),
  "POST /endpoints/{slug}/predict": () => form({ content: png() }),
};

/** Parameters that are no ids, with a value that exists. */
const PLAIN: Ids = {
  image: "0.jpg",
  class_name: "person",
  artifact: "results.png",
  alias: "production",
};

/** Parameters of paths that are of another kind than their name says elsewhere. */
const OWN: Ids = { "/predict/sam/video/{prediction_id}": "sam_prediction_id" };

/** The query that a route does not go without; it names what is the tenant's too. */
const QUERIES: Ids = { "/jobs/{job_id}/compare": "?truth_job_id={job_id}" };

/** Routes of no tenant: nodes and queues are the installation's, for its nodes and its admins. */
const INSTALLATION = /^\/(node|admin\/(nodes|tasks|queue))\//;

/** Routes that name a project in their body. */
export const BY_BODY: Record<string, (ids: Ids) => unknown> = {
  "POST /projects": ({ workspace_id }) => ({ name: "there", workspace_id }),
  "POST /upload": ({ project_id }) => form(["project_id", project_id ?? ""], { content: mp4() }),
  "POST /upload/batch": ({ project_id }) =>
    form(["project_id", project_id ?? ""], { content: mp4() }),
  "POST /upload/images": ({ project_id }) => form(["project_id", project_id ?? ""]),
  "POST /link-videos": ({ project_id }) => ({
    project_id,
    objects: [{ storage_key: "x", filename: "x" }],
  }),
  "POST /uploads": ({ project_id }) => ({ project_id, filename: "x", bytes: 1 }),
  "POST /label": ({ project_id, video_id }) => ({
    project_id,
    video_ids: [video_id],
    prompts: ["person"],
  }),
  "POST /label/exemplar": ({ project_id, video_id }) => ({
    project_id,
    video_ids: [video_id],
    exemplars: [{ frame_id: `${video_id}.0`, bbox: [1, 1, 2, 2] }],
  }),
  "POST /label/preview": ({ video_id }) => ({ frame_ids: [`${video_id}.0`], prompts: ["person"] }),
  "POST /label/segment-points": ({ video_id }) => ({
    frame_id: `${video_id}.0`,
    points: [{ x: 1, y: 1, label: 1 }],
  }),
  "POST /annotations": ({ job_id, video_id }) => ({
    job_id,
    frame_id: `${video_id}.0`,
    class: "person",
    bbox: [1, 1, 2, 2],
  }),
  "POST /annotations/merge-classes": ({ job_id }) => ({ job_id, from: "person", into: "car" }),
  "POST /train": ({ job_id }) => ({ job_id }),
  "POST /models/rollback": ({ workspace_id }) => ({ name: "production", workspace_id }),
  "POST /endpoints": ({ workspace_id, model_id }) => ({
    slug: "there",
    workspace_id,
    models: [{ model_id }],
  }),
  "POST /import": ({ project_id }) => ({ project_id, yolo: LABELS }),
  "POST /import/archive": ({ project_id }) =>
    form(["project_id", project_id ?? ""], {
      content: zipSync({ "classes.txt": strToU8("person"), "film_000000.txt": new Uint8Array() }),
      filename: "labels.zip",
    }),
};

const LABELS = { names: ["person", "car"], labels: { film_000000: "0 0.5 0.5 0.2 0.2" } };

/** One of everything there is, of a tenant. */
export async function everything(
  world: Pick<World, "visionDatabase" | "media">,
  { workspaceId, member }: Tenant,
): Promise<Ids> {
  const project = await member.ask("POST", "/projects", { name: "theirs" });
  const project_id = String(project.body.project_id);
  const body = form(["project_id", project_id], { content: mp4() });
  const video_id = String((await member.ask("POST", "/upload", body)).body.video_id);
  const begun = { project_id, filename: "theirs.mp4", bytes: 100 };
  const upload_id = String((await member.ask("POST", "/uploads", begun)).body.upload_id);
  const ptsKey = `ws/${workspaceId}/videos/${video_id}/pts.bin`;
  await world.media.put(ptsKey, Int32Array.of(0, 1).buffer);
  await world.visionDatabase.execute(sql`
    UPDATE video SET state = 'ready', pts_key = ${ptsKey}, frame_count = 2, width = 10, height = 10, time_base = '{1,10}',
      filename = 'film.mp4' WHERE id = ${video_id}::uuid`);
  const imported = await member.ask("POST", "/import", { project_id, yolo: LABELS });
  const job_id = String((imported.body.job as { job_id: string }).job_id);
  const { items } = (await member.ask("GET", `/jobs/${job_id}/annotations`)).body;
  const [{ annotation_id }] = items as [{ annotation_id: string }];
  await member.ask("PATCH", `/annotations/${annotation_id}`, { accepted: true });
  const changes = await member.ask("GET", `/jobs/${job_id}/changes`);
  const [{ change_id }] = Object.values(changes.body) as [{ change_id: string }];
  const export_id = randomUUID();
  await world.visionDatabase.execute(sql`
    INSERT INTO dataset_export (id, workspace_id, job_id, format, options, storage_key)
    VALUES (${export_id}::uuid, ${workspaceId}::uuid, ${job_id}::uuid, 'yolo', '{}', 'none')`);
  const { model_id } = await registerModel(world, workspaceId);
  await world.visionDatabase.execute(
    sql`UPDATE model SET active = true WHERE id = ${model_id}::uuid`,
  );
  // Of the same id as the dataset's export: the routes of both call it so.
  await world.visionDatabase.execute(sql`
    INSERT INTO model_export (id, workspace_id, model_id, fingerprint, format, output, height, width,
      batch, bytes_expected)
    VALUES (${export_id}::uuid, ${workspaceId}::uuid, ${model_id}::uuid, 'onnx raw', 'onnx', 'raw',
      96, 96, 1, 1)`);
  const prediction_id = randomUUID();
  await world.visionDatabase.execute(sql`
    INSERT INTO task (id, kind, workspace_id, subject, payload)
    VALUES (${prediction_id}::uuid, 'predict', ${workspaceId}::uuid, ${`model:${model_id}`},
      jsonb_build_object('model', jsonb_build_object('model_id', ${model_id}::text)))`);
  const slug = `gate-${randomUUID()}`;
  await member.ask("POST", "/endpoints", { slug, models: [{ model_id }] });
  const made = await member.ask("POST", `/endpoints/${slug}/keys`, { name: "theirs" });
  const key_id = String(made.body.key_id);
  const sam_prediction_id = randomUUID();
  await world.visionDatabase.execute(sql`
    INSERT INTO task (id, kind, workspace_id, subject, payload)
    VALUES (${sam_prediction_id}::uuid, 'sam_video', ${workspaceId}::uuid, 'segmenter:default',
      '{"prompts": []}')`);
  const own = { workspace_id: workspaceId, user_id: member.id, project_id, video_id, upload_id };
  const owner = { workspaceId, projectId: project_id, jobId: job_id };
  const trained = await trainedThings(world, owner);
  const labeled = { job_id, annotation_id, change_id, export_id };
  const served = { prediction_id, sam_prediction_id, slug, key_id };
  return { ...own, ...labeled, ...trained, model_id, ...served };
}

/** Routes that name something by id, but for those of the installation. */
export async function routesById(url: string) {
  const { paths } = await describeApi(url);
  return Object.entries(paths).flatMap(([path, methods]) =>
    path.includes("{") && path.startsWith(API) && !INSTALLATION.test(path.slice(API.length))
      ? Object.keys(methods).map((method) => ({
          method: method.toUpperCase(),
          path: path.slice(API.length),
        }))
      : [],
  );
}

/** The path with each parameter's value and its query, or null where one has no fixture. */
export function filled(path: string, values: Ids): string | null {
  let known = true;
  const full = `${path}${QUERIES[path] ?? ""}`.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = PLAIN[name] ?? values[OWN[path] ?? name];
    known &&= value !== undefined;
    return value ?? "";
  });
  return known ? full : null;
}
