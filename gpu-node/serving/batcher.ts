// Runs together what waits together. Nothing waits for company: a free model takes whatever is
// there, and what comes while it runs is the next batch; where several may be under way, that one
// lies ready when the model has done the one before. Batches are powers of two, so that a GPU meets
// few shapes; each shape costs it a search for the fastest kernels.

interface WaitingItem<Item, Result> {
  item: Item;
  signal: AbortSignal | undefined;
  resolve(result: Result): void;
  reject(reason: unknown): void;
}

export class Batcher<Item, Result> {
  readonly sizeMax: number;
  readonly #run: (items: readonly Item[]) => Promise<readonly Result[]>;
  readonly #waiting: WaitingItem<Item, Result>[] = [];
  readonly #batchesMax: number;
  /** Batches under way. */
  #working = 0;

  /**
   * `run` gives a result for each item, in order; its failure is that of its whole batch. At most
   * `batchesMax` batches are under way at once.
   */
  constructor(
    sizeMax: number,
    run: (items: readonly Item[]) => Promise<readonly Result[]>,
    { batchesMax = 1 }: { batchesMax?: number } = {},
  ) {
    this.sizeMax = sizeMax;
    this.#run = run;
    this.#batchesMax = batchesMax;
  }

  /** An item that is aborted before its batch is closed is never run; it fails by the reason. */
  add(item: Item, signal?: AbortSignal): Promise<Result> {
    const result = new Promise<Result>((resolve, reject) => {
      this.#waiting.push({ item, signal, resolve, reject });
    });
    if (this.#working < this.#batchesMax) void this.#work();
    return result;
  }

  async #work() {
    this.#working += 1;
    // Whoever adds several at once adds them all before the first batch is closed.
    await Promise.resolve();
    for (;;) {
      this.#dropAborted();
      if (this.#waiting.length === 0) break;
      const batch = this.#waiting.splice(0, powerOfTwo(this.#waiting.length, this.sizeMax));
      try {
        const results = await this.#run(batch.map(({ item }) => item));
        batch.forEach(({ resolve }, index) => {
          resolve(results[index] as Result);
        });
      } catch (thrown) {
        for (const { reject } of batch) reject(thrown);
      }
    }
    this.#working -= 1;
  }

  #dropAborted() {
    const all = this.#waiting.splice(0);
    for (const one of all) {
      if (one.signal?.aborted) one.reject(one.signal.reason);
      else this.#waiting.push(one);
    }
  }
}

/** The largest power of two that is no more than either. */
const powerOfTwo = (count: number, sizeMax: number) =>
  2 ** Math.floor(Math.log2(Math.min(count, sizeMax)));
