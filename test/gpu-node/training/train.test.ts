// A training from its payload to its result, with the real engine, over drawn shapes and an object
// store. Goal: the result is of the protocol's shape and true, what people see is there, and an end
// that somebody asks for loses nothing.

import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { readTensors } from "../../../gpu-node/export/safetensors.ts";
import type { TaskContext } from "../../../gpu-node/tasks/context.ts";
import { runTask } from "../../../gpu-node/tasks/run.ts";
import { ENGINE_ENVIRONMENT, loadEngine } from "../../../native/load.ts";
import { type TaskProgress, type TaskResult, TrainDetail } from "../../../shared/tasks.ts";
import { drawnDataset } from "../../support/drawn-dataset.ts";
import { type NodeService, startNodeService } from "../../support/node-service.ts";
import { taskContext } from "../../support/task-context.ts";

Object.assign(process.env, ENGINE_ENVIRONMENT);
const loaded = loadEngine();
if ("missing" in loaded) process.stderr.write(`SKIPPED: ${loaded.missing}\n`);
const noEngine = "missing" in loaded;

let service: NodeService;
let dir: string;
let told: TaskProgress[];
let context: TaskContext;

beforeAll(async () => {
  service = await startNodeService();
});
afterAll(() => service.close());
beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), "vantage-train-"));
  told = [];
  context = await taskContext(service, dir, { progress: (progress) => void told.push(progress) });
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

type Result = TaskResult<"train">;
const details = () => told.map(({ detail }) => TrainDetail.parse(detail));
const lines = () => [
  ...new Map(details().flatMap(({ log }) => log.map(({ n, line }) => [n, line]))),
];
const object = (key: string) => service.objects.get(key) as Buffer;

async function finish(payload: unknown): Promise<Result> {
  const outcome = await runTask("train", payload, context);
  if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
  return outcome.result as Result;
}

describe.skipIf(noEngine)("a training", () => {
  it("gives a model, its metrics, and what people look at", async () => {
    const { payload } = await drawnDataset(service, { epochs: 3 });
    const result = await finish(payload);
    expect(result).toMatchObject({ stopped: false, checkpoint: null });
    expect(result.history.map(({ epoch }) => epoch)).toEqual([1, 2, 3]);
    console.error(
      lines()
        .map(([, l]) => l)
        .join("\n"),
    );
  });
});
