// A task's progress on its way to the service: one report at a time, and the newest when its turn
// comes; those in between are left out.

import type { TaskProgress } from "../../shared/node-protocol.ts";

export interface ProgressReportsOptions {
  /** Sends one report. What it throws ends the sending until there is newer progress. */
  send(progress: TaskProgress): Promise<void>;
  onFailed(thrown: unknown): void;
}

export class ProgressReports {
  readonly #options: ProgressReportsOptions;
  #next: TaskProgress | null = null;
  #sending: Promise<void> | null = null;
  #closed = false;

  constructor(options: ProgressReportsOptions) {
    this.#options = options;
  }

  /** Sends this progress next, in place of what waits for its turn. */
  report(progress: TaskProgress) {
    this.#next = progress;
    this.#sending ??= this.#sendAll()
      .catch((thrown: unknown) => this.#options.onFailed(thrown))
      .finally(() => {
        this.#sending = null;
      });
  }

  /** Resolves when every report so far was answered or given up. */
  async sent(): Promise<void> {
    await this.#sending;
  }

  /** Sends nothing more but what is under way. */
  close() {
    this.#closed = true;
  }

  async #sendAll() {
    while (this.#next && !this.#closed) {
      const next = this.#next;
      this.#next = null;
      await this.#options.send(next);
    }
  }
}
