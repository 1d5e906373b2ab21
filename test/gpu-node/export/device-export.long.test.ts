// Models as files for devices, made by the node's own code: every format and precision. Goal: each
// file is held against the model's predictor before it leaves, lower precision by what people
// labeled; what misses its tolerance, or cannot be made, is told by name and never uploaded.

import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { expectedBytes } from "../../../edge/vision/training/exports/options.ts";
import { Model } from "../../../gpu-node/export/coreml-schema.ts";
import { sampleImage } from "../../../gpu-node/export/sample-images.ts";
import { decodeModel } from "../../../gpu-node/onnx/model-file.ts";
import { letterbox } from "../../../gpu-node/serving/letterbox.ts";
import { LabeledImages } from "../../../gpu-node/tasks/labeled-images.ts";
import type { RunnerContext } from "../../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../../gpu-node/tasks/runners.ts";
import { detectorGraph } from "../../../shared/detector/detector.ts";
import { EXPORT_FORMATS_TABLE } from "../../../shared/detector/export-formats.ts";
import type { ExportManifest } from "../../../shared/tasks/export-manifest.ts";
import type { ModelSource, TaskPayload, TaskResult } from "../../../shared/tasks/tasks.ts";
import { drawnDataset } from "../../support/drawn-dataset.ts";
import { type NodeService, startNodeService } from "../../support/node-service.ts";
import { taskContext } from "../../support/task-context.ts";
import {
  generatedModel,
  randomWeights,
  sha256,
  steadyTensors,
  tensorFile,
} from "../../support/weights.ts";
import { zipFiles } from "../../support/zip-files.ts";

type Payload = TaskPayload<"device_export">;
type Result = TaskResult<"device_export">;

let service: NodeService;
let dir: string;
let context: RunnerContext;
let manifest: ExportManifest;
let dataset: NonNullable<Payload["dataset"]>;

beforeAll(async () => {
  service = await startNodeService();
  const drawn = await drawnDataset(service, {}, { train: 20, val: 6, side: 96 });
  const { payload } = drawn;
  manifest = drawn.manifest;
  dataset = { manifest: payload.manifest, videos: payload.videos };
});
afterAll(() => service.close());
beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), "vantage-device-export-"));
  context = await taskContext(service, dir);
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

/** Of one class: each of its anchors is a row then, so that none falls to another side of a cut. */
const modelOf = (more: Parameters<typeof generatedModel>[1] = {}) => {
  const { classes = ["disc"], task = "detection" } = more;
  const file = tensorFile(steadyTensors(classes.length, task));
  const store = (key: string, bytes: Buffer) => service.source(key, bytes);
  return generatedModel(store, { classes, file, ...more });
};

function payloadOf(model: ModelSource, more: Partial<Payload> = {}): Payload {
  const { format = "onnx" } = more;
  const { precisions, outputs, artifacts, extension } = EXPORT_FORMATS_TABLE[format];
  return {
    export_id: "e",
    round: 1,
    model,
    format,
    artifact: artifacts[0],
    precision: precisions[0],
    output: outputs[0],
    size: [model.image_size, model.image_size],
    batch: 1,
    metadata: { name: "cells", version: "3" },
    images: [],
    dataset,
    calibration_images: 16,
    calibration: null,
    file: service.target(`${crypto.randomUUID()}.${extension}`),
    ...more,
  };
}

async function exported(payload: Payload, by = context): Promise<{ file: Buffer; result: Result }> {
  const outcome = await runTask("device_export", JSON.parse(JSON.stringify(payload)), by);
  if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
  const file = service.objects.get(payload.file.key) ?? expect.fail("nothing was uploaded");
  return { file, result: outcome.result as Result };
}

async function failure(payload: Payload, by = context) {
  const outcome = await runTask("device_export", JSON.parse(JSON.stringify(payload)), by);
  expect(service.objects.has(payload.file.key)).toBe(false);
  expect(readdirSync(join(dir, "cache/parts"))).toEqual([]);
  return outcome;
}

describe("a file for devices", () => {
  it.each<[string, Partial<Payload>]>([
    ["onnx, int8, raw, for any batch", { precision: "int8", output: "raw", batch: null }],
    ["onnx, fp16, for a batch of three", { precision: "fp16", batch: 3 }],
    ["coreml, fp16", { format: "coreml" }],
    ["tflite, fp32, wider than high", { format: "tflite", size: [64, 160] }],
    ["tflite, fp16, raw", { format: "tflite", precision: "fp16", output: "raw" }],
    ["tflite, int8", { format: "tflite", precision: "int8" }],
    ["tensorrt, int8, raw", { format: "tensorrt", precision: "int8", output: "raw" }],
    ["roboflow", { format: "roboflow" }],
  ])("is verified before it leaves: %s", async (_, more) => {
    const payload = payloadOf(modelOf(), more);
    const { file, result } = await exported(payload);
    expect(result).toMatchObject({ bytes: file.length, sha256: sha256(file) });
    const foretold = expectedBytes(payload.model, payload) / file.length;
    expect([foretold > 0.8, foretold < 2]).toEqual([true, true]);
    const verification = result.verification ?? expect.fail(result.not_verified.join());
    expect(verification.rows).toBeGreaterThan(0);
    expect(verification.box_difference_max).toBeLessThanOrEqual(verification.box_tolerance);
    const isLower = payload.precision !== "fp32";
    // The frames that are compared first are of the six that precision is judged on.
    const frames = isLower ? 6 : 4;
    expect(verification).toMatchObject({ images: frames, dataset_images: frames });
    if (isLower) expect(verification.accuracy).toMatchObject({ images: 6 });
    else expect(result.recommended_confidence).toBe(0.25);
    const images = payload.precision === "int8" ? { images: 16 } : undefined;
    expect(result.calibration ?? undefined).toEqual(images && expect.objectContaining(images));
  });

  it("is compared once on a frame that its precision is judged on, too", async () => {
    const { payload } = await drawnDataset(service, {}, { train: 1, val: 4, side: 96, seed: 2 });
    const [, ...images] = payload.videos;
    const judged = { manifest: payload.manifest, videos: payload.videos };
    const figuresOf = async (more: Partial<Payload>) => {
      const { result } = await exported(payloadOf(modelOf(), { precision: "fp16", ...more }));
      const { verification } = result;
      const { images: count, rows, objects, confidence_ratio } = verification ?? expect.fail();
      return { images: count, rows, objects, confidence_ratio };
    };
    const compared = await figuresOf({ dataset: null, images });
    expect(compared).toMatchObject({ images: 4, rows: expect.any(Number) });
    expect(await figuresOf({ dataset: judged })).toEqual({
      ...compared,
      // A sum in another order.
      confidence_ratio: expect.closeTo(compared.confidence_ratio ?? 0, 6),
    });
  });

  it("in int8 is made again by the ranges that it was made by, byte for byte", async () => {
    const model = modelOf();
    const first = await exported(payloadOf(model, { precision: "int8" }));
    const { calibration } = first.result;
    const machine = { ...context.machine, cpuThreads: 2 };
    const threads = await exported(payloadOf(model, { precision: "int8" }), {
      ...context,
      machine,
    });
    expect(threads.result.sha256).toBe(first.result.sha256);
    // Also where the images are gone: the ranges are enough.
    const again = await exported(
      payloadOf(model, { precision: "int8", calibration, dataset: null }),
    );
    expect(again.file.equals(first.file)).toBe(true);
    expect(again.result.verification?.accuracy).toBeNull();
    expect(again.result.not_verified.join()).toMatch(/average precision/);
  });

  it("in int8 is not made by the ranges of fewer images than the dataset has", async () => {
    const model = modelOf();
    const first = await exported(payloadOf(model, { precision: "int8" }));
    const { calibration } = first.result;
    const few = { images: 3, ranges: { images: [0, 1] as [number, number] } };
    const again = await exported(payloadOf(model, { precision: "int8", calibration: few }));
    expect(again.result.calibration).toEqual(calibration);
  });

  it("of a segmentation model is made in int8, too", async () => {
    const model = modelOf({ task: "segmentation", image_size: 64 });
    const { result } = await exported(payloadOf(model, { precision: "int8" }));
    expect(result.verification?.rows).toBeGreaterThan(0);
  });
});

describe("a bundle for TensorRT", () => {
  const format = "tensorrt";

  it("is the same bytes without its dataset: the example is drawn", async () => {
    const model = modelOf();
    const { file } = await exported(payloadOf(model, { format }));
    const without = await exported(payloadOf(model, { format, dataset: null }));
    expect(without.file.equals(file)).toBe(true);
    const example = (await zipFiles(file)).get("example/image.f32");
    const side = model.image_size;
    const { pixels } = await letterbox(sampleImage(0), { width: side, height: side });
    expect(example?.equals(Buffer.from(pixels.buffer))).toBe(true);
  });

  it("says of itself what the file in it says", async () => {
    const more: Partial<Payload> = { format, output: "raw", size: [64, 160], batch: 2 };
    const { file } = await exported(payloadOf(modelOf(), more));
    const files = await zipFiles(file);
    const { metadataProps } = decodeModel(files.get("model.onnx") ?? Buffer.alloc(0));
    const inside = Object.fromEntries(metadataProps.map(({ key, value }) => [key, value]));
    const beside = JSON.parse(String(files.get("metadata.json")));
    expect(beside).toEqual(inside);
    expect(beside).toMatchObject({
      imgsz: "[64,160]",
      batch: "2",
      end2end: "False",
      precision: "fp16",
      name: "cells",
    });
  });
});

it("an engine says which GPU and TensorRT it is for", async () => {
  const programs = join(dir, "programs");
  const scripts = {
    "nvidia-smi": 'echo "NVIDIA T4"',
    // Stands in for NVIDIA's, which is not here.
    trtexec: [
      'echo "[TensorRT v100800]"',
      'for argument in "$@"; do case $argument in',
      '--saveEngine=*) echo "an engine" > "$(echo "$argument" | cut -d= -f2-)";; esac; done',
    ].join("\n"),
  };
  mkdirSync(programs);
  for (const [name, script] of Object.entries(scripts)) {
    writeFileSync(join(programs, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  }
  vi.stubEnv("PATH", `${programs}:${process.env.PATH}`);
  try {
    const payload = payloadOf(modelOf(), { format: "tensorrt", artifact: "engine" });
    const { file, result } = await exported(payload);
    expect(String(file)).toBe("an engine\n");
    expect(result.verification?.engine).toEqual({ gpu: "NVIDIA T4", tensorrt: "10.8.0" });
  } finally {
    vi.unstubAllEnvs();
  }
});

describe("a file for devices fails by name", () => {
  it("without an image to calibrate on", async () => {
    const none = payloadOf(modelOf(), { precision: "int8", dataset: null });
    expect(await failure(none)).toMatchObject({ code: "no_calibration_images" });
    // Listed, but gone.
    const videos = dataset.videos.map((one) => ({ ...one, url: `${service.url}/objects/nothing` }));
    const gone = payloadOf(modelOf(), { precision: "int8", dataset: { ...dataset, videos } });
    gone.dataset = {
      ...dataset,
      videos: videos.map((one) => ({ ...one, key: `${one.key}.gone` })),
    };
    expect(await failure(gone)).toMatchObject({ code: "no_calibration_images", retryable: false });
  });

  it("for now, where the store does not answer for a part of the images", async () => {
    const readWith = (url: string) => {
      const videos = dataset.videos.map((one, at) => (at === 0 ? { ...one, url } : one));
      return Array.fromAsync(new LabeledImages(manifest, videos).read("train", 20, context));
    };
    const away = readWith("http://127.0.0.1:9/objects/away");
    await expect(away).rejects.toMatchObject({ code: "store_unavailable", retryable: true });
    // One that was deleted is left out.
    expect(await readWith(`${service.url}/objects/nothing`)).toHaveLength(19);
  });

  it("by ranges that are another model's", async () => {
    const calibration = { images: 16, ranges: { images: [0, 1] as [number, number] } };
    const payload = payloadOf(modelOf(), { precision: "int8", calibration });
    expect(await failure(payload)).toMatchObject({
      code: "invalid_request",
      detail: expect.stringMatching(/the ranges lack that of layers\.0/),
    });
  });

  it("with the figure, where int8 finds other objects", async () => {
    const first = await exported(payloadOf(modelOf(), { precision: "int8" }));
    const ranges = Object.entries(first.result.calibration?.ranges ?? {}).map(
      ([name, [low, high]]): [string, [number, number]] => [name, [low / 40, high / 40]],
    );
    const calibration = { images: 16, ranges: Object.fromEntries(ranges) };
    const model = modelOf();
    expect(await failure(payloadOf(model, { precision: "int8", calibration }))).toMatchObject({
      code: "export_differs",
      detail: expect.stringMatching(/(boxes|scores on average|map50) by .* allowed|1 ± 0\.05/),
    });
  });

  it("for weights that are torn, flipped or of no class", async () => {
    const whole = modelOf();
    const bytes = service.objects.get(whole.weights.key) ?? Buffer.alloc(0);
    const torn = modelOf({ file: bytes.subarray(0, bytes.length / 2) });
    expect(await failure(payloadOf(torn, { precision: "fp16" }))).toMatchObject({
      code: "bad_weights",
    });
    const flipped = Buffer.from(bytes);
    // The topmost bit of an exponent, in the midst of the first tensor's numbers.
    flipped.writeUInt8(0x7f, flipped.length - 4_000_000 + 3);
    const wrong = modelOf({ file: flipped, sha256: sha256(bytes) });
    expect(await failure(payloadOf(wrong, { precision: "int8" }))).toMatchObject({
      code: "bad_weights",
      detail: expect.stringMatching(/sha256 differs/),
    });
    const tensors = randomWeights(detectorGraph("det26n", 1));
    for (const [name, { values }] of tensors) if (/norm\.weight$/.test(name)) values.fill(1e12);
    const wild = modelOf({ file: tensorFile(tensors) });
    for (const precision of ["fp16", "int8"] as const) {
      expect(await failure(payloadOf(wild, { precision }))).toMatchObject({
        code: "bad_weights",
        detail: expect.stringMatching(/no number/),
        retryable: false,
      });
    }
    const none = payloadOf(modelOf(), { format: "tflite" });
    none.model = { ...none.model, classes: [] };
    expect(await failure(none)).toMatchObject({ code: "bad_weights" });
  });

  it("as canceled while it is calibrated", async () => {
    const cancel = new AbortController();
    const by = {
      ...context,
      cancel: cancel.signal,
      progress: ({ done }: { done: number }) => {
        if (done === 5) cancel.abort(new Error("canceled"));
      },
    };
    const payload = payloadOf(modelOf(), { precision: "int8" });
    expect(await failure(payload, by)).toEqual({ outcome: "cancelled", result: null });
  });

  it("for an engine, on a node without TensorRT", async () => {
    const payload = payloadOf(modelOf(), { format: "tensorrt", artifact: "engine" });
    expect(await failure(payload)).toMatchObject({ code: "engine_not_built", retryable: true });
  });
});

it("a calibration on one image is made, and judged by the figures of the whole set", async () => {
  const payload = payloadOf(modelOf(), { precision: "int8", calibration_images: 1 });
  const { result } = await exported(payload);
  expect(result.calibration).toMatchObject({ images: 1 });
  expect(result.verification?.accuracy).toMatchObject({ images: 6 });
  const { accuracy } = result.verification ?? {};
  const drop = (accuracy?.model_map50_95 ?? 0) - (accuracy?.map50_95 ?? 1);
  expect(drop).toBeLessThanOrEqual(0.01);
});

it("a thousand classes of every kind of character keep their names in each format", async () => {
  const odd = [
    'quote"',
    "apos'",
    "back\\slash",
    "new\nline",
    "\u2028",
    "é漢字",
    "😀",
    "\u202eשלום",
    "",
  ];
  const classes = [...odd, ...Array.from({ length: 1_000 - odd.length }, (_, at) => `class ${at}`)];
  const model = modelOf({ classes, image_size: 64 });
  for (const format of ["tflite", "coreml"] as const) {
    const { file, result } = await exported(payloadOf(model, { format, dataset: null }));
    expect(result.verification?.rows).toBeGreaterThan(0);
    const { names, labels } = await namesIn(file);
    expect(names).toEqual(Object.fromEntries(classes.entries()));
    // A line each, also of the name that has a break in it.
    if (format === "tflite") expect(labels?.slice(3, 7)).toEqual(["new line", " ", "é漢字", "😀"]);
    if (format === "tflite") expect(labels).toHaveLength(1_000);
  }
});

it.each([
  ["onnx", /reads files of the output end_to_end/],
  ["tflite", /reads files of the output joined/],
  ["coreml", /reads no such file/],
] as const)("a raw file of %s says what Ultralytics makes of it", async (format, said) => {
  const { file } = await exported(payloadOf(modelOf(), { format, output: "raw", dataset: null }));
  expect((await namesIn(file)).description).toMatch(said);
});

/** What a file says of its classes and itself: ONNX and Core ML as properties, TFLite in a zip. */
async function namesIn(file: Buffer) {
  const files = await zipFiles(file).catch(() => null);
  const written = files?.get("metadata.json");
  if (written) {
    const labels = String(files?.get("labels.txt")).split("\n").slice(0, -1);
    return { ...JSON.parse(String(written)), labels };
  }
  const model = [...(files ?? [])].find(([name]) => name.endsWith("model.mlmodel"))?.[1];
  const said = model
    ? (fromBinary(Model, model).description?.metadata?.userDefined ?? [])
    : decodeModel(file).metadataProps;
  const { names = "{}", ...more } = Object.fromEntries(said.map(({ key, value }) => [key, value]));
  return { ...more, names: JSON.parse(names) };
}
