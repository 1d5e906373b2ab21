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
/** No class counts for more than so many times another: one stray object of a class is no lesson. */
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
  const pool = unsure.some((one) => one !== null)
    ? order.slice(0, POOL_PER_CHOSEN * budget)
    : order;
  const vectors = directions([
    ...pool.map((at) => (candidates[at] as Candidate).vector),
    ...labeled,
  ]);
  const own = vectors.slice(0, pool.length);
  const nearest = new Float32Array(pool.length).fill(Number.POSITIVE_INFINITY);
  const approach = (to: Float32Array) => {
    for (const [at, vector] of own.entries()) {
      nearest[at] = Math.min(nearest[at] as number, 1 - dot(vector, to));
    }
  };
  for (const vector of vectors.slice(pool.length)) approach(vector);
  const ranked: RankedFrame[] = [];
  while (ranked.length < Math.min(budget, pool.length)) {
    // The first of those that are equally far: the most uncertain one.
    const at = nearest.reduce(
      (best, far, one) => (far > (nearest[best] as number) ? one : best),
      0,
    );
    const distance = nearest[at] as number;
    if (distance < SAME_DISTANCE) break;
    const index = pool[at] as number;
    ranked.push({
      index,
      uncertainty: unsure[index] ?? null,
      distance: distance === Number.POSITIVE_INFINITY ? null : distance,
    });
    approach(own[at] as Float32Array);
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
  const floor = Math.max(...sums.values()) / CLASS_WEIGHT_MAX;
  const weight = new Map([...sums].map(([name, sum]) => [name, 1 / (Math.max(sum, floor) || 1)]));
  const raw = frames.map(
    (one) =>
      one &&
      Object.entries(one).reduce((sum, [name, bits]) => sum + bits * (weight.get(name) ?? 0), 0),
  );
  const mean = raw.reduce<number>((sum, one) => sum + (one ?? 0), 0) / scored.length;
  return raw.map((one) => one && (mean > 0 ? one / mean : 0));
}

/** Each vector less the mean of all, at unit length: what sets it apart from the others. */
export function directions(vectors: readonly ArrayLike<number>[]): Float32Array[] {
  const units = vectors.map(unit);
  const mean = new Float32Array(units[0]?.length ?? 0);
  for (const vector of units) {
    for (let at = 0; at < mean.length; at++) {
      mean[at] = (mean[at] as number) + (vector[at] as number) / units.length;
    }
  }
  return units.map((vector) => unit(vector.map((value, at) => value - (mean[at] as number))));
}

function unit(vector: ArrayLike<number>): Float32Array {
  const values = Float32Array.from(vector);
  const length = Math.sqrt(dot(values, values));
  return length > 0 ? values.map((value) => value / length) : values;
}

/** The cosine of two vectors of unit length. */
export function dot(one: Float32Array, other: Float32Array): number {
  let sum = 0;
  for (let at = 0; at < one.length; at++) sum += (one[at] as number) * (other[at] as number);
  return sum;
}

/**
 * The cosine of each vector and the one at an index, both less the mean of all: 1 for the same,
 * about 0 for any other. Vectors are of one length; of two or fewer, without the mean.
 */
export function similarities(vectors: readonly ArrayLike<number>[], to: number): number[] {
  const all = vectors.length > 2 ? directions(vectors) : vectors.map(unit);
  const target = all[to];
  return target ? all.map((vector) => dot(vector, target)) : [];
}
