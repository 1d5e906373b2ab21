// A bound on how many large reads one isolate works on at once, so that their buffers fit its
// memory.

import { Failure } from "../../shared/errors.ts";
import type { Clock } from "../../shared/time.ts";

const POLL_MS = 25;

/** How many slots there are and how long they are waited for and held, in milliseconds. */
export interface SlotOptions {
  /** Reads that may hold a slot at once. */
  slotsMax: number;
  /** A read of no more rows needs no slot. */
  largeRows: number;
  /** How long a read waits for a slot before it fails with `busy`. */
  waitMs: number;
  /** How long a holder may be silent before its slot is free again. */
  leaseMs: number;
  clock: Clock;
}

/**
 * The slots of one isolate. A holder renews its slot with each part it passes on; a holder whose
 * request was cut off never comes back, and its slot is free again after `leaseMs`.
 */
export class Slots {
  readonly #leases = new Map<symbol, number>();
  readonly #options: SlotOptions;

  constructor(options: SlotOptions) {
    this.#options = options;
  }

  /**
   * Passes the parts of an answer on. An answer that works through more than `largeRows` rows
   * holds a slot meanwhile, and fails with `busy` when no slot gets free in time.
   */
  async *hold<Part>(parts: AsyncIterable<Part>, rows: number): AsyncGenerator<Part> {
    if (rows <= this.#options.largeRows) return yield* parts;
    const slot = await this.#take();
    try {
      for await (const part of parts) {
        yield part;
        this.#leases.set(slot, this.#options.clock() + this.#options.leaseMs);
      }
    } finally {
      this.#leases.delete(slot);
    }
  }

  // Each waiter polls by its own timer: in a Worker one request must not wake another.
  async #take(): Promise<symbol> {
    const { slotsMax, leaseMs, waitMs, clock } = this.#options;
    const patience = clock() + waitMs;
    for (;;) {
      const now = clock();
      for (const [slot, until] of this.#leases) if (until < now) this.#leases.delete(slot);
      if (this.#leases.size < slotsMax) {
        const slot = Symbol("slot");
        this.#leases.set(slot, now + leaseMs);
        return slot;
      }
      if (now >= patience) {
        throw new Failure("busy", "too many large reads at once; try again, or narrow the read");
      }
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }
}
