// A small engine, images of coloured rectangles that it can learn, and what its state is made of.

import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Batch, Dataset, Engine, Precision, TrainingOptions } from "../../native/index.d.ts";
import { detectorGraph, stateTensors } from "../../shared/detector/detector.ts";
import { native } from "./engine.ts";
import { PLAIN } from "./plain-training.ts";

export const CLASSES = 3;
export const graph = detectorGraph("det26n", CLASSES);
export const tensors = stateTensors(graph);
export const learned = tensors.filter((tensor) => tensor.learned).map(({ name }) => name);

/** Everything on: what a resumed run has to repeat. */
export const LIVELY: Partial<TrainingOptions> = {
  warmupEpochs: 1,
  weightDecay: 5e-4,
  clipNorm: 10,
  augmentation: {
    mosaic: 0.7,
    mixup: 0.3,
    flipLeftRight: 0.5,
    flipUpDown: 0.2,
    scale: 0.4,
    rotate: 5,
    translate: 0.1,
    shear: 2,
    hsv: [0.02, 0.5, 0.4],
    closeMosaic: 0,
  },
};

/** Calls with an engine and a folder of its own; frees both whatever happens. */
export async function withEngine<Result>(
  training: Partial<TrainingOptions>,
  work: (engine: Engine, folder: string) => Promise<Result>,
  precision: Precision = "fp32",
): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), "vantage-training-"));
  const engine = new native.Engine({
    graph,
    device: "cpu",
    seed: 7,
    threads: 1,
    precision,
    training: { ...PLAIN, ...training },
  });
  try {
    await engine.ready;
    return await work(engine, folder);
  } finally {
    await engine.close();
    rmSync(folder, { recursive: true });
  }
}

/** Whole numbers below `count`, the same every time. */
export function dice(seed: number): (count: number) => number {
  let state = seed * 2_654_435_761 + 1;
  return (count) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * count);
  };
}

/** A class and corners in pixels. */
export type Box = [classIndex: number, x1: number, y1: number, x2: number, y2: number];

/** An object or two on grey noise, each of its class's colour: bytes by pixel, RGB. */
export function randomImage(seed: number, size: number): { pixels: Uint8Array; boxes: Box[] } {
  const random = dice(seed);
  const pixels = Uint8Array.from({ length: size * size * 3 }, () => 90 + random(40));
  const boxes = Array.from({ length: 1 + random(2) }, (_, index): Box => {
    const [width, height] = [size / 4 + random(size / 4), size / 4 + random(size / 4)];
    // Objects keep to their half, so that none hides another.
    const x = Math.floor(index * (size / 2) + random(Math.max(size / 2 - width, 1)));
    const y = random(size - height);
    return [random(CLASSES), x, y, Math.min(x + width, size), y + height].map(Math.floor) as Box;
  });
  for (const [classIndex, x1, y1, x2, y2] of boxes) {
    for (let y = y1; y < y2; y++) {
      for (let x = x1; x < x2; x++) {
        for (let channel = 0; channel < 3; channel++) {
          pixels[(y * size + x) * 3 + channel] = channel === classIndex ? 230 : 20;
        }
      }
    }
  }
  return { pixels, boxes };
}

/** Images as a step takes them. */
export function batchOf(sources: readonly ReturnType<typeof randomImage>[], size: number): Batch {
  const images = new Float32Array(sources.length * 3 * size * size);
  for (const [image, { pixels }] of sources.entries()) {
    for (const [index, byte] of pixels.entries()) {
      const [pixel, channel] = [Math.floor(index / 3), index % 3];
      images[(image * 3 + channel) * size * size + pixel] = byte / 255;
    }
  }
  const boxes = sources.flatMap(({ boxes }, image) => boxes.flatMap((box) => [image, ...box]));
  const shape = { count: sources.length, height: size, width: size };
  return { images, ...shape, boxes: Float32Array.from(boxes) };
}

/** Images as a split's file in the folder. */
export function splitOf(folder: string, count: number, size: number): Dataset {
  const sources = Array.from({ length: count }, (_, index) => randomImage(index + 1, size));
  const path = join(folder, "images.bin");
  writeFileSync(path, Buffer.concat(sources.map(({ pixels }) => pixels)));
  const images = sources.map(({ boxes }, index) => ({
    offset: index * size * size * 3,
    width: size,
    height: size,
    boxes: Float32Array.from(boxes.flat()),
  }));
  return { path, images };
}

/** Values of tensors by name. */
export async function valuesOf(
  engine: Engine,
  of: "model" | "ema" | "gradient",
  names: readonly string[] = learned,
): Promise<Map<string, Float32Array>> {
  const values = new Map<string, Float32Array>();
  for (const name of names) values.set(name, (await engine.tensor(name, of)).values);
  return values;
}

/** Of all values of a state to the bit. */
export async function fingerprint(
  engine: Engine,
  of: "model" | "ema",
  names: readonly string[] = tensors.map(({ name }) => name),
): Promise<string> {
  const hash = createHash("sha256");
  for (const values of (await valuesOf(engine, of, names)).values()) hash.update(values);
  return hash.digest("hex");
}
