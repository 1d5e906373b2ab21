// What a Worker does every minute, each duty by itself.

import { isSilent } from "./database.ts";
import type { Log } from "./log.ts";

/**
 * Performs duties in their order, each with what is given, whatever became of those before;
 * failures are logged by name. Where the database does not answer at all, those after are the next
 * minute's: waiting for it once each would take longer than a minute.
 */
export async function performDuties<Given extends unknown[]>(
  log: Log,
  duties: Readonly<Record<string, (...given: Given) => unknown>>,
  ...given: Given
) {
  for (const [duty, perform] of Object.entries(duties)) {
    try {
      await perform(...given);
    } catch (error) {
      log.error("duty", { duty, error });
      if (isSilent(error)) return;
    }
  }
}
