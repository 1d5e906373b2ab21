// What a Worker does every minute, each duty by itself.

import type { Log } from "./log.ts";

/**
 * Performs duties in their order, each with what is given, whatever became of those before;
 * failures are logged by name.
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
    }
  }
}
