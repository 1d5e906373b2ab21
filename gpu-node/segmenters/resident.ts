// The one segmenter that a process has open, for all who work with it at once. It fills much of the
// memory, so another one is opened only when nobody works with it any more; and whoever waits for
// that other one is not passed over for ever by those who come for the first.

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
    const opened = await taken;
    try {
      return await work(await opened.segmenter);
    } finally {
      opened.users -= 1;
      if (opened.users === 0) opened.onIdle();
    }
  }

  /** Whether work with a segmenter would begin at once. */
  isOpen(name: string | null): boolean {
    return this.#current?.isOpen === true && this.#current.names.has(name);
  }

  async #take(name: string | null, signal: AbortSignal | undefined): Promise<OpenSegmenter> {
    signal?.throwIfAborted();
    if (!this.#current?.names.has(name)) {
      if (this.#current) await this.#close(this.#current);
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

  async #close(opened: OpenSegmenter) {
    if (opened.users > 0) {
      await new Promise<void>((done) => {
        opened.onIdle = done;
      });
    }
    this.#current = null;
    this.#options.onClose();
    this.#options.onChange(null);
    const segmenter = await opened.segmenter.catch(() => null);
    await segmenter?.dispose();
  }
}
