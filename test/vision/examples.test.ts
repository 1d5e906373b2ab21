// The examples of the vision API's description, each sent to a service with one of everything, and
// what it needs to be there made before. A node answers as scripted over the real protocol.

import { join } from "node:path";
import { sql } from "drizzle-orm";
import { zipSync } from "fflate";
import { afterAll, beforeAll, describe, expect } from "vitest";
import { EXAMPLES } from "../../edge/vision/description.ts";
import type { EndpointStatus } from "../../shared/endpoints.ts";
import type { ModelExport } from "../../shared/exports.ts";
import type { Change } from "../../shared/labeling.ts";
import { type ClaimedTask, RegisteredNode } from "../../shared/node-protocol.ts";
import { TASK_KINDS } from "../../shared/tasks.ts";
import { frameId, type Project, type User } from "../../shared/vision.ts";
import { exampleTests, type Preparation } from "../support/examples.ts";
import { mp4, png } from "../support/media.ts";
import { exportedBy } from "../support/model-exports.ts";
import {
  colleague,
  JPEG,
  newProject,
  type Person,
  probeAs,
  type Script,
  type ScriptedNode,
  scriptedNode,
  uploadVideo,
} from "../support/scripted-node.ts";
import { trainedThings } from "../support/trained-run.ts";
import {
  box,
  createTrainingWorld,
  labelsOf,
  type TrainingWorld,
} from "../support/training-world.ts";
import { register } from "../support/vision.ts";

const SHOWN = "2026-01-31T05:20:00.000Z";
const NOBODYS = "6f1c2b9e-3d7a-4c55-8a10-000000000099";
const UUID = /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;

let w: TrainingWorld;
let admin: Person;
/** Holds the tasks that examples of the node protocol tell of. */
let holder: ScriptedNode;
let stop: () => Promise<void>;
/** Five frames with an object each. */
let jobId: string;
/** Ids in this world by the text of the description's example. */
const base: Record<string, string> = {};

const example = (name: string) => String(EXAMPLES[name]);
const named = (ids: Record<string, string>) =>
  Object.fromEntries(Object.entries(ids).map(([name, id]) => [example(name), id]));
const found = { class_name: "person", bbox: [12, 8, 36, 30], confidence: 0.91 };
const polygon = [12, 8, 36, 8, 36, 30, 12, 30];
const labeled = (task: ClaimedTask) => ({
  frames: TASK_KINDS.label.payload.parse(task.payload).frames.map((frame_index) => ({
    frame_index,
    detections: [{ ...found, polygon, duplicate_of: null }],
  })),
  segmenter: "scripted",
  seconds: 0.4,
});
const predicted = (frames: number) => ({
  width: 640,
  height: 360,
  left_out: 0,
  seconds: 0.4,
  frames: Array.from({ length: frames }, (_, frame_index) => ({
    frame_index,
    time: frame_index / 10,
    predictions: [{ class: "person", confidence: 0.91, bbox: found.bbox }],
  })),
});

const segmented = (frames: number) => ({
  segmenter: "scripted",
  warnings: [],
  width: 640,
  height: 360,
  frames: Array.from({ length: frames }, (_, frame_index) => ({
    frame_index,
    time: frame_index / 10,
    findings: [
      {
        prompt: 0,
        confidence: 0.91,
        bbox: found.bbox,
        mask: { rle: { size: [360, 640], counts: [4328, 22, 226_050] } },
      },
    ],
  })),
  left_out: { frames: 0, objects: 0, masks: 0 },
  seconds: 0.4,
});

/** What the node does of each kind of task; runs and labels are left to the tests. */
function scriptNode(node: ScriptedNode) {
  const script: Script = {
    probe: probeAs({ frames: 10 }),
    frames: async (task, by) => {
      for (const image of TASK_KINDS.frames.payload.parse(task.payload).images) {
        await by.write(task, { key: image.key }, JPEG);
      }
      return {};
    },
    preview: () => ({
      frames: [
        {
          frame_index: 0,
          detections: [{ ...found, polygon, duplicate_of: null }],
          image: Buffer.from(JPEG).toString("base64"),
        },
      ],
      segmenter: "scripted",
      warnings: [],
    }),
    segment: () => ({
      masks: [
        {
          png: Buffer.from(png()).toString("base64").slice(0, 24),
          rle: { size: [360, 640], counts: [4328, 22, 226_050] },
          polygon,
          bbox: found.bbox,
          score: 0.97,
        },
      ],
      segmenter: "scripted",
    }),
    export: async (task, by) => {
      const { key } = TASK_KINDS.export.payload.parse(task.payload).archive;
      await by.write(task, { key }, "a zip");
      return { bytes: 5, summary: { train: 8, val: 2 } };
    },
    model_export: exportedBy,
    predict: () => predicted(1),
    warm: () => ({ seconds: 0.4 }),
    sam: () => segmented(1),
    sam_video: () => segmented(2),
  };
  Object.assign(node.script, script);
}

const label = async () => {
  const body = { project_id: w.projectId, video_ids: [base[example("video_id")]] };
  const made = { ...body, prompts: ["person"] };
  return (await admin.ok<{ job_id: string }>("POST", "/label", made)).job_id;
};
const copied = async () =>
  (await admin.ok<{ job_id: string }>("POST", `/jobs/${jobId}/duplicate`)).job_id;

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
  w = await createTrainingWorld();
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
    bbox: found.bbox,
  });
  const [change] = await admin.ok<Change[]>("GET", `/jobs/${jobId}/changes`);
  const runId = await w.train({ job_id: jobId, name: "crossing" });
  const task = await w.claimed();
  const image = await w.stored(task, "results.png");
  const epochs = [1, 2].map((epoch) => ({
    epoch,
    losses: { box: 1.2 / epoch, cls: 2.4 / epoch, dfl: 0.9 },
    metrics: { mAP50: 0.4 * epoch, "mAP50-95": 0.25 * epoch, precision: 0.8, recall: 0.7 },
    learning_rate: 0.001,
    seconds: 12.5,
  }));
  const artifacts = [{ name: "results.png", content_type: "image/png", ...image }];
  const result = await w.result(task, epochs, { artifacts });
  await w.finish(task, { outcome: "finished", result });
  const { model_id } = await w.run(runId);
  const { modelId: older } = await w.trained({ name: "older" });
  for (const id of [older, model_id]) {
    await admin.ok("POST", `/models/${id}/promote`, { alias: "production" });
  }
  await w.world.visionDatabase.execute(
    sql`UPDATE model SET active = true WHERE id = ${model_id}::uuid`,
  );
  scriptNode(w.node);
  stop = w.node.start();
  const exported = await admin.ok<{ export_id: string }>("POST", `/jobs/${jobId}/export`);
  const form = new FormData();
  form.append("file", new Blob([mp4()]), "clip.mp4");
  const prediction = await admin.ok<{ prediction_id: string }>(
    ...(["POST", "/predict/video"] as const),
    form,
  );
  const prompted = new FormData();
  prompted.append("prompts", "person");
  prompted.append("file", new Blob([mp4()]), "clip.mp4");
  const clip = await admin.ok<{ prediction_id: string }>(
    ...(["POST", "/predict/sam/video"] as const),
    prompted,
  );
  const person = await colleague(w.world, admin, "viewer");
  // Members are listed by email.
  await w.world.visionDatabase.execute(
    sql`UPDATE account SET email = 'zoe@example.com' WHERE id = ${person.id}::uuid`,
  );
  const begun = { project_id: w.projectId, filename: "crossing.mp4", bytes: 1_000 };
  const { upload_id } = await admin.ok<{ upload_id: string }>("POST", "/uploads", begun);
  const brought = await weights();
  base[example("readSamPrediction.prediction_id")] = clip.prediction_id;
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
      export_id: exported.export_id,
      run_id: runId,
      model_id: model_id as string,
      prediction_id: prediction.prediction_id,
      user_id: person.id,
      weights_id: brought,
    }),
  );
  await newEndpoint(example("slug"));
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

/** What operations need to be there beside one of everything. */
const BEFORE: Record<string, () => Promise<Preparation>> = {
  refreshTokens: async () => {
    const { tokens } = await register(w.world.urls.vision);
    return ids({ refresh_token: tokens.refresh_token });
  },
  endSession: async () => ({
    secret: (await register(w.world.urls.vision)).tokens.access_token,
  }),
  changePassword: async () => ({
    secret: (await register(w.world.urls.vision)).tokens.access_token,
  }),
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
  linkVideos: async () => {
    const workspace = base[example("workspace_id")];
    await w.world.media.put(`ws/${workspace}/in/crossing.mp4`, mp4());
    return {};
  },
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
  deleteAnnotation: async () => {
    const job_id = await copied();
    const { items } = await admin.ok<{ items: { annotation_id: string }[] }>(
      ...(["GET", `/jobs/${job_id}/annotations`] as const),
    );
    return ids({ annotation_id: items[0]?.annotation_id as string });
  },
  reviewAnnotations: async () => ids({ job_id: await copied() }),
  relabelAnnotations: async () => ids({ job_id: await copied() }),
  deleteAnnotations: async () => ids({ job_id: await copied() }),
  reviewFrames: async () => ids({ job_id: await copied() }),
  splitTrack: () => tracked({ 2: 1, 3: 1, 4: 1 }),
  mergeTracks: () => tracked({ 2: 1, 3: 1, 4: 2 }),
  interpolateTrack: () => tracked({ 2: 1, 4: 1 }),
  deleteWeights: async () => ids({ weights_id: await weights() }),
  stopRun: async () => ids({ run_id: await w.train() }),
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
  exportModel: exportedModel,
  listModelExports: exportedModel,
  readModelExport: exportedModel,
  deleteModelExport: async () => ids({ export_id: await modelExport("raw") }),
  removeName: async () => {
    await admin.ok("POST", `/models/${base[example("model_id")]}/promote`, { alias: "staging" });
    return {};
  },
};

/** What differs from world to world. */
const stable = (text: string) =>
  text
    .replace(/"(display|actor)_name":"[0-9a-f-]{36}"/g, '"$1_name":"Ada"')
    .replace(/[0-9a-f-]{36}@example\.com/g, "ada@example.com")
    .replace(UUID, (uuid) => (uuid.startsWith(NOBODYS.slice(0, 8)) ? uuid : NOBODYS))
    .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, SHOWN)
    .replace(/"((access|refresh|node)_token|ticket)":"[^"]{8}[^"]*"/g, '"$1":"eyJhbGciOiJI…"')
    .replace(/\?ticket=[^"]*/g, "?ticket=eyJhbGciOiJI")
    .replace(/\?[^"?]*X-Amz-[^"]*/g, "?X-Amz-Signature=0a1b2c3d")
    .replace(/\.[0-9a-f]{8}-1\./g, ".0a1b2c3d-1.")
    .replace(/\/(\d+)-[0-9a-f]{8}\//g, "/$1-0a1b2c3d/")
    .replace(/"code":"[^"]*","workspace_id"/, `"code":"${example("code")}","workspace_id"`)
    .replace(/"(dataset_)?sha256":"[0-9a-f]{64}"/g, '"$1sha256":"ab12…"')
    .replace(/"(p50|p95|p99)":[\d.]+/g, '"$1":12.5')
    .replace(/"vek_[\w-]+"/g, '"vek_5bXkUu…"')
    .replace(/127\.0\.0\.1:\d+/g, "127.0.0.1:8003")
    .replace(/"(database_)?latency_ms":[\d.]+/g, '"$1latency_ms":1.5')
    .replace(/"oldest_queued_seconds":[\d.]+/, '"oldest_queued_seconds":12.5')
    .replace(/"entry_id":\d+/g, '"entry_id":42');

const VIDEO = new Blob([mp4()]);
/** YOLO labels of a frame of the video. */
const labels = zipSync({
  "data.yaml": new TextEncoder().encode("names: [person]\n"),
  "labels/crossing_000000.txt": new TextEncoder().encode("0 0.5 0.5 0.2 0.2\n"),
});
describe("the vision API's description", () => {
  exampleTests({
    file: join(import.meta.dirname, "../../edge/vision/examples.json"),
    url: () => w.world.urls.vision,
    secret: () => admin.token,
    replaced: () => base,
    before: async (operation) => BEFORE[operation]?.(),
    sent: (operation) => {
      if (operation === "addWeights") return new Blob([safetensors()]);
      if (operation === "importArchive") return new Blob([labels]);
      return /Image|Sam$|AtEndpoint/.test(operation) ? new Blob([png()]) : VIDEO;
    },
    stable,
  });
});
