// Which frames to label next: those on which a model is unsure and that differ from each other and
// from what is labeled. Pure.

/** An unlabeled frame. */
export interface Candidate {
  /** What a segmenter's encoder makes of it. */
  vector: ArrayLike<number>;
  /** Bits by class of which a model is unsure on it; null where none was asked. */
  entropies: Readonly<Record<string, number>> | null;
}

/** A frame that was chosen. */
export interface RankedFrame {
  /** Index among the candidates. */
  index: number;
  /** How unsure the model is, where 1 is the mean of all candidates; null without a model. */
  uncertainty: number | null;
  /**
   * Cosine distance, 0 to 2, to the nearest frame that is labeled or was chosen before; null of the
   * first one where nothing is labeled.
   */
  distance: number | null;
}

/**
 * The chosen are spread over so many times the budget of most uncertain frames: the expansion ratio
 * of Yang et al. 2024, "Plug and Play Active Learning for Object Detection".
 */
const POOL_PER_CHOSEN = 4;
/** How many times as much as another a class counts at most: one stray object is no lesson. */
const CLASS_WEIGHT_MAX = 10;
/** Frames that are nearer are the same. */
const SAME_DISTANCE = 1e-6;

/**
 * The frames to label next, best first, so that the first ones are the choice of a smaller budget.
 * Among the most uncertain candidates each next one is the farthest from what is labeled and
 * chosen (greedy k-center, Sener and Savarese 2018). Fewer than `budget` where the rest repeats
 * those. Vectors are of one length.
 */
export function rankFrames(
  candidates: readonly Candidate[],
  labeled: readonly ArrayLike<number>[],
  budget: number,
): RankedFrame[] {
  const unsure = uncertaintiesOf(candidates.map(({ entropies }) => entropies));
  const order = candidates
    .map((_, index) => index)
    .toSorted((one, other) => (unsure[other] ?? 0) - (unsure[one] ?? 0) || one - other);
  const isScored = unsure.some((one) => one !== null);
  const pool = isScored ? order.slice(0, POOL_PER_CHOSEN * budget) : order;
  const own = pool.map((index) => (candidates[index] as Candidate).vector);
  const { rows, length } = directions([...own, ...labeled]);
  const nearest = new Float64Array(pool.length).fill(Number.POSITIVE_INFINITY);
  /** Notes how far each of the pool is from a row. */
  const approach = (row: number) => {
    for (let one = 0; one < pool.length; one++) {
      let product = 0;
      for (let n = 0; n < length; n++) {
        product += (rows[one * length + n] as number) * (rows[row * length + n] as number);
      }
      nearest[one] = Math.min(nearest[one] as number, 1 - product);
    }
  };
  for (let row = 0; row < labeled.length; row++) approach(pool.length + row);
  const ranked: RankedFrame[] = [];
  while (ranked.length < Math.min(budget, pool.length)) {
    // The first of those that are equally far: the most uncertain one.
    let farthest = 0;
    for (let one = 1; one < pool.length; one++) {
      if ((nearest[one] as number) > (nearest[farthest] as number)) farthest = one;
    }
    const distance = nearest[farthest] as number;
    if (distance < SAME_DISTANCE) break;
    const index = pool[farthest] as number;
    ranked.push({
      index,
      uncertainty: unsure[index] ?? null,
      distance: distance === Number.POSITIVE_INFINITY ? null : distance,
    });
    approach(farthest);
  }
  return ranked;
}

/**
 * How unsure a model is on each frame, of the entropies of its classes: each class counts for as
 * much as another, so that the rare ones, which an average precision weighs alike, are looked for
 * too. 1 is the mean.
 */
export function uncertaintiesOf(
  frames: readonly (Readonly<Record<string, number>> | null)[],
): (number | null)[] {
  const scored = frames.filter((one) => one !== null);
  const sums = new Map<string, number>();
  for (const one of scored) {
    for (const [name, bits] of Object.entries(one)) sums.set(name, (sums.get(name) ?? 0) + bits);
  }
  const largest = [...sums.values()].reduce((max, sum) => Math.max(max, sum), 0);
  const floor = largest / CLASS_WEIGHT_MAX;
  const weight = new Map([...sums].map(([name, sum]) => [name, 1 / (Math.max(sum, floor) || 1)]));
  const raw = frames.map(
    (one) =>
      one &&
      Object.entries(one).reduce((sum, [name, bits]) => sum + bits * (weight.get(name) ?? 0), 0),
  );
  const mean = raw.reduce<number>((sum, one) => sum + (one ?? 0), 0) / scored.length;
  return raw.map((one) => one && (mean > 0 ? one / mean : 0));
}

/** Vectors of one length as the rows of a matrix. */
interface Matrix {
  rows: Float32Array;
  length: number;
}

/** Each vector at unit length less the mean of all, at unit length again: what sets it apart. */
function directions(vectors: readonly ArrayLike<number>[]): Matrix {
  const length = vectors[0]?.length ?? 0;
  const rows = new Float32Array(vectors.length * length);
  const mean = new Float64Array(length);
  for (const [row, vector] of vectors.entries()) {
    rows.set(vector, row * length);
    toUnit(rows.subarray(row * length, (row + 1) * length));
    for (let n = 0; n < length; n++) {
      mean[n] = (mean[n] as number) + (rows[row * length + n] as number) / vectors.length;
    }
  }
  for (let row = 0; row < vectors.length; row++) {
    const own = rows.subarray(row * length, (row + 1) * length);
    for (let n = 0; n < length; n++) own[n] = (own[n] as number) - (mean[n] as number);
    toUnit(own);
  }
  return { rows, length };
}

function toUnit(vector: Float32Array): void {
  let squares = 0;
  for (let n = 0; n < vector.length; n++) squares += (vector[n] as number) ** 2;
  const scale = squares > 0 ? 1 / Math.sqrt(squares) : 0;
  for (let n = 0; n < vector.length; n++) vector[n] = (vector[n] as number) * scale;
}
