// Results of steps across runs, for a while: bounded by number, bytes and age; what was used last
// stays longest. It holds finished results only, so that no run that failed leaves anything in it.

import type { AnsweringModel } from "./block.ts";
import type { KeyedValue } from "./plan.ts";

/** A value of a run: null is masked, and a list is the batch that the step has made of it. */
export type StoredValue = KeyedValue | null | readonly (KeyedValue | null)[];

/** What a block has made of an element, but for what it may do only once. */
export interface StoredResult {
  outputs: Readonly<Record<string, StoredValue>>;
  models: readonly AnsweringModel[];
  warnings: readonly string[];
}

export interface CacheBounds {
  entriesMax: number;
  /** Bytes of all values in it, as `sizeOf` tells them. */
  bytesMax: number;
  /** Milliseconds that a result may be used after it was made. */
  ageMax: number;
}

interface Entry {
  result: StoredResult;
  bytes: number;
  /** By the clock of the runs, milliseconds. */
  madeAt: number;
}

/** Results by key; one for all runs of a host. `sizeOf` tells a value's bytes in memory. */
export class ResultCache {
  readonly #bounds: CacheBounds;
  readonly #sizeOf: (value: unknown) => number;
  /** The one that was used last stands last. */
  readonly #entries = new Map<string, Entry>();
  #bytes = 0;

  constructor(bounds: CacheBounds, sizeOf: (value: unknown) => number) {
    this.#bounds = bounds;
    this.#sizeOf = sizeOf;
  }

  get size(): { entries: number; bytes: number } {
    return { entries: this.#entries.size, bytes: this.#bytes };
  }

  /** The result of a key, or null where none is held that is young enough. */
  get(key: string, now: number): StoredResult | null {
    const entry = this.#entries.get(key);
    if (!entry) return null;
    this.#entries.delete(key);
    if (now - entry.madeAt > this.#bounds.ageMax) {
      this.#bytes -= entry.bytes;
      return null;
    }
    this.#entries.set(key, entry);
    return entry.result;
  }

  /** Holds a result; one that alone has more bytes than all may have is not held. */
  set(key: string, result: StoredResult, now: number): void {
    const bytes = Object.values(result.outputs).reduce(
      (sum: number, value) => sum + this.#bytesOf(value),
      key.length,
    );
    this.#drop(key);
    if (bytes > this.#bounds.bytesMax) return;
    this.#entries.set(key, { result, bytes, madeAt: now });
    this.#bytes += bytes;
    for (const [oldest, { madeAt }] of this.#entries) {
      const isFull =
        this.#entries.size > this.#bounds.entriesMax || this.#bytes > this.#bounds.bytesMax;
      if (!isFull && now - madeAt <= this.#bounds.ageMax) break;
      this.#drop(oldest);
    }
  }

  #bytesOf(value: StoredValue): number {
    if (value === null) return 0;
    if ("key" in value) return value.key.length + this.#sizeOf(value.value);
    return value.reduce((sum, item) => sum + this.#bytesOf(item), 0);
  }

  #drop(key: string): void {
    this.#bytes -= this.#entries.get(key)?.bytes ?? 0;
    this.#entries.delete(key);
  }
}
