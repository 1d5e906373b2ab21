// The story goes on where a job's labels are done: a real node trains a detector on them, is
// stopped, goes on, and the model that was registered finds what it was trained on. So do its files
// for devices, each in its runner, and the edge once the node is gone.

import { mkdtempSync, openAsBlob, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type GpuNode, startGpuNode } from "../../edge/local/gpu-node.ts";
import { iou } from "../../shared/detector/tracks.ts";
import type { Bbox, Prediction } from "../../shared/tasks/tasks.ts";
import { ModelExport } from "../../shared/wire/exports.ts";
import { AnnotationPage, JobProgress } from "../../shared/wire/labeling.ts";
import { ProgressEvent } from "../../shared/wire/progress.ts";
import { Model, TrainingRun } from "../../shared/wire/training.ts";
import { frameId, Video } from "../../shared/wire/vision.ts";
import { rectangles, toolsOrSay } from "../support/clips.ts";
import { exportedObjects } from "../support/exported-objects.ts";
import { newProject, type Person, register } from "../support/scripted-node.ts";
import { engineOrSay } from "../support/training.ts";
import { sha256 } from "../support/weights.ts";
import { createWorld, type World } from "../support/world.ts";

/** Ten times what sixty epochs take on idle cores. */
const READY_MS = 1_200_000;
const EPOCHS = 60;
/** Pixels a side that the model is trained at, and that the edge looks at. */
const SIDE = 128;
/** Above which objects are told. */
const CONFIDENCE = 0.05;

let world: World;
let admin: Person;
let node: GpuNode;
let folder: string;
let video: Video;
let jobId: string;

async function until<Answer>(ask: () => Promise<Answer>, holds: (answer: Answer) => boolean) {
  for (const patience = performance.now() + READY_MS; ; ) {
    const answer = await ask();
    if (holds(answer)) return answer;
    if (performance.now() > patience) throw new Error(`still ${JSON.stringify(answer)}`);
    await new Promise((next) => setTimeout(next, 200));
  }
}

const runOf = async (id: string) => TrainingRun.parse(await admin.ok("GET", `/train/${id}`));
const endedRun = (id: string) =>
  until(
    () => runOf(id),
    ({ status }) => status !== "queued" && status !== "running",
  );

/** Everything that a run's topic says from now on, to its end. */
async function heard(id: string): Promise<ProgressEvent[]> {
  const { url } = await admin.ok<{ url: string }>("POST", `/train/${id}/ticket`, {});
  const events: ProgressEvent[] = [];
  const socket = new WebSocket(new URL(url, world.urls.vision));
  await new Promise<void>((done, fail) => {
    socket.onerror = () => fail(new Error("the progress socket failed"));
    socket.onclose = () => done();
    socket.onmessage = ({ data }) => {
      events.push(ProgressEvent.parse(JSON.parse(String(data))));
      if (events.at(-1)?.type === "end") socket.close();
    };
  });
  return events;
}

describe.skipIf(!toolsOrSay() || !engineOrSay())("from labels to predictions", () => {
  beforeAll(async () => {
    world = await createWorld({
      services: ["console", "infer", "vision"],
      environment: { vision: { EDGE_IMAGE_SIZE: String(SIDE) } },
    });
    admin = await register(world);
    folder = mkdtempSync(join(tmpdir(), "vantage-training-story-"));
    node = startGpuNode({
      url: world.urls.vision,
      dir: join(folder, "node"),
      modelsDir: join(folder, "models"),
      // Two slots: a thread for each task, since test files share the cores already.
      environment: { ...process.env, TEST_TRAINING: "1", VANTAGE_NODE_SLOTS: "2" },
      onLine: () => {},
      entry: resolve(import.meta.dirname, "../support/node-main.ts"),
      code: async () => (await admin.ok<{ code: string }>("POST", "/admin/nodes/codes", {})).code,
    });
    await node.ready;
    const { project_id: projectId } = await newProject(admin);
    const path = rectangles(8);
    const form = new FormData();
    form.append("project_id", projectId);
    form.append("file", await openAsBlob(path), basename(path));
    const { video_id: id } = await admin.ok<Video>("POST", "/upload", form);
    const ask = async () => Video.parse(await admin.ok("GET", `/videos/${id}`));
    video = await until(ask, ({ status }) => status !== "probing");
    const label = { video_ids: [id], prompts: ["red", "green"], threshold: 0.3, fps: 5 };
    const started = await admin.ok<{ job_id: string }>("POST", "/label", {
      project_id: projectId,
      ...label,
    });
    jobId = started.job_id;
    const status = async () => JobProgress.parse(await admin.ok("GET", `/status/${jobId}`));
    const job = await until(status, ({ status }) => status !== "queued" && status !== "running");
    expect(job.status).toBe("completed");
  }, READY_MS);
  afterAll(async () => {
    await node?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it("trains, stops, goes on, registers, and finds what it was trained on", async () => {
    const stats = await admin.ok<{ recommended: object }>("GET", `/train/dataset-stats/${jobId}`);
    expect(stats.recommended).toMatchObject({ job_id: jobId, variant: "det26n" });
    const { run_id: id } = await admin.ok<{ run_id: string }>("POST", "/train", {
      job_id: jobId,
      variant: "det26n",
      epochs: EPOCHS,
      image_size: SIDE,
      batch_size: 8,
      // The same on every processor, with bf16 or without.
      precision: "fp32",
      name: "rectangles",
      augmentation: "minimal",
      learning_rate: 0.004,
      patience: 0,
    });
    const listening = heard(id);
    await until(
      () => runOf(id),
      ({ epoch }) => epoch >= 3,
    );
    await admin.ok("POST", `/train/${id}/stop`, {});
    const stopped = await endedRun(id);
    expect(stopped).toMatchObject({ status: "stopped", failure: null });
    expect(stopped.epoch).toBeGreaterThanOrEqual(3);
    expect(stopped.epoch).toBeLessThan(EPOCHS);
    expect(stopped.model_id).not.toBeNull();
    const events = await listening;
    const types = new Set(events.map(({ type }) => type));
    expect(types.isSupersetOf(new Set(["log", "epoch", "per_class", "end"]))).toBe(true);

    await admin.ok("POST", `/train/${id}/resume`, {});
    const completed = await endedRun(id);
    expect(completed).toMatchObject({ status: "completed", epoch: EPOCHS, failure: null });
    expect(completed.best_metrics?.mAP50).toBeGreaterThan(0.8);
    expect(completed.best_metrics).toHaveProperty("per_class/red/mAP50-95");
    const models = (await admin.ok<unknown[]>("GET", "/models")).map((one) => Model.parse(one));
    expect(models.filter(({ run_id: of }) => of === id)).toHaveLength(2);

    await admin.ok("POST", `/models/${completed.model_id}/activate`, {});
    const active = (await admin.ok<Model[]>("GET", "/models")).filter((one) => one.active);
    expect(active.map(({ model_id: model }) => model)).toEqual([completed.model_id]);
    await predicts();
    await leaves(active[0] ?? expect.fail("no model is active"));
  }, 3_000_000);

  /** Objects of a frame that was labeled are found again, in their places and by their names. */
  async function predicts() {
    const annotations = AnnotationPage.parse(
      await admin.ok("GET", `/jobs/${jobId}/annotations?limit=1000`),
    ).items;
    const labeled = frameId(video.video_id, 6);
    const truths = annotations.filter(({ frame_id: of }) => of === labeled);
    expect(truths.length).toBeGreaterThan(0);
    const found = await predicted();
    for (const truth of truths) {
      const surest = surestOf(truth.class, found.objects);
      const overlap = surest ? iou(surest.bbox, truth.bbox as Bbox) : 0;
      expect(overlap, `${truth.class} at ${truth.bbox}`).toBeGreaterThan(0.5);
    }
  }

  const frame = async () => {
    const image = await admin.send("GET", `/videos/${video.video_id}/frames/6.jpg`);
    return new Uint8Array(await image.arrayBuffer());
  };
  /** After a minute of training the model is right, and modest: the surest of a class counts. */
  const surestOf = (name: string, objects: readonly Prediction[]) =>
    objects
      .filter((each) => each.class === name)
      .toSorted((one, other) => other.confidence - one.confidence)[0];

  /** What the service finds on a labeled frame, who answered, and in which precision. */
  async function predicted() {
    const form = new FormData();
    form.append("file", new Blob([await frame()]), "frame.jpg");
    const response = await admin.send("POST", `/predict/image?confidence=${CONFIDENCE}`, form);
    const body = await response.json();
    expect([response.status, body]).toEqual([200, expect.any(Array)]);
    const told = (name: string) => response.headers.get(name);
    const [servedBy, precision] = [told("X-Served-By"), told("X-Model-Precision")];
    return { objects: body as Prediction[], servedBy, precision };
  }

  /** The model's files find the same objects in their runners; the edge does with its own. */
  async function leaves({ model_id: id, classes }: Model) {
    const wanted = (await predicted()).objects;
    const expectSame = (found: readonly Prediction[], by: string) => {
      for (const name of classes) {
        const [one, same] = [surestOf(name, wanted), surestOf(name, found)];
        const overlap = one && same ? iou(one.bbox, same.bbox) : 0;
        expect(overlap, `${name} by ${by}`).toBeGreaterThanOrEqual(0.9);
      }
    };
    const read = async (made: string) =>
      ModelExport.parse(await admin.ok("GET", `/models/${id}/exports/${made}`));
    const ended = (made: string) =>
      until(
        () => read(made),
        ({ status }) => status === "completed" || status === "failed",
      );
    const imagePath = join(folder, "frame.jpg");
    writeFileSync(imagePath, await frame());
    for (const format of ["onnx", "tflite", "coreml", "tensorrt"] as const) {
      const asked = await admin.ok<ModelExport>("POST", `/models/${id}/export`, { format });
      const made = await ended(asked.export_id);
      expect(made).toMatchObject({ status: "completed", failure: null });
      const bytes = Buffer.from(await (await fetch(made.download_url ?? "")).arrayBuffer());
      expect(sha256(bytes)).toBe(made.sha256);
      const run = { made, bytes, classes, imagePath, folder, confidence: CONFIDENCE };
      expectSame(await exportedObjects(run), format);
    }
    // The activation asked for the edge's own file.
    const [own] = (await admin.ok<ModelExport[]>("GET", `/models/${id}/exports`)).filter(
      ({ precision }) => precision === "int8",
    );
    expect(own).toMatchObject({ format: "onnx", image_size: [SIDE, SIDE] });
    expect(await ended(own?.export_id ?? "")).toMatchObject({ status: "completed", failure: null });
    await node.stop();
    const edge = await predicted();
    expect(edge).toMatchObject({ servedBy: "edge", precision: "int8" });
    expectSame(edge.objects, "the edge");
  }
});
