// Asks for what comes next before it is needed, so that it is made while others are worked on.

/**
 * What a generator gives, in its order, asked for so many steps ahead. Whoever stops early ends the
 * generator once what it is at is made.
 */
export async function* lookAhead<Item>(
  items: AsyncGenerator<Item>,
  steps: number,
): AsyncGenerator<Item> {
  const asked: Promise<IteratorResult<Item>>[] = [];
  const ask = () => {
    const next = items.next();
    // Whoever waits for it hears of its failure, also where that is later.
    next.catch(() => {});
    asked.push(next);
  };
  try {
    for (let step = 0; step < steps; step++) ask();
    for (;;) {
      ask();
      const result = await asked.shift();
      if (!result || result.done) return;
      yield result.value;
    }
  } finally {
    await items.return(undefined);
  }
}

export interface TurnOptions {
  /** Generators that are at work at once. */
  hands: number;
  /** Steps that each of them is asked for ahead. */
  steps: number;
}

/**
 * What generators give, all of one before any of the next, while some of those that follow are at
 * work already. Whoever stops early, or meets a failure, ends those that were begun.
 */
export async function* inTurn<Item>(
  sources: Iterable<AsyncGenerator<Item>>,
  { hands, steps }: TurnOptions,
): AsyncGenerator<Item> {
  const rest = sources[Symbol.iterator]();
  const begun: { items: AsyncGenerator<Item>; first: Promise<IteratorResult<Item>> }[] = [];
  const begin = () => {
    const { done, value } = rest.next();
    if (done) return;
    const items = lookAhead(value, steps);
    const first = items.next();
    // It is heard of in its turn.
    first.catch(() => {});
    begun.push({ items, first });
  };
  try {
    for (let hand = 0; hand < hands; hand++) begin();
    for (let current = begun[0]; current; current = begun[0]) {
      const { items, first } = current;
      for (let result = await first; !result.done; result = await items.next()) yield result.value;
      begun.shift();
      begin();
    }
  } finally {
    await Promise.allSettled(begun.map(({ items }) => items.return(undefined)));
  }
}
