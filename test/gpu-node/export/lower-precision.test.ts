// Detectors as ONNX in half precision and int8, under the runtime that serves them. Goal: the same
// weights, options and ranges give the same bytes, whatever the threads; the files are as small as
// their numbers; and they compute what the file in single precision computes, within their steps.

import { beforeAll, describe, expect, it } from "vitest";
import { measureRanges } from "../../../gpu-node/export/calibration.ts";
import { deployedModel } from "../../../gpu-node/export/deployed-model.ts";
import { type FileWish, writeDetector } from "../../../gpu-node/export/format-writers.ts";
import type { MapRanges } from "../../../gpu-node/export/ranges.ts";
import { readTensors } from "../../../gpu-node/export/weights-file.ts";
import { decodeModel } from "../../../gpu-node/onnx/model-file.ts";
import { float, floats, openSession, run } from "../../../gpu-node/onnx/runtime.ts";
import type { DeployedModel } from "../../../shared/detector/deployed-weights.ts";
import {
  type DetectorTask,
  detectorGraph,
  type Variant,
} from "../../../shared/detector/detector.ts";
import { randomWeights, seeded, tensorFile } from "../../support/weights.ts";

const SIZE = [96, 128] as const;
const { LARGE } = process.env;

function modelOf(task: DetectorTask, variant: Variant = "det26n"): DeployedModel {
  const weights = tensorFile(randomWeights(detectorGraph(variant, 3, task), 4));
  return deployedModel({ variant, classes: ["a", "b", "c"], task }, readTensors(weights));
}

const imageOf = (seed: number) =>
  Float32Array.from({ length: 3 * SIZE[0] * SIZE[1] }, seeded(seed));
const images = () => [imageOf(1), imageOf(2), imageOf(3)];

const wishOf = (more: Partial<FileWish>): FileWish => ({
  format: "onnx",
  precision: "fp32",
  output: "raw",
  size: SIZE,
  batch: 1,
  classes: ["a", "b", "c"],
  metadata: { task: "detect" },
  ...more,
});

/** Every output of a file for an image. */
async function look(file: Uint8Array, pixels: Float32Array) {
  const session = await openSession(file, { cpuThreads: 1, device: "cpu" });
  try {
    const outputs = await run(session, { images: float(pixels, [1, 3, ...SIZE]) });
    const names = Object.keys(outputs);
    return new Map(names.map((name) => [name, floats(outputs, name).slice()]));
  } finally {
    await session.release();
  }
}

/** 1 for numbers that are proportional. */
function cosine(one: Float32Array, other: Float32Array): number {
  let [product, own, others] = [0, 0, 0];
  for (let at = 0; at < one.length; at++) {
    const [a, b] = [one[at] ?? 0, other[at] ?? 0];
    product += a * b;
    own += a * a;
    others += b * b;
  }
  return product / Math.sqrt(own * others);
}

function apart(one: Float32Array, other: Float32Array): number {
  expect(one.length).toBe(other.length);
  return one.reduce((max, value, at) => Math.max(max, Math.abs(value - (other[at] ?? 0))), 0);
}

describe.each<DetectorTask>(["detection", "segmentation"])("a model of %s", (task) => {
  let model: DeployedModel;
  let ranges: MapRanges;
  let single: Uint8Array;
  let wanted: Map<string, Float32Array>;

  beforeAll(async () => {
    model = modelOf(task);
    ranges = await measureRanges(model, images, { size: SIZE, cpuThreads: 1 });
    single = writeDetector(model, wishOf({}));
    wanted = await look(single, imageOf(1));
  });
  const output = (outputs: Map<string, Float32Array>, name: string) =>
    outputs.get(name) ?? expect.fail(`no ${name}`);

  it("has the same ranges with one thread and with two, and the same bytes", async () => {
    const again = await measureRanges(model, images, { size: SIZE, cpuThreads: 2 });
    expect([...again]).toEqual([...ranges]);
    for (const precision of ["fp16", "int8"] as const) {
      const [one, other] = [ranges, again].map((own) =>
        writeDetector(model, wishOf({ precision, ranges: own })),
      );
      expect(Buffer.compare(one ?? Buffer.alloc(0), other ?? Buffer.alloc(1))).toBe(0);
    }
  });

  it("in half precision is half as large, and a few thousandths off", async () => {
    const file = writeDetector(model, wishOf({ precision: "fp16" }));
    expect(file.length / single.length).toBeLessThan(0.53);
    const found = await look(file, imageOf(1));
    expect([...found.keys()]).toEqual([...wanted.keys()]);
    expect(apart(output(found, "scores"), output(wanted, "scores"))).toBeLessThan(1e-2);
    for (const [name, values] of found) {
      expect([name, cosine(values, output(wanted, name)) > 0.9999]).toEqual([name, true]);
    }
    // Heads and outputs stay single, so whoever reads the file needs to know nothing of it.
    const { graph } = decodeModel(file);
    const types = [...(graph?.input ?? []), ...(graph?.output ?? [])].map(
      ({ type }) => type?.tensorType?.elemType,
    );
    expect(new Set(types)).toEqual(new Set([1]));
  });

  it.each(["onnx", "tensorrt"] as const)(
    "in int8 for %s is smaller yet, and near",
    async (format) => {
      const file = writeDetector(model, wishOf({ precision: "int8", ranges, format }));
      // Half a megabyte of graph and heads weighs more in so small an input's file.
      expect(file.length / single.length).toBeLessThan(0.34);
      const found = await look(file, imageOf(1));
      for (const [name, values] of found) {
        expect([name, cosine(values, output(wanted, name)) > 0.97]).toEqual([name, true]);
      }
    },
  );

  it("gives rows end to end in every precision, for any number of images", async () => {
    for (const precision of ["fp16", "int8"] as const) {
      const wish = wishOf({ precision, ranges, output: "end_to_end", batch: null });
      const file = writeDetector(model, wish);
      const session = await openSession(file, { cpuThreads: 1, device: "cpu" });
      const two = Float32Array.from([...imageOf(1), ...imageOf(2)]);
      const together = floats(
        await run(session, { images: float(two, [2, 3, ...SIZE]) }),
        "output0",
      ).slice();
      const alone = floats(
        await run(session, { images: float(imageOf(2), [1, 3, ...SIZE]) }),
        "output0",
      );
      const second = together.subarray(together.length / 2);
      expect(apart(second.subarray(0, 6), alone.subarray(0, 6))).toBeLessThan(1e-2);
      await session.release();
    }
  });

  it("needs the ranges of all maps", () => {
    const [first] = ranges.keys();
    const lacking = new Map([...ranges].filter(([name]) => name !== first));
    expect(() => writeDetector(model, wishOf({ precision: "int8", ranges: lacking }))).toThrow(
      /has no range/,
    );
  });
});

describe.each<Variant>(LARGE ? ["det26s", "det26m", "det26l", "det26x"] : ["det26s"])(
  "%s",
  (variant) => {
    it("computes in half precision and int8 what it computes in single precision", async () => {
      const model = modelOf("detection", variant);
      const ranges = await measureRanges(model, images, { size: SIZE, cpuThreads: 1 });
      const wanted = await look(writeDetector(model, wishOf({})), imageOf(2));
      for (const [precision, near] of [
        ["fp16", 0.9999],
        ["int8", 0.95],
      ] as const) {
        const found = await look(writeDetector(model, wishOf({ precision, ranges })), imageOf(2));
        const scores = cosine(
          found.get("scores") ?? new Float32Array(1),
          wanted.get("scores") ?? new Float32Array(1),
        );
        expect([precision, scores > near]).toEqual([precision, true]);
      }
    });
  },
);
