// How the claiming hears that there may be something to claim.

/** Says that something happened for which the claiming waits. */
export class Wakeup {
  #resolve = () => {};

  /** Resolves at the next wake; one promise at a time. */
  next(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#resolve = resolve;
    return promise;
  }

  wake() {
    this.#resolve();
  }
}
