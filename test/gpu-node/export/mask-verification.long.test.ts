// The masks of a segmentation model's files, held against the model's own. Goal: a file of any
// format and precision whose boxes are right and whose masks are wrong fails, with the figure, and
// a right one says how far its masks lie from the model's.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { measureRanges } from "../../../gpu-node/export/calibration.ts";
import { deployedModel } from "../../../gpu-node/export/deployed-model.ts";
import { writeDetector } from "../../../gpu-node/export/format-writers.ts";
import { MaskComparison } from "../../../gpu-node/export/mask-verification.ts";
import type { MapRanges } from "../../../gpu-node/export/ranges.ts";
import { sampleImages } from "../../../gpu-node/export/sample-images.ts";
import { compareObjects } from "../../../gpu-node/export/verification.ts";
import { readTensors } from "../../../gpu-node/export/weights-file.ts";
import { letterbox } from "../../../gpu-node/serving/letterbox.ts";
import { verify } from "../../../gpu-node/tasks/export-verification.ts";
import type { RunnerContext } from "../../../gpu-node/tasks/runner-context.ts";
import { TaskSteps } from "../../../gpu-node/tasks/task-steps.ts";
import type { ConvWeights } from "../../../shared/detector/deployed-weights.ts";
import { PROTOTYPES } from "../../../shared/detector/detector.ts";
import { EXPORT_FORMATS_TABLE } from "../../../shared/detector/export-formats.ts";
import type { MaskedRows } from "../../../shared/detector/letterbox.ts";
import type { TaskPayload } from "../../../shared/tasks/tasks.ts";
import { type NodeService, startNodeService } from "../../support/node-service.ts";
import { taskContext } from "../../support/task-context.ts";
import { generatedModel, steadyTensors, type Tensors, tensorFile } from "../../support/weights.ts";

type Payload = TaskPayload<"device_export">;

const SIZE = [96, 128] as const;
const WEIGHTS = tensorFile(spreadTensors());

/** Scores that lie far apart, so that the list of objects ends below the unsure ones. */
function spreadTensors(): Tensors {
  const tensors = steadyTensors(1, "segmentation");
  for (const [name, { values }] of tensors) {
    if (!/o2o\.cls\.\d\.4\.weight$/.test(name)) continue;
    for (const [at, value] of values.entries()) values[at] = value * 4;
  }
  return tensors;
}

let service: NodeService;
let dir: string;
let context: RunnerContext;
let ranges: MapRanges;

const whole = () =>
  deployedModel(
    { variant: "det26n", task: "segmentation", classes: ["disc"] },
    readTensors(WEIGHTS),
  );

beforeAll(async () => {
  service = await startNodeService();
  dir = mkdtempSync(join(tmpdir(), "vantage-masks-"));
  context = await taskContext(service, dir);
  const laid = await Promise.all(
    sampleImages(4).map((image) => letterbox(image, { width: SIZE[1], height: SIZE[0] })),
  );
  ranges = await measureRanges(whole(), () => laid.map(({ pixels }) => pixels), {
    size: SIZE,
    cpuThreads: 1,
  });
});
afterAll(async () => {
  await service.close();
  rmSync(dir, { recursive: true, force: true });
});

/** What is seen of a file whose weights were changed after the model's predictor was made. */
async function seen(
  more: Partial<Payload>,
  change: (weights: Map<string, ConvWeights>) => void = () => undefined,
) {
  const format = more.format ?? "onnx";
  const { precisions, outputs, artifacts } = EXPORT_FORMATS_TABLE[format];
  const model = generatedModel((key, bytes) => service.source(key, bytes), {
    task: "segmentation",
    classes: ["disc"],
    file: WEIGHTS,
  });
  const payload: Payload = {
    export_id: "e",
    round: 1,
    model,
    format,
    artifact: artifacts[0],
    precision: precisions[0],
    output: outputs[0],
    size: [...SIZE],
    batch: 1,
    metadata: {},
    images: [],
    dataset: null,
    calibration_images: 16,
    calibration: null,
    file: service.target("file"),
    ...more,
  };
  const deployed = whole();
  const weights = new Map(deployed.weights);
  change(weights);
  const path = join(dir, crypto.randomUUID());
  const wish = { ...payload, classes: model.classes, ranges };
  writeFileSync(path, writeDetector({ ...deployed, weights }, wish));
  const steps = new TaskSteps(context, 100);
  const unsuppressed = { suppressing: null, nmsIou: null };
  const about = { weights: WEIGHTS, path, ...unsuppressed, steps, dataset: null };
  return (await verify(payload, about, context)).verification;
}

/** Turns the sign of every second channel of the last convolution that a name matches. */
const turned = (name: RegExp) => (weights: Map<string, ConvWeights>) => {
  const found = [...weights].filter(([key]) => name.test(key));
  expect(found).not.toHaveLength(0);
  for (const [key, { weight, bias }] of found) {
    const each = weight.length / bias.length;
    const isTurned = (at: number) => Math.floor(at) % 2 === 0;
    weights.set(key, {
      weight: weight.map((value, at) => (isTurned(at / each) ? -value : value)),
      bias: bias.map((value, at) => (isTurned(at) ? -value : value)),
    });
  }
};

const FILES: [string, Partial<Payload>][] = [
  ["onnx, fp32", {}],
  ["onnx, fp32, raw, for any batch", { output: "raw", batch: null }],
  ["onnx, fp16", { precision: "fp16" }],
  ["onnx, int8", { precision: "int8" }],
  ["coreml, fp16", { format: "coreml" }],
  ["tflite, fp32", { format: "tflite" }],
  ["tflite, fp16, raw", { format: "tflite", precision: "fp16", output: "raw" }],
  ["tflite, int8", { format: "tflite", precision: "int8" }],
  ["tensorrt, int8", { format: "tensorrt", precision: "int8" }],
];

/** Twice the worst relative error that was seen of these weights, and the worst mean overlap. */
const MEASURED = { fp32: [1e-5, 1], fp16: [1e-3, 0.99], int8: [0.05, 0.98] } as const;

describe.each(FILES)("a segmentation model as %s", (_, more) => {
  it("says how far its masks lie from the model's", async () => {
    const verification = await seen(more);
    const masks = verification?.masks ?? expect.fail("no masks");
    expect(masks.objects).toBeGreaterThan(10);
    // The tolerances are for models that were trained; these lie closer.
    const [error, overlap] =
      MEASURED[more.precision ?? (more.format === "coreml" ? "fp16" : "fp32")];
    expect(masks.prototype_error).toBeLessThanOrEqual(error);
    expect(masks.coefficient_error).toBeLessThanOrEqual(error);
    expect(masks.iou).toBeGreaterThanOrEqual(overlap);
    expect(masks.prototype_tolerance).toBeGreaterThanOrEqual(error);
    expect(masks.iou_min).toBeLessThanOrEqual(overlap);
  });

  it("fails where its prototypes alone are wrong, with the figure", async () => {
    await expect(seen(more, turned(/\.prototypes\.4$/))).rejects.toMatchObject({
      code: "export_differs",
      // Boxes, scores and weights are right: nothing else is told before it.
      message: expect.stringMatching(
        /: prototypes of masks by 1\.\d+ of their size .*, masks overlap by 0\.\d+ on average/,
      ),
    });
  });
});

describe("masks of a file and of its model", () => {
  const size = [8, 16] as const;
  /** Of 2 times 4 cells; the first prototype says which are on. */
  const drawn = (...cells: number[]) => {
    const prototypes = new Float32Array(PROTOTYPES * 8);
    prototypes.set(cells.map((isOn) => isOn - 0.5));
    const rest = Array.from({ length: PROTOTYPES }, (_, at) => (at === 0 ? 2 : 0));
    const object = [0, 0, 12, 8, 0.9, 0, ...rest];
    // What ends the list is no object.
    const last = [0, 0, 4, 4, 0.01, 0, ...rest];
    return { values: Float32Array.from([...object, ...last]), width: 38, prototypes };
  };
  const compared = (file: MaskedRows, predictor: MaskedRows) => {
    const comparison = new MaskComparison();
    comparison.add({ file, predictor }, compareObjects(file, predictor).pairs, size);
    return comparison.end("int8");
  };
  const model = drawn(1, 1, 0, 0, 1, 1, 0, 0);

  it("overlap within the object's box, as parts of both together", () => {
    // The last column is beyond the box.
    const file = drawn(1, 0, 0, 1, 1, 1, 1, 1);
    expect(compared(file, model)).toMatchObject({ objects: 1, iou: 3 / 5 });
    expect(compared(model, model)).toMatchObject({ iou: 1, prototype_error: 0 });
  });

  it("are none where neither has a cell, and overlap by nothing where one has", () => {
    const none = drawn(0, 0, 0, 0, 0, 0, 0, 0);
    expect(compared(none, none)).toMatchObject({ objects: 0, iou: null });
    expect(compared(none, model)).toMatchObject({ objects: 1, iou: 0 });
  });

  it("differ by their weights, as a share of the model's", () => {
    const file = drawn(1, 1, 0, 0, 1, 1, 0, 0);
    file.values[6] = 1.5;
    expect(compared(file, model)).toMatchObject({ coefficient_error: 0.25, iou: 1 });
  });

  it.each([
    ["no prototypes", null],
    ["prototypes of another size", new Float32Array(PROTOTYPES * 4)],
  ])("differ wholly where the file has %s", (_, prototypes) => {
    const { prototype_error } = compared({ ...model, prototypes }, model);
    expect(prototype_error).toBe(Number.POSITIVE_INFINITY);
  });
});
