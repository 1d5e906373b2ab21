// Exports of a detector that was trained on blood cells, through the node's own task, where the
// images and the detector are on this machine (`npm run bench -- blood-cell-model`). Goal: the
// acceptance lines of every format and precision hold on images that it never saw.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { RunnerContext } from "../../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../../gpu-node/tasks/runners.ts";
import { EXPORT_FORMATS_TABLE } from "../../../shared/export-formats.ts";
import type { ModelSource, TaskPayload, TaskResult } from "../../../shared/tasks.ts";
import {
  BLOOD_CLASSES,
  BLOOD_SIDE,
  bloodDataset,
  bloodWeights,
} from "../../support/blood-cells.ts";
import { realData } from "../../support/images.ts";
import { type NodeService, startNodeService } from "../../support/node-service.ts";
import { taskContext } from "../../support/task-context.ts";
import { generatedModel } from "../../support/weights.ts";

type Payload = TaskPayload<"device_export">;
type Result = TaskResult<"device_export">;

const weights = realData("bccd/val.txt") ? bloodWeights() : null;
/** mAP50 and mAP50-95 of the model in single precision, below which it is no detector. */
const MODEL_MIN = { map50: 0.6, map50_95: 0.3 };

describe.skipIf(!weights)("a detector of blood cells", { timeout: 300_000 }, () => {
  let service: NodeService;
  let dir: string;
  let context: RunnerContext;
  let model: ModelSource;
  let dataset: Payload["dataset"];
  let single: { file: Buffer; result: Result };

  beforeAll(async () => {
    service = await startNodeService();
    dir = mkdtempSync(join(tmpdir(), "vantage-blood-cells-"));
    context = await taskContext(service, dir);
    dataset = await bloodDataset(service);
    model = generatedModel((key, bytes) => service.source(key, bytes), {
      classes: BLOOD_CLASSES,
      image_size: BLOOD_SIDE,
      file: weights ?? Buffer.alloc(0),
    });
    single = await exported({});
  }, 300_000);
  afterAll(async () => {
    await service.close();
    rmSync(dir, { recursive: true, force: true });
  });

  async function exported(more: Partial<Payload>): Promise<{ file: Buffer; result: Result }> {
    const { format = "onnx" } = more;
    const { precisions, outputs, artifacts, extension } = EXPORT_FORMATS_TABLE[format];
    const payload: Payload = {
      export_id: "e",
      round: 1,
      model,
      format,
      artifact: artifacts[0],
      precision: precisions[0],
      output: outputs[0],
      size: [BLOOD_SIDE, BLOOD_SIDE],
      batch: 1,
      metadata: { name: "blood cells", version: "1" },
      images: [],
      dataset,
      calibration_images: 32,
      calibration: null,
      file: service.target(`${crypto.randomUUID()}.${extension}`),
      ...more,
    };
    const outcome = await runTask("device_export", payload, context);
    if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
    const file = service.objects.get(payload.file.key) ?? expect.fail("nothing was uploaded");
    return { file, result: outcome.result as Result };
  }

  it("in single precision gives what the predictor gives", () => {
    const { verification, recommended_confidence } = single.result;
    expect(verification?.box_difference_max).toBeLessThanOrEqual(1e-3);
    expect(verification?.score_difference_max).toBeLessThanOrEqual(1e-5);
    expect(verification?.dataset_images).toBe(4);
    expect(recommended_confidence).toBe(0.25);
  });

  it.each<[string, Partial<Payload>, number]>([
    ["ONNX fp16", { precision: "fp16" }, 0.53],
    ["TFLite fp16", { format: "tflite", precision: "fp16" }, 0.53],
    ["Core ML fp16", { format: "coreml" }, 0.53],
  ])("loses nothing in half precision: %s", async (name, more, share) => {
    const { file, result } = await exported(more);
    const verification = result.verification ?? expect.fail(result.not_verified.join());
    const accuracy = verification.accuracy ?? expect.fail("no average precision");
    process.stderr.write(`${name}: ${JSON.stringify({ bytes: file.length, ...verification })}\n`);
    expect(accuracy).toMatchObject({ images: 87 });
    expect(accuracy.model_map50).toBeGreaterThan(MODEL_MIN.map50);
    expect(accuracy.model_map50_95).toBeGreaterThan(MODEL_MIN.map50_95);
    expect(accuracy.model_map50 - accuracy.map50).toBeLessThanOrEqual(0.01);
    expect(accuracy.model_map50_95 - accuracy.map50_95).toBeLessThanOrEqual(0.001);
    // The worst of some 1,500 objects: two unsure ones moved by 0.13 and 0.15 pixels.
    expect(verification.box_difference_max).toBeLessThanOrEqual(0.3);
    expect(verification.score_difference_max).toBeLessThanOrEqual(1e-2);
    expect(file.length / single.file.length).toBeLessThanOrEqual(share);
  });

  it.each<[string, Partial<Payload>, number]>([
    ["ONNX int8", { precision: "int8" }, 0.31],
    // The bundle's example takes twelve bytes a pixel, here 8 % of the single file.
    ["TensorRT's ONNX int8", { format: "tensorrt", precision: "int8" }, 0.31 + 0.08],
    ["TFLite int8", { format: "tflite", precision: "int8" }, 0.31],
  ])("loses next to nothing in int8: %s", async (name, more, share) => {
    const { file, result } = await exported(more);
    const verification = result.verification ?? expect.fail(result.not_verified.join());
    const accuracy = verification.accuracy ?? expect.fail("no average precision");
    const said = { bytes: file.length, ...verification, at: result.recommended_confidence };
    process.stderr.write(`${name}: ${JSON.stringify(said)}\n`);
    expect(accuracy.model_map50 - accuracy.map50).toBeLessThanOrEqual(0.01);
    expect(accuracy.model_map50_95 - accuracy.map50_95).toBeLessThanOrEqual(0.01);
    expect(verification.confidence_ratio).toBeGreaterThan(0.95);
    expect(verification.confidence_ratio).toBeLessThan(1.05);
    expect(verification.box_difference_max).toBeLessThanOrEqual(3);
    expect(result.recommended_confidence).toBeGreaterThan(0.15);
    expect(result.recommended_confidence).toBeLessThan(0.35);
    expect(file.length / single.file.length).toBeLessThanOrEqual(share);
  });
});
