// The other operations of a detector's graph on maps of [batch, channels, height, width]: batch
// norm, pooling, upsampling, joining, cutting, and attention.

import { Tensor } from "./tensor.ts";

const NORM_EPSILON = 1e-3;
const NORM_MOMENTUM = 0.03;

export interface Norm {
  weight: Tensor;
  bias: Tensor;
  /** Running statistics; training moves them on. */
  mean: Tensor;
  variance: Tensor;
}

/**
 * Batch norm over batch and cells of each channel. In training the batch's own statistics count,
 * and the running ones move towards them: the variance towards the unbiased one.
 */
export function batchNorm(x: Tensor, norm: Norm, training: boolean): Tensor {
  const [batch, channels, height, width] = x.shape as [number, number, number, number];
  const plane = height * width;
  const count = batch * plane;
  const values = new Float64Array(x.values.length);
  const centred = new Float64Array(x.values.length);
  const inverse = new Float64Array(channels);
  const each = (channel: number, visit: (index: number) => void) => {
    for (let image = 0; image < batch; image++) {
      const start = (image * channels + channel) * plane;
      for (let index = start; index < start + plane; index++) visit(index);
    }
  };
  for (let channel = 0; channel < channels; channel++) {
    let mean = norm.mean.values[channel] as number;
    let variance = norm.variance.values[channel] as number;
    if (training) {
      let [sum, squares] = [0, 0];
      each(channel, (index) => {
        sum += x.values[index] as number;
      });
      const own = sum / count;
      each(channel, (index) => {
        squares += ((x.values[index] as number) - own) ** 2;
      });
      norm.mean.values[channel] = mean + NORM_MOMENTUM * (own - mean);
      const unbiased = squares / (count - 1);
      norm.variance.values[channel] = variance + NORM_MOMENTUM * (unbiased - variance);
      mean = own;
      variance = squares / count;
    }
    const scale = 1 / Math.sqrt(variance + NORM_EPSILON);
    inverse[channel] = scale;
    const weight = norm.weight.values[channel] as number;
    const bias = norm.bias.values[channel] as number;
    each(channel, (index) => {
      const z = ((x.values[index] as number) - mean) * scale;
      centred[index] = z;
      values[index] = z * weight + bias;
    });
  }
  const back = (gradient: Float64Array) => {
    for (let channel = 0; channel < channels; channel++) {
      let [sum, along] = [0, 0];
      each(channel, (index) => {
        sum += gradient[index] as number;
        along += (gradient[index] as number) * (centred[index] as number);
      });
      norm.weight.gradient[channel] = (norm.weight.gradient[channel] as number) + along;
      norm.bias.gradient[channel] = (norm.bias.gradient[channel] as number) + sum;
      if (!x.learns) continue;
      const factor = (norm.weight.values[channel] as number) * (inverse[channel] as number);
      const into = x.gradient;
      each(channel, (index) => {
        const own = gradient[index] as number;
        const shared = training ? (sum + (centred[index] as number) * along) / count : 0;
        into[index] = (into[index] as number) + factor * (own - shared);
      });
    }
  };
  return new Tensor(x.shape, values, { inputs: [x, norm.weight, norm.bias], back });
}

/** Step 1, padding kernel / 2; the first of equal values is the one that counts. */
export function maxPool(x: Tensor, kernel: number): Tensor {
  const [height, width] = [x.side(2), x.side(3)];
  const reach = Math.floor(kernel / 2);
  const values = new Float64Array(x.values.length);
  const chosen = new Int32Array(x.values.length);
  for (let index = 0; index < values.length; index++) {
    const [row, column] = [Math.floor(index / width) % height, index % width];
    const start = index - row * width - column;
    let best = -1;
    for (let y = Math.max(0, row - reach); y <= Math.min(height - 1, row + reach); y++) {
      for (let z = Math.max(0, column - reach); z <= Math.min(width - 1, column + reach); z++) {
        const offset = start + y * width + z;
        if (best < 0 || (x.values[offset] as number) > (x.values[best] as number)) best = offset;
      }
    }
    chosen[index] = best;
    values[index] = x.values[best] as number;
  }
  return moved(x, x.shape, values, chosen);
}

/** Nearest. */
export function upsample(x: Tensor, factor: number): Tensor {
  const [batch, channels, height, width] = x.shape as [number, number, number, number];
  const shape = [batch, channels, height * factor, width * factor];
  const chosen = new Int32Array(x.values.length * factor * factor);
  for (let index = 0; index < chosen.length; index++) {
    const column = Math.floor((index % (width * factor)) / factor);
    const line = Math.floor(index / (width * factor));
    const row = Math.floor((line % (height * factor)) / factor);
    chosen[index] = (Math.floor(line / (height * factor)) * height + row) * width + column;
  }
  return moved(x, shape, picked(x, chosen), chosen);
}

/** Channels from `from` to `to`, exclusive. */
export function slice(x: Tensor, from: number, to: number): Tensor {
  const [batch, channels, height, width] = x.shape as [number, number, number, number];
  const plane = height * width;
  const size = (to - from) * plane;
  const chosen = new Int32Array(batch * size);
  for (let index = 0; index < chosen.length; index++) {
    chosen[index] = (Math.floor(index / size) * channels + from) * plane + (index % size);
  }
  return moved(x, [batch, to - from, height, width], picked(x, chosen), chosen);
}

/** Along the channels. */
export function concat(parts: readonly Tensor[]): Tensor {
  const [batch, , height, width] = (parts[0] as Tensor).shape as [number, number, number, number];
  const channels = parts.reduce((total, part) => total + part.side(1), 0);
  const size = channels * height * width;
  const values = new Float64Array(batch * size);
  const each = (visit: (part: Tensor, from: number, count: number, to: number) => void) => {
    let start = 0;
    for (const part of parts) {
      const count = part.side(1) * height * width;
      for (let image = 0; image < batch; image++) {
        visit(part, image * count, count, image * size + start);
      }
      start += count;
    }
  };
  each((part, from, count, to) => values.set(part.values.subarray(from, from + count), to));
  const back = (gradient: Float64Array) =>
    each((part, from, count, to) => {
      if (!part.learns) return;
      for (let index = 0; index < count; index++) {
        const so = part.gradient[from + index] as number;
        part.gradient[from + index] = so + (gradient[to + index] as number);
      }
    });
  return new Tensor([batch, channels, height, width], values, { inputs: parts, back });
}

const picked = (x: Tensor, chosen: Int32Array) =>
  Float64Array.from(chosen, (offset) => x.values[offset] as number);

/** Each value is one of the input's. */
function moved(
  x: Tensor,
  shape: readonly number[],
  values: Float64Array,
  chosen: Int32Array,
): Tensor {
  const back = (gradient: Float64Array) => {
    const into = x.gradient;
    for (const [index, offset] of chosen.entries()) {
      into[offset] = (into[offset] as number) + (gradient[index] as number);
    }
  };
  return new Tensor(shape, values, { inputs: [x], back });
}

export interface Heads {
  heads: number;
  key: number;
  value: number;
}

/** The values of the heads in turn, of a map of (query, key, value) for each head. */
export function headValues(x: Tensor, { heads, key, value }: Heads): Tensor {
  const size = 2 * key + value;
  return concat(
    Array.from({ length: heads }, (_, head) => slice(x, head * size + 2 * key, (head + 1) * size)),
  );
}

/** v · softmax(qᵀk · key^-½)ᵀ of the heads in turn; softmax is over the keys. */
export function attention(x: Tensor, { heads, key, value }: Heads): Tensor {
  const [batch, channels, height, width] = x.shape as [number, number, number, number];
  const cells = height * width;
  const size = 2 * key + value;
  const values = new Float64Array(batch * heads * value * cells);
  const weights = new Float64Array(batch * heads * cells * cells);
  /** Offsets of every head's query, key, value, result and weights. */
  const each = (visit: (q: number, k: number, v: number, out: number, w: number) => void) => {
    for (let block = 0; block < batch * heads; block++) {
      const image = Math.floor(block / heads);
      const q = (image * channels + (block % heads) * size) * cells;
      const [k, v] = [q + key * cells, q + 2 * key * cells];
      visit(q, k, v, block * value * cells, block * cells * cells);
    }
  };
  const source = x.values;
  each((q, k, v, out, w) => {
    for (let row = 0; row < cells; row++) {
      const line = weights.subarray(w + row * cells, w + (row + 1) * cells);
      for (let column = 0; column < cells; column++) {
        line[column] = product(source, q + row, source, k + column, [key, cells]) / Math.sqrt(key);
      }
      softmax(line);
      for (let channel = 0; channel < value; channel++) {
        const index = v + channel * cells;
        values[out + channel * cells + row] = product(source, index, line, 0, [cells, 1]);
      }
    }
  });
  const back = (gradient: Float64Array) => {
    const into = x.gradient;
    const grow = (index: number, by: number) => {
      into[index] = (into[index] as number) + by;
    };
    const slopes = new Float64Array(cells);
    each((q, k, v, out, w) => {
      for (let row = 0; row < cells; row++) {
        const line = weights.subarray(w + row * cells, w + (row + 1) * cells);
        let mean = 0;
        for (let column = 0; column < cells; column++) {
          const index = out + row;
          slopes[column] = product(gradient, index, source, v + column, [value, cells]);
          mean += (slopes[column] as number) * (line[column] as number);
          for (let channel = 0; channel < value; channel++) {
            const slope = gradient[index + channel * cells] as number;
            grow(v + channel * cells + column, slope * (line[column] as number));
          }
        }
        for (let column = 0; column < cells; column++) {
          const slope =
            ((line[column] as number) * ((slopes[column] as number) - mean)) / Math.sqrt(key);
          for (let part = 0; part < key * cells; part += cells) {
            grow(q + part + row, slope * (source[k + part + column] as number));
            grow(k + part + column, slope * (source[q + part + row] as number));
          }
        }
      }
    });
  };
  return new Tensor([batch, heads * value, height, width], values, { inputs: [x], back });
}

/** Sum of `count` products, `step` values apart in both. */
function product(
  a: Float64Array,
  aAt: number,
  b: Float64Array,
  bAt: number,
  [count, step]: readonly [number, number],
): number {
  let total = 0;
  for (let index = 0; index < count * step; index += step) {
    total += (a[aAt + index] as number) * (b[bAt + index] as number);
  }
  return total;
}

function softmax(line: Float64Array): void {
  const largest = line.reduce((so, value) => Math.max(so, value), Number.NEGATIVE_INFINITY);
  let total = 0;
  for (const [index, value] of line.entries()) {
    line[index] = Math.exp(value - largest);
    total += line[index] as number;
  }
  for (const [index, value] of line.entries()) line[index] = value / total;
}
