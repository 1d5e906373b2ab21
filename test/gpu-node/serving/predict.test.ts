// Predictions on a node, with generated weights. Goal: what is looked at is the image as people
// see it, boxes come back in its pixels, frames are those of their true times, and weights that are
// not the registry's are refused.

import { readFileSync } from "node:fs";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { deployedModel } from "../../../gpu-node/export/deployed-model.ts";
import { writeOnnx } from "../../../gpu-node/export/detector-onnx.ts";
import { readTensors } from "../../../gpu-node/export/weights-file.ts";
import type { RgbImage } from "../../../gpu-node/media/image.ts";
import { float, floats, openSession, run as runSession } from "../../../gpu-node/onnx/runtime.ts";
import { Batcher } from "../../../gpu-node/serving/batcher.ts";
import { letterbox } from "../../../gpu-node/serving/letterbox.ts";
import { openPredictor } from "../../../gpu-node/serving/predictor.ts";
import type { RunnerContext } from "../../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../../gpu-node/tasks/runners.ts";
import { detectorGraph } from "../../../shared/detector/detector.ts";
import { unletterbox } from "../../../shared/detector/letterbox.ts";
import type { ModelSource, ObjectSource, TaskResult } from "../../../shared/tasks/tasks.ts";
import { toolsOrSay, variableRate } from "../../support/clips.ts";
import type { NodeService } from "../../support/node-service.ts";
import { beforeEachTask } from "../../support/node-tasks.ts";
import { noiseImage } from "../../support/noise.ts";
import { generatedModel, randomWeights, tensorFile } from "../../support/weights.ts";
import { greatestDifference } from "../../support/written-detectors.ts";

const found = toolsOrSay();
let service: NodeService;
let context: RunnerContext;

beforeEachTask("predict", (own) => {
  ({ service, context } = own);
});

const model = (more: Parameters<typeof generatedModel>[1] = {}) =>
  generatedModel((key, bytes) => service.source(key, bytes), more);

const noise = (width: number, height: number) => noiseImage(width, height, "#000");

const store = (bytes: Buffer): ObjectSource => service.source(crypto.randomUUID(), bytes);

type Prediction = TaskResult<"predict">;

async function predict(
  asked: ModelSource,
  video: ObjectSource,
  more: Record<string, unknown> = {},
): Promise<Prediction> {
  const payload = { model: asked, video, fps: null, frames_max: 100, confidence: 0.3, ...more };
  const outcome = await runTask("predict", payload, context);
  if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
  return outcome.result as Prediction;
}

describe("a letterbox", () => {
  it("lays a picture in the middle, in proportion, between grey", async () => {
    const data = new Uint8Array(40 * 20 * 3);
    for (let at = 0; at < data.length; at += 3) data.set([255, 51, 0], at);
    const { pixels, placement } = await letterbox({ data, width: 40, height: 20 }, 64);
    expect(placement).toMatchObject({ left: 0, top: 16, scaleX: 1.6, scaleY: 1.6 });
    const at = (channel: number, y: number, x: number) => pixels[(channel * 64 + y) * 64 + x];
    const grey = Math.fround(114 / 255);
    for (const [y, inside] of [
      [15, false],
      [16, true],
      [47, true],
      [48, false],
    ] as const) {
      const colour = inside ? [1, Math.fround(0.2), 0] : [grey, grey, grey];
      expect([y, [0, 1, 2].map((channel) => at(channel, y, 30))]).toEqual([y, colour]);
    }
    // An odd pixel of padding goes below.
    const odd = await letterbox({ data: new Uint8Array(64 * 31 * 3), width: 64, height: 31 }, 64);
    expect(odd.placement).toMatchObject({ left: 0, top: 16 });
  });

  it("takes boxes back to where they were, cut to the picture", async () => {
    for (const [width, height] of [
      [640, 480],
      [333, 777],
      [20, 31],
      [1_920, 1_081],
    ] as const) {
      const image = { data: new Uint8Array(width * height * 3), width, height };
      const { placement } = await letterbox(image, 320);
      const { left, top, scaleX, scaleY } = placement;
      const box = [width * 0.1, height * 0.2, width * 0.7, height * 0.9];
      const there = box.map((corner, at) =>
        at % 2 ? corner * scaleY + top : corner * scaleX + left,
      );
      const back = unletterbox(there as [number, number, number, number], placement);
      for (const [at, corner] of (back ?? []).entries()) {
        expect(Math.abs(corner - (box[at] ?? 0))).toBeLessThan(0.01);
      }
      expect(unletterbox([-900, -900, 900, 900], placement)).toEqual([0, 0, width, height]);
    }
    const { placement } = await letterbox({ data: new Uint8Array(300), width: 10, height: 10 }, 32);
    for (const none of [
      [40, 40, 50, 50],
      [9, 9, 9, 20],
      [20, 9, 9, 20],
      [Number.NaN, 1, 2, 3],
    ] as [number, number, number, number][]) {
      expect(unletterbox(none, placement)).toBeNull();
    }
  });
});

describe("a batcher", () => {
  it("runs together what waits together, in powers of two, in order", async () => {
    const batches: number[][] = [];
    const gates: (() => void)[] = [];
    const batcher = new Batcher<number, number>(4, async (items) => {
      batches.push([...items]);
      await new Promise<void>((go) => gates.push(go));
      return items.map((item) => item * 10);
    });
    const first = [1, 2, 3].map((item) => batcher.add(item));
    await expect.poll(() => gates.length).toBe(1);
    const later = [4, 5, 6, 7, 8, 9].map((item) => batcher.add(item));
    for (let gate = 0; gate < 4; gate++) {
      await expect.poll(() => gates.length).toBeGreaterThan(gate);
      gates[gate]?.();
    }
    expect(await Promise.all([...first, ...later])).toEqual([10, 20, 30, 40, 50, 60, 70, 80, 90]);
    expect(batches).toEqual([[1, 2], [3, 4, 5, 6], [7, 8], [9]]);
  });

  it("has the next batch lie ready where two may be under way, and no third", async () => {
    const batches: number[][] = [];
    const gates: (() => void)[] = [];
    const run = async (items: readonly number[]) => {
      batches.push([...items]);
      await new Promise<void>((go) => gates.push(go));
      return items;
    };
    const batcher = new Batcher<number, number>(2, run, { batchesMax: 2 });
    const first = [1, 2, 3].map((item) => batcher.add(item));
    await expect.poll(() => batches).toEqual([[1, 2], [3]]);
    const later = [4, 5].map((item) => batcher.add(item));
    await new Promise((done) => setImmediate(done));
    expect(batches).toHaveLength(2);
    gates[0]?.();
    await expect.poll(() => batches).toEqual([[1, 2], [3], [4, 5]]);
    for (const go of gates) go();
    expect(await Promise.all([...first, ...later])).toEqual([1, 2, 3, 4, 5]);
  });

  it("fails whom a failed run was for, and nobody after him", async () => {
    const batcher = new Batcher<number, number>(2, async (items) => {
      if (items.includes(2)) throw new Error("no memory");
      return items;
    });
    const results = await Promise.allSettled([1, 2, 3].map((item) => batcher.add(item)));
    expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected", "fulfilled"]);
    expect(await batcher.add(4)).toBe(4);
  });
});

describe("predicting on a picture", () => {
  it("gives classes of the model, surest first, within the picture as people see it", async () => {
    const upright = await noise(120, 80).jpeg().toBuffer();
    // Turned by its EXIF: what people see is 80 wide and 120 high.
    const turned = await sharp(upright).withMetadata({ orientation: 6 }).toBuffer();
    const asked = model();
    const { width, height, frames, left_out } = await predict(asked, store(turned));
    expect([width, height, left_out]).toEqual([80, 120, 0]);
    expect(frames).toMatchObject([{ frame_index: 0, time: 0 }]);
    const predictions = frames[0]?.predictions ?? [];
    expect(predictions.length).toBeGreaterThan(10);
    for (const [place, { class: name, confidence, bbox }] of predictions.entries()) {
      expect(asked.classes).toContain(name);
      expect(confidence).toBeGreaterThanOrEqual(0.3);
      expect(confidence).toBeLessThanOrEqual(predictions[place - 1]?.confidence ?? 1);
      const [x1, y1, x2, y2] = bbox;
      expect(x1 >= 0 && y1 >= 0 && x2 <= 80 && y2 <= 120 && x2 > x1 && y2 > y1).toBe(true);
    }
    const surer = await predict(asked, store(turned), { confidence: 0.6 });
    expect(surer.frames[0]?.predictions).toEqual(
      predictions.filter(({ confidence }) => confidence >= 0.6),
    );
    expect((await predict(asked, store(turned), { confidence: 1 })).frames[0]?.predictions).toEqual(
      [],
    );
  });

  it("refuses what is no picture, for good", async () => {
    const payload = { model: model(), fps: null, frames_max: 1, confidence: 0.5 };
    for (const junk of [Buffer.from("junk"), Buffer.from([0xff, 0xd8, 0xff, 0xe0, 1, 2, 3])]) {
      expect(await runTask("predict", { ...payload, video: store(junk) }, context)).toMatchObject({
        outcome: "failed",
        code: "unsupported_media",
        retryable: false,
      });
    }
  });

  it("predicts boxes with a segmentation model too", async () => {
    const image = store(await noise(64, 64).png().toBuffer());
    const asked = model({ task: "segmentation", image_size: 64 });
    const { frames } = await predict(asked, image, { confidence: 0 });
    expect(frames[0]?.predictions.length).toBeGreaterThan(10);
    expect(frames[0]?.predictions.some((one) => "mask" in one)).toBe(false);
  });

  it("refuses masks of a model that makes none", async () => {
    const video = store(await noise(64, 64).png().toBuffer());
    const payload = { model: model(), video, fps: null, frames_max: 1, confidence: 0.5 };
    const outcome = await runTask("predict", { ...payload, mask: "rle" }, context);
    expect(outcome).toMatchObject({ outcome: "failed", code: "invalid_request", retryable: false });
  });
});

describe("masks", () => {
  const SIDE = 64;
  const segmenting = { task: "segmentation" as const, image_size: SIDE };

  it("are made of the coefficients of their own rows, and of their own image's prototypes", async () => {
    const asked = generatedModel((key, bytes) => service.source(key, bytes), segmenting);
    const weights = service.objects.get(asked.weights.key) as Buffer;
    const predictor = await openPredictor(asked, weights, { cpuThreads: 1, device: "cpu" });
    const file = writeOnnx(deployedModel(asked, readTensors(weights)), {
      output: "detections",
      size: [SIDE, SIDE],
      batch: 1,
      metadata: {},
    });
    const session = await openSession(file, { cpuThreads: 1, device: "cpu" });
    try {
      const images = await Promise.all(
        [90, 64, 50].map(async (height) => {
          const { data, info } = await noise(70, height)
            .removeAlpha()
            .raw()
            .toBuffer({ resolveWithObject: true });
          return { data: new Uint8Array(data), width: info.width, height: info.height };
        }),
      );
      // The middle one wants no masks, and shares a batch with one that does.
      const [first, , third] = await Promise.all([
        predictor.outline(images[0] as RgbImage, { confidence: 0.3 }),
        predictor.predict(images[1] as RgbImage, { confidence: 0.3 }),
        predictor.outline(images[2] as RgbImage, { confidence: 0.3 }),
      ]);
      for (const [at, outlined] of [
        [0, first],
        [2, third],
      ] as const) {
        const { pixels } = await letterbox(images[at] as RgbImage, SIDE);
        const outputs = await runSession(session, { images: float(pixels, [1, 3, SIDE, SIDE]) });
        const { source, predictions } = outlined;
        expect([source.rows, source.columns]).toEqual([SIDE / 4, SIDE / 4]);
        expect(greatestDifference(source.values, floats(outputs, "output1"))).toBeLessThan(1e-3);
        const rows = floats(outputs, "output0");
        expect(predictions.length).toBeGreaterThan(10);
        for (const [index, { class: name, confidence }] of predictions.entries()) {
          // The row of this score, class and coefficients is there.
          const wanted = source.objects[index]?.coefficients;
          const distances = Array.from({ length: rows.length / 38 }, (_, row) => {
            const [score = 0, number = 0] = rows.subarray(row * 38 + 4, row * 38 + 6);
            const alike = asked.classes[number] === name && Math.abs(score - confidence) < 1e-3;
            const own = rows.subarray(row * 38 + 6, row * 38 + 38);
            return alike ? greatestDifference(wanted, own) : 9;
          });
          expect(Math.min(...distances)).toBeLessThan(1e-3);
        }
      }
    } finally {
      await session.release();
      await predictor.dispose();
    }
  });

  it.skipIf(!found)("of a clip are told frame by frame, within the bounds of all", async () => {
    const asked = model(segmenting);
    const video = store(readFileSync(variableRate()));
    const clip = await predict(asked, video, { fps: 2, mask: "rle" });
    const plain = await predict(asked, video, { fps: 2 });
    expect(clip.masks_left_out).toBe(0);
    expect(plain.masks_left_out).toBeUndefined();
    const boxes = clip.frames.map(({ predictions, ...frame }) => ({
      ...frame,
      predictions: predictions.map(({ mask: _, ...box }) => box),
    }));
    expect(boxes).toEqual(plain.frames);
    const masks = clip.frames.flatMap(({ predictions }) => predictions.map(({ mask }) => mask));
    expect(masks.filter((mask) => mask && "rle" in mask).length).toBeGreaterThan(10);
    for (const mask of masks) {
      if (mask) expect(mask).toMatchObject({ rle: { size: [180, 320] } });
    }
  });
});

describe.skipIf(!found)("predicting on a video", () => {
  const clip = () => store(readFileSync(variableRate()));

  it("looks at frames of their true times, as many as were asked for", async () => {
    const asked = model({ image_size: 64 });
    const video = clip();
    const every = await predict(asked, video);
    expect([every.width, every.height, every.frames.length]).toEqual([320, 180, 100]);
    const times = every.frames.map(({ time }) => time);
    expect(times[0]).toBe(0);
    // Frames are 40 ms apart, but for up to 24 ms.
    for (const [index, time] of times.entries()) {
      expect(Math.abs(time - index * 0.04)).toBeLessThan(0.025);
    }
    const some = await predict(asked, video, { fps: 2, frames_max: 5 });
    expect(some.left_out).toBe(3);
    for (const [place, { frame_index, time, predictions }] of some.frames.entries()) {
      expect(time).toBeGreaterThanOrEqual(place / 2 - 1e-6);
      expect(times[frame_index - 1] ?? -1).toBeLessThan(place / 2);
      // Whoever else is in its batch changes nothing of what is found.
      const alike = every.frames[frame_index]?.predictions ?? [];
      expect(predictions.length).toBe(alike.length);
      for (const [at, { confidence }] of predictions.entries()) {
        expect(Math.abs(confidence - (alike[at]?.confidence ?? 9))).toBeLessThanOrEqual(2e-4);
      }
    }
  });

  it("looks at all of an uncut clip, and refuses one of more frames with both numbers", async () => {
    const asked = { model: model({ image_size: 64 }), video: clip(), fps: null, confidence: 0.9 };
    const uncut = (frames_max: number) =>
      runTask("predict", { ...asked, frames_max, uncut: true }, context);
    expect(await uncut(100)).toMatchObject({ outcome: "finished", result: { left_out: 0 } });
    expect(await uncut(99)).toMatchObject({
      outcome: "failed",
      code: "too_many_frames",
      detail: expect.stringMatching(/has 100 frames .* at most 99 are/),
      retryable: false,
    });
  });

  it("keeps what is done when it is cancelled", async () => {
    const cancel = new AbortController();
    const progress: number[] = [];
    const outcome = await runTask(
      "predict",
      {
        model: model({ image_size: 64 }),
        video: clip(),
        fps: null,
        frames_max: 100,
        confidence: 0.9,
      },
      {
        ...context,
        cancel: cancel.signal,
        progress: ({ done }) => {
          progress.push(done);
          if (done === 3) cancel.abort();
        },
      },
    );
    expect(outcome.outcome).toBe("cancelled");
    expect(progress.length).toBeLessThan(40);
  });
});

describe("weights", () => {
  const warmed = (asked: ModelSource) => runTask("warm", { model: asked }, context);

  it("are warm after a look", async () => {
    const finished = { outcome: "finished", result: { seconds: expect.any(Number) } };
    expect(await warmed(model())).toMatchObject(finished);
  });

  it("that are not the registry's are refused, and fetched again the next time", async () => {
    const asked = model({ image_size: 32 });
    const good = service.objects.get(asked.weights.key) as Buffer;
    const spoilt = Buffer.from(good);
    spoilt.writeUInt8(spoilt.readUInt8(good.length - 1) ^ 1, good.length - 1);
    service.objects.set(asked.weights.key, spoilt);
    expect(await warmed(asked)).toMatchObject({
      outcome: "failed",
      code: "bad_weights",
      retryable: true,
      detail: expect.stringMatching(/sha256 differs/),
    });
    service.objects.set(asked.weights.key, good);
    expect(await warmed(asked)).toMatchObject({ outcome: "finished" });
    expect(service.reads.get(asked.weights.key)).toBe(2);
  });

  it.each<[string, () => Parameters<typeof model>[0], RegExp]>([
    ["are no weights", () => ({ file: Buffer.from("PK\x03\x04 a zip, say") }), /cannot be read/],
    [
      "are another model's",
      () => ({ file: tensorFile(randomWeights(detectorGraph("det26n", 5))) }),
      /of another model/,
    ],
    ["are of no class", () => ({ classes: [], file: Buffer.alloc(0) }), /has no classes/],
    [
      "compute what is no number",
      () => {
        const tensors = randomWeights(detectorGraph("det26n", 3));
        for (const layer of [0, 1, 3]) {
          tensors.get(`layers.${layer}.norm.weight`)?.values.fill(3e38);
        }
        return { file: tensorFile(tensors) };
      },
      /no number/,
    ],
  ])("that %s are refused for good", async (_, more, message) => {
    expect(await warmed(model(more()))).toMatchObject({
      outcome: "failed",
      code: "bad_weights",
      retryable: false,
      detail: expect.stringMatching(message),
    });
  });
});
