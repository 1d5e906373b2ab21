// The read-back check: after the write, the committed rows are read from the store and validated
// again. A symbol that lags the freshest by more than three days is listed; the list is a watch-
// list only.

import { DAY, iso } from "../../../shared/time.ts";
import type { Store } from "../store/store.ts";
import type { FetchedSeries, Finding, GateContext } from "./gate.ts";
import type { Pipeline } from "./pipeline.ts";

export interface CheckResult {
  passed: boolean;
  /** The rule set that was re-run. */
  schema: string;
  failures: number;
  /** Why nothing could be checked, or which rules failed. */
  reason: string | null;
  warnings: string[];
  newest: string | null;
  stale_symbols: string[];
}

const STALE_DAYS = 3;
const READS_AT_ONCE = 24;

/** Reads the committed window back and re-runs the pipeline's gate on it. */
export async function readBack(
  store: Store,
  pipeline: Pipeline,
  written: GateContext & {
    series: readonly FetchedSeries[];
    /** What the gate refused to write: the check of the whole fails with it. */
    errors: readonly Finding[];
  },
): Promise<CheckResult> {
  const { partition, window, now } = written;
  const schema = pipeline.libraries.join(" ");
  const { read, asOf } = await readWindow(store, written.series, window);
  const newest = oldestNewest(read);
  const stale_symbols = await staleSymbols(store, pipeline, read);
  const nothing = { schema, warnings: [], newest: null, stale_symbols };
  if (newest === null) {
    const passed = pipeline.mayBeEmpty?.(partition, now) ?? false;
    return { ...nothing, passed, failures: 0, reason: "nothing was read back" };
  }
  const { findings } = pipeline.gate(read, { partition, window, now });
  const lag = Math.min(partition.to, asOf) - newest;
  const errors = [...findings, ...written.errors]
    .filter(({ severity }) => severity === "error")
    .map(({ rule, where }) => `${rule}: ${where}`);
  const warnings = findings
    .filter(({ severity }) => severity === "warning")
    .map(({ rule }) => rule);
  if (lag > pipeline.freshness.errorMs) errors.push("stale");
  else if (lag > pipeline.freshness.warningMs) warnings.push("aging");
  return {
    passed: errors.length === 0,
    schema,
    failures: errors.length,
    reason: errors.length > 0 ? errors.join("; ") : null,
    warnings: [...new Set(warnings)],
    newest: iso(newest),
    stale_symbols,
  };
}

/** What the store holds of each series in the window, and when the newest of it became known. */
async function readWindow(
  store: Store,
  series: readonly FetchedSeries[],
  window: GateContext["window"],
): Promise<{ read: FetchedSeries[]; asOf: number }> {
  const read: FetchedSeries[] = [];
  let asOf = 0;
  for (let index = 0; index < series.length; index += READS_AT_ONCE) {
    const batch = series.slice(index, index + READS_AT_ONCE);
    const found = await store.readAll(batch, window);
    for (const [place, { library, symbol }] of batch.entries()) {
      const rows = found[place] ?? [];
      asOf = rows.reduce((newest, row) => Math.max(newest, row.asOf), asOf);
      read.push({ library, symbol, rows });
    }
  }
  return { read, asOf };
}

/** The newest valid time of the library that lags most; null when nothing was read. */
function oldestNewest(read: readonly FetchedSeries[]): number | null {
  const newest = new Map<string, number>();
  for (const { library, rows } of read) {
    for (const { datetime } of rows) {
      newest.set(library, Math.max(newest.get(library) ?? -Infinity, datetime));
    }
  }
  return newest.size === 0 ? null : Math.min(...newest.values());
}

/**
 * The watch-list of a power pipeline: symbols, and instruments of the symbols that hold several,
 * whose newest valid time lies more than three days before the freshest of their library.
 */
async function staleSymbols(
  store: Store,
  { libraries, owns }: Pipeline,
  read: readonly FetchedSeries[],
): Promise<string[]> {
  const known = await store.libraries();
  const watched = libraries.filter(
    (library) => library.startsWith("power.") && known.includes(library),
  );
  const lists = watched.map(async (library) => {
    const symbols = (await store.symbols(library)).filter(({ symbol }) => owns?.(symbol) ?? true);
    const freshest = symbols.reduce((most, { validMax }) => Math.max(most, validMax), -Infinity);
    const isStale = (newest: number) => freshest - newest > STALE_DAYS * DAY;
    const stale = symbols.filter(({ validMax }) => isStale(validMax)).map(({ symbol }) => symbol);
    const among = read.filter((one) => one.library === library && !stale.includes(one.symbol));
    const parts = among.flatMap(({ symbol, rows }) =>
      [...newestOf(rows)]
        .filter(([id, newest]) => id !== `${library}.${symbol}` && isStale(newest))
        .map(([id]) => id.slice(library.length + 1)),
    );
    return [...stale, ...parts];
  });
  return (await Promise.all(lists)).flat();
}

function newestOf(rows: FetchedSeries["rows"]): Map<string, number> {
  const newest = new Map<string, number>();
  for (const { instrumentId, datetime } of rows) {
    newest.set(instrumentId, Math.max(newest.get(instrumentId) ?? -Infinity, datetime));
  }
  return newest;
}
