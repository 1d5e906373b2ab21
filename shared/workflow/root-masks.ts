// Masks of images that were cut from another one, moved onto it. Run lengths are moved as they are,
// column by column: a pixel of the root is on where the pixel of the cut image that holds its
// center is on. Pure.

import type { Rle } from "../shapes.ts";
import { type ImageFrame, rootOf } from "./values.ts";

/** Columns and runs that masks may still cost. */
interface MaskSteps {
  left: number;
}

/** The masks of one call: some seconds of a slow core. */
export const maskSteps = (): MaskSteps => ({ left: 20_000_000 });

/** A mask that cannot be read, or one too many; the message says why. */
export class BrokenMask extends Error {
  override readonly name = "BrokenMask";
}

/** Rows that are on, from and to in turn, rising, `to` exclusive. */
type Runs = number[];

/** The mask over the whole root image; what would lie outside of it is left out. */
export function maskOnRoot(mask: Rle, frame: ImageFrame, steps: MaskSteps): Rle {
  const [height, width] = mask.size;
  if (height !== frame.height || width !== frame.width) {
    throw new BrokenMask("a mask is not of the size of its image");
  }
  const columns = columnsOf(mask, steps);
  const root = rootOf(frame);
  const [offsetX, offsetY] = frame.offset;
  const [scaleX, scaleY] = frame.scale;
  /** The first pixel of the root whose center lies at or behind an edge of the cut image. */
  const row = (y: number) => clamp(Math.ceil(offsetY + y * scaleY - 0.5), root.height);
  const column = (x: number) => clamp(Math.ceil(offsetX + x * scaleX - 0.5), root.width);
  const writer = new RunWriter();
  for (const [x, runs] of columns) {
    const end = column(x + 1);
    for (let rootX = column(x); rootX < end; rootX++) {
      spend(steps, 1 + runs.length);
      for (let index = 0; index < runs.length; index += 2) {
        const start = rootX * root.height;
        writer.add(start + row(runs[index] ?? 0), start + row(runs[index + 1] ?? 0));
      }
    }
  }
  return { size: [root.height, root.width], counts: writer.counts(root.height * root.width) };
}

function spend(steps: MaskSteps, count: number) {
  steps.left -= count;
  if (steps.left < 0) throw new BrokenMask("the masks are too detailed");
}

const clamp = (value: number, max: number) => Math.min(Math.max(value, 0), max);

/** Columns that have pixels that are on, from left to right. */
function columnsOf({ size, counts }: Rle, steps: MaskSteps): Map<number, Runs> {
  const [height, width] = size;
  const columns = new Map<number, Runs>();
  let start = 0;
  for (const [index, length] of counts.entries()) {
    const end = start + length;
    if (end > height * width) break;
    spend(steps, 1);
    for (let pixel = start; index % 2 === 1 && pixel < end; ) {
      const x = Math.floor(pixel / height);
      const to = Math.min(end, (x + 1) * height);
      const runs = columns.get(x) ?? [];
      columns.set(x, runs);
      runs.push(pixel - x * height, to - x * height);
      pixel = to;
      spend(steps, 1);
    }
    start = end;
  }
  if (start !== height * width) {
    throw new BrokenMask("counts of a mask must add up to height times width");
  }
  return columns;
}

/** Writes run lengths from runs of pixels that come in rising order. */
class RunWriter {
  readonly #counts: number[] = [];
  #end = 0;

  add(from: number, to: number) {
    if (to <= from) return;
    const last = this.#counts.length - 1;
    if (from === this.#end && last > 0) this.#counts[last] = (this.#counts[last] ?? 0) + to - from;
    else this.#counts.push(from - this.#end, to - from);
    this.#end = to;
  }

  /** The lengths over so many pixels, zeros first. */
  counts(pixels: number): number[] {
    const rest = pixels - this.#end;
    return rest > 0 || this.#counts.length === 0 ? [...this.#counts, rest] : this.#counts;
  }
}
