// Waiting: a bound on how many do the same at once, and a wait that can be given up.

/** Lets so many work at once; the others wait, in the order in which they came. */
export class Turns {
  readonly #waiting: (() => void)[] = [];
  #free: number;

  constructor(atOnce: number) {
    this.#free = atOnce;
  }

  async take<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((go) => this.#waiting.push(go));
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      // Whoever comes at this moment stands behind those who wait.
      if (next) next();
      else this.#free += 1;
    }
  }
}

/** What is promised, unless the signal comes first: then it fails by the signal's reason. */
export function unlessAborted<Result>(
  promised: Promise<Result>,
  signal: AbortSignal | undefined,
): Promise<Result> {
  if (!signal) return promised;
  return new Promise((resolve, reject) => {
    const end = () => reject(signal.reason);
    if (signal.aborted) end();
    signal.addEventListener("abort", end, { once: true });
    promised.then(resolve, reject).finally(() => signal.removeEventListener("abort", end));
  });
}
