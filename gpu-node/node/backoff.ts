// How long whoever found the service away waits before the next try.

const BACKOFF_MS = 250;
const BACKOFF_MS_MAX = 15_000;

/** Milliseconds of backoff with jitter: half to all of a doubling pause, at least `afterMs`. */
export function backoffMs(attempt: number, afterMs: number | null, random = Math.random): number {
  const max = Math.min(BACKOFF_MS_MAX, BACKOFF_MS * 2 ** Math.min(attempt, 10));
  return Math.min(60_000, Math.max(afterMs ?? 0, max * (0.5 + random() / 2)));
}
