// A run's figures beside what its model is served as: the engine measures images with truths as a
// run measures its split, and our predictor, which cuts boxes at the image, finds objects on the
// same images, for the reference tools to judge.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openPredictor } from "../../gpu-node/serving/predictor.ts";
import type { DatasetImage, Evaluation } from "../../native/index.d.ts";
import type { Native } from "../../native/load.ts";
import { detectorGraph } from "../../shared/detector/detector.ts";
import { unletterbox } from "../../shared/detector/letterbox.ts";
import { generatedModel, seeded } from "../support/weights.ts";

const IMAGES = 10;
/** Less high than the model's square: its boxes reach into what is added above and below. */
const HEIGHT = 64;
/** Numbers of a detection. */
const ROW = 6;
/**
 * The predictor rounds boxes to hundredths of a pixel, by which some pass an IoU. Confidences are
 * as it computes them: of those it tells ten-thousandths, and the many of a model that was never
 * trained would change places.
 */
const TOLERANCE = 0.001;

/** What the reference tools are told, as of any other scene, and our figures. */
export async function runScene(native: Native) {
  let weights: Buffer = Buffer.alloc(0);
  const model = generatedModel(
    (key, bytes) => {
      weights = bytes;
      return { url: "", key, bytes: bytes.length };
    },
    { seed: 1 },
  );
  const { classes, image_size: side } = model;
  const random = seeded(11);
  const size = { width: side, height: HEIGHT };
  const contents = Array.from({ length: IMAGES }, () =>
    Uint8Array.from({ length: 3 * side * HEIGHT }, () => 256 * random()),
  );
  const predictor = await openPredictor(model, weights, { cpuThreads: 1, device: "cpu" });
  const images: { truths: number[][]; detections: number[][] }[] = [];
  for (const data of contents) {
    const laid = await predictor.lay({ data, ...size });
    const { values } = await predictor.rows(laid);
    const detections = Array.from({ length: values.length / ROW }, (_, row) =>
      values.subarray(row * ROW, (row + 1) * ROW),
    ).flatMap(([x1 = 0, y1 = 0, x2 = 0, y2 = 0, ...rest]) => {
      const bbox = unletterbox([x1, y1, x2, y2], laid.placement);
      return bbox ? [[...bbox, ...rest]] : [];
    });
    images.push({ truths: truthsOf(detections, random), detections });
  }
  await predictor.dispose();
  const figures = await measured(native, {
    weights,
    side,
    classes: classes.length,
    pixels: Buffer.concat(contents),
    images: images.map(({ truths }, index) => ({
      offset: index * 3 * side * HEIGHT,
      ...size,
      boxes: Float32Array.from(truths.flat()),
    })),
  });
  const ours = { mAP50: figures.mAP50, mAP50_95: figures.mAP50_95 };
  const name = "a run beside its predictor";
  return { name, classes: classes.length, images, ours, tolerance: TOLERANCE };
}

/** Some of what was found, each a little smaller, some under another class. */
function truthsOf(rows: readonly number[][], random: () => number): number[][] {
  return rows.flatMap(([x1 = 0, y1 = 0, x2 = 0, y2 = 0, confidence = 0, index = 0]) => {
    if (confidence < 0.2 || random() > 0.7) return [];
    const shrunk = (from: number, to: number) => from + (to - from) * (0.7 + 0.3 * random());
    return [[random() < 0.85 ? index : 0, x1, y1, shrunk(x1, x2), shrunk(y1, y2)]];
  });
}

interface Measurement {
  weights: Buffer;
  /** Of the model's square. */
  side: number;
  classes: number;
  pixels: Buffer;
  images: DatasetImage[];
}

async function measured(
  native: Native,
  { weights, side, classes, pixels, images }: Measurement,
): Promise<Evaluation> {
  const folder = mkdtempSync(join(tmpdir(), "vantage-run-scene-"));
  const graph = detectorGraph("det26n", classes);
  const engine = new native.Engine({ graph, device: "cpu", threads: 1, seed: 0 });
  try {
    const [file, path] = [join(folder, "weights.safetensors"), join(folder, "val.rgb")];
    writeFileSync(file, weights);
    writeFileSync(path, pixels);
    await engine.load(file);
    await engine.setDataset("val", { path, images });
    return await engine.evaluate({ split: "val", batch: 4, imageSize: side });
  } finally {
    await engine.close();
    rmSync(folder, { recursive: true, force: true });
  }
}
