// What a Worker does every minute, each duty by itself.

import type { Log } from "./log.ts";

/** Performs duties in their order, whatever became of those before; failures are logged by name. */
export async function performDuties(log: Log, duties: Readonly<Record<string, () => unknown>>) {
  for (const [duty, perform] of Object.entries(duties)) {
    try {
      await perform();
    } catch (error) {
      log.error("duty", { duty, error });
    }
  }
}
