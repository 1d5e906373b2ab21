// The rows of a table that a page shows: filtered and sorted. Rows are sorted and filtered once; a
// change of the confidence bounds alone is a binary search where they are sorted by confidence.

import { confidenceCode, NO_CONFIDENCE, SOURCES } from "../../../shared/columns/column-layout.ts";
import { type BoxState, type BoxTable, FLAGS, STATES, TRACK_NONE } from "./columns.ts";

/** Which boxes are meant; what is left out bounds nothing. */
export interface BoxFilter {
  classes?: readonly string[];
  states?: readonly BoxState[];
  /** Confidence from which boxes are meant, inclusive; boxes without one are meant. */
  from?: number;
  /** Confidence up to which boxes are meant, inclusive; boxes without one are not meant. */
  to?: number;
  video?: string;
  /** A track of the video; null: boxes without one. */
  track?: number | null;
  sources?: readonly (typeof SOURCES)[number][];
  duplicate?: boolean;
  /** Judged differently by two people, or not. */
  disputed?: boolean;
}

/** `frame`: by video and frame. `class`: by class, the most confident first. */
export type BoxSort = "frame" | "confidence-up" | "confidence-down" | "class";

const RADIX = 65_536;

/** Rows by a 16-bit key, rising; equal ones stay in their order. */
function sortedBy(rows: Uint32Array, keyOf: (row: number) => number): Uint32Array {
  const offsets = new Uint32Array(RADIX + 1);
  for (const row of rows) offsets[keyOf(row) + 1] = (offsets[keyOf(row) + 1] as number) + 1;
  for (let key = 0; key < RADIX; key++) {
    offsets[key + 1] = (offsets[key + 1] as number) + (offsets[key] as number);
  }
  const sorted = new Uint32Array(rows.length);
  for (const row of rows) {
    const key = keyOf(row);
    const offset = offsets[key] as number;
    sorted[offset] = row;
    offsets[key] = offset + 1;
  }
  return sorted;
}

/** Rows of a table sorted; equal ones in the order in which the table got them. */
export function sortRows(table: BoxTable, rows: Uint32Array, sort: BoxSort): Uint32Array {
  const { confidence, frame, video, class: classes } = table.columns;
  const up = (row: number) => confidence[row] as number;
  const down = (row: number) => NO_CONFIDENCE - (confidence[row] as number);
  if (sort === "confidence-up") return sortedBy(rows, up);
  if (sort === "confidence-down") return sortedBy(rows, down);
  if (sort === "class") return sortedBy(sortedBy(rows, down), (row) => classes[row] as number);
  const low = sortedBy(rows, (row) => (frame[row] as number) & 0xffff);
  const isLong = rows.some((row) => (frame[row] as number) >= RADIX);
  const byFrame = isLong ? sortedBy(low, (row) => (frame[row] as number) >>> 16) : low;
  return sortedBy(byFrame, (row) => video[row] as number);
}

/** Bounds of a filter as values of the column, both inclusive. */
const bounds = ({ from, to }: BoxFilter) => ({
  min: from === undefined ? 0 : confidenceCode(from),
  max: to === undefined ? NO_CONFIDENCE : confidenceCode(to),
});

/** Rows between the bounds, of all given. */
function withinBounds(table: BoxTable, rows: Uint32Array, filter: BoxFilter): Uint32Array {
  const { min, max } = bounds(filter);
  const { confidence } = table.columns;
  const within = new Uint32Array(rows.length);
  let count = 0;
  for (const row of rows) {
    const value = confidence[row] as number;
    if (value < min || value > max) continue;
    within[count] = row;
    count += 1;
  }
  return within.subarray(0, count);
}

/** One entry a number of a column: whether a list of names has it; all where there is no list. */
function mask(list: readonly number[] | undefined): (value: number) => boolean {
  if (!list) return () => true;
  const chosen = new Uint8Array(RADIX);
  for (const value of list) chosen[value] = 1;
  return (value) => chosen[value] === 1;
}

/** Rows of a table that a filter means, without its bounds of confidence, in the table's order. */
export function matchingRows(table: BoxTable, filter: BoxFilter): Uint32Array {
  const { columns } = table;
  const known = (numbers: readonly (number | undefined)[] | undefined) =>
    numbers?.filter((number) => number !== undefined);
  const ofClass = mask(known(filter.classes?.map((name) => table.classes.find(name))));
  const ofState = mask(filter.states?.map((state) => STATES[state]));
  const ofSource = mask(filter.sources?.map((source) => SOURCES.indexOf(source)));
  const ofVideo = mask(
    filter.video === undefined ? undefined : known([table.videos.find(filter.video)]),
  );
  const track = filter.track === null ? TRACK_NONE : filter.track;
  const read =
    (filter.duplicate === undefined ? 0 : FLAGS.duplicate) |
    (filter.disputed === undefined ? 0 : FLAGS.disputed);
  const wanted = (filter.duplicate ? FLAGS.duplicate : 0) | (filter.disputed ? FLAGS.disputed : 0);
  const rows = new Uint32Array(table.count);
  let count = 0;
  for (let row = 0; row < table.size; row++) {
    const state = columns.state[row] as number;
    if (state === STATES.deleted || !ofState(state)) continue;
    if (!ofClass(columns.class[row] as number) || !ofVideo(columns.video[row] as number)) continue;
    if (!ofSource(columns.source[row] as number)) continue;
    if (track !== undefined && columns.track[row] !== track) continue;
    if (((columns.flags[row] as number) & read) !== wanted) continue;
    rows[count] = row;
    count += 1;
  }
  return rows.subarray(0, count);
}

/** The first position in sorted rows from which on `isReached` holds. */
function firstWhere(rows: Uint32Array, isReached: (row: number) => boolean): number {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (isReached(rows[middle] as number)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Slices of one table. The last filter and order are kept for as long as the table stays as is. */
export class Slicer {
  readonly #table: BoxTable;
  #key = "";
  #sorted: Uint32Array = new Uint32Array();

  constructor(table: BoxTable) {
    this.#table = table;
  }

  /** Indexes of the rows that a filter means, sorted; not to be written to. */
  slice(filter: BoxFilter, sort: BoxSort): Uint32Array {
    const table = this.#table;
    const { from, to, ...rest } = filter;
    const key = JSON.stringify([table.version, sort, rest]);
    if (key !== this.#key) {
      this.#sorted = sortRows(table, matchingRows(table, rest), sort);
      this.#key = key;
    }
    const sorted = this.#sorted;
    if (from === undefined && to === undefined) return sorted;
    if (sort === "frame" || sort === "class") return withinBounds(table, sorted, filter);
    const { min, max } = bounds(filter);
    const { confidence } = table.columns;
    const value = (row: number) => confidence[row] as number;
    return sort === "confidence-up"
      ? sorted.subarray(
          firstWhere(sorted, (row) => value(row) >= min),
          firstWhere(sorted, (row) => value(row) > max),
        )
      : sorted.subarray(
          firstWhere(sorted, (row) => value(row) <= max),
          firstWhere(sorted, (row) => value(row) < min),
        );
  }
}
