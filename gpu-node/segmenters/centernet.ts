// The embedded detector (CenterNet over MobileNetV3, COCO's 80 classes): an image → boxes of the
// asked classes; and its backbone's features, for matching examples.

import type { Bbox } from "../../shared/tasks.ts";
import { clip, suppress } from "../media/geometry.ts";
import type { RgbImage } from "../media/image.ts";
import { fitSize, type Normalisation, planes, resize } from "../media/image.ts";
import { type Device, float, floats, openSession, run, type Session } from "../onnx/runtime.ts";
import { FEATURES, IMAGE, PEAKS, SIZES } from "./centernet-conversion.ts";
import type { EmbeddedFiles } from "./embedded-files.ts";

/** Longest side at which images are looked at, and pixels a cell of the score maps. */
const SIDE = 512;
const STRIDE = 4;
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
  peaks: Float32Array;
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
      peaks: floats(output, PEAKS),
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
  const { peaks, sizes, cells, scale } = scores;
  const plane = cells * cells;
  const found: ScoredBox[] = [];
  for (const classIndex of classes)
    for (let cell = 0; cell < plane; cell++) {
      const raw = peaks[classIndex * plane + cell] as number;
      if (raw < RAW_MIN) continue;
      const confidence = calibrate(raw);
      if (confidence < confidenceMin) continue;
      const x = (cell % cells) * STRIDE;
      const y = Math.floor(cell / cells) * STRIDE;
      const side = (index: number) => sizes[index * plane + cell] as number;
      const bbox = clip(
        [
          (x - side(0)) / scale,
          (y - side(1)) / scale,
          (x + side(2)) / scale,
          (y + side(3)) / scale,
        ],
        scores,
      );
      if (bbox) found.push({ bbox, confidence });
    }
  return suppress(found, { iou: SAME_OBJECT_IOU }).slice(0, BOXES_MAX);
}
