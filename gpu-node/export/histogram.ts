// How often numbers of each size occur, in one pass and bounded memory.

import type { MapRange } from "./ranges.ts";

/** Half of them on each side of zero. */
const BINS = 2048;
const HALF = BINS / 2;
const REACH_MIN = 1e-6;

/** What was counted holds what is no number. */
export class NotNumbers extends Error {
  override readonly name = "NotNumbers";
}

/** A histogram on both sides of zero, which reaches further by merging its bins in pairs. */
export class Histogram {
  readonly #counts = new Float64Array(BINS);
  #low = 0;
  #high = 0;
  /** The bins cover −reach to reach, exclusive. */
  #reach = REACH_MIN;

  /** Counts numbers; throws NotNumbers for what is none. */
  add(values: Float32Array): void {
    let max = 0;
    let sum = 0;
    for (let at = 0; at < values.length; at++) {
      const value = values[at] as number;
      if (value < this.#low) this.#low = value;
      if (value > this.#high) this.#high = value;
      const size = Math.abs(value);
      if (size > max) max = size;
      sum += size;
    }
    if (!Number.isFinite(sum)) throw new NotNumbers("a map holds what is no number");
    while (max >= this.#reach) this.#grow();
    const counts = this.#counts;
    const scale = HALF / this.#reach;
    for (let at = 0; at < values.length; at++) {
      const bin = Math.floor((values[at] as number) * scale) + HALF;
      counts[bin] = (counts[bin] as number) + 1;
    }
  }

  /** From the smallest to the greatest number, but for this share of all on either side. */
  range(share: number): MapRange {
    const total = this.#counts.reduce((sum, count) => sum + count, 0);
    const edge = (first: number, step: 1 | -1): number => {
      let left = total * share;
      let bin = first;
      for (; bin >= 0 && bin < BINS; bin += step) {
        left -= this.#counts[bin] as number;
        if (left <= 0) break;
      }
      return bin;
    };
    const width = this.#reach / HALF;
    const low = (edge(0, 1) - HALF) * width;
    const high = (edge(BINS - 1, -1) + 1 - HALF) * width;
    return [Math.max(Math.min(low, 0), this.#low), Math.min(Math.max(high, 0), this.#high)];
  }

  #grow() {
    const before = this.#counts.slice();
    this.#counts.fill(0);
    for (let bin = 0; bin < BINS; bin++) {
      const wider = HALF + Math.floor((bin - HALF) / 2);
      this.#counts[wider] = (this.#counts[wider] as number) + (before[bin] as number);
    }
    this.#reach *= 2;
  }
}
