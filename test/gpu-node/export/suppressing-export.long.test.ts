// Files of a model whose weights say that overlapping boxes are suppressed. Goal: end to end they
// do it themselves, as the predictor does, whatever their precision and batch; raw ones say that
// their host has to; and one that suppresses otherwise is never uploaded.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { expectedBytes } from "../../../edge/vision/training/exports/options.ts";
import { deployedModel } from "../../../gpu-node/export/deployed-model.ts";
import { writeOnnx } from "../../../gpu-node/export/detector-onnx.ts";
import { sampleImage } from "../../../gpu-node/export/sample-images.ts";
import { compareRows } from "../../../gpu-node/export/verification.ts";
import { readTensors } from "../../../gpu-node/export/weights-file.ts";
import { decodeModel } from "../../../gpu-node/onnx/model-file.ts";
import { float, floats, openSession, run } from "../../../gpu-node/onnx/runtime.ts";
import { openPredictor } from "../../../gpu-node/serving/predictor.ts";
import { verify } from "../../../gpu-node/tasks/export-verification.ts";
import type { RunnerContext } from "../../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../../gpu-node/tasks/runners.ts";
import { TaskSteps } from "../../../gpu-node/tasks/task-steps.ts";
import { detectorGraph } from "../../../shared/detector/detector.ts";
import type { ModelSource, TaskPayload, TaskResult } from "../../../shared/tasks/tasks.ts";
import { exportPayload } from "../../support/export-payload.ts";
import type { NodeService } from "../../support/node-service.ts";
import { beforeEachTask } from "../../support/node-tasks.ts";
import { generatedModel, randomWeights, tensorFile } from "../../support/weights.ts";

type Payload = TaskPayload<"model_export">;

const ONE_THREAD = { cpuThreads: 1, device: "cpu" } as const;
const TENSORS = randomWeights(detectorGraph("det26n", 3));
const WEIGHTS = tensorFile(TENSORS, { head: "one_to_one", nms_iou: "0.3" });

let service: NodeService;
let dir: string;
let context: RunnerContext;

beforeEachTask("suppressing-export", (own) => {
  ({ service, dir, context } = own);
});

const modelOf = (file: Buffer): ModelSource =>
  generatedModel((key, bytes) => service.source(key, bytes), { file });

const payloadOf = (model: ModelSource, more: Partial<Payload> = {}): Payload =>
  exportPayload(service, model, more);

async function exported(payload: Payload) {
  const outcome = await runTask("model_export", payload, context);
  if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
  const file = service.objects.get(payload.file.key) ?? expect.fail("nothing was uploaded");
  const { metadataProps } = decodeModel(file);
  const metadata = Object.fromEntries(metadataProps.map(({ key, value }) => [key, value]));
  return { file, metadata, result: outcome.result as TaskResult<"model_export"> };
}

/** What the predictor, with and without the suppression, and a file give for one image. */
async function lookedAt({ model, size }: Payload, file: Uint8Array, weights = WEIGHTS) {
  const rowsBy = async (unsuppressed: boolean) => {
    const settings = { ...ONE_THREAD, unsuppressed };
    const predictor = await openPredictor(model, weights, settings, size);
    try {
      const laid = await predictor.lay(sampleImage(0));
      return { laid, rows: await predictor.rows(laid) };
    } finally {
      await predictor.dispose();
    }
  };
  const { laid, rows } = await rowsBy(false);
  const { rows: unsuppressed } = await rowsBy(true);
  const session = await openSession(file, ONE_THREAD);
  try {
    const outputs = await run(session, { images: float(laid.pixels, [1, 3, ...size]) });
    const given = { values: floats(outputs, "output0").slice(), width: 6 };
    return { rows, unsuppressed, given };
  } finally {
    await session.release();
  }
}

/** Rows that have a score. */
const countOf = ({ values }: { values: Float32Array }) =>
  values.filter((value, index) => index % 6 === 4 && value > 0).length;

it.each<[string, Partial<Payload>]>([
  ["fp32", {}],
  ["fp32 for any batch", { batch: null }],
  ["fp16", { precision: "fp16" }],
])("end to end suppresses by itself: %s", async (_, more) => {
  const model = modelOf(WEIGHTS);
  const payload = payloadOf(model, more);
  const { file, metadata, result } = await exported(payload);
  // What the service holds room for while the file is made.
  expect(expectedBytes(model, payload) / file.length).toBeGreaterThanOrEqual(1);
  expect(result.verification?.rows).toBeGreaterThan(10);
  expect(metadata).toMatchObject({ head: "one_to_one", nms_iou: "0.3", end2end: "True" });
  const { rows, unsuppressed, given } = await lookedAt(payload, file);
  expect(given.values.length).toBe(unsuppressed.values.length);
  expect([countOf(rows) > 4, countOf(rows) < countOf(unsuppressed)]).toEqual([true, true]);
  expect(countOf(given)).toBeLessThan(countOf(unsuppressed));
  if (payload.precision !== "fp32") return;
  const difference = compareRows(given, rows, { box: 1e-3, score: 1e-5 });
  expect(difference).toMatchObject({ unmatched: 0 });
});

it("is the other head's where the weights say so", async () => {
  const weights = tensorFile(TENSORS, { head: "one_to_many", nms_iou: "0.3" });
  const payload = payloadOf(modelOf(weights));
  const { file, metadata, result } = await exported(payload);
  expect(result.verification?.rows).toBeGreaterThan(10);
  expect(metadata).toMatchObject({ head: "one_to_many", nms_iou: "0.3" });
  const { rows, given } = await lookedAt(payload, file, weights);
  expect(compareRows(given, rows, { box: 1e-3, score: 1e-5 })).toMatchObject({ unmatched: 0 });
  // By the one-to-one head, other boxes.
  const other = await lookedAt(payload, file);
  expect(compareRows(given, other.rows, { box: 1e-3, score: 1e-5 }).unmatched).toBeGreaterThan(0);
});

it("raw leaves suppression to its host, and says so", async () => {
  const payload = payloadOf(modelOf(WEIGHTS), { output: "raw" });
  const { file, metadata } = await exported(payload);
  expect(metadata).toMatchObject({ head: "one_to_one", nms_iou: "0.3", end2end: "False" });
  expect(metadata.description).toMatch(/suppression above an IoU of 0.3/);
  const plain = await exported(payloadOf(modelOf(tensorFile(TENSORS)), { output: "raw" }));
  // A few words more, and no operation.
  expect(file.length - plain.file.length).toBeLessThan(200);
  expect(plain.metadata).not.toHaveProperty("nms_iou");
});

it("is refused where it suppresses by another limit than the model", async () => {
  const payload = payloadOf(modelOf(WEIGHTS));
  const deployed = deployedModel(payload.model, readTensors(WEIGHTS));
  const [path, plainPath] = [join(dir, "other.onnx"), join(dir, "plain.onnx")];
  const form = { output: "detections", size: payload.size, batch: 1, metadata: {} } as const;
  writeFileSync(plainPath, writeOnnx({ ...deployed, nmsIou: null }, form));
  const verified = (nmsIou: number | null) => {
    writeFileSync(path, writeOnnx({ ...deployed, nmsIou }, form));
    const steps = new TaskSteps(context, 100);
    const suppressing = { nmsIou: 0.3, plainPath };
    const about = { weights: WEIGHTS, path, suppressing, nmsIou: 0.3, steps, dataset: null };
    return verify(payload, about, context);
  };
  expect((await verified(0.3)).verification?.rows).toBeGreaterThan(10);
  for (const other of [0.31, 0.7, null]) {
    await expect(verified(other)).rejects.toMatchObject({
      code: "export_differs",
      message: expect.stringMatching(/suppresses other boxes/),
    });
  }
});
