// Two models held against each other by the node's own code, with generated weights. Goal: what
// each is said to have found is what it predicts alone, both on the same pixels; the same run
// twice gives the same; and what cannot be compared is told by name, with nothing written.

import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { deployedModel } from "../../gpu-node/export/deployed-model.ts";
import { writeOnnx } from "../../gpu-node/export/detector-onnx.ts";
import { readTensors } from "../../gpu-node/export/weights-file.ts";
import { drawComparison } from "../../gpu-node/media/comparison-overlay.ts";
import { readStill } from "../../gpu-node/media/stills.ts";
import { Predictors } from "../../gpu-node/serving/predictors.ts";
import type { RunnerContext } from "../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../gpu-node/tasks/runners.ts";
import { ComparedFrame, type ComparedObject } from "../../shared/tasks/comparison-task.ts";
import type { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import type {
  ModelSource,
  ObjectSource,
  Prediction,
  TaskPayload,
  TaskResult,
} from "../../shared/tasks/tasks.ts";
import { toolsOrSay, variableRate } from "../support/clips.ts";
import { type NodeService, startNodeService } from "../support/node-service.ts";
import { taskContext } from "../support/task-context.ts";
import { generatedModel } from "../support/weights.ts";

type Payload = TaskPayload<"comparison">;
type Result = TaskResult<"comparison">;

const tools = toolsOrSay();
let service: NodeService;
let dir: string;
let context: RunnerContext;
let a: ModelSource;
let b: ModelSource;
let image: ObjectSource;

beforeAll(async () => {
  service = await startNodeService();
  const store = (key: string, bytes: Buffer) => service.source(key, bytes);
  a = generatedModel(store, { seed: 1, image_size: 64 });
  b = generatedModel(store, { seed: 2, image_size: 96 });
  image = stored(await noise(200, 120));
  dir = mkdtempSync(join(tmpdir(), "vantage-compare-"));
  // The models stay open from test to test.
  context = await taskContext(service, dir);
});
afterAll(async () => {
  await context.predictors.clear();
  await service.close();
  rmSync(dir, { recursive: true, force: true });
});

const stored = (bytes: Buffer): ObjectSource => service.source(crypto.randomUUID(), bytes);
const noise = (width: number, height: number) =>
  sharp({
    create: {
      width,
      height,
      channels: 3,
      background: "#000",
      noise: { type: "gaussian", mean: 128, sigma: 60 },
    },
  })
    .png()
    .toBuffer();

type TaskModel = Payload["models"][number];
const side = (model: ModelSource, more: Partial<TaskModel> = {}): TaskModel => ({
  model,
  confidence: 0.3,
  size: [model.image_size, model.image_size],
  file: null,
  file_sha256: null,
  ...more,
});

const payloadOf = (more: Partial<Payload> = {}): Payload => ({
  session_id: "s",
  iou: 0.5,
  classes: { a: {}, b: {}, truth: {} },
  video_id: null,
  filename: "a.png",
  fps: null,
  frames_max: 100,
  split: "all",
  models: [side(a), side(b)],
  video: image,
  dataset: null,
  report: service.target(`${crypto.randomUUID()}.ndjson`),
  overlays: [0, 1].map(() => service.target(`${crypto.randomUUID()}.jpg`)),
  ...more,
});

/** Compares; the frames as they were written, and what the node reports. */
async function compared(payload: Payload, by = context) {
  const outcome = await runTask("comparison", payload, by);
  if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
  const report = service.objects.get(payload.report.key) as Buffer;
  const lines = report.toString().trimEnd().split("\n");
  const frames = lines.map((line) => ComparedFrame.parse(JSON.parse(line)));
  return { result: outcome.result as Result, report, frames };
}

/** What a model predicts alone, frame by frame. */
async function predicted(model: ModelSource, video: ObjectSource, more: object = {}) {
  const payload = { model, video, fps: null, frames_max: 100, confidence: 0.3, ...more };
  const outcome = await runTask("predict", payload, context);
  if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
  return (outcome.result as TaskResult<"predict">).frames;
}

const surestFirst = (found: Prediction[]) =>
  found.sort(
    (one, other) =>
      other.confidence - one.confidence || (String(one.bbox) < String(other.bbox) ? -1 : 1),
  );
const of = (which: "a" | "b", objects: readonly ComparedObject[]) =>
  surestFirst(objects.flatMap((object) => object[which] ?? []));

describe("an image", () => {
  it("gives what each model predicts on it alone, with an overlay", async () => {
    const payload = payloadOf();
    const { result, report, frames } = await compared(payload);
    const [frame] = frames;
    for (const [which, model] of [["a", a] as const, ["b", b] as const]) {
      const [alone] = await predicted(model, image);
      expect(alone?.predictions.length).toBeGreaterThan(3);
      expect(of(which, frame?.objects ?? [])).toEqual(surestFirst(alone?.predictions ?? []));
    }
    expect(frame).toMatchObject({ filename: "a.png", frame_index: 0, time: 0, truth: null });
    expect([frame?.width, frame?.height]).toEqual([200, 120]);
    expect(result).toMatchObject({ frames_compared: 1, left_out: 0, figures: null });
    expect(result.report).toEqual({
      bytes: report.length,
      sha256: createHash("sha256").update(report).digest("hex"),
      blocks: [0],
    });
    const { both = 0, other_class = 0, only_a = 0, only_b = 0 } = frame ?? {};
    expect(result.agreement).toMatchObject({ both, other_class, only_a, only_b });
    expect(both + other_class + only_a + only_b).toBe(frame?.objects.length);
    expect(result.latency.a.p50_ms).toBeGreaterThan(0);
    expect(result.overlays).toHaveLength(1);
    const overlay = service.objects.get(payload.overlays[0]?.key ?? "") as Buffer;
    expect(await sharp(overlay).metadata()).toMatchObject({
      format: "jpeg",
      width: 200,
      height: 120,
    });
    expect(service.objects.has(payload.overlays[1]?.key ?? "")).toBe(false);
  });

  it("gives the same twice, but for times", async () => {
    const [one, other] = [payloadOf(), payloadOf()];
    const [first, again] = [await compared(one), await compared(other)];
    expect(again.report).toEqual(first.report);
    const overlayOf = ({ overlays }: Payload) => service.objects.get(overlays[0]?.key ?? "");
    expect(overlayOf(other)).toEqual(overlayOf(one));
    const fixed = ({ result }: typeof first) => ({ ...result, latency: null, seconds: 0 });
    expect(fixed(again)).toEqual(fixed(first));
  });

  it("is the same to a model and itself", async () => {
    const models: Payload["models"] = [side(a), side({ ...a, model_id: crypto.randomUUID() })];
    const { result, frames } = await compared(payloadOf({ models }));
    expect(frames[0]).toMatchObject({ difference: 0, only_a: 0, only_b: 0, other_class: 0 });
    expect(result.agreement.iou).toBe(1);
    expect(result.agreement.both).toBeGreaterThan(3);
  });

  it("is compared where the node's memory holds one model only", async () => {
    const { cache, log } = context;
    const settings = { cpuThreads: 1, device: "cpu", bytesMax: 0 } as const;
    const predictors = new Predictors(cache, settings, log);
    const { result } = await compared(payloadOf(), { ...context, predictors });
    expect(result.frames_compared).toBe(1);
    await predictors.clear();
  });

  it("is compared under the names of the map, and without what it leaves out", async () => {
    const classes = {
      a: { disc: "thing", square: "thing", star: null },
      b: { disc: "thing", square: "thing", star: "thing" },
      truth: {},
    };
    const { frames } = await compared(payloadOf({ classes }));
    const [alone] = await predicted(a, image);
    const kept = alone?.predictions.filter((one) => one.class !== "star") ?? [];
    expect(of("a", frames[0]?.objects ?? [])).toHaveLength(kept.length);
    expect(frames[0]?.other_class).toBe(0);
    const names = new Set(frames[0]?.objects.flatMap((one) => [one.a?.class, one.b?.class]));
    names.delete(undefined);
    expect(names).toEqual(new Set(["thing"]));
  });

  it("goes through an export in place of the weights, and gives the same objects", async () => {
    const weights = service.objects.get(a.weights.key) as Buffer;
    const onnx = writeOnnx(deployedModel(a, readTensors(weights)), {
      output: "detections",
      size: [64, 64],
      batch: 1,
      metadata: {},
    });
    const file = stored(Buffer.from(onnx));
    const file_sha256 = createHash("sha256").update(onnx).digest("hex");
    const models: Payload["models"] = [side(a), side(a, { file, file_sha256 })];
    const { result } = await compared(payloadOf({ models }));
    expect(result.agreement).toMatchObject({ only_a: 0, only_b: 0, other_class: 0, iou: 1 });
    const torn: Payload["models"] = [side(a), side(a, { file, file_sha256: "0".repeat(64) })];
    expect(await runTask("comparison", payloadOf({ models: torn }), context)).toMatchObject({
      outcome: "failed",
      code: "bad_weights",
    });
    const bytes = Buffer.from("no model");
    const none = side(a, {
      file: stored(bytes),
      file_sha256: createHash("sha256").update(bytes).digest("hex"),
    });
    expect(
      await runTask("comparison", payloadOf({ models: [side(a), none] }), context),
    ).toMatchObject({
      outcome: "failed",
      code: "bad_weights",
      retryable: false,
      detail: expect.stringContaining("cannot be run here"),
    });
  });
});

describe.skipIf(!tools)("a video", () => {
  it("is looked at where its times say, spread over it, on the pixels of predictions", async () => {
    const video = stored(readFileSync(variableRate()));
    const models: Payload["models"] = [side({ ...a, image_size: 96 }, { size: [96, 96] }), side(b)];
    const asked = { video, filename: "clip.mp4", fps: 5, frames_max: 7, models };
    const { result, frames } = await compared(payloadOf(asked));
    const all = await predicted({ ...a, image_size: 96 }, video, { fps: 5 });
    expect(all.length).toBeGreaterThan(14);
    expect([result.frames_compared, result.left_out]).toEqual([7, all.length - 7]);
    const wanted = Array.from({ length: 7 }, (_, at) => all[Math.floor((at * all.length) / 7)]);
    const byIndex = frames.toSorted((one, other) => one.frame_index - other.frame_index);
    expect(byIndex.map((frame) => [frame.frame_index, frame.time])).toEqual(
      wanted.map((frame) => [frame?.frame_index, frame?.time]),
    );
    for (const [at, frame] of byIndex.entries()) {
      expect(of("a", frame.objects)).toEqual(surestFirst(wanted[at]?.predictions ?? []));
    }
    const differences = frames.map(({ difference }) => difference);
    expect(differences).toEqual(differences.toSorted((one, other) => other - one));
    expect(result.overlays).toHaveLength(2);
  });

  it("is given up where nobody wants it any more", async () => {
    const video = stored(readFileSync(variableRate()));
    const cancel = new AbortController();
    const by = {
      ...context,
      cancel: cancel.signal,
      progress: () => cancel.abort(),
    };
    const payload = payloadOf({ video });
    const outcome = await runTask("comparison", payload, by);
    expect(outcome).toEqual({ outcome: "cancelled", result: null });
    expect(service.objects.has(payload.report.key)).toBe(false);
  });
});

/** A dataset of stills whose truth is what a model finds there. */
async function datasetOf(model: ModelSource, classes: string[]) {
  const stills = await Promise.all([160, 120, 200].map((width) => noise(width, 120)));
  const videos = stills.map(stored);
  const found = await Promise.all(videos.map((video) => predicted(model, video)));
  const manifest: ExportManifest = {
    name: "stills",
    classes,
    left_out_frames: 0,
    videos: videos.map(({ key }, at) => ({
      video_id: crypto.randomUUID(),
      filename: `${at}.png`,
      key,
      width: 1,
      height: 1,
      frames: [
        {
          index: 0,
          split: at === 0 ? "train" : "val",
          annotations: (found[at]?.[0]?.predictions ?? []).map((one, id) => ({
            id: String(id),
            class_index: model.classes.indexOf(one.class),
            bbox: one.bbox,
            polygon: null,
          })),
        },
      ],
    })),
  };
  return { manifest: stored(Buffer.from(JSON.stringify(manifest))), videos };
}

describe("a dataset", () => {
  it("gives figures by its truth, of its side alone", async () => {
    const dataset = await datasetOf(a, a.classes);
    const { result, frames } = await compared(
      payloadOf({ video: null, dataset, split: "val", filename: "" }),
    );
    expect(frames.map(({ filename }) => filename).sort()).toEqual(["1.png", "2.png"]);
    const { figures } = result;
    // The truth is what model A found: all of it, and nothing else at its confidence.
    expect(figures?.overall.a).toMatchObject({
      precision: 1,
      recall: 1,
      ap50: 1,
      ap50_95: 1,
      false_positives: 0,
    });
    const truths = frames.reduce((sum, { truth }) => sum + (truth?.length ?? 0), 0);
    expect(figures?.overall.a.truths).toBe(truths);
    expect(figures?.overall.b.truths).toBe(truths);
    expect(figures?.overall.b.ap50_95).toBeLessThan(0.5);
  });

  it("has its classes under the names of the map", async () => {
    const dataset = await datasetOf(a, ["1", "2", "3"]);
    const truth = { "1": "disc", "2": "square", "3": "star" };
    const classes = { a: {}, b: {}, truth };
    const { result } = await compared(payloadOf({ video: null, dataset, classes }));
    expect(result.figures?.overall.a).toMatchObject({ precision: 1, recall: 1 });
    const unmapped = await compared(payloadOf({ video: null, dataset }));
    expect(unmapped.result.figures?.overall.a).toMatchObject({ precision: 0, recall: 0 });
  });

  it("is refused without a frame, and where a video is gone", async () => {
    const dataset = await datasetOf(a, a.classes);
    const empty = stored(
      Buffer.from(JSON.stringify({ name: "", classes: [], left_out_frames: 0, videos: [] })),
    );
    const cases: [NonNullable<Payload["dataset"]>, RegExp][] = [
      [{ ...dataset, manifest: empty }, /no frame/],
      [{ ...dataset, videos: [] }, /0\.png was deleted/],
      [{ ...dataset, manifest: stored(Buffer.from("{")) }, /not readable/],
    ];
    for (const [given, detail] of cases) {
      const outcome = await runTask(
        "comparison",
        payloadOf({ video: null, dataset: given }),
        context,
      );
      expect(outcome).toMatchObject({
        outcome: "failed",
        code: "bad_dataset",
        retryable: false,
        detail: expect.stringMatching(detail),
      });
    }
  });
});

it("says by name what cannot be decoded, and writes nothing", async () => {
  const payload = payloadOf({ video: stored(Buffer.from("no image")), filename: "torn.png" });
  expect(await runTask("comparison", payload, context)).toMatchObject({
    outcome: "failed",
    code: "unsupported_media",
    detail: expect.stringContaining("torn.png: "),
  });
  expect(service.objects.has(payload.report.key)).toBe(false);
});

it("draws three parties so that they are told apart", async () => {
  const [side, twice] = [1_600, 3_200];
  const grey = { data: new Uint8Array(3 * side * side).fill(128), width: side, height: side };
  const found = (x: number): Prediction => ({
    class: "<disc>",
    confidence: 0.9,
    bbox: [x, 800, x + 480, 1_280],
  });
  const jpeg = await drawComparison(grey, {
    objects: [
      { match: "only_a", iou: null, a: found(160), b: null },
      { match: "only_b", iou: null, a: null, b: found(1_760) },
    ],
    truth: [{ class: "disc", bbox: [160, 2_400, 640, 2_880] }],
    // Twice as large as the image.
    frame: { width: twice, height: twice },
  });
  const { data, width } = await readStill(jpeg);
  /** The share of a row's pixels that are of about a colour. */
  const share = (y: number, [from, to]: [number, number], colour: readonly number[]) => {
    let near = 0;
    for (let x = from; x < to; x++) {
      const pixel = data.subarray(3 * (y * width + x), 3 * (y * width + x) + 3);
      const apart = colour.map((value, at) => Math.abs(value - (pixel[at] ?? 0)));
      near += Number(Math.max(...apart) < 60);
    }
    return near / (to - from);
  };
  // Bottom, top and bottom edges: a solid one, one of dashes, one of dots.
  expect(share(640, [90, 310], [0xe6, 0x9f, 0x00])).toBeGreaterThan(0.95);
  const dashes = share(400, [890, 1_110], [0x56, 0xb4, 0xe9]);
  expect([dashes > 0.4, dashes < 0.75]).toEqual([true, true]);
  const dots = share(1_440, [90, 310], [0x00, 0x9e, 0x73]);
  expect([dots > 0.2, dots < 0.5]).toEqual([true, true]);
});
