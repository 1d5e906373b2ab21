// Answers of the service that a page shows: kept while they are asked for again, and told apart
// from those that could not be had.

import { useEffect, useRef, useState } from "preact/hooks";
import { type ApiError, apiErrorOf } from "./api.ts";

/** An answer of the service, or why there is none. */
export interface Resource<Data> {
  data: Data | undefined;
  /** Why the newest request failed; the data may still be there, as of before. */
  error: ApiError | undefined;
  /** When the data came, epoch milliseconds. */
  asOf: number | undefined;
  /** Asks again. */
  reload: () => void;
}

const RETRY_MS = 5_000;

/**
 * Asks for what a page shows whenever `key` changes, after `everyMs` if given, and again after a
 * request that the service did not answer. The data stays while the same key is asked for again.
 */
export function useResource<Data>(
  key: string,
  load: (signal: AbortSignal) => Promise<Data>,
  { everyMs }: { everyMs?: number | undefined } = {},
): Resource<Data> {
  type HeldAnswer = { key: string; data?: Data; error?: ApiError | undefined; asOf?: number };
  const [held, setHeld] = useState<HeldAnswer>({ key });
  const [turn, setTurn] = useState(0);
  const loader = useRef(load);
  loader.current = load;
  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const again = (delay: number) => {
      timer = setTimeout(() => setTurn((before) => before + 1), delay);
    };
    loader.current(abort.signal).then(
      (data) => {
        if (abort.signal.aborted) return;
        setHeld({ key, data, asOf: performance.timeOrigin + performance.now() });
        if (everyMs !== undefined) again(everyMs);
      },
      (thrown: unknown) => {
        if (abort.signal.aborted) return;
        const error = apiErrorOf(thrown);
        setHeld((before) => (before.key === key ? { ...before, error } : { key, error }));
        if (error.status === 0 || error.status >= 500) again(RETRY_MS);
      },
    );
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [key, turn, everyMs]);
  const own = held.key === key ? held : { key };
  return {
    data: own.data,
    error: own.error,
    asOf: own.asOf,
    reload: () => setTurn((before) => before + 1),
  };
}
