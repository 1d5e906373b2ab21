// Brings a table of columns up to date by a difference: pure, so that a reader may try it and keep
// the table that it had.

import { type ColumnsHeader, ID_BYTES, newColumns, type RowColumns } from "./column-layout.ts";
import type { ColumnTable } from "./column-reader.ts";

/** Numbers of a row before its id, and the row's place in the columns that it lies in. */
interface Place {
  columns: RowColumns;
  row: number;
  video: number;
}

/**
 * The table with the rows of a difference in place of its own, without those that were deleted, and
 * with the difference's header. Null where the difference does not continue the table, so that the
 * whole job has to be read again: it is of another job, it begins after the table ends, or the
 * job's threshold changed, by which duplicates are known.
 */
export function applyDifference(table: ColumnTable, difference: ColumnTable): ColumnTable | null {
  const { header } = difference;
  if (!continues(table.header, header)) return null;
  const deleted = idSet(difference.deleted);
  const fresh = placesOf(difference, header, ({ id }, row) => !deleted(id, row));
  const replaced = idSet(difference.columns.id);
  const kept = placesOf(table, header, ({ id }, row) => !replaced(id, row) && !deleted(id, row));
  const places = merged(kept, fresh.sort(compare));
  return {
    header: { ...header, after_seq: table.header.after_seq, rows: places.length },
    rows: places.length,
    columns: gathered(places),
    deleted: table.deleted,
  };
}

const continues = (before: ColumnsHeader, { job_id, after_seq, threshold }: ColumnsHeader) =>
  job_id === before.job_id &&
  after_seq !== null &&
  after_seq <= before.edits_seq &&
  threshold === before.threshold;

/** The rows that a condition holds for, with their videos as a header numbers them. */
function placesOf(
  { columns, rows, header }: ColumnTable,
  { videos }: ColumnsHeader,
  isWanted: (columns: RowColumns, row: number) => boolean,
): Place[] {
  const indexes = new Map(videos.map(({ video_id }, index) => [video_id, index]));
  const now = header.videos.map(({ video_id }) => indexes.get(video_id));
  const places: Place[] = [];
  for (let row = 0; row < rows; row++) {
    const video = now[columns.video[row] ?? 0];
    // What was of a video that left the job went with it.
    if (video !== undefined && isWanted(columns, row)) places.push({ columns, row, video });
  }
  return places;
}

/** Tells whether a list of ids, sixteen bytes each, holds the id of a row. */
function idSet(ids: Uint8Array): (others: Uint8Array, row: number) => boolean {
  const byTail = new Map<number, number[]>();
  for (let at = 0; at < ids.length; at += ID_BYTES) {
    const tail = tailOf(ids, at);
    byTail.set(tail, [...(byTail.get(tail) ?? []), at]);
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
const compare = (left: Place, right: Place): number =>
  left.video - right.video ||
  (left.columns.frame[left.row] ?? 0) - (right.columns.frame[right.row] ?? 0) ||
  compareIds(left.columns.id, left.row * ID_BYTES, right.columns.id, right.row * ID_BYTES);

function merged(kept: readonly Place[], fresh: readonly Place[]): Place[] {
  const all: Place[] = [];
  let next = 0;
  for (const place of kept) {
    for (let one = fresh[next]; one && compare(one, place) < 0; one = fresh[++next]) all.push(one);
    all.push(place);
  }
  return [...all, ...fresh.slice(next)];
}

function gathered(places: readonly Place[]): RowColumns {
  const all = newColumns(places.length);
  const names = Object.keys(all).filter((name) => name !== "video") as (keyof RowColumns)[];
  for (const name of names) {
    const width = name === "id" ? ID_BYTES : name === "box" ? 4 : 1;
    const target = all[name];
    for (const [index, { columns, row }] of places.entries()) {
      const source = columns[name];
      for (let part = 0; part < width; part++) {
        target[index * width + part] = source[row * width + part] ?? 0;
      }
    }
  }
  for (const [index, { video }] of places.entries()) all.video[index] = video;
  return all;
}
