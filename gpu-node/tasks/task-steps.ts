// How far a task of known steps is.

import type { RunnerContext } from "./runner-context.ts";

/** Counts steps, and reports each; a canceled task ends at its next one. */
export class TaskSteps {
  readonly #context: Pick<RunnerContext, "progress" | "cancel">;
  readonly #total: number;
  #done = 0;

  constructor(context: Pick<RunnerContext, "progress" | "cancel">, total: number) {
    this.#context = context;
    this.#total = total;
  }

  next(): void {
    this.#context.cancel.throwIfAborted();
    // What could not be looked at is done, too: the last step is the total.
    this.#done = Math.min(this.#done + 1, this.#total);
    this.#report({});
  }

  /** Says what a long step is at, so that nobody takes it for stuck. */
  at(detail: Record<string, unknown>): void {
    this.#report(detail);
  }

  #report(detail: Record<string, unknown>) {
    this.#context.progress({ done: this.#done, total: this.#total, detail });
  }
}
