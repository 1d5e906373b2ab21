// Reverse-mode differentiation in doubles: a tensor knows the tensors that it was made of and how
// its gradient reaches them. Written for the tests alone, to check the engine from outside.

export type Back = (gradient: Float64Array) => void;

export class Tensor {
  readonly shape: readonly number[];
  readonly values: Float64Array;
  readonly inputs: readonly Tensor[];
  readonly back: Back | undefined;
  /** A gradient is needed here or further up. */
  readonly learns: boolean;
  #gradient: Float64Array | undefined;

  constructor(
    shape: readonly number[],
    values: Float64Array,
    made: { inputs?: readonly Tensor[]; back?: Back; learns?: boolean } = {},
  ) {
    const count = shape.reduce((product, side) => product * side, 1);
    if (count !== values.length) throw new Error(`${values.length} values for [${shape}]`);
    this.shape = shape;
    this.values = values;
    this.inputs = made.inputs ?? [];
    this.learns = made.learns ?? this.inputs.some((input) => input.learns);
    this.back = this.learns ? made.back : undefined;
  }

  /** Zero until something flows in. */
  get gradient(): Float64Array {
    this.#gradient ??= new Float64Array(this.values.length);
    return this.#gradient;
  }

  forget(): void {
    this.#gradient = undefined;
  }

  side(axis: number): number {
    return this.shape.at(axis) as number;
  }

  /** Of a tensor with one value. */
  get item(): number {
    if (this.values.length !== 1) throw new Error(`[${this.shape}] is not one value`);
    return this.values[0] as number;
  }
}

export const filled = (shape: readonly number[], value = 0): Tensor =>
  new Tensor(
    shape,
    new Float64Array(shape.reduce((product, side) => product * side, 1)).fill(value),
  );

/** Adds to the gradients of everything that `root`, one value, was made of. */
export function backward(root: Tensor): void {
  const order: Tensor[] = [];
  const seen = new Set<Tensor>();
  const stack: { tensor: Tensor; next: number }[] = [{ tensor: root, next: 0 }];
  seen.add(root);
  for (let top = stack.at(-1); top; top = stack.at(-1)) {
    const input = top.tensor.inputs[top.next++];
    if (input === undefined) {
      order.push(top.tensor);
      stack.pop();
    } else if (input.learns && !seen.has(input)) {
      seen.add(input);
      stack.push({ tensor: input, next: 0 });
    }
  }
  root.gradient.fill(1);
  for (const tensor of order.reverse()) tensor.back?.(tensor.gradient);
}

/** The same values, through which no gradient passes. */
export const detach = ({ shape, values }: Tensor): Tensor => new Tensor(shape, values);

/** A function of every value; `slope` takes the value and the function's value there. */
export function unary(
  x: Tensor,
  of: (value: number) => number,
  slope: (value: number, result: number) => number,
): Tensor {
  const values = x.values.map(of);
  const back = (gradient: Float64Array) => {
    for (const [index, value] of x.values.entries()) {
      accumulate(x, index, (gradient[index] as number) * slope(value, values[index] as number));
    }
  };
  return new Tensor(x.shape, values, { inputs: [x], back });
}

/** A function of every pair of values; `slopes` are its derivatives by one and by the other. */
export function binary(
  a: Tensor,
  b: Tensor,
  of: (a: number, b: number) => number,
  slopes: (a: number, b: number) => readonly [number, number],
): Tensor {
  if (a.shape.join() !== b.shape.join()) throw new Error(`[${a.shape}] beside [${b.shape}]`);
  const values = a.values.map((value, index) => of(value, b.values[index] as number));
  const back = (gradient: Float64Array) => {
    for (const [index, value] of a.values.entries()) {
      const [byA, byB] = slopes(value, b.values[index] as number);
      if (a.learns) accumulate(a, index, (gradient[index] as number) * byA);
      if (b.learns) accumulate(b, index, (gradient[index] as number) * byB);
    }
  };
  return new Tensor(a.shape, values, { inputs: [a, b], back });
}

function accumulate({ gradient }: Tensor, index: number, value: number): void {
  gradient[index] = (gradient[index] as number) + value;
}

export const add = (a: Tensor, b: Tensor) =>
  binary(
    a,
    b,
    (one, other) => one + other,
    () => [1, 1],
  );
export const subtract = (a: Tensor, b: Tensor) =>
  binary(
    a,
    b,
    (one, other) => one - other,
    () => [1, -1],
  );
export const multiply = (a: Tensor, b: Tensor) =>
  binary(
    a,
    b,
    (one, other) => one * other,
    (one, other) => [other, one],
  );
export const divide = (a: Tensor, b: Tensor) =>
  binary(
    a,
    b,
    (one, other) => one / other,
    (one, other) => [1 / other, -one / (other * other)],
  );
/** Equal values share the gradient. */
const share = (chosen: boolean, equal: boolean) => (equal ? 0.5 : chosen ? 1 : 0);
export const minimum = (a: Tensor, b: Tensor) =>
  binary(a, b, Math.min, (one, other) => [
    share(one < other, one === other),
    share(other < one, one === other),
  ]);
export const maximum = (a: Tensor, b: Tensor) =>
  binary(a, b, Math.max, (one, other) => [
    share(one > other, one === other),
    share(other > one, one === other),
  ]);
export const absolute = (x: Tensor) => unary(x, Math.abs, Math.sign);
/** factor · x + offset. */
export const affine = (x: Tensor, factor: number, offset = 0) =>
  unary(
    x,
    (value) => factor * value + offset,
    () => factor,
  );
export const square = (x: Tensor) =>
  unary(
    x,
    (value) => value * value,
    (value) => 2 * value,
  );
export const arctangent = (x: Tensor) => unary(x, Math.atan, (value) => 1 / (1 + value * value));
/** Negative values become zero. */
export const clampZero = (x: Tensor) =>
  unary(
    x,
    (value) => Math.max(value, 0),
    (value) => (value >= 0 ? 1 : 0),
  );

export const logistic = (value: number): number =>
  value >= 0 ? 1 / (1 + Math.exp(-value)) : Math.exp(value) / (1 + Math.exp(value));

export const silu = (x: Tensor) =>
  unary(
    x,
    (value) => value * logistic(value),
    (value) => {
      const gate = logistic(value);
      return gate * (1 + value * (1 - gate));
    },
  );

/** Binary cross entropy of logits against targets that no gradient reaches, value by value. */
export const crossEntropy = (logits: Tensor, targets: Tensor) =>
  binary(
    logits,
    detach(targets),
    (logit, target) => Math.max(logit, 0) - logit * target + Math.log1p(Math.exp(-Math.abs(logit))),
    (logit, target) => [logistic(logit) - target, 0],
  );

export function sum(x: Tensor): Tensor {
  const total = x.values.reduce((so, value) => so + value, 0);
  const back = (gradient: Float64Array) => {
    for (const index of x.values.keys()) accumulate(x, index, gradient[0] as number);
  };
  return new Tensor([], Float64Array.of(total), { inputs: [x], back });
}

/** Sums of the runs of `length` values: of [a, b, length] as [a · b]. */
export function sums(x: Tensor, length: number): Tensor {
  const values = new Float64Array(x.values.length / length);
  for (const [index, value] of x.values.entries()) {
    const run = Math.floor(index / length);
    values[run] = (values[run] as number) + value;
  }
  const back = (gradient: Float64Array) => {
    for (const index of x.values.keys())
      accumulate(x, index, gradient[Math.floor(index / length)] as number);
  };
  return new Tensor([values.length], values, { inputs: [x], back });
}

/** The values at `offsets`, in that order, under a shape of their own. */
export function gather(x: Tensor, offsets: Int32Array, shape: readonly number[]): Tensor {
  const values = Float64Array.from(offsets, (offset) => x.values[offset] as number);
  const back = (gradient: Float64Array) => {
    for (const [index, offset] of offsets.entries())
      accumulate(x, offset, gradient[index] as number);
  };
  return new Tensor(shape, values, { inputs: [x], back });
}
