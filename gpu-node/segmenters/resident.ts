// The one segmenter that a process has open, for all who work with it at once. It fills much of the
// memory, so another one is opened only when nobody works with it any more; and whoever waits for
// that other one is not passed over for ever by those who come for the first.

import { unlessAborted } from "../base/turns.ts";
import type { Segmenter } from "./segmenter.ts";

export interface ResidentOptions {
  /** Opens a segmenter by name; null is the default. */
  open(name: string | null): Promise<Segmenter>;
  /** What was made with the segmenter is of no use any more: it closes. */
  onClose(): void;
  /** Another segmenter is open, by its own name; null is none. */
  onChange(name: string | null): void;
}

interface OpenSegmenter {
  /** What it was asked for as, null for the default, and its own name. */
  names: Set<string | null>;
  segmenter: Promise<Segmenter>;
  isOpen: boolean;
  users: number;
  /** Hears that the last user has gone. */
  onIdle: () => void;
}

export class ResidentSegmenter {
  readonly #options: ResidentOptions;
  #current: OpenSegmenter | null = null;
  #last: Promise<unknown> = Promise.resolve();

  constructor(options: ResidentOptions) {
    this.#options = options;
  }

  /**
   * Works with a segmenter, which stays open meanwhile. Who gives up by the signal before it is his
   * turn fails by its reason.
   */
  async use<Result>(
    name: string | null,
    work: (segmenter: Segmenter) => Promise<Result>,
    signal?: AbortSignal,
  ): Promise<Result> {
    const taken = this.#last.then(() => this.#take(name, signal));
    this.#last = taken.catch(() => {});
    // Whoever gives up is gone at once, and not only when it would have been his turn.
    const opened = await unlessAborted(taken, signal).catch((reason: unknown) => {
      taken.then(
        (unused) => this.#leave(unused),
        () => {},
      );
      throw reason;
    });
    try {
      return await work(await opened.segmenter);
    } finally {
      this.#leave(opened);
    }
  }

  #leave(opened: OpenSegmenter) {
    opened.users -= 1;
    if (opened.users === 0) opened.onIdle();
  }

  /** Whether work with a segmenter would begin at once. */
  isOpen(name: string | null): boolean {
    return this.#current?.isOpen === true && this.#current.names.has(name);
  }

  async #take(name: string | null, signal: AbortSignal | undefined): Promise<OpenSegmenter> {
    signal?.throwIfAborted();
    if (!this.#current?.names.has(name)) {
      if (this.#current) await this.#close(this.#current, signal);
      signal?.throwIfAborted();
      this.#current = this.#open(name);
    }
    this.#current.users += 1;
    return this.#current;
  }

  #open(name: string | null): OpenSegmenter {
    const opened: OpenSegmenter = {
      names: new Set([name]),
      segmenter: this.#options.open(name),
      isOpen: false,
      users: 0,
      onIdle: () => {},
    };
    opened.segmenter.then(
      ({ info }) => {
        opened.isOpen = true;
        opened.names.add(info.name);
        if (this.#current === opened) this.#options.onChange(info.name);
      },
      // The next who asks tries again.
      () => {
        if (this.#current === opened) this.#current = null;
      },
    );
    return opened;
  }

  /** Closes a segmenter once it is nobody's; by the signal it stays open for those who have it. */
  async #close(opened: OpenSegmenter, signal: AbortSignal | undefined) {
    if (opened.users > 0) {
      const { promise: idle, resolve } = Promise.withResolvers<void>();
      opened.onIdle = resolve;
      await unlessAborted(idle, signal);
    }
    this.#current = null;
    this.#options.onClose();
    this.#options.onChange(null);
    const segmenter = await opened.segmenter.catch(() => null);
    await segmenter?.dispose();
  }
}
