// Whether a model is served with suppression. Goal: it is where a head gives objects twice, and not
// where the gain is noise, where neighbours would be lost, or where too few images tell; the choice
// lies in the weights, whose tensors stay, and what is told of the model is what it measures so.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readTensors } from "../../../gpu-node/export/weights-file.ts";
import type { SplitData } from "../../../gpu-node/training/dataset.ts";
import {
  chooseSuppression,
  jackknifeError,
  type LookedAt,
  suppressedDetections,
  writeSuppression,
} from "../../../gpu-node/training/suppression-choice.ts";
import type { Native } from "../../../native/load.ts";
import { detectorGraph } from "../../../shared/detector.ts";
import { layPixels, placementOf } from "../../../shared/letterbox.ts";
import { suppressionOf } from "../../../shared/suppression.ts";
import { engineOrSay } from "../../support/training.ts";
import { randomWeights, seeded, tensorFile } from "../../support/weights.ts";

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

const evaluateBy =
  ({ evaluateDetections }: Native) =>
  (images: readonly LookedAt[]) =>
    evaluateDetections({
      classes: 1,
      detections: images.map(({ detections }) => detections),
      truths: images.map(({ truths }) => truths),
    });

describe.skipIf(!native)("the choice of suppression", () => {
  const choose = (images: LookedAt[]) => chooseSuppression(images, evaluateBy(native as Native));

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
    expect(await chooseSuppression(images, evaluate, stopping.signal)).toBeNull();
    expect(measured).toBeLessThanOrEqual(3);
  });

  it("is made where objects are found twice, by what it gains", async () => {
    const images = scene({ images: 60, twice: 0.6 });
    const choice = (await choose(images)) ?? expect.fail("no suppression was chosen");
    const without = evaluateBy(native as Native)(images);
    expect(choice.gain).toBeCloseTo(choice.evaluation.mAP50 - without.mAP50, 10);
    expect(choice.gain).toBeGreaterThan(3 * choice.error);
    expect(choice.evaluation.mAP50_95).toBeGreaterThan(without.mAP50_95);
    expect(choice.evaluation.mAP50).toBeGreaterThan(0.99);
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
  let val: SplitData;

  const engineOf = () => {
    const { Engine } = native as Native;
    return new Engine({ graph, device: "cpu", threads: 1, seed: 0 });
  };

  /** Images of noise; of what the head finds on each, the surest three apart from each other. */
  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), "vantage-suppression-"));
    path = join(dir, "best.safetensors");
    writeFileSync(path, before);
    const each = SIDE * HEIGHT * 3;
    const random = seeded(3);
    const bytes = Uint8Array.from({ length: IMAGES * each }, () => 256 * random());
    const pixels = join(dir, "val.rgb");
    writeFileSync(pixels, bytes);
    const engine = engineOf();
    try {
      await engine.load(path);
      const images: SplitData["images"] = [];
      const [square, size] = [
        { width: SIDE, height: SIDE },
        { width: SIDE, height: HEIGHT },
      ];
      for (let at = 0; at < IMAGES; at++) {
        const rgb = bytes.subarray(at * each, (at + 1) * each);
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
      val = { path: pixels, images };
    } finally {
      await engine.close();
    }
  });
  afterAll(() => rmSync(dir, { recursive: true, force: true }));

  const write = (stop = new AbortController().signal) =>
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

  it("say nothing where the run was stopped, whatever an earlier attempt had chosen", async () => {
    expect(await write(AbortSignal.abort())).toBeNull();
    expect(suppressionOf(readTensors(readFileSync(path)).metadata)).toBeNull();
    writeFileSync(path, before);
  });

  it("say that they are served with suppression, in place of what they said, and are the same", async () => {
    const choice = (await write()) ?? expect.fail("no suppression was chosen");
    const file = readTensors(readFileSync(path));
    expect(suppressionOf(file.metadata)).toBe(choice.nmsIou);
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
      const { mAP50 } = await engine.evaluate({ split: "val", batch: 5, imageSize: SIDE });
      expect(choice.evaluation.mAP50 - choice.gain).toBeCloseTo(mAP50, 3);
    } finally {
      await engine.close();
    }
  });
});
