// Work of the minute that comes in steps, such as forgetting rows: as many as there is time for.

import type { Clock } from "../../../shared/time.ts";

/**
 * Repeats a step, which answers how many rows it was for, until there are none or `milliseconds`
 * have passed; at least once. What is left then is the next minute's.
 */
export async function repeatFor(
  { clock }: { clock: Clock },
  milliseconds: number,
  step: () => Promise<number>,
): Promise<void> {
  const until = clock() + milliseconds;
  while ((await step()) > 0 && clock() < until);
}
