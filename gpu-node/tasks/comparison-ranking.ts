// The frames of a comparison in the order in which they are told: those that differ most first, of
// equals those that came first. Of the first ones the images are kept, small, to be drawn over.

import { type ComparedFrame, REPORT_BLOCK_FRAMES } from "../../shared/tasks/comparison-task.ts";
import { drawComparison } from "../media/comparison-overlay.ts";
import type { RgbImage } from "../media/image.ts";
import { shrink } from "../media/stills.ts";

/** Pixels of an overlay's longest side. */
const OVERLAY_SIDE = 960;

interface RankedFrame {
  frame: ComparedFrame;
  image: RgbImage;
}

/** The frames as one object: a line each, with the offsets at which blocks of them begin. */
export interface FrameReport {
  bytes: Buffer;
  blocks: number[];
}

export class ComparisonRanking {
  readonly #overlaysMax: number;
  readonly #frames: { difference: number; line: Buffer }[] = [];
  /** By falling difference. */
  readonly #first: RankedFrame[] = [];

  constructor(overlaysMax: number) {
    this.#overlaysMax = overlaysMax;
  }

  /** Takes the next frame in, with its image or a smaller copy. */
  async add(frame: ComparedFrame, image: RgbImage): Promise<void> {
    const { difference } = frame;
    this.#frames.push({ difference, line: Buffer.from(`${JSON.stringify(frame)}\n`) });
    const rank = this.#first.findIndex((one) => one.frame.difference < difference);
    const index = rank < 0 ? this.#first.length : rank;
    if (index >= this.#overlaysMax) return;
    this.#first.splice(index, 0, { frame, image: await shrink(image, OVERLAY_SIDE) });
    if (this.#first.length > this.#overlaysMax) this.#first.pop();
  }

  /** The overlays of the first frames, in their order. */
  async *overlays(): AsyncGenerator<Buffer> {
    for (const { frame, image } of this.#first) {
      const { objects, truth } = frame;
      yield await drawComparison(image, { objects, truth: truth ?? [], frame });
    }
  }

  report(): FrameReport {
    const blocks: number[] = [];
    let bytes = 0;
    // A stable sort: of equals the first comes first.
    const ranked = this.#frames.toSorted((one, other) => other.difference - one.difference);
    for (const [index, { line }] of ranked.entries()) {
      if (index % REPORT_BLOCK_FRAMES === 0) blocks.push(bytes);
      bytes += line.length;
    }
    return { bytes: Buffer.concat(ranked.map(({ line }) => line)), blocks };
  }
}
