// How alike vectors are to one, whatever all of them have in common: the cosine of both less the
// mean of all. Vectors come one after another, twice, and are not kept. Pure.

/** A vector's owner with its similarity. */
export interface Similar<One> {
  one: One;
  similarity: number;
}

/** Fewer vectors have no mean that tells anything. */
const AVERAGED_MIN = 3;

export class Likeness<One> {
  readonly #target: Float64Array;
  readonly #limit: number;
  readonly #sum: Float64Array;
  #averaged = 0;
  #nearest: Similar<One>[] = [];

  /** The `limit` vectors most like `target`, among those of its length. */
  constructor(target: ArrayLike<number>, limit: number) {
    this.#target = Float64Array.from(target);
    this.#limit = limit;
    this.#sum = new Float64Array(target.length);
  }

  /** Vectors that were averaged. */
  get averaged(): number {
    return this.#averaged;
  }

  /** Takes a vector into the mean. */
  average(vector: ArrayLike<number>): void {
    if (vector.length !== this.#sum.length) return;
    const scale = 1 / (lengthOf(vector) || 1);
    for (let n = 0; n < vector.length; n++) {
      this.#sum[n] = (this.#sum[n] as number) + (vector[n] as number) * scale;
    }
    this.#averaged += 1;
  }

  /** Compares a vector, once all were averaged. */
  compare(one: One, vector: ArrayLike<number>): void {
    if (vector.length !== this.#sum.length) return;
    this.#nearest.push({ one, similarity: this.#cosine(vector) });
    // Sorted now and then: the order of all is nobody's.
    if (this.#nearest.length >= 2 * this.#limit + 1_000) this.#nearest = this.nearest();
  }

  /** Those most alike, the most alike first. */
  nearest(): Similar<One>[] {
    return this.#nearest
      .toSorted((one, other) => other.similarity - one.similarity)
      .slice(0, this.#limit);
  }

  /** The cosine of a vector and the target, both at unit length less the mean. */
  #cosine(vector: ArrayLike<number>): number {
    const target = this.#target;
    const share = this.#averaged >= AVERAGED_MIN ? 1 / this.#averaged : 0;
    const [scale, own] = [1 / (lengthOf(vector) || 1), 1 / (lengthOf(target) || 1)];
    let [product, squares, ownSquares] = [0, 0, 0];
    for (let n = 0; n < vector.length; n++) {
      const mean = (this.#sum[n] as number) * share;
      const a = (vector[n] as number) * scale - mean;
      const b = (target[n] as number) * own - mean;
      product += a * b;
      squares += a * a;
      ownSquares += b * b;
    }
    const length = Math.sqrt(squares * ownSquares);
    return length > 0 ? Math.min(1, Math.max(-1, product / length)) : 0;
  }
}

function lengthOf(vector: ArrayLike<number>): number {
  let squares = 0;
  for (let n = 0; n < vector.length; n++) squares += (vector[n] as number) ** 2;
  return Math.sqrt(squares);
}
