// A bound on how many large reads one isolate works on at once, so that their buffers fit its
// memory.

import { Failure } from "../../shared/errors.ts";
import type { Clock } from "../../shared/time.ts";

const POLL_MS = 25;

export interface SlotOptions {
  most: number;
  /** A read of no more rows needs no slot. */
  largeRows: number;
  waitMs: number;
  leaseMs: number;
  clock: Clock;
}

/**
 * A holder renews its slot as it works; one whose request was cut off never comes back, and its
 * slot is free again after `leaseMs`.
 */
export class Slots {
  readonly #leases = new Map<symbol, number>();
  readonly #options: SlotOptions;

  constructor(options: SlotOptions) {
    this.#options = options;
  }

  /**
   * Passes the parts of an answer on; of one that works through many rows, while it holds a slot.
   * Fails with `busy` when none gets free in time.
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
    const { most, leaseMs, waitMs, clock } = this.#options;
    const patience = clock() + waitMs;
    for (;;) {
      const now = clock();
      for (const [slot, until] of this.#leases) if (until < now) this.#leases.delete(slot);
      if (this.#leases.size < most) {
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
