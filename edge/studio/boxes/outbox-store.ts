// Where an outbox keeps what must outlive the page: entries that the server has not answered,
// cards, and the steps that can be undone. One write is one transaction: all of it is stored or
// nothing.

import type { Step, StepChanges } from "./history.ts";
import type { OutboxEntry } from "./outbox-queue.ts";

/** What is stored of a job, each list in the order of its keys. */
export interface StoredOutbox {
  entries: OutboxEntry[];
  steps: Step[];
}

/** What one transaction changes. */
export interface StoreChange {
  /** Entries to insert or replace, by their key. */
  put: readonly OutboxEntry[];
  /** Keys of entries to remove. */
  remove: readonly string[];
  steps: StepChanges;
}

/** Storage of the outboxes of this browser; writes take effect in the order of their calls. */
export interface OutboxStore {
  load(job: string): Promise<StoredOutbox>;
  write(job: string, change: StoreChange): Promise<void>;
}

const byKey = (one: { key: string }, other: { key: string }) => (one.key < other.key ? -1 : 1);

/** Storage that lasts as long as the page: where the browser has none, and in tests. */
export function memoryStore(): OutboxStore {
  const jobs = new Map<string, { entries: Map<string, OutboxEntry>; steps: Map<string, Step> }>();
  const ofJob = (job: string) => {
    const known = jobs.get(job) ?? { entries: new Map(), steps: new Map() };
    jobs.set(job, known);
    return known;
  };
  return {
    async load(job) {
      const { entries, steps } = ofJob(job);
      return structuredClone({
        entries: [...entries.values()].sort(byKey),
        steps: [...steps.values()].sort(byKey),
      });
    },
    async write(job, change) {
      const { put, remove, steps } = structuredClone(change);
      const known = ofJob(job);
      for (const entry of put) known.entries.set(entry.key, entry);
      for (const key of remove) known.entries.delete(key);
      for (const step of steps.put) known.steps.set(step.key, step);
      for (const key of steps.remove) known.steps.delete(key);
    },
  };
}
