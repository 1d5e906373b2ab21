// What the reviews of a slice say of its confidences: histograms by state, and the precision and
// recall to expect from a threshold, with the interval that so few reviews leave.

import { confidenceCode, NO_CONFIDENCE, SOURCES } from "../../../shared/columns/column-layout.ts";
import { type BoxTable, STATES } from "./columns.ts";

/** Boxes of one state by confidence, and those without one. */
export interface StateCounts {
  bins: Uint32Array;
  without: number;
}

/** Histograms of one bin width from 0 to 1, by state. */
export type Histograms = Record<"pending" | "accepted" | "rejected", StateCounts>;

/** Counts the rows of a slice by state and confidence. */
export function histograms(table: BoxTable, rows: Uint32Array, binCount: number): Histograms {
  const empty = () => ({ bins: new Uint32Array(binCount), without: 0 });
  const counts = { pending: empty(), accepted: empty(), rejected: empty() };
  const byState = [counts.pending, counts.accepted, counts.rejected];
  const { state, confidence } = table.columns;
  for (const row of rows) {
    const own = byState[state[row] as number];
    const value = confidence[row] as number;
    if (!own) continue;
    if (value === NO_CONFIDENCE) own.without += 1;
    else {
      const bin = Math.min(binCount - 1, Math.floor((value * binCount) / (NO_CONFIDENCE - 1)));
      own.bins[bin] = (own.bins[bin] as number) + 1;
    }
  }
  return counts;
}

/** A share of counted things with its 95 % interval; null of nothing. */
export interface Share {
  value: number;
  low: number;
  high: number;
  /** Things that the share is of. */
  of: number;
}

const Z_95 = 1.959_963_984_540_054;

/** The share and its Wilson interval, which holds for few and for extreme shares too. */
export function shareOf(count: number, of: number): Share | null {
  if (of === 0) return null;
  const value = count / of;
  const z2 = Z_95 ** 2 / of;
  const middle = (value + z2 / 2) / (1 + z2);
  const half = (Z_95 / (1 + z2)) * Math.sqrt((value * (1 - value)) / of + z2 / (4 * of));
  return { value, low: Math.max(0, middle - half), high: Math.min(1, middle + half), of };
}

/** Reviewed boxes of a slice at or above each value of the column `confidence`. */
export class ReviewCurve {
  readonly #accepted = new Uint32Array(NO_CONFIDENCE + 1);
  readonly #reviewed = new Uint32Array(NO_CONFIDENCE + 1);
  /** Boxes that people drew and that stand: the model found them at no threshold. */
  #missed = 0;

  /** Boxes without a confidence count as missed where a person drew them, else not at all. */
  constructor(table: BoxTable, rows: Uint32Array) {
    const { state, confidence, source } = table.columns;
    const person = SOURCES.indexOf("person");
    for (const row of rows) {
      const isAccepted = state[row] === STATES.accepted;
      if (!isAccepted && state[row] !== STATES.rejected) continue;
      const value = confidence[row] as number;
      if (value === NO_CONFIDENCE) {
        if (isAccepted && source[row] === person) this.#missed += 1;
        continue;
      }
      this.#reviewed[value] = (this.#reviewed[value] as number) + 1;
      if (isAccepted) this.#accepted[value] = (this.#accepted[value] as number) + 1;
    }
    for (const counts of [this.#accepted, this.#reviewed]) {
      for (let value = NO_CONFIDENCE - 1; value >= 0; value--) {
        counts[value] = (counts[value] as number) + (counts[value + 1] as number);
      }
    }
  }

  /** Share of accepted boxes among the reviewed ones at or above a threshold. */
  precision(threshold: number): Share | null {
    const value = confidenceCode(threshold);
    return shareOf(this.#accepted[value] as number, this.#reviewed[value] as number);
  }

  /** Share of the accepted boxes that are at or above a threshold. */
  recall(threshold: number): Share | null {
    const found = this.#accepted[confidenceCode(threshold)] as number;
    return shareOf(found, (this.#accepted[0] as number) + this.#missed);
  }
}
