// The examples of the vision API's description, each sent to a service with one of everything, and
// what it needs to be there made before. A node answers as scripted over the real protocol.

import { join } from "node:path";
import { sql } from "drizzle-orm";
import { zipSync } from "fflate";
import { afterAll, beforeAll, describe, expect } from "vitest";
import { EXAMPLES } from "../../edge/vision/description.ts";
import { type ClaimedTask, RegisteredNode } from "../../shared/tasks/node-protocol.ts";
import type { Dataset } from "../../shared/wire/datasets.ts";
import type { EndpointStatus } from "../../shared/wire/endpoints.ts";
import type { ModelExport } from "../../shared/wire/exports.ts";
import type { Change, Job } from "../../shared/wire/labeling.ts";
import { BEST_WEIGHTS } from "../../shared/wire/training.ts";
import { frameId, type Project, type User } from "../../shared/wire/vision.ts";
import { accountExamples } from "../support/account-examples.ts";
import { clipPredictions } from "../support/clip-examples.ts";
import { detection, labeled, scriptNode } from "../support/example-node.ts";
import { exampleTests, type Preparation } from "../support/examples.ts";
import { exampleExperiment, experimentExamples } from "../support/experiments.ts";
import { fleetPreparations, newFleet } from "../support/fleet-examples.ts";
import type { TestDevice } from "../support/fleet-world.ts";
import { form, mp4, png } from "../support/media.ts";
import { alertsTo, startReceiver } from "../support/receiver.ts";
import { rolloutExamples } from "../support/rollout-examples.ts";
import {
  colleague,
  newProject,
  type Person,
  type ScriptedNode,
  scriptedNode,
  uploadVideo,
} from "../support/scripted-node.ts";
import { searchExamples } from "../support/search-examples.ts";
import { stable } from "../support/stable-answers.ts";
import { trainedThings } from "../support/trained-run.ts";
import {
  box,
  createTrainingWorld,
  labelsOf,
  type TrainingWorld,
} from "../support/training-world.ts";
import { workflowExamples } from "../support/workflow-examples.ts";

let w: TrainingWorld;
let admin: Person;
let engineer: Person;
/** Holds the tasks that examples of the node protocol tell of. */
let holder: ScriptedNode;
let stop: () => Promise<void>;
/** A model that is not the active one. */
let older: string;
/** A device that enrolled. */
let camera: TestDevice;
/** Five frames with an object each. */
let jobId: string;
/** Ids in this world by the text of the description's example. */
const base: Record<string, string> = {};

const example = (name: string) => String(EXAMPLES[name]);
const named = (ids: Record<string, string>) =>
  Object.fromEntries(Object.entries(ids).map(([name, id]) => [example(name), id]));
const label = async () => {
  const body = { project_id: w.projectId, video_ids: [base[example("video_id")]] };
  const made = { ...body, prompts: ["person"] };
  return (await admin.ok<{ job_id: string }>("POST", "/label", made)).job_id;
};
const copied = async () =>
  (await admin.ok<{ job_id: string }>("POST", `/jobs/${jobId}/duplicate`)).job_id;

/** A copy of the job, and one of its annotations. */
async function copiedAnnotation(): Promise<{ job_id: string; annotation_id: string }> {
  const job_id = await copied();
  const { items } = await admin.ok<{ items: { annotation_id: string }[] }>(
    ...(["GET", `/jobs/${job_id}/annotations`] as const),
  );
  return { job_id, annotation_id: items[0]?.annotation_id as string };
}

/** A comment on an annotation; its id. */
async function commentOn(annotationId: string): Promise<string> {
  const path = `/annotations/${annotationId}/comments`;
  const body = EXAMPLES["addComment.body"];
  return (await admin.ok<{ comment_id: string }>("POST", path, body)).comment_id;
}

/** A copy of the job whose cars lie on these tracks, by frame; each is a keyframe. */
async function tracked(tracks: Record<number, number>): Promise<Preparation> {
  const job_id = await copied();
  for (const [frame, track] of Object.entries(tracks)) {
    await w.world.visionDatabase.execute(sql`
      UPDATE annotation a SET track_id = ${track}::int, keyframe = true FROM job_class c
       WHERE a.job_id = ${job_id}::uuid AND frame_index = ${frame}::int
         AND c.job_id = a.job_id AND c.number = a.class_number AND c.name = 'car'`);
  }
  return { replaced: named({ job_id }) };
}

/** An object that may be linked. */
async function linkable(): Promise<Preparation> {
  const workspace = base[example("workspace_id")];
  await w.world.media.put(`ws/${workspace}/in/crossing.mp4`, mp4());
  return {};
}

/** A task that the holder claimed. */
async function held(): Promise<ClaimedTask> {
  await label();
  return (await holder.claim(["label"])) as ClaimedTask;
}
const heldBy = async (): Promise<Preparation> => {
  const task = await held();
  return { replaced: named({ task_id: task.task_id }), secret: holder.api.token };
};

beforeAll(async () => {
  const secret = "a webhook's secret of 30 signs";
  w = await createTrainingWorld(alertsTo((await startReceiver(secret)).url, secret));
  admin = w.admin;
  const { workspaces } = await admin.ok<User>("GET", "/auth/me");
  const workspace_id = workspaces[0]?.workspace_id as string;
  holder = await scriptedNode(w.world, admin, { label: labeled });
  const video_id = await w.video("crossing.mp4");
  // One object a frame: those of one come in no order.
  const cars = Object.entries(labelsOf("crossing", 5, box(1)));
  const labels = { ...Object.fromEntries(cars), crossing_000000: "", crossing_000001: box(0) };
  jobId = await w.labeled(labels, ["person", "car"]);
  const drawn = await admin.ok<{ annotation_id: string }>("POST", "/annotations", {
    job_id: jobId,
    frame_id: frameId(video_id, 0),
    class: "person",
    bbox: detection.bbox,
  });
  const [change] = await admin.ok<Change[]>("GET", `/jobs/${jobId}/changes`);
  const runId = await w.train({ job_id: jobId, name: "crossing" });
  const task = await w.claimed();
  const image = await w.stored(task, "results.png");
  const epochs = [1, 2].map((epoch) => ({
    epoch,
    losses: { box: 1.2 / epoch, cls: 2.4 / epoch, dfl: 0.9 },
    validation_losses: { box: 1.4 / epoch, cls: 2.7 / epoch, dfl: 1 },
    metrics: { mAP50: 0.4 * epoch, "mAP50-95": 0.25 * epoch, precision: 0.8, recall: 0.7 },
    learning_rate: 0.001,
    seconds: 12.5,
  }));
  const artifacts = [{ name: "results.png", content_type: "image/png", ...image }];
  const result = await w.result(task, epochs, { artifacts });
  await w.finish(task, { outcome: "finished", result });
  const { model_id } = await w.run(runId);
  ({ modelId: older } = await w.trained({ name: "older" }));
  for (const id of [older, model_id]) {
    await admin.ok("POST", `/models/${id}/promote`, { alias: "production" });
  }
  await w.world.visionDatabase.execute(
    sql`UPDATE model SET active = true WHERE id = ${model_id}::uuid`,
  );
  scriptNode(w.node);
  stop = w.node.start();
  const exported = await admin.ok<{ export_id: string }>("POST", `/jobs/${jobId}/export`);
  const clips = await clipPredictions(admin);
  engineer = await colleague(w.world, admin, "engineer");
  const person = await colleague(w.world, admin, "viewer");
  // Members are listed by email.
  for (const [email, { id }] of Object.entries({
    "yan@example.com": engineer,
    "zoe@example.com": person,
  }))
    await w.world.visionDatabase.execute(
      sql`UPDATE account SET email = ${email} WHERE id = ${id}::uuid`,
    );
  const begun = { project_id: w.projectId, filename: "crossing.mp4", bytes: 1_000 };
  const { upload_id } = await admin.ok<{ upload_id: string }>("POST", "/uploads", begun);
  const brought = await weights();
  base[example("readSamPrediction.prediction_id")] = clips.segmented;
  Object.assign(
    base,
    named({
      workspace_id,
      video_id,
      upload_id,
      project_id: w.projectId,
      job_id: jobId,
      annotation_id: drawn.annotation_id,
      change_id: change?.change_id as string,
      comment_id: await commentOn(drawn.annotation_id),
      export_id: exported.export_id,
      run_id: runId,
      model_id: model_id as string,
      prediction_id: clips.detected,
      user_id: person.id,
      weights_id: brought,
    }),
  );
  const dataset_id = await newDataset();
  Object.assign(base, named({ dataset_id }));
  await newEndpoint(example("slug"));
  await newWorkflow(example("slug"));
  const comparison_id = await newComparison(model_id as string);
  const body = { comparison_id, video_id };
  const run = await admin.ok<{ session_id: string }>("POST", "/comparisons/run", body);
  Object.assign(base, named({ comparison_id, session_id: run.session_id }));
  Object.assign(base, named({ experiment_id: await exampleExperiment(examined()) }));
  const parts = { url: w.world.urls.vision, admin, newEndpoint, base };
  const made = await newFleet(parts, w.projectId);
  camera = made.camera;
  Object.assign(base, made.base);
  await admin.ok("PATCH", `/devices/${camera.id}`, { group: "gates" });
  Object.assign(base, (await newRollout("gates")).replaced);
});
afterAll(() => stop?.());

const HEADER = '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}';
function safetensors() {
  const file = new Uint8Array(100);
  new DataView(file.buffer).setBigUint64(0, BigInt(HEADER.length), true);
  file.set(new TextEncoder().encode(HEADER), 8);
  return file;
}

/** A finished export of the model; its id. */
async function modelExport(output: ModelExport["output"]): Promise<string> {
  const path = `/models/${base[example("model_id")]}/export`;
  for (;;) {
    const made = await admin.ok<ModelExport>("POST", path, { format: "onnx", output });
    if (made.status === "completed") return made.export_id;
    await new Promise((next) => setTimeout(next, 20));
  }
}
const exportedModel = async () => ids({ export_id: await modelExport("end_to_end") });

/** Weights that were brought along; their id. */
async function weights(): Promise<string> {
  const form = new FormData();
  form.append("name", "cells");
  form.append("file", new Blob([safetensors()]), "cells.safetensors");
  const made = await admin.ok<{ weights_id: string }>("POST", "/train/weights", form);
  return made.weights_id;
}

const ids = (replaced: Record<string, string>): Preparation => ({ replaced: named(replaced) });

/** An endpoint of the active model. */
const newEndpoint = (slug: string) =>
  admin.ok("POST", "/endpoints", {
    slug,
    workspace_id: base[example("workspace_id")],
    models: [{ alias: "active" }],
  });

/** A dataset of the job with a version; its id. */
const newDataset = async () => {
  const body = { project_id: w.projectId, name: "crossings", job_ids: [jobId] };
  const { dataset_id } = await admin.ok<Dataset>("POST", "/datasets", body);
  // Where its only video were cut, its counts would go by the video's id.
  const whole = { video_ids: [base[example("video_id")]], side: example("side") };
  await admin.ok("POST", `/datasets/${dataset_id}/split`, whole);
  await admin.ok("POST", `/datasets/${dataset_id}/versions`, {});
  return dataset_id;
};

const datasetMade = async () => ids({ dataset_id: await newDataset() });

/** A comparison of a model with the one in production; its id. */
async function newComparison(modelId: string): Promise<string> {
  const sides = { model_a: { model_id: modelId }, model_b: { alias: "production" } };
  const body = { name: "old and new", workspace_id: base[example("workspace_id")], ...sides };
  return (await admin.ok<{ comparison_id: string }>("POST", "/comparisons", body)).comparison_id;
}
const { newWorkflow, ...WORKFLOWS } = workflowExamples(() => ({ admin, engineer, base }));
const { newRollout, ...ROLLOUTS } = rolloutExamples(() => ({
  world: w.world,
  admin,
  base,
  camera,
}));

const examined = () => ({
  admin,
  world: w.world,
  body: EXAMPLES["makeExperiment.body"] as object,
  workspaceId: base[example("workspace_id")] as string,
  modelId: base[example("model_id")] as string,
  olderId: older,
});
const EXPERIMENTS = experimentExamples(examined);

/** Leaves one video of the name that the labels tell: of several it would not be known which. */
async function onlyCrossing() {
  await w.world.visionDatabase.execute(sql`
    UPDATE video SET filename = 'other ' || id || '.mp4'
     WHERE filename = 'crossing.mp4' AND id <> (
       SELECT id FROM video WHERE filename = 'crossing.mp4' AND state = 'ready'
        AND project_id = ${w.projectId}::uuid ORDER BY created_at LIMIT 1)`);
  return ids({});
}

/** What operations need to be there beside one of everything. */
const BEFORE: Record<string, () => Promise<Preparation>> = {
  ...accountExamples(() => ({
    url: w.world.urls.vision,
    admin,
    workspaceId: base[example("workspace_id")] as string,
  })),
  ...searchExamples(() => ({ world: w.world, admin, base })),
  importAnnotations: () => onlyCrossing(),
  importArchive: () => onlyCrossing(),
  readImport: async () => {
    const made = await admin.ok<Project>("POST", "/projects", { name: "imported" });
    const fields = { project_id: made.project_id, images: "true" };
    const body = form(...Object.entries(fields), { content: new Uint8Array(dataset) });
    const { job } = await admin.ok<{ job: Job }>("POST", "/import/archive", body);
    return ids({ import_id: job.job_id, project_id: made.project_id });
  },
  listIncidents: async () => {
    const id = crypto.randomUUID();
    await w.world.visionDatabase.execute(sql`
      WITH made AS (
        INSERT INTO incident (id, kind, subject, detail, raised_at)
        VALUES (${id}::uuid, 'backup_missing', 'vision',
          'no whole backup of the database was ever made', now()) RETURNING id)
      INSERT INTO incident_notice (id, incident_id, kind, delivery, next_at)
      SELECT id, id, 'raised', 'delivered', now() FROM made`);
    return {};
  },
  registerNode: async () =>
    ids({ code: (await admin.ok<{ code: string }>("POST", "/admin/nodes/codes")).code }),
  revokeNode: async () => {
    const { code } = await admin.ok<{ code: string }>("POST", "/admin/nodes/codes");
    const { capabilities } = EXAMPLES;
    const body = { code, name: "old", capabilities };
    const node = RegisteredNode.parse(await holder.api.ok("POST", "/node/register", body));
    return ids({ node_id: node.node_id });
  },
  claimTask: async () => {
    await label();
    return { secret: holder.api.token };
  },
  sendHeartbeat: heldBy,
  reportProgress: heldBy,
  finishTask: heldBy,
  makeTarget: heldBy,
  renewSource: heldBy,
  revokeTask: async () => ids({ task_id: (await held()).task_id }),
  deleteProject: async () => ids({ project_id: (await newProject(admin)).project_id }),
  deleteVideo: async () => {
    const { project_id } = await admin.ok<Project>("POST", "/projects", { name: "spare" });
    return ids({ video_id: (await uploadVideo(admin, project_id)).video_id });
  },
  listLinkableObjects: linkable,
  linkVideos: linkable,
  completeUpload: async () => {
    const begun = { project_id: w.projectId, filename: "crossing.mp4", bytes: 1_000 };
    const { upload_id, urls } = await admin.ok<{ upload_id: string; urls: { url: string }[] }>(
      ...(["POST", "/uploads"] as const),
      begun,
    );
    const sent = await fetch(urls[0]?.url as string, { method: "PUT", body: mp4() });
    const etag = (sent.headers.get("ETag") as string).replaceAll('"', "");
    return { replaced: { ...named({ upload_id }), "9bb58f26192e4ba00f01e2e7b136bbd8": etag } };
  },
  dropUpload: async () => {
    const begun = { project_id: w.projectId, filename: "crossing.mp4", bytes: 1_000 };
    const made = await admin.ok<{ upload_id: string }>("POST", "/uploads", begun);
    return ids({ upload_id: made.upload_id });
  },
  deleteJob: async () => ids({ job_id: await copied() }),
  deleteDataset: datasetMade,
  removeDatasetJob: datasetMade,
  listSides: datasetMade,
  makeVersion: datasetMade,
  addJobVideos: async () => {
    const body = { project_id: w.projectId, video_ids: [base[example("video_id")]] };
    return ids({ job_id: (await admin.ok<Job>("POST", "/jobs", body)).job_id });
  },
  addClass: async () => {
    const job_id = await label();
    await holder.work();
    return ids({ job_id });
  },
  stopJob: async () => ids({ job_id: await label() }),
  resumeJob: async () => {
    const job_id = await label();
    await admin.ok("POST", `/jobs/${job_id}/stop`);
    return ids({ job_id });
  },
  mergeClasses: async () => ids({ job_id: await copied() }),
  removeClass: async () => ids({ job_id: await copied() }),
  deleteAnnotation: async () => ids(await copiedAnnotation()),
  addComment: async () => ids(await copiedAnnotation()),
  reviewAnnotations: async () => ids({ job_id: await copied() }),
  relabelAnnotations: async () => ids({ job_id: await copied() }),
  deleteAnnotations: async () => ids({ job_id: await copied() }),
  deleteComment: async () =>
    ids({ comment_id: await commentOn((await copiedAnnotation()).annotation_id) }),
  readAgreement: async () => ids({ with_job_id: await copied() }),
  // Whom frames are assigned to labels them.
  assignFrames: async () => ids({ user_id: engineer.id, job_id: await copied() }),
  moveFrames: async () => ids({ job_id: await copied() }),
  reviewFrames: async () => ids({ job_id: await copied() }),
  splitTrack: () => tracked({ 2: 1, 3: 1, 4: 1 }),
  mergeTracks: () => tracked({ 2: 1, 3: 1, 4: 2 }),
  interpolateTrack: () => tracked({ 2: 1, 4: 1 }),
  deleteWeights: async () => ids({ weights_id: await weights() }),
  stopRun: async () => ids({ run_id: await w.train() }),
  registerCheckpoint: async () => {
    // The answer is the model that the run has registered already.
    await w.world.visionDatabase.execute(sql`
      UPDATE training_run r SET artifacts = jsonb_build_array(jsonb_build_object(
          'name', ${BEST_WEIGHTS}::text, 'key', m.storage_key, 'bytes', m.bytes,
          'content_type', 'application/octet-stream'))
        FROM model m WHERE m.run_id = r.id AND r.id = ${base[example("run_id")]}::uuid`);
    return {};
  },
  resumeRun: async () => {
    const run_id = await w.train();
    await admin.ok("POST", `/train/${run_id}/stop`);
    return ids({ run_id });
  },
  failJob: async () => ids({ job_id: await label() }),
  failRun: async () => ids({ run_id: await w.train() }),
  deleteRun: async () => ids({ run_id: await w.train() }),
  deleteModel: async () => {
    const [workspaceId = "", projectId] = [base[example("workspace_id")], w.projectId];
    return ids(await trainedThings(w.world, { workspaceId, projectId, jobId }));
  },
  readEndpointStatus: async () => {
    const path = `/endpoints/${example("slug")}`;
    const file = new FormData();
    file.append("file", new Blob([png()]), "gate.png");
    await admin.ok("POST", `${path}/predict`, file);
    const requests = async () =>
      (await admin.ok<EndpointStatus>("GET", `${path}/status`)).windows["7d"].requests;
    await expect.poll(requests).toBe(1);
    return {};
  },
  deleteEndpoint: async () => {
    await newEndpoint("spare-gate");
    return ids({ slug: "spare-gate" });
  },
  rollBackEndpoint: async () => {
    await newEndpoint("moved-gate");
    await admin.ok("PATCH", "/endpoints/moved-gate", { confidence: 0.6 });
    return ids({ slug: "moved-gate" });
  },
  revokeEndpointKey: async () => {
    const path = `/endpoints/${example("slug")}/keys`;
    const { key_id } = await admin.ok<{ key_id: string }>("POST", path, { name: "old" });
    return ids({ key_id });
  },
  deleteComparison: async () =>
    ids({ comparison_id: await newComparison(base[example("model_id")] as string) }),
  exportModel: exportedModel,
  listModelExports: exportedModel,
  readModelExport: exportedModel,
  deleteModelExport: async () => ids({ export_id: await modelExport("raw") }),
  ...fleetPreparations(() => ({ url: w.world.urls.vision, admin, camera, newEndpoint, base })),
  ...ROLLOUTS,
  ...WORKFLOWS,
  removeName: async () => {
    await admin.ok("POST", `/models/${base[example("model_id")]}/promote`, { alias: "staging" });
    return {};
  },
};

const VIDEO = new Blob([mp4()]);
/** YOLO labels of a frame of it. */
const labels = zipSync({
  "data.yaml": new TextEncoder().encode("names: [person]\n"),
  "labels/crossing_000000.txt": new TextEncoder().encode("0 0.5 0.5 0.2 0.2\n"),
});
/** A still and its labels. */
const dataset = zipSync({
  "data.yaml": new TextEncoder().encode("names: [person]\n"),
  "train/images/1.png": png(),
  "train/labels/1.txt": new TextEncoder().encode("0 0.5 0.5 0.2 0.2\n"),
});
describe("the vision API's description", () => {
  exampleTests({
    file: join(import.meta.dirname, "../../edge/vision/examples.json"),
    url: () => w.world.urls.vision,
    secret: () => admin.token,
    replaced: () => base,
    before: async (operation) => {
      const made = await EXPERIMENTS[operation]?.();
      return made ? ids(made) : BEFORE[operation]?.();
    },
    sent: (operation) => {
      if (operation === "addWeights") return new Blob([safetensors()]);
      if (operation === "importArchive") return new Blob([labels]);
      return /Image|Sam$|AtEndpoint|ByTarget/.test(operation) ? new Blob([png()]) : VIDEO;
    },
    stable: (text) => stable(text, example("code")),
  });
});
