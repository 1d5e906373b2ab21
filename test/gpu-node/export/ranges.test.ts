// What int8 is made by. Goal: ranges do not depend on the last bits of sums, cover what was seen,
// and numbers come back from their integers within half a step.

import { describe, expect, it } from "vitest";
import {
  affineOf,
  quantizeBias,
  quantizeWeights,
  symmetricOf,
} from "../../../gpu-node/export/affine.ts";
import { halvesOf } from "../../../gpu-node/export/half.ts";
import { Histogram } from "../../../gpu-node/export/histogram.ts";
import { measuredMaps, outward } from "../../../gpu-node/export/ranges.ts";
import { deployed } from "../../../shared/detector/deployed-detector.ts";
import { detectorGraph } from "../../../shared/detector/detector.ts";
import { seeded } from "../../support/weights.ts";

describe("a number moved outward", () => {
  it.each([
    [1, 1],
    [1.001, 1 + 1 / 128],
    [255.5, 256],
    [-3.3, -3.3125],
    [2 ** -30, 2 ** -30],
    [0, 0],
  ])("%f becomes %f", (value, wanted) => expect(outward(value)).toBe(wanted));

  it("is never smaller, and takes what sums differ by", () => {
    const random = seeded(3);
    for (let index = 0; index < 1_000; index++) {
      const value = (random() - 0.5) * 2 ** Math.floor(40 * random() - 20);
      const moved = outward(value);
      expect(Math.abs(moved)).toBeGreaterThanOrEqual(Math.abs(value));
      expect(Math.abs(moved)).toBeLessThanOrEqual(Math.abs(value) * (1 + 1 / 128));
      expect(outward(moved)).toBe(moved);
    }
  });
});

describe("a histogram", () => {
  it("gives all that was seen, or leaves a share out on either side", () => {
    const histogram = new Histogram();
    const values = Float32Array.from({ length: 10_000 }, (_, at) => at / 1_000 - 2);
    histogram.add(values.subarray(0, 5_000));
    histogram.add(values.subarray(5_000));
    const [low, high] = histogram.range(0);
    expect(low).toBe(-2);
    expect(high).toBeCloseTo(7.999, 5);
    const [from, to] = histogram.range(0.1);
    // Within a bin: 16 over 2,048.
    expect(Math.abs(from + 1)).toBeLessThan(0.02);
    expect(Math.abs(to - 7)).toBeLessThan(0.02);
  });

  it("does not depend on the order", () => {
    const [one, other] = [new Histogram(), new Histogram()];
    const random = seeded(5);
    const parts = Array.from({ length: 6 }, (_, scale) =>
      Float32Array.from({ length: 500 }, () => (random() - 0.5) * 4 ** scale),
    );
    for (const part of parts) one.add(part);
    for (const part of parts.toReversed()) other.add(part);
    expect(one.range(1e-3)).toEqual(other.range(1e-3));
  });

  it("refuses what is no number", () => {
    expect(() => new Histogram().add(Float32Array.of(1, Number.NaN))).toThrow("no number");
    expect(() => new Histogram().add(Float32Array.of(Infinity))).toThrow("no number");
  });

  it("of zeros alone is zero", () => {
    const histogram = new Histogram();
    histogram.add(new Float32Array(9));
    expect(histogram.range(1e-5).map(Math.abs)).toEqual([0, 0]);
  });
});

describe("integers", () => {
  it("have zero among them, and reach both ends of a range", () => {
    for (const range of [
      [-1, 3],
      [0, 6],
      [-0.27, 12.5],
      [-5, 0],
    ] as const) {
      const { scale, zero } = affineOf(range);
      const back = (integer: number) => (integer - zero) * scale;
      expect(back(zero)).toBe(0);
      expect(Math.abs(back(-128) - Math.min(range[0], 0))).toBeLessThanOrEqual(scale);
      expect(Math.abs(back(127) - Math.max(range[1], 0))).toBeLessThanOrEqual(scale);
    }
    expect(symmetricOf([-2, 12.7])).toEqual({ scale: Math.fround(0.1), zero: 0 });
    expect(affineOf([0, 0]).scale).toBeGreaterThan(0);
  });

  it("give weights back within half a step of their channel", () => {
    const random = seeded(7);
    const weight = Float32Array.from({ length: 96 }, (_, at) => (random() - 0.5) * (1 + (at >> 5)));
    const { values, scales } = quantizeWeights(weight, 3);
    expect(scales).toHaveLength(3);
    for (const [at, value] of weight.entries()) {
      const scale = scales[at >> 5] ?? 0;
      expect(Math.abs((values[at] ?? 0) * scale - value)).toBeLessThanOrEqual(scale / 2 + 1e-7);
    }
    expect(quantizeWeights(new Float32Array(4), 2).values).toEqual(new Int8Array(4));
  });

  it("keep a bias within what 32 bits hold", () => {
    const steps = quantizeBias(Float32Array.of(1, -1, 1e30), 0.5, [0.1, 0.1, 1e-9]);
    expect([...steps]).toEqual([20, -20, 2 ** 31 - 1]);
  });
});

it("halves of numbers are those of the format, the even one of two that are as near", () => {
  const halves = halvesOf(Float32Array.of(1, -2, 65_504, 1e6, 2 ** -24, 1 + 2 ** -11));
  expect([...halves]).toEqual([0x3c00, 0xc000, 0x7bff, 0x7c00, 1, 0x3c00]);
});

it("every map that has numbers of its own is measured, before and after its activation", () => {
  const graph = deployed(detectorGraph("det26n", 3, "segmentation"));
  const names = measuredMaps(graph).map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
  const silu = graph.nodes.filter((node) => node.op === "conv" && node.silu);
  expect(names.filter((name) => name.endsWith("/linear"))).toHaveLength(silu.length);
  expect(names.some((name) => name.includes("/slice") || name === "images")).toBe(false);
});
