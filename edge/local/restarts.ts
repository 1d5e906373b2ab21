// A program that is kept running: after each end it is run again, after pauses that grow while it
// does not live for long.

import { systemClock } from "../../shared/time.ts";

const PAUSE_MS = 500;
const PAUSE_MS_MAX = 30_000;
/** A program that lived so long is in no loop of crashes: the pauses begin again. */
const HEALTHY_MS = 60_000;

/** An end of the program, and what follows. */
export interface Death {
  /** What the run returned or threw. */
  how: unknown;
  /** Ends one after the other without a long life between them, this one included. */
  deaths: number;
  /** How long it is until the next run. */
  pauseMs: number;
}

/** Runs one life after the other until the signal is given; `onDeath` hears of each end. */
export async function keepRunning(
  run: () => Promise<unknown>,
  { signal, onDeath }: { signal: AbortSignal; onDeath: (death: Death) => void },
): Promise<void> {
  for (let deaths = 0; !signal.aborted; ) {
    const since = systemClock();
    const how = await run().catch((thrown: unknown) => thrown);
    if (signal.aborted) return;
    deaths = systemClock() - since > HEALTHY_MS ? 1 : deaths + 1;
    const pauseMs = Math.min(PAUSE_MS_MAX, PAUSE_MS * 2 ** (deaths - 1));
    onDeath({ how, deaths, pauseMs });
    await pause(pauseMs, signal);
  }
}

/** Ends early, without a fault, when nobody waits any more. */
export function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener("abort", end, { once: true });
    if (signal.aborted) end();
  });
}
