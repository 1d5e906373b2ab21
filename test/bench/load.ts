// Load on a service: so many requests at once, or so many a second; how long answers took.

/** What a load came to. */
export interface Load {
  /** Milliseconds of each answer of 200, rising. */
  times: number[];
  /** Answers by status; 0 is none. */
  statuses: Map<number, number>;
  /** Milliseconds of the slowest answer of any status. */
  slowest: number;
  /** Answers of 200. */
  perSecond: number;
}

/** Sends one request and tells its status. */
type Send = () => Promise<number>;

/** Milliseconds that whoever was refused waits before it comes again. */
const REFUSED_MS = 1_000;

/** So many at once for some seconds, each sender with its next request after its answer. */
export async function atOnce(concurrency: number, seconds: number, send: Send): Promise<Load> {
  const { record, load } = startLoad();
  const until = performance.now() + seconds * 1_000;
  await Promise.all(
    Array.from({ length: concurrency }, async () => {
      while (performance.now() < until) {
        const status = await record(send);
        if (status !== 200) await new Promise((done) => setTimeout(done, REFUSED_MS));
      }
    }),
  );
  return load();
}

/** So many a second for some seconds, whether or not earlier ones were answered. */
export async function atRate(perSecond: number, seconds: number, send: Send): Promise<Load> {
  const { record, load } = startLoad();
  const began = performance.now();
  const all: Promise<number>[] = [];
  for (let sent = 0; sent < perSecond * seconds; sent++) {
    const wait = began + (sent * 1_000) / perSecond - performance.now();
    if (wait > 0) await new Promise((done) => setTimeout(done, wait));
    all.push(record(send));
  }
  await Promise.all(all);
  return load();
}

function startLoad() {
  const [times, statuses] = [[] as number[], new Map<number, number>()];
  const started = performance.now();
  let slowest = 0;
  return {
    record: async (send: Send): Promise<number> => {
      const began = performance.now();
      const status = await send().catch(() => 0);
      const took = performance.now() - began;
      slowest = Math.max(slowest, took);
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      if (status === 200) times.push(took);
      return status;
    },
    load: (): Load => {
      const seconds = (performance.now() - started) / 1_000;
      times.sort((one, other) => one - other);
      return { times, statuses, slowest, perSecond: times.length / seconds };
    },
  };
}

/** The time below which such a part of the answers of 200 lies; NaN without any. */
export const quantile = ({ times }: Pick<Load, "times">, part: number): number =>
  times[Math.min(times.length - 1, Math.floor(times.length * part))] ?? Number.NaN;
