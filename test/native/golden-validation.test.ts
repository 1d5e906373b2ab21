// The engine's losses of validation against the reference's: of letterboxed images with the
// averaged weights, by the statistics of evaluation.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { DetectorGraph } from "../../shared/detector/detector.ts";
import { native } from "./engine.ts";
import { type RgbImage, writeDataset } from "./rectangle-images.ts";
import { ONE, type Truth } from "./reference/assigner.ts";
import { forward, stateOf } from "./reference/forward.ts";
import { smallGraph } from "./reference/graphs.ts";
import { branchLoss, GAINS } from "./reference/loss.ts";
import { measured, tensorsOf, trainingOf, withPair } from "./reference/pair.ts";
import { RECIPE } from "./reference/steps.ts";
import { Tensor } from "./reference/tensor.ts";
import { seeded } from "./reference/weights.ts";

const SIZE = 64;
const GREY = 114 / 255;
/** Measured 1.9e-7. */
const ITEMS_MAX = 3e-6;

/** An image of noise with rectangles on whole cells of masks, the last one without an outline. */
function noiseImage(seed: number, [width, height]: readonly [number, number]): RgbImage {
  const random = seeded(seed);
  const rgb = Uint8Array.from({ length: width * height * 3 }, () => Math.floor(256 * random()));
  const side = (of: number) => 8 + 4 * Math.floor((random() * (of - 8)) / 4);
  const boxes = Array.from({ length: seed % 4 }, () => {
    const [w, h] = [side(width), side(height)];
    const [x, y] = [width - w, height - h].map((free) => 4 * Math.floor((random() * free) / 4));
    return [Math.floor(3 * random()), x ?? 0, y ?? 0, (x ?? 0) + w, (y ?? 0) + h];
  });
  const rings = boxes.map(([, x1 = 0, y1 = 0, x2 = 0, y2 = 0], index) =>
    seed % 2 && index === boxes.length - 1 ? [] : [x1, y1, x2, y1, x2, y2, x1, y2],
  );
  const ringStarts = rings.map((_, index) => rings.slice(0, index).flat().length / 2);
  return {
    width,
    height,
    rgb,
    boxes,
    rings: Float32Array.from(rings.flat()),
    ringStarts: Int32Array.from(ringStarts),
  };
}

/** An image in the middle of its square, and its objects there. */
function letterboxed({ width, height, rgb, boxes, rings, ringStarts }: RgbImage) {
  const [left, top] = [(SIZE - width) / 2, (SIZE - height) / 2];
  const pixels = new Float64Array(3 * SIZE * SIZE).fill(GREY);
  for (let at = 0; at < rgb.length; at++) {
    const [pixel, channel] = [Math.floor(at / 3), at % 3];
    const [x, y] = [left + (pixel % width), top + Math.floor(pixel / width)];
    pixels[channel * SIZE * SIZE + y * SIZE + x] = Math.fround((rgb[at] as number) / 255);
  }
  const truths = boxes.map(([classIndex = 0, x1 = 0, y1 = 0, x2 = 0, y2 = 0], index): Truth => {
    const box = [x1 + left, y1 + top, x2 + left, y2 + top] as const;
    const end = ringStarts?.[index + 1] ?? (rings?.length ?? 0) / 2;
    if (end === ringStarts?.[index]) return { classIndex, box };
    const inside = (cell: number, from: number, to: number) =>
      (cell + 0.5) * 4 > from && (cell + 0.5) * 4 < to;
    const cells = SIZE / 4;
    const mask = Array.from({ length: cells * cells }, (_, cell) =>
      Number(
        inside(cell % cells, box[0], box[2]) && inside(Math.floor(cell / cells), box[1], box[3]),
      ),
    );
    return { classIndex, box, mask };
  });
  return { pixels, truths };
}

const SHAPES = [
  [64, 64],
  [64, 48],
  [48, 64],
] as const;

/** Means of the one-to-one branch's items over the images, in batches. */
function expectedLosses(
  graph: DetectorGraph,
  weights: ReadonlyMap<string, Float32Array>,
  sources: readonly RgbImage[],
  batch: number,
) {
  const state = stateOf(graph, (name) => weights.get(name) as Float32Array);
  const sums: Record<string, number> = {};
  for (let from = 0; from < sources.length; from += batch) {
    const group = sources.slice(from, from + batch).map(letterboxed);
    const values = Float64Array.from(group.flatMap(({ pixels }) => [...pixels]));
    const images = new Tensor([group.length, 3, SIZE, SIZE], values);
    const maps = forward(graph, state, images, { training: false });
    const scene = { truths: group.map(({ truths }) => truths), height: SIZE, width: SIZE };
    const loss = branchLoss(maps.o2o, { ...scene, gains: GAINS }, ONE, maps.prototypes);
    for (const item of ["box", "cls", "dfl", "mask"] as const) {
      const value = loss[item]?.item;
      if (value === undefined) continue;
      sums[item] = (sums[item] ?? 0) + (value * group.length) / sources.length;
    }
  }
  return sums;
}

describe.skipIf(!native)("losses of validation", () => {
  it.each([
    ["detection", 2],
    ["detection", 7],
    ["segmentation", 3],
  ] as const)("of %s in batches of %d are the reference's", async (task, batch) => {
    const folder = mkdtempSync(join(tmpdir(), "vantage-validation-"));
    const graph = smallGraph(3, { normalized: true, masks: task === "segmentation" });
    const sources = [1, 2, 3, 4, 5, 6, 7].map((seed) =>
      noiseImage(seed, SHAPES[seed % SHAPES.length] as (typeof SHAPES)[0]),
    );
    // A short memory: weights and their average differ after an epoch.
    const recipe = { ...RECIPE, batch: 2, nominalBatch: 2, lr0: 0.05, emaDecay: 0.5 };
    const setup = { graph, seed: 1, training: trainingOf(recipe, SIZE) };
    try {
      await withPair(setup, async ({ engine, state }) => {
        const dataset = writeDataset(join(folder, "images.rgb"), sources);
        await engine.setDataset("train", dataset);
        await engine.setDataset("val", dataset);
        await engine.trainEpoch({ epoch: 0, from: 0 }, () => {});
        const averaged = await tensorsOf(engine, "ema", state.keys());
        const expected = expectedLosses(graph, averaged, sources, batch);
        const { losses } = await engine.evaluate({ split: "val", batch, imageSize: SIZE });
        expect(Object.keys(losses ?? {})).toEqual(Object.keys(expected));
        const apart = Object.entries(losses ?? {}).map(
          ([item, value]) => Math.abs(value - (expected[item] ?? 0)) / Math.max(value, 1),
        );
        measured(`${task} in batches of ${batch}`, { losses, apart });
        expect(Math.max(...apart)).toBeLessThan(ITEMS_MAX);
        const trained = await tensorsOf(engine, "model", state.keys());
        const others = expectedLosses(graph, trained, sources, batch);
        expect(Math.abs((others.cls ?? 0) / (expected.cls ?? 0) - 1)).toBeGreaterThan(
          10 * ITEMS_MAX,
        );
      });
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
