// Dense features of an image, and the search for a patch of one in another: a map is centred and
// normalised cell by cell, a patch becomes the kernel of a one-node convolution, and the answer's
// peaks are places that look like it.

import type { Bbox } from "../../shared/tasks/tasks.ts";
import { GraphWriter, tensorInfo } from "../onnx/model-file.ts";
import { float, floats, openSession, run, type Session } from "../onnx/runtime.ts";
import { GRID, STRIDE } from "./sam.ts";

const CELLS = GRID * GRID;

/** Channels of GRID x GRID cells; only the first columns and rows lie on the image. */
export interface FeatureMap {
  values: Float32Array;
  channels: number;
  columns: number;
  rows: number;
}

/** A patch as a kernel, and the size in working pixels of the box it was cut from. */
export interface Patch {
  kernel: Float32Array;
  channels: number;
  columns: number;
  rows: number;
  width: number;
  height: number;
}

/** A place that looks like the patch. Working pixels. */
export interface Peak {
  bbox: Bbox;
  likeness: number;
}

/** The mean of each channel over the columns and rows of the map that the image covers. */
export function channelMeans({ values, channels, columns, rows }: FeatureMap): Float32Array {
  const means = new Float32Array(channels);
  for (let channel = 0; channel < channels; channel++) {
    let sum = 0;
    for (let y = 0; y < rows; y++)
      for (let x = 0; x < columns; x++) sum += values[channel * CELLS + y * GRID + x] as number;
    means[channel] = sum / (columns * rows);
  }
  return means;
}

/** Each cell less the means, at unit length; zero off the image. */
export function normalise(map: FeatureMap, means: Float32Array): FeatureMap {
  const { values, channels, columns, rows } = map;
  const out = new Float32Array(channels * CELLS);
  const squares = new Float32Array(CELLS);
  for (let channel = 0; channel < channels; channel++) {
    const mean = means[channel] as number;
    for (let y = 0; y < rows; y++)
      for (let cell = y * GRID, end = cell + columns; cell < end; cell++) {
        const value = (values[channel * CELLS + cell] as number) - mean;
        out[channel * CELLS + cell] = value;
        squares[cell] = (squares[cell] as number) + value * value;
      }
  }
  const lengths = squares.map((square) => (square > 0 ? 1 / Math.sqrt(square + 1e-9) : 0));
  for (let channel = 0; channel < channels; channel++)
    for (let cell = 0; cell < CELLS; cell++)
      out[channel * CELLS + cell] =
        (out[channel * CELLS + cell] as number) * (lengths[cell] as number);
  return { ...map, values: out };
}

/** Cuts a box out of a normalised map; `weight` says how much a working pixel matters. */
export function cutPatch(
  map: FeatureMap,
  [x1, y1, x2, y2]: Bbox,
  weight: (x: number, y: number) => number,
): Patch {
  const width = x2 - x1;
  const height = y2 - y1;
  const columns = Math.min(GRID, Math.max(1, Math.round(width / STRIDE)));
  const rows = Math.min(GRID, Math.max(1, Math.round(height / STRIDE)));
  const { channels, values } = map;
  const kernel = new Float32Array(channels * rows * columns);
  let weights = 0;
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < columns; column++) {
      const x = x1 + ((column + 0.5) / columns) * width;
      const y = y1 + ((row + 0.5) / rows) * height;
      const cellX = Math.min(GRID - 1.001, Math.max(0, x / STRIDE - 0.5));
      const cellY = Math.min(GRID - 1.001, Math.max(0, y / STRIDE - 0.5));
      const [dx, dy] = [cellX - Math.floor(cellX), cellY - Math.floor(cellY)];
      const cell = Math.floor(cellY) * GRID + Math.floor(cellX);
      let squares = 0;
      for (let channel = 0; channel < channels; channel++) {
        const at = channel * CELLS + cell;
        const above = (values[at] as number) * (1 - dx) + (values[at + 1] as number) * dx;
        const below =
          (values[at + GRID] as number) * (1 - dx) + (values[at + GRID + 1] as number) * dx;
        const value = above * (1 - dy) + below * dy;
        kernel[(channel * rows + row) * columns + column] = value;
        squares += value * value;
      }
      const share = weight(x, y);
      weights += share;
      const factor = share / Math.sqrt(squares + 1e-9);
      for (let channel = 0; channel < channels; channel++) {
        const at = (channel * rows + row) * columns + column;
        kernel[at] = (kernel[at] as number) * factor;
      }
    }
  return { kernel: kernel.map((value) => value / weights), channels, columns, rows, width, height };
}

/** The direction of a normalised map's cells under a mask's coverage of each cell. */
export function pool({ values, channels }: FeatureMap, coverage: Float32Array): Float32Array {
  const sums = new Float32Array(channels);
  for (let channel = 0; channel < channels; channel++) {
    let sum = 0;
    for (let cell = 0; cell < CELLS; cell++) {
      const share = coverage[cell] as number;
      if (share > 0) sum += share * (values[channel * CELLS + cell] as number);
    }
    sums[channel] = sum;
  }
  const length = Math.sqrt(sums.reduce((sum, value) => sum + value * value, 1e-9));
  return sums.map((value) => value / length);
}

export const dot = (a: Float32Array, b: Float32Array): number =>
  a.reduce((sum, value, index) => sum + value * (b[index] as number), 0);

/** Slides patches over maps, on the runtime's own convolution. */
export class Correlator {
  readonly #session: Session;

  private constructor(session: Session) {
    this.#session = session;
  }

  static async open(options: { cpuThreads: number }): Promise<Correlator> {
    const writer = new GraphWriter();
    writer.node("Conv", ["map", "kernel"], "likeness", { auto_pad: "SAME_UPPER" });
    const graph = writer.encode(
      "correlate",
      [
        tensorInfo("map", [1, "channels", GRID, GRID]),
        tensorInfo("kernel", [1, "channels", "rows", "columns"]),
      ],
      [tensorInfo("likeness", [1, 1, GRID, GRID])],
    );
    return new Correlator(await openSession(graph, { ...options, device: "cpu" }));
  }

  /** How much each window of the map, named by its centre cell, looks like the patch: -1 to 1. */
  async slide(map: FeatureMap, patch: Patch): Promise<Float32Array> {
    const output = await run(this.#session, {
      map: float(map.values, [1, map.channels, GRID, GRID]),
      kernel: float(patch.kernel, [1, patch.channels, patch.rows, patch.columns]),
    });
    return floats(output, "likeness");
  }

  dispose(): Promise<void> {
    return this.#session.release();
  }
}

/** Local maxima of a likeness map, placed between cells by a parabola. */
export function findPeaks(
  likeness: Float32Array,
  map: FeatureMap,
  patch: Patch,
  least: number,
): Peak[] {
  const { columns, rows } = map;
  const at = (x: number, y: number) =>
    x < 0 || y < 0 || x >= columns || y >= rows
      ? Number.NEGATIVE_INFINITY
      : (likeness[y * GRID + x] as number);
  const between = (before: number, here: number, after: number) => {
    const bend = before - 2 * here + after;
    if (!Number.isFinite(bend) || Math.abs(bend) < 1e-9) return 0;
    return Math.max(-0.5, Math.min(0.5, (0.5 * (before - after)) / bend));
  };
  const peaks: Peak[] = [];
  for (let y = 0; y < rows; y++)
    for (let x = 0; x < columns; x++) {
      const here = at(x, y);
      if (here < least) continue;
      const beaten = NEIGHBOURS.some(([dx, dy]) => at(x + dx, y + dy) > here);
      if (beaten) continue;
      // A window starts this many cells before the cell that its answer lies in.
      const column = x + between(at(x - 1, y), here, at(x + 1, y)) - ((patch.columns - 1) >> 1);
      const row = y + between(at(x, y - 1), here, at(x, y + 1)) - ((patch.rows - 1) >> 1);
      const [left, top] = [column * STRIDE, row * STRIDE];
      peaks.push({ bbox: [left, top, left + patch.width, top + patch.height], likeness: here });
    }
  return peaks;
}

const NEIGHBOURS = [-1, 0, 1]
  .flatMap((dy) => [-1, 0, 1].map((dx) => [dx, dy] as const))
  .filter(([dx, dy]) => dx !== 0 || dy !== 0);
