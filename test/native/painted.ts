// Pictures that say by themselves where their objects are: solid rectangles, a colour a class, on
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
import type { Native } from "../../native/load.ts";
import { detectorGraph } from "../../shared/detector.ts";

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

export interface Picture {
  width: number;
  height: number;
  rgb: Uint8Array;
  boxes: number[][];
}

export function picture(
  width: number,
  height: number,
  rectangles: { classIndex: number; box: Corners }[],
): Picture {
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

/** A rectangle of every class in turn, well inside pictures of three shapes. */
export const paintings = (count: number): Picture[] =>
  Array.from({ length: count }, (_, at) => {
    const [width = 0, height = 0] = [
      [160, 120],
      [120, 160],
      [160, 160],
    ][at % 3] as number[];
    const [x, y] = [14 + ((at * 17) % (width - 90)), 14 + ((at * 11) % (height - 80))];
    const box: Corners = [x, y, x + 40 + ((at * 7) % 20), y + 30 + ((at * 5) % 20)];
    return picture(width, height, [{ classIndex: at % COLOURS.length, box }]);
  });

export function writeDataset(path: string, pictures: readonly Picture[]): Dataset {
  let offset = 0;
  const images = pictures.map(({ width, height, rgb, boxes }) => {
    const image = { offset, width, height, boxes: Float32Array.from(boxes.flat()) };
    offset += rgb.length;
    return image;
  });
  writeFileSync(path, Buffer.concat(pictures.map(({ rgb }) => rgb)));
  return { path, images };
}

export const NOTHING: Augmentation = {
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

export interface Opened {
  pictures: readonly Picture[];
  augmentation?: Partial<Augmentation>;
  training?: Partial<TrainingOptions>;
  options?: Partial<EngineOptions>;
}

/** An engine that would train on the pictures; it and their file are gone afterwards. */
export async function withPictures<Result>(
  native: Native,
  { pictures, augmentation = {}, training = {}, options = {} }: Opened,
  use: (engine: Engine, dataset: Dataset) => Promise<Result>,
): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), "vantage-pictures-"));
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
      augmentation: { ...NOTHING, ...augmentation },
      ...training,
    },
    ...options,
  });
  try {
    const dataset = writeDataset(join(folder, "images.rgb"), pictures);
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
  boxes: { classIndex: number; box: Corners }[];
}

export function views({ images, count, height, width, boxes }: Batch): View[] {
  const plane = height * width;
  return Array.from({ length: count }, (_, image) => ({
    width,
    height,
    at: (x, y) => {
      const pixel = image * 3 * plane + y * width + x;
      return [0, 1, 2].map((c) => images[pixel + c * plane] as number) as [number, number, number];
    },
    boxes: Array.from({ length: boxes.length / 6 }, (_, at) => [
      ...boxes.subarray(at * 6, at * 6 + 6),
    ])
      .filter(([own]) => own === image)
      .map(([, classIndex = 0, ...corners]) => ({
        classIndex,
        // Four numbers were mapped to four.
        box: corners as unknown as Corners,
      })),
  }));
}

export const isColour = ([r, g, b]: Rgb, classIndex: number, tolerance = 0.1): boolean => {
  const [wr, wg, wb] = COLOURS[classIndex] as Rgb;
  const far = (value: number, wanted: number) => Math.abs(value - wanted / 255) > tolerance;
  return !far(r, wr) && !far(g, wg) && !far(b, wb);
};
