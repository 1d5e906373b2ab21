// A bound on how many large reads one isolate works on at once, so that their buffers fit its
// memory.

import { Failure } from "../../shared/errors.ts";
import type { Clock } from "../../shared/time.ts";

const POLL_MS = 25;

/**
 * A holder renews its slot as it works; one whose request was cut off never comes back, and its
 * slot is free again after `leaseMs`.
 */
export class Slots {
  readonly #leases = new Map<symbol, number>();
  readonly #options: { most: number; leaseMs: number; waitMs: number; clock: Clock };

  constructor(options: { most: number; leaseMs: number; waitMs: number; clock: Clock }) {
    this.#options = options;
  }

  /** Passes the items on while it holds a slot; fails with `busy` when none gets free in time. */
  async *hold<Item>(items: AsyncIterable<Item>): AsyncGenerator<Item> {
    const slot = await this.#take();
    try {
      for await (const item of items) {
        yield item;
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
