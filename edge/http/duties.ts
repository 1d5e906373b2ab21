// What a Worker does every minute, each duty by itself.

import { isSilent } from "./database.ts";
import type { Log } from "./log.ts";

/** What came of duties, by their names; those of neither list were left to the next minute. */
export interface DutyOutcome {
  succeeded: string[];
  failed: string[];
}

/**
 * Performs duties in their order, each with what is given, whatever became of those before;
 * failures are logged by name. Where the database does not answer at all, those after are the next
 * minute's: waiting for it once each would take longer than a minute. Tells what came of each.
 */
export async function performDuties<Given extends unknown[]>(
  log: Log,
  duties: Readonly<Record<string, (...given: Given) => unknown>>,
  ...given: Given
): Promise<DutyOutcome> {
  const outcome: DutyOutcome = { succeeded: [], failed: [] };
  for (const [duty, perform] of Object.entries(duties)) {
    try {
      await perform(...given);
      outcome.succeeded.push(duty);
    } catch (error) {
      log.error("duty", { duty, error });
      outcome.failed.push(duty);
      if (isSilent(error)) break;
    }
  }
  return outcome;
}

/**
 * Performs a duty for each item, `atOnce` of them at a time. A failure is logged and ends none of
 * the others; a database that does not answer at all ends the duty.
 */
export async function performEach<Item>(
  log: Log,
  { duty, items, atOnce }: { duty: string; items: readonly Item[]; atOnce: number },
  perform: (item: Item) => Promise<unknown>,
): Promise<void> {
  const left = items.toReversed();
  const performNext = async () => {
    for (let item = left.pop(); item !== undefined; item = left.pop()) {
      try {
        await perform(item);
      } catch (error) {
        if (isSilent(error)) throw error;
        log.error("duty", { duty, error });
      }
    }
  };
  await Promise.all(Array.from({ length: atOnce }, performNext));
}
