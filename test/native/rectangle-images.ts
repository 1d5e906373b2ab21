// Images that show by themselves where their objects are: solid rectangles, a colour a class, on
// black. With them the engine's augmented batches are checked by looking at pixels alone.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type {
  Augmentation,
  Batch,
  Dataset,
  Engine,
  EngineOptions,
  TrainingOptions,
} from "../../native/index.d.ts";
import { detectorGraph } from "../../shared/detector/detector.ts";
import { native } from "./engine.ts";

export type Rgb = readonly [r: number, g: number, b: number];
export type Corners = readonly [x1: number, y1: number, x2: number, y2: number];
/** By class index; black and the fill's grey are none of them. */
export const COLOURS: readonly Rgb[] = [
  [255, 0, 0],
  [0, 255, 0],
  [0, 0, 255],
  [255, 255, 0],
  [255, 0, 255],
  [0, 255, 255],
];

export interface RgbImage {
  width: number;
  height: number;
  rgb: Uint8Array;
  boxes: number[][];
  rings?: Float32Array;
  ringStarts?: Int32Array;
}

export function rectangleImage(
  width: number,
  height: number,
  rectangles: { classIndex: number; box: Corners }[],
): RgbImage {
  const rgb = new Uint8Array(width * height * 3);
  for (const { classIndex, box } of rectangles) {
    for (let y = box[1]; y < box[3]; y++) {
      for (let x = box[0]; x < box[2]; x++) {
        rgb.set(COLOURS[classIndex] as Rgb, (y * width + x) * 3);
      }
    }
  }
  return {
    width,
    height,
    rgb,
    boxes: rectangles.map(({ classIndex, box }) => [classIndex, ...box]),
  };
}

/** A rectangle of every class in turn, well inside images of three shapes. */
export const rectangleImages = (count: number): RgbImage[] =>
  Array.from({ length: count }, (_, index) => {
    const [width = 0, height = 0] = [
      [160, 120],
      [120, 160],
      [160, 160],
    ][index % 3] as number[];
    const [x, y] = [14 + ((index * 17) % (width - 90)), 14 + ((index * 11) % (height - 80))];
    const box: Corners = [x, y, x + 40 + ((index * 7) % 20), y + 30 + ((index * 5) % 20)];
    return rectangleImage(width, height, [{ classIndex: index % COLOURS.length, box }]);
  });

export function writeDataset(path: string, sources: readonly RgbImage[]): Dataset {
  let offset = 0;
  const images = sources.map(({ width, height, rgb, boxes, rings, ringStarts }) => {
    const image = {
      offset,
      width,
      height,
      boxes: Float32Array.from(boxes.flat()),
      ...(rings && ringStarts && { rings, ringStarts }),
    };
    offset += rgb.length;
    return image;
  });
  writeFileSync(path, Buffer.concat(sources.map(({ rgb }) => rgb)));
  return { path, images };
}

export const NO_AUGMENTATION: Augmentation = {
  mosaic: 0,
  mixup: 0,
  flipLeftRight: 0,
  flipUpDown: 0,
  scale: 0,
  translate: 0,
  rotate: 0,
  shear: 0,
  hsv: [0, 0, 0],
  closeMosaic: 0,
};

export interface EngineSetup {
  sources: readonly RgbImage[];
  augmentation?: Partial<Augmentation>;
  training?: Partial<TrainingOptions>;
  options?: Partial<EngineOptions>;
}

/** Calls with an engine that would train on the images; frees it and their file afterwards. */
export async function withImages<Result>(
  { sources, augmentation = {}, training = {}, options = {} }: EngineSetup,
  use: (engine: Engine, dataset: Dataset) => Promise<Result>,
): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), "vantage-images-"));
  const engine = new native.Engine({
    graph: detectorGraph("det26n", COLOURS.length),
    device: "cpu",
    seed: 7,
    threads: 1,
    training: {
      optimizer: "sgd",
      epochs: 100,
      batch: 4,
      imageSize: 160,
      lr0: 0.01,
      lrf: 0.01,
      cosine: false,
      momentum: 0.9,
      weightDecay: 5e-4,
      warmupEpochs: 0,
      warmupMomentum: 0.8,
      warmupBiasLr: 0.1,
      nominalBatch: 64,
      clipNorm: 10,
      emaDecay: 0.9999,
      emaUpdates: 2000,
      gains: { box: 7.5, cls: 0.5, dfl: 1.5 },
      augmentation: { ...NO_AUGMENTATION, ...augmentation },
      ...training,
    },
    ...options,
  });
  try {
    const dataset = writeDataset(join(folder, "images.rgb"), sources);
    await engine.setDataset("train", dataset);
    return await use(engine, dataset);
  } finally {
    await engine.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** One image of a batch, with its boxes. */
export interface View {
  width: number;
  height: number;
  at(x: number, y: number): [r: number, g: number, b: number];
  /** `mask`: of the whole image at a cell of four pixels, where the batch has masks. */
  boxes: { classIndex: number; box: Corners; mask: Uint8Array | undefined }[];
}

export function views({ images, count, height, width, boxes, masks }: Batch): View[] {
  const plane = height * width;
  const cells = plane / 16;
  return Array.from({ length: count }, (_, image) => ({
    width,
    height,
    at: (x, y) => {
      const pixel = image * 3 * plane + y * width + x;
      return [0, 1, 2].map((c) => images[pixel + c * plane] as number) as [number, number, number];
    },
    boxes: Array.from({ length: boxes.length / 6 }, (_, index) => ({
      row: [...boxes.subarray(index * 6, index * 6 + 6)],
      mask: masks?.subarray(index * cells, (index + 1) * cells),
    }))
      .filter(({ row }) => row[0] === image)
      .map(({ row: [, classIndex = 0, ...corners], mask }) => ({
        classIndex,
        // What follows image and class are the four corners.
        box: corners as unknown as Corners,
        mask,
      })),
  }));
}

export const isColour = ([r, g, b]: Rgb, classIndex: number, tolerance = 0.1): boolean => {
  const [wr, wg, wb] = COLOURS[classIndex] as Rgb;
  const far = (value: number, wanted: number) => Math.abs(value - wanted / 255) > tolerance;
  return !far(r, wr) && !far(g, wg) && !far(b, wb);
};
