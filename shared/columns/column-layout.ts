// Layout of the binary answer of `GET /jobs/{job_id}/annotations.columns`, byte by byte in the
// README.md beside this file. Writer and reader share it. No file of this folder imports anything
// from outside of it: browsers load them as they are.

/** Media type of the answer; a change of the layout gets another number. */
export const COLUMNS_MEDIA_TYPE = "application/vnd.vantage.annotations.v1+octet-stream";
/** Version of the layout, in the bytes and in their header. */
export const COLUMNS_VERSION = 1;
/** ASCII of the first eight bytes. */
export const MAGIC = "VANTCOLS";
/** Bytes before the header: magic, version, length of the header. */
export const PROLOGUE_BYTES = 16;
/** Bytes before the body of a block: its kind, its count. */
export const BLOCK_HEAD_BYTES = 8;
/** Rows, or deleted ids, of one block. */
export const BLOCK_ROWS_MAX = 16_384;
/** Kinds of blocks, as the first number of a block. */
export const BLOCKS = { rows: 1, deleted: 2, end: 3 } as const;
/** Header and blocks begin at multiples of it. */
export const ALIGNMENT = 8;
/** Bytes of an annotation's id. */
export const ID_BYTES = 16;
/** Bytes of a row, without what aligns its block. */
export const ROW_BYTES = 53;

/** Reviews of an annotation; the column `state` holds the index. */
export const STATES = ["pending", "accepted", "rejected"] as const;
/** Sources of an annotation; the column `source` holds the index. */
export const SOURCES = ["model", "person", "import", "interpolated"] as const;
/** Bits of the column `flags`. Bit 8 is reserved for what two people judged differently. */
export const FLAGS = { duplicate: 1, keyframe: 2, polygon: 4 } as const;

/** In the column `confidence`: the annotation has none. */
export const NO_CONFIDENCE = 65_535;
const CONFIDENCE_STEPS = 65_534;

/**
 * A confidence, or a threshold, as the column `confidence` holds it. The order is kept: what is at
 * or above a threshold has a code at or above the threshold's, and so has `NO_CONFIDENCE`.
 */
export const confidenceCode = (confidence: number | null): number =>
  confidence === null ? NO_CONFIDENCE : Math.round(Math.fround(confidence) * CONFIDENCE_STEPS);

/** The confidence that a code stands for, to half a step; null for none. */
export const confidenceOf = (code: number): number | null =>
  code === NO_CONFIDENCE ? null : code / CONFIDENCE_STEPS;

/** What the rows of an answer refer to, and how the answer may be continued. */
export interface ColumnsHeader {
  version: number;
  job_id: string;
  /** Number of the newest edit when the answer began: `after_seq` of the next difference. */
  edits_seq: number;
  /** The request's `after_seq`: the rows are a difference; null: they are the whole job. */
  after_seq: number | null;
  /** The job's threshold, by which the flag `duplicate` is set. */
  threshold: number;
  classes: { number: number; name: string }[];
  /** Sorted by their ids; the column `video` holds the index. */
  videos: {
    video_id: string;
    filename: string;
    width: number;
    height: number;
    frame_count: number;
  }[];
  /** Rows when the answer began; edits while it is sent may make them more or fewer. */
  rows: number;
}

/** Columns of annotations, each an array with an entry a row. */
export interface RowColumns {
  /** Sixteen bytes a row. */
  id: Uint8Array<ArrayBuffer>;
  frame: Uint32Array<ArrayBuffer>;
  revision: Uint32Array<ArrayBuffer>;
  /** 0: none. */
  track: Uint32Array<ArrayBuffer>;
  /** Four numbers a row: x1, y1, x2, y2, in pixels of the frame. */
  box: Float32Array;
  /** Index in the header's `videos`. */
  video: Uint16Array<ArrayBuffer>;
  /** Number of a class of the header. */
  class: Uint16Array<ArrayBuffer>;
  /** See `confidenceCode`. */
  confidence: Uint16Array<ArrayBuffer>;
  state: Uint8Array<ArrayBuffer>;
  source: Uint8Array<ArrayBuffer>;
  flags: Uint8Array<ArrayBuffer>;
}

/** Length rounded up to the alignment. */
export const aligned = (bytes: number): number => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;

/** Bytes of the body of a block of rows, with what aligns it. */
export const rowsBytes = (rows: number): number => aligned(rows * ROW_BYTES);

/**
 * The columns of a block's body, as views on a buffer at an aligned offset. Their numbers are the
 * machine's own, little-endian on all that run browsers or Workers.
 */
export function rowViews(buffer: ArrayBuffer, offset: number, rows: number): RowColumns {
  const at = (bytesBefore: number) => offset + rows * bytesBefore;
  return {
    id: new Uint8Array(buffer, at(0), rows * ID_BYTES),
    frame: new Uint32Array(buffer, at(16), rows),
    revision: new Uint32Array(buffer, at(20), rows),
    track: new Uint32Array(buffer, at(24), rows),
    box: new Float32Array(buffer, at(28), rows * 4),
    video: new Uint16Array(buffer, at(44), rows),
    class: new Uint16Array(buffer, at(46), rows),
    confidence: new Uint16Array(buffer, at(48), rows),
    state: new Uint8Array(buffer, at(50), rows),
    source: new Uint8Array(buffer, at(51), rows),
    flags: new Uint8Array(buffer, at(52), rows),
  };
}

/** Columns of so many rows in a buffer of their own, all zero. */
export const newColumns = (rows: number): RowColumns =>
  rowViews(new ArrayBuffer(rowsBytes(rows)), 0, rows);

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/** The id of a row, or of an index in a list of ids, as text. */
export function idText(ids: Uint8Array, row: number): string {
  let text = "";
  for (let at = 0; at < ID_BYTES; at++) {
    if (at === 4 || at === 6 || at === 8 || at === 10) text += "-";
    text += HEX[ids[row * ID_BYTES + at] ?? 0];
  }
  return text;
}

/** The sixteen bytes of an id. */
export function idBytes(text: string): Uint8Array<ArrayBuffer> {
  const digits = text.replaceAll("-", "");
  if (!/^[0-9a-f]{32}$/i.test(digits)) throw new Error(`${JSON.stringify(text)} is no UUID`);
  return Uint8Array.from({ length: ID_BYTES }, (_, at) =>
    Number.parseInt(digits.slice(2 * at, 2 * at + 2), 16),
  );
}
