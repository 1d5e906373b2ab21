// Crop packs and the answer that carries crops. Goal: what is written is read back, an entry is
// found by the box as the database stores it, and no bytes of a stranger are taken for a pack.

import fc from "fast-check";
import { expect, it } from "vitest";
import { readCropAnswer, writeCropAnswer } from "../../shared/crop-answer.ts";
import {
  type Crop,
  type CropBox,
  cropEntries,
  cropIndexBytes,
  cropKey,
  cropRegion,
  cropSize,
  writeCropPack,
} from "../../shared/crop-pack.ts";

const coordinate = fc.double({ min: 0, max: 8_000, noNaN: true });
const jpegs = fc.uint8Array({ minLength: 1, maxLength: 40 });
const crop: fc.Arbitrary<Crop> = fc.record({
  frame: fc.nat(5),
  bbox: fc.tuple(coordinate, coordinate, coordinate, coordinate) as fc.Arbitrary<CropBox>,
  jpeg: jpegs,
});

it("gives back each crop by its frame and its box in single precision", () => {
  fc.assert(
    fc.property(fc.array(crop, { maxLength: 30 }), (crops) => {
      const pack = writeCropPack(crops);
      const entries = cropEntries(pack, pack.length) ?? [];
      const first = new Map(crops.toReversed().map((one) => [cropKey(one), one]));
      expect(entries.length).toBe(first.size);
      const frames = entries.map(({ frame }) => frame);
      expect(frames).toEqual(frames.toSorted((one, other) => one - other));
      for (const entry of entries) {
        const { offset, length } = entry;
        const own = first.get(cropKey(entry));
        expect(pack.subarray(offset, offset + length)).toEqual(own?.jpeg);
        expect(entry.bbox).toEqual(own?.bbox.map(Math.fround));
      }
      // The index alone says as much.
      const head = pack.subarray(0, cropIndexBytes(entries.length));
      expect(cropEntries(head, pack.length)).toEqual(entries);
    }),
  );
});

it("takes no other bytes for a pack: cut, longer, or changed in the index", () => {
  const whole = writeCropPack([
    { frame: 1, bbox: [0, 0, 5, 5], jpeg: Uint8Array.of(1, 2) },
    { frame: 1, bbox: [1, 0, 5, 5], jpeg: Uint8Array.of(3) },
  ]);
  const index = cropIndexBytes(2);
  for (let length = 0; length < whole.length; length += 1) {
    expect(cropEntries(whole.subarray(0, length), length)).toBeNull();
  }
  expect(cropEntries(whole, whole.length + 1)).toBeNull();
  const read = (at: number, value: number) => {
    const bytes = whole.slice();
    new DataView(bytes.buffer).setUint32(at, value, true);
    return cropEntries(bytes, bytes.length);
  };
  const NAN = 0x7fc00000;
  for (const [at, value] of [
    [0, 0],
    [4, 2],
    [8, 3],
    [8, 1],
    [8, 0xffff_ffff],
    [16, NAN],
    // A frame after the next one's; a box that comes twice.
    [12, 2],
    [cropIndexBytes(1) + 4, 0],
    // Offsets and lengths that point elsewhere.
    [32, index + 1],
    [36, 1],
    [36, 0],
    [36, 0xffff_ffff],
  ] as const) {
    expect([at, value, read(at, value)]).toEqual([at, value, null]);
  }
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (noise) => {
      const bytes = Uint8Array.from([...whole.subarray(0, 12), ...noise]);
      for (const { offset, length } of cropEntries(bytes, bytes.length) ?? []) {
        expect(offset + length).toBeLessThanOrEqual(bytes.length);
      }
      expect(cropEntries(noise, noise.length)).toBeNull();
    }),
  );
});

it("shows a box with its margin, inside the frame, at 128 pixels and twice its size at most", () => {
  const size = { width: 1920, height: 1080 };
  expect(cropRegion([100, 200, 300, 300], size)).toEqual({
    left: 70,
    top: 170,
    width: 260,
    height: 160,
  });
  expect(cropSize({ width: 260, height: 160 })).toEqual({ width: 128, height: 79 });
  expect(cropSize({ width: 10, height: 4 })).toEqual({ width: 20, height: 8 });
  fc.assert(
    fc.property(
      ...([
        coordinate,
        coordinate,
        coordinate,
        coordinate,
        fc.integer({ min: 1, max: 4_000 }),
      ] as const),
      (x1, y1, x2, y2, side) => {
        const frame = { width: side, height: Math.max(1, side >> 1) };
        const region = cropRegion([x1, y1, x2, y2], frame);
        expect(region.left).toBeGreaterThanOrEqual(0);
        expect(region.top).toBeGreaterThanOrEqual(0);
        expect(Math.min(region.width, region.height)).toBeGreaterThanOrEqual(1);
        expect(region.left + region.width).toBeLessThanOrEqual(frame.width);
        expect(region.top + region.height).toBeLessThanOrEqual(frame.height);
        const shown = cropSize(region);
        expect(Math.max(shown.width, shown.height)).toBeLessThanOrEqual(128);
      },
    ),
  );
});

it("answers crops in the order of the ids, those that lack and those that are none", () => {
  const answered = fc.option(fc.option(jpegs, { nil: null }), { nil: undefined });
  fc.assert(
    fc.property(fc.array(answered, { maxLength: 64 }), fc.nat(64), (crops, missing) => {
      const bytes = writeCropAnswer({ crops, missing });
      expect(readCropAnswer(bytes)).toEqual({ crops, missing });
      // A browser has them at any offset of a buffer.
      const moved = new Uint8Array(bytes.length + 3);
      moved.set(bytes, 3);
      expect(readCropAnswer(moved.subarray(3))).toEqual({ crops, missing });
      expect(() => readCropAnswer(bytes.subarray(0, -1))).toThrow(/no answer/);
      expect(() => readCropAnswer(Uint8Array.from([...bytes, 0]))).toThrow(/no answer/);
    }),
  );
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 100 }), (noise) => {
      expect(() => readCropAnswer(noise)).toThrow(/no answer/);
      const head = writeCropAnswer({ crops: [], missing: 0 }).subarray(0, 8);
      const bytes = Uint8Array.from([...head, ...noise]);
      try {
        expect(readCropAnswer(bytes).crops.length).toBeLessThanOrEqual(25);
      } catch (thrown) {
        expect((thrown as Error).message).toMatch(/no answer/);
      }
    }),
  );
});
