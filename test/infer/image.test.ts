// Pixels at the edge beside those of a node. Goal: what a model sees of an image is the same, to
// within the last steps of a colour, however the image is turned, sized or stored.

import sharp, { type Sharp } from "sharp";
import { describe, expect, it } from "vitest";
import { orientationOf, turn, turnedSize } from "../../edge/infer/orientation.ts";
import { resample, tapsOf } from "../../edge/infer/resample.ts";
import { imageHeader } from "../../shared/image-header.ts";

/** Steps of 256 by which colours may differ: libvips rounds after each of its passes. */
const STEPS_MAX = 3;
const STEPS_MEAN_MAX = 0.8;

/** A photograph's worth of detail: noise that was made smooth. */
const photo = (width: number, height: number, channels: 3 | 4 = 3) =>
  sharp({
    create: {
      width,
      height,
      channels,
      background: channels === 4 ? { r: 0, g: 0, b: 0, alpha: 0.5 } : "#777",
      noise: { type: "gaussian", mean: 128, sigma: 60 },
    },
  }).blur(1.5);

async function rgbaOf(image: Sharp) {
  const { data, info } = await image.ensureAlpha().raw().toBuffer({ resolveWithObject: true });
  return { data: new Uint8Array(data), width: info.width, height: info.height };
}

function differenceOf(one: Uint8Array, other: Uint8Array) {
  expect(one.length).toBe(other.length);
  let [max, sum] = [0, 0];
  for (const [index, value] of one.entries()) {
    const steps = Math.abs(value - (other[index] ?? 0));
    max = Math.max(max, steps);
    sum += steps;
  }
  return { max, mean: sum / one.length };
}

describe("pixels at another size", () => {
  it.each([
    [1280, 720, 320, 180],
    [1920, 1080, 320, 180],
    [640, 480, 320, 240],
    [333, 777, 137, 320],
    [500, 375, 416, 312],
    [200, 120, 320, 192],
    [320, 320, 320, 320],
    [4000, 7, 320, 1],
    [1, 1, 320, 320],
  ])("%i × %i are at %i × %i what libvips makes of them", async (width, height, toX, toY) => {
    const source = await rgbaOf(photo(width, height));
    const raw = { raw: { width, height, channels: 3 as const } };
    const opaque = await sharp(source.data, { raw: { width, height, channels: 4 } })
      .removeAlpha()
      .raw()
      .toBuffer();
    const expected = await sharp(opaque, raw)
      .resize(toX, toY, { fit: "fill", kernel: "linear" })
      .raw()
      .toBuffer();
    const made = resample(source, { width: toX, height: toY });
    const { max, mean } = differenceOf(made, new Uint8Array(expected));
    expect([max <= STEPS_MAX, mean <= STEPS_MEAN_MAX, max, mean]).toEqual([true, true, max, mean]);
  });

  it("show white where the image is transparent", async () => {
    const [width, height] = [300, 200];
    const data = new Uint8Array(width * height * 4);
    for (let pixel = 0; pixel < width * height; pixel++) {
      data.set([200, 40, (pixel * 7) % 256, (pixel * 13) % 256], pixel * 4);
    }
    const flat = await sharp(data, { raw: { width, height, channels: 4 } })
      .flatten({ background: "#ffffff" })
      .raw()
      .toBuffer();
    const made = resample({ data, width, height }, { width, height });
    expect(differenceOf(made, new Uint8Array(flat)).max).toBeLessThanOrEqual(1);
  });

  it("weigh every pixel of the source by as much, and no other", () => {
    for (const [from, to] of [
      [1080, 180],
      [777, 320],
      [32, 320],
      [5, 5],
    ] as const) {
      const taps = tapsOf(from, to);
      const sums = new Float64Array(from);
      for (const { first, weights } of taps) {
        expect(first >= 0 && first + weights.length <= from).toBe(true);
        expect(weights.reduce((sum, weight) => sum + weight, 0)).toBeCloseTo(1, 4);
        for (const [index, weight] of weights.entries()) {
          sums[first + index] = (sums[first + index] ?? 0) + weight;
        }
      }
      expect(sums.reduce((sum, one) => sum + one, 0)).toBeCloseTo(to, 2);
    }
  });
});

describe("an image's turn", () => {
  const stored = photo(48, 32);
  it.each([1, 2, 3, 4, 5, 6, 7, 8])("%i is read of each format, and followed", async (held) => {
    const upright = await stored.clone().png().toBuffer();
    for (const format of ["jpeg", "png", "webp"] as const) {
      const options = format === "webp" ? { lossless: true } : {};
      const file = await sharp(upright)
        .withMetadata({ orientation: held })
        .toFormat(format, options)
        .toBuffer();
      const bytes = new Uint8Array(file);
      const header = imageHeader(bytes);
      expect([format, header?.type]).toEqual([format, `image/${format}`]);
      if (!header) continue;
      expect([format, orientationOf(bytes, header.type)]).toEqual([format, held]);
      const raw = new Uint8Array(await sharp(file).raw().toBuffer());
      const expected = await sharp(file).rotate().raw().toBuffer({ resolveWithObject: true });
      expect(turnedSize(header, held)).toEqual({
        width: expected.info.width,
        height: expected.info.height,
      });
      const turned = turn(raw, header, held);
      expect(differenceOf(turned, new Uint8Array(expected.data)).max).toBe(0);
    }
  });

  it("is none where an image says nothing, or lies", () => {
    const jpeg = (...tiff: number[]) =>
      new Uint8Array([
        ...[0xff, 0xd8, 0xff, 0xe1, 0, 8 + tiff.length, ...Buffer.from("Exif\0\0")],
        ...tiff,
        ...[0xff, 0xda, 0, 2],
      ]);
    const directory = (entries: number, value: number) => [
      ...[0x4d, 0x4d, 0, 42, 0, 0, 0, 8, 0, entries],
      ...[1, 0x12, 0, 3, 0, 0, 0, 1, 0, value, 0, 0],
    ];
    expect(orientationOf(jpeg(...directory(1, 6)), "image/jpeg")).toBe(6);
    for (const broken of [
      jpeg(),
      jpeg(...directory(1, 9)),
      jpeg(...directory(200, 0)),
      jpeg(0x49, 0x49, 42, 0, 0xff, 0xff, 0xff, 0xff),
      new Uint8Array([0xff, 0xd8]),
      new Uint8Array([0xff, 0xd8, 0xff, 0xe1, 0xff, 0xff]),
    ]) {
      expect(orientationOf(broken, "image/jpeg")).toBe(1);
    }
    expect(orientationOf(new Uint8Array(40), "image/png")).toBe(1);
    expect(orientationOf(new Uint8Array(40).fill(255), "image/webp")).toBe(1);
  });
});
