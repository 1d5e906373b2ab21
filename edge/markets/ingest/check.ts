// The read-back check: after the write, the committed rows are read from the store and validated
// again by the gate's rules. Symbols that lag the freshest by more than three days are listed for
// an operator to watch; they fail no check.

import { DAY, iso } from "../../../shared/time.ts";
import type { Database } from "../../http/database.ts";
import type { SeriesName, Store } from "../store/store.ts";
import { type FetchedSeries, type Finding, finding, type GateContext } from "./gate.ts";
import { listInstruments, type NewestRow, recordNewest } from "./instruments.ts";
import type { Pipeline } from "./pipeline.ts";
import { sentencesOf } from "./rules.ts";

/** The outcome of a read-back check, as the metadata of an execution shows it. */
export interface CheckResult {
  passed: boolean;
  /** The libraries whose rules were applied. */
  schema: string;
  failures: number;
  /** Why nothing could be checked, or what failed, in sentences. */
  reason: string | null;
  /** A sentence for each rule that was broken without failing the check. */
  warnings: string[];
  /** The newest valid time of the library that lags most. */
  newest: string | null;
  /** Symbols, and instruments as `symbol.instrument`, that lag the freshest of their library. */
  stale_symbols: string[];
  /** The like that operators retired. */
  retired_symbols: string[];
}

/** The store with the database that it and the ledger share. */
interface CheckParts {
  store: Store;
  database: Database;
}

/** What a check comes to, in the word that every page uses. */
export type CheckVerdict = "passed" | "warning" | "failed";

/** How a check ended, and how much it found that is no failure. */
export interface CheckOutcome {
  [field: string]: unknown;
  passed: boolean;
  /** Warnings and stale symbols. */
  concerns: number;
}

/** What a check came to, counted. */
export const outcomeOf = ({
  passed,
  warnings,
  stale_symbols,
}: Pick<CheckResult, "passed" | "warnings" | "stale_symbols">): CheckOutcome => ({
  passed,
  concerns: warnings.length + stale_symbols.length,
});

/** The one verdict of a check; a gate that refused everything, and so left none, has failed. */
export function verdictOf(outcome: CheckOutcome | null): CheckVerdict {
  if (!outcome?.passed) return "failed";
  return outcome.concerns > 0 ? "warning" : "passed";
}

const STALE_DAYS = 3;
const READS_AT_ONCE = 24;

/** An execution's accepted series, and what is known of them besides. */
export interface WrittenWindow extends GateContext {
  series: readonly FetchedSeries[];
  /** What the gate refused to write: the check of the whole fails with it. */
  errors: readonly Finding[];
  /** What the source could not read, and left out. */
  leftOut: readonly Finding[];
  /** Why the partition may have no rows; null when it owes some. */
  empty: string | null;
}

/** The committed rows of a window, summarized. */
export interface StoredWindow {
  /** Their newest knowledge time, epoch milliseconds; 0 where there are none. */
  asOf: number;
  instrumentIds: string[];
}

/** Reads the committed window back and judges it by the pipeline's gate once more. */
export async function readBack(
  parts: CheckParts,
  pipeline: Pipeline,
  written: WrittenWindow,
): Promise<StoredWindow & { check: CheckResult }> {
  const { read, asOf } = await readWindow(parts.store, written.series, written.window);
  const rows = read.flatMap((series) => series.rows);
  const instrumentIds = [...new Set(rows.map(({ instrumentId }) => instrumentId))];
  const check = await judgeRead(parts, pipeline, { ...written, series: read, asOf });
  return { check, asOf, instrumentIds };
}

/** Judges rows that were read back. */
async function judgeRead(
  parts: CheckParts,
  pipeline: Pipeline,
  written: WrittenWindow & { asOf: number },
): Promise<CheckResult> {
  const { partition, window, now, empty, asOf, series: read } = written;
  const schema = pipeline.libraries.join(" ");
  const newest = oldestNewest(read);
  const watchList = await watchedSymbols(parts, pipeline, read);
  const nothing = { schema, warnings: [], newest: null, ...watchList };
  if (newest === null) {
    const reason = `nothing was read back${empty ? `: ${empty}` : ""}`;
    return { ...nothing, passed: empty !== null, failures: 0, reason };
  }
  const hasLeftOut = written.leftOut.length > 0;
  const { findings } = pipeline.gate(read, { partition, window, now, hasLeftOut });
  const lag = Math.min(partition.to, asOf) - newest;
  const all = merged([...findings, ...written.errors]);
  const errors = all.filter(({ severity }) => severity === "error");
  const warnings = [...findings, ...written.leftOut].filter(
    ({ severity }) => severity === "warning",
  );
  if (lag > pipeline.freshness.errorMs) errors.push(finding("error", "stale", 1, ""));
  else if (lag > pipeline.freshness.warningMs) warnings.push(finding("warning", "aging", 1, ""));
  return {
    passed: errors.length === 0,
    schema,
    failures: errors.length,
    reason: errors.length > 0 ? sentencesOf(errors).join("; ") : null,
    warnings: sentencesOf(warnings),
    newest: iso(newest),
    ...watchList,
  };
}

/** Findings of one rule about one place as one: the gate found them before and after the write. */
function merged(findings: readonly Finding[]): Finding[] {
  const known = new Map<string, Finding>();
  for (const one of findings) {
    const key = `${one.severity} ${one.rule} ${one.where}`;
    if ((known.get(key)?.count ?? -1) < one.count) known.set(key, one);
  }
  return [...known.values()];
}

/** The stored rows of each series in the window, and their newest knowledge time. */
async function readWindow(
  store: Store,
  series: readonly FetchedSeries[],
  window: GateContext["window"],
): Promise<{ read: FetchedSeries[]; asOf: number }> {
  const read: FetchedSeries[] = [];
  let asOf = 0;
  for (let from = 0; from < series.length; from += READS_AT_ONCE) {
    const batch = series.slice(from, from + READS_AT_ONCE);
    const stored = await store.readAll(batch, window);
    for (const [index, { library, symbol }] of batch.entries()) {
      const rows = stored[index] ?? [];
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
 * whose newest stored valid time, however old, lies more than three days before the freshest of
 * their library. Retired instruments are listed apart.
 */
async function watchedSymbols(
  { store, database }: CheckParts,
  { libraries, owns }: Pipeline,
  read: readonly FetchedSeries[],
): Promise<Pick<CheckResult, "stale_symbols" | "retired_symbols">> {
  const known = await store.libraries();
  const watched = libraries.filter(
    (library) => library.startsWith("power.") && known.includes(library),
  );
  const stale_symbols: string[] = [];
  const retired_symbols: string[] = [];
  if (watched.length === 0) return { stale_symbols, retired_symbols };
  const series = await Promise.all(
    watched.map(async (library) => ({
      library,
      symbols: (await store.symbols(library)).filter(({ symbol }) => owns?.(symbol) ?? true),
    })),
  );
  const recorded = new Set((await listInstruments(database, watched)).map(seriesOf));
  await recordNewest(database, await newestRows(store, series, { recorded, read }));
  const bySeries = Map.groupBy(await listInstruments(database, watched), seriesOf);
  for (const { library, symbols } of series) {
    const freshest = symbols.reduce((max, { validMax }) => Math.max(max, validMax), -Infinity);
    const nameOf = ({ instrumentId }: { instrumentId: string }) =>
      instrumentId.slice(library.length + 1);
    for (const { symbol } of symbols) {
      const own = bySeries.get(seriesOf({ library, symbol })) ?? [];
      const active = own.filter(({ retiredAt }) => retiredAt === null);
      const stale = active.filter(({ validMax }) => freshest - validMax > STALE_DAYS * DAY);
      // A symbol of which nothing is fresh is named as a whole.
      if (stale.length > 0 && stale.length === active.length) stale_symbols.push(symbol);
      else stale_symbols.push(...stale.map(nameOf));
      retired_symbols.push(...own.filter(({ retiredAt }) => retiredAt !== null).map(nameOf));
    }
  }
  return { stale_symbols, retired_symbols };
}

/** A series as the key of a map. */
const seriesOf = ({ library, symbol }: SeriesName): string => `${library} ${symbol}`;

interface WatchedLibrary {
  library: string;
  symbols: readonly { symbol: string; validMax: number }[];
}

/**
 * The newest row of each instrument, as far as this check can tell: from the rows read back. A
 * series that no check has recorded yet is read whole, once, unless it holds one instrument only,
 * whose newest row the catalog knows.
 */
async function newestRows(
  store: Store,
  watched: readonly WatchedLibrary[],
  { recorded, read }: { recorded: ReadonlySet<string>; read: readonly FetchedSeries[] },
): Promise<NewestRow[]> {
  const windows = new Map(read.map((one) => [seriesOf(one), one.rows]));
  const newest: NewestRow[] = [];
  for (const { library, symbols } of watched) {
    for (const { symbol, validMax } of symbols) {
      const series = { library, symbol };
      let found = newestOf(windows.get(seriesOf(series)) ?? []);
      if (!recorded.has(seriesOf(series))) {
        const only = `${library}.${symbol}`;
        const isAlone = found.size === 1 && found.has(only);
        found = isAlone ? new Map([[only, validMax]]) : await newestStored(store, series);
      }
      for (const [instrumentId, datetime] of found)
        newest.push({ ...series, instrumentId, datetime });
    }
  }
  return newest;
}

async function newestStored(store: Store, series: SeriesName): Promise<Map<string, number>> {
  const newest = new Map<string, number>();
  const reading = await store.read(series);
  for await (const { length, datetime, instrument, instruments } of reading.passing()) {
    for (let row = 0; row < length; row++) {
      // Rows are in the order of valid time.
      newest.set(instruments[instrument[row] as number] as string, datetime[row] as number);
    }
  }
  return newest;
}

function newestOf(rows: FetchedSeries["rows"]): Map<string, number> {
  const newest = new Map<string, number>();
  for (const { instrumentId, datetime } of rows) {
    newest.set(instrumentId, Math.max(newest.get(instrumentId) ?? -Infinity, datetime));
  }
  return newest;
}
