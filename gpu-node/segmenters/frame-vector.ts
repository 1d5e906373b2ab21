// One vector for a whole image, of the dense maps that an encoder makes of it.

import type { Tensor } from "../onnx/runtime.ts";
import { floats } from "../onnx/runtime.ts";

/** Planes of `rows` × `columns` cells, row by row, a plane a channel. */
export interface DenseMap {
  values: Float32Array;
  rows: number;
  columns: number;
}

/**
 * A vector of an image's content, wherever in the image that is: each channel's mean over the cells
 * that the image covers, and their standard deviation; at unit length. `covered` is the part of the
 * maps' height and width that the image covers, 0 to 1, from the top left on.
 */
export function frameVector(
  maps: readonly DenseMap[],
  covered: { height: number; width: number },
): Float32Array {
  const numbers = maps.flatMap(({ values, rows, columns }) => {
    const plane = rows * columns;
    const height = Math.max(1, Math.min(rows, Math.ceil(rows * covered.height)));
    const width = Math.max(1, Math.min(columns, Math.ceil(columns * covered.width)));
    const channels = Array.from({ length: values.length / plane }, (_, channel) => {
      let [sum, squares] = [0, 0];
      for (let row = 0; row < height; row++) {
        const from = channel * plane + row * columns;
        for (const value of values.subarray(from, from + width)) {
          sum += value;
          squares += value * value;
        }
      }
      const mean = sum / (height * width);
      return { mean, deviation: Math.sqrt(Math.max(0, squares / (height * width) - mean * mean)) };
    });
    return [...channels.map(({ mean }) => mean), ...channels.map(({ deviation }) => deviation)];
  });
  const length = Math.hypot(...numbers);
  return Float32Array.from(numbers, (value) => (length > 0 ? value / length : 0));
}

/** A map of positions, as SAM 3's `fpn_pos_2`: it tells nothing of the image but its shape. */
const POSITIONS = /(^|_)pos(_|$|ition)/;

/** The coarsest of an encoder's maps of features: they have seen most of what surrounds a cell. */
export function coarsestMaps(tensors: Readonly<Record<string, Tensor>>): DenseMap[] {
  const maps = Object.entries(tensors).flatMap(([name, { dims }]) => {
    const [rows = 0, columns = 0] = dims.slice(-2);
    if (dims.length !== 4 || POSITIONS.test(name)) return [];
    return [{ values: floats(tensors, name), rows, columns }];
  });
  const cells = Math.min(...maps.map(({ rows, columns }) => rows * columns));
  return maps.filter(({ rows, columns }) => rows * columns === cells);
}
