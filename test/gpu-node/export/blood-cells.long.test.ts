// Exports of detectors that were trained on blood cells, through the node's own task: one that is
// trained here in seven epochs of small images, and the one of `npm run bench -- blood-cell-model`
// where somebody made it. Goal: the acceptance lines of every format and precision hold on images
// that a detector never saw.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readTensors } from "../../../gpu-node/export/weights-file.ts";
import type { RunnerContext } from "../../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../../gpu-node/tasks/runners.ts";
import { EXPORT_FORMATS_TABLE } from "../../../shared/detector/export-formats.ts";
import { suppressionOf } from "../../../shared/detector/suppression.ts";
import type { ModelSource, TaskPayload, TaskResult } from "../../../shared/tasks/tasks.ts";
import {
  BLOOD_CLASSES,
  BLOOD_SIDE,
  type BloodModel,
  bloodDataset,
  bloodWeights,
  trainOnBlood,
} from "../../support/blood-cells.ts";
import { realData } from "../../support/images.ts";
import { type NodeService, startNodeService } from "../../support/node-service.ts";
import { taskContext } from "../../support/task-context.ts";
import { engineOrSay } from "../../support/training.ts";
import { generatedModel } from "../../support/weights.ts";

type Payload = TaskPayload<"device_export">;
type Result = TaskResult<"device_export">;

/** A detector, and what it has to be good for so that a comparison says something. */
interface Detector {
  name: string;
  classes: string[];
  /** Pixels a side. */
  side: number;
  isHere: boolean;
  /** Its weights, and what its run told of them where it is trained here. */
  weights(
    service: NodeService,
    dir: string,
  ): Promise<Pick<BloodModel, "weights"> & Partial<BloodModel>>;
  /** Formats whose int8 it is too young for. */
  refused: Payload["format"][];
  map50Min: number;
  map50_95Min: number;
  /** Of its objects on all validation images. */
  objectsMin: number;
}

const hasImages = realData("bccd/val.txt") !== null;
const kept = hasImages ? bloodWeights() : null;

const CELLS = ["RBC", "WBC"];
const DETECTORS: Detector[] = [
  {
    name: "of nine epochs",
    // Platelets are too small to be learned so soon: average precision of what is found by chance
    // says nothing of a file.
    classes: CELLS,
    side: 160,
    isHere: hasImages && engineOrSay() !== null,
    // Some fifty seconds of one processor. After seven epochs of steps in fp32 one box of the int8
    // file was 3.02 pixels off; after nine the furthest is 1.6.
    weights: async (service, dir) => {
      const settings = {
        epochs: 9,
        image_size: 160,
        batch_size: 4,
        augmentation: "minimal",
        learning_rate: 0.004,
      } as const;
      return trainOnBlood(service, dir, settings, { classes: CELLS });
    },
    // Of five trainings one had a file whose scores were on average 0.94 of the model's.
    refused: ["tensorrt"],
    map50Min: 0.6,
    map50_95Min: 0.3,
    objectsMin: 500,
  },
  {
    name: "of the benchmark",
    classes: BLOOD_CLASSES,
    side: BLOOD_SIDE,
    isHere: kept !== null,
    weights: async () => ({ weights: kept ?? Buffer.alloc(0) }),
    refused: [],
    map50Min: 0.6,
    map50_95Min: 0.3,
    objectsMin: 1_000,
  },
];

describe.each(DETECTORS)("a detector of blood cells $name", { timeout: 600_000 }, (detector) => {
  if (!detector.isHere) {
    it.skip("is not on this machine", () => {});
    return;
  }
  const { side, classes } = detector;
  let service: NodeService;
  let dir: string;
  let context: RunnerContext;
  let model: ModelSource;
  let dataset: Payload["dataset"];
  let single: { file: Buffer; result: Result };
  let trained: Awaited<ReturnType<Detector["weights"]>>;

  beforeAll(async () => {
    service = await startNodeService();
    dir = mkdtempSync(join(tmpdir(), "vantage-blood-cells-"));
    context = await taskContext(service, dir);
    dataset = await bloodDataset(service, classes);
    trained = await detector.weights(service, dir);
    model = generatedModel((key, bytes) => service.source(key, bytes), {
      classes,
      image_size: side,
      file: trained.weights,
    });
    single = await exported({});
  }, 1_800_000);
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
      size: [side, side],
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
    // What its run told of it is what it is served with, suppression included where it was chosen.
    const { metrics, resolved } = trained;
    if (metrics && resolved) {
      // By another runtime, on images that no decoder halved: some cells fall otherwise.
      expect(Math.abs(accuracy.model_map50 - (metrics.mAP50 ?? 0))).toBeLessThan(0.03);
      const { metadata } = readTensors(trained.weights);
      expect(suppressionOf(metadata)?.nmsIou).toBe(resolved.nms_iou);
      process.stderr.write(`suppression: ${resolved.nms_iou}\n`);
    }
    expect(accuracy.model_map50).toBeGreaterThan(detector.map50Min);
    expect(accuracy.model_map50_95).toBeGreaterThan(detector.map50_95Min);
    expect(verification.objects).toBeGreaterThan(detector.objectsMin);
    expect(accuracy.model_map50 - accuracy.map50).toBeLessThanOrEqual(0.01);
    expect(accuracy.model_map50_95 - accuracy.map50_95).toBeLessThanOrEqual(0.001);
    // Of all but one object in a hundred; of one training two unsure ones moved by 0.13 and 0.15.
    expect(verification.box_difference_p99).toBeLessThanOrEqual(0.1);
    expect(verification.box_difference_max).toBeLessThanOrEqual(0.3);
    expect(verification.score_difference_max).toBeLessThanOrEqual(1e-2);
    expect(file.length / single.file.length).toBeLessThanOrEqual(share);
  });

  it.for<[string, Partial<Payload>, number]>([
    ["ONNX int8", { precision: "int8" }, 0],
    // The bundle holds an example.
    ["TensorRT's ONNX int8", { format: "tensorrt", precision: "int8" }, 12 * side ** 2],
    ["TFLite int8", { format: "tflite", precision: "int8" }, 0],
  ])("loses next to nothing in int8: %s", async ([name, more, exampleBytes], { skip }) => {
    skip(more.format !== undefined && detector.refused.includes(more.format), "it is too young");
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
    const share = (file.length - exampleBytes) / single.file.length;
    expect(share).toBeLessThanOrEqual(0.31);
  });
});
