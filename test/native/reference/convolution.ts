// Convolutions as products of matrices: the taps of every output cell of the whole batch are laid
// out as columns first. Maps are [batch, channels, height, width].

import { multiplyAdd, rowMajor, transposed } from "./matrix.ts";
import { Tensor } from "./tensor.ts";

interface Geometry {
  batch: number;
  /** Of the input and of the output. */
  height: number;
  width: number;
  rows: number;
  columns: number;
  kernel: number;
  step: number;
  /** Input channels of a group. */
  channels: number;
  channelsAll: number;
}

/** Padding is kernel / 2, no dilation. `weight`: [out, in / groups, kernel, kernel]. */
export function convolution(
  x: Tensor,
  weight: Tensor,
  bias: Tensor | undefined,
  { step = 1, groups = 1 } = {},
): Tensor {
  const [batch, channelsAll, height, width] = x.shape as [number, number, number, number];
  const [outputs, channels, kernel] = weight.shape as [number, number, number];
  const sized = (side: number) =>
    Math.floor((side + 2 * Math.floor(kernel / 2) - kernel) / step) + 1;
  const [rows, columns] = [sized(height), sized(width)];
  const geometry: Geometry = {
    batch,
    height,
    width,
    rows,
    columns,
    kernel,
    step,
    channels,
    channelsAll,
  };
  const cells = batch * rows * columns;
  const taps = channels * kernel * kernel;
  const extent = { rows: outputs / groups, inner: taps, columns: cells };
  const laid = Array.from({ length: groups }, (_, group) => spread(x.values, geometry, group));
  const flat = new Float64Array(outputs * cells);
  for (let group = 0; group < groups; group++) {
    const index = group * extent.rows;
    multiplyAdd(
      rowMajor(weight.values, taps, index * taps),
      rowMajor(laid[group] as Float64Array, cells),
      rowMajor(flat, cells, index * cells),
      extent,
    );
  }
  const plane = rows * columns;
  const values = new Float64Array(flat.length);
  swap(flat, values, [outputs, batch, plane]);
  if (bias) addBias(values, bias.values, plane);
  const back = (gradient: Float64Array) => {
    const byChannel = new Float64Array(gradient.length);
    swap(gradient, byChannel, [batch, outputs, plane]);
    if (bias?.learns) {
      for (let channel = 0; channel < outputs; channel++) {
        const of = byChannel.subarray(channel * cells, (channel + 1) * cells);
        const so = bias.gradient[channel] as number;
        bias.gradient[channel] = so + of.reduce((total, value) => total + value, 0);
      }
    }
    for (let group = 0; group < groups; group++) {
      const index = group * extent.rows;
      const slopes = rowMajor(byChannel, cells, index * cells);
      if (weight.learns) {
        multiplyAdd(
          slopes,
          transposed(rowMajor(laid[group] as Float64Array, cells)),
          rowMajor(weight.gradient, taps, index * taps),
          { rows: extent.rows, inner: cells, columns: taps },
        );
      }
      if (!x.learns) continue;
      const into = new Float64Array(taps * cells);
      multiplyAdd(
        transposed(rowMajor(weight.values, taps, index * taps)),
        slopes,
        rowMajor(into, cells),
        { rows: taps, inner: extent.rows, columns: cells },
      );
      gatherBack(into, x.gradient, geometry, group);
    }
  };
  const inputs = bias ? [x, weight, bias] : [x, weight];
  return new Tensor([batch, outputs, rows, columns], values, { inputs, back });
}

/** Kernel 2, step 2, padding 0. `weight`: [in, out, 2, 2]. */
export function convolutionTransposed(x: Tensor, weight: Tensor, bias: Tensor): Tensor {
  const [batch, channels, height, width] = x.shape as [number, number, number, number];
  const outputs = weight.side(1);
  const values = new Float64Array(batch * outputs * height * width * 4);
  const offsetOf = (image: number, channel: number, y: number, x: number) =>
    ((image * outputs + channel) * 2 * height + y) * 2 * width + x;
  /** Every (cell of x, weight, cell of the output) that meet. */
  const each = (visit: (from: number, tap: number, to: number) => void) => {
    for (let image = 0; image < batch; image++) {
      for (let input = 0; input < channels; input++) {
        for (let output = 0; output < outputs; output++) {
          for (let cell = 0; cell < height * width; cell++) {
            const from = (image * channels + input) * height * width + cell;
            const [row, column] = [2 * Math.floor(cell / width), 2 * (cell % width)];
            for (let tap = 0; tap < 4; tap++) {
              const to = offsetOf(image, output, row + (tap >> 1), column + (tap & 1));
              visit(from, (input * outputs + output) * 4 + tap, to);
            }
          }
        }
      }
    }
  };
  each((from, tap, to) => {
    const product = (x.values[from] as number) * (weight.values[tap] as number);
    values[to] = (values[to] as number) + product;
  });
  const plane = 4 * height * width;
  addBias(values, bias.values, plane);
  const back = (gradient: Float64Array) => {
    each((from, tap, to) => {
      const slope = gradient[to] as number;
      const reached = x.gradient[from] as number;
      x.gradient[from] = reached + slope * (weight.values[tap] as number);
      const weighed = weight.gradient[tap] as number;
      weight.gradient[tap] = weighed + slope * (x.values[from] as number);
    });
    for (const [index, slope] of gradient.entries()) {
      const channel = Math.floor(index / plane) % outputs;
      bias.gradient[channel] = (bias.gradient[channel] as number) + slope;
    }
  };
  const shape = [batch, outputs, 2 * height, 2 * width];
  return new Tensor(shape, values, { inputs: [x, weight, bias], back });
}

function addBias(values: Float64Array, bias: Float64Array, plane: number): void {
  for (let index = 0; index < values.length; index++) {
    const channel = Math.floor(index / plane) % bias.length;
    values[index] = (values[index] as number) + (bias[channel] as number);
  }
}

/** [a, b, plane] to [b, a, plane]. */
function swap(
  from: Float64Array,
  to: Float64Array,
  [a, b, plane]: readonly [number, number, number],
): void {
  for (let one = 0; one < a; one++) {
    for (let other = 0; other < b; other++) {
      const index = (one * b + other) * plane;
      to.set(from.subarray(index, index + plane), (other * a + one) * plane);
    }
  }
}

/** Calls with the runs of cells of an output row that a tap reads from an input row. */
function eachRow(
  { batch, height, width, rows, columns, kernel, step, channels, channelsAll }: Geometry,
  group: number,
  visit: (column: number, from: number, count: number) => void,
): void {
  const padding = Math.floor(kernel / 2);
  for (let tap = 0; tap < channels * kernel * kernel; tap++) {
    const channel = group * channels + Math.floor(tap / (kernel * kernel));
    const dy = (Math.floor(tap / kernel) % kernel) - padding;
    const dx = (tap % kernel) - padding;
    const first = Math.max(0, Math.ceil(-dx / step));
    const last = Math.min(columns - 1, Math.floor((width - 1 - dx) / step));
    if (last < first) continue;
    for (let image = 0; image < batch; image++) {
      for (let row = 0; row < rows; row++) {
        const y = row * step + dy;
        if (y < 0 || y >= height) continue;
        const from = ((image * channelsAll + channel) * height + y) * width + first * step + dx;
        const to = ((tap * batch + image) * rows + row) * columns + first;
        visit(to, from, last - first + 1);
      }
    }
  }
}

/** [taps, batch · rows · columns] of a group. */
function spread(values: Float64Array, geometry: Geometry, group: number): Float64Array {
  const { batch, rows, columns, kernel, channels, step } = geometry;
  const out = new Float64Array(channels * kernel * kernel * batch * rows * columns);
  eachRow(geometry, group, (to, from, count) => {
    for (let index = 0; index < count; index++)
      out[to + index] = values[from + index * step] as number;
  });
  return out;
}

function gatherBack(
  laid: Float64Array,
  gradient: Float64Array,
  geometry: Geometry,
  group: number,
): void {
  const { step } = geometry;
  eachRow(geometry, group, (to, from, count) => {
    for (let index = 0; index < count; index++) {
      const source = from + index * step;
      gradient[source] = (gradient[source] as number) + (laid[to + index] as number);
    }
  });
}
