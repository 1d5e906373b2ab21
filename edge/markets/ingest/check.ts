// The read-back check: after the write, the committed rows are read from the store and validated
// again. A symbol that lags the freshest by more than three days is listed; the list is a watch-
// list only.

import { DAY, HOUR, iso } from "../../../shared/time.ts";
import type { Range } from "../store/plan.ts";
import type { Store } from "../store/store.ts";
import type { FetchedSeries, Finding } from "./gate.ts";
import type { Pipeline } from "./pipelines.ts";

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
const FRESH_WARNING_MS = 6 * HOUR;
const FRESH_ERROR_MS = 48 * HOUR;
const READS_AT_ONCE = 6;

/** Reads the committed window back and re-runs the pipeline's gate on it. */
export async function readBack(
  store: Store,
  pipeline: Pipeline,
  written: {
    window: Range;
    now: number;
    series: readonly FetchedSeries[];
    /** What the gate refused to write: the check of the whole fails with it. */
    errors: readonly Finding[];
  },
): Promise<CheckResult> {
  const { window, now } = written;
  const schema = pipeline.libraries.join(" ");
  const read: FetchedSeries[] = [];
  let asOf = 0;
  for (let index = 0; index < written.series.length; index += READS_AT_ONCE) {
    const batch = written.series
      .slice(index, index + READS_AT_ONCE)
      .map(async ({ library, symbol }) => {
        const bounds = { start: window.from, end: window.to - 1 };
        const rows = await (await store.read({ library, symbol, ...bounds })).rows();
        asOf = rows.reduce((newest, row) => Math.max(newest, row.asOf), asOf);
        return { library, symbol, rows };
      });
    read.push(...(await Promise.all(batch)));
  }
  const newest = read
    .flatMap(({ rows }) => rows)
    .reduce((most, row) => Math.max(most, row.datetime), 0);
  const stale_symbols = await staleSymbols(store, pipeline);
  const nothing = { schema, warnings: [], newest: null, stale_symbols };
  if (newest === 0)
    return { ...nothing, passed: false, failures: 0, reason: "nothing was read back" };
  const { findings } = pipeline.gate(read, { window, now });
  const lag = Math.min(window.to, asOf) - newest;
  const errors = [...findings, ...written.errors]
    .filter(({ severity }) => severity === "error")
    .map(({ rule, where }) => `${rule}: ${where}`);
  const warnings = findings
    .filter(({ severity }) => severity === "warning")
    .map(({ rule }) => rule);
  if (lag > FRESH_ERROR_MS) errors.push("stale");
  else if (lag > FRESH_WARNING_MS) warnings.push("aging");
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

async function staleSymbols(store: Store, pipeline: Pipeline): Promise<string[]> {
  const known = await store.libraries();
  const libraries = pipeline.libraries.filter((library) => known.includes(library));
  const lists = await Promise.all(libraries.map((library) => store.symbols(library)));
  return lists.flatMap((symbols) => {
    const freshest = Math.max(...symbols.map(({ validMax }) => validMax));
    return symbols
      .filter(({ validMax }) => freshest - validMax > STALE_DAYS * DAY)
      .map(({ symbol }) => symbol);
  });
}
