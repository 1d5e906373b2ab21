// Which masks of an answer are told, and in which form: as many as fit within its bounds, the rest
// is counted.

import { BrokenMask, ringOfRunLengths } from "../../shared/detector/rings.ts";
import type { MaskBounds } from "../../shared/tasks/predict-task.ts";
import { type MaskForm, RING_NUMBERS_MAX, type SamMask } from "../../shared/tasks/sam.ts";
import type { Rle } from "./masks.ts";

/**
 * Steps that the ring of one mask may take, of those of all: a second or two, where most take
 * milliseconds. So the noise of one mask does not cost the others theirs.
 */
const RING_STEPS_MAX = 1_500_000;

/** A form in which there are masks. */
export type ToldForm = Exclude<MaskForm, "none">;

/** What of all masks is told: within the bounds, and the rest is counted. */
export class MaskAllowance {
  /** What is left of the bounds. */
  readonly left: MaskBounds;
  leftOut = 0;

  constructor({ maskNumbers, ringSteps }: MaskBounds) {
    this.left = { maskNumbers, ringSteps };
  }

  /** A mask in its form; one that takes more than is left does not keep smaller ones out. */
  told(rle: Rle, form: ToldForm): SamMask | null {
    const ring = form === "polygon" ? this.#ring(rle) : null;
    const numbers = (ring ?? rle.counts).length;
    if (numbers > this.left.maskNumbers || (form === "polygon" && !ring)) {
      this.leftOut += 1;
      return null;
    }
    this.left.maskNumbers -= numbers;
    return ring ? { polygon: ring } : { rle };
  }

  /** The ring of a mask; null for one of too many pieces and turns, or where others had as many. */
  #ring(rle: Rle): number[] | null {
    const steps = Math.min(RING_STEPS_MAX, this.left.ringSteps);
    if (steps <= 0) return null;
    const budget = { steps, numbers: RING_NUMBERS_MAX };
    try {
      return ringOfRunLengths(rle, budget);
    } catch (thrown) {
      if (thrown instanceof BrokenMask) return null;
      throw thrown;
    } finally {
      this.left.ringSteps -= steps - budget.steps;
    }
  }
}
