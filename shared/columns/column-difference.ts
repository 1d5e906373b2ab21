// Brings a table of columns up to date by a difference: pure, so that a reader may try it and keep
// the table that it had. Rows that stay are copied in stretches, not one by one.

import { type ColumnsHeader, ID_BYTES, newColumns, type RowColumns } from "./column-layout.ts";
import type { ColumnTable } from "./column-reader.ts";

/**
 * The table with the rows of a difference in place of its own, without those that were deleted, and
 * with the difference's header. Null where the difference does not continue the table, so that the
 * whole job has to be read again: it is of another job, it begins after the table ends, or ends
 * before that, or the job's threshold changed, by which duplicates are known.
 */
export function applyDifference(table: ColumnTable, difference: ColumnTable): ColumnTable | null {
  const { header } = difference;
  if (!continues(table.header, header)) return null;
  const old = { ...table, videos: renumbered(table.header, header) };
  const fresh = { ...difference, videos: renumbered(header, header) };
  const isDeleted = idSet(difference.deleted);
  const isReplaced = idSet(difference.columns.id);
  const { id } = table.columns;
  const dropped = rowsWhere(
    old,
    (row) => isReplaced(id, row) || isDeleted(id, row) || isGone(old, row),
  );
  const added = rowsWhere(fresh, (row) => !isDeleted(fresh.columns.id, row));
  added.sort((left, right) => compare(fresh, left, { table: fresh, row: right }));
  const stretches = stretchesOf({ old, dropped }, { fresh, added });
  const rows = stretches.reduce((sum, { from, to }) => sum + to - from, 0);
  return {
    header: { ...header, after_seq: table.header.after_seq, rows },
    rows,
    columns: gathered(stretches, rows),
    deleted: table.deleted,
  };
}

const continues = (before: ColumnsHeader, after: ColumnsHeader) =>
  after.job_id === before.job_id &&
  after.after_seq !== null &&
  after.after_seq <= before.edits_seq &&
  after.edits_seq >= before.edits_seq &&
  after.threshold === before.threshold;

/** A table with the numbers that its videos have from now on. */
interface Source {
  columns: RowColumns;
  rows: number;
  videos: readonly number[];
}

/** Consecutive rows of a table. */
interface Stretch {
  table: Source;
  from: number;
  to: number;
}

/**
 * The numbers in the newer header of the older one's videos. Those that the job has left get none
 * of its whole numbers, but one that keeps the order.
 */
function renumbered(older: ColumnsHeader, newer: ColumnsHeader): number[] {
  const indexes = new Map(newer.videos.map(({ video_id }, index) => [video_id, index]));
  const before = (id: string) => newer.videos.filter(({ video_id }) => video_id < id).length;
  return older.videos.map(({ video_id: id }) => indexes.get(id) ?? before(id) - 0.5);
}

const videoOf = ({ videos, columns }: Source, row: number) => videos[columns.video[row] ?? 0] ?? 0;

const isGone = (table: Source, row: number) => !Number.isInteger(videoOf(table, row));

function rowsWhere({ rows }: Source, isMeant: (row: number) => boolean): number[] {
  const found: number[] = [];
  for (let row = 0; row < rows; row++) if (isMeant(row)) found.push(row);
  return found;
}

/** Tells whether a list of ids, sixteen bytes each, holds the id of a row. */
function idSet(ids: Uint8Array): (others: Uint8Array, row: number) => boolean {
  const byTail = new Map<number, number[]>();
  for (let at = 0; at < ids.length; at += ID_BYTES) {
    const known = byTail.get(tailOf(ids, at));
    if (known) known.push(at);
    else byTail.set(tailOf(ids, at), [at]);
  }
  return (others, row) => {
    const found = byTail.get(tailOf(others, row * ID_BYTES));
    return found?.some((at) => compareIds(ids, at, others, row * ID_BYTES) === 0) ?? false;
  };
}

/** The last four bytes of an id as a number: they differ the most. */
const tailOf = (ids: Uint8Array, at: number): number =>
  ((ids[at + 12] ?? 0) << 24) |
  ((ids[at + 13] ?? 0) << 16) |
  ((ids[at + 14] ?? 0) << 8) |
  (ids[at + 15] ?? 0);

function compareIds(left: Uint8Array, at: number, right: Uint8Array, other: number): number {
  for (let byte = 0; byte < ID_BYTES; byte++) {
    const order = (left[at + byte] ?? 0) - (right[other + byte] ?? 0);
    if (order !== 0) return order;
  }
  return 0;
}

/** The order of rows: video, frame, id. */
function compare(table: Source, row: number, other: { table: Source; row: number }): number {
  const [left, right] = [table.columns, other.table.columns];
  return (
    videoOf(table, row) - videoOf(other.table, other.row) ||
    (left.frame[row] ?? 0) - (right.frame[other.row] ?? 0) ||
    compareIds(left.id, row * ID_BYTES, right.id, other.row * ID_BYTES)
  );
}

/** The first of sorted rows that comes after another table's row. */
function placeOf(table: Source, other: { table: Source; row: number }): number {
  let [from, to] = [0, table.rows];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (compare(table, middle, other) < 0) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** What the newer table consists of, in its order; `dropped` and `added` are sorted. */
function stretchesOf(
  { old, dropped }: { old: Source; dropped: readonly number[] },
  { fresh, added }: { fresh: Source; added: readonly number[] },
): Stretch[] {
  const stretches: Stretch[] = [];
  const push = (table: Source, from: number, to: number) => {
    const last = stretches.at(-1);
    if (last?.table === table && last.to === from) last.to = to;
    else if (to > from) stretches.push({ table, from, to });
  };
  let from = 0;
  let next = 0;
  /** Takes the older rows before one, without those that are dropped. */
  const takeUntil = (end: number) => {
    for (let gone = dropped[next]; gone !== undefined && gone < end; gone = dropped[++next]) {
      push(old, from, gone);
      from = gone + 1;
    }
    push(old, from, end);
    from = Math.max(from, end);
  };
  for (const row of added) {
    takeUntil(placeOf(old, { table: fresh, row }));
    push(fresh, row, row + 1);
  }
  takeUntil(old.rows);
  return stretches;
}

function gathered(stretches: readonly Stretch[], rows: number): RowColumns {
  const all = newColumns(rows);
  let before = 0;
  for (const { table, from, to } of stretches) {
    for (const name of Object.keys(all) as (keyof RowColumns)[]) {
      const width = name === "id" ? ID_BYTES : name === "box" ? 4 : 1;
      all[name].set(table.columns[name].subarray(from * width, to * width), before * width);
    }
    const isSame = table.videos.every((video, index) => video === index);
    const end = before + to - from;
    if (!isSame)
      for (let row = before; row < end; row++)
        all.video[row] = table.videos[all.video[row] ?? 0] ?? 0;
    before = end;
  }
  return all;
}
