// Whether a model is served with suppression. Goal: it is where a head gives objects twice, and not
// where the gain is noise, where neighbours would be lost, or where too few images tell; the choice
// lies in the weights, whose tensors stay, and what is told of the model is what it measures so.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { createLog } from "../../../gpu-node/base/log.ts";
import { readTensors } from "../../../gpu-node/export/weights-file.ts";
import { openPredictor } from "../../../gpu-node/serving/predictor.ts";
import type { SplitData } from "../../../gpu-node/training/dataset.ts";
import { metricsOf } from "../../../gpu-node/training/loop.ts";
import {
  chooseSuppression,
  jackknifeError,
  type LookedAt,
  suppressedDetections,
  writeSuppression,
} from "../../../gpu-node/training/suppression-choice.ts";
import { testMetrics } from "../../../gpu-node/training/test-metrics.ts";
import type { Evaluation } from "../../../native/index.d.ts";
import type { Native } from "../../../native/load.ts";
import { byHead } from "../../../shared/detector/deployed-detector.ts";
import { detectorGraph, type Head } from "../../../shared/detector/detector.ts";
import { layPixels, placementOf } from "../../../shared/detector/letterbox.ts";
import { suppressionOf } from "../../../shared/detector/suppression.ts";
import { engineOrSay } from "../../support/training.ts";
import { generatedModel, randomWeights, seeded, tensorFile } from "../../support/weights.ts";

const native = engineOrSay();

/** Images of three objects, which are found a little off, each again with probability `twice`. */
function scene({
  images,
  twice,
  crowd = false,
}: {
  images: number;
  twice: number;
  crowd?: boolean;
}) {
  const random = seeded(9);
  return Array.from({ length: images }, (): LookedAt => {
    const truths: number[][] = [];
    const found: number[][] = [];
    for (let at = 0; at < 3; at++) {
      const [x, y] = [100 * at + 20 * random(), 50 * random()];
      const box = [x, y, x + 40, y + 40];
      const shifted = (by: number) => box.map((side, index) => (index % 2 ? side : side + by));
      truths.push([0, ...box]);
      found.push([...shifted(2 * random()), 0.6 + 0.4 * random(), 0]);
      // A neighbour of the same class, half of it behind the other.
      if (crowd) truths.push([0, ...shifted(8)]);
      if (crowd) found.push([...shifted(8), 0.3 + 0.3 * random(), 0]);
      if (random() < twice) found.push([...shifted(5), 0.5 + 0.5 * random(), 0]);
    }
    found.sort((one, other) => (other[4] ?? 0) - (one[4] ?? 0));
    return {
      detections: Float32Array.from(found.flat()),
      truths: Float32Array.from(truths.flat()),
    };
  });
}

const meanOf = ({ mAP50, mAP50_95 }: Evaluation) => (mAP50 + mAP50_95) / 2;

const evaluateBy =
  ({ evaluateDetections }: Native) =>
  (images: readonly LookedAt[]) =>
    evaluateDetections({
      classes: 1,
      detections: images.map(({ detections }) => detections),
      truths: images.map(({ truths }) => truths),
    });

describe.skipIf(!native)("the choice of suppression", () => {
  it("suppresses boxes before they are cut at the image, as what is served does", async () => {
    // Of the image's 160 to 480 rows they cover nearly the same, and a quarter uncut.
    const boxes = [10, 60, 60, 180, 0.9, 0, 10, 150, 60, 182, 0.8, 0];
    const placement = { left: 0, top: 140, laid: { width: 640, height: 360 } };
    const image = { detections: Float32Array.from(boxes), truths: new Float32Array(), placement };
    const images = Array.from({ length: 20 }, () => image);
    const kept = new Set<number>();
    const evaluate = (given: readonly LookedAt[]) => {
      for (const one of given) kept.add(one.detections.length / 6);
      return evaluateBy(native as Native)(given);
    };
    await chooseSuppression({ one_to_one: images, one_to_many: images }, evaluate);
    expect([...kept]).toEqual([2]);
  });

  /** What a head finds that finds nothing. */
  const nothing = (images: LookedAt[]): LookedAt[] =>
    images.map(({ truths }) => ({ truths, detections: new Float32Array() }));
  const choose = (images: LookedAt[], many = nothing(images)) => {
    const looked = { one_to_one: images, one_to_many: many };
    return chooseSuppression(looked, evaluateBy(native as Native));
  };

  it("hears a stop between two measurements, and says nothing then", async () => {
    const images = scene({ images: 60, twice: 0.6 });
    const stopping = new AbortController();
    let measured = 0;
    const evaluate = (of: readonly LookedAt[]) => {
      measured += 1;
      // As a message that comes meanwhile: it is heard in a turn of its own.
      if (measured === 2) setImmediate(() => stopping.abort());
      return evaluateBy(native as Native)(of);
    };
    const looked = { one_to_one: images, one_to_many: images };
    expect(await chooseSuppression(looked, evaluate, stopping.signal)).toBeNull();
    expect(measured).toBeLessThanOrEqual(3);
  });

  it("is made where objects are found twice, by what it gains", async () => {
    const images = scene({ images: 60, twice: 0.6 });
    const choice = (await choose(images)) ?? expect.fail("no suppression was chosen");
    const without = evaluateBy(native as Native)(images);
    expect(choice.gain).toBeCloseTo(meanOf(choice.evaluation) - meanOf(without), 10);
    expect(choice.gain).toBeGreaterThan(3 * choice.error);
    expect(choice.evaluation.mAP50_95).toBeGreaterThan(without.mAP50_95);
    expect(choice.evaluation.mAP50).toBeGreaterThan(0.99);
    expect(choice.head).toBe("one_to_one");
  });

  it("is of the head that finds more, by more than noise", async () => {
    const every = scene({ images: 60, twice: 0.6 });
    /** The same without the surest detection of every so many images. */
    const less = (step: number): LookedAt[] =>
      every.map(({ detections, truths }, index) => ({
        truths,
        detections: index % step ? detections : detections.subarray(6),
      }));
    const choice = await choose(less(3), every);
    expect(choice).toMatchObject({ head: "one_to_many" });
    expect(choice?.gain).toBeGreaterThan(3 * (choice?.error ?? 1));
    // As good, and better by one image of sixty.
    expect(await choose(every, every)).toMatchObject({ head: "one_to_one" });
    expect(await choose(less(60), every)).toMatchObject({ head: "one_to_one" });
  });

  it.each([
    ["nothing is found twice", scene({ images: 60, twice: 0 })],
    ["one object in a hundred is found twice", scene({ images: 60, twice: 0.01 })],
    ["neighbours would be lost", scene({ images: 60, twice: 0.05, crowd: true })],
    ["too few images tell", scene({ images: 19, twice: 0.6 })],
    ["there are none", []],
  ])("is none where %s", async (_, images) => {
    expect(await choose(images)).toBeNull();
  });
});

it("knows the error of a mean as everybody does", () => {
  const random = seeded(4);
  const values = Array.from({ length: 10 }, random);
  const sum = values.reduce((all, one) => all + one, 0);
  const squares = values.reduce((all, one) => all + (one - sum / 10) ** 2, 0);
  const left = values.map((one) => (sum - one) / 9);
  expect(jackknifeError(left)).toBeCloseTo(Math.sqrt(squares / 9 / 10), 12);
});

describe.skipIf(!native)("weights whose head gives objects twice", () => {
  const [SIDE, HEIGHT, TOP, IMAGES] = [64, 48, 8, 24];
  const graph = detectorGraph("det26n", 2);
  const before = tensorFile(randomWeights(graph), { variant: "det26n", nms_iou: "0.9" });
  let dir: string;
  let path: string;
  let pixels: string;
  const CLASSES = ["one", "other"];
  const each = SIDE * HEIGHT * 3;
  const random = seeded(3);
  const noise = Uint8Array.from({ length: IMAGES * each }, () => 256 * random());

  const engineOf = (head: Head = "one_to_one") => {
    const { Engine } = native as Native;
    return new Engine({ graph: byHead(graph, head), device: "cpu", threads: 1, seed: 0 });
  };

  beforeAll(() => {
    dir = mkdtempSync(join(tmpdir(), "vantage-suppression-"));
    path = join(dir, "best.safetensors");
    pixels = join(dir, "val.rgb");
    writeFileSync(pixels, noise);
  });
  beforeEach(() => writeFileSync(path, before));

  /** Images of noise; of what a head finds on each, the surest three apart from each other. */
  async function validation(head: Head): Promise<SplitData> {
    const engine = engineOf(head);
    try {
      await engine.load(path);
      const images: SplitData["images"] = [];
      const [square, size] = [
        { width: SIDE, height: SIDE },
        { width: SIDE, height: HEIGHT },
      ];
      for (let at = 0; at < IMAGES; at++) {
        const rgb = noise.subarray(at * each, (at + 1) * each);
        const laid = layPixels(rgb, placementOf(size, square), square);
        const batch = { images: laid, count: 1, ...square };
        const [found = new Float32Array()] = await engine.predict(batch, 0.001);
        const kept = suppressedDetections(found, 0.5);
        const rows = Array.from({ length: kept.length / 6 }, (_, row) =>
          kept.subarray(6 * row, 6 * row + 6),
        );
        // As in a dataset: no box leaves its image.
        const isInside = ([x1 = 0, y1 = 0, x2 = 0, y2 = 0]: Float32Array) =>
          x1 >= 0 && y1 >= TOP && x2 <= SIDE && y2 <= TOP + HEIGHT && x2 > x1 && y2 > y1;
        const boxes = rows
          .filter(isInside)
          .slice(0, 3)
          .flatMap(([x1 = 0, y1 = 0, x2 = 0, y2 = 0, , index = 0]) => {
            return [index, x1, y1 - TOP, x2, y2 - TOP];
          });
        const name = `image ${at}`;
        images.push({ name, offset: at * each, ...size, boxes: Float32Array.from(boxes) });
      }
      return { path: pixels, images };
    } finally {
      await engine.close();
    }
  }
  afterAll(() => rmSync(dir, { recursive: true, force: true }));

  const write = (val: SplitData, stop = new AbortController().signal) =>
    writeSuppression(path, {
      native: native as Native,
      graph,
      hardware: { device: "cpu", threads: 1 },
      val,
      imageSize: SIDE,
      batch: 7,
      stop,
      onBatch: () => {},
    });

  const tested = (test: SplitData, served: { head?: Head; nms_iou?: number } = {}) =>
    testMetrics(
      {
        native: native as Native,
        graph,
        hardware: { device: "cpu", threads: 1 },
        context: { cancel: new AbortController().signal, log: createLog(() => {}) },
        folder: { file: () => path },
        data: { classes: CLASSES, test },
        payload: { settings: { image_size: SIDE } },
        report: { say: () => {}, tell: () => {} },
      },
      {
        weights: "best.safetensors",
        resolved: { precision: "fp32", ...served },
        evaluationBatch: { measure: (work) => work(5) },
        pausing: () => false,
        msLeft: 60_000,
      },
    );

  it("say nothing where the run was stopped, whatever an earlier attempt had chosen", async () => {
    expect(await write(await validation("one_to_one"), AbortSignal.abort())).toBeNull();
    expect(suppressionOf(readTensors(readFileSync(path)).metadata)).toBeNull();
  });

  it("say that they are served with suppression, in place of what they said, and are the same", async () => {
    const val = await validation("one_to_one");
    const choice = (await write(val)) ?? expect.fail("no suppression was chosen");
    const file = readTensors(readFileSync(path));
    expect(suppressionOf(file.metadata)).toEqual({ head: "one_to_one", nmsIou: choice.nmsIou });
    expect(file.metadata).toMatchObject({ variant: "det26n", head: "one_to_one" });
    const old = readTensors(before);
    expect([...file.tensors.keys()].sort()).toEqual([...old.tensors.keys()].sort());
    for (const [name, { shape, bytes }] of file.tensors) {
      const same = old.tensors.get(name);
      const isSame = same !== undefined && Buffer.from(same.bytes).equals(Buffer.from(bytes));
      expect([name, shape, isSame]).toEqual([name, same?.shape, true]);
    }
    // What it gains is told over what the engine measures by itself.
    const engine = engineOf();
    try {
      await engine.load(path);
      await engine.setDataset("val", val);
      const alone = await engine.evaluate({ split: "val", batch: 5, imageSize: SIDE });
      expect(meanOf(choice.evaluation) - choice.gain).toBeCloseTo(meanOf(alone), 3);
      expect(alone.mAP50).toBeGreaterThan(0);
      expect(await tested(val)).toEqual(metricsOf(alone, CLASSES));
    } finally {
      await engine.close();
    }
  });

  it("are served by the head that finds more, and measured so on test frames", async () => {
    const val = await validation("one_to_many");
    const choice = (await write(val)) ?? expect.fail("no suppression was chosen");
    const { head, nmsIou } = choice;
    expect(head).toBe("one_to_many");
    const measured = await tested(val, { head, nms_iou: nmsIou });
    expect(measured).toEqual(metricsOf(choice.evaluation, CLASSES));
    const file = readFileSync(path);
    expect(suppressionOf(readTensors(file).metadata)).toEqual({ head, nmsIou });
    const of = { image_size: SIDE, classes: ["one", "other"], file };
    const model = generatedModel((key) => ({ key, url: "", bytes: file.length }), of);
    const predictor = await openPredictor(model, file, { cpuThreads: 1, device: "cpu" });
    const engine = engineOf(head);
    try {
      await engine.load(path);
      const square = { width: SIDE, height: SIDE };
      const placement = placementOf({ width: SIDE, height: HEIGHT }, square);
      const laid = layPixels(noise.subarray(0, each), placement, square);
      const [found = new Float32Array()] = await engine.predict(
        { images: laid, count: 1, ...square },
        0.001,
      );
      const wanted = suppressedDetections(found, nmsIou);
      const { values, width } = await predictor.rows({ pixels: laid, placement });
      expect(wanted.length).toBeGreaterThan(3 * width);
      for (let row = 0; row < wanted.length; row++) {
        expect(values[row]).toBeCloseTo(wanted[row] ?? Number.NaN, 2);
      }
    } finally {
      await engine.close();
      await predictor.dispose();
    }
  });
});
