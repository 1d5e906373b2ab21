// Writes of one outbox to its storage: one transaction at a time, into which everything goes that
// was handed in while the one before was on its way.

import type { Step } from "./history.ts";
import type { OutboxEntry } from "./outbox-queue.ts";
import type { OutboxStore, StoreChange } from "./outbox-store.ts";

/** The newest form of each key; null: it is to be removed. */
interface Batch {
  entries: Map<string, OutboxEntry | null>;
  steps: Map<string, Step | null>;
}

const newBatch = (): Batch => ({ entries: new Map(), steps: new Map() });

function split<Value>(values: ReadonlyMap<string, Value | null>) {
  const put = [...values.values()].filter((value) => value !== null);
  const remove = [...values].filter(([, value]) => value === null).map(([key]) => key);
  return { put, remove };
}

export class StoreWriter {
  /**
   * Whether all is stored that was written; what a write could not store goes into the next one.
   */
  isStored = true;
  readonly #job: string;
  readonly #store: OutboxStore;
  #next = newBatch();
  #isWriting = false;
  #nextWrite: Promise<void> = Promise.resolve();

  constructor(job: string, store: OutboxStore) {
    this.#job = job;
    this.#store = store;
  }

  /** Resolves once the change and all before it are written, or cannot be. */
  write({ put, remove, steps }: StoreChange): Promise<void> {
    for (const entry of put) this.#next.entries.set(entry.key, entry);
    for (const key of remove) this.#next.entries.set(key, null);
    for (const step of steps.put) this.#next.steps.set(step.key, step);
    for (const key of steps.remove) this.#next.steps.set(key, null);
    const isEmpty = this.#next.entries.size + this.#next.steps.size === 0;
    if (!this.#isWriting && !isEmpty) {
      this.#isWriting = true;
      this.#nextWrite = this.#nextWrite.then(() => this.#flush());
    }
    return this.#nextWrite;
  }

  async #flush(): Promise<void> {
    const { entries, steps } = this.#next;
    this.#next = newBatch();
    // What is handed in from now on goes into a write of its own.
    this.#isWriting = false;
    try {
      await this.#store.write(this.#job, { ...split(entries), steps: split(steps) });
      this.isStored = true;
    } catch {
      this.isStored = false;
      const next = this.#next;
      this.#next = {
        entries: new Map([...entries, ...next.entries]),
        steps: new Map([...steps, ...next.steps]),
      };
    }
  }
}
