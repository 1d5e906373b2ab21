// A model as a file, made by the node's own code. Goal: opened by the runtime that other programs
// use, it gives the objects that the model's predictor gives, whatever its form, size and batch; a
// file that does not is never uploaded; and what is wrong is told by name.

import { readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { expectedBytes } from "../../../edge/vision/training/exports/options.ts";
import { sampleImages } from "../../../gpu-node/export/sample-images.ts";
import { compareRows, rowsOfHeads } from "../../../gpu-node/export/verification.ts";
import type { RgbImage } from "../../../gpu-node/media/image.ts";
import type { Cache } from "../../../gpu-node/objects/cache.ts";
import { decodeModel } from "../../../gpu-node/onnx/model-file.ts";
import { float, floats, openSession, run } from "../../../gpu-node/onnx/runtime.ts";
import { letterbox } from "../../../gpu-node/serving/letterbox.ts";
import { openPredictor } from "../../../gpu-node/serving/predictor.ts";
import type { RunnerContext } from "../../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../../gpu-node/tasks/runners.ts";
import { detectorGraph } from "../../../shared/detector/detector.ts";
import { unletterbox } from "../../../shared/detector/letterbox.ts";
import type {
  ModelSource,
  ObjectSource,
  Prediction,
  TaskPayload,
  TaskResult,
} from "../../../shared/tasks/tasks.ts";
import { exportPayload } from "../../support/export-payload.ts";
import type { NodeService } from "../../support/node-service.ts";
import { beforeEachTask } from "../../support/node-tasks.ts";
import { generatedModel, randomWeights, sha256, tensorFile } from "../../support/weights.ts";

type Payload = TaskPayload<"model_export">;
type Result = TaskResult<"model_export">;

let service: NodeService;
let dir: string;
let context: RunnerContext;

beforeEachTask("model-export", (own) => {
  ({ service, dir, context } = own);
});

const modelOf = (more: Parameters<typeof generatedModel>[1] = {}) =>
  generatedModel((key, bytes) => service.source(key, bytes), more);

const payloadOf = (model: ModelSource, more: Partial<Payload> = {}): Payload =>
  exportPayload(service, model, more);

/** Exports a model; its file's bytes and what the node reports. */
async function exported(payload: Payload, by = context): Promise<{ file: Buffer; result: Result }> {
  const outcome = await runTask("model_export", payload, by);
  if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
  const file = service.objects.get(payload.file.key) as Buffer;
  return { file, result: outcome.result as Result };
}

const weightsOf = ({ weights }: ModelSource) => service.objects.get(weights.key) as Buffer;

/** What a program of somebody else makes of a file's answer: objects in pixels of the images. */
async function objectsBy(file: Buffer, payload: Payload, images: readonly RgbImage[]) {
  const [height, width] = payload.size;
  const { classes, task } = payload.model;
  const laid = await Promise.all(images.map((image) => letterbox(image, { width, height })));
  const pixels = new Float32Array(images.length * 3 * height * width);
  for (const [at, one] of laid.entries()) pixels.set(one.pixels, at * 3 * height * width);
  const session = await openSession(file, { cpuThreads: 1, device: "cpu" });
  try {
    const outputs = await run(session, {
      images: float(pixels, [images.length, 3, height, width]),
    });
    return laid.map(({ placement }, at): Prediction[] => {
      const own = (name: string) => {
        const each = floats(outputs, name).length / images.length;
        return floats(outputs, name).slice(at * each, (at + 1) * each);
      };
      const masked = task === "segmentation";
      const rows =
        payload.output === "raw"
          ? rowsOfHeads(
              {
                boxes: own("boxes"),
                scores: own("scores"),
                ...(masked && { masks: own("masks") }),
              },
              classes.length,
            )
          : { values: own("output0"), width: masked ? 38 : 6 };
      const objects: Prediction[] = [];
      for (let row = 0; row < rows.values.length; row += rows.width) {
        const [x1 = 0, y1 = 0, x2 = 0, y2 = 0, score = 0, index = 0] = rows.values.subarray(row);
        const bbox = unletterbox([x1, y1, x2, y2], placement);
        if (score < CONFIDENCE || !bbox) continue;
        objects.push({ class: classes[index] ?? "", confidence: score, bbox });
      }
      return objects;
    });
  } finally {
    await session.release();
  }
}

const CONFIDENCE = 0.25;

/** What the model's predictor, of this size, gives for the images. */
async function predictedBy({ model, size }: Payload, images: readonly RgbImage[]) {
  const settings = { cpuThreads: 1, device: "cpu" } as const;
  const predictor = await openPredictor(model, weightsOf(model), settings, size);
  try {
    const found: Prediction[][] = [];
    for (const image of images) found.push(await predictor.predict(image, { confidence: 0.25 }));
    return found;
  } finally {
    await predictor.dispose();
  }
}

/** Each object of one list has one of its own in the other: rounding aside, it is the same. */
function expectSame(found: readonly Prediction[], wanted: readonly Prediction[]) {
  // One at the cut may fall to either side of it.
  const clear = (one: Prediction) => one.confidence >= CONFIDENCE + 1e-3;
  const left = [...found];
  for (const one of wanted.filter(clear)) {
    const at = left.findIndex(
      (other) =>
        other.class === one.class &&
        Math.abs(other.confidence - one.confidence) < 2e-4 &&
        other.bbox.every((side, index) => Math.abs(side - (one.bbox[index] ?? 0)) < 0.05),
    );
    expect([one, at >= 0]).toEqual([one, true]);
    left.splice(at, 1);
  }
  expect(left.filter(clear)).toEqual([]);
}

describe("an exported file", () => {
  it.each<[string, Partial<Payload>, number[]]>([
    ["end to end", {}, [1]],
    ["raw", { output: "raw" }, [1]],
    ["for any batch", { batch: null }, [1, 2, 3, 4]],
    ["raw, for any batch", { batch: null, output: "raw" }, [1, 2, 3, 4]],
    ["for a batch of three", { batch: 3 }, [3]],
    ["higher than wide", { size: [160, 96] }, [1]],
    ["wider than high, raw", { size: [64, 224], output: "raw" }, [1]],
    ["of the smallest square", { size: [32, 32] }, [1]],
    ["of any multiple of 32, for any batch", { size: [288, 32], batch: null }, [2]],
  ])("gives the objects of the predictor: %s", async (_, more, batches) => {
    const payload = payloadOf(modelOf(), more);
    const { file, result } = await exported(payload);
    expect(result).toMatchObject({ bytes: file.length, sha256: sha256(file), opset: 17 });
    // What the service holds room for while the file is made.
    const foretold = expectedBytes(payload.model, payload) / file.length;
    expect([foretold >= 1, foretold < 1.1]).toEqual([true, true]);
    const verification = result.verification ?? expect.fail("it was not verified");
    expect(verification).toMatchObject({ images: 4, dataset_images: 0, device: "cpu" });
    expect(verification.runtime).toMatch(/^onnxruntime-node \d+\.\d+/);
    expect(verification.batches).toEqual(payload.batch === null ? [1, 4] : [payload.batch]);
    expect(verification.rows).toBeGreaterThan(0);
    expect(verification.objects).toBeGreaterThan(0);
    expect(verification.box_difference_max).toBeLessThanOrEqual(verification.box_tolerance);
    const images = sampleImages(4);
    const wanted = await predictedBy(payload, images);
    expect(wanted.flat().length).toBeGreaterThan(4);
    for (const count of batches) {
      const found = await objectsBy(file, payload, images.slice(0, count));
      for (const [at, objects] of found.entries()) expectSame(objects, wanted[at] ?? []);
    }
  });

  it("of a segmentation model gives its coefficients too", async () => {
    const model = modelOf({ task: "segmentation", image_size: 64 });
    for (const output of ["end_to_end", "raw"] as const) {
      const payload = payloadOf(model, { output });
      const { file } = await exported(payload);
      const images = sampleImages(1);
      const [wanted] = await predictedBy(payload, images);
      const [found] = await objectsBy(file, payload, images);
      expectSame(found ?? [], wanted ?? []);
      const names = decodeModel(file).graph?.output.map(({ name }) => name);
      const heads = output === "raw" ? ["boxes", "scores", "masks"] : ["output0"];
      expect(names).toEqual([...heads, "output1"]);
    }
  });

  const metadataOf = (file: Buffer) =>
    Object.fromEntries(decodeModel(file).metadataProps.map(({ key, value }) => [key, value]));

  it("says of itself what the field's readers look for", async () => {
    const model = modelOf();
    const { file } = await exported(payloadOf(model, { size: [64, 160], batch: 2 }));
    expect(metadataOf(file)).toEqual({
      names: '{"0":"disc","1":"square","2":"star"}',
      stride: "32",
      imgsz: "[64,160]",
      channels: "3",
      task: "detect",
      variant: "det26n",
      model: model.model_id,
      name: "cells",
      version: "3",
      batch: "2",
      end2end: "True",
    });
    const raw = await exported(payloadOf(model, { output: "raw", batch: null }));
    const said = metadataOf(raw.file);
    expect(said).toMatchObject({ batch: "1", end2end: "False", imgsz: "[96,96]" });
    expect(said.description).toMatch(/Ultralytics/);
  });

  it("keeps a thousand classes, and names of every kind of character", async () => {
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
    const names = [...odd, ...Array.from({ length: 1_000 - odd.length }, (_, at) => `class ${at}`)];
    const payload = payloadOf(modelOf({ classes: names, image_size: 64 }));
    const { file, result } = await exported(payload);
    expect(Object.values(JSON.parse(metadataOf(file).names ?? ""))).toEqual(names);
    expect(result.verification?.rows).toBeGreaterThan(0);
    const images = sampleImages(2);
    const wanted = await predictedBy(payload, images);
    for (const [at, image] of images.entries()) {
      const [found] = await objectsBy(file, payload, [image]);
      expectSame(found ?? [], wanted[at] ?? []);
    }
  });

  it("has the same bytes however many threads make it", async () => {
    const model = modelOf();
    const one = await exported(payloadOf(model));
    const machine = { ...context.machine, cpuThreads: 2 };
    const two = await exported(payloadOf(model), { ...context, machine });
    expect(two.result.sha256).toBe(one.result.sha256);
    expect(two.file.equals(one.file)).toBe(true);
  });

  it("is verified on frames of its dataset where they are there", async () => {
    const noise = { type: "gaussian", mean: 128, sigma: 60 } as const;
    const create = { width: 200, height: 80, channels: 3, background: "#000", noise } as const;
    const frame = await sharp({ create }).jpeg().toBuffer();
    const images = [
      service.source("frames/0.jpg", frame),
      { ...service.source("frames/gone.jpg", frame), url: `${service.url}/objects/nothing` },
      service.source("frames/junk.jpg", Buffer.from("junk")),
    ];
    const { result } = await exported(payloadOf(modelOf(), { images }));
    expect(result.verification).toMatchObject({ images: 4, dataset_images: 1 });
  });
});

describe("an export fails by name", () => {
  const failure = async (payload: Payload, by = context) => {
    const outcome = await runTask("model_export", payload, by);
    expect(service.objects.has(payload.file.key)).toBe(false);
    expect(readdirSync(join(dir, "cache/parts"))).toEqual([]);
    return outcome;
  };
  /** The context's cache with this path for files of the task's own. */
  const cacheAt = (path: string, onOpen: (source: ObjectSource) => unknown = () => {}): Cache => ({
    open: (source, signal) => {
      onOpen(source);
      return context.cache.open(source, signal);
    },
    forget: (key) => context.cache.forget(key),
    readDerived: (...given) => context.cache.readDerived(...given),
    writeDerived: (...given) => context.cache.writeDerived(...given),
    temporary: () => path,
  });
  const good = () => tensorFile(randomWeights(detectorGraph("det26n", 3)));

  it("for a model without classes", async () => {
    const model = { ...modelOf(), classes: [] };
    expect(await failure(payloadOf(model))).toEqual({
      outcome: "failed",
      code: "bad_weights",
      detail: "the model has no classes",
      retryable: false,
    });
  });

  it.each<[string, (file: Buffer) => Buffer, RegExp]>([
    ["cut off", (file) => file.subarray(0, file.length / 2), /cannot be read/],
    ["of no bytes to speak of", () => Buffer.alloc(8), /cannot be read|lack/],
    ["of another model", () => tensorFile(randomWeights(detectorGraph("det26s", 3))), /shape/],
    [
      "with a number that is none",
      (file) => {
        file.writeFloatLE(Number.NaN, file.length - 4 * 1_000);
        return file;
      },
      /not all numbers|no number/,
    ],
    ["whose header is another", (file) => Buffer.from(file.fill(0x7b, 9, 40)), /cannot be read/],
  ])("for weights %s, for good", async (_, spoil, detail) => {
    const file = spoil(good());
    expect(await failure(payloadOf(modelOf({ file })))).toMatchObject({
      outcome: "failed",
      code: "bad_weights",
      detail: expect.stringMatching(detail),
      retryable: false,
    });
  });

  it("for weights of which a bit is not the registry's, and tries again", async () => {
    const file = good();
    const registered = sha256(file);
    file.writeUInt8(file.readUInt8(file.length - 77) ^ 1, file.length - 77);
    const model = modelOf({ file, sha256: registered });
    expect(await failure(payloadOf(model))).toMatchObject({
      code: "bad_weights",
      detail: expect.stringMatching(/sha256 differs/),
      retryable: true,
    });
    // The store's copy was in order, and is fetched again.
    service.objects.set(model.weights.key, good());
    await exported(payloadOf(model));
  });

  it("for weights under which numbers leave their bounds", async () => {
    const tensors = randomWeights(detectorGraph("det26n", 3));
    for (const [name, { values }] of tensors) if (/norm\.weight$/.test(name)) values.fill(1e12);
    expect(await failure(payloadOf(modelOf({ file: tensorFile(tensors) })))).toMatchObject({
      code: "bad_weights",
      detail: expect.stringMatching(/no number/),
      retryable: false,
    });
  });

  it("with the figure, where the file on disk gives other objects than the predictor", async () => {
    const written = join(dir, "written.onnx");
    // Between the writing and the verification: a disk that spoils what it holds.
    const spoil = () => {
      const bytes = readFileSync(written);
      const middle = 4 * Math.floor(bytes.length / 8);
      for (let at = middle; at < middle + 100_000; at += 4) bytes.writeFloatLE(0.5, at);
      writeFileSync(written, bytes);
    };
    const cache = cacheAt(written, ({ key }) => key === "spoil" && spoil());
    const images = [service.source("spoil", Buffer.from("no image"))];
    const outcome = await failure(payloadOf(modelOf(), { images }), { ...context, cache });
    expect(outcome).toMatchObject({
      outcome: "failed",
      code: "export_differs",
      detail: expect.stringMatching(/boxes by [\d.e+-]+ pixels \(0\.001 are allowed\)/),
      retryable: false,
    });
  });

  it("with the runtime's words, where the file on disk opens and does not run", async () => {
    const model = modelOf();
    // Of another size than what it is run with.
    const { file } = await exported(payloadOf(model, { size: [64, 64] }));
    const written = join(dir, "written.onnx");
    const cache = cacheAt(written, ({ key }) => key === "spoil" && writeFileSync(written, file));
    const images = [service.source("spoil", Buffer.from("no image"))];
    const outcome = await failure(payloadOf(model, { images }), { ...context, cache });
    expect(outcome).toMatchObject({
      outcome: "failed",
      code: "export_differs",
      detail: expect.stringMatching(/^the file cannot be run: .*dimensions/),
      retryable: false,
    });
  });

  it("for now, where the node's disk is full", async () => {
    const full = join(dir, "full");
    symlinkSync("/dev/full", full);
    const by = { ...context, cache: cacheAt(full) };
    expect(await failure(payloadOf(modelOf()), by)).toMatchObject({
      code: "node_disk_full",
      retryable: true,
    });
  });

  it("as canceled, wherever it is", async () => {
    for (const step of [1, 3, 7]) {
      const cancel = new AbortController();
      const by = {
        ...context,
        cancel: cancel.signal,
        progress: ({ done }: { done: number }) => {
          if (done === step) cancel.abort(new Error("canceled"));
        },
      };
      expect(await failure(payloadOf(modelOf()), by)).toEqual({
        outcome: "cancelled",
        result: null,
      });
    }
  });
});

describe("two lists of rows", () => {
  const tolerance = { box: 1e-3, score: 1e-5 };
  const rows = (...list: number[][]) => ({ values: Float32Array.from(list.flat()), width: 6 });
  const ONE = [10, 10, 30, 30, 0.9, 0];
  const TWO = [50, 10, 70, 30, 0.8, 1];
  const LAST = [5, 5, 9, 9, 0.01, 0];

  it("are alike in any order of near-ties", () => {
    const near = [50, 10, 70, 30, 0.900001, 1];
    const found = compareRows(rows(ONE, near, LAST), rows(near, ONE, LAST), tolerance);
    expect(found).toMatchObject({ rows: 3, objects: 2, unmatched: 0, box: 0 });
    expect(found.score).toBe(0);
  });

  it.each<[string, number[], object]>([
    ["a box that is off", [10.5, 10, 30, 30, 0.9, 0], { box: 0.5, unmatched: 0 }],
    ["another class", [10, 10, 30, 30, 0.9, 1], { unmatched: 1 }],
    ["another score", [10, 10, 30, 30, 0.7, 0], { unmatched: 1 }],
    ["a box that is no number", [Number.NaN, 10, 30, 30, 0.9, 0], { box: Number.NaN }],
    ["a score that is none", [10, 10, 30, 30, Number.NaN, 0], { unmatched: 1 }],
  ])("differ by %s", (_, row, wanted) => {
    const found = compareRows(rows(row, TWO, LAST), rows(ONE, TWO, LAST), tolerance);
    expect(found).toMatchObject(wanted);
  });

  it("differ where one object is there twice, or a row is missing", () => {
    const twice = compareRows(rows(ONE, ONE, LAST), rows(ONE, TWO, LAST), tolerance);
    expect(twice.unmatched).toBe(1);
    expect(compareRows(rows(ONE), rows(ONE, TWO), tolerance).unmatched).toBe(2);
  });

  it("differ where the file gives nothing, or lacks what the predictor sees", () => {
    const nothing = [0, 0, 0, 0, 0, 0];
    const none = rows(nothing, nothing, nothing);
    expect(compareRows(none, rows(ONE, TWO, LAST), tolerance).unmatched).toBe(3);
    // All of one score, so that each is at its own list's cut.
    const other = [70, 70, 90, 90, 0.9, 0];
    expect(compareRows(none, rows(ONE, ONE, ONE), tolerance).unmatched).toBe(3);
    expect(compareRows(rows(other, other), rows(ONE, ONE), tolerance).unmatched).toBe(2);
    const weak = [5, 5, 9, 9, 0.005, 0];
    const lacking = compareRows(rows(ONE, weak, weak), rows(ONE, TWO, weak), tolerance);
    expect(lacking.unmatched).toBe(1);
  });

  it("may end in different rows of one score, which the cut parted", () => {
    const other = [60, 60, 90, 90, 0.01, 1];
    const found = compareRows(rows(ONE, TWO, LAST), rows(ONE, TWO, other), tolerance);
    expect(found).toMatchObject({ rows: 2, unmatched: 0, box: 0 });
  });
});
