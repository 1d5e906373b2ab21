// Blocks on pixels. Goal: what was found on one image lies right on every other one of its root,
// what is blurred cannot be got back, no text of a user is anything but a text, and tiles miss
// nothing.

import fc from "fast-check";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { readStill } from "../../../gpu-node/media/stills.ts";
import { encodeRle } from "../../../gpu-node/segmenters/masks.ts";
import { type NodeImage, rootImage } from "../../../gpu-node/workflows/node-image.ts";
import { PixelWork } from "../../../gpu-node/workflows/pixel-work.ts";
import { type Block, problemFor } from "../../../shared/workflow/block.ts";
import { rootPoint } from "../../../shared/workflow/values.ts";
import { writeCode } from "../../support/bar-codes.ts";
import {
  callBlock,
  detectionsOn,
  drawnImage,
  NODE_BLOCKS,
  pixelOf,
} from "../../support/workflow-images.ts";

const imageOf = (value: unknown) => value as NodeImage;
const RED = [255, 0, 0];
const BLACK = [0, 0, 0];

describe("parts of images", () => {
  it("know where they lie in the root, through crops and other sizes", async () => {
    const image = await drawnImage(
      100,
      80,
      '<rect x="40" y="20" width="20" height="20" fill="#f00"/>',
    );
    const whole = detectionsOn(image, { bbox: [40, 20, 60, 40] });
    const { outputs } = await callBlock(
      "crop@1",
      { image, detections: whole },
      {
        parameters: { padding: 10 },
      },
    );
    const crop = imageOf((outputs.crops as NodeImage[])[0]);
    expect(crop.frame).toEqual({
      width: 40,
      height: 40,
      offset: [30, 10],
      scale: [1, 1],
      root: { width: 100, height: 80 },
    });
    const doubled = await callBlock(
      "resize@1",
      { image: crop },
      {
        parameters: { mode: "longest_side", longest_side: 80 },
      },
    );
    const large = imageOf(doubled.outputs.image);
    expect(large.frame).toMatchObject({ offset: [30, 10], scale: [0.5, 0.5] });
    // Objects of the root are cut out of the enlarged crop where they are.
    const again = await callBlock("crop@1", { image: large, detections: whole });
    const inner = imageOf((again.outputs.crops as NodeImage[])[0]);
    expect([inner.frame.width, inner.frame.height]).toEqual([40, 40]);
    expect(rootPoint(inner.frame, [0, 0])).toEqual([40, 20]);
    expect(pixelOf(inner, 20, 20)).toEqual(RED);
    // And drawn on it.
    const drawn = await callBlock(
      "draw_boxes@1",
      { image: large, detections: whole },
      {
        parameters: { colour: "#ffffff", thickness: 2 },
      },
    );
    expect(pixelOf(imageOf(drawn.outputs.image), 20, 40)).toEqual([255, 255, 255]);
    expect(pixelOf(imageOf(drawn.outputs.image), 40, 40)).toEqual(RED);
  });

  it("leave out objects that lie outside, and say so", async () => {
    const image = await drawnImage(20, 20);
    const detections = detectionsOn(image, { bbox: [30, 30, 40, 40] }, { bbox: [-5, -5, 5, 5] });
    const { outputs, warnings } = await callBlock("crop@1", { image, detections });
    expect((outputs.crops as NodeImage[]).map(({ frame }) => frame.width)).toEqual([5]);
    expect(outputs.detections).toHaveLength(1);
    expect(warnings).toEqual(["1 objects lie outside of the image"]);
    const none = await callBlock(
      "static_crop@1",
      { image },
      {
        parameters: { x: 20, y: 0, width: 5, height: 5 },
      },
    );
    expect(none.outputs.image).toBeNull();
  });

  it("are cut out in shares of the sides, too, in whole pixels", async () => {
    const image = await drawnImage(101, 40);
    const half = { unit: "share", x: 0.25, y: 0.4, width: 0.5, height: 0.2 };
    const { outputs } = await callBlock("static_crop@1", { image }, { parameters: half });
    expect(imageOf(outputs.image).frame).toMatchObject({ offset: [25, 16], height: 8 });
    expect(Math.abs(imageOf(outputs.image).frame.width - 50.5)).toBe(0.5);
    const block = NODE_BLOCKS.get("static_crop@1") as Block;
    const problem = (more: object) =>
      problemFor(block, block.parameters.parse({ x: 0, y: 0, width: 5, height: 5, ...more }));
    expect(problem({})).toBeNull();
    expect(problem({ x: 0.5 })).toBe("x is 0.5; pixels are whole");
    expect(problem({ unit: "share" })).toBe("width is 5; a share is at most 1");
  });

  it("are refused objects of another image", async () => {
    const [image, other] = [await drawnImage(20, 20), await drawnImage(30, 20)];
    const detections = detectionsOn(other, { bbox: [1, 1, 5, 5] });
    for (const type of ["crop@1", "blur@1", "draw_boxes@1", "draw_labels@1"]) {
      await expect(callBlock(type, { image, detections })).rejects.toThrow(/30 × 20/);
    }
  });

  it("become no image of more pixels than a node holds", async () => {
    const image = await drawnImage(8, 8);
    const parameters = { mode: "stretch", width: 8_192, height: 8_192 };
    await expect(callBlock("resize@1", { image }, { parameters })).rejects.toThrow(/40 million/);
    const wide = await drawnImage(2_000, 4);
    const tiles = { width: 4, height: 4, overlap: 0 };
    await expect(callBlock("tile@1", { image: wide }, { parameters: tiles })).rejects.toThrow(
      /tiles are more than 400/,
    );
  });
});

describe("tiles", () => {
  it("cover every pixel, within the image, and are no smaller than they need be", async () => {
    const side = fc.integer({ min: 1, max: 60 });
    const sizes = fc.record({ width: side, height: side });
    // More of an overlap makes more tiles of these sizes than are allowed.
    const overlap = fc.double({ min: 0, max: 0.6, noNaN: true });
    await fc.assert(
      fc.asyncProperty(
        sizes,
        fc.integer({ min: 12, max: 70 }),
        overlap,
        async (size, tile, share) => {
          const pixels = { ...size, data: new Uint8Array(size.width * size.height * 3) };
          const parameters = { width: tile, height: tile, overlap: share };
          const { outputs } = await callBlock(
            "tile@1",
            { image: rootImage(pixels) },
            { parameters },
          );
          const seen = new Uint8Array(size.width * size.height);
          for (const { frame } of outputs.tiles as NodeImage[]) {
            expect(frame.width).toBe(Math.min(tile, size.width));
            expect(frame.height).toBe(Math.min(tile, size.height));
            const [left, top] = frame.offset;
            for (let y = top; y < top + frame.height; y++) {
              seen.fill(1, y * size.width + left, y * size.width + left + frame.width);
            }
            expect(left + frame.width).toBeLessThanOrEqual(size.width);
            expect(top + frame.height).toBeLessThanOrEqual(size.height);
          }
          expect(seen.every((value) => value === 1)).toBe(true);
        },
      ),
      { numRuns: 40 },
    );
  });
});

describe("a blur", () => {
  const face = (eyes: string) =>
    drawnImage(
      64,
      64,
      '<rect x="8" y="8" width="48" height="48" fill="#777"/>' +
        `<rect x="14" y="14" width="6" height="6" fill="${eyes}"/>`,
    );

  it("leaves 8 values a side at most, and nothing outside changed", async () => {
    const image = await face("#fff");
    const detections = detectionsOn(image, { bbox: [8, 8, 56, 56] });
    const { outputs } = await callBlock(
      "blur@1",
      { image, detections },
      {
        parameters: { mode: "pixelate" },
      },
    );
    const blurred = imageOf(outputs.image);
    const values = new Set<string>();
    for (let y = 8; y < 56; y++)
      for (let x = 8; x < 56; x++)
        values.add(
          `${Math.floor((x - 8) / 6)} ${Math.floor((y - 8) / 6)} ${pixelOf(blurred, x, y)}`,
        );
    expect(values.size).toBe(64);
    expect(pixelOf(blurred, 7, 30)).toEqual(BLACK);
    expect(pixelOf(blurred, 56, 30)).toEqual(BLACK);
    // What was given is as it was: other steps read it.
    expect(pixelOf(image, 15, 15)).toEqual([255, 255, 255]);
  });

  it("makes the same of two images whose details alone differ", async () => {
    // Both eyes lie within one cell, at different corners of it.
    const eyes = (x: number) =>
      drawnImage(64, 64, `<rect x="${x}" y="2" width="3" height="3" fill="#fff"/>`);
    for (const mode of ["gaussian", "pixelate"]) {
      const [one, other] = await Promise.all(
        [1, 4].map(async (x) =>
          callBlock("blur@1", { image: await eyes(x) }, { parameters: { mode } }),
        ),
      );
      expect(imageOf(one?.outputs.image).pixels.data).toEqual(
        imageOf(other?.outputs.image).pixels.data,
      );
    }
  });

  it("covers what lies in a zone, and nothing beside it", async () => {
    const image = await drawnImage(40, 40, '<rect width="40" height="20" fill="#f00"/>');
    const zone = [
      [0, 0],
      [40, 0],
      [0, 40],
    ];
    const { outputs } = await callBlock(
      "blur@1",
      { image, zone },
      { parameters: { mode: "pixelate" } },
    );
    const blurred = imageOf(outputs.image);
    expect(pixelOf(blurred, 39, 39)).toEqual(BLACK);
    expect(pixelOf(blurred, 30, 19)).toEqual(RED);
    const whole = await drawnImage(40, 40, '<rect width="3" height="3" fill="#f00"/>');
    const part = await callBlock("blur@1", {
      image: whole,
      zone: [
        [0, 0],
        [20, 0],
        [0, 20],
      ],
    });
    expect(pixelOf(imageOf(part.outputs.image), 0, 0)).not.toEqual(RED);
  });
});

describe("a drawing", () => {
  it("takes no text for anything but a text", async () => {
    const image = await drawnImage(200, 100);
    const hostile = '</text><rect width="200" height="100" fill="#ff0000"/><text>&\u0000]]>';
    const detections = detectionsOn(image, { class: hostile, bbox: [5, 50, 20, 60] });
    const labels = await callBlock("draw_labels@1", { image, detections });
    const zone = [
      [10, 60],
      [60, 60],
      [60, 90],
    ];
    const zones = await callBlock("draw_zones@1", { image, zone, label: hostile });
    const line = [
      [10, 80],
      [60, 80],
    ];
    const lines = await callBlock("draw_lines@1", { image, line, label: hostile });
    for (const { outputs } of [labels, zones, lines]) {
      expect(pixelOf(imageOf(outputs.image), 190, 10)).toEqual(BLACK);
      expect(pixelOf(imageOf(outputs.image), 2, 98)).toEqual(BLACK);
    }
    await expect(
      callBlock("draw_boxes@1", { image, detections }, { parameters: { colour: '"/><script>' } }),
    ).rejects.toThrow(/colour/);
  });

  it("has one colour for a class or track, on every image", async () => {
    const image = await drawnImage(60, 40);
    const boxes = [
      [4, 4, 14, 14],
      [24, 4, 34, 14],
      [44, 4, 54, 14],
    ] as [number, number, number, number][];
    const colours = async (names: string[], parameters: Record<string, unknown>) => {
      const objects = names.map((name, index) => ({
        class: name,
        track_id: index,
        bbox: boxes[index] as [number, number, number, number],
      }));
      const detections = detectionsOn(image, ...objects);
      const { outputs } = await callBlock(
        "draw_boxes@1",
        { image, detections },
        {
          parameters: { thickness: 4, ...parameters },
        },
      );
      return boxes.map(([x, y]) => pixelOf(imageOf(outputs.image), x, y).join());
    };
    const [first, second, third] = await colours(["dog", "cat", "dog"], {});
    expect([first === second, first === third]).toEqual([false, true]);
    expect((await colours(["cat", "dog", "dog"], {}))[0]).toBe(second);
    expect(new Set(await colours(["dog", "dog", "dog"], { colour_by: "track" })).size).toBe(3);
  });

  it("shows masks where they are on a smaller copy", async () => {
    const image = await drawnImage(40, 40);
    const mask = Uint8Array.from({ length: 1_600 }, (_, index) => (index % 40 < 20 ? 1 : 0));
    const rle = encodeRle(mask, 40, 40);
    const masks = detectionsOn(image, { bbox: [0, 0, 20, 40], mask: rle });
    const half = await callBlock(
      "resize@1",
      { image },
      {
        parameters: { mode: "stretch", width: 20, height: 10 },
      },
    );
    const { outputs } = await callBlock(
      "draw_masks@1",
      { image: half.outputs.image, masks },
      {
        parameters: { colour: "#ff0000", opacity: 1 },
      },
    );
    const drawn = imageOf(outputs.image);
    expect([9, 10].map((x) => pixelOf(drawn, x, 5))).toEqual([RED, BLACK]);
  });

  it("follows tracks through frames, and forgets those that are gone", async () => {
    const image = await drawnImage(60, 20);
    let state: unknown = null;
    const step = async (x: number, ids: number[]) => {
      const objects = ids.map((track_id) => ({
        track_id,
        bbox: [x, 6, x + 8, 14] as [number, number, number, number],
      }));
      const result = await callBlock(
        "draw_tracks@1",
        { image, tracks: detectionsOn(image, ...objects) },
        { state, parameters: { length: 3, colour: "#ff0000", thickness: 2 } },
      );
      // What a host keeps is JSON.
      state = JSON.parse(JSON.stringify(result.state));
      return imageOf(result.outputs.image);
    };
    for (const x of [0, 10, 20]) await step(x, [7]);
    const drawn = await step(30, [7]);
    // Three points: the oldest one, at 4, is no part of it any more.
    expect([5, 16, 30].map((x) => pixelOf(drawn, x, 10))).toEqual([BLACK, RED, RED]);
    for (const _ of [1, 2, 3]) await step(0, []);
    expect(state).toEqual({ frame: 7, trails: [] });
  });

  it("remembers the trails seen last, as many as a stream has room for", async () => {
    const image = await drawnImage(60, 20);
    const before = Array.from({ length: 300 }, (_, index) => ({ id: 1 + index, seen: 7 }));
    const points = Array.from({ length: 300 }, (): [number, number] => [1234.5, 1234.5]);
    const state = { frame: 7, trails: before.map((trail) => ({ ...trail, points })) };
    const tracks = detectionsOn(image, { track_id: 999, bbox: [1.23, 6, 9, 14] });
    const parameters = { length: 300 };
    const result = await callBlock("draw_tracks@1", { image, tracks }, { state, parameters });
    const text = JSON.stringify(result.state);
    expect(text.length).toBeLessThan(201_000);
    const { trails } = result.state as { trails: { id: number; points: unknown }[] };
    expect(trails[0]).toMatchObject({ id: 999, points: [[5.1, 10]] });
    expect(trails.length).toBeGreaterThan(20);
  });
});

describe("barcodes", () => {
  it("are read where they are: linear ones, two on an image, turned ones, and none", async () => {
    const [ean, qr] = await Promise.all([
      writeCode("5901234123457", "EAN13"),
      writeCode("a ünï", "QRCode"),
    ]);
    const turned = await sharp(qr).rotate(90).toBuffer();
    const both = await sharp({
      create: { width: 700, height: 500, channels: 3, background: "#fff" },
    })
      .composite([
        { input: ean, left: 40, top: 300 },
        { input: turned, left: 400, top: 40 },
      ])
      .png()
      .toBuffer();
    const image = rootImage(await readStill(both));
    const { outputs } = await callBlock("barcode@1", { image });
    const { objects } = outputs.detections as ReturnType<typeof detectionsOn>;
    const told = objects.map(({ class: name, data }) => [name, data?.text]).sort();
    expect(told).toEqual([
      ["ean_13", "5901234123457"],
      ["qr_code", "a ünï"],
    ]);
    const code = objects.find(({ class: name }) => name === "qr_code");
    expect(code && code.bbox[0] >= 400 && code.bbox[3] < 300).toBe(true);
    const only = await callBlock("barcode@1", { image }, { parameters: { formats: ["ean_13"] } });
    expect(only.outputs.texts).toEqual(["5901234123457"]);
    const none = await callBlock("barcode@1", { image: await drawnImage(30, 30) });
    expect(none.outputs).toMatchObject({ texts: [], detections: { objects: [] } });
  });
});

it("measures sharpness: a blurred image has less, a plain one none", async () => {
  const sharpness = async (image: unknown) =>
    (await callBlock("image_properties@1", { image })).outputs.sharpness as number;
  const image = await drawnImage(40, 40, '<rect x="9" y="9" width="20" height="20" fill="#fff"/>');
  const blurred = await callBlock("blur@1", { image });
  expect(await sharpness(blurred.outputs.image)).toBeLessThan((await sharpness(image)) / 2);
  expect(await sharpness(await drawnImage(40, 40))).toBe(0);
});

describe("work on pixels", () => {
  it("is refused before parts are cut that a run could not hold", async () => {
    const pixels = { data: new Uint8Array(1_000 * 1_000 * 3), width: 1_000, height: 1_000 };
    const image = rootImage(pixels);
    const boxes = Array.from({ length: 200 }, () => ({
      bbox: [0, 0, 1_000, 1_000] as [number, number, number, number],
    }));
    const detections = detectionsOn(image, ...boxes);
    await expect(callBlock("crop@1", { image, detections })).rejects.toThrow(/bytes/);
  });

  it("is refused masks of more pixels than images have, and run lengths that fill none", async () => {
    const image = await drawnImage(40, 40);
    const drawn = (frame: object, mask: object) =>
      callBlock("draw_masks@1", {
        image,
        masks: { frame, objects: [{ class: "a", confidence: 1, bbox: [0, 0, 3, 3], mask }] },
      });
    const root = { width: 40, height: 40 };
    const frame = { width: 30_000, height: 30_000, offset: [0, 0], scale: [1, 1], root };
    const huge = { size: [30_000, 30_000], counts: [0, 9e8] };
    await expect(drawn(frame, huge)).rejects.toThrow(/million pixels/);
    const broken = { size: [40, 40], counts: [0, 7] };
    await expect(drawn({ ...root, offset: [0, 0], scale: [1, 1] }, broken)).rejects.toThrow(
      /run lengths of a mask/,
    );
  });

  it("ends at its bound", async () => {
    const work = new PixelWork(new AbortController().signal);
    await work.on(150_000_000);
    await expect(work.on(150_000_000)).rejects.toThrow(/200 million pixels/);
    await expect(new PixelWork(AbortSignal.abort()).on(1)).rejects.toThrow();
  });
});
