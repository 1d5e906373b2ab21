// The boxes of a job as a struct of arrays, as the server streams them: 53 bytes a row, 100,000
// rows and more. A row keeps its index for as long as the table lives, also after its deletion, so
// a page may hold indexes while others edit.

import {
  confidenceCode,
  confidenceOf,
  SOURCES,
  FLAGS as WIRE_FLAGS,
} from "../../../shared/columns/column-layout.ts";
import type { ColumnTable } from "../../../shared/columns/column-reader.ts";
import { type Box, frameOf } from "./box.ts";

/** Values of the columns, equally long; `box` has four numbers a row. */
export interface Columns {
  video: Uint16Array;
  frame: Uint32Array;
  class: Uint16Array;
  state: Uint8Array;
  source: Uint8Array;
  flags: Uint8Array;
  confidence: Uint16Array;
  box: Float32Array;
  revision: Uint32Array;
  track: Uint32Array;
}

/** Values of the column `state`. A deleted row keeps its other values. */
export const STATES = { pending: 0, accepted: 1, rejected: 2, deleted: 255 } as const;
export type BoxState = Exclude<keyof typeof STATES, "deleted">;

/** Bits of the column `flags`; the server sends no `disputed` yet. */
export const FLAGS = { ...WIRE_FLAGS, disputed: 8 } as const;

/** The column `track` of a row without one. */
export const TRACK_NONE = 0;

const ROWS_MIN = 1_024;

const allocate = (rows: number): Columns => ({
  video: new Uint16Array(rows),
  frame: new Uint32Array(rows),
  class: new Uint16Array(rows),
  state: new Uint8Array(rows),
  source: new Uint8Array(rows),
  flags: new Uint8Array(rows),
  confidence: new Uint16Array(rows),
  box: new Float32Array(rows * 4),
  revision: new Uint32Array(rows),
  track: new Uint32Array(rows),
});

const COLUMN_NAMES = Object.keys(allocate(0)) as (keyof Columns)[];
/** Columns whose values mean the same in every answer and table. */
const PLAIN_COLUMNS = ["frame", "source", "flags", "confidence", "revision", "track"] as const;

const ID_BYTES = 16;
const ID_CHARACTERS = 36;
const DIGITS = new TextEncoder().encode("0123456789abcdef");
const DASH = 45;
/** Bytes before which a dash stands. */
const isAfterDash = Uint8Array.from({ length: ID_BYTES }, (_, byte) =>
  Number([4, 6, 8, 10].includes(byte)),
);

/** UUIDs of 16 bytes each. They are cut out of one text: ten times faster than one by one. */
export function uuidsOf(bytes: Uint8Array): string[] {
  const count = Math.floor(bytes.length / ID_BYTES);
  const characters = new Uint8Array(count * ID_CHARACTERS);
  let offset = 0;
  for (let index = 0; index < count * ID_BYTES; index++) {
    if (isAfterDash[index % ID_BYTES]) characters[offset++] = DASH;
    const byte = bytes[index] as number;
    characters[offset++] = DIGITS[byte >>> 4] as number;
    characters[offset++] = DIGITS[byte & 15] as number;
  }
  const text = new TextDecoder("latin1").decode(characters);
  return Array.from({ length: count }, (_, index) =>
    text.slice(index * ID_CHARACTERS, (index + 1) * ID_CHARACTERS),
  );
}

/** Names with a number each, in the order of their first use. */
class Names {
  readonly list: string[] = [];
  readonly #numbers = new Map<string, number>();

  numberOf(name: string): number {
    const known = this.#numbers.get(name);
    if (known !== undefined) return known;
    this.#numbers.set(name, this.list.length);
    return this.list.push(name) - 1;
  }

  find(name: string): number | undefined {
    return this.#numbers.get(name);
  }
}

export class BoxTable {
  /** Replaced when it grows: read it anew after each write. */
  columns = allocate(ROWS_MIN);
  /** Rows with those that were deleted: indexes are below it. */
  size = 0;
  /** Rows that are not deleted. */
  count = 0;
  /** Rises with each write. */
  version = 0;
  readonly classes = new Names();
  readonly videos = new Names();
  readonly #ids: string[] = [];
  readonly #indexes = new Map<string, number>();
  /** Polygons that were loaded, by row. */
  readonly #polygons = new Map<number, readonly number[]>();

  /** Index of a row that is not deleted, or undefined. */
  indexOf(id: string): number | undefined {
    const index = this.#indexes.get(id);
    return index === undefined || this.isDeleted(index) ? undefined : index;
  }

  /** Id of the row at an index. */
  idAt(index: number): string {
    return this.#ids[index] as string;
  }

  isDeleted(index: number): boolean {
    return this.columns.state[index] === STATES.deleted;
  }

  /** The box of an id, or null where there is none or it was deleted. */
  get(id: string): Box | null {
    const index = this.indexOf(id);
    return index === undefined ? null : this.read(index);
  }

  /** The box of an id, as it was last where it is deleted; null where it was never here. */
  last(id: string): Box | null {
    const index = this.#indexes.get(id);
    return index === undefined ? null : this.read(index);
  }

  /** The box at an index, as it was last where it is deleted. */
  read(index: number): Box {
    const { columns } = this;
    const at = (column: keyof Columns) => columns[column][index] as number;
    const flags = at("flags");
    const track = at("track");
    const polygon = flags & FLAGS.polygon ? this.#polygons.get(index) : null;
    const corner = (offset: number) => columns.box[index * 4 + offset] as number;
    return {
      id: this.idAt(index),
      frame_id: `${this.videos.list[at("video")]}.${at("frame")}`,
      class: this.classes.list[at("class")] as string,
      bbox: [corner(0), corner(1), corner(2), corner(3)],
      ...(polygon === undefined ? undefined : { polygon }),
      accepted: at("state") === STATES.pending ? null : at("state") === STATES.accepted,
      track_id: track === TRACK_NONE ? null : track,
      revision: at("revision"),
      confidence: confidenceOf(at("confidence")),
      source: SOURCES[at("source")] ?? "import",
      keyframe: (flags & FLAGS.keyframe) > 0,
      duplicate: (flags & FLAGS.duplicate) > 0,
      disputed: (flags & FLAGS.disputed) > 0,
    };
  }

  /** Inserts a box, or replaces the row of its id, also a deleted one; returns its index. */
  write(box: Box): number {
    const index = this.#rowOf(box.id);
    const { columns } = this;
    const frame = frameOf(box.frame_id);
    if (columns.state[index] === STATES.deleted) this.count += 1;
    columns.video[index] = this.videos.numberOf(frame.video);
    columns.frame[index] = frame.index;
    columns.class[index] = this.classes.numberOf(box.class);
    columns.state[index] =
      box.accepted === null ? STATES.pending : box.accepted ? STATES.accepted : STATES.rejected;
    columns.source[index] = SOURCES.indexOf(box.source);
    columns.flags[index] =
      (box.duplicate ? FLAGS.duplicate : 0) |
      (box.keyframe ? FLAGS.keyframe : 0) |
      (box.polygon === null ? 0 : FLAGS.polygon) |
      (box.disputed ? FLAGS.disputed : 0);
    columns.confidence[index] = confidenceCode(box.confidence);
    columns.box.set(box.bbox, index * 4);
    const isOther = columns.revision[index] !== box.revision;
    columns.revision[index] = box.revision;
    columns.track[index] = box.track_id ?? TRACK_NONE;
    if (box.polygon) this.#polygons.set(index, box.polygon);
    // Another revision may have another polygon than the one that was loaded.
    else if (box.polygon === null || isOther) this.#polygons.delete(index);
    this.version += 1;
    return index;
  }

  /** Marks the row of an id as deleted; without effect where there is none. */
  remove(id: string): void {
    const index = this.indexOf(id);
    if (index === undefined) return;
    this.columns.state[index] = STATES.deleted;
    this.count -= 1;
    this.version += 1;
  }

  /** Inserts or replaces the rows of an answer. */
  append({ header, rows, columns: given }: ColumnTable): void {
    const classes = new Map(header.classes.map(({ number, name }) => [number, name]));
    const classOf = Uint16Array.from({ length: Math.max(-1, ...classes.keys()) + 1 }, (_, number) =>
      this.classes.numberOf(classes.get(number) ?? String(number)),
    );
    const videoOf = header.videos.map(({ video_id }) => this.videos.numberOf(video_id));
    const first = this.size;
    this.#reserve(first + rows);
    const indexes = new Uint32Array(rows);
    for (const [row, id] of uuidsOf(given.id).entries()) {
      const index = this.#rowOf(id);
      indexes[row] = index;
      // Another revision may have another polygon.
      this.#polygons.delete(index);
      if (this.isDeleted(index)) this.count += 1;
      this.columns.state[index] = given.state[row] as number;
      this.columns.class[index] = classOf[given.class[row] as number] as number;
      this.columns.video[index] = videoOf[given.video[row] as number] as number;
    }
    const { columns } = this;
    const isNew = this.size - first === rows;
    for (const name of PLAIN_COLUMNS) {
      if (isNew) columns[name].set(given[name], first);
      else
        indexes.forEach((index, row) => {
          columns[name][index] = given[name][row] as number;
        });
    }
    if (isNew) columns.box.set(given.box, first * 4);
    else
      indexes.forEach((index, row) => {
        columns.box.set(given.box.subarray(row * 4, row * 4 + 4), index * 4);
      });
    this.version += 1;
  }

  /**
   * The row of an id, which is a new one, marked as deleted until it is written, or a known one.
   */
  #rowOf(id: string): number {
    const known = this.#indexes.get(id);
    if (known !== undefined) return known;
    const index = this.size;
    this.#reserve(index + 1);
    this.columns.state[index] = STATES.deleted;
    this.#indexes.set(id, index);
    this.#ids.push(id);
    this.size += 1;
    return index;
  }

  #reserve(rows: number): void {
    const capacity = this.columns.state.length;
    if (rows <= capacity) return;
    const grown = allocate(Math.max(rows, capacity * 2));
    for (const name of COLUMN_NAMES) grown[name].set(this.columns[name]);
    this.columns = grown;
  }
}
