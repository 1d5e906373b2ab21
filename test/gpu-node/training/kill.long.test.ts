// The real node and its real child process, killed at the worst moments. Goal: whatever dies, and
// whenever, the next attempt goes on from the last checkpoint and the run ends with one model.

import { existsSync, readdirSync, watch } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { TASK_KINDS, type TaskResult } from "../../../shared/tasks/tasks.ts";
import { TrainDetail } from "../../../shared/tasks/train-task.ts";
import { toolsOrSay } from "../../support/clips.ts";
import { drawnDataset } from "../../support/drawn-dataset.ts";
import { type NodeProcess, startNode } from "../../support/gpu-node.ts";
import {
  type NodeService,
  type ServedTask,
  startNodeService,
  until,
} from "../../support/node-service.ts";
import { engineOrSay } from "../../support/training.ts";

const able = engineOrSay() !== null && toolsOrSay() !== null;
let service: NodeService;
beforeEach(async () => {
  service = await startNodeService();
});
afterEach(() => service.close());

const start = (more: Record<string, string> = {}) =>
  startNode({
    VANTAGE_URL: service.url,
    VANTAGE_NODE_TOKEN: service.token,
    TEST_TRAINING: "1",
    ...more,
  });

async function training(epochs: number, runId?: string) {
  const settings = { epochs, batch_size: 2, seed: 1 };
  const { payload } = await drawnDataset(service, settings, { train: 6, val: 2 });
  if (runId) payload.run_id = runId;
  return service.enqueue("train", payload);
}

const details = (task: ServedTask) =>
  task.progress
    .map(({ detail }) => TrainDetail.safeParse(detail))
    .flatMap(({ data }) => data ?? []);
const newest = (task: ServedTask) => details(task).at(-1);
const hasTrained = (task: ServedTask) =>
  details(task).some(({ epoch, batch }) => epoch > 0 || batch > 0);
const resultOf = (task: ServedTask) => {
  const outcome = task.outcomes.at(-1);
  if (outcome?.outcome !== "finished") throw new Error(JSON.stringify(outcome));
  return TASK_KINDS.train.result.parse(outcome.result) as TaskResult<"train">;
};
/** The training's process says when it started. */
const killTrainer = (node: NodeProcess) => {
  const starts = node.lines().filter(({ event }) => event === "child_started");
  process.kill(Number(starts.at(-1)?.child), "SIGKILL");
};

/** As the service does: what the task said last is what its next attempt goes on from. */
async function again(task: ServedTask) {
  await until("the attempt fails", () => task.outcomes.length > 0);
  expect(task.outcomes.splice(0)).toMatchObject([
    { outcome: "failed", code: "node_crashed", retryable: true },
  ]);
  service.requeue(task);
  await until("it ends", () => task.state === "ended");
}

/** One run, one model: whole, in the store, of the run's best epoch. */
function expectOneModel(task: ServedTask, epochs: number) {
  const { history, model } = resultOf(task);
  expect(history.map(({ epoch }) => epoch)).toEqual(
    Array.from({ length: epochs }, (_, at) => at + 1),
  );
  expect(service.objects.get(model?.weights.key ?? "")?.length).toBe(model?.weights.bytes);
  expect(model?.metrics).toEqual(history[(model?.epoch ?? 0) - 1]?.metrics);
}

const weightsOf = (node: NodeProcess, task: ServedTask) =>
  join(node.dir, "training/runs", String(task.payload.run_id), "weights");

describe.skipIf(!able)("a trainer that is killed", () => {
  it("in the middle of an epoch loses that epoch only", async () => {
    const node = start();
    const epochs = 12;
    const task = await training(epochs);
    // Its report of an epoch comes as the next one begins: on a fast machine there is none between.
    await until("its first epoch is done", () => (newest(task)?.epoch ?? 0) >= 1);
    killTrainer(node);
    await again(task);
    expectOneModel(task, epochs);
    const log = details(task).flatMap((detail) => detail.log.map(({ line }) => line));
    expect(log.some((line) => /^Resumed at epoch (?!1\b)\d/.test(line))).toBe(true);
    // What was trained before was not trained again.
    expect(log.filter((line) => line.startsWith("First weights")).length).toBeGreaterThan(0);
  });

  it("while it writes a checkpoint goes on from the one before", async () => {
    const node = start();
    const task = await training(3);
    // From the beginning, so that no epoch is too short to be seen: its later ones need this
    // process as their service, which hears of the checkpoint first.
    const folder = weightsOf(node, task);
    await until("the run has a folder", () => existsSync(folder));
    const watcher = watch(folder, (_, name) => {
      // The engine's own file, before it has the checkpoint's name.
      if (!name?.startsWith("last.safetensors.")) return;
      if (!existsSync(join(folder, "last.safetensors"))) return;
      watcher.close();
      killTrainer(node);
    });
    await again(task);
    expectOneModel(task, 3);
  });

  it("while it uploads its model ends with one model", async () => {
    const node = start();
    const stalled = /\/objects\/.*best\.safetensors/;
    service.fault(stalled, "stall");
    const task = await training(2);
    await until("the model is on its way", () => details(task).some(({ epoch }) => epoch === 2));
    await until("the upload stalls", () => service.stalled > 0);
    expect([...service.objects.keys()].some((key) => key.includes("best.safetensors"))).toBe(false);
    killTrainer(node);
    await again(task);
    expectOneModel(task, 2);
    const models = [...service.objects.keys()].filter((key) => key.includes("best.safetensors"));
    expect(models).toEqual([resultOf(task).model?.weights.key]);
    expect(readdirSync(join(node.dir, "training/runs"))).toEqual([]);
  });
});

describe.skipIf(!able)("a node that trains", () => {
  it("offers it, does other work meanwhile, and stops in time with what it has", async () => {
    start();
    await until("it says so", () => service.capabilities !== null);
    expect(service.capabilities?.kinds).toContain("train");
    expect(service.capabilities?.missing.join()).not.toMatch(/trained/);
    const task = await training(500);
    const next = await training(1);
    await until("it trains", () => hasTrained(task));
    const still = Buffer.from(service.objects.values().next().value as Buffer);
    const frames = service.enqueue("probe", {
      video: service.source("p", still),
      video_id: "v",
      filename: "a.png",
      still: true,
      pts: service.target("pts"),
      thumbnail: service.target("t.jpg", "image/jpeg"),
    });
    await until("other work is done", () => frames.state === "ended");
    // One training at a time.
    expect([task.state, next.state]).toEqual(["running", "queued"]);
    task.verdict = "cancel";
    await until("it stopped", () => task.state === "ended");
    const [outcome] = task.outcomes;
    expect(outcome).toMatchObject({ outcome: "cancelled", result: { stopped: true } });
    const result = TASK_KINDS.train.result.parse((outcome as { result: unknown }).result);
    expect(service.objects.has(result.model?.weights.key ?? "")).toBe(true);
    await until("the next one had its turn", () => next.state === "ended");
    expectOneModel(next, 1);
  });

  it("puts a training aside when it drains, and takes it up when it is back", async () => {
    const node = start({ VANTAGE_NODE_DRAIN_SECONDS: "240" });
    const task = await training(12);
    await until("its first epoch is done", () => (newest(task)?.epoch ?? 0) >= 1);
    node.signal("SIGTERM");
    expect(await node.ended).toMatchObject({ code: 0 });
    expect(task.outcomes).toEqual([{ outcome: "snoozed", seconds: 0 }]);
    const { checkpoint } = newest(task) ?? {};
    expect(service.objects.has(checkpoint?.key ?? "")).toBe(true);
    start({ VANTAGE_NODE_DIR: node.dir });
    await until("it ends", () => task.state === "ended");
    expectOneModel(task, 12);
  });
});
