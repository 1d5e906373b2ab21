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
