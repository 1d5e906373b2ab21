// Examples of what the embedded detector knows: found as it sees them, without the mask model
// unless a mask is worth it; examples of anything else are left to the search by likeness.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { cut } from "../../../gpu-node/media/image.ts";
import { CenterNet, readBoxes, type Scores } from "../../../gpu-node/segmenters/centernet.ts";
import { COCO_NAMES } from "../../../gpu-node/segmenters/coco-words.ts";
import { embeddedFiles } from "../../../gpu-node/segmenters/embedded-files.ts";
import { findSimilar, profilesOf } from "../../../gpu-node/segmenters/proposals.ts";
import { openSegmenter } from "../../../gpu-node/segmenters/registry.ts";
import { Sam } from "../../../gpu-node/segmenters/sam.ts";
import type { Segmenter } from "../../../gpu-node/segmenters/segmenter.ts";
import { iou } from "../../../shared/detector/tracks.ts";
import type { Bbox } from "../../../shared/tasks/tasks.ts";
import { bloodImage, boxOf, discs, videoFrames } from "../../support/images.ts";

const CELLS = 16;
const [HORSE, COW, CAKE] = ["horse", "cow", "cake"].map((name) => COCO_NAMES.indexOf(name));

/** Score maps with objects of 16 pixels a side at given cells; all else scores nothing. */
function scoresOf(objects: { cell: number; classes: Record<number, number> }[]): Scores {
  const plane = CELLS * CELLS;
  const classes = new Float32Array(80 * plane).fill(0.001);
  for (const object of objects)
    for (const [index, score] of Object.entries(object.classes))
      classes[Number(index) * plane + object.cell] = score;
  const sizes = new Float32Array(4 * plane).fill(8);
  return { classes, sizes, cells: CELLS, scale: 1, width: CELLS * 4, height: CELLS * 4 };
}
const cellAt = (x: number, y: number) => y * CELLS + x;
const profileOf = (scores: Scores, bbox: Bbox) => profilesOf([{ scores, bbox }])?.[0] ?? null;
const boxAt = (x: number, y: number): Bbox => [x * 4 - 8, y * 4 - 8, x * 4 + 8, y * 4 + 8];
const classes = (horse: number, cow: number) => ({ [HORSE ?? 0]: horse, [COW ?? 0]: cow });

describe("the detector's boxes", () => {
  it("stand where a class scores as much as in every cell around, and nowhere else", () => {
    const scores = scoresOf([
      { cell: cellAt(4, 4), classes: classes(0.6, 0) },
      { cell: cellAt(5, 5), classes: classes(0.5, 0.3) },
      { cell: cellAt(12, 12), classes: classes(0.06, 0) },
    ]);
    const boxes = readBoxes(scores, [HORSE ?? 0], 0.05);
    expect(boxes.map(({ bbox }) => bbox)).toEqual([boxAt(4, 4), boxAt(12, 12)]);
    expect(readBoxes(scores, [COW ?? 0], 0.05).map(({ bbox }) => bbox)).toEqual([boxAt(5, 5)]);
    expect(readBoxes(scores, [HORSE ?? 0], 0.5)).toHaveLength(1);
  });
});

describe("a profile", () => {
  it("is of a box that one class has most of, and that fits the example", () => {
    const sure = scoresOf([{ cell: cellAt(8, 8), classes: classes(0.5, 0.2) }]);
    expect(profileOf(sure, boxAt(8, 8))).not.toBeNull();
    // Half a box off: a third of the union.
    expect(profileOf(sure, [32, 24, 48, 40])).toBeNull();
    const torn = Object.fromEntries(COCO_NAMES.map((_, index) => [index, 0.2]));
    const unsure = scoresOf([{ cell: cellAt(8, 8), classes: torn }]);
    expect(profileOf(unsure, boxAt(8, 8))).toBeNull();
    const faint = scoresOf([{ cell: cellAt(8, 8), classes: { [CAKE ?? 0]: 0.04 } }]);
    expect(profileOf(faint, boxAt(8, 8))).toBeNull();
  });

  it("is taken of several examples where they are known together, not by one of many", () => {
    const one = scoresOf([{ cell: cellAt(8, 8), classes: classes(0.5, 0.2) }]);
    const known = { scores: one, bbox: boxAt(8, 8) };
    const unknown = { scores: one, bbox: boxAt(2, 2) };
    expect(profilesOf([known, known])).toHaveLength(2);
    expect(profilesOf([known, unknown])).toHaveLength(1);
    expect(profilesOf([known, ...Array(5).fill(unknown)])).toBeNull();
  });

  it("finds what is seen the same way first, whatever class that is called by", () => {
    const mule = profileOf(
      scoresOf([{ cell: cellAt(8, 8), classes: classes(0.3, 0.3) }]),
      boxAt(8, 8),
    );
    const horse = profileOf(
      scoresOf([{ cell: cellAt(8, 8), classes: classes(0.6, 0.01) }]),
      boxAt(8, 8),
    );
    if (!mule || !horse) throw new Error("both are known");
    const scores = scoresOf([
      { cell: cellAt(3, 3), classes: classes(0.5, 0.5) },
      { cell: cellAt(11, 3), classes: classes(0.5, 0.01) },
      { cell: cellAt(3, 11), classes: { [CAKE ?? 0]: 0.5 } },
    ]);
    const byMule = findSimilar(scores, [mule], 0.05);
    expect(byMule.slice(0, 2).map(({ bbox }) => bbox)).toEqual([boxAt(3, 3), boxAt(11, 3)]);
    // Seen exactly so, a score of a half is worth its root; a cake is nothing like a mule.
    expect(byMule[0]?.confidence).toBeCloseTo(Math.SQRT1_2, 1);
    expect(byMule[1]?.confidence).toBeLessThan(0.4);
    expect(byMule).toHaveLength(2);
    // Of several examples the nearest counts.
    const byBoth = findSimilar(scores, [mule, horse], 0.5);
    expect(byBoth.map(({ bbox }) => bbox).sort()).toEqual([boxAt(11, 3), boxAt(3, 3)].sort());
    expect(findSimilar(scores, [mule], 0.9)).toEqual([]);
  });
});

describe("the embedded default", () => {
  const modelsDir = mkdtempSync(join(tmpdir(), "vantage-proposals-"));
  const encodes = vi.spyOn(Sam.prototype, "encode");
  let segmenter: Segmenter;
  beforeAll(async () => {
    segmenter = await openSegmenter(null, { modelsDir, cpuThreads: 2, log: () => {} });
  });
  beforeEach(() => {
    encodes.mockClear();
  });
  afterAll(async () => {
    await segmenter?.dispose();
    encodes.mockRestore();
    rmSync(modelsDir, { recursive: true, force: true });
  });

  const looks = async (image: Parameters<Segmenter["encode"]>[0], text: string) => {
    const before = encodes.mock.calls.length;
    const encoded = await segmenter.encode(image);
    const options = { confidenceMin: 0.05, masks: true };
    const [found = []] = await segmenter.detect(encoded, [segmenter.resolve(text)], options);
    encoded.dispose();
    return { found, encodes: encodes.mock.calls.length - before };
  };

  it("looks with the mask model only where a box is worth a mask", async () => {
    const disc = discs({ width: 320, height: 200 }, [{ x: 120, y: 90, radius: 30 }]);
    const faint = await looks(disc, "traffic light");
    expect(faint.found[0]?.confidence).toBeLessThan(0.25);
    expect(faint.found[0]?.polygon).toBeNull();
    expect(faint.encodes).toBe(0);
    const sure = await looks(disc, "frisbee");
    expect(sure.found[0]?.confidence).toBeGreaterThan(0.25);
    expect(sure.found[0]?.polygon).not.toBeNull();
    expect(sure.encodes).toBe(1);
  });

  it("finds bottles by one bottle, by its box and by its crop, for one look a frame", async () => {
    const frames = await videoFrames("video/bottle-detection.mp4", [2, 12]);
    const [first, other] = frames ?? [];
    if (!first || !other) return;
    // Read off the frames by eye.
    const example: Bbox = [508, 106, 573, 315];
    const bottles: Bbox[] = [
      [69, 82, 132, 281],
      [287, 109, 345, 313],
      [508, 106, 573, 315],
    ];
    const crop = cut(first, example);
    for (const one of [
      { image: first, bbox: example },
      { image: crop, bbox: null },
    ]) {
      encodes.mockClear();
      const exemplar = await segmenter.prepareExemplar([one]);
      const encoded = await segmenter.encode(other);
      const boxes = { confidenceMin: 0.5, masks: false };
      const [plain = []] = await segmenter.detect(encoded, [exemplar], boxes);
      expect(encodes).not.toHaveBeenCalled();
      const [masked = []] = await segmenter.detect(encoded, [exemplar], { ...boxes, masks: true });
      expect(encodes).toHaveBeenCalledTimes(1);
      for (const found of [plain, masked]) {
        expect(found).toHaveLength(3);
        for (const bottle of bottles)
          expect(Math.max(...found.map(({ bbox }) => iou(bbox, bottle)))).toBeGreaterThan(0.75);
      }
      expect(masked.every(({ polygon }) => polygon !== null)).toBe(true);
      encoded.dispose();
    }
  });

  it("leaves what the detector does not know to the search by likeness", async () => {
    const disc = { x: 120, y: 90, radius: 30 };
    const image = discs({ width: 320, height: 200 }, [disc]);
    await segmenter.prepareExemplar([{ image, bbox: boxOf(disc) }]);
    expect(encodes).toHaveBeenCalledTimes(1);
    // The benchmark's three examples of each kind of cell, which it takes for cakes and donuts.
    const net = await CenterNet.open(await embeddedFiles(modelsDir), {
      cpuThreads: 2,
      device: "cpu",
    });
    const known: string[] = [];
    let cells = 0;
    for (const id of TRAIN) {
      const blood = await bloodImage(id);
      if (!blood) break;
      const scores = await net.look(blood.image);
      for (const { name, bbox } of blood.truth) {
        cells += 1;
        if (profileOf(scores, bbox)) known.push(`${id} ${name}`);
      }
    }
    await net.dispose();
    expect(known.length).toBeLessThanOrEqual(cells * 0.05);
  });
});

const TRAIN = ["BloodImage_00001", "BloodImage_00003", "BloodImage_00004", "BloodImage_00009"];
