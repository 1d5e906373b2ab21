// The embedded detector (CenterNet over MobileNetV3, COCO's 80 classes): an image → boxes of the
// asked classes; and its backbone's features, for matching examples.

import type { Bbox } from "../../shared/tasks/tasks.ts";
import { clip, scaleBox, suppress } from "../media/geometry.ts";
import type { RgbImage } from "../media/image.ts";
import { fitSize, type Normalisation, planes, resize } from "../media/image.ts";
import { type Device, float, floats, openSession, run, type Session } from "../onnx/runtime.ts";
import { FEATURES, IMAGE, SCORES, SIZES } from "./centernet-conversion.ts";
import type { EmbeddedFiles } from "./embedded-files.ts";
import { frameVector } from "./frame-vector.ts";

/** Longest side at which images are looked at, and pixels a cell of the score maps. */
const SIDE = 512;
const STRIDE = 4;
/** Pixels a cell of the backbone's features. */
const FEATURE_STRIDE = 16;
const AS_THEY_ARE: Normalisation = { mean: [0, 0, 0], std: [1, 1, 1] };

/** A raw score of this much is where precision and recall balance; it becomes a confidence of ½. */
const RAW_BALANCED = 0.25;
const RAW_MIN = 0.05;

const SAME_OBJECT_IOU = 0.6;
const BOXES_MAX = 100;

export interface ScoredBox {
  bbox: Bbox;
  confidence: number;
}

/** The score maps of one image. */
export interface Scores {
  /** 0 to 1, a plane of cells a class. */
  classes: Float32Array;
  /** Distances from a cell to the four sides, a plane of cells a side. */
  sizes: Float32Array;
  cells: number;
  scale: number;
  width: number;
  height: number;
}

/**
 * The detector's raw scores are low: half of what it finds right lies under 0.4. Straight lines
 * through (0.05, 0.05), (0.25, 0.5) and (1, 1) bring them to where the service's default threshold
 * of 0.5 is the balanced one.
 */
export function calibrate(raw: number): number {
  if (raw < RAW_MIN) return raw;
  return raw < RAW_BALANCED
    ? RAW_MIN + ((raw - RAW_MIN) * (0.5 - RAW_MIN)) / (RAW_BALANCED - RAW_MIN)
    : 0.5 + ((Math.min(1, raw) - RAW_BALANCED) * 0.5) / (1 - RAW_BALANCED);
}

export class CenterNet {
  readonly #detector: Session;
  readonly #openBackbone: () => Promise<Session>;
  #backbone: Promise<Session> | null = null;

  private constructor(detector: Session, openBackbone: () => Promise<Session>) {
    this.#detector = detector;
    this.#openBackbone = openBackbone;
  }

  static async open(
    files: EmbeddedFiles,
    options: { cpuThreads: number; device: Device },
  ): Promise<CenterNet> {
    const detector = await openSession(files.detector, options);
    return new CenterNet(detector, () => openSession(files.features, options));
  }

  async look(image: RgbImage): Promise<Scores> {
    const { scale, width, height } = fitSize(image, SIDE);
    const resized = await resize(image, { width, height });
    const input = float(planes(resized, SIDE, AS_THEY_ARE), [1, 3, SIDE, SIDE]);
    const output = await run(this.#detector, { [IMAGE]: input });
    return {
      classes: floats(output, SCORES),
      sizes: floats(output, SIZES),
      cells: SIDE / STRIDE,
      scale,
      width: image.width,
      height: image.height,
    };
  }

  /** The backbone's map at a cell per 16 pixels of the image at `side`, channel by channel. */
  async features(image: RgbImage, side: number): Promise<Float32Array> {
    this.#backbone ??= this.#openBackbone();
    const { width, height } = fitSize(image, side);
    const resized = await resize(image, { width, height });
    const input = float(planes(resized, side, AS_THEY_ARE), [1, 3, side, side]);
    return floats(await run(await this.#backbone, { [IMAGE]: input }), FEATURES);
  }

  /** The image as a vector of unit length, of the backbone's features. */
  async describe(image: RgbImage): Promise<Float32Array> {
    const values = await this.features(image, SIDE);
    const { width, height } = fitSize(image, SIDE);
    const [rows, columns] = [SIDE / FEATURE_STRIDE, SIDE / FEATURE_STRIDE];
    const covered = { height: height / SIDE, width: width / SIDE };
    return frameVector([{ values, rows, columns }], covered);
  }

  async dispose(): Promise<void> {
    await this.#detector.release();
    await (await this.#backbone)?.release();
  }
}

/** Boxes of any of the classes, most confident first; one object is one box. */
export function readBoxes(
  scores: Scores,
  classes: readonly number[],
  confidenceMin: number,
): ScoredBox[] {
  const found: ScoredBox[] = [];
  for (const classIndex of classes)
    for (const { cell, raw } of peaksOf(scores, classIndex)) {
      const confidence = calibrate(raw);
      const bbox = confidence >= confidenceMin ? boxAt(scores, cell) : null;
      if (bbox) found.push({ bbox, confidence });
    }
  return bestBoxes(found);
}

/** One box an object, most confident first. */
export const bestBoxes = (found: readonly ScoredBox[]): ScoredBox[] =>
  suppress(found, { iou: SAME_OBJECT_IOU }).slice(0, BOXES_MAX);

/** A box of anything, and how much it looks like each of the classes. */
export interface Proposal {
  bbox: Bbox;
  /** 0 to 1, a score a class. */
  classes: Float32Array;
}

/** Every box that some class has a peak at, in no order; one object may have several. */
export function readProposals(scores: Scores): Proposal[] {
  const plane = scores.cells ** 2;
  const count = scores.classes.length / plane;
  const cells = new Set<number>();
  for (let classIndex = 0; classIndex < count; classIndex++)
    for (const { cell } of peaksOf(scores, classIndex)) cells.add(cell);
  return [...cells].flatMap((cell) => {
    const bbox = boxAt(scores, cell);
    const at = (_: unknown, classIndex: number) =>
      scores.classes[classIndex * plane + cell] as number;
    return bbox ? [{ bbox, classes: Float32Array.from({ length: count }, at) }] : [];
  });
}

/** Cells where a class scores as much as in any cell around; that replaces suppression. */
function peaksOf({ classes, cells }: Scores, classIndex: number): { cell: number; raw: number }[] {
  const plane = classes.subarray(classIndex * cells * cells, (classIndex + 1) * cells * cells);
  const peaks: { cell: number; raw: number }[] = [];
  for (let cell = 0; cell < plane.length; cell++) {
    const raw = plane[cell] as number;
    if (raw < RAW_MIN) continue;
    const [x, y] = [cell % cells, Math.floor(cell / cells)];
    let beaten = false;
    for (let row = Math.max(0, y - 1); row <= Math.min(cells - 1, y + 1); row++)
      for (let column = Math.max(0, x - 1); column <= Math.min(cells - 1, x + 1); column++)
        beaten ||= (plane[row * cells + column] as number) > raw;
    if (!beaten) peaks.push({ cell, raw });
  }
  return peaks;
}

/** The box of a cell in pixels of the image, or null when nothing of it lies there. */
function boxAt({ sizes, cells, scale, width, height }: Scores, cell: number): Bbox | null {
  const x = (cell % cells) * STRIDE;
  const y = Math.floor(cell / cells) * STRIDE;
  const side = (index: number) => sizes[index * cells * cells + cell] as number;
  const bbox: Bbox = [x - side(0), y - side(1), x + side(2), y + side(3)];
  return clip(scaleBox(bbox, 1 / scale), { width, height });
}
