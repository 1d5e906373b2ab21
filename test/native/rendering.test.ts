// From a dataset's file to pixels. Goal: letterboxed pixels are exact, an image is the same on
// whatever thread, in whatever batch, and the GPU's pixels are the CPU's.

import { describe, expect, it } from "vitest";
import type { Augmentation, Batch } from "../../native/index.d.ts";
import { native } from "./engine.ts";
import {
  COLOURS,
  type RgbImage,
  rectangleImage,
  rectangleImages,
  views,
  withImages,
} from "./rectangle-images.ts";

const hasKernels = Boolean(native?.describe().cudaKernels && native.describe().gpus.length);
if (native && !hasKernels) {
  console.warn("SKIPPED: rendering on the GPU needs a GPU and a build with our CUDA kernels");
}

const SIZE = 160;
const FILL = 114 / 255;
const EVERYTHING: Partial<Augmentation> = {
  mosaic: 0.8,
  mixup: 0.4,
  scale: 0.5,
  translate: 0.1,
  rotate: 10,
  shear: 2,
  hsv: [0.02, 0.7, 0.4],
  flipLeftRight: 0.5,
  flipUpDown: 0.2,
};

/** Between the same plan's colours by torch's operations and by our code: measured 0. */
const OPERATIONS_MAX = 1e-6;

/** The largest difference. */
function furthest(found: Float32Array, wanted: Float32Array): number {
  expect(found.length).toBe(wanted.length);
  let worst = 0;
  for (const [index, value] of wanted.entries()) {
    worst = Math.max(worst, Math.abs(value - (found[index] as number)));
  }
  return worst;
}

const same = (a: Batch, b: Batch) =>
  Buffer.compare(Buffer.from(a.images.buffer), Buffer.from(b.images.buffer)) === 0 &&
  Buffer.compare(Buffer.from(a.boxes.buffer), Buffer.from(b.boxes.buffer)) === 0;

/** Different in every pixel. */
function noise(width: number, height: number, seed: number): RgbImage {
  const rgb = new Uint8Array(width * height * 3);
  let state = seed * 2_654_435_761 + 1;
  for (let index = 0; index < rgb.length; index++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    rgb[index] = state >>> 24;
  }
  return { width, height, rgb, boxes: [[seed % COLOURS.length, 10, 20, width / 2, height / 2]] };
}

/** Bilinear between pixel centres, the outermost pixels going on. */
function resized({ width, height, rgb }: RgbImage, toWidth: number, toHeight: number) {
  const clamp = (value: number, last: number) => Math.min(Math.max(value, 0), last);
  return (x: number, y: number, c: number) => {
    const u = clamp(((x + 0.5) * width) / toWidth - 0.5, width - 1);
    const v = clamp(((y + 0.5) * height) / toHeight - 0.5, height - 1);
    const [x0, y0] = [Math.floor(u), Math.floor(v)];
    const byte = (column: number, row: number) =>
      rgb[(clamp(row, height - 1) * width + clamp(column, width - 1)) * 3 + c] as number;
    const across = (row: number) => byte(x0, row) * (1 - (u - x0)) + byte(x0 + 1, row) * (u - x0);
    return (across(y0) * (1 - (v - y0)) + across(y0 + 1) * (v - y0)) / 255;
  };
}

describe.skipIf(!native)("letterboxing", () => {
  it.each([
    // Width and height, then those it has in the output, and the grey left of and above it.
    ["as it is", 160, 160, [160, 160, 0, 0]],
    ["padded alike above and below", 160, 120, [160, 120, 0, 20]],
    ["padded by an odd number, the smaller half first", 160, 107, [160, 107, 0, 26]],
    ["padded by an odd number at the sides", 93, 160, [93, 160, 33, 0]],
    ["made smaller", 200, 100, [160, 80, 0, 40]],
    ["made larger", 37, 50, [118, 160, 21, 0]],
    ["of one pixel", 1, 1, [160, 160, 0, 0]],
    ["far wider than high", 1000, 3, [160, 1, 0, 79]],
  ] as const)("puts a image %s", async (_, width, height, [w, h, left, top]) => {
    const one = noise(width, height, 3);
    const boxes = [[2, 0, 0, width, height]];
    await withImages({ sources: [{ ...one, boxes }] }, async (engine) => {
      const [view] = views(await engine.render({ epoch: 0, batch: 0 }));
      const pixel = resized(one, w, h);
      let worst = 0;
      for (let y = 0; y < SIZE; y++) {
        for (let x = 0; x < SIZE; x++) {
          const inside = x >= left && x < left + w && y >= top && y < top + h;
          for (const [c, value] of view?.at(x, y).entries() ?? []) {
            const wanted = inside ? pixel(x - left, y - top, c) : FILL;
            worst = Math.max(worst, Math.abs(value - wanted));
          }
        }
      }
      expect(worst).toBeLessThan(width === w && height === h ? 1e-7 : 2e-4);
      // One pixel of height is too little for a box.
      const kept = h > 2 ? [{ classIndex: 2, box: [left, top, left + w, top + h] }] : [];
      expect(view?.boxes).toEqual(kept);
    });
  });
});

describe.skipIf(!native)("an epoch's images", () => {
  it("are all of the split's, once, in another order each epoch", async () => {
    const sources = Array.from({ length: 11 }, (_, index) => noise(160, 160, index + 1));
    const training = { batch: 4 };
    await withImages({ sources, training }, async (engine) => {
      const orders: number[][] = [];
      for (const epoch of [0, 1, 2]) {
        const order: number[] = [];
        for (const batch of [0, 1, 2]) {
          const made = await engine.render({ epoch, batch });
          expect(made.count).toBe(batch < 2 ? 4 : 3);
          for (const view of views(made)) {
            const [r, g, b] = view.at(0, 0).map((value) => Math.round(value * 255));
            order.push(
              sources.findIndex(({ rgb }) => rgb[0] === r && rgb[1] === g && rgb[2] === b),
            );
          }
        }
        expect([...order].sort((a, b) => a - b)).toEqual(sources.map((_, index) => index));
        orders.push(order);
      }
      expect(new Set(orders.map(String)).size).toBe(3);
      await expect(engine.render({ epoch: 0, batch: 3 })).rejects.toMatchObject({
        code: "bad_argument",
      });
    });
  });

  it("depend on seed, epoch and position alone", async () => {
    const sources = rectangleImages(13);
    const batches = async (setup: { seed?: number; threads?: number; batch?: number }) => {
      const { seed = 7, threads = 1, batch = 4 } = setup;
      const training = { batch };
      const options = { seed, threads };
      const all = { sources, augmentation: EVERYTHING, training, options };
      return withImages(all, async (engine) => {
        const [later, first] = [
          await engine.render({ epoch: 3, batch: 2 }),
          await engine.render({ epoch: 3, batch: 0 }),
        ];
        expect(same(await engine.render({ epoch: 3, batch: 2 }), later)).toBe(true);
        return { first, later };
      });
    };
    const [one, again, other] = [
      await batches({}),
      await batches({ threads: 3 }),
      await batches({ seed: 8 }),
    ];
    expect(same(one.first, again.first) && same(one.later, again.later)).toBe(true);
    expect(same(one.first, other.first)).toBe(false);
    expect(same(one.first, one.later)).toBe(false);
    const single = await batches({ batch: 1 });
    const size = single.first.images.length;
    expect(single.first.images).toEqual(one.first.images.subarray(0, size));
    expect(single.later.images).toEqual(one.first.images.subarray(2 * size, 3 * size));
  });

  it("differ from epoch to epoch", async () => {
    const setup = { sources: [rectangleImages(1)[0] as RgbImage], augmentation: EVERYTHING };
    await withImages(setup, async (engine) => {
      const [one, other] = [
        await engine.render({ epoch: 0, batch: 0 }),
        await engine.render({ epoch: 1, batch: 0 }),
      ];
      expect(same(one, other)).toBe(false);
    });
  });
});

describe.skipIf(!native)("a dataset", () => {
  const [good] = rectangleImages(1) as [RgbImage];
  const last = good.rgb.length;
  it.each([
    ["an image beyond the file", { offset: 3 }],
    ["an image that begins beyond the file", { offset: last + 1 }],
    ["a size that overflows", { width: 32_768, height: 32_768 }],
    ["a box that is not a number", { boxes: Float32Array.of(0, 1, Number.NaN, 5, 5) }],
    ["a box that is not finite", { boxes: Float32Array.of(0, 1, 1, Infinity, 5) }],
    ["a box that ends before it begins", { boxes: Float32Array.of(0, 9, 1, 5, 5) }],
    ["a class below 0", { boxes: Float32Array.of(-1, 1, 1, 5, 5) }],
    ["a class that the graph has not", { boxes: Float32Array.of(6, 1, 1, 5, 5) }],
    ["half a class", { boxes: Float32Array.of(0.5, 1, 1, 5, 5) }],
  ])("is refused with %s", async (_, wrong) => {
    await withImages({ sources: [good] }, async (engine, { path, images }) => {
      const image = { ...(images[0] as (typeof images)[0]), ...wrong };
      await expect(engine.setDataset("train", { path, images: [image] })).rejects.toMatchObject({
        code: "bad_dataset",
      });
      // It leaves the engine without the dataset, not with half of one.
      await expect(engine.render({ epoch: 0, batch: 0 })).rejects.toMatchObject({
        code: "bad_argument",
      });
      await engine.setDataset("train", { path, images });
      expect((await engine.render({ epoch: 0, batch: 0 })).count).toBe(1);
    });
  });

  it("is refused without an image, and without its file", async () => {
    await withImages({ sources: [good] }, async (engine, { path, images }) => {
      await expect(engine.setDataset("val", { path, images: [] })).rejects.toMatchObject({
        code: "bad_dataset",
      });
      await expect(engine.setDataset("val", { path: `${path}.not`, images })).rejects.toMatchObject(
        { code: "io_failed" },
      );
    });
  });

  it("keeps boxes that leave their image to the part inside it", async () => {
    const sources = [{ ...rectangleImage(160, 160, []), boxes: [[1, -50, 20, 40, 500]] }];
    await withImages({ sources }, async (engine) => {
      const [view] = views(await engine.render({ epoch: 0, batch: 0 }));
      expect(view?.boxes).toEqual([{ classIndex: 1, box: [0, 20, 40, 160] }]);
    });
  });
});

describe.skipIf(!native)("torch's operations", () => {
  it.each([
    ["augmented", EVERYTHING, 0],
    ["augmented", EVERYTHING, 1],
    ["augmented", EVERYTHING, 2],
    ["letterboxed", {}, 0],
  ] as const)("render what the CPU renders, %s", async (_, augmentation, epoch) => {
    const sources = [...rectangleImages(12), ...[1, 2, 3, 4].map((seed) => noise(97, 131, seed))];
    const setup = { sources, augmentation, training: { batch: 16 } };
    await withImages(setup, async (engine) => {
      const wanted = await engine.render({ epoch, batch: 0 });
      const found = await engine.render({ epoch, batch: 0, byTorch: true });
      expect(found.boxes).toEqual(wanted.boxes);
      expect(new Set(wanted.images).size).toBeGreaterThan(200);
      expect(furthest(found.images, wanted.images)).toBeLessThan(OPERATIONS_MAX);
    });
  });
});

describe.skipIf(!hasKernels)("the GPU", () => {
  it.each([0, 1, 2, 3])("renders what the CPU renders in epoch %i", async (epoch) => {
    const sources = [...rectangleImages(12), ...[1, 2, 3, 4].map((seed) => noise(97, 131, seed))];
    const [cpu, gpu] = await Promise.all(
      (["cpu", "cuda"] as const).map((device) =>
        withImages(
          { sources, augmentation: EVERYTHING, training: { batch: 16 }, options: { device } },
          (engine) => engine.render({ epoch, batch: 0 }),
        ),
      ),
    );
    expect(gpu?.boxes).toEqual(cpu?.boxes);
    const [made, wanted] = [gpu?.images ?? [], cpu?.images ?? []].map((all) =>
      Float32Array.from(all),
    );
    // Coordinates are rounded alike on both; the colours differ by fused multiply-adds alone.
    expect(furthest(made as Float32Array, wanted as Float32Array)).toBeLessThan(1e-4);
  });
});
