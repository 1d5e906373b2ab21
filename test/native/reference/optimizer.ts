// One optimiser step after the other on a state, as the schedules want it, and the moving average
// of the weights.

import { type State, tensorOf } from "./forward.ts";
import { multiplyAdd, rowMajor, transposed } from "./matrix.ts";
import type { Tensor } from "./tensor.ts";

export interface Recipe {
  optimizer: "adamw" | "sgd" | "musgd";
  epochs: number;
  batch: number;
  lr0: number;
  lrf: number;
  cosine: boolean;
  momentum: number;
  weightDecay: number;
  warmupEpochs: number;
  warmupMomentum: number;
  warmupBiasLr: number;
  nominalBatch: number;
  clipNorm: number;
  emaDecay: number;
  emaUpdates: number;
}

export interface Rates {
  lr: number;
  bias: number;
  momentum: number;
}

/** Iterations and epochs count from 0. */
export function ratesAt(recipe: Recipe, epoch: number, iteration: number, batches: number): Rates {
  const { lr0, lrf, momentum, warmupEpochs } = recipe;
  const done = epoch / Math.max(recipe.epochs - 1, 1);
  const factor = recipe.cosine
    ? lrf + ((1 - lrf) * (1 + Math.cos(Math.PI * done))) / 2
    : 1 + (lrf - 1) * done;
  const lr = lr0 * factor;
  const warm = warmupEpochs > 0 ? Math.max(Math.round(warmupEpochs * batches), 100) : 0;
  const index = epoch * batches + iteration;
  if (index >= warm) return { lr, bias: lr, momentum };
  const between = (from: number, to: number) => from + ((to - from) * index) / warm;
  return {
    lr: between(0, lr),
    bias: between(recipe.warmupBiasLr, lr),
    momentum: between(recipe.warmupMomentum, momentum),
  };
}

const ADAM = { beta: 0.999, epsilon: 1e-8 };
const MUON_SHARE = 0.2;
const CLASS_FACTOR = 3;

interface Slot {
  name: string;
  tensor: Tensor;
  /** Adam's two moments; SGD's momentum and Muon's. */
  first: Float64Array;
  second: Float64Array;
}

export class Optimizer {
  readonly #slots: Slot[];
  readonly #recipe: Recipe;
  #steps = 0;

  constructor(state: State, recipe: Recipe) {
    this.#recipe = recipe;
    this.#slots = [...state]
      .filter(([, { learns }]) => learns)
      .map(([name, tensor]) => ({
        name,
        tensor,
        first: new Float64Array(tensor.values.length),
        second: new Float64Array(tensor.values.length),
      }));
  }

  /** Takes the gradients that lie on the tensors, clips them, and moves the weights. */
  step(rates: Rates): void {
    this.#steps++;
    this.#clip();
    const { optimizer } = this.#recipe;
    for (const slot of this.#slots) {
      const factor = optimizer === "musgd" && slot.name.includes(".cls.") ? CLASS_FACTOR : 1;
      const lr = factor * (slot.name.endsWith(".bias") ? rates.bias : rates.lr);
      if (optimizer === "adamw") this.#adam(slot, lr);
      else this.#descend(slot, lr, rates.momentum);
    }
  }

  #clip(): void {
    const { clipNorm } = this.#recipe;
    let squares = 0;
    for (const { tensor } of this.#slots)
      for (const value of tensor.gradient) squares += value ** 2;
    const factor = Math.min(1, clipNorm / (Math.sqrt(squares) + 1e-6));
    if (clipNorm <= 0 || factor === 1) return;
    for (const { tensor } of this.#slots) {
      for (const [index, value] of tensor.gradient.entries())
        tensor.gradient[index] = value * factor;
    }
  }

  /** SGD with Nesterov's momentum; matrices take a share of Muon too where that is asked for. */
  #descend({ tensor, first, second }: Slot, lr: number, momentum: number): void {
    const { values, gradient, shape } = tensor;
    const isMatrix = shape.length >= 2;
    const decay = isMatrix ? this.#decay : 0;
    const pushed =
      isMatrix && this.#recipe.optimizer === "musgd" ? muon(tensor, second, momentum) : undefined;
    for (const [index, weight] of values.entries()) {
      const slope = (gradient[index] as number) + decay * weight;
      const speed = momentum * (first[index] as number) + slope;
      first[index] = speed;
      const muonPart = pushed ? MUON_SHARE * (pushed[index] as number) : 0;
      values[index] = weight - lr * (slope + momentum * speed + muonPart);
    }
  }

  #adam({ tensor, first, second }: Slot, lr: number): void {
    const { momentum } = this.#recipe;
    const { values, gradient, shape } = tensor;
    const decay = shape.length >= 2 ? this.#decay : 0;
    const firstScale = 1 - momentum ** this.#steps;
    const secondScale = 1 - ADAM.beta ** this.#steps;
    for (const [index, weight] of values.entries()) {
      const slope = gradient[index] as number;
      const mean = momentum * (first[index] as number) + (1 - momentum) * slope;
      const spread = ADAM.beta * (second[index] as number) + (1 - ADAM.beta) * slope ** 2;
      first[index] = mean;
      second[index] = spread;
      const size = Math.sqrt(spread / secondScale) + ADAM.epsilon;
      values[index] = weight * (1 - lr * decay) - (lr * (mean / firstScale)) / size;
    }
  }

  /** Scaled to what a step really gathers. */
  get #decay(): number {
    const { weightDecay, batch, nominalBatch } = this.#recipe;
    const gathered = Math.max(1, Math.round(nominalBatch / batch));
    return (weightDecay * batch * gathered) / nominalBatch;
  }
}

const QUINTIC = [3.4445, -4.775, 2.0315] as const;

/** Momentum as a moving average, its blend with the gradient, made nearly orthogonal. */
function muon({ shape, values, gradient }: Tensor, average: Float64Array, momentum: number) {
  const blended = new Float64Array(values.length);
  for (const [index, slope] of gradient.entries()) {
    const mean = momentum * (average[index] as number) + (1 - momentum) * slope;
    average[index] = mean;
    blended[index] = (1 - momentum) * slope + momentum * mean;
  }
  const rows = shape[0] as number;
  const made = orthogonal(blended, rows, values.length / rows);
  const [tall, wide] = shape.slice(-2) as [number, number];
  const factor = Math.sqrt(Math.max(1, tall / wide));
  return made.map((value) => value * factor);
}

/** Five quintic steps of Newton–Schulz towards the nearest matrix with orthonormal rows. */
export function orthogonal(matrix: Float64Array, rows: number, columns: number): Float64Array {
  const norm = Math.sqrt(matrix.reduce((total, value) => total + value ** 2, 0)) + 1e-7;
  const turned = rows > columns;
  const [m, n] = turned ? [columns, rows] : [rows, columns];
  const [a, b, c] = QUINTIC;
  let x = new Float64Array(matrix.length);
  for (let row = 0; row < m; row++) {
    for (let column = 0; column < n; column++) {
      const from = turned ? column * columns + row : row * columns + column;
      x[row * n + column] = (matrix[from] as number) / norm;
    }
  }
  for (let times = 0; times < 5; times++) {
    const gram = symmetric(rowMajor(x, n), m, n);
    const cubed = symmetric(rowMajor(gram, m), m, m);
    const factor = gram.map((value, index) => b * value + c * (cubed[index] as number));
    const next = x.map((value) => a * value);
    multiplyAdd(rowMajor(factor, m), rowMajor(x, n), rowMajor(next, n), {
      rows: m,
      inner: m,
      columns: n,
    });
    x = next;
  }
  if (!turned) return x;
  return Float64Array.from(
    x,
    (_, index) => x[(index % columns) * n + Math.floor(index / columns)] as number,
  );
}

/** x · xᵀ of m rows: one triangle is worked out. */
function symmetric(x: ReturnType<typeof rowMajor>, m: number, n: number): Float64Array {
  const out = new Float64Array(m * m);
  const extent = { rows: m, inner: n, columns: m };
  multiplyAdd(x, transposed(x), rowMajor(out, m), extent, true);
  for (let row = 0; row < m; row++) {
    for (let column = row + 1; column < m; column++) {
      out[row * m + column] = out[column * m + row] as number;
    }
  }
  return out;
}

/** Moving average of a state: what is learned and the statistics of batch norm. */
export class Average {
  readonly values: Map<string, Float64Array>;
  readonly #recipe: Recipe;
  #updates = 0;

  constructor(state: State, recipe: Recipe) {
    this.values = new Map([...state].map(([name, { values }]) => [name, values.slice()]));
    this.#recipe = recipe;
  }

  update(state: State): void {
    const { emaDecay, emaUpdates } = this.#recipe;
    this.#updates++;
    const decay = emaDecay * (1 - Math.exp(-this.#updates / emaUpdates));
    for (const [name, average] of this.values) {
      const { values } = tensorOf(state, name);
      const kept = name.endsWith(".batches") ? 0 : decay;
      for (const [index, value] of values.entries()) {
        average[index] = kept * (average[index] as number) + (1 - kept) * value;
      }
    }
  }
}
