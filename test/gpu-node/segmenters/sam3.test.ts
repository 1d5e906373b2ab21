// What is SAM 3's own: its tokenizer, presence times logit, boxes as examples with labels, and
// what is found on an example pasted beside the frame being discarded.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ClipTokenizer } from "../../../gpu-node/segmenters/clip-tokenizer.ts";
import { besideImage } from "../../../gpu-node/segmenters/example-column.ts";
import { BundleBroken } from "../../../gpu-node/segmenters/failures.ts";
import { decodeRle, tightBox, wholeWindow } from "../../../gpu-node/segmenters/masks.ts";
import { openSegmenter } from "../../../gpu-node/segmenters/registry.ts";
import type { Segmenter } from "../../../gpu-node/segmenters/segmenter.ts";
import { iou } from "../../../shared/detector/tracks.ts";
import { boxOf, discs } from "../../support/images.ts";
import {
  MERGES,
  PRESENCE,
  SAM3_LOGIT,
  sam3Files,
  sam3Manifest,
  writeBundle,
} from "../../support/stand-ins.ts";

const modelsDir = mkdtempSync(join(tmpdir(), "vantage-sam3-"));
const open = () => openSegmenter("sam3-stand-in", { modelsDir, cpuThreads: 2, log: () => {} });
const sigmoid = (logit: number) => 1 / (1 + Math.exp(-logit));

const SIZE = { width: 320, height: 200 };
const DISC = { x: 120, y: 90, radius: 30 };
const IMAGE = discs(SIZE, [DISC]);
const ALL = { confidenceMin: 0.01, masks: true };

let segmenter: Segmenter;
beforeAll(async () => {
  writeBundle(join(modelsDir, "sam3-stand-in"), sam3Manifest(), sam3Files());
  segmenter = await open();
});
afterAll(async () => {
  await segmenter?.dispose();
  rmSync(modelsDir, { recursive: true, force: true });
});

describe("SAM 3", () => {
  it("is as sure as its logit times its presence", async () => {
    const encoded = await segmenter.encode(IMAGE);
    const exemplar = await segmenter.prepareExemplar([{ image: IMAGE, bbox: boxOf(DISC) }]);
    const [byText, byExample, none] = await segmenter.detect(
      encoded,
      [segmenter.resolve("disc"), exemplar, segmenter.resolve("square")],
      ALL,
    );
    const sure = (presence: number) => sigmoid(SAM3_LOGIT) * sigmoid(presence);
    expect(byText?.[0]?.confidence).toBeCloseTo(sure(PRESENCE.text), 5);
    expect(byExample?.[0]?.confidence).toBeCloseTo(sure(PRESENCE.example), 5);
    expect(none).toEqual([]);
    expect(iou(byText?.[0]?.bbox ?? [0, 0, 0, 0], boxOf(DISC))).toBeGreaterThan(0.9);
  });

  it("gives the decoder's box without masks, and the mask's with them", async () => {
    const encoded = await segmenter.encode(IMAGE);
    const prompts = [segmenter.resolve("disc")];
    const [[plain] = []] = await segmenter.detect(encoded, prompts, { ...ALL, masks: false });
    const [[masked] = []] = await segmenter.detect(encoded, prompts, ALL);
    expect(plain?.polygon).toBeNull();
    expect(masked?.polygon?.length).toBeGreaterThan(8);
    expect(masked?.rle).toBeUndefined();
    const [[whole] = []] = await segmenter.detect(encoded, prompts, { ...ALL, runs: true });
    const mask = decodeRle(whole?.rle ?? { size: [0, 0], counts: [] });
    expect(tightBox(wholeWindow(mask, SIZE.width, SIZE.height))).toEqual(masked?.bbox);
    // A cell of its masks is 1.1 pixels wide here, so corners agree to about two.
    masked?.bbox.forEach((side, at) => {
      expect(Math.abs(side - (plain?.bbox[at] ?? 0))).toBeLessThan(2);
    });
  });

  it("hears negative examples as such, and wants a positive one", async () => {
    const encoded = await segmenter.encode(IMAGE);
    const negative = { image: IMAGE, bbox: boxOf(DISC), label: 0 as const };
    await expect(segmenter.prepareExemplar([negative])).rejects.toThrow(/at least one/);
    const both = await segmenter.prepareExemplar([
      { image: IMAGE, bbox: boxOf(DISC) },
      { ...negative, bbox: [0, 0, 40, 40] },
    ]);
    const [found] = await segmenter.detect(encoded, [both], ALL);
    expect(found).toHaveLength(1);
  });

  it("says when a prompt is too long for it", () => {
    expect(segmenter.resolve("disc").warning).toBeNull();
    expect(segmenter.resolve("q".repeat(40)).warning).toMatch(/30 tokens; the last 10/);
  });

  it("is a broken bundle when its tokenizer's vocabulary does not fit", async () => {
    const files = { ...sam3Files(), "vocab.json": '{"a": "b"}' };
    const manifest = sam3Manifest("sam3-spoilt");
    writeBundle(join(modelsDir, "sam3-spoilt"), manifest, files, (one) => ({
      ...one,
      tokenizer: { ...manifest.tokenizer, vocabulary: "vocab.json" },
    }));
    const opening = openSegmenter("sam3-spoilt", { modelsDir, cpuThreads: 1, log: () => {} });
    await expect(opening).rejects.toThrow(BundleBroken);
  });
});

describe("a picture with examples beside it", () => {
  it("keeps the frame as it is and puts each example's box on its object", async () => {
    const other = discs({ width: 400, height: 300 }, [{ x: 200, y: 150, radius: 50 }], 5);
    const crop = discs({ width: 60, height: 50 }, [{ x: 30, y: 25, radius: 20 }], 6);
    const { image, boxes } = await besideImage(IMAGE, [
      { image: other, bbox: [150, 100, 250, 200] },
      { image: crop, bbox: null, label: 0 },
    ]);
    expect(image.height).toBe(SIZE.height);
    for (const y of [0, 90, 199])
      expect(
        Buffer.compare(
          image.data.subarray(y * image.width * 3, y * image.width * 3 + SIZE.width * 3),
          IMAGE.data.subarray(y * SIZE.width * 3, (y + 1) * SIZE.width * 3),
        ),
      ).toBe(0);
    expect(boxes.map(({ label }) => label)).toEqual([1, 0]);
    for (const { bbox } of boxes) {
      expect(bbox[0]).toBeGreaterThanOrEqual(SIZE.width);
      expect(bbox[2]).toBeLessThanOrEqual(image.width);
      expect(bbox[3]).toBeLessThanOrEqual(image.height);
      const at = [(bbox[0] + bbox[2]) / 2, (bbox[1] + bbox[3]) / 2].map(Math.floor);
      const pixel = ((at[1] ?? 0) * image.width + (at[0] ?? 0)) * 3;
      expect(image.data[pixel]).toBeGreaterThan(200);
    }
    expect(image.width).toBeLessThan(SIZE.width * 1.4);
  });

  it("bears frames and examples of any size", async () => {
    const tiny = discs({ width: 1, height: 1 }, []);
    const tall = discs({ width: 3, height: 500 }, []);
    for (const frame of [tiny, tall, IMAGE])
      for (const image of [tiny, tall, IMAGE]) {
        const beside = await besideImage(frame, Array(5).fill({ image, bbox: null }));
        expect(beside.boxes).toHaveLength(5);
      }
  });
});

describe("CLIP's tokenizer", () => {
  const tokenizer = (merges: string, pad: "end" | "zero" = "end") =>
    new ClipTokenizer({ merges, vocabulary: null, length: 8, pad });
  const merges = 8;
  const start = 512 + merges;
  const end = start + 1;

  it("numbers bytes, word ends, merges, start and end as CLIP does", () => {
    // "!" is CLIP's token 0, "a" its 64, and "a</w>" its 320.
    expect(tokenizer(MERGES).encode("a").ids).toEqual([start, 320, end, ...Array(5).fill(end)]);
    expect(tokenizer(MERGES, "zero").encode("a !").ids).toEqual([start, 320, 256, end, 0, 0, 0, 0]);
    expect(tokenizer(MERGES).encode("a").mask).toEqual([1, 1, 1, 0, 0, 0, 0, 0]);
  });

  it("merges the earliest learnt pairs first, whatever the case and spacing", () => {
    expect(tokenizer(MERGES).encode("  Disc  ").ids.slice(0, 3)).toEqual([start, 514, end]);
    expect(tokenizer(MERGES).encode("visual disc").ids.slice(0, 4)).toEqual([start, 519, 514, end]);
    // "dis" has the pair "di" but not "sc</w>".
    expect(tokenizer(MERGES).encode("dis").ids.slice(0, 4)).toEqual([start, 512, 338, end]);
  });

  it("splits words, numbers and signs, and writes any script in bytes", () => {
    expect(tokenizer(MERGES).encode("a1").cut).toBe(0);
    expect(tokenizer(MERGES).encode("a1").ids.slice(1, 3)).toEqual([320, 272]);
    expect(tokenizer(MERGES).encode("駅").ids[4]).toBe(end);
    expect(tokenizer(MERGES).encode("").ids).toEqual([start, end, ...Array(6).fill(end)]);
  });

  it("cuts what does not fit and keeps the end", () => {
    const { ids, mask, cut } = tokenizer(MERGES).encode("abcdefghij");
    expect(ids).toHaveLength(8);
    expect(ids.at(-1)).toBe(end);
    expect(mask).toEqual(Array(8).fill(1));
    expect(cut).toBe(4);
  });
});
