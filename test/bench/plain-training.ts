// Trainings by the engine alone that benchmarks measure: so many epochs on images of blood cells,
// figures on `val.txt` after the last one. Nothing is chosen on what is measured. What was killed
// goes on from its checkpoint, and what is done is read.

import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { readStillWithin } from "../../gpu-node/media/stills.ts";
import type { Dataset, DatasetImage, Engine, TrainingOptions } from "../../native/index.d.ts";
import type { Native } from "../../native/load.ts";
import { detectorGraph } from "../../shared/detector/detector.ts";
import { headerBytes, parseHeader } from "../../shared/detector/safetensors.ts";
import { BLOOD_CLASSES } from "../support/blood-cells.ts";
import { bloodImage, bloodSplit, realData } from "../support/images.ts";
import { writeWhole } from "./training-cells.ts";

const VARIANT = "det26n";
const VAL_BATCH = 16;
const CHECKPOINT_MS = 20_000;

/** Figures on val.txt, and what the training took. */
export const PlainResult = z.object({
  mAP50: z.number(),
  mAP: z.number(),
  cpuSeconds: z.number(),
});
export type PlainResult = z.infer<typeof PlainResult>;

export interface PlainTraining {
  /** Of its files, without an ending. */
  path: string;
  /** Of its images, labeled, by their names in `train.txt`. */
  ids: readonly string[];
  /** Of the pixels' file; the same images have the same. */
  pixels: string;
  options: TrainingOptions;
  seed: number;
  threads: number;
  /** Gives the engine first weights; without, it begins from scratch. */
  begin?: (engine: Engine) => Promise<void>;
  /** Whether the weights stay beside the result. */
  keepsWeights?: boolean;
  stop?: AbortSignal;
  say?: (line: string) => void;
}

/** Where the weights of a training lie that keeps them. */
export const weightsOf = ({ path }: Pick<PlainTraining, "path">) => `${path}.weights.safetensors`;

/** Images as an engine reads them, letterboxed by it at the size of the training. */
async function datasetOf(path: string, ids: readonly string[], size: number): Promise<Dataset> {
  const pixels: Uint8Array[] = [];
  const images: DatasetImage[] = [];
  let offset = 0;
  for (const id of ids) {
    const file = realData(`bccd/images/${id}.jpg`);
    const blood = await bloodImage(id);
    if (!file || !blood) throw new Error("the images of blood cells are not on this machine");
    const { image, of } = await readStillWithin(file, size);
    const { width, height, data } = image;
    const boxes = blood.truth.flatMap(({ name: word, bbox: [x1, y1, x2, y2] }) => {
      const [scaleX, scaleY] = [width / of.width, height / of.height];
      return [BLOOD_CLASSES.indexOf(word), x1 * scaleX, y1 * scaleY, x2 * scaleX, y2 * scaleY];
    });
    images.push({ offset, width, height, boxes: Float32Array.from(boxes) });
    pixels.push(data);
    offset += data.length;
  }
  writeFileSync(path, Buffer.concat(pixels));
  return { path, images };
}

/** The result of a training that is done, or null. */
export function plainResult({ path }: Pick<PlainTraining, "path">): PlainResult | null {
  const file = `${path}.json`;
  return existsSync(file) ? PlainResult.parse(JSON.parse(readFileSync(file, "utf8"))) : null;
}

/** Trains, or goes on after the last checkpoint; null where it was told to stop. */
export async function plainTraining(
  native: Native,
  folder: string,
  training: PlainTraining,
): Promise<PlainResult | null> {
  const done = plainResult(training);
  if (done) return done;
  const { path, ids, pixels, options, seed, threads } = training;
  const checkpoint = `${path}.safetensors`;
  const size = options.imageSize;
  const graph = detectorGraph(VARIANT, BLOOD_CLASSES.length);
  const engine = new native.Engine({ graph, device: "cpu", seed, threads, training: options });
  try {
    const pixelsAt = (name: string) => join(folder, `${name}-${size}.rgb`);
    await engine.setDataset("train", await datasetOf(pixelsAt(pixels), ids, size));
    await engine.setDataset("val", await datasetOf(pixelsAt("val"), bloodSplit("val"), size));
    let from = 0;
    let before = 0;
    const made = metadataOf(checkpoint);
    if (made) {
      await engine.restore(checkpoint);
      from = Number(made.epoch);
      before = Number(made.cpu);
      training.say?.(`  goes on after epoch ${from} of ${options.epochs}`);
    } else await training.begin?.(engine);
    const cpuSeconds = await runEpochs(engine, training, { from, before, checkpoint });
    if (cpuSeconds === null) return null;
    const look = { split: "val", batch: VAL_BATCH, imageSize: size } as const;
    const { mAP50, mAP50_95: mAP } = await engine.evaluate(look);
    if (training.keepsWeights) {
      await engine.save(`${path}.part`, {});
      renameSync(`${path}.part`, weightsOf(training));
    }
    const result = { mAP50, mAP, cpuSeconds };
    writeWhole(`${path}.json`, JSON.stringify(result));
    rmSync(checkpoint, { force: true });
    return result;
  } finally {
    await engine.close();
  }
}

/** Trains the epochs that are left; gives the processor time of all, seconds. */
async function runEpochs(
  engine: Engine,
  { options: { epochs }, stop, say }: PlainTraining,
  { from, before, checkpoint }: { from: number; before: number; checkpoint: string },
): Promise<number | null> {
  const started = process.cpuUsage();
  const spent = () => {
    const { user, system } = process.cpuUsage(started);
    return before + (user + system) / 1e6;
  };
  let kept = performance.now();
  for (let epoch = from; epoch < epochs; epoch++) {
    const { losses } = await engine.trainEpoch({ epoch, from: 0 }, () => {});
    if (epoch % 10 === 9) say?.(`  epoch ${epoch + 1}/${epochs}  box ${losses.box.toFixed(3)}`);
    if (!stop?.aborted && performance.now() - kept < CHECKPOINT_MS) continue;
    kept = performance.now();
    await engine.checkpoint(checkpoint, { epoch: String(epoch + 1), cpu: String(spent()) });
    if (stop?.aborted) return null;
  }
  return spent();
}

function metadataOf(path: string): Readonly<Record<string, string>> | null {
  if (!existsSync(path)) return null;
  const bytes = readFileSync(path);
  const length = headerBytes(bytes) ?? 0;
  return parseHeader(bytes.subarray(8, 8 + length)).metadata;
}
