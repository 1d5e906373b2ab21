// A vision world with a labeled job and a node that trains as the test says: it asks where to
// write, writes objects, reports epochs and ends, over the real protocol.

import { createHash } from "node:crypto";
import { expect } from "vitest";
import { WebSocket } from "ws";
import type { ClaimedTask, Outcome } from "../../shared/tasks/node-protocol.ts";
import { TASK_KINDS, type TaskPayload, type TaskResult } from "../../shared/tasks/tasks.ts";
import type { Checkpoint, TrainDetail } from "../../shared/tasks/train-task.ts";
import { ProgressEvent } from "../../shared/wire/progress.ts";
import { type RunEpoch, TrainingRun } from "../../shared/wire/training.ts";
import {
  newProject,
  type Person,
  probeAs,
  register,
  type ScriptedNode,
  scriptedNode,
  uploadVideo,
} from "./scripted-node.ts";
import { createWorld, type World } from "./world.ts";

export interface TrainTask extends ClaimedTask {
  train: TaskPayload<"train">;
}
type Result = TaskResult<"train">;
type StoredObject = Pick<Checkpoint, "key" | "bytes">;

export interface TrainingWorld {
  world: World;
  admin: Person;
  node: ScriptedNode;
  /** A second one, for races. */
  rival: ScriptedNode;
  projectId: string;
  /** The job of ten annotated frames of two videos that runs are of, unless they name another. */
  jobId: string;
  /** A video of the project, probed. */
  video(filename: string, shape?: Parameters<typeof probeAs>[0]): Promise<string>;
  /** A finished job of YOLO labels by `<video>_<six digits>`. */
  labeled(labels: Record<string, string>, names?: string[]): Promise<string>;
  train(more?: object): Promise<string>;
  run(runId: string): Promise<TrainingRun>;
  /** The task of the run that is queued alone. */
  claimed(by?: ScriptedNode): Promise<TrainTask>;
  finish(task: TrainTask, outcome: Outcome, by?: ScriptedNode): Promise<Response>;
  report(task: TrainTask, detail: Partial<TrainDetail>, by?: ScriptedNode): Promise<Response>;
  /** Writes an object where the service says. */
  stored(task: TrainTask, name: string, bytes?: number, by?: ScriptedNode): Promise<StoredObject>;
  /** What a trainer that did these epochs reports, its weights written. */
  result(task: TrainTask, epochs: readonly RunEpoch[], more?: Partial<Result>): Promise<Result>;
  /** A run that was trained to its end, and its model. */
  trained(more?: object): Promise<{ runId: string; modelId: string }>;
  /** Keys under the run's folder. */
  keys(runId: string): Promise<string[]>;
  listen(runId: string): Promise<Listener>;
}

export interface Listener {
  events: ProgressEvent[];
  closed: Promise<number>;
}

/** An epoch with a precision of its own for each class. */
export const epoch = (number: number, mAP = number / 10): RunEpoch => ({
  epoch: number,
  losses: { box: 1 / number, cls: 2 / number, dfl: 0.5 },
  validation_losses: { box: 2 / number, cls: 4 / number, dfl: 1 },
  metrics: { mAP50: mAP + 0.1, "mAP50-95": mAP, "per_class/cell/recall": mAP },
  learning_rate: 0.01,
  seconds: 1.5,
});

export const RESOLVED = {
  device: "cpu",
  precision: "fp32" as const,
  precision_reason: "this CPU has no instructions for bf16",
  batch_size: 4,
  optimizer: "adamw" as const,
  learning_rate: 0.01,
  train_images: 5,
  val_images: 5,
  pretrained: null,
};

const detailOf = (more: Partial<TrainDetail>): TrainDetail => ({
  epoch: 1,
  batch: 1,
  batches: 2,
  losses: null,
  learning_rate: null,
  images_per_second: null,
  memory_bytes: null,
  eta_seconds: null,
  resolved: null,
  recent: [],
  log: [],
  checkpoint: null,
  ...more,
});

/** Where a task's first weights can be read; empty where it has none of the store. */
export const firstWeightsUrl = ({ train: { pretrained } }: TrainTask): string =>
  pretrained && "weights" in pretrained ? pretrained.weights.url : "";

/** A box in the middle of the frame, of this side as a share of the frame's. */
export const box = (className = 0, side = 0.2) => `${className} 0.5 0.5 ${side} ${side}`;

/** A mask in the middle of the frame, as YOLO writes its outline. */
export const mask = (className = 0) => `${className} 0.4 0.4 0.6 0.4 0.5 0.6`;

/** Labels of the first so many frames of a video. */
export const labelsOf = (video: string, frames: number, text = box()) =>
  Object.fromEntries(
    Array.from({ length: frames }, (_, index) => [
      `${video}_${String(index).padStart(6, "0")}`,
      text,
    ]),
  );

export async function createTrainingWorld(
  environment: Record<string, string> = {},
): Promise<TrainingWorld> {
  const world = await createWorld({ services: ["vision"], environment: { vision: environment } });
  const admin = await register(world);
  const node = await scriptedNode(world, admin);
  const rival = await scriptedNode(world, admin);
  const projectId = (await newProject(admin)).project_id;
  const video: TrainingWorld["video"] = async (filename, shape = { frames: 10 }) => {
    const { video_id: id } = await uploadVideo(admin, projectId, filename);
    node.script.probe = probeAs(shape);
    await node.work();
    return id;
  };
  const labeled: TrainingWorld["labeled"] = async (labels, names = ["cell"]) => {
    const body = { project_id: projectId, yolo: { names, labels } };
    const made = await admin.ok<{ job: { job_id: string } }>("POST", "/import", body);
    return made.job.job_id;
  };
  await video("left.mp4");
  await video("right.mp4");
  const jobId = await labeled({ ...labelsOf("left", 5), ...labelsOf("right", 5) });
  return { world, admin, node, rival, projectId, jobId, video, labeled, ...trainer() };

  function trainer() {
    const train: TrainingWorld["train"] = async (more = {}) =>
      (await admin.ok<{ run_id: string }>("POST", "/train", { job_id: jobId, ...more })).run_id;
    const run: TrainingWorld["run"] = async (id) =>
      TrainingRun.parse(await admin.ok("GET", `/train/${id}`));
    const claimed: TrainingWorld["claimed"] = async (by = node) => {
      const task = await by.claim(["train"]);
      expect(task).not.toBeNull();
      const payload = TASK_KINDS.train.payload.parse((task as ClaimedTask).payload);
      return { ...(task as ClaimedTask), train: payload };
    };
    const report: TrainingWorld["report"] = (task, detail, by = node) =>
      by.api.send("POST", `/node/tasks/${task.task_id}/progress`, {
        fence: task.fence,
        done: detail.batch ?? 1,
        total: 10,
        detail: detailOf(detail),
      });
    const stored: TrainingWorld["stored"] = async (task, name, bytes = 8, by = node) => {
      const content_type = name.endsWith(".png") ? "image/png" : "application/octet-stream";
      const key = await by.write(task, { name, content_type }, new Uint8Array(bytes));
      return { key, bytes };
    };
    const result: TrainingWorld["result"] = async (task, history, more = {}) => {
      const weights = await stored(task, "weights.safetensors", 16);
      const best = history.toSorted((a, b) => mAPOf(b) - mAPOf(a))[0] ?? epoch(1);
      const model = {
        weights: { ...weights, sha256: sha256OfZeros(weights.bytes) },
        parameters: 7,
        epoch: best.epoch,
        metrics: best.metrics,
        confidence_bins: null,
      };
      const base = { stopped: false, history: [...history], resolved: RESOLVED, model };
      return { ...base, checkpoint: null, artifacts: [], ...more };
    };
    const finish: TrainingWorld["finish"] = (task, outcome, by = node) => by.finish(task, outcome);
    const trained: TrainingWorld["trained"] = async (more = {}) => {
      const runId = await train(more);
      const task = await claimed();
      const done = await result(task, [epoch(1), epoch(2)]);
      expect((await finish(task, { outcome: "finished", result: done })).status).toBe(200);
      const { status, model_id: modelId } = await run(runId);
      expect(status).toBe("completed");
      return { runId, modelId: modelId as string };
    };
    const keys: TrainingWorld["keys"] = async (id) => {
      const { objects } = await world.media.list();
      return objects.map(({ key }) => key).filter((key) => key.includes(id));
    };
    const listen = (id: string) => listenTo(admin, world.urls.vision, id);
    return { train, run, claimed, report, stored, result, finish, trained, keys, listen };
  }
}

/** Of what `stored` writes, in hex. */
export const sha256OfZeros = (bytes: number) =>
  createHash("sha256").update(new Uint8Array(bytes)).digest("hex");

const mAPOf = ({ metrics }: RunEpoch) => metrics["mAP50-95"] ?? 0;

async function listenTo(api: Person, base: string, runId: string): Promise<Listener> {
  const { url } = await api.ok<{ url: string }>("POST", `/train/${runId}/ticket`);
  const socket = new WebSocket(new URL(url, base));
  const events: ProgressEvent[] = [];
  socket.on("message", (data) => {
    const text = String(data);
    if (text !== "pong") events.push(ProgressEvent.parse(JSON.parse(text)));
  });
  const closed = new Promise<number>((done) => socket.on("close", done));
  await new Promise((opened, failed) => socket.on("open", opened).on("error", failed));
  // Until a reader sent something, workerd closes its socket only seconds after the end.
  socket.send("ping");
  return { events, closed };
}
