// Work of one call on pixels, object after object: within a bound, and never so long at once that
// the process hears no cancel.

import { setImmediate } from "node:timers/promises";
import { BlockFailure } from "../../shared/workflow/block.ts";

/** Pixels that one call works on, of all its objects together. */
const PIXELS_MAX = 200_000_000;

export class PixelWork {
  readonly #signal: AbortSignal;
  #pixels = 0;

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  /** To be waited for before each object; fails beyond the bound and where the run has ended. */
  async on(pixels: number): Promise<void> {
    this.#pixels += pixels;
    if (this.#pixels > PIXELS_MAX)
      throw new BlockFailure(`its objects cover more than ${PIXELS_MAX / 1e6} million pixels`);
    await setImmediate();
    this.#signal.throwIfAborted();
  }
}
