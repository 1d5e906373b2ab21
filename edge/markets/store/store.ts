// Reading the bitemporal store: the state of a symbol as it was known at an `as_of`. Reads never
// see data learned after `as_of`: the cut is made on the catalog, before any byte is opened, and
// again on every row of an object that holds many vintages.

import { Failure } from "../../../shared/errors.ts";
import { type Plan, type PlannedSegment, planRead, planReads } from "./catalog.ts";
import {
  type Batch,
  lowerBound,
  NEW_ARRAYS,
  ReusedArrays,
  sliceBatch,
  type WrittenBy,
} from "./columns.ts";
import type { VintageEntry } from "./entries.ts";
import {
  archivedVintage,
  type FeedPage,
  type FeedQuery,
  findSnapshot,
  listChanges,
  listLibraries,
  listProvenance,
  listSnapshots,
  listSymbols,
  listVintages,
  newestTouched,
  overview,
  type Provenance,
  type Snapshot,
  type VintageQuery,
} from "./listings.ts";
import {
  applyView,
  mergeSorted,
  type SortedBatches,
  sortTogether,
  type View,
  versionsUpTo,
} from "./merge.ts";
import type { StoreParts } from "./objects.ts";
import { isHeld, isShort, openSegment, rangeWithin } from "./row-groups.ts";
import type { Range, StoredRow } from "./rows.ts";
import { decodeInline } from "./segment.ts";
import { SETTLED_AFTER_MS, settledTime } from "./settled-time.ts";

/** Which versions of a series are read; instants in epoch milliseconds. */
export interface ReadRequest {
  library: string;
  symbol: string;
  /** Knowledge time; the latest vintage when omitted. */
  asOf?: number | undefined;
  /** Valid-time bounds, both inclusive; a read with neither is unbounded. */
  start?: number | undefined;
  end?: number | undefined;
  /** Cap on the rows of an unbounded read. */
  rowsMax?: number | undefined;
  /** Every version of every row, each with the time at which the next one ended it. */
  history?: boolean;
  /** Leave out the versions that backfills wrote. */
  trueOnly?: boolean;
  /** Per row: only what was known by its Datetime plus this, milliseconds. */
  knownBy?: number | undefined;
}

/** A planned read: the catalog was asked, no object was opened. */
export interface Reading {
  /** Names the answer: equal for equal rows, whatever the `as_of` that asked for it. */
  identity: string;
  /**
   * True when no later commit can change the answer: its `as_of` is not after the head's, or lies
   * so far behind that nothing can become known at it.
   */
  immutable: boolean;
  /** The rows of the request; opens the objects. */
  batches: () => AsyncGenerator<Batch>;
  /** As `batches`, but each holds until the next one is asked for: for long reads. */
  passing: () => AsyncGenerator<Batch>;
  /** Every version up to `seq` in the range, retractions too. */
  versions: () => AsyncGenerator<Batch>;
  /** The rows of `batches` as objects: for small reads. */
  rows: () => Promise<StoredRow[]>;
  /** What each version that may occur came from, by `seq`. */
  provenance: () => Promise<Map<number, Provenance>>;
  valueColumns: string[];
  /** The vintage that answered; 0 and null before the first one. */
  seq: number;
  asOf: number | null;
  /** Rows of the answer when it has no bounds. */
  rowCount: number;
  /** About how many versions the read works through. */
  versionCount: number;
  /** The objects' rows are in this isolate: a read of few rows is answered faster than a cache. */
  isHeld: boolean;
  sandbox: boolean;
}

const OBJECTS_AT_ONCE = 6;
const OBJECTS_AHEAD = 4;

/** A series by its library and symbol. */
export interface SeriesName {
  library: string;
  symbol: string;
}

/**
 * The verbs of a reader. Each fails with `store_unavailable` when the database or the object store
 * does not answer.
 */
export interface Store {
  /** Names, sorted. */
  libraries(): Promise<string[]>;
  /** Symbols with their newest valid times; fails with `unknown_library`. */
  symbols(library: string): Promise<{ symbol: string; validMax: number }[]>;
  /** Fails with `unknown_library`, `unknown_symbol` or `row_cap_exceeded`. */
  read(request: ReadRequest): Promise<Reading>;
  /**
   * The rows of several series inside a range, in the order of the series; none of a series that
   * was never committed.
   */
  readAll(series: readonly SeriesName[], range: Range): Promise<StoredRow[][]>;
  /** Fails with `unknown_library` or `unknown_symbol`. */
  vintages(query: VintageQuery): Promise<VintageEntry[]>;
  /** A page of all series' vintages in the order of the feed; empty for an unknown library. */
  changes(query: FeedQuery): Promise<FeedPage>;
  snapshots(): Promise<Snapshot[]>;
  /** Fails with `unknown_snapshot`. */
  snapshot(name: string): Promise<Snapshot>;
  /** The newest valid time known at an `as_of`; null for none or an unknown series. */
  newestDatetime(library: string, symbol: string, asOf: number): Promise<number | null>;
  /** As `settledTime`. */
  settled(asOf?: number): Promise<number | null>;
  /** Libraries, the newest knowledge time in epoch milliseconds, and whether any is sandbox. */
  overview(): Promise<{ libraries: string[]; latestAsOf: number | null; sandbox: boolean }>;
}

/** How a store is read. */
export interface StoreOptions {
  /** How far behind the database's clock a knowledge time is settled, milliseconds. */
  settledAfterMs?: number;
}

/** The store over a database and a bucket. */
export const openStore = (
  parts: StoreParts,
  { settledAfterMs = SETTLED_AFTER_MS }: StoreOptions = {},
): Store => ({
  libraries: () => listLibraries(parts.database),
  symbols: (library) => symbols(parts, library),
  read: (request) => read(parts, request, settledAfterMs),
  readAll: (series, range) => readAll(parts, series, range),
  vintages: (query) => vintages(parts, query),
  changes: (query) => listChanges(parts, query),
  snapshots: () => listSnapshots(parts.database),
  snapshot: (name) => snapshot(parts, name),
  newestDatetime: (library, symbol, asOf) => newestTouched(parts, { library, symbol, asOf }),
  settled: (asOf) => settledTime(parts.database, { asOf, settledAfterMs }),
  overview: () => overview(parts.database),
});

async function symbols({ database }: StoreParts, library: string) {
  const list = await listSymbols(database, library);
  if (list.length === 0) throw unknownLibrary(library);
  return list;
}

async function vintages(parts: StoreParts, query: VintageQuery) {
  const list = await listVintages(parts, query);
  if (list.length > 0) return list;
  // A series that exists may have no vintage in the interval, too.
  const { library, symbol } = query;
  const range = { from: 0, to: 0 };
  const known = await planRead(parts.database, { library, symbol, asOf: -Infinity, range });
  if (!known) throw await unknownSeries(parts, library, symbol);
  return list;
}

async function snapshot({ database }: StoreParts, name: string) {
  const named = await findSnapshot(database, name);
  if (named) return named;
  const detail = `unknown snapshot ${JSON.stringify(name)}; GET /snapshots lists them`;
  throw new Failure("unknown_snapshot", detail);
}

async function read(
  parts: StoreParts,
  request: ReadRequest,
  settledAfterMs: number,
): Promise<Reading> {
  const { library, symbol, asOf = Infinity, start, end, rowsMax = Infinity } = request;
  const { history = false, trueOnly = false, knownBy } = request;
  const bounded = start !== undefined || end !== undefined;
  const range = { from: start ?? -Infinity, to: (end ?? Infinity) + 1 };
  const cap = bounded || rowsMax === Infinity ? {} : { rowsMax };
  const query = { library, symbol, asOf, range, history, ...cap };
  let plan = await planRead(parts.database, query);
  if (plan && plan.seq === 0 && plan.archivedSeq > 0) {
    const vintage = await archivedVintage(parts, plan.seriesId, asOf);
    const versions = history ? (vintage?.versions ?? 0) : null;
    if (vintage)
      plan = await planRead(parts.database, { ...query, vintage: { ...vintage, versions } });
  }
  if (!plan) throw await unknownSeries(parts, library, symbol);
  const rowCount = plan.versions ?? plan.liveRows;
  if (!bounded && rowCount > rowsMax) throw overCap({ rows: rowCount, cap: rowsMax, history });
  const { valueColumns, seq, sandbox, seriesId } = plan;
  const view: View = { seq, history, trueOnly, knownBy };
  const batches = () => viewed(parts, plan, { range, view });
  return {
    identity: identityOf(plan, { start, end, knownBy, history, trueOnly }),
    immutable: asOf <= Math.max(plan.headAsOf, plan.now - settledAfterMs),
    batches,
    passing: () => viewed(parts, plan, { range, view, isPassing: true }),
    versions: () => knownVersions(parts, plan, range),
    rows: () => rowsOf(batches()),
    provenance: () => listProvenance(parts, { seriesId, seq, ...range }),
    valueColumns,
    seq,
    asOf: plan.asOf,
    rowCount,
    sandbox,
    versionCount: versionsWithin(plan, range),
    isHeld: isHeld(parts, plan.segments, range),
  };
}

/**
 * Names a read's answer by all that its rows follow from. Each part begins with a letter of its
 * own, since instants and offsets may be negative. The vintage's time tells a series from one of
 * the same number in a store started over.
 */
function identityOf(
  { seriesId, seq, asOf }: Plan,
  view: Pick<ReadRequest, "start" | "end" | "knownBy" | "history" | "trueOnly">,
): string {
  const { start, end, knownBy } = view;
  const bounds = Object.entries({ s: start, e: end, k: knownBy }).flatMap(([letter, instant]) =>
    instant === undefined ? [] : [`${letter}${instant}`],
  );
  const flags = `${view.history ? "h" : ""}${view.trueOnly ? "t" : ""}`;
  return [`${seriesId}`, `v${seq}`, `a${asOf ?? 0}`, ...bounds, flags].join(".");
}

async function readAll(
  parts: StoreParts,
  series: readonly SeriesName[],
  range: Range,
): Promise<StoredRow[][]> {
  const plans = await planReads(parts.database, { asOf: Infinity, range, series });
  return Promise.all(plans.map((plan) => (plan ? stateOf(parts, plan, range) : [])));
}

/** The versions of a plan inside a range, as if an object's were spread evenly over its time. */
function versionsWithin({ segments, inline }: Plan, { from, to }: Range): number {
  const inObjects = segments.map(({ rows, validMin, validMax }) => {
    const inside = Math.min(to, validMax + 1) - Math.max(from, validMin);
    return (rows * Math.max(inside, 0)) / (validMax + 1 - validMin);
  });
  const all = [...inObjects, ...inline.map(({ rows }) => rows.t.length)];
  return Math.ceil(all.reduce((sum, rows) => sum + rows, 0));
}

/** The rows of a plan's vintage inside a range. */
export const stateOf = (parts: StoreParts, plan: Plan, range: Range): Promise<StoredRow[]> =>
  rowsOf(viewed(parts, plan, { range, view: { seq: plan.seq } }));

async function* knownVersions(parts: StoreParts, plan: Plan, range: Range) {
  for await (const batch of versionsOf(parts, plan, range)) {
    const known = versionsUpTo(batch, plan.seq);
    if (known.length > 0) yield known;
  }
}

interface Viewing {
  range: Range;
  view: View;
  /** A batch holds until the next one is asked for. */
  isPassing?: boolean;
}

async function* viewed(parts: StoreParts, plan: Plan, { range, view, isPassing }: Viewing) {
  const arrays = isPassing ? new ReusedArrays() : NEW_ARRAYS;
  for await (const batch of versionsOf(parts, plan, range, isPassing)) {
    const rows = applyView(batch, view, arrays);
    if (rows.length > 0) yield rows;
  }
}

/**
 * Every version that a plan's objects and inline vintages hold inside a range, in order. A
 * compacted object also holds versions later than the plan's vintage: the caller cuts them off. A
 * batch that is only passing holds until the next one is asked for.
 */
export async function* versionsOf(
  parts: StoreParts,
  plan: Plan,
  range: Range,
  isPassing = false,
): AsyncGenerator<Batch> {
  const columns = plan.valueColumns.length;
  const clipped = function* (within: Range, batches: Iterable<Batch>) {
    for (const batch of batches) {
      const from = lowerBound(batch.datetime, within.from);
      const to = lowerBound(batch.datetime, within.to);
      if (from < to) yield sliceBatch(batch, from, to);
    }
  };
  const held = isShort(plan.segments, range) ? parts.held : undefined;
  const { valueColumns } = plan;
  /** Opens the segments of one stream, one after the other. */
  const opener = () => {
    const arrays = isPassing ? new ReusedArrays() : NEW_ARRAYS;
    return async (segment: PlannedSegment) => {
      const own = rangeWithin(segment, range);
      const opening = { range: own, valueColumns, held, arrays };
      return clipped(own, await openSegment(parts, segment, opening));
    };
  };
  const compacted = plan.segments.filter(({ level }) => level === 1);
  const recent = plan.segments.filter(({ level }) => level === 0);
  const streams: SortedBatches[] = compacted.length > 0 ? [chain(compacted, opener())] : [];
  for (let index = 0; index < recent.length; index += OBJECTS_AT_ONCE) {
    const batch = recent.slice(index, index + OBJECTS_AT_ONCE).map((one) => opener()(one));
    for (const batches of await Promise.all(batch)) streams.push(inTurn(batches));
  }
  if (plan.inline.length > 0) {
    const deltas = plan.inline.map(({ rows, ...writtenBy }) => decodeInline(rows, writtenBy));
    streams.push(inTurn(clipped(range, [sortTogether(deltas, columns)])));
  }
  yield* mergeSorted(streams, columns);
}

/** What identifies the row at a position of a batch within its series, as `keyOf` does. */
export const keyAt = ({ datetime, instrument, instruments }: Batch, position: number): string =>
  `${datetime[position]} ${instruments[instrument[position] as number]}`;

async function* inTurn(batches: Iterable<Batch>): AsyncGenerator<Batch> {
  yield* batches;
}

/** Segments of disjoint valid times as one stream; the next objects are fetched meanwhile. */
async function* chain(
  segments: readonly PlannedSegment[],
  open: (segment: PlannedSegment) => Promise<Iterable<Batch>>,
): AsyncGenerator<Batch> {
  const ahead: Promise<Iterable<Batch>>[] = [];
  let next = 0;
  while (next < segments.length || ahead.length > 0) {
    while (next < segments.length && ahead.length < OBJECTS_AHEAD) {
      const opening = open(segments[next++] as PlannedSegment);
      // A failed fetch is thrown when its turn comes; until then the promise counts as handled.
      opening.catch(() => {});
      ahead.push(opening);
    }
    yield* (await ahead.shift()) ?? [];
  }
}

/** Rows as objects. */
export async function rowsOf(batches: AsyncIterable<Batch>): Promise<StoredRow[]> {
  const rows: StoredRow[] = [];
  for await (const batch of batches) {
    for (let row = 0; row < batch.length; row++) {
      const writer = batch.vintages[batch.vintage[row] as number] as WrittenBy;
      rows.push({
        datetime: batch.datetime[row] as number,
        instrumentId: batch.instruments[batch.instrument[row] as number] as string,
        values: batch.values.map((column) => column[row] as number),
        asOf: writer.asOf,
        reconstructed: writer.reconstructed,
      });
    }
  }
  return rows;
}

const unknownLibrary = (library: string) =>
  new Failure(
    "unknown_library",
    `unknown library ${JSON.stringify(library)}; GET /libraries lists them`,
  );

async function unknownSeries({ database }: StoreParts, library: string, symbol: string) {
  const known = await listLibraries(database);
  if (!known.includes(library)) return unknownLibrary(library);
  const detail = `unknown symbol ${JSON.stringify(symbol)} in ${library}; GET /symbols?library=${library} lists them`;
  return new Failure("unknown_symbol", detail);
}

/** The failure `row_cap_exceeded` of one series; `history` says that row versions were counted. */
export const overCap = ({ rows, cap, history }: { rows: number; cap: number; history: boolean }) =>
  new Failure(
    "row_cap_exceeded",
    `the full history has ${rows} ${history ? "row versions" : "rows"}, over the cap of ${cap}; ` +
      "narrow the read with start and/or end",
    { data: { rows, cap } },
  );
