// Sorted streams of versions → one sorted stream → the versions that answer a reader. Pure over its
// batches: no I/O of its own, no clock.

import {
  type Arrays,
  type Batch,
  BatchBuilder,
  type Codes,
  lowerBound,
  NEW_ARRAYS,
  pickRows,
  sliceBatch,
} from "./columns.ts";

/** Batches in the store's order, such as those of one object. */
export type SortedBatches = AsyncIterator<Batch>;

/** Which versions of a row answer. */
export interface View {
  /** Versions after this vintage do not exist yet. */
  seq: number;
  /** Leave out what backfills wrote, as if there had never been any. */
  trueOnly?: boolean;
  /** Per row: only what was known by its own valid time plus this, milliseconds. */
  knownBy?: number | undefined;
  /** Every version instead of the last one. */
  history?: boolean;
}

const MERGED_ROWS = 32_768;
/** As many consecutive rows of one stream are passed on without copying. */
const WHOLE_ROWS = 1_024;

/** Merges streams by valid time, instrument and version; `columns` counts the value columns. */
export async function* mergeSorted(
  streams: readonly SortedBatches[],
  columns: number,
): AsyncGenerator<Batch> {
  const cursors = (await Promise.all(streams.map(openCursor))).filter((cursor) => cursor !== null);
  const builder = new BatchBuilder(columns);
  while (cursors.length > 0) {
    const [lowest, next] = lowestTwo(cursors);
    const { batch, at } = lowest;
    // The builder's rows may be yielded only once no stream can add a version of the last of them.
    const apart = builder.lastDatetime !== batch.datetime[at];
    const end = next ? endBefore(lowest, next) : endOfShared(lowest, builder.lastDatetime);
    const alone = apart && (!next || end - at >= WHOLE_ROWS);
    if (builder.length > 0 && apart && (alone || builder.length >= MERGED_ROWS)) {
      yield builder.take();
    }
    lowest.at = alone && !next ? batch.length : end;
    if (alone) yield sliceBatch(batch, at, lowest.at);
    else builder.append(batch, at, end);
    if (lowest.at === lowest.batch.length && !(await advance(lowest))) {
      cursors.splice(cursors.indexOf(lowest), 1);
    }
  }
  if (builder.length > 0) yield builder.take();
}

/** A position in a stream: row `at` of its current batch. */
interface Cursor {
  stream: SortedBatches;
  batch: Batch;
  at: number;
}

async function openCursor(stream: SortedBatches): Promise<Cursor | null> {
  const cursor: Cursor = { stream, batch: EMPTY, at: 0 };
  return (await advance(cursor)) ? cursor : null;
}

/** Steps to the stream's next batch that has rows; false at its end. */
async function advance(cursor: Cursor): Promise<boolean> {
  for (;;) {
    const { value, done } = await cursor.stream.next();
    if (done) return false;
    if (value.length === 0) continue;
    cursor.batch = value;
    cursor.at = 0;
    return true;
  }
}

const EMPTY: Batch = {
  length: 0,
  datetime: new Float64Array(0),
  instrument: new Uint8Array(0),
  instruments: [],
  values: [],
  vintage: new Uint8Array(0),
  vintages: [],
  retracted: null,
};

function compare(left: Cursor, right: Cursor): number {
  const [a, b] = [left.batch, right.batch];
  const byTime = (a.datetime[left.at] as number) - (b.datetime[right.at] as number);
  if (byTime !== 0) return byTime;
  const x = a.instruments[a.instrument[left.at] as number] as string;
  const y = b.instruments[b.instrument[right.at] as number] as string;
  if (x !== y) return x < y ? -1 : 1;
  return seqAt(a, left.at) - seqAt(b, right.at);
}

const seqAt = (batch: Batch, at: number) => batch.vintages[batch.vintage[at] as number]?.seq ?? 0;

/** The cursors whose rows come first and second. */
function lowestTwo(cursors: readonly Cursor[]): [Cursor, Cursor | undefined] {
  let [lowest, next] = [cursors[0] as Cursor, cursors[1]];
  if (next && compare(next, lowest) < 0) [lowest, next] = [next, lowest];
  for (const cursor of cursors.slice(2)) {
    if (compare(cursor, lowest) < 0) [lowest, next] = [cursor, lowest];
    else if (!next || compare(cursor, next) < 0) next = cursor;
  }
  return [lowest, next];
}

/** End of a cursor's rows that come before the head of `next`; its first row is always in. */
function endBefore({ batch, at }: Cursor, next: Cursor): number {
  const limit = next.batch.datetime[next.at] as number;
  const end = at + lowerBound(batch.datetime.subarray(at), limit);
  return Math.max(end, at + 1);
}

/** End of a cursor's rows that share a valid time, which the builder's last row has. */
function endOfShared({ batch, at }: Cursor, datetime: number): number {
  let end = at;
  while (end < batch.length && batch.datetime[end] === datetime) end++;
  return end;
}

/** Several vintages' changes as one sorted batch. */
export function sortTogether(batches: readonly Batch[], columns: number): Batch {
  const [first] = batches;
  if (first && batches.length === 1) return first;
  const total = batches.reduce((sum, { length }) => sum + length, 0);
  const builder = new BatchBuilder(columns);
  for (const batch of batches) builder.append(batch, 0, batch.length);
  const all = builder.take();
  const ranks = new Uint32Array(all.instruments.length);
  [...all.instruments.keys()]
    .sort((a, b) => ((all.instruments[a] as string) < (all.instruments[b] as string) ? -1 : 1))
    .forEach((code, rank) => {
      ranks[code] = rank;
    });
  const rankAt = (row: number) => ranks[all.instrument[row] as number] as number;
  const order = Uint32Array.from({ length: total }, (_, row) => row).sort(
    (a, b) =>
      (all.datetime[a] as number) - (all.datetime[b] as number) ||
      rankAt(a) - rankAt(b) ||
      seqAt(all, a) - seqAt(all, b),
  );
  return pickRows(all, order);
}

/** The versions of a batch up to a vintage, retractions too. */
export function versionsUpTo(batch: Batch, seq: number): Batch {
  const known = Uint8Array.from(batch.vintages, (writer) => (writer.seq <= seq ? 1 : 0));
  if (!known.includes(0)) return batch;
  const positions = Uint32Array.from({ length: batch.length }, (_, row) => row);
  return pickRows(
    batch,
    positions.filter((row) => known[batch.vintage[row] as number] === 1),
  );
}

/** The rows of a batch of versions that answer a view, in these arrays or those of the batch. */
export function applyView(batch: Batch, view: View, arrays: Arrays = NEW_ARRAYS): Batch {
  const visible = Uint8Array.from(batch.vintages, ({ seq, reconstructed }) =>
    seq <= view.seq && !(view.trueOnly && reconstructed) ? 1 : 0,
  );
  if (view.history) return historyOf(batch, visible);
  const whole = !batch.retracted && view.knownBy === undefined && !visible.includes(0);
  if (whole && !hasRepeats(batch)) return batch;
  return pickRows(batch, lastVisible(batch, visible, { knownBy: view.knownBy, arrays }), arrays);
}

function hasRepeats({ datetime, instrument, length }: Batch): boolean {
  for (let row = 1; row < length; row++) {
    if (datetime[row] === datetime[row - 1] && instrument[row] === instrument[row - 1]) return true;
  }
  return false;
}

/** Positions of the last visible version of each row, unless that one retracted it. */
function lastVisible(
  batch: Batch,
  visible: Uint8Array,
  { knownBy, arrays }: { knownBy: number | undefined; arrays: Arrays },
): Uint32Array {
  const { datetime, instrument, vintage, retracted, length } = batch;
  const known = Float64Array.from(batch.vintages, ({ asOf }) => asOf - (knownBy ?? Infinity));
  // Positions may be any number of 32 bits.
  const positions = arrays.codes("positions", 2 ** 32, length) as Uint32Array;
  let [count, best] = [0, -1];
  for (let row = 0; row < length; row++) {
    const code = vintage[row] as number;
    if (visible[code] !== 1) continue;
    if (knownBy !== undefined && (known[code] as number) > (datetime[row] as number)) continue;
    const isSame =
      best >= 0 && datetime[best] === datetime[row] && instrument[best] === instrument[row];
    if (!isSame) count++;
    positions[count - 1] = row;
    best = row;
  }
  const last = positions.subarray(0, count);
  return retracted ? last.filter((row) => retracted[row] !== 1) : last;
}

/** Every visible version that held a value, with the time at which the next one ended it. */
function historyOf(batch: Batch, visible: Uint8Array): Batch {
  const { datetime, instrument, vintage, retracted, length } = batch;
  const positions = new Uint32Array(length);
  const knownTo = new Float64Array(length);
  let [count, open] = [0, -1];
  for (let row = 0; row < length; row++) {
    const same =
      row > 0 && datetime[row] === datetime[row - 1] && instrument[row] === instrument[row - 1];
    if (!same) open = -1;
    if (visible[vintage[row] as number] !== 1) continue;
    if (open >= 0) knownTo[open] = asOfAt(batch, vintage, row);
    open = -1;
    if (retracted?.[row] === 1) continue;
    open = count;
    knownTo[count] = NaN;
    positions[count++] = row;
  }
  const rows = pickRows(batch, positions.subarray(0, count));
  return { ...rows, knownTo: knownTo.slice(0, count) };
}

const asOfAt = ({ vintages }: Batch, vintage: Codes, row: number) =>
  vintages[vintage[row] as number]?.asOf ?? NaN;
