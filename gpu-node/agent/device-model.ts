// A model of a slot, opened: images in, objects out. Nothing that the file gives is taken as it
// comes: numbers that are none, or boxes of no class, are a failed inference.

import { INPUT } from "../../shared/detector/detector-onnx.ts";
import { predictionsOf } from "../../shared/detector/letterbox.ts";
import type { Prediction } from "../../shared/tasks/tasks.ts";
import type { Manifest } from "../../shared/wire/rollouts.ts";
import type { RgbImage } from "../media/image.ts";
import { float, floats, openSession, run, type Session } from "../onnx/runtime.ts";
import { letterbox } from "../serving/letterbox.ts";
import type { Watchdog } from "./hang-watchdog.ts";

const OUTPUT = "output0";
/** Numbers of a row: a box, its score, its class. Those of a segmentation model have more. */
const ROW_MIN = 6;

/** What a model saw on an image. */
export interface Look {
  objects: Prediction[];
  /** Scores of all rows, whatever is told of them. */
  scores: number[];
  /** From pixels to objects. */
  latencyMs: number;
}

/** How models are opened. */
export interface Opening {
  threads: number;
  watchdog: Watchdog;
}

/** A model that is open. */
export class DeviceModel {
  /** What it is known by; another one may name the same file. */
  manifest: Manifest;
  readonly #session: Session;
  readonly #watchdog: Watchdog;
  #looking: Promise<unknown> = Promise.resolve();
  #closed = false;

  private constructor(manifest: Manifest, session: Session, watchdog: Watchdog) {
    this.manifest = manifest;
    this.#session = session;
    this.#watchdog = watchdog;
  }

  /** Opens a file; fails with what the runtime says of it. */
  static async open(
    path: string,
    manifest: Manifest,
    { threads, watchdog }: Opening,
  ): Promise<DeviceModel> {
    const session = await watchdog.duringOpening(manifest.version, () =>
      openSession(path, { cpuThreads: threads, device: "cpu" }),
    );
    return new DeviceModel(manifest, session, watchdog);
  }

  /** Looks at an image; one at a time. Fails where the answer is none. */
  look(image: RgbImage): Promise<Look> {
    const looked = this.#looking.catch(() => {}).then(() => this.#look(image));
    this.#looking = looked;
    return looked;
  }

  async #look(image: RgbImage): Promise<Look> {
    if (this.#closed) throw new Error("the model was closed");
    const started = performance.now();
    const { file, confidence, version } = this.manifest;
    const [height, width] = file.image_size;
    const { pixels, placement } = await letterbox(image, { width, height });
    const feeds = { [INPUT]: float(pixels, [1, 3, height, width]) };
    const outputs = await this.#watchdog.duringLook(version, () => run(this.#session, feeds));
    const output = outputs[OUTPUT];
    const rowWidth = Number(output?.dims[2] ?? 0);
    if (output?.dims.length !== 3 || output.dims[0] !== 1 || rowWidth < ROW_MIN) {
      throw new Error("the model's output has another shape than rows of boxes");
    }
    const values = floats(outputs, OUTPUT);
    const scores = checkedScores({ values, width: rowWidth }, file.classes.length);
    const options = { classes: file.classes, confidence, placement };
    const objects = predictionsOf({ values, width: rowWidth }, options);
    return { objects, scores, latencyMs: performance.now() - started };
  }

  /** Closes it once nobody looks any more. */
  async close(): Promise<void> {
    await this.#looking.catch(() => {});
    if (this.#closed) return;
    this.#closed = true;
    await this.#session.release();
  }
}

/** The scores of rows; fails unless every row is a box of a class with a score. */
function checkedScores(
  { values, width }: { values: Float32Array; width: number },
  classes: number,
): number[] {
  const scores: number[] = [];
  for (let at = 0; at < values.length; at += width) {
    const row = values.subarray(at, at + ROW_MIN);
    const [score = Number.NaN, index = Number.NaN] = row.subarray(4);
    const isRow =
      row.every((value) => Number.isFinite(value)) &&
      score >= 0 &&
      score <= 1 &&
      Number.isInteger(index) &&
      index >= 0 &&
      index < classes;
    if (!isRow) throw new Error("the model gives rows that are no boxes of its classes");
    scores.push(score);
  }
  return scores;
}
