// How many images a run measures together: more than a step takes, and fewer where they do not fit
// into memory, for the rest of the attempt.

import type { RunState } from "./checkpoints.ts";
import { isOutOfMemory } from "./engine-failure.ts";
import type { Report } from "./report.ts";
import { BATCH_MAX } from "./settings.ts";

export class EvaluationBatch {
  #images: number;
  readonly #report: Pick<Report, "say">;

  /**
   * Nothing is kept for a way back, so twice as many images as a step takes mostly need less memory
   * than the step.
   */
  constructor({ resolved }: Pick<RunState, "resolved">, report: Pick<Report, "say">) {
    this.#images = Math.min(BATCH_MAX, 2 * resolved.batch_size);
    this.#report = report;
  }

  /** Does what looks at so many images together; again with half of them where memory is short. */
  async measure<Result>(work: (images: number) => Promise<Result>): Promise<Result> {
    for (;;) {
      try {
        return await work(this.#images);
      } catch (thrown) {
        if (!isOutOfMemory(thrown) || this.#images === 1) throw thrown;
        const half = Math.floor(this.#images / 2);
        const what = `Out of memory measuring ${this.#images} pictures together`;
        this.#report.say(`${what}: trying again with ${half}.`);
        this.#images = half;
      }
    }
  }
}
