// A task's progress on its way to the service: one report at a time, and the newest when its turn
// comes. Those in between are left out, but for those that carry a part of the result.

import type { TaskReport } from "../../shared/tasks/node-protocol.ts";

export interface ProgressReportsOptions {
  /** Sends one report. What it throws ends the sending until there is newer progress. */
  send(progress: TaskReport): Promise<void>;
  onFailed(thrown: unknown): void;
}

export class ProgressReports {
  readonly #options: ProgressReportsOptions;
  /** In order; all but the last carry a part. */
  readonly #waiting: TaskReport[] = [];
  #sending: Promise<void> | null = null;
  #closed = false;

  constructor(options: ProgressReportsOptions) {
    this.#options = options;
  }

  /** Sends this progress after what waits for its turn, or in its place. */
  report(progress: TaskReport) {
    if (!this.#waiting.at(-1)?.partial) this.#waiting.pop();
    this.#waiting.push(progress);
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
    for (let next = this.#waiting.shift(); next; next = this.#waiting.shift()) {
      if (!this.#closed) await this.#options.send(next);
    }
  }
}
