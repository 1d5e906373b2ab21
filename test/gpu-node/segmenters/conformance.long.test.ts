// What every segmenter owes its callers, whichever model is inside: the embedded default, and the
// SAM 2.1 and SAM 3 adapters over stand-ins with the exact names and shapes of the exports.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { RgbImage } from "../../../gpu-node/media/image.ts";
import { PromptUnknown, UnsupportedRequest } from "../../../gpu-node/segmenters/failures.ts";
import { decodeRle, tightBox, wholeWindow } from "../../../gpu-node/segmenters/masks.ts";
import { listSegmenters, openSegmenter } from "../../../gpu-node/segmenters/registry.ts";
import type {
  Detection,
  EncodedImage,
  Exemplar,
  Segmenter,
} from "../../../gpu-node/segmenters/segmenter.ts";
import { iou } from "../../../shared/detector/tracks.ts";
import type { Bbox } from "../../../shared/tasks/tasks.ts";
import { boxOf, discs, videoFrames } from "../../support/images.ts";
import {
  sam2Files,
  sam2Manifest,
  sam3Files,
  sam3Manifest,
  writeBundle,
} from "../../support/stand-ins.ts";

const modelsDir = mkdtempSync(join(tmpdir(), "vantage-conformance-"));
const log = () => {};
const open = (name: string | null) => openSegmenter(name, { modelsDir, cpuThreads: 2, log });

const SIZE = { width: 320, height: 200 };
const DISC = { x: 120, y: 90, radius: 30 };
const IMAGE = discs(SIZE, [DISC]);
const WITH_MASKS = { confidenceMin: 0.05, masks: true };

beforeAll(() => {
  writeBundle(join(modelsDir, "sam2-stand-in"), sam2Manifest(), sam2Files());
  writeBundle(join(modelsDir, "sam3-stand-in"), sam3Manifest(), sam3Files());
});
afterAll(() => rmSync(modelsDir, { recursive: true, force: true }));

/** A word that the segmenter finds the disc, or nothing, by. */
const WORDS: Record<string, string> = { builtin: "sports ball", "sam3-stand-in": "disc" };

function checkFound(found: readonly Detection[], image: RgbImage, options: typeof WITH_MASKS) {
  const confidences = found.map(({ confidence }) => confidence);
  expect(confidences).toEqual([...confidences].sort((a, b) => b - a));
  for (const { bbox, confidence, polygon } of found) {
    expect(confidence).toBeGreaterThanOrEqual(options.confidenceMin);
    expect(confidence).toBeLessThanOrEqual(1);
    const [x1, y1, x2, y2] = bbox;
    expect(x2).toBeGreaterThan(x1);
    expect(y2).toBeGreaterThan(y1);
    expect(Math.min(x1, y1)).toBeGreaterThanOrEqual(0);
    expect(x2).toBeLessThanOrEqual(image.width);
    expect(y2).toBeLessThanOrEqual(image.height);
    if (!options.masks) expect(polygon).toBeNull();
    if (!polygon) continue;
    expect(polygon.length % 2).toBe(0);
    expect(polygon.length).toBeGreaterThanOrEqual(6);
    const xs = polygon.filter((_, index) => index % 2 === 0);
    const ys = polygon.filter((_, index) => index % 2 === 1);
    expect(Math.min(...xs, ...ys)).toBeGreaterThanOrEqual(0);
    expect(Math.max(...xs)).toBeLessThanOrEqual(image.width);
    expect(Math.max(...ys)).toBeLessThanOrEqual(image.height);
  }
}

describe.each(["builtin", "sam2-stand-in", "sam3-stand-in"])("the segmenter %s", (name) => {
  let segmenter: Segmenter;
  let encoded: EncodedImage;
  beforeAll(async () => {
    segmenter = await open(name);
    encoded = await segmenter.encode(IMAGE);
  });
  afterAll(() => segmenter?.dispose());

  const textOf = () => segmenter.resolve(WORDS[name] ?? "disc");
  let prepared: Promise<Exemplar> | null = null;
  const exemplarOf = () => {
    prepared ??= segmenter.prepareExemplar([{ image: IMAGE, bbox: boxOf(DISC) }]);
    return prepared;
  };
  const reads = () => segmenter.info.text !== "none";
  const matches = () => segmenter.info.exemplar !== "none";

  it("says of itself, open, what the list says without opening it", async () => {
    const listed = (await listSegmenters(modelsDir)).find((info) => info.name === name);
    expect(segmenter.info).toEqual(listed);
    expect(segmenter.info.licence).not.toBe("");
    expect(segmenter.info.limits.length).toBeGreaterThan(0);
  });

  it("describes an image by a vector of unit length, alike images by near ones", async () => {
    const vectorOf = async (image: RgbImage) => {
      const seen = await segmenter.encode(image);
      const vector = await segmenter.describe(seen);
      seen.dispose();
      await expect(segmenter.describe(seen)).rejects.toThrow(/disposed/);
      return vector;
    };
    const vector = await vectorOf(IMAGE);
    expect(Math.hypot(...vector)).toBeCloseTo(1, 4);
    expect(await vectorOf(IMAGE)).toEqual(vector);
    const moved = discs(SIZE, [{ ...DISC, x: DISC.x + 16 }]);
    const many = [30, 90, 150, 210, 270].map((x) => ({ x, y: 100, radius: 12 }));
    const distance = (to: Float32Array) =>
      Math.hypot(...vector.map((one, index) => one - (to[index] ?? 0)));
    const other = await vectorOf(discs({ width: 200, height: 320 }, many));
    expect(distance(await vectorOf(moved))).toBeLessThan(distance(other));
  });

  it("understands every word of its vocabulary, and refuses others with advice", () => {
    const { text, vocabulary, meanings } = segmenter.info;
    expect(vocabulary.length > 0).toBe(text === "closed");
    for (const word of vocabulary) {
      expect(segmenter.resolve(word).ids.length).toBeGreaterThan(0);
      const told = segmenter.resolve(word).warning !== null;
      expect([word, told]).toEqual([word, meanings[word]?.narrower === true]);
    }
    for (const unknown of text === "open" ? ["", "  "] : ["xylophonist", ""])
      expect(() => segmenter.resolve(unknown)).toThrow(PromptUnknown);
    if (text === "open") expect(segmenter.resolve("xylophonist").ids).toEqual(["xylophonist"]);
    else expect(() => segmenter.resolve("qqq")).toThrow(/npm run models -- install/);
  });

  it("answers each prompt with its own list, in their order, boxes within the picture", async () => {
    if (!reads()) {
      expect(await segmenter.detect(encoded, [], WITH_MASKS)).toEqual([]);
      return;
    }
    const prompts = [textOf(), ...(matches() ? [await exemplarOf()] : []), textOf()];
    const answers = await segmenter.detect(encoded, prompts, WITH_MASKS);
    expect(answers).toHaveLength(prompts.length);
    for (const found of answers) checkFound(found, IMAGE, WITH_MASKS);
    expect(answers.at(-1)).toEqual(answers[0]);
  });

  it("finds the same again, and with masks no other objects than without", async () => {
    if (!reads()) return;
    const plain = { confidenceMin: 0.05, masks: false };
    const prompts = [textOf(), ...(matches() ? [await exemplarOf()] : [])];
    const first = await segmenter.detect(encoded, prompts, plain);
    expect(await segmenter.detect(encoded, prompts, plain)).toEqual(first);
    const masked = await segmenter.detect(encoded, prompts, WITH_MASKS);
    expect(masked.map((found) => found.map(({ confidence }) => confidence))).toEqual(
      first.map((found) => found.map(({ confidence }) => confidence)),
    );
    for (const found of first) checkFound(found, IMAGE, plain);
  });

  it("keeps what is below the asked confidence to itself", async () => {
    if (!matches()) return;
    const [all] = await segmenter.detect(encoded, [await exemplarOf()], WITH_MASKS);
    const best = all?.[0]?.confidence ?? 0;
    const above = { confidenceMin: best + 0.001, masks: true };
    expect(await segmenter.detect(encoded, [await exemplarOf()], above)).toEqual([[]]);
  });

  it("finds an example again in its own picture, in another, and by a crop of it", async () => {
    if (!matches()) {
      await expect(exemplarOf()).rejects.toThrow(UnsupportedRequest);
      return;
    }
    const other = { x: 160, y: 120, radius: 28 };
    const elsewhere = discs(SIZE, [other], 7);
    const looked = await segmenter.encode(elsewhere);
    const crop = discs({ width: 64, height: 64 }, [{ x: 32, y: 32, radius: 30 }], 3);
    const byCrop = await segmenter.prepareExemplar([{ image: crop, bbox: null }]);
    const options = { confidenceMin: 0.3, masks: true };
    for (const [image, exemplar, disc] of [
      [encoded, await exemplarOf(), DISC],
      [looked, await exemplarOf(), other],
      [looked, byCrop, other],
    ] as const) {
      const [found] = await segmenter.detect(image, [exemplar], options);
      expect(found?.map(({ bbox }) => iou(bbox, boxOf(disc)) > 0.8)).toEqual([true]);
    }
    looked.dispose();
    await expect(segmenter.prepareExemplar([])).rejects.toThrow(UnsupportedRequest);
  });

  it("masks what a box or a click points at, best first", async () => {
    const box = boxOf(DISC);
    const click = [{ x: DISC.x, y: DISC.y, label: 1 as const }];
    if (!segmenter.info.points) {
      await expect(segmenter.segment(encoded, { points: click, box })).rejects.toThrow(
        UnsupportedRequest,
      );
      return;
    }
    const off = [...click, { x: 5, y: 5, label: 0 as const }];
    for (const prompt of [
      { points: [], box },
      { points: click, box },
      { points: click, box: null },
      { points: off, box: null },
    ]) {
      const masks = await segmenter.segment(encoded, prompt);
      expect(masks.length).toBeGreaterThan(0);
      for (const { mask, score } of masks) {
        expect(mask).toHaveLength(SIZE.width * SIZE.height);
        expect(mask.every((on) => on === 0 || on === 1)).toBe(true);
        expect(score).toBeGreaterThanOrEqual(0);
        expect(score).toBeLessThanOrEqual(1);
      }
      const tight = tightBox(wholeWindow(masks[0]?.mask as Uint8Array, SIZE.width, SIZE.height));
      expect(iou(tight ?? [0, 0, 0, 0], box)).toBeGreaterThan(0.85);
    }
    const nothing = segmenter.segment(encoded, { points: [], box: null });
    await expect(nothing).rejects.toThrow(UnsupportedRequest);
  });

  it("keeps pictures of other sizes and shapes apart", async () => {
    for (const size of [
      { width: 17, height: 90 },
      { width: 640, height: 31 },
      { width: 1, height: 1 },
    ]) {
      const image = discs(size, [{ x: 8, y: 8, radius: 6 }]);
      const other = await segmenter.encode(image);
      if (reads()) {
        const [found] = await segmenter.detect(other, [textOf()], WITH_MASKS);
        checkFound(found ?? [], image, WITH_MASKS);
      }
      if (segmenter.info.points) {
        const box = [0, 0, size.width, size.height] as [number, number, number, number];
        for (const { mask } of await segmenter.segment(other, { points: [], box }))
          expect(mask).toHaveLength(size.width * size.height);
      }
      other.dispose();
    }
    if (!segmenter.info.points) return;
    const [again] = await segmenter.segment(encoded, { points: [], box: boxOf(DISC) });
    expect(again?.mask).toHaveLength(SIZE.width * SIZE.height);
  });

  it("refuses a picture that was disposed of, and one that another segmenter prepared", async () => {
    const gone = await segmenter.encode(IMAGE);
    gone.dispose();
    const foreign = { ...SIZE, dispose: () => {} };
    const box = boxOf(DISC);
    for (const image of [gone, foreign]) {
      if (reads()) await expect(segmenter.detect(image, [textOf()], WITH_MASKS)).rejects.toThrow();
      if (segmenter.info.points)
        await expect(segmenter.segment(image, { points: [], box })).rejects.toThrow();
    }
  });
});

describe("the registry", () => {
  it("opens the embedded default for no name, and says what there is for a wrong one", async () => {
    const segmenter = await open(null);
    expect(segmenter.info.name).toBe("builtin");
    await segmenter.dispose();
    await expect(open("sam9")).rejects.toThrow(
      /No segmenter "sam9".*builtin, sam2-stand-in, sam3-stand-in.*npm run models -- install/,
    );
  });

  it("lists the embedded default first, and alone where nothing is installed", async () => {
    const names = (infos: { name: string }[]) => infos.map(({ name }) => name);
    expect(names(await listSegmenters(modelsDir))).toEqual([
      "builtin",
      "sam2-stand-in",
      "sam3-stand-in",
    ]);
    expect(names(await listSegmenters(join(modelsDir, "nowhere")))).toEqual(["builtin"]);
  });

  it("runs on the CPU, with a warning, where a GPU is asked for that is not there", async () => {
    const warnings: string[] = [];
    const segmenter = await openSegmenter("sam2-stand-in", {
      modelsDir,
      cpuThreads: 1,
      device: "cuda",
      log: (_level, event) => warnings.push(event),
    });
    const device = segmenter.info.device;
    await segmenter.dispose();
    expect(device === "cuda" ? [] : warnings).toEqual(
      device === "cuda" ? [] : ["cuda_provider_unusable"],
    );
  });
});

describe("the embedded default on a real street", () => {
  it("boxes cars by text without waking the mask model, and masks them when asked", async (test) => {
    const frames = await videoFrames("video/car-detection.mp4", [8]);
    const [image] = frames ?? [];
    if (!image) return test.skip();
    const opened: string[] = [];
    const note = (_level: string, event: string) => opened.push(event);
    const segmenter = await openSegmenter(null, { modelsDir, cpuThreads: 2, log: note });
    const encoded = await segmenter.encode(image);
    const prompts = [segmenter.resolve("cars"), segmenter.resolve("toothbrush")];
    const [cars = [], none] = await segmenter.detect(encoded, prompts, {
      confidenceMin: 0.4,
      masks: false,
    });
    expect(cars.length).toBeGreaterThan(0);
    expect(none).toEqual([]);
    expect(opened).toEqual([]);
    const [masked = []] = await segmenter.detect(encoded, prompts, {
      confidenceMin: 0.4,
      masks: true,
      runs: true,
    });
    const [{ polygon: ring = null, rle } = {}] = masked;
    const { width, height } = image;
    const whole = decodeRle(rle ?? { size: [0, 0], counts: [] });
    const bounds = tightBox(wholeWindow(whole, width, height)) ?? [0, 0, 0, 0];
    const corner = (at: 0 | 1, pick: (...values: number[]) => number) =>
      pick(...(ring ?? []).filter((_, index) => index % 2 === at));
    const outline: Bbox = [
      corner(0, Math.min),
      corner(1, Math.min),
      corner(0, Math.max),
      corner(1, Math.max),
    ];
    expect(iou(bounds, outline)).toBeGreaterThan(0.9);
    expect(opened).toEqual(["segmenter_model_opened"]);
    expect(masked.length).toBe(cars.length);
    expect(masked[0]?.polygon?.length).toBeGreaterThan(6);
    expect(iou(masked[0]?.bbox ?? [0, 0, 0, 0], cars[0]?.bbox ?? [0, 0, 0, 0])).toBeGreaterThan(
      0.7,
    );
    await segmenter.dispose();
  });
});
