// One of everything that a tenant may have, and how every route of the service is asked about it,
// for tests that walk all routes. A route without a fixture fails them: none can be forgotten.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { strToU8, zipSync } from "fflate";
import { API } from "../../edge/vision/base/api.ts";
import { GATES_DEFAULT } from "../../shared/wire/rollouts.ts";
import { describeApi } from "./common-routes.ts";
import { describedFile } from "./described-files.ts";
import { form, mp4, png } from "./media.ts";
import { comparedFrame, comparisonOutcome, reportOf } from "./model-comparisons.ts";
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
  "POST /jobs/{job_id}/edits": ({ annotation_id }) => ({
    edits: [{ edit_id: randomUUID(), op: "delete", annotation_id, revision: 0 }],
  }),
  "POST /jobs/{job_id}/edits/ticket": () => ({}),
  "PATCH /jobs/{job_id}": () => ({ name: "mine now" }),
  "POST /jobs/{job_id}/duplicate": () => ({}),
  "POST /jobs/{job_id}/add-class": () => ({ class: "mine" }),
  "POST /projects/{project_id}/suggestions": () => ({ budget: 1 }),
  "POST /projects/{project_id}/embeddings": () => ({}),
  "PATCH /datasets/{dataset_id}": () => ({ name: "mine now" }),
  "PUT /datasets/{dataset_id}/jobs/{job_id}": () => ({}),
  "POST /datasets/{dataset_id}/split": ({ video_id }) => ({ video_ids: [video_id], side: "val" }),
  "POST /datasets/{dataset_id}/versions": () => ({}),
  "POST /datasets/{dataset_id}/versions/{version}/export": () => ({}),
  "POST /jobs/{job_id}/crops": ({ annotation_id }) => ({ annotation_ids: [annotation_id] }),
  "POST /videos/{video_id}/frames/prepare": () => ({ to: 1 }),
  "POST /jobs/{job_id}/videos": ({ video_id }) => ({ video_ids: [video_id] }),
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
  "POST /jobs/{job_id}/frames/assign": () => ({ labeler_id: null, filter: {} }),
  "POST /jobs/{job_id}/frames/stage": () => ({ stage: "review", filter: {} }),
  "POST /jobs/{job_id}/tracks/split": ({ video_id }) => ({ video_id, track_id: 1, index: 1 }),
  "POST /jobs/{job_id}/tracks/merge": ({ video_id }) => ({ video_id, track_id: 1, into: 2 }),
  "POST /jobs/{job_id}/tracks/interpolate": ({ video_id }) => ({ video_id, track_id: 1 }),
  "POST /train/{run_id}/ticket": () => ({}),
  "PATCH /train/{run_id}": () => ({ name: "mine now" }),
  "POST /train/{run_id}/stop": () => ({}),
  "POST /train/{run_id}/register": () => ({ checkpoint: "best" }),
  "POST /train/{run_id}/resume": () => ({}),
  "POST /admin/jobs/{job_id}/mark-failed": () => ({}),
  "POST /admin/training/{run_id}/mark-failed": () => ({}),
  "POST /models/{model_id}/promote": () => ({ alias: "production" }),
  "POST /models/{model_id}/export": () => ({ format: "onnx" }),
  "PATCH /annotations/{annotation_id}": () => ({ accepted: true }),
  "POST /annotations/{annotation_id}/comments": () => ({ text: "mine" }),
  "PATCH /comments/{comment_id}": () => ({ text: "mine now" }),
  "POST /changes/{change_id}/undo": () => ({}),
  "POST /models/{model_id}/activate": () => ({}),
  "PATCH /endpoints/{slug}": () => ({ description: "mine now" }),
  "POST /endpoints/{slug}/rollback": () => ({}),
  "POST /endpoints/{slug}/keys": () => ({ name: "mine" }),
  "POST /endpoints/{slug}/predict": () => form({ content: png() }),
  "POST /experiments/{experiment_id}/pause": () => ({}),
  "POST /experiments/{experiment_id}/resume": () => ({}),
  "POST /experiments/{experiment_id}/stop": () => ({}),
  "POST /experiments/{experiment_id}/complete": () => ({}),
  "POST /experiments/{experiment_id}/rollback": () => ({}),
  "PATCH /devices/{device_id}": () => ({ name: "mine now" }),
  "POST /devices/{device_id}/enrolment": () => ({}),
  "POST /devices/{device_id}/heartbeat": () => ({}),
  "POST /devices/{device_id}/sync-logs": () => ({ boot_id: "mine", lines: [] }),
  "POST /devices/{device_id}/revoke": () => ({}),
  "POST /rollouts/{rollout_id}/pause": () => ({}),
  "POST /rollouts/{rollout_id}/resume": () => ({}),
  "POST /rollouts/{rollout_id}/abort": () => ({}),
  "PATCH /targets/{target_id}": () => ({ name: "mine now" }),
  "POST /targets/{target_id}/check": () => ({}),
  "POST /targets/{target_id}/predict": () => form({ content: png() }),
  "POST /workflows/run": () => ({ definition: TELLING, inputs: { count: 1 } }),
  "POST /workflows/run/image": () => form({ content: png() }),
  "POST /workflows/run/video": () =>
    form(["definition", JSON.stringify(TELLING)], { content: mp4() }),
  "POST /workflows/serve/{slug}": () => ({ inputs: { count: 1 } }),
  "POST /workflows/serve/{slug}/video": () => form({ content: mp4() }),
  "PUT /workflows/saved/{slug}": () => ({ definition: TELLING }),
  "POST /workflows/saved/{slug}/deploy": () => ({}),
  "POST /workflows/saved/{slug}/rollback": () => ({}),
  "PUT /workflows/secrets/{name}": ({ workspace_id }) => ({ value: "mine", workspace_id }),
};

/** A workflow of one step. */
const TELLING = {
  version: "1.0",
  inputs: [{ name: "count", kind: "number" }],
  steps: [
    {
      id: "tell",
      type: "webhook@1",
      parameters: { payload: "$inputs.count", url: "https://example.com/counts" },
    },
  ],
  outputs: [{ name: "sent", value: "$steps.tell.sent" }],
};

/** Parameters that are no ids, with a value that exists. */
const PLAIN: Ids = {
  image: "0.jpg",
  class_name: "person",
  artifact: "results.png",
  alias: "production",
  version: "1",
};

/** Parameters of paths that are of another kind than their name says elsewhere. */
const OWN: Ids = {
  "/predict/sam/video/{prediction_id}": "sam_prediction_id",
  "/workflows/runs/{run_id}": "workflow_run_id",
  "/workflows/secrets/{name}": "secret_name",
};

/** The query that a route does not go without; it names what is the tenant's too. */
const QUERIES: Ids = {
  "/jobs/{job_id}/compare": "?truth_job_id={job_id}",
  "/jobs/{job_id}/agreement": "?with_job_id={copy_job_id}",
  "/workflows/run/image": "?slug={slug}",
};

/** Routes of no tenant: nodes and queues are the installation's, for its nodes and its admins. */
const INSTALLATION = /^\/(node|admin\/(nodes|tasks|queue))\//;

/** Routes that only operators call, for the accounts of all workspaces. */
const OPERATORS = ["POST /admin/users/{user_id}/password-reset", "DELETE /admin/users/{user_id}"];
export const isOperatorsOwn = (route: string) => OPERATORS.includes(route);

/** Routes that only a device's own token opens, and the one by which a device gets it. */
const DEVICES_OWN = /^\/devices\/(enrol|[^/]+\/(token|images|manifest|artifact))$/;
export const isDevicesOwn = (path: string) => DEVICES_OWN.test(path);

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
  "POST /jobs": ({ project_id, video_id }) => ({ project_id, video_ids: [video_id] }),
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
  "POST /frames/tags": ({ video_id }) => ({ frame_ids: [`${video_id}.0`], add: ["mine"] }),
  "POST /annotations": ({ job_id, video_id }) => ({
    job_id,
    frame_id: `${video_id}.0`,
    class: "person",
    bbox: [1, 1, 2, 2],
  }),
  "POST /annotations/merge-classes": ({ job_id }) => ({ job_id, from: "person", into: "car" }),
  "POST /datasets": ({ project_id }) => ({ project_id, name: "there" }),
  "POST /train": ({ job_id }) => ({ job_id }),
  "POST /models/rollback": ({ workspace_id }) => ({ name: "production", workspace_id }),
  "POST /endpoints": ({ workspace_id, model_id }) => ({
    slug: "there",
    workspace_id,
    models: [{ model_id }],
  }),
  "POST /comparisons": ({ workspace_id, model_id }) => ({
    name: "there",
    workspace_id,
    model_a: { model_id },
    model_b: { model_id },
  }),
  "POST /comparisons/run": ({ comparison_id, video_id }) => ({ comparison_id, video_id }),
  "POST /experiments": ({ job_id, model_id }) => experimentOf({ job_id, model_id }),
  "POST /devices": ({ workspace_id, project_id }) => ({ name: "there", workspace_id, project_id }),
  "PATCH /devices/settings": ({ workspace_id }) => ({ workspace_id, hot_c: 70 }),
  "POST /rollouts": ({ export_id }) => ({ export_id, group: "theirs" }),
  "POST /targets": ({ workspace_id, device_id }) => ({
    name: "there",
    workspace_id,
    config: { kind: "device", device_id },
  }),
  "POST /workflows": ({ workspace_id }) => ({ name: "there", workspace_id, definition: TELLING }),
  "POST /workflows/check": ({ workspace_id }) => ({ workspace_id, definition: TELLING }),
  "POST /import": ({ project_id }) => ({ project_id, yolo: LABELS }),
  "POST /import/archive": ({ project_id }) =>
    form(["project_id", project_id ?? ""], {
      content: zipSync({ "classes.txt": strToU8("person"), "film_000000.txt": new Uint8Array() }),
      filename: "labels.zip",
    }),
};

/** An experiment over a job's reviewed frames. */
const experimentOf = ({ job_id, model_id, candidate_id }: Record<string, string | undefined>) => ({
  name: "theirs",
  job_id,
  baseline: { model_id },
  candidate: candidate_id ? { model_id: candidate_id } : { alias: "canary" },
  metric: "ap50_95",
  minimum_effect: 0.05,
});

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
  const dataset = { project_id, name: "theirs", job_ids: [job_id] };
  const dataset_id = String((await member.ask("POST", "/datasets", dataset)).body.dataset_id);
  await member.ask("POST", `/datasets/${dataset_id}/versions`, {});
  const copy = await member.ask("POST", `/jobs/${job_id}/duplicate`);
  const copy_job_id = String(copy.body.job_id);
  const said = { text: "theirs" };
  const comment = await member.ask("POST", `/annotations/${annotation_id}/comments`, said);
  const comment_id = String(comment.body.comment_id);
  const suggestion_id = randomUUID();
  await world.visionDatabase.execute(sql`
    INSERT INTO suggestion (id, workspace_id, project_id, budget, segmenter, unlabeled, candidates, labeled)
    VALUES (${suggestion_id}::uuid, ${workspaceId}::uuid, ${project_id}::uuid, 1, 'builtin', 1, 1, 0)`);
  const export_id = randomUUID();
  await world.visionDatabase.execute(sql`
    INSERT INTO dataset_export (id, workspace_id, job_id, format, options, storage_key)
    VALUES (${export_id}::uuid, ${workspaceId}::uuid, ${job_id}::uuid, 'yolo', '{}', 'none')`);
  const import_id = randomUUID();
  await world.visionDatabase.execute(sql`
    INSERT INTO dataset_import (id, workspace_id, project_id, name, state, storage_key, bytes, created_by)
    VALUES (${import_id}::uuid, ${workspaceId}::uuid, ${project_id}::uuid, 'theirs', 'completed',
      'none', 1, ${member.id}::uuid)`);
  const { model_id } = await registerModel(world, workspaceId, { classes: ["person"] });
  await world.visionDatabase.execute(
    sql`UPDATE model SET active = true WHERE id = ${model_id}::uuid`,
  );
  // Of the same id as the dataset's export: the routes of both call it so.
  await world.visionDatabase.execute(sql`
    INSERT INTO model_export (id, workspace_id, model_id, fingerprint, format, artifact, precision,
      output, height, width, batch, bytes_expected)
    VALUES (${export_id}::uuid, ${workspaceId}::uuid, ${model_id}::uuid, 'onnx raw', 'onnx',
      'file', 'fp32', 'raw', 96, 96, 1, 1)`);
  const prediction_id = randomUUID();
  await world.visionDatabase.execute(sql`
    INSERT INTO task (id, kind, workspace_id, subject, payload)
    VALUES (${prediction_id}::uuid, 'predict', ${workspaceId}::uuid, ${`model:${model_id}`},
      jsonb_build_object('model', jsonb_build_object('model_id', ${model_id}::text)))`);
  const slug = `gate-${randomUUID()}`;
  await member.ask("POST", "/endpoints", { slug, models: [{ model_id }] });
  const made = await member.ask("POST", `/endpoints/${slug}/keys`, { name: "theirs" });
  const key_id = String(made.body.key_id);
  // Of the same slug as the endpoint: the routes of both call it so.
  await member.ask("POST", "/workflows", { slug, name: "theirs", definition: TELLING });
  await member.ask("POST", `/workflows/saved/${slug}/deploy`);
  await member.ask("PUT", "/workflows/secrets/theirs", { value: "of theirs" });
  const rival = await registerModel(world, workspaceId, { classes: ["person"] });
  const trial = experimentOf({ job_id, model_id, candidate_id: rival.model_id });
  const experiment = await member.ask("POST", "/experiments", trial);
  const experiment_id = String(experiment.body.experiment_id);
  const device = await member.ask("POST", "/devices", { name: "theirs", project_id });
  const device_id = String(device.body.device_id);
  const config = { kind: "device", device_id };
  const target = await member.ask("POST", "/targets", { name: "theirs", config });
  const target_id = String(target.body.target_id);
  const rollout_id = randomUUID();
  const file = { ...describedFile(new Uint8Array(1)), classes: ["person"] };
  await world.visionDatabase.execute(sql`
    INSERT INTO rollout (id, workspace_id, group_name, model_id, export_id, file, storage_key, gates,
      confirm, confidence, min_agent, stages)
    VALUES (${rollout_id}::uuid, ${workspaceId}::uuid, 'theirs', ${model_id}::uuid,
      ${export_id}::uuid, ${JSON.stringify(file)}::jsonb, 'none',
      ${JSON.stringify(GATES_DEFAULT)}::jsonb, '{"inferences": 20, "seconds": 3600}', 0.25, '0.1.0',
      '{100}')`);
  const sam_prediction_id = randomUUID();
  await world.visionDatabase.execute(sql`
    INSERT INTO task (id, kind, workspace_id, subject, payload)
    VALUES (${sam_prediction_id}::uuid, 'sam_video', ${workspaceId}::uuid, 'segmenter:default',
      '{"prompts": []}')`);
  const workflow_run_id = randomUUID();
  await world.visionDatabase.execute(sql`
    INSERT INTO task (id, kind, workspace_id, subject, payload)
    VALUES (${workflow_run_id}::uuid, 'workflow_video', ${workspaceId}::uuid, 'workflow', '{}')`);
  const compared = await comparison(world, { workspaceId, member }, model_id);
  const invitation_id = randomUUID();
  await world.visionDatabase.execute(sql`
    INSERT INTO invitation (id, hash, workspace_id, role, expires_at)
    VALUES (${invitation_id}::uuid, ${invitation_id}::bytea, ${workspaceId}::uuid, 'viewer',
      now() + interval '1 day')`);
  const token = await member.ask("POST", "/auth/tokens", { name: "theirs", role: "viewer" });
  const token_id = String(token.body.token_id);
  const own = { workspace_id: workspaceId, user_id: member.id, project_id, video_id, upload_id };
  const owner = { workspaceId, projectId: project_id, jobId: job_id };
  const trained = await trainedThings(world, owner);
  const jobs = { job_id, copy_job_id, dataset_id, suggestion_id };
  const labeled = { ...jobs, annotation_id, change_id, comment_id, export_id, import_id };
  const served = { prediction_id, sam_prediction_id, slug, key_id, experiment_id };
  const workflows = { workflow_run_id, secret_name: "theirs" };
  const fleet = { device_id, target_id, rollout_id };
  return {
    ...own,
    invitation_id,
    token_id,
    ...labeled,
    ...trained,
    model_id,
    ...served,
    ...compared,
    ...workflows,
    ...fleet,
  };
}

/** A comparison of a model with itself, and a result of it. */
async function comparison(
  { visionDatabase, media }: Pick<World, "visionDatabase" | "media">,
  { workspaceId, member }: Tenant,
  modelId: string,
): Promise<Ids> {
  const [side, session_id] = [{ model_id: modelId }, randomUUID()];
  const body = { name: "theirs", model_a: side, model_b: side };
  const { comparison_id, settings } = (await member.ask("POST", "/comparisons", body)).body;
  const key = `ws/${workspaceId}/comparisons/${session_id}/frames.ndjson`;
  await media.put(key, reportOf([comparedFrame(0)]).bytes);
  const model = { ...side, name: "m", version: 1, export_id: null, confidence: 0.5 };
  const models = JSON.stringify([1, 2].map(() => ({ ...model, image_size: [96, 96] })));
  const input = { kind: "image", filename: "a.png", video_id: null, job_id: null };
  await visionDatabase.execute(sql`
    INSERT INTO comparison_session (id, workspace_id, comparison_id, settings, models, input, state,
      outcome, report_key, overlay_keys, bytes, ended_at)
    VALUES (${session_id}::uuid, ${workspaceId}::uuid, ${comparison_id}::uuid,
      ${JSON.stringify(settings)}::jsonb, ${models}::jsonb,
      ${JSON.stringify({ ...input, export_id: null, split: null })}::jsonb, 'completed',
      ${JSON.stringify(comparisonOutcome([comparedFrame(0)], 0))}::jsonb, ${key}, '{}', 1, now())`);
  return { comparison_id: String(comparison_id), session_id };
}

/** Routes that name something by id, but for those of the installation. */
export async function routesById(url: string) {
  const { paths } = await describeApi(url);
  return Object.entries(paths).flatMap(([path, methods]) =>
    path.includes("{") &&
    path.startsWith(API) &&
    !INSTALLATION.test(path.slice(API.length)) &&
    !isDevicesOwn(path.slice(API.length))
      ? Object.keys(methods)
          .map((method) => ({ method: method.toUpperCase(), path: path.slice(API.length) }))
          .filter(({ method, path }) => !isOperatorsOwn(`${method} ${path}`))
      : [],
  );
}

/** The path with each parameter's value and its query, or null where one has no fixture. */
export function filled(path: string, values: Ids): string | null {
  let known = true;
  const full = `${path}${QUERIES[path] ?? ""}`.replace(/\{(\w+)\}/g, (_, name: string) => {
    const frameId = name === "frame_id" ? `${values.video_id}.0` : undefined;
    const value = PLAIN[name] ?? frameId ?? values[OWN[path] ?? name];
    known &&= value !== undefined;
    return value ?? "";
  });
  return known ? full : null;
}
